package quota_test

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/grant"
	"github.com/skep-dev/skep/runtime/quota"
	"github.com/skep-dev/skep/store"
)

const app = agent.DefaultApp

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// clock is a time that a test sets.
type clock struct{ at atomic.Int64 }

func (c *clock) set(t time.Time) { c.at.Store(t.UnixNano()) }
func (c *clock) now() time.Time  { return time.Unix(0, c.at.Load()).UTC() }

func keeper(start quota.Start) (*quota.Keeper, *clock) {
	c := &clock{}
	c.set(noon)
	if start.Day.IsZero() {
		start.Day = noon
	}
	return quota.New(start, &quota.Options{Now: c.now}), c
}

func call(q agent.Quota) quota.Call {
	return quota.Call{App: app, Agent: "a", AgentQuota: q, Limits: agent.DefaultLimits()}
}

func wantRefusal(t *testing.T, err error, after time.Duration, words ...string) {
	t.Helper()
	e := agent.AsError(err)
	if e == nil || e.Kind != agent.Exhausted || e.Limit != agent.LimitQuota || e.After != after {
		t.Fatalf("error is %+v, want a quota that has room after %s", e, after)
	}
	for _, w := range words {
		if !strings.Contains(e.Msg, w) {
			t.Errorf("%q does not say %q", e.Msg, w)
		}
	}
}

