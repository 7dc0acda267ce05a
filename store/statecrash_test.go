package store_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/internal/crashtest"
	"github.com/skep-dev/skep/store"
)

// editForEver counts in an agent's state from several goroutines, each in two keys that belong together, and prints each count that was
// acknowledged.
func editForEver(dir, id string) error {
	ctx := context.Background()
	s, _, err := openDir(ctx, dir)
	if err != nil {
		return err
	}
	o := store.AgentState(app, agent.AgentID(id))
	var out sync.Mutex
	failed := make(chan error)
	for w := range 8 {
		one, two := fmt.Sprintf("%d/one", w), fmt.Sprintf("%d/two", w)
		go func() {
			for {
				was, err := s.State(ctx, o, one, two)
				if err != nil {
					failed <- err
					return
				}
				n, version := 0, int64(0)
				if len(was) > 0 {
					n, _ = strconv.Atoi(string(was[0].Value.Body))
					version = was[0].Version
				}
				next := strconv.Itoa(n + 1)
				if _, err := s.EditState(ctx, o, wide, when(set(one, next), version), when(set(two, next), version)); err != nil {
					failed <- err
					return
				}
				out.Lock()
				fmt.Printf("%d %d\n", w, n+1)
				out.Unlock()
			}
		}()
	}
	return <-failed
}

// A state whose process is killed again and again has every commit that was acknowledged, at most one for each writer that was
// not, and none by half.
func TestStateCrash(t *testing.T) {
	dir := t.TempDir()
	s, done := reopen(t, dir)
	a := addAgent(t, s, "a")
	done()
	acked := map[int]int{}
	for round := range 4 {
		crashtest.Kill(t, "edit", dir, string(a.ID), 101+70*round, func(line string) {
			var w, count int
			if _, err := fmt.Sscanf(line, "%d %d", &w, &count); err != nil {
				t.Fatalf("line %q: %v", line, err)
			}
			acked[w] = count
		})
		s, done := reopen(t, dir)
		for w, count := range acked {
			got := must(s.State(t.Context(), store.AgentState(app, a.ID), fmt.Sprintf("%d/one", w), fmt.Sprintf("%d/two", w)))(t)
			if len(got) != 2 || got[0].Version != got[1].Version || string(got[0].Value.Body) != string(got[1].Value.Body) {
				t.Fatalf("writer %d left half a commit: %v", w, got)
			}
			if n, _ := strconv.Atoi(string(got[0].Value.Body)); n != count && n != count+1 {
				t.Errorf("writer %d is at %d, %d was acknowledged", w, n, count)
			} else {
				acked[w] = n
			}
		}
		if err := s.Verify(t.Context()); err != nil {
			t.Error(err)
		}
		done()
	}
}
