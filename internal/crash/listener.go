package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

// connected is how many instances have two listeners each.
const connected = 2

// listener is a client that is connected with an instance by a socket, and connects anew where it was when that has ended. It changes the state
// that clients share, but only from a version that it has seen, and makes calls.
type listener struct {
	*round
	name, key string
	rng       *rand.Rand
	asked     int

	// All below is under mu.
	pos    client.Position // where the latest connection ended
	start  int64           // the last event before those that it is to be told of, as far as that is known; else -1
	writes []*write
	seen   []version // of the state, in the order in which they came
	events []agent.Event
	frames [][]frame // of each connection
}

// write is a change of the shared state that was asked for.
type write struct {
	name    string
	outcome outcome
	version int64 // that it was told, or else would have
}

// version is a shared state that a client has seen: each version adds a name, with its own number.
type version struct {
	n  int64
	by map[string]int64
}

// frame is what the code sends to clients of each effect.
type frame struct {
	Name string `json:"name"`
	N    int    `json:"n"`
}

func newListener(r *round, i int) *listener {
	return &listener{round: r, start: -1, name: fmt.Sprintf("%d.s%d", r.n, i), key: r.key(i / 2), rng: rand.New(rand.NewPCG(r.seed, uint64(r.n*1000+500+i)))}
}

// work is connected until ctx ends, and asks for things until working does.
func (l *listener) work(ctx, working context.Context) {
	for l.waitUp(ctx) == nil {
		s, err := l.connect(ctx)
		if err != nil {
			if k := agent.KindOf(err); k != agent.Unavailable && k != agent.Cancelled && ctx.Err() == nil {
				l.note("connections refused: " + k.String())
			}
			if sleep(ctx, glance) != nil {
				return
			}
			continue
		}
		l.began(s)
		for open := true; open; {
			select {
			case <-s.Done():
				open = false
			case <-ctx.Done():
				open = false
			case <-working.Done():
				select { // only listen
				case <-s.Done():
				case <-ctx.Done():
				}
				open = false
			case <-time.After(time.Duration(l.rng.IntN(60)) * time.Millisecond):
				open = l.ask(ctx, s)
			}
		}
		_ = s.Close() // it is the end of it in any case
		l.keep(s)
	}
}

func (l *listener) began(s *client.Socket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tally["connections"]++
	if l.start < 0 {
		l.start = s.Position().Events
	}
}

func (l *listener) keep(s *client.Socket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pos = s.Position()
}

func (l *listener) connect(ctx context.Context) (*client.Socket, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	l.mu.Lock()
	resume := l.pos
	l.frames = append(l.frames, nil)
	l.mu.Unlock()
	return l.server.client().Connect(ctx, agentName, l.key, &client.SocketOptions{Resume: resume, OnState: l.onState, OnEvent: l.onEvent, OnMessage: l.onMessage})
}

func (l *listener) onState(state json.RawMessage, n int64) {
	by, err := sharedBy(state)
	if err != nil {
		l.fail("instance %s: a client was shown a state %d of %s: %v", l.key, n, state, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = append(l.seen, version{n, by})
}

// sharedBy reads the shared state.
func sharedBy(state json.RawMessage) (map[string]int64, error) {
	var s struct {
		By map[string]int64 `json:"by"`
	}
	if len(state) == 0 {
		return nil, nil
	}
	err := json.Unmarshal(state, &s)
	return s.By, err
}

func (l *listener) onEvent(e agent.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
}

func (l *listener) onMessage(data []byte, _ bool) {
	var f frame
	if err := json.Unmarshal(data, &f); err != nil || f.N == 0 {
		l.fail("instance %s: a client was sent %.200s", l.key, data)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	last := len(l.frames) - 1
	l.frames[last] = append(l.frames[last], f)
}

// ask asks for one thing. It returns false to close the connection.
func (l *listener) ask(ctx context.Context, s *client.Socket) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	l.asked++
	name := fmt.Sprintf("%s.%d", l.name, l.asked)
	switch n := l.rng.IntN(20); {
	case n == 0:
		return false
	case n < 8:
		o := &op{name: name, key: l.key, by: l.name, kind: calling}
		l.add(o)
		b, err := s.Call(ctx, "op", map[string]any{"name": name})
		if err == nil {
			err = json.Unmarshal(b, &o.n)
		}
		o.outcome = l.outcomeOf(err)
	case n < 16:
		l.write(ctx, s, name)
	}
	return true
}

// write changes the shared state from the version that it has seen.
func (l *listener) write(ctx context.Context, s *client.Socket, name string) {
	state, n := s.State()
	by, err := sharedBy(state)
	if err != nil || int64(len(by)) != n {
		l.fail("instance %s: version %d of the state is %s: %v", l.key, n, state, err)
		return
	}
	if by = maps.Clone(by); by == nil {
		by = map[string]int64{}
	}
	w := &write{name: name, version: n + 1}
	by[name] = w.version
	l.mu.Lock()
	l.writes = append(l.writes, w)
	l.mu.Unlock()
	got, err := s.SetState(ctx, map[string]any{"by": by}, &n)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch k := agent.KindOf(err); {
	case err == nil && got != w.version:
		l.wrong = append(l.wrong, fmt.Sprintf("instance %s: a change of version %d of the state made version %d", l.key, n, got))
	case err == nil:
		w.outcome = done
		l.tally["changes of the state"]++
	case k == agent.Unavailable || k == agent.Cancelled || k == agent.Internal:
		l.tally["changes of the state, perhaps"]++
	default:
		w.outcome = undone
		l.tally["changes of the state refused: "+k.String()]++
	}
}

// catchUp waits until each listener has been shown all that there is.
func (r *round) catchUp(ctx context.Context, listeners []*listener) error {
	late := time.Now().Add(patience)
	for _, l := range listeners {
		_, state, err := l.now(ctx)
		if err != nil {
			return err
		}
		log, err := l.log(ctx)
		if err != nil {
			return err
		}
		last := int64(0)
		if len(log) > 0 {
			last = log[len(log)-1].Seq
		}
		for {
			version, event := l.seenSoFar()
			if version == state && event >= last {
				break
			}
			if time.Now().After(late) {
				r.fail("instance %s: after %v a client has seen version %d of the state of %d, and event %d of %d", l.key, patience, version, state, event, last)
				break
			}
			if err := sleep(ctx, glance); err != nil {
				return err
			}
		}
	}
	return nil
}

// seenSoFar is the version and the last event that a client has seen.
func (l *listener) seenSoFar() (version, event int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.seen); n > 0 {
		version = l.seen[n-1].n
	}
	if n := len(l.events); n > 0 {
		return version, l.events[n-1].Seq
	}
	return version, l.start
}

// now returns the state that clients share, as one that has just come sees it.
func (l *listener) now(ctx context.Context) (by map[string]int64, n int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s, err := l.server.client().Connect(ctx, agentName, l.key, nil)
	if err != nil {
		return nil, 0, err
	}
	state, n := s.State()
	if err := s.Close(); err != nil {
		return nil, 0, err
	}
	by, err = sharedBy(state)
	return by, n, err
}

// log returns the events that the instance's code has emitted, as far as they are kept.
func (l *listener) log(ctx context.Context) (out []agent.Event, err error) {
	for e, err := range l.server.client().Events(ctx, client.InstanceLog(agentName, l.key), 0, false) {
		if agent.KindOf(err) == agent.NotFound && err != nil {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if e.Kind == agent.EventEmit {
			out = append(out, e)
		}
	}
	return out, nil
}