func begin(t *testing.T, k *quota.Keeper, c quota.Call) *quota.Hold {
	t.Helper()
	h, err := k.Begin(c)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestCells(t *testing.T) {
	k, _ := keeper(quota.Start{})
	c := call(agent.Quota{Cells: 2})
	one, _ := begin(t, k, c), begin(t, k, c)
	_, err := k.Begin(c)
	wantRefusal(t, err, time.Second, `agent "a"`, "2 cells")
	wantRefusal(t, k.Check(c), time.Second)
	one.Done(noon, agent.Cost{})
	one.Done(noon, agent.Cost{}) // counts once
	begin(t, k, c)
	_, err = k.Begin(c)
	wantRefusal(t, err, time.Second)
	other := c
	other.Agent = "b"
	begin(t, k, other) // has its own
	other.Agent, other.AppQuota = "c", agent.Quota{Cells: 3}
	_, err = k.Begin(other)
	wantRefusal(t, err, time.Second, `app "default"`, "3 cells")
}

// No second ever has more calls than the quota, wherever it begins.
func TestCallsPerSecond(t *testing.T) {
	k, now := keeper(quota.Start{})
	c := call(agent.Quota{CallsPerSecond: 10})
	var began []time.Time
	for i := range 5000 { // 5 ms apart: 200 calls a second are tried
		now.set(noon.Add(time.Duration(i) * 5 * time.Millisecond))
		h, err := k.Begin(c)
		if err != nil {
			e := agent.AsError(err)
			if e.After <= 0 || e.After > time.Second+time.Second/64 {
				t.Fatalf("told to wait for %s", e.After)
			}
			continue
		}
		h.Done(now.now(), agent.Cost{})
		began = append(began, now.now())
	}
	for i := 10; i < len(began); i++ {
		if d := began[i].Sub(began[i-10]); d < time.Second {
			t.Fatalf("11 calls within %s", d)
		}
	}
	if len(began) < 240 {
		t.Errorf("only %d calls in 25 s", len(began))
	}
}

// Who waits for as long as it was told to gets in, and a moment before does not.
func TestRetryAfter(t *testing.T) {
	k, now := keeper(quota.Start{})
	c := call(agent.Quota{CallsPerSecond: 3})
	for i := range 3 {
		now.set(noon.Add(time.Duration(i) * 77 * time.Millisecond))
		begin(t, k, c)
	}
	_, err := k.Begin(c)
	after := agent.AsError(err).After
	last := now.now()
	now.set(last.Add(after - 1))
	if _, err := k.Begin(c); err == nil {
		t.Error("let in before the time it was told")
	}
	now.set(last.Add(after))
	begin(t, k, c)
}

func TestCPUPerDay(t *testing.T) {
	k, now := keeper(quota.Start{Rows: []agent.UsageRow{
		{App: app, Agent: "a", Kind: agent.UseCall, Cost: agent.Cost{CPU: 30 * time.Second}},
		{App: app, Agent: "a", Kind: agent.UseRun, Cost: agent.Cost{CPU: 10 * time.Second}},
		{App: app, Agent: "a", Kind: agent.UseLoad, Cost: agent.Cost{CPU: time.Hour}}, // is not the agent's doing
		{App: app, Agent: "b", Kind: agent.UseCall, Cost: agent.Cost{CPU: time.Hour}},
	}})
	c := call(agent.Quota{CPUPerDay: time.Minute}) // 20 s are left
	h := begin(t, k, c)
	if h.Limits.CPU != 10*time.Second {
		t.Errorf("holds %s", h.Limits.CPU)
	}
	h2 := begin(t, k, c)
	if h2.Limits.CPU != 5*time.Second {
		t.Errorf("the second holds %s", h2.Limits.CPU)
	}
	err := h2.Explain(agent.Exceeded(agent.LimitCPU, "too much"))
	wantRefusal(t, err, 12*time.Hour, `agent "a"`, "1m0s", "5s")
	if err := h.Explain(agent.Exceeded(agent.LimitCPU, "too much")); agent.AsError(err).Limit != agent.LimitCPU {
		t.Errorf("its own limit is explained as %v", err)
	}
	h.Done(noon, agent.Cost{CPU: 10 * time.Second})
	h2.Done(noon, agent.Cost{CPU: time.Second}) // 9 s are left
	if h := begin(t, k, c); h.Limits.CPU != 4500*time.Millisecond {
		t.Errorf("holds %s", h.Limits.CPU)
	} else {
		h.Done(noon, agent.Cost{CPU: 9 * time.Second})
	}
	_, err = k.Begin(c)
	wantRefusal(t, err, 12*time.Hour, `agent "a"`, "1m0s", "midnight")
	now.set(noon.Add(12*time.Hour - 1))
	_, err = k.Begin(c)
	wantRefusal(t, err, time.Second)
	now.set(noon.Add(12 * time.Hour))
	begin(t, k, c)
}

func TestBytesPerDay(t *testing.T) {
	k, _ := keeper(quota.Start{Rows: []agent.UsageRow{{App: app, Agent: "a", Kind: agent.UseFetch, Cost: agent.Cost{In: 100, Out: 200, Sent: 300, Received: 400}}}})
	c := call(agent.Quota{BytesPerDay: 10_000})
	c.In = 9000
	_, err := k.Begin(c)
	wantRefusal(t, err, 12*time.Hour, "10000 bytes")
	c.In = 8000
	h := begin(t, k, c)
	if h.Limits.Output != 1000 {
		t.Errorf("may put out %d bytes", h.Limits.Output)
	}
	wantRefusal(t, h.Traffic(1, 0), time.Second, "hold")
	_, err = k.Begin(call(agent.Quota{BytesPerDay: 10_000}))
	wantRefusal(t, err, time.Second, "hold")
	h.Done(noon, agent.Cost{In: 8000, Out: 10})
	h = begin(t, k, call(agent.Quota{BytesPerDay: 10_000})) // 990 left
	if h.Limits.Output != 990 {
		t.Errorf("may put out %d bytes", h.Limits.Output)
	}
	h.Done(noon, agent.Cost{})

	big := call(agent.Quota{BytesPerDay: 1 << 20})
	h = begin(t, k, big) // half of some 1,039,566
	if err := h.Traffic(60_000, 40_000); err != nil {
		t.Error(err)
	}
	wantRefusal(t, h.Traffic(0, 1<<20), 12*time.Hour)
	wantRefusal(t, h.Traffic(500_000, 0), time.Second)
	if sent, received := h.Stop(); sent != 60_000 || received != 40_000 {
		t.Errorf("sent %d, received %d", sent, received)
	}
	if err := h.Traffic(1, 0); agent.KindOf(err) != agent.Cancelled {
		t.Errorf("traffic of a call that has ended: %v", err)
	}
	h.Done(noon, agent.Cost{Sent: 60_000, Received: 40_000})
	if u := k.Used(app, "a", big.AgentQuota); u.Bytes != 9010+100_000 || u.BytesHeld != 0 || u.Cells != 0 {
		t.Errorf("used: %+v", u)
	}
}

// What goes on for long is settled in parts, each of the day on which it is.
func TestSettle(t *testing.T) {
	k, now := keeper(quota.Start{})
	c := call(agent.Quota{BytesPerDay: 1000})
	h, err := k.Traffic(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int64{300, 400} {
		if err := h.Traffic(n/2, n/2); err != nil {
			t.Fatal(err)
		}
	}
	if sent, received := h.Settle(noon, 701); sent+received != 0 {
		t.Errorf("settled %d and %d too early", sent, received)
	}
	if sent, received := h.Settle(noon, 700); sent != 350 || received != 350 {
		t.Errorf("settled %d and %d", sent, received)
	}
	if u := k.Used(app, "a", c.AgentQuota); u.Bytes != 700 || u.BytesHeld != 0 {
		t.Errorf("used: %+v", u)
	}
	wantRefusal(t, h.Traffic(301, 0), 12*time.Hour)
	now.set(noon.Add(12 * time.Hour))
	if err := h.Traffic(1000, 0); err != nil {
		t.Errorf("on the next day: %v", err)
	}
	sent, received := h.Stop()
	h.Done(now.now(), agent.Cost{Sent: sent, Received: received})
	if u := k.Used(app, "a", c.AgentQuota); u.Bytes != 1000 || u.BytesHeld != 0 {
		t.Errorf("used: %+v", u)
	}
	if sent, _ := h.Settle(now.now(), 0); sent != 0 {
		t.Errorf("settled %d after the end", sent)
	}
}

// With 64 callers at once no quota is ever gone past, and none is left unused.
func TestStrict(t *testing.T) {
	const callers = 64
	for _, tt := range []struct {
		name string
		q    agent.Quota
	}{
		{"cells", agent.Quota{Cells: 7}}, {"calls", agent.Quota{CallsPerSecond: 50}},
		{"cpu", agent.Quota{CPUPerDay: 3 * time.Second}}, {"bytes", agent.Quota{BytesPerDay: 1 << 20}},
	} {
		for _, of := range []string{"app", "agent"} {
			t.Run(tt.name+" of an "+of, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					k := quota.New(quota.Start{Day: time.Now()}, nil)
					var live, most, cpu, bytes, calls atomic.Int64
					var all sync.WaitGroup
					for i := range callers {
						all.Go(func() {
							c := quota.Call{App: app, Agent: fmt.Sprintf("a%d", i%4), AppQuota: tt.q, Limits: agent.DefaultLimits(), In: 100}
							if of == "agent" {
								c.Agent, c.AppQuota, c.AgentQuota = "a", agent.Quota{}, tt.q
							}
							for round := range 40 {
								h, err := k.Begin(c)
								if err != nil {
									time.Sleep(min(agent.AsError(err).After, 20*time.Millisecond)) // of the bubble's clock
									continue
								}
								n := live.Add(1)
								for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
								}
								calls.Add(1)
								cost := agent.Cost{In: 100, CPU: h.Limits.CPU}
								if round%3 > 0 {
									cost.CPU = min(cost.CPU, time.Millisecond)
								}
								if h.Traffic(500, 0) == nil {
									cost.Sent = 500
								}
								cost.Out = min(h.Limits.Output, 2000)
								time.Sleep(time.Millisecond)
								live.Add(-1)
								cpu.Add(int64(cost.CPU))
								bytes.Add(cost.Bytes())
								h.Done(time.Now(), cost)
							}
						})
					}
					began := time.Now()
					all.Wait()
					took := time.Since(began)
					switch {
					case tt.q.Cells > 0 && most.Load() != tt.q.Cells:
						t.Errorf("%d cells were live at once", most.Load())
					case tt.q.CallsPerSecond > 0 && calls.Load() > tt.q.CallsPerSecond*int64(took/time.Second+1):
						t.Errorf("%d calls in %s", calls.Load(), took)
					case tt.q.CPUPerDay > 0 && (cpu.Load() > int64(tt.q.CPUPerDay) || cpu.Load() < int64(tt.q.CPUPerDay)*9/10):
						t.Errorf("%s of CPU were used", time.Duration(cpu.Load()))
					case tt.q.BytesPerDay > 0 && (bytes.Load() > tt.q.BytesPerDay || bytes.Load() < tt.q.BytesPerDay*9/10):
						t.Errorf("%d bytes were used", bytes.Load())
					}
					if u := k.Used(app, "", tt.q); u.Cells != 0 || u.CPUHeld != 0 || u.BytesHeld != 0 {
						t.Errorf("at the end: %+v", u)
					}
				})
			})
		}
	}
}

