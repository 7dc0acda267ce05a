package runtime

import (
	"slices"
	"testing"

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
