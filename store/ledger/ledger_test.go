package ledger_test

import (
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/ledger"
)

func wantKind(t *testing.T, err error, want agent.Kind) {
	t.Helper()
	if err == nil || agent.KindOf(err) != want {
		t.Errorf("error is %v, want one of kind %s", err, want)
	}
}

// What is appended comes back as it was, once, in the rollups and in detail, however often it is folded and opened again.
func TestAppend(t *testing.T) {
	r := newRig(t, ledger.Options{})
	want := []agent.UsageEvent{call(noon, "a", 1), call(noon, "b", 2), call(noon.Add(time.Second), "a", 3)}
	want[1].Kind, want[1].Session, want[1].Run, want[1].Outcome = agent.UseRun, "S", "R", agent.OutcomeOf(agent.Errorf(agent.Failed, "x"))
	want[2].Agent, want[2].Kind = "", agent.UseCode
	r.add(want...)
	check := func(when string) {
		t.Helper()
		var got []agent.UsageEvent
		for _, e := range r.all() {
			got = append(got, e.UsageEvent)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: events (-want +got):\n%s", when, d)
		}
		row := func(name string, kind agent.UsageKind, failed int64, e agent.UsageEvent) agent.UsageRow {
			return agent.UsageRow{Day: "2026-03-01", App: app, Agent: name, Kind: kind, Events: 1, Failed: failed, Cost: e.Cost}
		}
		rows := []agent.UsageRow{row("-", agent.UseCode, 0, want[2]), row("a", agent.UseCall, 0, want[0]), row("b", agent.UseRun, 1, want[1])}
		if d := cmp.Diff(rows, r.rows()); d != "" {
			t.Errorf("%s: rows (-want +got):\n%s", when, d)
		}
	}
	check("at first")
	r.fold()
	r.fold()
	check("folded")
	r.crash(ledger.Options{})
	check("after a crash")
	r.Close()
	r.crash(ledger.Options{})
	check("after a stop")
	if err := r.st.Verify(t.Context()); err != nil {
		t.Error(err)
	}
}

// Rows tell apart what is asked for, and add up the rest.
func TestRows(t *testing.T) {
	r := newRig(t, ledger.Options{})
	other := call(noon, "a", 100)
	other.App = "other"
	r.add(call(noon, "a", 1), call(noon.Add(24*time.Hour), "a", 5), call(noon, "b", 3), other)
	get := func(q ledger.Query) []agent.UsageRow {
		t.Helper()
		q.App = app
		if q.From.IsZero() {
			q.From, q.To = noon, noon.AddDate(0, 0, 1)
		}
		rows, err := r.Rows(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		return rows
	}
	if rows := get(ledger.Query{}); len(rows) != 1 || rows[0].Events != 3 || rows[0].CPU != 9 || rows[0].Memory != 5 || rows[0].Day != "" {
		t.Errorf("all in one: %+v", rows)
	}
	if rows := get(ledger.Query{By: ledger.ByAgent}); len(rows) != 2 || rows[0].Agent != "a" || rows[0].CPU != 6 || rows[1].CPU != 3 {
		t.Errorf("by agent: %+v", rows)
	}
	if rows := get(ledger.Query{By: ledger.ByDay}); len(rows) != 2 || rows[0].Day != "2026-03-01" || rows[0].CPU != 4 || rows[1].CPU != 5 {
		t.Errorf("by day: %+v", rows)
	}
	if rows := get(ledger.Query{Agent: "b"}); len(rows) != 1 || rows[0].Events != 1 {
		t.Errorf("of one agent: %+v", rows)
	}
	if rows := get(ledger.Query{From: noon, To: noon}); len(rows) != 1 || rows[0].Events != 2 {
		t.Errorf("of one day: %+v", rows)
	}
	_, err := r.Rows(t.Context(), ledger.Query{From: noon, To: noon.AddDate(0, 0, -1)})
	wantKind(t, err, agent.Invalid)
	_, err = r.Rows(t.Context(), ledger.Query{From: noon, To: noon.AddDate(0, 0, ledger.MaxDays+1)})
	wantKind(t, err, agent.Invalid)
}

// Rollups equal the sum of the events, whatever happens: folds, crashes, stops, new segments, days in any order, a clock that
// goes back.
func TestRollupsEqualEvents(t *testing.T) {
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 1))
		o := ledger.Options{Segment: 1500}
		r := newRig(t, o)
		want := map[string]agent.UsageRow{}
		names := []string{"a", "b", "c", ""}
		for range 150 {
			switch rng.IntN(12) {
			case 0:
				r.fold()
			case 1:
				r.crash(o)
			case 2:
				if err := r.Sync(); err != nil {
					t.Fatal(err)
				}
			case 3:
				r.Close()
				r.crash(o)
			}
			e := call(noon.Add(time.Duration(rng.IntN(5*24))*time.Hour), names[rng.IntN(4)], rng.IntN(1000))
			e.Kind = agent.UsageKind(1 + rng.IntN(6))
			e.Outcome = agent.Outcome(1 + rng.IntN(3))
			r.add(e)
			row := e.Row()
			key := row.Day + row.Agent + row.Kind.String()
			sum, ok := want[key]
			if !ok {
				sum = row
			} else {
				sum.Add(row)
			}
			want[key] = sum
		}
		got := map[string]agent.UsageRow{}
		for _, row := range r.rows() {
			got[row.Day+row.Agent+row.Kind.String()] = row
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("seed %d (-want +got):\n%s", seed, d)
		}
		if n := len(r.all()); n != 150 {
			t.Errorf("seed %d: %d events are there", seed, n)
		}
		if len(r.files()) < 3 {
			t.Errorf("seed %d: only %d segments", seed, len(r.files()))
		}
		if err := r.st.Verify(t.Context()); err != nil {
			t.Error(err)
		}
		found, err := ledger.Examine(t.Context(), r.st, r.dir)
		if err != nil || found.Events != 150 || len(found.Damaged) > 0 || found.Torn != "" || len(found.Missing) > 0 {
			t.Errorf("seed %d: examined: %+v, %v", seed, found, err)
		}
	}
}

