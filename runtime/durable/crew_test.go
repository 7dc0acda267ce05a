package durable_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime/durable"
	"github.com/skep-dev/skep/store/instance"
)

const otherApp = agent.App("other")

// One app's slow alarms, more of them than there are workers and more than wait in memory, make none of another's late.
func TestAlarmsOfAppsShareWorkers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var rang []time.Duration
		slow, began, release := 0, time.Now(), make(chan struct{})
		var r *rig
		r = newRig(t, durable.Options{Workers: 4, Alarm: func(ctx context.Context, d instance.Due) error {
			turn, err := r.Enter(ctx, d.ID, durable.Entry{})
			if err != nil {
				return err
			}
			defer turn.Abandon()
			if a, there, err := turn.Alarm(ctx, d.Name); err != nil || !there || a.Gen != d.Gen { // it was in an old list
				return err
			}
			if d.ID.App != otherApp {
				slow++
				<-release
			} else {
				rang = append(rang, time.Since(began))
			}
			if err := turn.SetAlarm(ctx, cleared(d.Name, d.Gen)); err != nil {
				return err
			}
			return turn.Leave(ctx)
		}})
		r.memory.AddAgent(otherApp, "01OTHER")
		for i := range 1100 {
			r.turn(fmt.Sprint("slow", i), func(turn *durable.Turn) { r.setAlarm(turn, alarm("a", began)) })
		}
		stop := r.start()
		pass(10 * time.Second)
		id := instance.ID{App: otherApp, Agent: "01OTHER", Key: "quick"}
		turn, err := r.Enter(t.Context(), id, durable.Entry{})
		if err != nil {
			t.Fatal(err)
		}
		r.setAlarm(turn, alarm("a", began.Add(20*time.Second)))
		if err := turn.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		pass(20 * time.Second)
		if len(rang) != 1 || rang[0] > 21*time.Second || slow != 4 {
			t.Errorf("the other app's alarm, due at 20s, rang at %v beside %d slow ones", rang, slow)
		}
		close(release)
		pass(2 * time.Second)
		if slow != 1100 {
			t.Errorf("%d of 1100 slow alarms were dealt with", slow)
		}
		stop()
	})
}

// Receivers that are slow, more of them than there are workers, make no message of another app late.
func TestMessagesOfAppsShareWorkers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		slow, quick, release := 0, 0, make(chan struct{})
		r := newRig(t, durable.Options{Workers: 4, Receive: func(_ context.Context, _ *durable.Turn, m instance.Message) error {
			if m.To.App == otherApp {
				quick++
				return nil
			}
			slow++
			<-release
			return nil
		}})
		r.memory.AddAgent(otherApp, "01OTHER")
		r.turn("from", func(turn *durable.Turn) {
			for i := range 300 {
				if err := turn.Send(t.Context(), instance.Send{To: name(fmt.Sprint("to", i))}); err != nil {
					t.Fatal(err)
				}
			}
		})
		stop := r.start()
		pass(time.Second)
		turn, err := r.Enter(t.Context(), instance.ID{App: otherApp, Agent: "01OTHER", Key: "from"}, durable.Entry{})
		if err != nil {
			t.Fatal(err)
		}
		for range 600 { // more than a page of one pair
			if err := turn.Send(t.Context(), instance.Send{To: instance.ID{App: otherApp, Agent: "01OTHER", Key: "to"}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := turn.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		if quick != 600 || slow != 4 {
			t.Errorf("%d of the other app's 600 messages beside %d slow ones", quick, slow)
		}
		close(release)
		pass(10 * time.Second)
		if slow != 300 {
			t.Errorf("%d of 300 slow messages", slow)
		}
		stop()
	})
}

// What no commit can carry is refused when it is said, and takes nothing else of the turn with it.
func TestPartsThatCannotBeCommitted(t *testing.T) {
	r := newRig(t, durable.Options{})
	r.turn("k", func(turn *durable.Turn) {
		r.set(turn, "x", "1")
		for what, err := range map[string]error{
			"an alarm in the year 12000":  turn.SetAlarm(t.Context(), alarm("a", time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC))),
			"a message that is too large": turn.Send(t.Context(), instance.Send{To: name("other"), Data: make([]byte, instance.MaxData+1)}),
			"a message to another app":    turn.Send(t.Context(), instance.Send{To: instance.ID{App: otherApp, Agent: "01OTHER", Key: "k"}}),
			"a child of itself":           turn.Child(t.Context(), instance.Child{ID: name("k")}),
		} {
			if agent.KindOf(err) != agent.Invalid {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
	if got := r.stored("k", "x"); got != "1" {
		t.Errorf("the rest of the turn: %q", got)
	}
}

// An instance that is there, and known here, is nobody's child because somebody says so.
func TestChildThatIsAnothersInstance(t *testing.T) {
	r := newRig(t, durable.Options{})
	r.turn("c", func(*durable.Turn) {})
	r.turn("p", func(turn *durable.Turn) {
		if err := turn.Child(t.Context(), instance.Child{ID: name("c")}); err != nil {
			t.Fatal(err)
		}
	})
	if _, err := r.Enter(t.Context(), name("c"), durable.Entry{Parent: name("p")}); agent.KindOf(err) != agent.Conflict {
		t.Errorf("entered as a child: %v", err)
	}
	r.turn("c", func(*durable.Turn) {}) // the line goes on
}

// A call that has left its turn still keeps its caller waiting: who calls that one from there is refused, and does not hang.
func TestCycleThroughALeftTurn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, durable.Options{})
		a := r.enter("a")
		defer a.Abandon()
		ofA := durable.Holding(t.Context(), name("a"))
		b, err := r.Enter(ofA, name("b"), durable.Entry{})
		if err != nil {
			t.Fatal(err)
		}
		done := r.Await(name("a"), name("b"))
		if err := b.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err = r.Enter(durable.Holding(t.Context(), name("b")), name("a"), durable.Entry{})
		wantKind(t, err, agent.Conflict)
		done()
		synctest.Wait()
	})
}
