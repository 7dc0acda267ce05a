package durable_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime/durable"
	"github.com/skep-dev/skep/store/instance"
	"github.com/skep-dev/skep/store/instance/instancetest"
)

// Turns come in the order of their calls, one after the other.
func TestOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, durable.Options{})
		first := r.enter("k")
		var got []int
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				x := r.enter("k")
				got = append(got, i)
				if err := x.Leave(t.Context()); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		if n := r.Waiting(name("k")); n != 50 {
			t.Errorf("%d wait", n)
		}
		first.Abandon()
		all.Wait()
		for i, n := range got {
			if i != n {
				t.Fatalf("order %v", got)
			}
		}
	})
}

// The line has a bound; one that gives up leaves it, also when its turn comes at that moment.
func TestLine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, durable.Options{Waiting: 2})
		first := r.enter("k")
		ctx, cancel := context.WithCancel(t.Context())
		errs := make(chan error, 3)
		for range 2 {
			go func() {
				x, err := r.Enter(ctx, name("k"), durable.Entry{})
				if err == nil {
					x.Abandon()
				}
				errs <- err
			}()
		}
		synctest.Wait()
		_, err := r.Enter(t.Context(), name("k"), durable.Entry{})
		wantKind(t, err, agent.Exhausted)
		if e := agent.AsError(err); e.Limit != agent.LimitConcurrency || e.After == 0 || e.Hint == "" {
			t.Errorf("%+v", e)
		}
		cancel()
		wantIs(t, <-errs, context.Canceled)
		wantIs(t, <-errs, context.Canceled)
		first.Abandon()
		first.Abandon()
		r.enter("k").Abandon()
		if s := r.Stats(); s.Waiting != 0 || s.Refused != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// What a turn changed is there after its commit, and nothing of it after an Undo or without one.
