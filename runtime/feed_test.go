package runtime_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	goruntime "runtime"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/runtime/runtimetest"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/faultkv"
)

// emitter emits as many events as its input says.
func emitter(ctx context.Context, c host.Call) (agent.Payload, error) {
	var n int
	if err := json.Unmarshal(c.Input.Body, &n); err != nil {
		return agent.Payload{}, err
	}
	for i := range n {
		if err := runtimetest.Emit(ctx, c, "n", i); err != nil {
			return agent.Payload{}, err
		}
	}
	return agent.Payload{}, nil
}

// wantSeqs checks that frames are the events from..to of a log, each with its JSON.
func wantSeqs(t *testing.T, got []runtime.Frame, from, to int64) {
	t.Helper()
	if int64(len(got)) != to-from+1 {
		t.Errorf("%d events, want %d", len(got), to-from+1)
		return
	}
	for i, f := range got {
		var ev agent.Event
		if err := json.Unmarshal(f.JSON, &ev); err != nil || f.Event.Seq != from+int64(i) || ev.Seq != f.Event.Seq {
			t.Errorf("event %d is %d, in JSON %d: %v", from+int64(i), f.Event.Seq, ev.Seq, err)
			return
		}
	}
}

// read follows l from after until the event to.
func read(ctx context.Context, r *rig, l store.Log, after, to int64) (out []runtime.Frame, err error) {
	s, err := r.Subscribe(ctx, l, after)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	for len(out) == 0 || out[len(out)-1].Event.Seq < to {
		frames, err := s.Next(ctx)
		if err != nil {
			return out, err
		}
		out = append(out, frames...)
	}
	return out, nil
}

// A thousand listeners cost as many reads of the store as one does: of what was there when they came, one; of what comes
// while they listen, none.
func TestListenersShareReads(t *testing.T) {
	const listeners = 1000
	r := newRig(t, map[string]runtimetest.Func{"run": emitter}, nil)
	r.start()
	run := r.wait(r.run("a", "", "50").ID)
	l := store.SessionLog(app, run.Session)

	var subs [listeners]*runtime.Subscription
	views := r.db.Count(faultkv.View)
	var all sync.WaitGroup
	for i := range subs {
		all.Go(func() {
			s, err := r.Subscribe(t.Context(), l, 0)
			if err != nil {
				t.Error(err)
				return
			}
			subs[i] = s
			frames, err := s.Next(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			wantSeqs(t, frames, 1, 53)
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	if n := r.db.Count(faultkv.View) - views; n > listeners/50 { // how far the log goes, the log, and what the runtime looks after meanwhile
		t.Errorf("%d listeners looked into the store %d times", listeners, n)
	}
	if s := r.Stats(); s.Listeners != listeners || s.LogsFollowed != 1 || s.LogReads != 1 {
		t.Errorf("stats %+v", s)
	}

	reads := r.Stats().LogReads
	next, _, err := r.StartRun(t.Context(), app, runtime.RunRequest{Agent: "a", Session: run.Session, Input: agent.Text("20")}, store.Once{})
	if err != nil {
		t.Fatal(err)
	}
	r.wait(next.ID)
	for _, s := range subs {
		all.Go(func() {
			var got []runtime.Frame
			for len(got) < 23 {
				frames, err := s.Next(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				got = append(got, frames...)
			}
			wantSeqs(t, got, 54, 76)
			s.Close()
			s.Close()
		})
	}
	all.Wait()
	if n := r.Stats().LogReads - reads; n != 0 {
		t.Errorf("following read the log %d times", n)
	}
	if s := r.Stats(); s.Listeners != 0 || s.LogsFollowed != 0 {
		t.Errorf("nobody listens, but stats are %+v", s)
	}
}

// Listeners come at random moments, from random places, and read at random speeds, while runs write to the log and a small
// window forces them back to the store. Each sees every event once, in order.
func TestSeam(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 0))
			r := newRig(t, map[string]runtimetest.Func{"run": emitter}, &runtime.Options{Window: 1 << (8 + rnd.IntN(12))})
			r.start()
			s, _, err := r.store.CreateSession(t.Context(), agent.Session{App: app, Agent: "a", Key: "k"}, store.Once{})
			if err != nil {
				t.Fatal(err)
			}
			l := store.SessionLog(app, s.ID)
			const runs = 12
			sizes := make([]int, runs)
			total := int64(0)
			for i := range sizes {
				sizes[i] = rnd.IntN(80)
				total += int64(sizes[i] + 3)
			}
			var all sync.WaitGroup
			listen := func(after int64, pauses int) {
				all.Go(func() {
					got, err := func() (out []runtime.Frame, err error) {
						sub, err := r.Subscribe(t.Context(), l, after)
						if err != nil {
							return nil, err
						}
						defer sub.Close()
						for after+int64(len(out)) < total {
							frames, err := sub.Next(t.Context())
							if err != nil {
								return out, err
							}
							out = append(out, frames...)
							for range pauses {
								goruntime.Gosched()
							}
						}
						return out, nil
					}()
					if err != nil {
						t.Error(err)
						return
					}
					wantSeqs(t, got, after+1, total)
				})
			}
			for i, n := range sizes {
				if _, _, err := r.StartRun(t.Context(), app, runtime.RunRequest{Agent: "a", Session: s.ID, Input: agent.Text(fmt.Sprint(n))}, store.Once{}); err != nil {
					t.Fatal(err)
				}
				_, last, err := r.store.Bounds(t.Context(), l)
				if err != nil {
					t.Fatal(err)
				}
				for range rnd.IntN(4) {
					listen(rnd.Int64N(last+1), rnd.IntN(3)*10*i)
				}
				listen(last, 0)
			}
			all.Wait()
			if s := r.Stats(); s.Listeners != 0 || s.LogsFollowed != 0 {
				t.Errorf("stats %+v", s)
			}
		})
	}
}

