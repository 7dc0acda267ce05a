package ledger_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/internal/crashtest"
	"github.com/skep-dev/skep/store/ledger"
)

// ask is a call of a model that is unlike any other n.
func ask(at time.Time, name string, n int) agent.UsageEvent {
	e := call(at, name, n)
	e.Kind, e.Session, e.Run = agent.UseModel, "s1", agent.RunID(fmt.Sprintf("r%d", n%3))
	micro := int64(n) // 0 is a price, too
	e.Model = &agent.ModelUse{
		Call: fmt.Sprintf("c%d", n), Provider: "p" + fmt.Sprint(n%2), Model: fmt.Sprintf("m%d", n%3), Route: "@cheap", Protocol: agent.MessageProtocol,
		Key: "k" + fmt.Sprint(n%2), Secret: "vault", User: fmt.Sprintf("u/%d é", n%4), Attempt: 2, Fault: agent.RateLimited, Source: agent.FromProvider,
		Tokens: agent.ModelTokens{
			Input: int64(n), CacheRead: 1, CacheWrite: 2, CacheWrite1h: 3, AudioIn: 4, Output: 5, Reasoning: 6, AudioOut: 7, Searches: 8,
		},
		Micro: &micro, Prices: "v1", First: 9, Raw: `{"n":1}`,
	}
	if n%5 == 4 {
		e.Model.Micro, e.Model.User, e.Model.Route = nil, "", ""
	}
	return e
}

func (r *rig) begin(e agent.UsageEvent) {
	r.t.Helper()
	if err := r.Begin(e); err != nil {
		r.t.Fatal(err)
	}
}

// cutOff is what a call becomes whose process is killed.
func cutOff(e agent.UsageEvent) agent.UsageEvent {
	use := *e.Model
	use.Source = agent.Partial
	e.Model, e.Outcome = &use, agent.OutcomeOf(agent.Errorf(agent.Unavailable, "x"))
	return e
}

func TestCallIsWhole(t *testing.T) {
	r := newRig(t, ledger.Options{})
	e := ask(noon, "a", 3)
	r.begin(e)
	if err := r.Begin(e); agent.KindOf(err) != agent.Internal {
		t.Errorf("begun twice: %v", err)
	}
	if n, others := r.Open(e.Run), r.Open("another"); n != 1 || others != 0 {
		t.Errorf("%d calls are under way, and %d of another run", n, others)
	}
	r.add(e)
	if n := r.Open(e.Run); n != 0 {
		t.Errorf("%d calls are under way after the end", n)
	}
	free := ask(noon, "a", 0)
	long := ask(noon, "a", 4)
	long.Model.Raw = strings.Repeat("x", agent.MaxRawUsage+1)
	r.add(free, long)
	long.Model.Raw = ""
	var got []agent.UsageEvent
	for _, x := range r.all() {
		got = append(got, x.UsageEvent)
	}
	if d := cmp.Diff([]agent.UsageEvent{e, free, long}, got); d != "" {
		t.Error(d)
	}
	for _, bad := range []agent.UsageEvent{
		{Kind: agent.UseModel, App: app, Agent: "a"}, {Kind: agent.UseCall, App: app, Agent: "a", Model: &agent.ModelUse{Call: "x"}},
		{Kind: agent.UseModel, App: app, Agent: "a/b", Model: &agent.ModelUse{Call: "x"}},
	} {
		if err := r.Append(bad); err == nil {
			t.Errorf("%+v was taken", bad)
		}
		if err := r.Begin(bad); err == nil {
			t.Errorf("%+v was begun", bad)
		}
	}
}