func TestUndo(t *testing.T) {
	r := newRig(t, durable.Options{})
	log := instance.OwnLog("l")
	all := func(x *durable.Turn) {
		r.set(x, "a", "1")
		r.setAlarm(x, alarm("al", time.Unix(1, 0)))
		for _, err := range []error{
			x.Append(t.Context(), log, agent.Event{Kind: agent.EventEmit, Data: []byte("1")}),
			x.Journal(t.Context(), instance.Entry{Run: "R"}),
			x.Send(t.Context(), instance.Send{To: name("other")}),
			x.Child(t.Context(), instance.Child{ID: name("child")}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	empty := func() bool {
		i, err := r.memory.Info(t.Context(), name("k"))
		if err != nil {
			t.Fatal(err)
		}
		return i.State.Keys == 0 && i.Alarms == 0 && i.LogBytes == 0 && i.Outbox == 0 && i.Children == 0
	}
	x := r.enter("k")
	all(x)
	x.Abandon()
	if !empty() {
		t.Error("an abandoned turn left something")
	}
	_, err := x.Edit(t.Context(), bounds, set("a", "2"))
	wantKind(t, err, agent.Cancelled)
	if err := x.Leave(t.Context()); agent.KindOf(err) != agent.Cancelled {
		t.Errorf("leaving a turn that is over: %v", err)
	}
	ran := 0
	r.turn("k", func(x *durable.Turn) {
		all(x)
		x.Then(func() { ran++ })
		x.Undo()
		if x.Changed() || r.get(x, "a") != "" {
			t.Error("an undone turn has changes")
		}
	})
	if !empty() || ran != 0 {
		t.Error("an undone turn left something")
	}
	r.turn("k", func(x *durable.Turn) {
		all(x)
		x.Then(func() { ran++ })
	})
	i, err := r.memory.Info(t.Context(), name("k"))
	if err != nil || i.State.Keys != 1 || i.Alarms != 1 || i.Outbox != 1 || i.Children != 1 || i.LogBytes == 0 || i.Fence.Head != 1 || ran != 1 {
		t.Errorf("%+v, %v, ran %d", i, err, ran)
	}
}

// A turn that is too large for one commit is committed in parts, and one that is not is never.
func TestLargeTurn(t *testing.T) {
	r := newRig(t, durable.Options{})
	head := func() int64 {
		i, err := r.memory.Info(t.Context(), name("k"))
		if err != nil {
			t.Fatal(err)
		}
		return i.Fence.Head
	}
	r.turn("k", func(x *durable.Turn) {
		for i := range 10_000 { // the same keys again and again are few parts
			r.set(x, fmt.Sprint("k", i%10), strings.Repeat("v", 1000))
			r.setAlarm(x, instance.AlarmEdit{Alarm: instance.Alarm{Name: "a", At: time.Unix(int64(i), 0), Data: make([]byte, 1000)}})
		}
	})
	if head() != 1 {
		t.Errorf("%d commits", head())
	}
	r.turn("k", func(x *durable.Turn) {
		for i := range 2000 {
			r.set(x, fmt.Sprintf("many%04d", i), "v")
		}
		r.turnEvents(x, 30, 100<<10)
		for i := range 12 {
			run := agent.Run{App: agent.DefaultApp, ID: agent.RunID(fmt.Sprint("R", i)), Session: "S", Input: agent.Text(strings.Repeat("x", 90<<10))}
			if err := x.ChangeRun(t.Context(), instance.RunEdit{Run: run}); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				r.memory.AddSession("S", name("k"))
			}
		}
	})
	if head() < 8 {
		t.Errorf("%d commits", head())
	}
	page, _, err := r.memory.Scan(t.Context(), name("k"), agent.StateRange{Prefix: "many1999"})
	if err != nil || len(page) != 1 {
		t.Errorf("%v, %v", page, err)
	}
}

func (r *rig) turnEvents(x *durable.Turn, n, size int) {
	for range n {
		data := []byte(`"` + strings.Repeat("e", size) + `"`)
		if err := x.Append(r.t.Context(), instance.OwnLog("l"), agent.Event{Kind: agent.EventEmit, Data: data}); err != nil {
			r.t.Fatal(err)
		}
	}
}

// An owner that was taken over commits nothing more, and forgets what it kept in memory; its next turn owns the instance anew.
func TestFenced(t *testing.T) {
	r := newRig(t, durable.Options{})
	memo := &closing{}
	r.turn("k", func(x *durable.Turn) { r.set(x, "n", "1"); x.SetMemo(memo) })
	zombie := r.enter("k")
	if zombie.Memo() != memo {
		t.Error("the memo is lost")
	}
	r.set(zombie, "n", "zombie")
	other := r.next(durable.Options{})
	other.turn("k", func(x *durable.Turn) { r.set(x, "n", "2") })
	wantIs(t, zombie.Commit(t.Context()), instance.ErrFenced)
	if _, err := zombie.Get(t.Context(), "n"); !errors.Is(err, instance.ErrFenced) {
		t.Errorf("a fenced turn reads: %v", err)
	}
	wantIs(t, zombie.Leave(t.Context()), instance.ErrFenced)
	if r.stored("k", "n") != "2" {
		t.Errorf("n is %s", r.stored("k", "n"))
	}
	if !memo.closed {
		t.Error("what it kept was not closed")
	}
	r.turn("k", func(x *durable.Turn) {
		if x.Memo() != nil || r.get(x, "n") != "2" {
			t.Errorf("memo %v, n %s", x.Memo(), r.get(x, "n"))
		}
	})
}

type closing struct{ closed bool }

func (c *closing) Close() error { c.closed = true; return nil }

// The memo of an owner that was fenced is not what a turn that waited in its line gets.
func TestFencedLine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, durable.Options{})
		zombie := r.enter("k")
		zombie.SetMemo(&closing{})
		r.set(zombie, "n", "zombie")
		got := make(chan any)
		go func() {
			x := r.enter("k")
			defer x.Abandon()
			got <- x.Memo()
		}()
		synctest.Wait()
		r.next(durable.Options{}).turn("k", func(x *durable.Turn) { r.set(x, "n", "2") })
		wantIs(t, zombie.Leave(t.Context()), instance.ErrFenced)
		if memo := <-got; memo != nil {
			t.Errorf("memo %v", memo)
		}
	})
}

