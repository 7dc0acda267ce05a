package store_test

import (
	"fmt"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
)

func TestPages(t *testing.T) {
	onBoth(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		const n = 23
		for i := range n {
			addAgent(t, s, fmt.Sprintf("a%02d", i))
		}
		if err := s.DeleteAgents(ctx, app, "a05", "a22", "a00"); err != nil {
			t.Fatal(err)
		}
		var want []string
		for i := n - 1; i >= 0; i-- {
			if i != 5 && i != 22 && i != 0 {
				want = append(want, fmt.Sprintf("a%02d", i))
			}
		}
		for _, limit := range []int{1, 2, 7, 19, 20, 21, 1000} {
			var got []string
			page := agent.Page{Limit: limit}
			for pages := 1; ; pages++ {
				list, next, err := s.Agents(ctx, app, page)
				if err != nil || len(list) > limit {
					t.Fatal(len(list), err)
				}
				for _, a := range list {
					got = append(got, a.Name)
				}
				if page.After = next; next == "" {
					break
				}
				if pages > n {
					t.Fatal("the pages do not end")
				}
				if pages == 1 { // what comes later is not in the pages that follow
					addAgent(t, s, fmt.Sprintf("later%d", limit))
				}
			}
			if len(got) < len(want) || fmt.Sprint(got[len(got)-len(want):]) != fmt.Sprint(want) {
				t.Errorf("limit %d: %v, want it to end in %v", limit, got, want)
			}
		}
	})
}

func TestPageIsRefused(t *testing.T) {
	s := memStore(t)
	for i := range 3 {
		addAgent(t, s, fmt.Sprintf("a%d", i))
	}
	addSession(t, s, "a0")
	for _, limit := range []int{-1, agent.MaxPage + 1} {
		_, _, err := s.Agents(t.Context(), app, agent.Page{Limit: limit})
		wantKind(t, err, agent.Invalid)
	}
	_, next, err := s.Agents(t.Context(), app, agent.Page{Limit: 1})
	if err != nil || next == "" {
		t.Fatal(next, err)
	}
	for _, cursor := range []string{"x", "1", next + "A", next[:len(next)-1] + "!", "AAAAAAAAAAAAAAAA"} {
		_, _, err := s.Agents(t.Context(), app, agent.Page{After: cursor})
		wantKind(t, err, agent.Invalid)
	}
	_, _, err = s.Sessions(t.Context(), app, "", agent.Page{After: next})
	wantKind(t, err, agent.Invalid)
}

// A page of runs with large inputs ends early instead of filling memory.
func TestPageOfLargeRuns(t *testing.T) {
	s := memStore(t)
	addAgent(t, s, "a")
	se := addSession(t, s, "a")
	body := make([]byte, 6<<20)
	const n = 5
	for range n {
		_, _, _, err := s.CreateRun(t.Context(), store.NewRun{
			Run: agent.Run{App: app, Agent: "a", Session: se.ID, Input: agent.Payload{Type: agent.TypeBytes, Body: body}},
		}, store.Once{})
		if err != nil {
			t.Fatal(err)
		}
	}
	seen, page := map[agent.RunID]bool{}, agent.Page{}
	for pages := 0; ; pages++ {
		list, next, err := s.Runs(t.Context(), app, store.RunFilter{}, page)
		if err != nil || len(list) > 3 || pages > n {
			t.Fatal(len(list), pages, err)
		}
		for _, r := range list {
			seen[r.ID] = true
		}
		if page.After = next; next == "" {
			break
		}
	}
	if len(seen) != n {
		t.Errorf("pages showed %d runs of %d", len(seen), n)
	}
}
