package limit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/ledger"
	"github.com/skep-dev/skep/store/memkv"
)

const app = agent.DefaultApp

var noon = time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)

// rig is a limiter over a ledger, with a clock and limits that a test sets.
type rig struct {
	t      *testing.T
	led    *ledger.Ledger
	now    atomic.Int64
	limits atomic.Pointer[[]agent.ModelLimit]
	all    []agent.ModelLimit // of all apps together
	*Limiter
	calls int
}

func newRig(t *testing.T, limits ...agent.ModelLimit) *rig {
	t.Helper()
	r := &rig{t: t}
	r.now.Store(noon.UnixNano())
	dir := t.TempDir()
	st, err := store.Open(t.Context(), memkv.New(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.led, err = ledger.Open(t.Context(), st, dir, &ledger.Options{MinFree: -1, Now: r.time}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.led.Close(); st.Close() })
	r.set(limits...)
	r.restart()
	return r
}

func (r *rig) time() time.Time           { return time.Unix(0, r.now.Load()).UTC() }
func (r *rig) wait(d time.Duration)      { r.now.Add(int64(d)) }
func (r *rig) set(l ...agent.ModelLimit) { r.limits.Store(&l) }
func (r *rig) restart() {
	r.Limiter = New(r.led, func(_ context.Context, of agent.App) ([]agent.ModelLimit, error) {
		if of == Org {
			return r.all, nil
		}
		return *r.limits.Load(), nil
	}, &Options{Now: r.time})
}

// call makes a call that uses so many tokens, writes it into the ledger and settles it.
func (r *rig) call(a Ask, lasts time.Duration, tokens int64, micro *int64) error {
	r.t.Helper()
	h, err := r.Hold(r.t.Context(), a)
	if err != nil {
		return err
	}
	r.wait(lasts)
	r.end(h, a, lasts, tokens, micro)
	return nil
}

func (r *rig) end(h *Hold, a Ask, lasted time.Duration, tokens int64, micro *int64) {
	r.t.Helper()
	r.calls++
	provider, model, _ := cut(a.Model)
	err := r.led.Append(agent.UsageEvent{
		Time: r.time(), Kind: agent.UseModel, App: a.App, Agent: a.Agent, Outcome: agent.Succeeded, Cost: agent.Cost{Wall: lasted},
		Model: &agent.ModelUse{
			Call: fmt.Sprint(r.calls), Provider: provider, Model: model, Route: a.Route, Key: a.Key, User: a.User, Source: agent.FromProvider,
			Tokens: agent.ModelTokens{Input: tokens / 3, Output: tokens - tokens/3}, Micro: micro,
		},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	h.Settle(tokens, micro)
}

func cut(s string) (string, string, bool) {
	for i := range s {
		if s[i] == '/' {
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}

func (r *rig) mustHold(a Ask) *Hold {
	r.t.Helper()
	h, err := r.Hold(r.t.Context(), a)
	if err != nil {
		r.t.Fatal(err)
	}
	return h
}

func (r *rig) refused(a Ask, kind agent.Kind) *agent.Error {
	r.t.Helper()
	h, err := r.Hold(r.t.Context(), a)
	if err == nil {
		h.Release()
		r.t.Fatalf("%+v was not refused", a)
	}
	if agent.KindOf(err) != kind {
		r.t.Fatalf("%+v: %v", a, err)
	}
	return agent.AsError(err)
}

func ask(tokens int64) Ask {
	return Ask{App: app, Agent: "a", Model: "p/m", Tokens: tokens, Micro: new(int64)}
}

func n(v int64) *int64 { return &v }

// Whatever many calls hold, settle and release at once, what is used and held is never above the limit, and what was given back can be used.
func TestNeverAbove(t *testing.T) {
	const requests, tokens, spend = 900, 50_000, 70_000
	for _, window := range []time.Duration{time.Minute, day, 31 * day} {
		r := newRig(t, agent.ModelLimit{Name: "l", App: app, Window: window, Requests: requests, Tokens: tokens, Spend: spend})
		var inTokens, inMicro, inRequests, settled, settledMicro, settledRequests atomic.Int64
		var wg sync.WaitGroup
		for w := range 16 {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(w), 1))
				for range 200 {
					a := ask(1 + rng.Int64N(400))
					a.Micro = n(1 + rng.Int64N(500))
					h, err := r.Hold(t.Context(), a)
					if err != nil {
						if agent.KindOf(err) != agent.Exhausted {
							t.Error(err)
						}
						continue
					}
					// Added after it was given and taken away before it is given back: never more than what is truly held.
					if inTokens.Add(a.Tokens) > tokens || inMicro.Add(*a.Micro) > spend || inRequests.Add(1) > requests {
						t.Errorf("above the limit: %d tokens, %d micro, %d requests", inTokens.Load(), inMicro.Load(), inRequests.Load())
					}
					if rng.IntN(3) == 0 {
						inTokens.Add(-a.Tokens)
						inMicro.Add(-*a.Micro)
						inRequests.Add(-1)
						h.Release()
						h.Settle(1000, n(1000)) // too late to do anything
						continue
					}
					used, micro := rng.Int64N(a.Tokens+1), rng.Int64N(*a.Micro+1)
					settled.Add(used)
					settledMicro.Add(micro)
					settledRequests.Add(1)
					inTokens.Add(used - a.Tokens)
					inMicro.Add(micro - *a.Micro)
					h.Settle(used, &micro)
					h.Release()
				}
			})
		}
		wg.Wait()
		if settledRequests.Load() < 50 {
			t.Errorf("only %d calls were let in", settledRequests.Load())
		}
		left := int64(tokens) - settled.Load()
		if left > 0 && settledRequests.Load() < requests {
			r.refused(ask(left+1), agent.Exhausted)
			r.mustHold(ask(left)).Release()
			r.mustHold(ask(left))
			r.refused(ask(1), agent.Exhausted)
		}
	}
}

// No span of a window's length has more calls, wherever it begins, and whoever waits as long as it is told to is let in.
func TestSlidingWindow(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 2))
		window := time.Duration(60+rng.IntN(3600)) * time.Second
		const most = 7
		r := newRig(t, agent.ModelLimit{Name: "l", App: app, Window: window, Requests: most, Tokens: 5000})
		type made struct {
			at     time.Time
			tokens int64
		}
		var all []made
		waits := 0
		for range 300 {
			r.wait(time.Duration(rng.Int64N(int64(window) / 5)))
			a := ask(1 + rng.Int64N(1500))
			h, err := r.Hold(t.Context(), a)
			if err != nil {
				after := agent.AsError(err).After
				if after <= 0 || after > window+window/steps {
					t.Fatalf("seed %d: wait %s of %s: %v", seed, after, window, err)
				}
				r.wait(after)
				waits++
				h = r.mustHold(a)
			}
			at := r.time()
			used := rng.Int64N(a.Tokens + 1)
			if rng.IntN(2) == 0 {
				r.wait(time.Duration(rng.Int64N(int64(window) / 3)))
			}
			h.Settle(used, n(0))
			all = append(all, made{at, used})
			calls, tokens := 0, int64(0)
			for _, m := range all {
				if at.Sub(m.at) < window {
					calls, tokens = calls+1, tokens+m.tokens
				}
			}
			if calls > most || tokens > 5000 {
				t.Fatalf("seed %d: %d calls and %d tokens in %s", seed, calls, tokens, window)
			}
		}
		if waits < 10 {
			t.Errorf("seed %d: only %d calls had to wait", seed, waits)
		}
	}
}

