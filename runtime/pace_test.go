package runtime

import (
	"fmt"
	"testing"
	"time"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
)

// asker asks its host again and again, as soon as it may or every so often.
type asker struct {
	app    agent.App
	weight int
	cost   time.Duration
	every  time.Duration
	until  time.Duration // in the test's time

	next   time.Duration
	paid   time.Duration
	waited time.Duration
}

// ask lets askers ask for some time, the earliest first.
func ask(p *pacer, length time.Duration, all ...*asker) {
	began := time.Now()
	for {
		var first *asker
		for _, a := range all {
			if (a.until == 0 || a.next < a.until) && (first == nil || a.next < first.next) {
				first = a
			}
		}
		if first == nil || first.next >= length {
			return
		}
		wait := p.charge(first.app, first.weight, first.cost, began.Add(first.next))
		first.paid += first.cost
		first.waited += wait
		first.next += wait + max(first.every, time.Microsecond)
	}
}

func newTestPacer() *pacer {
	p := newPacer()
	p.most = 0.25
	return p
}

func TestWhoAsksTooMuchWaits(t *testing.T) {
	flood := func(app agent.App, weight int) *asker {
		return &asker{app: app, weight: weight, cost: 50 * time.Microsecond, every: 50 * time.Microsecond}
	}
	light := func() *asker { return &asker{app: "light", cost: 100 * time.Microsecond, every: 10 * time.Millisecond} }
	const length = 20 * time.Second
	near := func(got, want time.Duration) bool { return got > want*9/10 && got < want*11/10+paceBurst }

	a := flood("a", 0)
	if ask(newTestPacer(), length, a); a.waited != 0 {
		t.Errorf("who is alone waited %v", a.waited)
	}
	a, l := flood("a", 1), light()
	ask(newTestPacer(), length, a, l)
	if !near(a.paid, length/4) {
		t.Errorf("beside another, an app had %v of the server in %v, want a quarter", a.paid, length)
	}
	if l.waited != 0 {
		t.Errorf("who asks little waited %v", l.waited)
	}
	a, b, l := flood("a", 1), flood("b", 3), light()
	ask(newTestPacer(), length, a, b, l)
	if !near(a.paid, length/16) || !near(b.paid, length*3/16) || l.waited != 0 {
		t.Errorf("two apps of weights 1 and 3 had %v and %v, and the third waited %v", a.paid, b.paid, l.waited)
	}
	// When the other has gone, there is nobody to wait for.
	p := newTestPacer()
	a, l = flood("a", 1), light()
	l.until = length / 2
	ask(p, length/2+2*paceSpan, a, l)
	before := a.waited
	if ask(p, length, &asker{app: "a", weight: 1, cost: a.cost, every: a.every}); a.waited != before || !p.alone("a") {
		t.Error("who is alone again waits")
	}
}

// An app that has come and gone is forgotten, and one that rests owes nothing for ever.
func TestPacerForgets(t *testing.T) {
	p := newTestPacer()
	for i := range 10_000 {
		p.charge(agent.App(fmt.Sprint("app ", i)), 1, askCost, time.Now().Add(time.Duration(i)*time.Millisecond))
	}
	if n := len(p.now) + len(p.earlier); n > 2100 || p.heavy != 0 {
		t.Errorf("%d apps are known, and weights of %v are waited for", n, p.heavy)
	}
	now := time.Now().Add(time.Minute)
	p.charge("other", 1, askCost, now)
	if wait := p.charge("a", 1, paceBurst, now); wait != 0 {
		t.Errorf("a burst waits %v", wait)
	}
	if wait := p.charge("a", 1, time.Millisecond, now); wait != paceRest {
		t.Errorf("past the burst it waits %v, want %v", wait, paceRest)
	}
	if wait := p.charge("a", 1, time.Second, now); wait < 4*time.Second || wait > 5*time.Second {
		t.Errorf("who has asked for a second waits %v, want four", wait)
	}
}

func TestPrice(t *testing.T) {
	kilobyte := make([]byte, 1000)
	for name, want := range map[string][2]time.Duration{
		abi.CallLog: {25, 125}, abi.CallEmit: {50, 150}, abi.CallAgent: {250, 255}, abi.CallStateGet: {20, 25},
	} {
		if got, more := price(name, nil), price(name, kilobyte); got != want[0]*time.Microsecond || more != want[1]*time.Microsecond {
			t.Errorf("%s costs %v, and %v with a kilobyte; want %v and %v µs", name, got, more, want[0], want[1])
		}
	}
}