// What ends after midnight counts for the new day, and what is held then stays held.
func TestMidnight(t *testing.T) {
	k, now := keeper(quota.Start{})
	c := call(agent.Quota{CPUPerDay: 20 * time.Second})
	now.set(noon.Add(12*time.Hour - 1))
	h := begin(t, k, c) // holds 10 s
	now.set(noon.Add(12 * time.Hour))
	h2 := begin(t, k, c)
	if h2.Limits.CPU != 5*time.Second {
		t.Errorf("the first of the day holds %s", h2.Limits.CPU)
	}
	h.Done(now.now(), agent.Cost{CPU: 8 * time.Second})
	h2.Done(now.now(), agent.Cost{CPU: time.Second})
	if u := k.Used(app, "a", c.AgentQuota); u.CPU != 9*time.Second || u.CPUHeld != 0 {
		t.Errorf("used: %+v", u)
	}
}

// Midnight is no way around a quota by the second.
func TestMidnightKeepsTheSecond(t *testing.T) {
	k, now := keeper(quota.Start{})
	c := call(agent.Quota{CallsPerSecond: 1})
	now.set(noon.Add(12*time.Hour - 1))
	begin(t, k, c).Done(now.now(), agent.Cost{})
	now.set(noon.Add(12 * time.Hour))
	if _, err := k.Begin(c); err == nil {
		t.Error("two calls within a nanosecond")
	}
}

