package store_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/memkv"
)

// A fold adds up, moves the mark, and happens once.
func TestFoldUsage(t *testing.T) {
	now := time.Date(2026, 3, 5, 12, 0, 0, 0, time.UTC)
	s := openStore(t, memkv.New(), t.TempDir(), &store.Options{Now: func() time.Time { return now }})
	defer s.Close()
	ctx := t.Context()
	row := func(day, name string, n int64) agent.UsageRow {
		return agent.UsageRow{Day: day, App: app, Agent: name, Kind: agent.UseCall, Events: n, Cost: agent.Cost{CPU: time.Duration(n), Memory: n}}
	}
	m1, m2 := store.UsageMark{Segment: 1, Offset: 50}, store.UsageMark{Segment: 2, Offset: 40}
	uses := []store.GrantUses{{"2026-03-05", app, "a", "http x", 2}, {"2026-03-01", app, "a", "http x", 5}}
	if err := s.FoldUsage(ctx, store.UsageMark{}, m1, []agent.UsageRow{row("2026-03-04", "a", 2), row("2026-03-05", "a", 3)}, uses); err != nil {
		t.Fatal(err)
	}
	wantKind(t, s.FoldUsage(ctx, store.UsageMark{}, m1, []agent.UsageRow{row("2026-03-04", "a", 2)}, nil), agent.Conflict)
	if err := s.FoldUsage(ctx, m1, m2, []agent.UsageRow{row("2026-03-05", "a", 4), row("2026-03-05", "b", 1)}, uses[:1]); err != nil {
		t.Fatal(err)
	}
	wantKind(t, s.FoldUsage(ctx, m2, m2, []agent.UsageRow{row("2026-03-05", "a/b", 4)}, nil), agent.Invalid)
	get := func(of agent.App, from, to time.Time) (out []agent.UsageRow) {
		t.Helper()
		mark, err := s.Usage(ctx, of, from, to, func(r agent.UsageRow) { out = append(out, r) })
		if err != nil || mark != m2 {
			t.Errorf("mark %+v, %v", mark, err)
		}
		return out
	}
	five := row("2026-03-05", "a", 7)
	five.Memory = 4
	all := []agent.UsageRow{row("2026-03-04", "a", 2), five, row("2026-03-05", "b", 1)}
	if d := cmp.Diff(all, get(app, now.AddDate(0, 0, -1), now)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(all[1:], get("", now, now)); d != "" {
		t.Error(d)
	}
	if rows := get("other", now.AddDate(0, 0, -100), now); len(rows) != 0 {
		t.Errorf("another app's: %v", rows)
	}
	// The uses of the first are old enough to be forgotten.
	for day, want := range map[time.Time]int64{now: 4, now.AddDate(0, 0, -4): 0} {
		got, _, err := s.UsageUses(ctx, day)
		if err != nil || want == 0 && len(got) != 0 || want > 0 && (len(got) != 1 || got[0].Uses != want) {
			t.Errorf("uses on %s: %v, %v", agent.UsageDay(day), got, err)
		}
	}
	if err := s.Verify(ctx); err != nil {
		t.Error(err)
	}
}
