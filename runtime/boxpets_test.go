package runtime

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
)

// One caller at a time takes a pet, and what is kept of the callers goes with the last of them.
func TestPetsAreTakenInTurn(t *testing.T) {
	var b boxes
	done, err := b.take(t.Context(), "agent/1")
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.take(gone, "agent/1"); err == nil {
		t.Error("two have it")
	}
	var in atomic.Int32
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			done, err := b.take(t.Context(), "agent/1")
			if err != nil || in.Add(1) != 1 {
				t.Error("two have it", err)
			}
			in.Add(-1)
			done()
		})
	}
	done()
	all.Wait()
	if len(b.pets) != 0 {
		t.Errorf("there are %d lines left", len(b.pets))
	}
}