// A clock that goes back opens no day anew, and no second.
func TestClockGoesBack(t *testing.T) {
	k, now := keeper(quota.Start{})
	c := call(agent.Quota{CPUPerDay: time.Second})
	begin(t, k, c).Done(noon, agent.Cost{CPU: time.Second})
	rate := call(agent.Quota{CallsPerSecond: 1})
	rate.Agent = "b"
	begin(t, k, rate)
	for _, back := range []time.Duration{time.Second, time.Hour, 24 * time.Hour, 400 * 24 * time.Hour} {
		now.set(noon.Add(-back))
		if _, err := k.Begin(c); err == nil {
			t.Errorf("%s back: let in past the day's quota", back)
		}
		if _, err := k.Begin(rate); err == nil {
			t.Errorf("%s back: let in past the second's quota", back)
		}
	}
	now.set(noon.Add(13 * time.Hour)) // the next day
	begin(t, k, c).Done(now.now(), agent.Cost{CPU: time.Second})
	now.set(noon)
	if _, err := k.Begin(c); err == nil {
		t.Error("back in the day before: let in past the quota")
	}
}

// A worker process that was broken into claims more than can be, and gains nothing by it: the day is used up, and stays so.
func TestUsedBeyondCounting(t *testing.T) {
	k, _ := keeper(quota.Start{})
	all := agent.Quota{CPUPerDay: time.Hour, BytesPerDay: 1 << 30}
	free := begin(t, k, call(agent.Quota{})) // still held when the quotas below are judged
	for range 3 {
		begin(t, k, call(agent.Quota{})).Done(noon, agent.Cost{CPU: math.MaxInt64, In: math.MaxInt64, Out: math.MaxInt64})
	}
	u := k.Used(app, "a", all)
	if u.CPU != math.MaxInt64 || u.Bytes != math.MaxInt64 {
		t.Errorf("used: %+v", u)
	}
	_, err := k.Begin(call(all))
	wantRefusal(t, err, 12*time.Hour, "processor time")
	_, err = k.Begin(call(agent.Quota{BytesPerDay: 1 << 30}))
	wantRefusal(t, err, 12*time.Hour, "bytes a day")
	free.Done(noon, agent.Cost{})
}

