//go:build linux

package main

import (
	"os"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
)

func TestStoresHoldWhatTheySay(t *testing.T) {
	b := &bench{dir: t.TempDir(), stores: map[int]string{}}
	dir, err := b.storeOf(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := b.storeOf(t.Context(), 3); err != nil || again != dir {
		t.Fatalf("made twice: %s and %s, %v", dir, again, err)
	}
	st, err := openStore(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := st.close(); err != nil {
			t.Error(err)
		}
	}()
	agents, _, err := st.Agents(t.Context(), agent.DefaultApp, agent.Page{})
	if err != nil || len(agents) != 3 {
		t.Errorf("%d agents, %v", len(agents), err)
	}
	const events = store.MaxAppend + 1
	log, err := sessionOf(t.Context(), st, events)
	if err != nil {
		t.Fatal(err)
	}
	if first, last, err := st.Bounds(t.Context(), log); first != 1 || last != events || err != nil {
		t.Errorf("events %d to %d, %v", first, last, err)
	}
}

func TestFootprint(t *testing.T) {
	f, err := footprintOf(1 << 30)
	if err == nil {
		t.Errorf("a process that is not there has %v", f)
	}
	if f, err = footprintOf(os.Getpid()); err != nil || f.files <= 0 || f.resident <= f.files {
		t.Errorf("got %+v, %v", f, err)
	}
}
