package runtime

import (
	"fmt"
	"testing"
	"time"
)

// What an app is refused goes to its audit log once a minute for each kind, and no more than so many kinds.
func TestRefusalsAreHeldBack(t *testing.T) {
	var f refusals
	now := time.Now()
	key := func(agent string, n int) refusalKey { return refusalKey{"app", agent, "http", fmt.Sprint(n)} }
	admit := func(k refusalKey, wantWrite bool, wantMore int64) {
		t.Helper()
		if write, more := f.admit(k, now); write != wantWrite || more != wantMore {
			t.Errorf("%v: write %v with %d more, want %v with %d", k, write, more, wantWrite, wantMore)
		}
	}
	admit(key("a", 0), true, 0)
	admit(key("a", 0), false, 0)
	admit(key("a", 0), false, 0)
	admit(key("b", 0), true, 2) // another agent's; it tells how many were left out
	for n := 1; n <= refusalsMinute-2; n++ {
		admit(key("a", n), true, 0)
	}
	admit(key("a", refusalsMinute), false, 0)
	if len(f.heard) != refusalsMinute {
		t.Errorf("%d kinds are remembered", len(f.heard))
	}
	now = now.Add(refusalsEach)
	admit(key("a", 0), true, 1)
	now = now.Add(-time.Hour) // the clock goes back
	admit(key("a", 0), true, 0)
}