// After a restart, and for a limit that is new, counts are what they were.
func TestRestored(t *testing.T) {
	for seed := range uint64(15) {
		rng := rand.New(rand.NewPCG(seed, 3))
		limits := []agent.ModelLimit{
			{Name: "minute", App: app, Window: 10 * time.Minute, Requests: 1000, Tokens: 100_000},
			{Name: "day", App: app, Window: day, Tokens: 1_000_000, Spend: 1_000_000, Unpriced: 7},
			{Name: "days", App: app, Each: agent.EachUser, Window: 60 * time.Hour, Tokens: 1_000_000, Spend: 1_000_000, Unpriced: 3},
			{Name: "keys", App: app, Each: agent.EachKey, Match: []string{"k*"}, Models: []string{"@cheap", "p1/*"}, Window: 31 * day, Requests: 1000},
			{Name: "agent", App: app, Each: agent.EachAgent, Window: time.Hour, Spend: 100_000, Unpriced: 1},
		}
		r := newRig(t, limits...)
		r.now.Store(noon.Add(11 * time.Hour).UnixNano())
		for i := range 120 {
			a := Ask{
				App: app, Agent: []string{"", "a", "b"}[rng.IntN(3)], User: []string{"", "u"}[rng.IntN(2)], Key: []string{"", "k1", "x"}[rng.IntN(3)],
				Model: []string{"p1/m", "p2/m/n"}[rng.IntN(2)], Route: []string{"", "@cheap"}[rng.IntN(2)], Tokens: 100,
			}
			var micro *int64
			if rng.IntN(3) > 0 {
				a.Micro, micro = n(50), n(rng.Int64N(50))
			}
			if err := r.call(a, time.Duration(rng.Int64N(int64(time.Minute))), rng.Int64N(101), micro); err != nil {
				t.Fatal(err)
			}
			r.wait(time.Duration(rng.Int64N(int64(time.Minute))))
			if i%40 == 39 {
				want := r.counts()
				r.restart()
				if got := r.counts(); want == "" || got != want {
					t.Fatalf("seed %d, after %d calls:\n%s\nafter a restart\n%s", seed, i, want, got)
				}
				r.set(limits[1:]...)
				r.mustHold(ask(1)).Release()
				r.set(limits...)
				if got := r.counts(); got != want {
					t.Fatalf("seed %d, after %d calls:\n%s\nwith a limit made anew\n%s", seed, i, want, got)
				}
			}
		}
	}
}

