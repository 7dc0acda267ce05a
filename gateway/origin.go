package gateway

import (
	"container/list"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
)

// Bounds of what is remembered of answers with calls of tools.
const (
	originFor   = time.Hour
	maxOrigins  = 50_000
	maxOpaque   = 256 << 10 // bytes of the opaque data of one answer
	maxRemember = 64 << 20  // bytes of the opaque data of all
)

// origin is where the call of a tool came from, and what of the model's thoughts a client may have had no place for.
type origin struct {
	wire.Origin
	on     *wire.Thinking // sat on the call itself
	before []wire.Part    // thoughts before it, with their opaque data; of the first call of an answer alone
	size   int
}

// originKey is a call of an agent's.
type originKey struct {
	app   agent.App
	agent string
	call  string
}

type originEntry struct {
	key   originKey
	o     *origin
	until time.Time
}

// origins remembers the newest of them, in memory: after a restart a signed turn may go elsewhere, where its opaque data is left out.
type origins struct {
	mu     sync.Mutex
	by     map[originKey]*list.Element
	recent *list.List // of *originEntry, the newest first
	size   int
}

func newOrigins() *origins { return &origins{by: map[originKey]*list.Element{}, recent: list.New()} }

func (s *origins) put(now time.Time, k originKey, o *origin) {
	if k.call == "" || len(k.call) > 512 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := s.by[k]; at != nil {
		s.drop(at)
	}
	s.by[k] = s.recent.PushFront(&originEntry{k, o, now.Add(originFor)})
	s.size += o.size
	for s.recent.Len() > maxOrigins || s.size > maxRemember {
		s.drop(s.recent.Back())
	}
}

func (s *origins) drop(at *list.Element) {
	e := s.recent.Remove(at).(*originEntry)
	delete(s.by, e.key)
	s.size -= e.o.size
}

func (s *origins) get(now time.Time, k originKey) *origin {
	if k.call == "" {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.by[k]
	if at == nil {
		return nil
	}
	e := at.Value.(*originEntry)
	if !now.Before(e.until) {
		s.drop(at)
		return nil
	}
	return e.o
}

func (x *exchange) originOf(call string) *origin {
	return x.g.origin.get(x.g.o.Now(), originKey{x.who.App, x.who.Agent, call})
}

// remember keeps where the calls of a passed answer came from.
func (x *exchange) remember(from wire.Origin, calls []string) {
	now := x.g.o.Now()
	for _, id := range calls {
		x.g.origin.put(now, originKey{x.who.App, x.who.Agent, id}, &origin{Origin: from})
	}
}

// rememberParts is remember for an answer that was decoded. Opaque data is kept with the calls.
func (x *exchange) rememberParts(from wire.Origin, parts []wire.Part) {
	now := x.g.o.Now()
	var before []wire.Part
	size := 0
	for _, p := range parts {
		if p.Kind == wire.ThoughtPart && p.Thought != nil && size+len(p.Thought.Opaque)+len(p.Text) <= maxOpaque {
			before = append(before, p)
			size += len(p.Thought.Opaque) + len(p.Text)
		}
		if p.Kind != wire.CallPart || p.Call == nil {
			continue
		}
		o := &origin{Origin: from, before: before, size: size}
		before, size = nil, 0
		if p.Thought != nil && len(p.Thought.Opaque) <= maxOpaque {
			o.on, o.size = p.Thought, o.size+len(p.Thought.Opaque)
		}
		x.g.origin.put(now, originKey{x.who.App, x.who.Agent, p.Call.ID}, o)
	}
}

// restore gives the calls in r their opaque data back that the client had no place for, and says of what it brought where it came from.
func (x *exchange) restore(r *wire.Request) {
	for i := range r.Messages {
		m := &r.Messages[i]
		if m.Role != wire.Assistant {
			continue
		}
		var from *origin
		thinks := false
		for j := range m.Parts {
			p := &m.Parts[j]
			thinks = thinks || p.Kind == wire.ThoughtPart && p.Thought != nil
			if p.Kind == wire.CallPart && p.Call != nil && from == nil {
				from = x.originOf(p.Call.ID)
			}
		}
		if from == nil {
			continue
		}
		parts := make([]wire.Part, 0, len(m.Parts)+len(from.before))
		for _, p := range m.Parts {
			if p.Kind == wire.CallPart && p.Call != nil {
				if o := x.originOf(p.Call.ID); o != nil {
					if !thinks {
						parts = append(parts, o.before...)
					}
					if p.Thought == nil {
						p.Thought = o.on
					}
				}
			}
			if p.Thought != nil && p.Thought.Origin.Provider == "" {
				t := *p.Thought
				t.Origin = from.Origin
				p.Thought = &t
			}
			parts = append(parts, p)
		}
		m.Parts = parts
	}
}
