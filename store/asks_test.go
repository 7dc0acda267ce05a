package store_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/kv"
	"github.com/skep-dev/skep/store/memkv"
)

// asks returns n questions whose arguments are size bytes each.
func asks(n, size int) (out []agent.Approval) {
	for i := range n {
		out = append(out, agent.Approval{
			ID: agent.NewApprovalID("R", uint64(i+1)), App: app, Call: uint64(i + 1), Created: epoch, Expires: epoch,
			Calls: []agent.ApprovalCall{{Tool: "a.b", Args: json.RawMessage(`"` + strings.Repeat("<", size-2) + `"`), Decision: agent.Decision{Verdict: agent.Ask, Reason: "so"}}},
		})
	}
	return out
}

func asking(t *testing.T, s *store.Store, limit int) (ids []agent.RunID) {
	t.Helper()
	page := agent.Page{Limit: limit}
	for {
		list, next, err := s.Asking(t.Context(), app, page)
		if err != nil || len(list) > limit {
			t.Fatal(list, err)
		}
		for _, r := range list {
			if len(r.Asks) == 0 {
				t.Errorf("run %s asks nothing", r.ID)
			}
			ids = append(ids, r.ID)
		}
		if page.After = next; next == "" {
			return ids
		}
	}
}

func TestAsking(t *testing.T) {
	onBoth(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		addAgent(t, s, "a")
		se := addSession(t, s, "a")
		var ids []agent.RunID
		for range 5 {
			ids = append(ids, addRun(t, s, se).ID)
		}
		set := func(id agent.RunID, status agent.RunStatus, a []agent.Approval) (agent.Run, error) {
			run, _, err := s.UpdateRun(ctx, app, id, nil, func(r *agent.Run) error { r.Status, r.Asks = status, a; return nil })
			return run, err
		}
		check := func(want ...agent.RunID) {
			t.Helper()
			for _, limit := range []int{1, 2, 5} {
				if diff := cmp.Diff(want, asking(t, s, limit)); diff != "" {
					t.Errorf("in pages of %d: %s", limit, diff)
				}
			}
			if err := s.Verify(ctx); err != nil {
				t.Error(err)
			}
		}
		check()
		// As many and as large as they come, with the largest input that is kept in the record.
		for i, size := range []int{100, agent.MaxShownArgs, agent.MaxShownArgs + 4<<10} {
			want := asks(agent.MaxAsks, size)
			run, err := set(ids[i], agent.Waiting, want)
			if err != nil {
				t.Fatal(err)
			}
			got := must(s.Run(ctx, app, ids[i]))(t)
			if !reflect.DeepEqual(want, got.Asks) || !reflect.DeepEqual(want, run.Asks) {
				t.Errorf("%d questions of %d bytes came back otherwise", len(want), size)
			}
		}
		must(set(ids[4], agent.Running, asks(1, 20)))(t)
		check(ids[0], ids[1], ids[2], ids[4])
		must(set(ids[0], agent.Waiting, nil))(t)
		// One that ends asks nothing any more, whatever its record is given.
		if run := must(set(ids[1], agent.RunCancelled, asks(1, 20)))(t); run.Asks != nil {
			t.Error(run.Asks)
		}
		if got := must(s.Run(ctx, app, ids[1]))(t); got.Asks != nil {
			t.Error(got.Asks)
		}
		check(ids[2], ids[4])
		_, err := set(ids[3], agent.Waiting, asks(agent.MaxAsks+1, 20))
		wantKind(t, err, agent.Invalid)
		_, err = set(ids[3], agent.Waiting, asks(8, 1<<20+1))
		wantKind(t, err, agent.Invalid)
		check(ids[2], ids[4])
		made, _, _, err := s.CreateRun(ctx, store.NewRun{Run: agent.Run{App: app, Agent: "a", Session: se.ID, Status: agent.Waiting, Asks: asks(2, 30)}}, store.Once{})
		if err != nil || len(made.Asks) != 2 {
			t.Fatal(made, err)
		}
		check(ids[2], ids[4], made.ID)
		for want, f := range map[int]store.RunFilter{3: {Asking: true}, 2: {Asking: true, Status: agent.Waiting}, 0: {Asking: true, Agent: "b"}} {
			if list, next, err := s.Runs(ctx, app, f, agent.Page{}); err != nil || next != "" || len(list) != want {
				t.Errorf("%+v picks %d runs, %v", f, len(list), err)
			}
		}
		if _, _, err := s.Asking(ctx, app, agent.Page{After: "x"}); err == nil {
			t.Error("a cursor that is none is taken")
		}
	})
}

// An entry of a run that asks nothing, or a run without its entry, is damage.
func TestAskingDamage(t *testing.T) {
	db := memkv.New()
	s := openStore(t, db, t.TempDir(), nil)
	addAgent(t, s, "a")
	run := addRun(t, s, addSession(t, s, "a"))
	_, _, err := s.UpdateRun(t.Context(), app, run.ID, nil, func(r *agent.Run) error { r.Asks = asks(1, 20); return nil })
	if err != nil {
		t.Fatal(err)
	}
	entry := keys(t, db, "by/run-asking/")
	apply(t, db, kv.Change{Key: entry[0].Key, Delete: true})
	wantCorrupt(t, s.Verify(t.Context()), string(entry[0].Key))
	apply(t, db, entry[0])
	_, _, err = s.UpdateRun(t.Context(), app, run.ID, nil, func(r *agent.Run) error { r.Asks = nil; return nil })
	if err != nil || len(keys(t, db, "by/run-asking/")) != 0 {
		t.Fatal(err)
	}
	apply(t, db, entry[0])
	wantCorrupt(t, s.Verify(t.Context()), string(entry[0].Key))
	_, _, err = s.Asking(t.Context(), app, agent.Page{})
	wantCorrupt(t, err, fmt.Sprint("rec/runs/default/", run.ID))
}