// Whatever became of a commit whose outcome was unknown, the turn ends well and has taken effect once.
func TestUnknown(t *testing.T) {
	for _, fault := range []instancetest.Fault{
		{Unknown: instancetest.Made}, {Unknown: instancetest.NotMade},
		{Unknown: instancetest.MadeLate, Late: time.Millisecond}, {Unknown: instancetest.MadeLate, Late: time.Minute},
	} {
		for resolves := range 3 {
			t.Run(fmt.Sprintf("%+v/%d", fault, resolves), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					r := newRig(t, durable.Options{})
					r.turn("k", func(x *durable.Turn) { r.turnEvents(x, 1, 1) })
					commits, broken := 0, resolves
					r.fault = func(op instancetest.Op) instancetest.Fault {
						switch op.Name {
						case "Commit":
							if commits++; commits == 1 {
								return fault
							}
						case "Resolve":
							if broken--; broken >= 0 {
								return instancetest.Fault{Err: agent.Errorf(agent.Unavailable, "not now")}
							}
						}
						return instancetest.Fault{}
					}
					r.turn("k", func(x *durable.Turn) { r.turnEvents(x, 1, 1) })
					r.turn("k", func(x *durable.Turn) { r.turnEvents(x, 1, 1) })
					r.store.Wait()
					evs, err := r.memory.ReadLog(t.Context(), name("k"), instance.OwnLog("l"), 0, 0)
					if err != nil || len(evs) != 3 {
						t.Errorf("%d events, %v", len(evs), err)
					}
				})
			})
		}
	}
}

// An outcome that stays unknown ends the turn; the next owns the instance anew, so what was sent can never land after it.
func TestUnknownForLong(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, durable.Options{})
		r.turn("k", func(x *durable.Turn) { r.set(x, "n", "1") })
		down := true
		r.fault = func(op instancetest.Op) instancetest.Fault {
			switch {
			case down && op.Name == "Commit":
				return instancetest.Fault{Unknown: instancetest.MadeLate, Late: time.Hour}
			case down && op.Name == "Resolve":
				return instancetest.Fault{Err: agent.Errorf(agent.Internal, "the store is away")}
			}
			return instancetest.Fault{}
		}
		x := r.enter("k")
		r.set(x, "n", "lost")
		wantIs(t, x.Commit(t.Context()), instance.ErrUnknown)
		wantIs(t, x.Leave(t.Context()), instance.ErrUnknown)
		down = false
		r.turn("k", func(x *durable.Turn) {
			if got := r.get(x, "n"); got != "1" {
				t.Errorf("n is %q", got)
			}
			r.set(x, "n", "2")
		})
		r.store.Wait()
		if got := r.stored("k", "n"); got != "2" {
			t.Errorf("n is %q", got)
		}
	})
}

// A process that stops does not wait for a store that has died: neither for an attempt that hangs, nor for the outcome of one.
func TestHasten(t *testing.T) {
	for name, plan := range map[string]func(instancetest.Op) instancetest.Fault{
		"the outcome": func(op instancetest.Op) instancetest.Fault {
			if op.Name == "Commit" {
				return instancetest.Fault{Unknown: instancetest.MadeLate, Late: time.Hour}
			}
			return instancetest.Fault{Err: agent.Errorf(agent.Internal, "the store is away")}
		},
		"a commit that hangs": func(op instancetest.Op) instancetest.Fault {
			if op.Name == "Commit" {
				return instancetest.Fault{Delay: time.Hour}
			}
			return instancetest.Fault{Err: agent.Errorf(agent.Internal, "the store is away")}
		},
		"a question that hangs": func(op instancetest.Op) instancetest.Fault {
			if op.Name == "Commit" {
				return instancetest.Fault{Unknown: instancetest.NotMade}
			}
			return instancetest.Fault{Delay: time.Hour}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, durable.Options{})
				x := r.enter("k")
				r.set(x, "n", "1")
				r.fault = plan
				ended := make(chan error, 1)
				go func() { ended <- x.Commit(context.Background()) }()
				pass(time.Second)
				select {
				case err := <-ended:
					t.Fatalf("it has given up before it must: %v", err)
				default:
				}
				r.Hasten()
				r.Hasten()
				began := time.Now()
				if err := <-ended; err == nil {
					t.Error("a commit that nobody made has succeeded")
				}
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("it took %s", took)
				}
				x.Abandon()
				r.fault = nil
				r.store.Wait()
			})
		})
	}
	bubble(t, func(t *testing.T) { // and commits that work go on to
		r := newRig(t, durable.Options{})
		r.Hasten()
		unknown := true
		r.fault = func(op instancetest.Op) (f instancetest.Fault) {
			if op.Name == "Commit" && unknown {
				f.Unknown, unknown = instancetest.NotMade, false
			}
			return f
		}
		r.turn("k", func(x *durable.Turn) { r.set(x, "n", "1") })
		if got := r.stored("k", "n"); got != "1" || unknown {
			t.Errorf("n is %q", got)
		}
	})
}

