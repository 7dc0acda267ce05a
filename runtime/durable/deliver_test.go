package durable_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime/durable"
	"github.com/skep-dev/skep/store/instance"
	"github.com/skep-dev/skep/store/instance/instancetest"
)

func (r *rig) send(t *durable.Turn, to, what string) {
	r.t.Helper()
	if err := t.Send(r.t.Context(), instance.Send{To: name(to), Data: []byte(what)}); err != nil {
		r.t.Fatal(err)
	}
}

// hear has messages counted under their text, and appends them to a log.
func hear(ctx context.Context, t *durable.Turn, m instance.Message) error {
	if _, err := count(ctx, t, string(m.Data)); err != nil {
		return err
	}
	return t.Append(ctx, instance.OwnLog("heard"), agent.Event{Kind: agent.EventEmit, Name: string(m.Data)})
}

func (r *rig) heard(key string) (out []string) {
	r.t.Helper()
	evs, err := r.memory.ReadLog(context.Background(), name(key), instance.OwnLog("heard"), 0, 0)
	if err != nil && !errors.Is(err, instance.ErrGone) {
		r.t.Fatal(err)
	}
	for _, e := range evs {
		out = append(out, e.Name)
	}
	return out
}

func (r *rig) outbox(key string) int64 {
	i, err := r.memory.Info(context.Background(), name(key))
	if err != nil {
		r.t.Fatal(err)
	}
	return i.Outbox
}

// Messages come in the order they were sent, each once, also to the sender itself, and those of a turn that was undone do not.
func TestMessages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, durable.Options{Receive: hear})
		stop := r.start()
		defer stop()
		x := r.enter("from")
		r.send(x, "to", "lie")
		x.Abandon()
		var want []string
		for i := range 20 {
			r.turn("from", func(x *durable.Turn) {
				for j := range 30 {
					r.send(x, "to", fmt.Sprint(i, ".", j))
					want = append(want, fmt.Sprint(i, ".", j))
				}
				r.send(x, "from", "self")
			})
		}
		pass(time.Minute)
		wantList(t, "heard", r.heard("to"), want...)
		if got := r.stored("from", "self"); got != "20" {
			t.Errorf("of itself it heard %s", got)
		}
		if n := r.outbox("from"); n != 0 {
			t.Errorf("%d messages wait", n)
		}
		if s := r.Stats(); s.Messages != 620 {
			t.Errorf("%+v", s)
		}
	})
}

// A message that is delivered again, because nobody learned that it had been, takes effect once.
func TestDeliveredTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, durable.Options{Receive: hear})
		lose := 5
		r.fault = func(op instancetest.Op) instancetest.Fault {
			if op.Name == "Commit" && len(op.B.Sent) > 0 && lose > 0 {
				lose--
				return instancetest.Fault{Err: agent.Errorf(agent.Unavailable, "not now")}
			}
			return instancetest.Fault{}
		}
		r.turn("from", func(x *durable.Turn) { r.send(x, "to", "a"); r.send(x, "to", "b") })
		stop := r.start()
		defer stop()
		pass(time.Minute)
		wantList(t, "heard", r.heard("to"), "a", "b")
		if r.outbox("from") != 0 || lose != 0 {
			t.Errorf("%d messages wait, %d acks were not lost", r.outbox("from"), lose)
		}
	})
}

// A message whose turn fails comes again, and those behind it wait.
func TestReceiveAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		fails := 3
		r := newRig(t, durable.Options{Receive: func(ctx context.Context, t *durable.Turn, m instance.Message) error {
			if err := hear(ctx, t, m); err != nil {
				return err
			}
			if string(m.Data) == "b" && fails > 0 {
				fails--
				return errors.New("not now")
			}
			return nil
		}})
		stop := r.start()
		defer stop()
		r.turn("from", func(x *durable.Turn) { r.send(x, "to", "a"); r.send(x, "to", "b"); r.send(x, "to", "c") })
		pass(time.Minute)
		wantList(t, "heard", r.heard("to"), "a", "b", "c")
	})
}

