package durable_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime/durable"
	"github.com/skep-dev/skep/store/instance"
)

// reads counts the alarms that a store tells to be due.
type reads struct {
	instance.Store
	alarms atomic.Int64
}

func (r *reads) Due(ctx context.Context, now time.Time, after instance.Cursor, limit int) (instance.DuePage, error) {
	p, err := r.Store.Due(ctx, now, after, limit)
	r.alarms.Add(int64(len(p.Alarms)))
	return p, err
}

// Of many alarms that are due at once, more than are kept in memory, each is dealt with once, and read from the store a few times and not
// whenever another has ended. One of another app is on time meanwhile, and so are those that are set for a time that has passed.
func TestStorm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const instances, each = 30, 300
		r := newRig(t, durable.Options{})
		r.memory.AddAgent(otherApp, "01OTHER")
		st := &reads{Store: r.store}
		var other, past time.Duration
		began := time.Now()
		r.Keeper = durable.New(st, &durable.Options{Alarm: func(ctx context.Context, d instance.Due) error {
			<-time.NewTimer(10 * time.Millisecond).C
			switch {
			case d.ID.App == otherApp:
				other = time.Since(began)
			case d.Name == "past":
				past = time.Since(began)
			}
			return r.ring(ctx, d)
		}})
		for i := range instances {
			r.turn(fmt.Sprint("k", i), func(x *durable.Turn) {
				for j := range each {
					r.setAlarm(x, alarm(fmt.Sprint("a", j), began))
				}
			})
		}
		stop := r.start()
		defer stop()
		set := func(id instance.ID, a instance.AlarmEdit) {
			x, err := r.Enter(t.Context(), id, durable.Entry{})
			if err != nil {
				t.Fatal(err)
			}
			r.setAlarm(x, a)
			if err := x.Leave(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		pass(200 * time.Millisecond)
		set(instance.ID{App: otherApp, Agent: "01OTHER", Key: "quick"}, alarm("a", began.Add(500*time.Millisecond)))
		set(name("new"), alarm("past", began.Add(-time.Hour)))
		pass(time.Minute)
		if other == 0 || other > 600*time.Millisecond || past == 0 {
			t.Errorf("the other app's alarm, due at 500ms, came after %v, and one that was late when it was set after %v", other, past)
		}
		for i := range instances {
			for j := range each {
				if got := r.stored(fmt.Sprint("k", i), fmt.Sprint("a", j)); got != "1" {
					t.Fatalf("alarm %d of instance %d took effect %q times", j, i, got)
				}
			}
		}
		if n := st.alarms.Load(); n < instances*each || n > 3*instances*each {
			t.Errorf("%d alarms were read %d times", instances*each, n)
		}
	})
}

// Of more alarms than are kept in memory, and others that become due as quickly as they can be dealt with, those come first that are late.
func TestStormInOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const instances, burst, later = 32, 320, 160
		r := newRig(t, durable.Options{})
		var mu sync.Mutex
		var late time.Duration
		r.Keeper = durable.New(r.store, &durable.Options{Workers: instances, Alarm: func(ctx context.Context, d instance.Due) error {
			<-time.NewTimer(10 * time.Millisecond).C
			mu.Lock()
			late = max(late, time.Since(d.At))
			mu.Unlock()
			return r.ring(ctx, d)
		}})
		began := time.Now()
		for i := range instances {
			r.turn(fmt.Sprint("k", i), func(x *durable.Turn) {
				for j := range burst + later {
					due := began.Add(time.Duration(max(j-burst, (j-burst)/10)) * 10 * time.Millisecond)
					r.setAlarm(x, alarm(fmt.Sprint("a", j), due))
				}
			})
		}
		stop := r.start()
		defer stop()
		pass(time.Minute)
		for i := range instances {
			for j := range burst + later {
				if got := r.stored(fmt.Sprint("k", i), fmt.Sprint("a", j)); got != "1" {
					t.Fatalf("alarm %d of instance %d took effect %q times", j, i, got)
				}
			}
		}
		if all := burst * 10 * time.Millisecond; late > all+all/4 {
			t.Errorf("an alarm was %v late, and all that were due before it take %v", late, all)
		}
	})
}

// An alarm that its own code sets again, for a time that has come already, is dealt with again, and one that it clears is not.
func TestAlarmSetAgainInItsTurn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, durable.Options{})
		rang := map[string]int{}
		r.Keeper = durable.New(r.store, &durable.Options{Alarm: func(ctx context.Context, d instance.Due) error {
			x, err := r.Enter(ctx, d.ID, durable.Entry{})
			if err != nil {
				return err
			}
			defer x.Abandon()
			if a, there, err := x.Alarm(ctx, d.Name); err != nil || !there || a.Gen != d.Gen {
				return err
			}
			rang[d.Name]++
			if d.Name == "again" && rang[d.Name] < 50 {
				r.setAlarm(x, alarm(d.Name, d.At))
				return x.Leave(ctx)
			}
			r.setAlarm(x, alarm(d.Name, d.At))
			if err := x.Commit(ctx); err != nil {
				return err
			}
			r.setAlarm(x, cleared(d.Name, 0))
			return x.Leave(ctx)
		}})
		stop := r.start()
		defer stop()
		r.turn("k", func(x *durable.Turn) {
			r.setAlarm(x, alarm("again", time.Now().Add(-time.Second)))
			r.setAlarm(x, alarm("once", time.Now().Add(-time.Second)))
		})
		pass(time.Second)
		if rang["again"] != 50 || rang["once"] != 1 {
			t.Errorf("%v", rang)
		}
		if i, err := r.memory.Info(t.Context(), name("k")); err != nil || i.Alarms != 0 {
			t.Errorf("%+v, %v", i, err)
		}
	})
}

// Alarms that fail, as many as are kept in memory, do not keep others of their app from being dealt with.
func TestAlarmsThatFailMakeRoom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, durable.Options{})
		came := false
		r.Keeper = durable.New(r.store, &durable.Options{Alarm: func(ctx context.Context, d instance.Due) error {
			if d.ID.Key == "good" {
				came = true
				return r.ring(ctx, d)
			}
			return agent.Errorf(agent.Unavailable, "not now")
		}})
		began := time.Now()
		for i := range 30 {
			r.turn(fmt.Sprint("bad", i), func(x *durable.Turn) {
				for j := range 300 {
					r.setAlarm(x, alarm(fmt.Sprint(j), began))
				}
			})
		}
		r.turn("good", func(x *durable.Turn) { r.setAlarm(x, alarm("a", began.Add(time.Second))) })
		stop := r.start()
		defer stop()
		pass(2500 * time.Millisecond)
		if !came {
			t.Error("the good one did not come")
		}
	})
}