// After an error that says that nothing was changed a turn goes on, also when the fence had moved.
func TestRefusedCommit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, durable.Options{})
		faults := []instancetest.Fault{{Unknown: instancetest.NotMade}, {Err: agent.Errorf(agent.Exhausted, "the disk is full")}}
		r.fault = func(op instancetest.Op) (f instancetest.Fault) {
			if op.Name == "Commit" && len(faults) > 0 {
				f, faults = faults[0], faults[1:]
			}
			return f
		}
		x := r.enter("k")
		r.set(x, "n", "1")
		wantKind(t, x.Commit(t.Context()), agent.Exhausted)
		if err := x.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := r.stored("k", "n"); got != "1" {
			t.Errorf("n is %q", got)
		}
	})
}

// Commits are told of in their order, before the caller learns of them.
func TestCommitted(t *testing.T) {
	var heads []int64
	r := newRig(t, durable.Options{Committed: func(_ instance.ID, b *instance.Batch, res instance.Result) { heads = append(heads, res.Fence.Head) }})
	for range 3 {
		r.turn("k", func(x *durable.Turn) {
			r.set(x, "n", "1")
			x.Then(func() { heads = append(heads, 0) })
		})
	}
	r.turn("k", func(*durable.Turn) {}) // no commit of its own
	wantList(t, "heads", heads, 1, 0, 2, 0, 3, 0)
}

// Instances that nobody uses are forgotten, and what was kept with them closed; one that is used is not.
func TestForget(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, durable.Options{Idle: time.Minute})
		stop := r.start()
		defer stop()
		memo := &closing{}
		r.turn("idle", func(x *durable.Turn) { x.SetMemo(memo) })
		busy := r.enter("busy")
		pass(30 * time.Second)
		if r.Stats().Owned != 2 {
			t.Errorf("%+v", r.Stats())
		}
		pass(time.Minute)
		if r.Stats().Owned != 1 || !memo.closed {
			t.Errorf("%+v", r.Stats())
		}
		busy.Abandon()
		r.turn("idle", func(x *durable.Turn) {
			if x.Info().Fence.Epoch != 2 {
				t.Errorf("%+v", x.Info())
			}
		})
	})
}

// Calls that lead back to where they came from are refused, and others are not.
func TestCycle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, durable.Options{})
		a := r.enter("a")
		fromA := durable.Holding(t.Context(), name("a"))
		_, err := r.Enter(fromA, name("a"), durable.Entry{})
		wantKind(t, err, agent.Conflict)
		b, err := r.Enter(fromA, name("b"), durable.Entry{})
		if err != nil {
			t.Fatal(err)
		}
		c, err := r.Enter(durable.Holding(t.Context(), name("b")), name("c"), durable.Entry{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.Enter(durable.Holding(t.Context(), name("c")), name("a"), durable.Entry{})
		wantKind(t, err, agent.Conflict)
		c.Abandon()
		b.Abandon()
		waits := make(chan error)
		go func() { // now b may wait for a
			x, err := r.Enter(durable.Holding(t.Context(), name("b")), name("a"), durable.Entry{})
			if err == nil {
				x.Abandon()
			}
			waits <- err
		}()
		synctest.Wait()
		_, err = r.Enter(fromA, name("b"), durable.Entry{})
		wantKind(t, err, agent.Conflict)
		a.Abandon()
		if err := <-waits; err != nil {
			t.Error(err)
		}
	})
}