// A receiver that can never be gets nothing: the sender is told, in a turn, and goes on.
func TestRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, durable.Options{Receive: hear, Refused: func(ctx context.Context, t *durable.Turn, m instance.Message, why error) error {
			_, err := count(ctx, t, "refused "+string(m.Data)+" "+agent.KindOf(why).String())
			return err
		}})
		stop := r.start()
		defer stop()
		gone := instance.ID{App: agent.DefaultApp, Agent: "01GONE", Key: "k"}
		r.turn("from", func(x *durable.Turn) {
			for _, what := range []string{"a", "b"} {
				if err := x.Send(t.Context(), instance.Send{To: gone, Data: []byte(what)}); err != nil {
					t.Fatal(err)
				}
				r.send(x, "to", what)
			}
		})
		pass(time.Minute)
		wantList(t, "heard", r.heard("to"), "a", "b")
		if a, b := r.stored("from", "refused a not_found"), r.stored("from", "refused b not_found"); a != "1" || b != "1" || r.outbox("from") != 0 {
			t.Errorf("refused %q, %q; %d wait", a, b, r.outbox("from"))
		}
	})
}

// Two Keepers over one store bring the same messages and alarms: each takes effect once.
func TestTwoKeepers(t *testing.T) {
	for seed := range 20 {
		bubble(t, func(t *testing.T) {
			r := newRig(t, durable.Options{})
			r.Keeper = durable.New(r.store, &durable.Options{Receive: hear, Alarm: r.ring})
			r.fault = func(op instancetest.Op) instancetest.Fault {
				return instancetest.Fault{Delay: time.Duration((len(op.Name)+seed)%5) * time.Millisecond}
			}
			other := r.next(durable.Options{Receive: hear})
			other.Keeper = durable.New(r.store, &durable.Options{Receive: hear, Alarm: other.ring})
			defer r.start()()
			defer other.start()()
			var want []string
			for i := range 30 {
				for err := instance.ErrFenced; errors.Is(err, instance.ErrFenced); { // by the other Keeper
					x := r.enter("from")
					r.send(x, "to", fmt.Sprint(i))
					r.setAlarm(x, alarm(fmt.Sprint("a", i), time.Now().Add(time.Duration(i%7)*time.Millisecond)))
					if err = x.Leave(t.Context()); err != nil && !errors.Is(err, instance.ErrFenced) {
						t.Fatal(err)
					}
				}
				want = append(want, fmt.Sprint(i))
			}
			pass(5 * time.Minute)
			wantList(t, "heard", r.heard("to"), want...)
			for i := range 30 {
				if got := r.stored("from", fmt.Sprint("a", i)); got != "1" {
					t.Errorf("alarm %d took effect %q times", i, got)
				}
			}
		})
	}
}

// ring counts an alarm under its name, and clears it.
func (r *rig) ring(ctx context.Context, d instance.Due) error {
	t, err := r.Enter(ctx, d.ID, durable.Entry{Exists: true})
	if err != nil {
		return err
	}
	defer t.Abandon()
	a, there, err := t.Alarm(ctx, d.Name)
	if err != nil || !there || a.Gen != d.Gen {
		return err
	}
	if _, err := count(ctx, t, d.Name); err != nil {
		return err
	}
	if err := t.SetAlarm(ctx, cleared(d.Name, d.Gen)); err != nil {
		return err
	}
	return t.Leave(ctx)
}

// Alarms come on time and never early, however many; one that fails comes again, also when the clock is set back meanwhile.
func TestAlarmTimes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var shift atomic.Int64
		now := func() time.Time { return time.Now().Add(time.Duration(shift.Load())).Round(0) }
		fail := true
		r := newRig(t, durable.Options{})
		var mu sync.Mutex
		rung := map[string]bool{}
		r.Keeper = durable.New(r.store, &durable.Options{Now: now, Alarm: func(ctx context.Context, d instance.Due) error {
			if d.Name == "bad" && fail {
				shift.Add(-int64(time.Hour))
				fail = false
				return errors.New("not now")
			}
			if now().Before(d.At) {
				t.Errorf("%s is early by %v", d.Name, d.At.Sub(now()))
			}
			mu.Lock()
			rung[d.ID.Key+d.Name] = true
			mu.Unlock()
			return r.ring(ctx, d)
		}})
		came := func(what string) int {
			mu.Lock()
			defer mu.Unlock()
			if what == "" {
				return len(rung)
			}
			if rung[what] {
				return 1
			}
			return 0
		}
		stop := r.start()
		defer stop()
		start := time.Now()
		for i := range 1000 {
			r.turn(fmt.Sprint("k", i%10), func(x *durable.Turn) { r.setAlarm(x, alarm(fmt.Sprint(i), start.Add(10*time.Second))) })
		}
		pass(9999 * time.Millisecond)
		if n := came(""); n != 0 {
			t.Errorf("%d are early", n)
		}
		pass(time.Millisecond)
		if n := came(""); n != 1000 {
			t.Errorf("%d of 1000 came", n)
		}
		r.turn("x", func(x *durable.Turn) { r.setAlarm(x, alarm("bad", now())) })
		pass(0)
		pass(time.Hour + 3*time.Second)
		if came("xbad") == 0 {
			t.Error("the alarm that failed did not come again")
		}
		shift.Store(int64(time.Hour))
		r.turn("x", func(x *durable.Turn) { r.setAlarm(x, alarm("later", now().Add(time.Hour))) })
		pass(time.Minute)
		shift.Add(int64(time.Hour))
		pass(2 * time.Second)
		if came("xlater") == 0 {
			t.Error("an alarm that the clock has jumped over did not come")
		}
	})
}