// Midnight in UTC is where a day ends, to the nanosecond.
func TestMidnight(t *testing.T) {
	r := newRig(t, ledger.Options{})
	midnight := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	east := midnight.In(time.FixedZone("east", 9*3600))
	r.add(call(midnight.Add(-1), "a", 1), call(midnight, "a", 2), call(east, "a", 4), call(midnight.Add(-time.Hour), "a", 8))
	rows := r.rows()
	if len(rows) != 2 || rows[0].Day != "2026-03-01" || rows[0].CPU != 9 || rows[1].Day != "2026-03-02" || rows[1].CPU != 6 {
		t.Errorf("rows: %+v", rows)
	}
}

func TestEventsInPages(t *testing.T) {
	r := newRig(t, ledger.Options{Segment: 1000})
	for i := range 50 {
		r.add(call(noon.Add(time.Duration(i)*time.Minute), string("ab"[i%2]), i))
	}
	q := ledger.Query{App: app, From: noon.Add(10 * time.Minute), To: noon.Add(40 * time.Minute), Agent: "b"}
	var got []string
	var second string
	for after := ""; ; {
		page, next, err := r.Events(t.Context(), q, after, 4)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) > 4 {
			t.Errorf("a page has %d events", len(page))
		}
		for _, e := range page {
			if got = append(got, e.Function); len(got) == 2 {
				second = e.Cursor
			}
		}
		if next == "" {
			break
		}
		after = next
	}
	if s := strings.Join(got, " "); s != "f11 f13 f15 f17 f19 f21 f23 f25 f27 f29 f31 f33 f35 f37 f39" {
		t.Errorf("events: %s", s)
	}
	page, _, err := r.Events(t.Context(), q, second, 1)
	if err != nil || len(page) != 1 || page[0].Function != "f15" {
		t.Errorf("after the second: %v, %v", page, err)
	}
	_, _, err = r.Events(t.Context(), ledger.Query{App: "other", To: q.To}, second, 1)
	wantKind(t, err, agent.Invalid)
	for _, bad := range []string{"x", "AAAA", second + "A", second[1:]} {
		_, _, err = r.Events(t.Context(), q, bad, 1)
		wantKind(t, err, agent.Invalid)
	}
}