// counts writes down all counts that are not 0.
func (r *rig) counts() (out string) {
	r.t.Helper()
	r.mustHold(ask(1)).Release()
	c := r.app(app)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rule := range c.rules {
		for _, who := range []string{string(app), "-", "a", "b", "u", "k1", "x"} {
			if k := rule.whose[who]; k != nil {
				if used := rule.used(k, r.time()); used != (amount{}) {
					out += fmt.Sprintln(rule.Name, who, used, k.held)
				}
			}
		}
	}
	return out
}

func TestDays(t *testing.T) {
	r := newRig(t, agent.ModelLimit{Name: "l", App: app, Window: 2 * day, Tokens: 100})
	r.now.Store(time.Date(2026, 3, 10, 23, 59, 0, 0, time.UTC).UnixNano())
	long := r.mustHold(ask(60))
	if err := r.call(ask(30), 0, 30, n(0)); err != nil {
		t.Fatal(err)
	}
	if e := r.refused(ask(20), agent.Exhausted); e.After != 0 && e.After != 24*time.Hour+time.Minute {
		t.Errorf("wait %s", e.After)
	}
	r.wait(2 * time.Minute) // what is held stays held when the day turns
	r.refused(ask(20), agent.Exhausted)
	r.wait(day) // the first call counts no more
	r.mustHold(ask(40)).Release()
	r.refused(ask(41), agent.Exhausted)
	r.end(long, ask(60), time.Hour, 60, n(0)) // on the 12th
	r.wait(day)
	e := r.refused(ask(50), agent.Exhausted)
	if want := time.Date(2026, 3, 14, 0, 0, 0, 0, time.UTC).Sub(r.time()); e.After != want {
		t.Errorf("wait %s, and not %s", e.After, want)
	}
	r.wait(e.After)
	r.mustHold(ask(100))
}

func TestWho(t *testing.T) {
	r := newRig(t,
		agent.ModelLimit{Name: "user", App: app, Each: agent.EachUser, Window: time.Minute, Requests: 1},
		agent.ModelLimit{Name: "key", App: app, Each: agent.EachKey, Match: []string{"guest*"}, Window: time.Minute, Requests: 1, Instead: "@cheap"},
		agent.ModelLimit{Name: "agent", App: app, Each: agent.EachAgent, Models: []string{"p/big*"}, Window: time.Minute, Requests: 1},
	)
	with := func(user, key, name, model, route string) Ask {
		a := ask(1)
		a.User, a.Key, a.Agent, a.Model, a.Route = user, key, name, model, route
		return a
	}
	r.mustHold(with("u1", "", "a", "p/m", ""))
	r.refused(with("u1", "", "b", "q/m", ""), agent.Exhausted)
	r.mustHold(with("", "", "a", "p/m", "")) // who says no name is counted together
	r.refused(with("", "", "b", "p/m", ""), agent.Exhausted)
	r.mustHold(with("u2", "guest1", "a", "p/m", ""))
	_, err := r.Hold(t.Context(), with("u3", "guest1", "a", "p/m", ""))
	in, ok := errors.AsType[*Instead](err)
	if !ok || in.Route != "@cheap" || in.Limit != "key" || agent.KindOf(in.Err) != agent.Exhausted {
		t.Errorf("%v", err)
	}
	if _, err = r.Hold(t.Context(), with("u3", "guest1", "a", "p/m", "@cheap")); err == nil || errors.As(err, &in) {
		t.Errorf("the other route is asked again: %v", err)
	}
	r.mustHold(with("u3", "other", "a", "p/m", "")) // the refusal took nothing of u3's
	r.mustHold(with("u4", "other", "a", "p/big1", ""))
	r.refused(with("u5", "other", "a", "p/big2", ""), agent.Exhausted)
	r.mustHold(with("u5", "other", "b", "p/big2", ""))
}