// Wherever a kill cuts the file, a call that was begun counts once: as it ended, or as it began.
func TestCallCutAnywhere(t *testing.T) {
	begun, done := ask(noon, "a", 1), ask(noon, "a", 1)
	done.Model.Tokens.Output = 77
	other := ask(noon, "a", 2)
	r := newRig(t, ledger.Options{})
	sizes := []int64{fileSize(t, r.newest())}
	r.begin(begun)
	sizes = append(sizes, fileSize(t, r.newest()))
	r.begin(other)
	sizes = append(sizes, fileSize(t, r.newest()))
	r.add(done)
	sizes = append(sizes, fileSize(t, r.newest()))
	whole, err := os.ReadFile(r.newest())
	if err != nil {
		t.Fatal(err)
	}
	cuts := slices.Clone(sizes)
	for size := sizes[0]; size < sizes[3]; size += 5 {
		cuts = append(cuts, size)
	}
	for _, size := range cuts {
		r := newRig(t, ledger.Options{})
		edit(t, r.newest(), func([]byte) []byte { return whole[:size:size] })
		var want []agent.UsageEvent
		if size >= sizes[3] {
			want = append(want, done)
		} else if size >= sizes[1] {
			want = append(want, cutOff(begun))
		}
		if size >= sizes[2] {
			want = append(want, cutOff(other))
		}
		if found, err := ledger.Examine(t.Context(), r.st, r.dir); err != nil || found.Open != len(want) && size < sizes[3] || len(found.Damaged) > 0 {
			t.Fatalf("at %d examined: %+v, %v", size, found, err)
		}
		for range 3 { // it is not written again by a later start
			r.crash(ledger.Options{})
			var got []agent.UsageEvent
			for _, x := range r.all() {
				got = append(got, x.UsageEvent)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Fatalf("cut at %d (-want +got):\n%s", size, d)
			}
		}
	}
}