// A full disk refuses usage, counts nothing of it, and keeps nobody from reading.
func TestFullDisk(t *testing.T) {
	r := newRig(t, ledger.Options{})
	r.add(call(noon, "a", 1))
	r.crash(ledger.Options{MinFree: math.MaxInt64, Segment: 40})
	err := r.Append(call(noon, "a", 2))
	for range 2 {
		wantKind(t, err, agent.Unavailable)
		if e := agent.AsError(err); !strings.Contains(e.Msg, "nearly full") || !strings.Contains(e.Hint, "room") {
			t.Errorf("error is %q, %q", e.Msg, e.Hint)
		}
		err = r.Ready()
	}
	if n := r.count(); n != 1 {
		t.Errorf("%d events count", n)
	}
	r.crash(ledger.Options{})
	if err := r.Ready(); err != nil {
		t.Error(err)
	}
	r.add(call(noon, "a", 3))
	if n := r.count(); n != 2 {
		t.Errorf("%d events count", n)
	}
}

// Old segments go, once they are folded, and the rollups stay.
func TestExpire(t *testing.T) {
	now := noon
	o := ledger.Options{Segment: 1000, Keep: 10 * 24 * time.Hour, Now: func() time.Time { return now }}
	r := newRig(t, o)
	for i := range 40 {
		r.add(call(noon.AddDate(0, 0, i), "a", i))
	}
	before := len(r.files())
	now = noon.AddDate(0, 0, 40)
	if err := r.Expire(t.Context()); err != nil || len(r.files()) != before {
		t.Errorf("deleted what was not folded: %v", err)
	}
	r.fold()
	if err := r.Expire(t.Context()); err != nil {
		t.Fatal(err)
	}
	all := r.all()
	if first := all[0].Time; len(all) > 25 || first.Before(now.AddDate(0, 0, -25)) || all[len(all)-1].Function != "f39" || len(all) < 10 {
		t.Errorf("%d events are kept, from %v", len(all), first)
	}
	if n := r.count(); n != 40 {
		t.Errorf("%d events count", n)
	}
	r.crash(o)
	if n := r.count(); n != 40 {
		t.Errorf("after a crash %d events count", n)
	}
}

// A database that was restored from a backup has its rollups and no segments.
func TestRestored(t *testing.T) {
	r := newRig(t, ledger.Options{})
	r.add(call(noon, "a", 1))
	r.fold()
	if err := os.RemoveAll(r.dir + "/usage"); err != nil {
		t.Fatal(err)
	}
	r.crash(ledger.Options{})
	if !strings.Contains(string(r.log.b), "not there") {
		t.Errorf("log: %s", r.log.b)
	}
	r.add(call(noon, "a", 2))
	r.fold()
	if n := r.count(); n != 2 {
		t.Errorf("%d events count", n)
	}
}

func TestGrantUses(t *testing.T) {
	r := newRig(t, ledger.Options{})
	use := func(at time.Time, name, grant string) agent.UsageEvent {
		return agent.UsageEvent{Time: at, Kind: agent.UseGrant, App: app, Agent: name, Function: grant, Outcome: agent.Succeeded}
	}
	r.add(use(noon, "a", "http x"), use(noon, "a", "http x"), use(noon, "b", "http x"), use(noon.AddDate(0, 0, 1), "a", "http x"))
	r.fold()
	r.add(use(noon, "a", "http x"), use(noon, "a", "secret y"), call(noon, "a", 1))
	r.crash(ledger.Options{})
	_, uses, err := r.Day(t.Context(), noon)
	if err != nil {
		t.Fatal(err)
	}
	got := map[store.GrantUses]int64{}
	for _, u := range uses {
		n := u.Uses
		u.Uses = 0
		got[u] = n
	}
	key := func(name, grant string) store.GrantUses {
		return store.GrantUses{Day: "2026-03-01", App: app, Agent: name, Grant: grant}
	}
	if d := cmp.Diff(map[store.GrantUses]int64{key("a", "http x"): 3, key("b", "http x"): 1, key("a", "secret y"): 1}, got); d != "" {
		t.Errorf("uses (-want +got):\n%s", d)
	}
}

func TestClosed(t *testing.T) {
	r := newRig(t, ledger.Options{})
	r.Close()
	wantKind(t, r.Append(call(noon, "a", 1)), agent.Unavailable)
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func TestStrangeNames(t *testing.T) {
	r := newRig(t, ledger.Options{})
	for _, e := range []agent.UsageEvent{{App: ""}, {App: "a/b"}, {App: app, Agent: "a b"}, {App: app, Agent: strings.Repeat("x", 161)}} {
		wantKind(t, r.Append(e), agent.Internal)
	}
	long := call(noon, "a", 1)
	long.Function = strings.Repeat("x", 100_000)
	r.add(long)
	if got := r.all()[0].Function; len(got) != 512 {
		t.Errorf("a name of %d bytes is kept", len(got))
	}
}