func TestSpend(t *testing.T) {
	r := newRig(t, agent.ModelLimit{Name: "l", App: app, Window: day, Spend: 100})
	a := ask(1)
	a.Micro = nil
	r.refused(a, agent.Denied)
	a.Micro = n(101)
	if e := r.refused(a, agent.Exhausted); e.After != 0 {
		t.Errorf("waiting %s does not help", e.After)
	}
	a.Micro = n(60)
	r.mustHold(a).Settle(5, n(100))
	r.refused(a, agent.Exhausted)
	a.Micro = n(0)
	r.mustHold(a) // what is free can be asked for all the same
	r.set(agent.ModelLimit{Name: "l", App: app, Window: day, Spend: 100, Unpriced: 40})
	a.Micro = nil
	r.mustHold(a).Settle(1, nil)
	r.mustHold(a)
	r.refused(a, agent.Exhausted)
}

// A limit that is made while calls are under way holds what they may use.
func TestNewLimitHolds(t *testing.T) {
	r := newRig(t)
	h := r.mustHold(ask(70))
	r.set(agent.ModelLimit{Name: "l", App: app, Window: time.Minute, Tokens: 100})
	r.refused(ask(31), agent.Exhausted)
	r.mustHold(ask(30)).Release()
	h.Settle(20, n(0))
	r.mustHold(ask(80))
	r.refused(ask(1), agent.Exhausted)
	r.set(agent.ModelLimit{Name: "l", App: app, Window: time.Minute, Tokens: 200}) // the counts stay
	r.mustHold(ask(100))
	r.refused(ask(1), agent.Exhausted)
}