func fileSize(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// A start that is killed while it writes down what an earlier kill has cut off goes on where it was.
func TestCutOffTwice(t *testing.T) {
	r := newRig(t, ledger.Options{})
	for n := range 5 {
		r.begin(ask(noon, "a", n))
	}
	before := fileSize(t, r.newest())
	r.crash(ledger.Options{})
	after := fileSize(t, r.newest())
	whole, err := os.ReadFile(r.newest())
	if err != nil {
		t.Fatal(err)
	}
	for size := before; size <= after; size += 7 {
		r := newRig(t, ledger.Options{})
		edit(t, r.newest(), func([]byte) []byte { return whole[:size:size] })
		r.crash(ledger.Options{})
		seen := map[string]int{}
		for _, x := range r.all() {
			seen[x.Model.Call]++
		}
		if d := cmp.Diff(map[string]int{"c0": 1, "c1": 1, "c2": 1, "c3": 1, "c4": 1}, seen); d != "" {
			t.Fatal(d)
		}
	}
}

// A call that is open keeps nobody else's usage from being rolled up for long, nor its own beginning from being found.
func TestLongCall(t *testing.T) {
	o := ledger.Options{Segment: 1000, Keep: time.Hour}
	r := newRig(t, o)
	r.begin(ask(noon.AddDate(0, 0, -9), "a", 1))
	for i := range 50 {
		r.add(call(noon.AddDate(0, 0, -8), "b", i))
	}
	r.fold()
	for i := range 50 {
		r.add(call(noon.AddDate(0, 0, -7), "b", i))
	}
	r.fold()
	if err := r.Expire(t.Context()); err != nil {
		t.Fatal(err)
	}
	mark, err := r.st.UsageMark(t.Context())
	if err != nil || len(r.files()) > 3 || mark.Segment < 5 {
		t.Errorf("%d files, rolled up to %+v, %v", len(r.files()), mark, err)
	}
	r.crash(o)
	if n := r.count(); n != 101 {
		t.Errorf("%d events", n)
	}
	if got, want := r.all(), cutOff(ask(noon.AddDate(0, 0, -9), "a", 1)); cmp.Diff(want, got[len(got)-1].UsageEvent) != "" {
		t.Errorf("the last event is %+v", got[len(got)-1])
	}
}

// Whatever is begun, ended, rolled up and killed in whatever order, the rows are the plain sum.
func TestCallsAddUp(t *testing.T) {
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 9))
		o := ledger.Options{Segment: 1500}
		r := newRig(t, o)
		var want []agent.UsageEvent
		open := map[int]agent.UsageEvent{}
		crash := func() {
			for n, e := range open {
				want = append(want, cutOff(e))
				delete(open, n)
			}
			r.crash(o)
		}
		for n := range 150 {
			switch rng.IntN(14) {
			case 0, 1:
				r.fold()
			case 2:
				crash()
			case 3:
				r.Close()
				crash()
			}
			at := noon.Add(time.Duration(rng.IntN(3*24)) * time.Hour)
			if rng.IntN(4) == 0 {
				e := call(at, "a", n)
				r.add(e)
				want = append(want, e)
			}
			e := ask(at, string("ab"[rng.IntN(2)]), n)
			r.begin(e)
			open[n] = e
			for m, e := range open {
				if rng.IntN(3) == 0 {
					use := *e.Model
					use.Tokens.Output = int64(rng.IntN(100))
					e.Model = &use
					r.add(e)
					want = append(want, e)
					delete(open, m)
				}
			}
		}
		crash()
		check := func(q ledger.Query, key func(agent.UsageRow) string, of func(agent.UsageEvent) bool) {
			t.Helper()
			q.App, q.From, q.To = app, noon.AddDate(0, 0, -1), noon.AddDate(0, 0, 9)
			rows, err := r.Rows(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			got, sums := map[string]figures{}, map[string]figures{}
			for _, row := range rows {
				if _, twice := got[key(row)]; twice {
					t.Errorf("two rows of %s", key(row))
				}
				got[key(row)] = figuresOf(row)
			}
			for _, e := range want {
				if !of(e) {
					continue
				}
				row, isAsk := e.ModelRow()
				if !isAsk {
					row = e.Row()
				}
				k := key(row)
				sums[k] = sums[k].plus(figuresOf(row))
			}
			if d := cmp.Diff(sums, got); d != "" {
				t.Errorf("seed %d, %+v (-want +got):\n%s", seed, q, d)
			}
		}
		asks := func(e agent.UsageEvent) bool { return e.Model != nil }
		check(ledger.Query{By: ledger.ByModel | ledger.ByUser}, func(r agent.UsageRow) string { return r.Model + " " + r.User }, asks)
		check(ledger.Query{By: ledger.ByDay | ledger.ByProvider | ledger.ByKey | ledger.ByRoute | ledger.ByAgent},
			func(r agent.UsageRow) string { return r.Day + r.Provider + r.Key + r.Route + r.Agent }, asks)
		check(ledger.Query{By: ledger.ByDay}, func(r agent.UsageRow) string { return r.Day }, func(agent.UsageEvent) bool { return true })
		check(ledger.Query{By: ledger.ByKind}, func(r agent.UsageRow) string { return r.Kind.String() }, func(agent.UsageEvent) bool { return true })
		check(ledger.Query{User: agent.NoAgent}, func(agent.UsageRow) string { return "" }, func(e agent.UsageEvent) bool { return asks(e) && e.Model.User == "" })
		check(ledger.Query{Model: "m1", Provider: "p1"}, func(agent.UsageRow) string { return "" },
			func(e agent.UsageEvent) bool { return asks(e) && e.Model.Model == "m1" && e.Model.Provider == "p1" })
		check(ledger.Query{Run: "r2", By: ledger.ByModel}, func(r agent.UsageRow) string { return r.Model }, func(e agent.UsageEvent) bool { return e.Run == "r2" })
		check(ledger.Query{Session: "s1"}, func(agent.UsageRow) string { return "" }, func(e agent.UsageEvent) bool { return e.Session == "s1" })
		if n := len(r.all()); n != len(want) {
			t.Errorf("seed %d: %d events for %d", seed, n, len(want))
		}
		if err := r.st.Verify(t.Context()); err != nil {
			t.Error(err)
		}
		rows, _, err := r.Day(t.Context(), noon)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			if row.Models != nil {
				t.Errorf("the day's rows count a call twice: %+v", row)
			}
		}
	}
}