// An instance with many alarms that take long does not hold up the alarms of others.
func TestAlarmsOfABusyInstance(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, durable.Options{})
		r.Keeper = durable.New(r.store, &durable.Options{Workers: 4, Alarm: func(ctx context.Context, d instance.Due) error {
			if d.ID.Key == "busy" {
				<-time.NewTimer(10 * time.Second).C
			}
			return r.ring(ctx, d)
		}})
		stop := r.start()
		defer stop()
		r.turn("busy", func(x *durable.Turn) {
			for i := range 40 {
				r.setAlarm(x, alarm(fmt.Sprint(i), time.Now().Add(time.Second)))
			}
		})
		r.turn("other", func(x *durable.Turn) { r.setAlarm(x, alarm("a", time.Now().Add(2*time.Second))) })
		pass(2 * time.Second)
		if r.stored("other", "a") != "1" {
			t.Error("the other's alarm waits")
		}
		pass(7 * time.Minute)
		if i, err := r.memory.Info(t.Context(), name("busy")); err != nil || i.Alarms != 0 || i.State.Keys != 40 {
			t.Errorf("%+v, %v", i, err)
		}
	})
}

// An instance goes with its children, theirs first; each is told in its last turn. One that only bears a child's name stays.
func TestDelete(t *testing.T) {
	r := newRig(t, durable.Options{})
	child := func(parent, key string) {
		r.turn(parent, func(x *durable.Turn) {
			if err := x.Child(t.Context(), instance.Child{ID: name(key)}); err != nil {
				t.Fatal(err)
			}
		})
		x, err := r.Enter(t.Context(), name(key), durable.Entry{Parent: name(parent)})
		if err != nil {
			t.Fatal(err)
		}
		x.Abandon()
	}
	child("top", "left")
	child("top", "right")
	child("left", "leaf")
	r.turn("stranger", func(x *durable.Turn) { r.set(x, "n", "1") })
	r.turn("top", func(x *durable.Turn) { // as when somebody else made it in between; and one that was never made
		for _, key := range []string{"stranger", "unborn"} {
			if err := x.Child(t.Context(), instance.Child{ID: name(key)}); err != nil {
				t.Fatal(err)
			}
		}
	})
	memo := &closing{}
	r.turn("leaf", func(x *durable.Turn) { x.SetMemo(memo) })
	var ended []string
	err := r.Delete(t.Context(), name("top"), func(_ context.Context, x *durable.Turn) error {
		ended = append(ended, x.ID().Key)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	wantList(t, "ended", ended, "leaf", "left", "right", "top")
	for _, key := range ended {
		if _, err := r.memory.Info(t.Context(), name(key)); !errors.Is(err, instance.ErrGone) {
			t.Errorf("%s: %v", key, err)
		}
	}
	if !memo.closed || r.stored("stranger", "n") != "1" {
		t.Error("what was kept was not closed, or a stranger went too")
	}
	_, err = r.Enter(t.Context(), name("top"), durable.Entry{Exists: true})
	wantIs(t, err, instance.ErrGone)
	r.turn("top", func(x *durable.Turn) {
		if x.Info().Fence.Epoch < 2 {
			t.Errorf("made anew at %+v", x.Info().Fence)
		}
	})
}

// Turns that wait for an instance that is deleted meanwhile find a new one.
func TestDeleteWithLine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, durable.Options{})
		x := r.enter("k")
		r.set(x, "n", "old")
		done := make(chan error, 2)
		go func() { done <- r.Delete(t.Context(), name("k"), nil) }()
		synctest.Wait()
		go func() {
			x, err := r.Enter(t.Context(), name("k"), durable.Entry{})
			if err == nil {
				if n := r.get(x, "n"); n != "" {
					err = fmt.Errorf("n is %s", n)
				}
				x.Abandon()
			}
			done <- err
		}()
		synctest.Wait()
		if err := x.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}
