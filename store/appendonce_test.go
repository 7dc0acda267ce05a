package store_test

import (
	"encoding/json"
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
)

// numbered returns n events whose data are the numbers from first.
func numbered(first, n int64) (out []agent.Event) {
	for i := first; i < first+n; i++ {
		out = append(out, agent.Event{Kind: agent.EventEmit, Name: "n", Data: json.RawMessage(fmt.Sprint(i))})
	}
	return out
}

func datas(t *testing.T, s *store.Store, l store.Log) (out []string) {
	t.Helper()
	for _, e := range must(s.Read(t.Context(), l, 0, 0))(t) {
		out = append(out, string(e.Data))
	}
	return out
}

func TestAppendOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		addAgent(t, s, "a")
		one, two := store.SessionLog(app, addSession(t, s, "a").ID), store.SessionLog(app, addSession(t, s, "a").ID)
		const src = "BOX.1"
		for _, c := range []struct {
			first, n, last int64
		}{{1, 3, 3}, {1, 3, 3}, {3, 2, 4}, {2, 1, 4}, {5, 0, 4}, {1, 6, 6}, {7, 1, 7}} {
			if last := must(s.AppendOnce(ctx, one, src, c.first, numbered(c.first, c.n)))(t); last != c.last {
				t.Errorf("%d events from %d: %d, want %d", c.n, c.first, last, c.last)
			}
		}
		for _, first := range []int64{9, math.MaxInt64} {
			last, err := s.AppendOnce(ctx, one, src, first, numbered(9, 1))
			wantKind(t, err, agent.Conflict)
			if last != 7 {
				t.Errorf("what is to come after is %d", last)
			}
		}
		// The source goes on in another log, and what came before does not come again there.
		must(s.AppendOnce(ctx, two, src, 6, numbered(6, 4)))(t)
		must(s.AppendOnce(ctx, two, "BOX.2", 1, numbered(100, 1)))(t)
		if diff := cmp.Diff([]string{"1", "2", "3", "4", "5", "6", "7"}, datas(t, s, one)); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"8", "9", "100"}, datas(t, s, two)); diff != "" {
			t.Error(diff)
		}
		if n := must(s.Taken(ctx, app, src))(t); n != 9 {
			t.Error(n)
		}
		if n := must(s.Taken(ctx, app, "other"))(t); n != 0 {
			t.Error(n)
		}
		for _, bad := range []string{"", "a/b", "a b"} {
			_, err := s.AppendOnce(ctx, one, bad, 1, numbered(1, 1))
			wantKind(t, err, agent.Invalid)
		}
		_, err := s.AppendOnce(ctx, one, src, 0, numbered(1, 1))
		wantKind(t, err, agent.Invalid)
		_, err = s.AppendOnce(ctx, store.SessionLog(app, "none"), src, 10, numbered(1, 1))
		wantKind(t, err, agent.NotFound)
		if err := s.Verify(ctx); err != nil {
			t.Error(err)
		}
	})
}

// Many who send the same leave it once, in order.
func TestAppendOnceAtOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, s *store.Store) {
		addAgent(t, s, "a")
		log := store.SessionLog(app, addSession(t, s, "a").ID)
		var wg sync.WaitGroup
		for i := range int64(8) {
			wg.Go(func() {
				for first := int64(1); first <= 50; {
					last, err := s.AppendOnce(t.Context(), log, "BOX.1", first, numbered(first, min(i+1, 51-first)))
					if err != nil {
						t.Error(err)
						return
					}
					first = last + 1
				}
			})
		}
		wg.Wait()
		got := datas(t, s, log)
		if len(got) != 50 || got[0] != "1" || got[49] != "50" {
			t.Error(got)
		}
	})
}

// What was taken from a sandbox is forgotten with its generation, and with it.
func TestSourceOfSandboxIsForgotten(t *testing.T) {
	s := memStore(t)
	ctx := t.Context()
	addAgent(t, s, "a")
	log := store.SessionLog(app, addSession(t, s, "a").ID)
	rec := box("B1", "run/1")
	if err := s.PutSandbox(ctx, rec, 9); err != nil {
		t.Fatal(err)
	}
	must(s.AppendOnce(ctx, log, rec.Source(), 1, numbered(1, 2)))(t)
	taken := func() int64 { t.Helper(); return must(s.Taken(ctx, app, rec.Source()))(t) }
	change := func(change func(*agent.SandboxRecord)) {
		t.Helper()
		rec = must(s.ChangeSandbox(ctx, "B1", func(rec *agent.SandboxRecord) error { change(rec); return nil }))(t)
	}
	change(func(rec *agent.SandboxRecord) { rec.State = agent.SandboxLost })
	if taken() != 2 {
		t.Error("what was taken is forgotten while the generation is there")
	}
	old := rec
	change(func(rec *agent.SandboxRecord) { rec.Generation++ })
	if n := must(s.Taken(ctx, app, old.Source()))(t); n != 0 {
		t.Error(n)
	}
	must(s.AppendOnce(ctx, log, rec.Source(), 1, numbered(1, 3)))(t)
	change(func(rec *agent.SandboxRecord) { rec.State = agent.SandboxDeleting })
	if taken() != 3 {
		t.Error("what was taken is forgotten before the deletion is done")
	}
	if err := s.DropSandbox(ctx, "B1"); err != nil || taken() != 0 {
		t.Error(taken(), err)
	}
}
