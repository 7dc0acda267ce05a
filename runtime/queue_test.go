package runtime

import (
	"fmt"
	"testing"

	"github.com/skep-dev/skep/agent"
)

// An app whose runs take all the time that they may have leaves workers to others, however many agents it has.
func TestALoudAppLeavesWorkers(t *testing.T) {
	q := newQueue(32)
	n := 0
	push := func(app agent.App, agents, runs int) {
		for i := range runs {
			n++
			id := fmt.Sprint(n)
			q.push(&task{app: app, id: agent.RunID(id), agent: fmt.Sprint("agent-", i%agents), session: agent.SessionID(id)})
		}
	}
	begin := func(app agent.App) (begun []*task) {
		for t := q.next(); t != nil; t = q.next() {
			if t.app == app {
				begun = append(begun, t)
			}
		}
		return begun
	}
	push("loud", 20, 100)
	loud := begin("loud")
	if len(loud) != 17 {
		t.Errorf("an app that is alone has %d workers of 32, want as many as it leaves, and one", len(loud))
	}
	for _, app := range []agent.App{"one", "two", "three"} {
		push(app, 1, 1)
		if got := begin(app); len(got) != 1 {
			t.Errorf("%s has %d workers beside a loud app", app, len(got))
		}
	}
	for _, one := range loud {
		q.leave(one)
		q.done(one)
	}
	push("four", 1, 1)
	if loud, got := len(begin("loud")), q.having["four"]; loud != 15 || got != 1 { // beside four others
		t.Errorf("loud has %d workers and four %d, of the 29 that are free", loud, got)
	}
	if q.taken != 15+4 {
		t.Errorf("%d workers are taken", q.taken)
	}
}

// A server of few workers gives an app all that nobody else needs, but for one.
func TestFewWorkers(t *testing.T) {
	for workers, want := range map[int]int{1: 1, 2: 2, 3: 2, 4: 3} {
		q := newQueue(workers)
		for n := range 10 {
			id := fmt.Sprint(n)
			q.push(&task{app: "app", id: agent.RunID(id), session: agent.SessionID(id)})
		}
		got := 0
		for q.next() != nil {
			got++
		}
		if got != want {
			t.Errorf("an app has %d workers of %d, want %d", got, workers, want)
		}
	}
}