func TestRates(t *testing.T) {
	var noted []agent.UsageEvent
	var full error
	c := &clock{}
	c.set(noon)
	k := quota.New(quota.Start{Day: noon, Uses: []store.GrantUses{{App: app, Agent: "a", Grant: "http x", Uses: 7}}}, &quota.Options{Now: c.now, Note: func(e agent.UsageEvent) error {
		if full == nil {
			noted = append(noted, e)
		}
		return full
	}})
	s := grant.Subject{App: app, Agent: "a", Run: "R"}
	r := agent.Rate{PerMinute: 2, PerDay: 10}
	over := func(err error, words string) {
		t.Helper()
		if e := agent.AsError(err); e == nil || e.Kind != agent.Exhausted || e.Limit != agent.LimitRate || e.After <= 0 || !strings.Contains(e.Msg, words) {
			t.Errorf("error is %+v, want a rate %s", e, words)
		}
	}
	take := func() {
		t.Helper()
		if err := k.Take(s, "http x", r); err != nil {
			t.Error(err)
		}
	}
	take()
	full = agent.Errorf(agent.Unavailable, "full")
	if err := k.Take(s, "http x", r); err != full {
		t.Errorf("a use that could not be written down: %v", err)
	}
	full = nil
	take()
	over(k.Take(s, "http x", r), "2 uses a minute")
	if err := k.Take(s, "http y", r); err != nil {
		t.Errorf("another grant: %v", err)
	}
	c.set(noon.Add(62 * time.Second))
	take()
	over(k.Take(s, "http x", r), "10 uses a day")
	if len(noted) != 4 || noted[0].Kind != agent.UseGrant || noted[0].Function != "http x" || noted[0].Run != "R" {
		t.Errorf("noted: %+v", noted)
	}
	c.set(noon.Add(12 * time.Hour))
	take()
	if err := k.Take(s, "http z", agent.Rate{PerCall: 1}); err != nil || len(noted) != 5 {
		t.Errorf("a rate that is not ours: %v, %d noted", err, len(noted))
	}
}

func TestRatesAreStrict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := quota.New(quota.Start{Day: time.Now()}, &quota.Options{Note: func(agent.UsageEvent) error { time.Sleep(time.Nanosecond); return nil }})
		var minute, day atomic.Int64
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() {
				for range 10 {
					if k.Take(grant.Subject{App: app, Agent: "a"}, "m", agent.Rate{PerMinute: 100}) == nil {
						minute.Add(1)
					}
					if k.Take(grant.Subject{App: app, Agent: "a"}, "d", agent.Rate{PerDay: 100}) == nil {
						day.Add(1)
					}
				}
			})
		}
		all.Wait()
		if minute.Load() != 100 || day.Load() != 100 {
			t.Errorf("%d in a minute, %d in a day", minute.Load(), day.Load())
		}
	})
}

func BenchmarkBegin(b *testing.B) {
	k := quota.New(quota.Start{Day: time.Now()}, nil)
	c := call(agent.Quota{Cells: 1 << 40, CallsPerSecond: 1 << 40, CPUPerDay: 1 << 60, BytesPerDay: 1 << 60})
	c.AppQuota = c.AgentQuota
	b.SetParallelism(4)
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			h, err := k.Begin(c)
			if err != nil {
				b.Fatal(err)
			}
			h.Done(noon, agent.Cost{CPU: 1})
		}
	})
}