func BenchmarkHold(b *testing.B) {
	dir := b.TempDir()
	st, err := store.Open(b.Context(), memkv.New(), dir, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer st.Close()
	led, err := ledger.Open(b.Context(), st, dir, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer led.Close()
	limits := []agent.ModelLimit{
		{Name: "a", Window: time.Minute, Requests: 1 << 40}, {Name: "b", Window: 31 * day, Spend: 1 << 50}, {Name: "c", Each: agent.EachUser, Window: day, Tokens: 1 << 50},
	}
	l := New(led, func(context.Context, agent.App) ([]agent.ModelLimit, error) { return limits, nil }, nil)
	for b.Loop() {
		h, err := l.Hold(b.Context(), ask(100))
		if err != nil {
			b.Fatal(err)
		}
		h.Settle(50, n(5))
	}
}

// A limit of the organization counts all apps together, whatever their own limits leave, and gives back what an app's own limit refuses.
func TestAllApps(t *testing.T) {
	for _, window := range []time.Duration{time.Hour, 24 * time.Hour} {
		r := newRig(t, agent.ModelLimit{Name: "own", Window: window, Requests: 2})
		r.all = []agent.ModelLimit{{Name: "all", Each: agent.EachOrg, Window: window, Requests: 3, Tokens: 1000}}
		a, b, c := Ask{App: "a", Model: "p/m", Tokens: 10}, Ask{App: "b", Model: "p/m", Tokens: 10}, Ask{App: "c", Model: "p/m", Tokens: 10}
		for i, ask := range []Ask{a, a} {
			if err := r.call(ask, time.Second, 5, nil); err != nil {
				t.Fatalf("call %d: %v", i, err)
			}
		}
		for range 3 {
			if err := r.call(a, 0, 5, nil); agent.KindOf(err) != agent.Exhausted || !strings.Contains(err.Error(), `limit "own"`) {
				t.Fatalf("past the app's own limit: %v", err)
			}
		}
		h, err := r.Hold(t.Context(), b)
		if err != nil {
			t.Fatalf("another app: %v", err)
		}
		if left := h.Left(); left.RequestsOf == 0 || left.Requests != 0 || left.TokensOf != 1000 || left.Tokens != 980 {
			t.Errorf("it leaves %+v", left)
		}
		if _, err := r.Hold(t.Context(), c); agent.KindOf(err) != agent.Exhausted || !strings.Contains(err.Error(), `limit "all", counted by org`) {
			t.Errorf("past the limit of all: %v", err)
		}
		h.Release()
		if err := r.call(c, time.Second, 5, nil); err != nil {
			t.Errorf("after what was held was given back: %v", err)
		}
		r.restart() // the ledger knows
		if err := r.call(b, 0, 5, nil); agent.KindOf(err) != agent.Exhausted {
			t.Errorf("after a restart: %v", err)
		}
	}
}

// An app that is past its own limit takes nothing of all apps', not even for a moment.
func TestPastOwn(t *testing.T) {
	r := newRig(t, agent.ModelLimit{Name: "own", Window: time.Hour, Requests: 1})
	all := []agent.ModelLimit{{Name: "all", Each: agent.EachOrg, Window: time.Hour, Requests: 2}}
	var meanwhile func()
	r.Limiter = New(r.led, func(_ context.Context, of agent.App) ([]agent.ModelLimit, error) {
		switch of {
		case Org:
			return all, nil
		case "a":
			meanwhile()
			return *r.limits.Load(), nil
		}
		return nil, nil
	}, &Options{Now: r.time})
	a, b := Ask{App: "a", Model: "p/m"}, Ask{App: "b", Model: "p/m"}
	meanwhile = func() {}
	if err := r.call(a, 0, 5, nil); err != nil {
		t.Fatal(err)
	}
	meanwhile = func() {
		if err := r.call(b, 0, 5, nil); err != nil {
			t.Errorf("another app, meanwhile: %v", err)
		}
	}
	if _, err := r.Hold(t.Context(), a); agent.KindOf(err) != agent.Exhausted || !strings.Contains(err.Error(), `limit "own"`) {
		t.Errorf("past the app's own limit: %v", err)
	}
}

// Use tells what counts, that of calls under way too, and of all apps together what each has added.
func TestUse(t *testing.T) {
	r := newRig(t, agent.ModelLimit{Name: "each", Each: agent.EachUser, Window: time.Hour, Tokens: 1000, Spend: 1000})
	r.all = []agent.ModelLimit{{Name: "org", Each: agent.EachOrg, Window: 24 * time.Hour, Requests: 10}}
	told := func(of agent.App, name string) string {
		t.Helper()
		list, err := r.Use(t.Context(), of, name)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(list)
	}
	if got := told(app, "each"); got != "[]" {
		t.Error(got)
	}
	ask := func(user string) Ask {
		return Ask{App: app, User: user, Model: "p/m", Tokens: 100, Micro: new(int64(50))}
	}
	for _, user := range []string{"ann", "bob", "ann"} {
		if err := r.call(ask(user), time.Second, 30, new(int64(7))); err != nil {
			t.Fatal(err)
		}
	}
	h, err := r.Hold(t.Context(), ask(""))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := told(app, "each"), "[{ann 2 60 14} {- 1 100 50} {bob 1 30 7}]"; got != want {
		t.Errorf("%s, not %s", got, want)
	}
	if got, want := told(Org, "org"), "[{all apps 4 190 71}]"; got != want {
		t.Errorf("%s, not %s", got, want)
	}
	h.Release()
	r.restart() // from the ledger
	if got, want := told(app, "each"), "[{ann 2 60 14} {bob 1 30 7}]"; got != want {
		t.Errorf("%s, not %s", got, want)
	}
	r.wait(2 * time.Hour)
	if got := told(app, "each"); got != "[]" {
		t.Error(got)
	}
	if _, err := r.Use(t.Context(), app, "org"); agent.KindOf(err) != agent.NotFound {
		t.Error(err)
	}
}