// figures is what a row sums, added up without anything of the ledger.
type figures struct {
	Events, Failed, CPU, In, Calls, Input, Output, Searches, Micro, Priced, Unpriced int64
}

func figuresOf(r agent.UsageRow) figures {
	f := figures{Events: r.Events, Failed: r.Failed, CPU: int64(r.CPU), In: r.In}
	if m := r.Models; m != nil {
		f.Calls, f.Input, f.Output, f.Searches, f.Unpriced = m.Calls, m.Tokens.Input, m.Tokens.Output, m.Tokens.Searches, m.Unpriced
		if m.Micro != nil {
			f.Micro, f.Priced = *m.Micro, 1
		}
	}
	return f
}

func (f figures) plus(g figures) figures {
	return figures{
		f.Events + g.Events, f.Failed + g.Failed, f.CPU + g.CPU, f.In + g.In, f.Calls + g.Calls, f.Input + g.Input, f.Output + g.Output,
		f.Searches + g.Searches, f.Micro + g.Micro, max(f.Priced, g.Priced), f.Unpriced + g.Unpriced,
	}
}

// callForEver begins and ends calls from several goroutines, and prints those that were begun and those that have ended.
func callForEver(dir, _ string) error {
	ctx := context.Background()
	l, err := openDir(ctx, dir)
	if err != nil {
		return err
	}
	failed := make(chan error)
	go func() {
		for {
			if err := l.Fold(ctx); err != nil {
				failed <- err
			}
		}
	}()
	lines := make(chan string)
	for w := range writers {
		go func() {
			for i := 0; ; i++ {
				e := ask(time.Now(), "a", i)
				e.Model.Call = fmt.Sprintf("%d-%d-%d", os.Getpid(), w, i)
				if err := l.Begin(e); err != nil {
					failed <- err
					return
				}
				lines <- "begun " + e.Model.Call
				if err := l.Append(e); err != nil {
					failed <- err
					return
				}
				lines <- "ended " + e.Model.Call
			}
		}()
	}
	for {
		select {
		case err := <-failed:
			return err
		case line := <-lines:
			fmt.Println(line)
		}
	}
}

func TestCallCrash(t *testing.T) {
	dir := t.TempDir()
	begun, ended := map[string]bool{}, map[string]bool{}
	for round := range 3 {
		crashtest.Kill(t, "call", dir, "", 100+rand.IntN(900), func(line string) {
			how, id, _ := strings.Cut(line, " ")
			if begun[id] = true; how == "ended" {
				ended[id] = true
			}
		})
		l, err := openDir(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]agent.UseSource{}
		for after := ""; ; {
			page, next, err := l.Events(t.Context(), ledger.Query{App: app, To: time.Now().Add(time.Hour)}, after, 1000)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range page {
				if _, twice := seen[e.Model.Call]; twice {
					t.Errorf("call %s is there twice", e.Model.Call)
				}
				seen[e.Model.Call] = e.Model.Source
			}
			if after = next; next == "" {
				break
			}
		}
		for id := range begun {
			source, there := seen[id]
			if !there || ended[id] && source != agent.FromProvider {
				t.Errorf("call %s is there: %t, source %s", id, there, source)
			}
		}
		if extra := len(seen) - len(begun); extra < 0 || extra > (round+1)*writers {
			t.Errorf("%d calls are there that were not begun", extra)
		}
		rows, err := l.Rows(t.Context(), ledger.Query{App: app, From: time.Now().AddDate(0, 0, -1), To: time.Now()})
		if err != nil || len(rows) != 1 || rows[0].Events != int64(len(seen)) || rows[0].Models.Calls != int64(len(seen)) {
			t.Errorf("%d calls, rows %+v, %v", len(seen), rows, err)
		}
		l.close()
	}
}
