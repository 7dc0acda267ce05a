package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"sync"
	"sync/atomic"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
)

// Frame is one event with its JSON form, which is made once for all listeners. It is shared: nobody changes it.
type Frame struct {
	Event agent.Event
	JSON  []byte
}

func frames(events []agent.Event) []Frame {
	out := make([]Frame, len(events))
	for i, ev := range events {
		out[i] = Frame{Event: ev, JSON: encode(ev)}
	}
	return out
}

// feeds has one hub for each log that somebody listens to.
type feeds struct {
	store  *store.Store
	window int // bytes
	reads  atomic.Int64

	mu   sync.Mutex
	hubs map[store.Log]*hub
}

func newFeeds(st *store.Store, window int) *feeds {
	return &feeds{store: st, window: window, hubs: make(map[store.Log]*hub)}
}

// publish shows committed events to the listeners of their log. It may be called in another order than that of the commits.
func (f *feeds) publish(l store.Log, events []agent.Event) {
	f.mu.Lock()
	h := f.hubs[l]
	f.mu.Unlock()
	if h != nil && len(events) > 0 {
		h.publish(frames(events))
	}
}

func (f *feeds) join(l store.Log) *hub {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.hubs[l]
	if h == nil {
		h = newHub(f, l)
		f.hubs[l] = h
	}
	h.listeners++
	return h
}

func (f *feeds) leave(h *hub) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if h.listeners--; h.listeners == 0 {
		delete(f.hubs, h.log)
	}
}

func (f *feeds) figures() (logs, listeners int, reads int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range f.hubs {
		listeners += h.listeners
	}
	return len(f.hubs), listeners, f.reads.Load()
}

// Subscription follows one log. It must not be used by two goroutines, but for Close.
type Subscription struct {
	hub   *hub
	close sync.Once
	pos   int64       // number of the last event passed
	run   agent.RunID // if set, only events of this run are returned, up to its end
	until int64       // if set, the last event that can belong to run
	ended bool
}

// Subscribe follows a log from the event after the one numbered after. No event is skipped, save those an agent's log no
// longer keeps, and none comes twice. The caller closes the subscription.
func (r *Runtime) Subscribe(ctx context.Context, l store.Log, after int64) (*Subscription, error) {
	s := &Subscription{hub: r.feeds.join(l), pos: after}
	if err := s.hub.reach(ctx, after); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// SubscribeRun follows the events of one run, its message included, until its last one.
func (r *Runtime) SubscribeRun(ctx context.Context, app agent.App, id agent.RunID, after int64) (*Subscription, error) {
	run, err := r.store.Run(ctx, app, id)
	if err != nil {
		return nil, err
	}
	s, err := r.Subscribe(ctx, store.SessionLog(app, run.Session), max(after, run.FirstSeq-1))
	if err != nil {
		return nil, err
	}
	s.run = id
	if run.Status.Terminal() {
		if s.until, err = s.hub.ask(ctx); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

// Next returns the next events, at least one; it waits for them until ctx ends. It returns io.EOF when there can be no
// more: after the last event of the run that SubscribeRun was asked for.
func (s *Subscription) Next(ctx context.Context) ([]Frame, error) {
	for !s.ended && (s.until == 0 || s.pos < s.until) {
		got, err := s.hub.next(ctx, s.pos)
		if err != nil {
			return nil, err
		}
		s.pos = got[len(got)-1].Event.Seq
		if s.run != "" {
			got = s.ofRun(got)
		}
		if len(got) > 0 {
			return got, nil
		}
	}
	return nil, io.EOF
}

func (s *Subscription) ofRun(all []Frame) (mine []Frame) {
	for _, f := range all {
		if f.Event.Run != s.run {
			continue
		}
		mine = append(mine, f)
		if f.Event.Kind.EndsRun() {
			s.ended = true
			break
		}
	}
	return mine
}

// Tail returns the number of the newest event known to be in the log: a listener that has got so far has caught up.
func (s *Subscription) Tail() int64 {
	high, _ := s.hub.extent()
	return high
}

// Close ends the subscription. Closing twice is allowed.
func (s *Subscription) Close() { s.close.Do(func() { s.hub.feeds.leave(s.hub) }) }

// encode makes an event's data, or its frame, of one of our own values, which always have a JSON form. JSON within it keeps its bytes, of which
// there may be a digest: json.Marshal would escape <, > and & in it.
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("runtime: " + err.Error())
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// look shows the listeners of a log what others have written there.
func (f *feeds) look(ctx context.Context, l store.Log) {
	f.mu.Lock()
	h := f.hubs[l]
	f.mu.Unlock()
	if h != nil {
		_, _ = h.ask(ctx) // a listener finds out with the next event, if not now
	}
}