func TestSubscribeRun(t *testing.T) {
	release := make(chan struct{})
	r := newRig(t, map[string]runtimetest.Func{
		"run": emitter,
		"onMessage": func(ctx context.Context, c host.Call) (agent.Payload, error) {
			<-release
			return agent.Payload{}, runtimetest.Emit(ctx, c, "got", 1)
		},
	}, nil)
	r.start()
	first := r.wait(r.run("a", "", "2").ID)
	second, _, err := r.Send(t.Context(), app, first.Session, agent.Message{Content: []byte("1")}, store.Once{})
	if err != nil {
		t.Fatal(err)
	}
	live, err := r.SubscribeRun(t.Context(), app, second.ID, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	close(release)
	r.wait(second.ID)
	for name, tt := range map[string]struct {
		run   agent.RunID
		after int64
		want  []string
	}{
		"first":       {first.ID, 0, []string{"run.queued", "run.started", "n 0", "n 1", "run.completed"}},
		"second":      {second.ID, 0, []string{"message", "run.queued", "run.started", "got 1", "run.completed"}},
		"first, rest": {first.ID, 3, []string{"n 1", "run.completed"}},
		"first, over": {first.ID, 5, nil},
		"live":        {second.ID, -1, []string{"message", "run.queued", "run.started", "got 1", "run.completed"}},
	} {
		s := live
		if tt.after >= 0 {
			if s, err = r.SubscribeRun(t.Context(), app, tt.run, tt.after); err != nil {
				t.Fatal(err)
			}
		}
		frames, err := collect(t.Context(), s)
		var got []string
		for _, f := range frames {
			got = append(got, brief(f.Event))
		}
		if d := cmp.Diff(tt.want, got); d != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, d)
		}
		s.Close()
	}
}

func TestSubscribeRefuses(t *testing.T) {
	r := newRig(t, map[string]runtimetest.Func{"run": emitter}, nil)
	run := r.run("a", "", "1")
	l := store.SessionLog(app, run.Session)
	for _, tt := range []struct {
		log   store.Log
		after int64
		want  string
	}{{store.SessionLog(app, "none"), 0, "not_found"}, {l, -1, "invalid"}, {l, 2, "invalid"}, {l, 1, "ok"}} {
		s, err := r.Subscribe(t.Context(), tt.log, tt.after)
		if kind(err) != tt.want {
			t.Errorf("%s after %d: got %v, want %s", tt.log, tt.after, err, tt.want)
		}
		if err == nil {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := s.Next(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("next: %v", err)
			}
			s.Close()
		}
	}
	if n := r.Stats().LogsFollowed; n != 0 {
		t.Errorf("%d logs are followed", n)
	}
}

// Events that reach listeners out of order, or not at all, are read from the store when a later one shows that they are there.
func TestGapIsRead(t *testing.T) {
	r := newRig(t, map[string]runtimetest.Func{"run": emitter}, nil)
	run := r.run("a", "", "1")
	l := store.SessionLog(app, run.Session)
	s, err := r.Subscribe(t.Context(), l, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := r.store.Append(t.Context(), l, []agent.Event{{Kind: agent.EventEmit, Name: "unseen"}}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.StartRun(t.Context(), app, runtime.RunRequest{Agent: "a", Session: run.Session, Input: agent.Text("1")}, store.Once{}); err != nil {
		t.Fatal(err)
	}
	frames, err := s.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wantSeqs(t, frames, 2, 3)
}

// An agent's log forgets old events; a listener goes on with the oldest that is left.
func TestSubscribeTrimmedLog(t *testing.T) {
	r := newRig(t, nil, nil)
	a := r.agent(agent.Agent{Name: "old"})
	l := store.AgentLog(app, a.ID)
	for i := range 3 {
		events := make([]agent.Event, 4000)
		for j := range events {
			events[j] = agent.Event{Kind: agent.EventEmit, Name: "n", Data: []byte(fmt.Sprint(4000*i + j))}
		}
		if _, err := r.store.Append(t.Context(), l, events); err != nil {
			t.Fatal(err)
		}
	}
	got, err := read(t.Context(), r, l, 0, 12_000)
	if err != nil {
		t.Fatal(err)
	}
	wantSeqs(t, got, 2001, 12_000)
}

// A read that fails is told to the listener, and does not end the others' listening.
func TestSubscribeReadFails(t *testing.T) {
	r := newRig(t, map[string]runtimetest.Func{"run": emitter}, nil)
	run := r.run("a", "", "1")
	s, err := r.Subscribe(t.Context(), store.SessionLog(app, run.Session), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r.fault = func(op faultkv.Op) faultkv.Fault { return faultkv.Fault{Err: faultkv.ErrFault} }
	if _, err := s.Next(t.Context()); kind(err) != "unavailable" {
		t.Errorf("got %v", err)
	}
	r.fault = nil
	frames, err := s.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wantSeqs(t, frames, 1, 1)
}
