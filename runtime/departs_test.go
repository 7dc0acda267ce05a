package runtime

import (
	"slices"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/runtime/journal"
)

// A call that may leave does, also when its cell was given up before it got the processor: the run waits for it.
func TestDepartsLate(t *testing.T) {
	x := &execution{gone: make(chan struct{})}
	x.script.Store(true)
	x.parked = &parked{outside: 1}
	close(x.gone)
	a := &asked{class: journal.Idempotent, leaves: true, opened: make(chan struct{})}
	if err := x.departs(t.Context(), 1, a); err != errGoneAway {
		t.Errorf("before it may: %v", err)
	}
	close(a.opened)
	for range 100 {
		if err := x.departs(t.Context(), 1, a); err != nil {
			t.Fatal(err)
		}
	}
}

// A call whose flight has not left yet keeps the cell, for what came before it is still to be committed; one that left in an earlier life does not.
func TestCallThatIsToLeave(t *testing.T) {
	a := &asked{class: journal.Idempotent, ours: true}
	x := &execution{asked: map[uint64]*asked{1: a}, flights: map[uint64]*flight{1: {}}, view: &journal.View{}}
	pending := host.Pending{Calls: []host.PendingCall{{ID: 1}}}
	if stay, starts := x.examine(pending); stay || !slices.Equal(starts, []uint64{1}) || !x.unopened() {
		t.Errorf("%t, %v, %t", stay, starts, x.unopened())
	}
	a.ours = false
	if stay, starts := x.examine(pending); stay || len(starts) > 0 || x.unopened() {
		t.Errorf("of an earlier life: %t, %v, %t", stay, starts, x.unopened())
	}
}

// The cell is kept for a call of which the code waits, and whose goroutine has yet to begin: without a cell nobody would make it. When the run is to leave, the
// next life makes it, unless it is written down that it has left.
func TestCellIsKeptForCallsThatBegin(t *testing.T) {
	pending := host.Pending{Calls: []host.PendingCall{{ID: 1}, {ID: 2}}}
	for _, tt := range []struct {
		name  string
		class journal.Class
		has   map[uint64]*flight
		mayGo bool // it is written down that the second has left
		stops bool
		want  bool
	}{
		{"both are under way", journal.Read, map[uint64]*flight{1: {}, 2: {}}, false, false, true},
		{"one has not begun", journal.Read, map[uint64]*flight{1: {}}, false, false, false},
		{"it may leave", journal.Idempotent, map[uint64]*flight{1: {}}, true, false, false},
		{"it has left", journal.Idempotent, map[uint64]*flight{1: {}, 2: {}}, true, false, true},
		{"it has not begun, and the process stops", journal.Read, map[uint64]*flight{1: {}}, false, true, true},
		{"it may leave, and the process stops", journal.Idempotent, map[uint64]*flight{1: {}}, true, true, false},
	} {
		x := &execution{r: &Runtime{}, rec: record{agent: &agent.Agent{}}, flights: tt.has, view: &journal.View{}, stopping: tt.stops, asked: map[uint64]*asked{
			1: {class: journal.Read}, 2: {class: tt.class, leaves: tt.mayGo},
		}}
		if got := x.park(pending); got != tt.want || (x.parked != nil) != tt.want {
			t.Errorf("%s: parked %t", tt.name, got)
		}
	}
}
