// Package quota keeps apps and agents within their quotas, and grants within their rates.
//
// It is strict: what calls under way may still use is held for them, so that no number of calls at once can go past a quota.
// A call holds a part of what its day has left, and its limits are lowered to that; when it ends, what it did not use is given
// back. What a day has used is counted in memory from what the ledger says of it at the start, so it is right again after a
// crash. docs/design/usage.md tells how the parts are chosen.
package quota

import (
	"fmt"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
)

// Start is what is known of the day on which a Keeper is made.
type Start struct {
	Day  time.Time        // any time of it
	Rows []agent.UsageRow // told apart by app, agent and kind
	Uses []store.GrantUses
}

// Options of a Keeper. nil and zero fields mean the defaults.
type Options struct {
	Now func() time.Time
	// Note writes down a use of a grant that has a limit per day, durably, before it is allowed. nil keeps such uses in memory.
	Note func(agent.UsageEvent) error
}

// Keeper is safe for concurrent use.
type Keeper struct {
	now  func() time.Time
	note func(agent.UsageEvent) error
	base time.Time // windows count from it, on the monotonic clock

	mu       sync.Mutex
	day      string // UTC; it never goes back, even when the clock does
	counters map[who]*counter
	grants   map[grantKey]*grantCounter
}

// who is an app, or an agent of one. Code that runs once counts for its app only.
type who struct {
	app   agent.App
	agent string
}

// counter is what one app or agent uses.
type counter struct {
	cells     int64
	calls     window
	used      agent.Cost // today; what is held not included
	cpuHeld   time.Duration
	bytesHeld int64
	holds     int64 // that have not ended
}

// New returns a keeper that goes on from start.
func New(start Start, o *Options) *Keeper {
	k := &Keeper{now: time.Now, counters: map[who]*counter{}, grants: map[grantKey]*grantCounter{}}
	if o != nil {
		k.note = o.Note
		if o.Now != nil {
			k.now = o.Now
		}
	}
	k.base, k.day = k.now(), agent.UsageDay(start.Day)
	for _, r := range start.Rows {
		if !r.Kind.Counts() {
			continue
		}
		for _, c := range k.of(r.App, r.Agent) {
			c.used.Add(r.Cost)
		}
	}
	for _, u := range start.Uses {
		k.grant(grantKey{u.App, u.Agent, u.Grant}).day += u.Uses
	}
	return k
}

// of returns the counters of an app and of one of its agents.
func (k *Keeper) of(app agent.App, name string) []*counter {
	out := []*counter{k.counter(who{app: app})}
	if name != "" && name != agent.NoAgent {
		out = append(out, k.counter(who{app, name}))
	}
	return out
}

func (k *Keeper) counter(w who) *counter {
	c := k.counters[w]
	if c == nil {
		c = &counter{calls: window{span: time.Second}}
		k.counters[w] = c
	}
	return c
}

// turn begins a new day when it has come. Counters that nobody uses are forgotten; what calls under way hold stays held, so
// that they count for the day on which they end. The caller holds mu.
func (k *Keeper) turn(now time.Time) {
	day := agent.UsageDay(now)
	if day <= k.day {
		return
	}
	k.day = day
	at := now.Sub(k.base)
	for w, c := range k.counters {
		c.used = agent.Cost{}
		if c.holds == 0 && c.calls.count(at) == 0 {
			delete(k.counters, w)
		}
	}
	for key, g := range k.grants {
		g.day = 0
		if g.minute.count(at) == 0 {
			delete(k.grants, key)
		}
	}
}

// midnight returns the time until the next day begins.
func (k *Keeper) midnight(now time.Time) time.Duration {
	day, err := time.Parse(time.DateOnly, k.day)
	if err != nil { // unreachable: turn and New write it
		return time.Hour
	}
	return max(day.AddDate(0, 0, 1).Sub(now), time.Second)
}

// Call is a call that asks to begin.
type Call struct {
	App        agent.App
	Agent      string // empty for code that runs once
	AppQuota   agent.Quota
	AgentQuota agent.Quota
	Limits     agent.Limits // all set
	In         int64        // bytes of its input
}

// Hold is what a call under way may use. Done ends it.
type Hold struct {
	Limits agent.Limits // those of the call, lowered to what is held for it

	k      *Keeper
	both   [2]bound
	bounds []bound // of both, those that there are
	cells  int64   // held: one, or none of what is no cell
	cpu    time.Duration
	bytes  int64  // held; more is as outbound requests take it
	lowCPU *bound // what has lowered that limit
	lowOut *bound
	done   bool

	stopped        bool
	sent, received int64
}

// bound is a quota that a call is under, with its counter.
type bound struct {
	*counter
	agent.Quota
	what, name string // for messages
}

// What a call holds at least, of a day that has as much left: a part too small to do anything with helps nobody.
const (
	leastCPU   = 100 * time.Millisecond
	leastBytes = 64 << 10
)

// again is when to try again after a refusal because other calls hold what is left.
const again = time.Second

// Begin lets a call begin, or returns an Exhausted error that says whose quota has no room for it, and when it will. A call that
// is let in must be ended.
func (k *Keeper) Begin(c Call) (*Hold, error) {
	now := k.now()
	k.mu.Lock()
	defer k.mu.Unlock()
	h, err := k.look(now, c)
	if err != nil {
		return nil, err
	}
	h.cells = 1
	for i := range h.bounds {
		b := &h.bounds[i]
		b.holds++
		b.cells += h.cells
		b.calls.add(now.Sub(k.base))
		b.cpuHeld += h.cpu
		b.bytesHeld += h.bytes
	}
	return h, nil
}

// Traffic lets a request begin that no cell makes, but a sandbox: it is kept within the bytes of a day alone, and holds none before it moves them. It has to be
// ended, too.
func (k *Keeper) Traffic(c Call) (*Hold, error) {
	bytes := func(q agent.Quota) agent.Quota { return agent.Quota{BytesPerDay: q.BytesPerDay} }
	c.AppQuota, c.AgentQuota, c.Limits, c.In = bytes(c.AppQuota), bytes(c.AgentQuota), agent.Limits{}, 0
	now := k.now()
	k.mu.Lock()
	defer k.mu.Unlock()
	h, err := k.look(now, c)
	if err != nil {
		return nil, err
	}
	for i := range h.bounds {
		h.bounds[i].holds++
	}
	return h, nil
}

// Check returns the error that Begin would return, and takes nothing.
func (k *Keeper) Check(c Call) error {
	now := k.now()
	k.mu.Lock()
	defer k.mu.Unlock()
	_, err := k.look(now, c)
	return err
}

// look finds what a call may hold. The caller holds mu.
func (k *Keeper) look(now time.Time, c Call) (*Hold, error) {
	k.turn(now)
	h := &Hold{k: k, Limits: c.Limits}
	h.bounds = append(h.both[:0], bound{k.counter(who{app: c.App}), c.AppQuota, "app", string(c.App)})
	if c.Agent != "" {
		h.bounds = append(h.bounds, bound{k.counter(who{c.App, c.Agent}), c.AgentQuota, "agent", c.Agent})
	}
	for i := range h.bounds {
		if err := h.under(&h.bounds[i], now, c.In); err != nil {
			return nil, err
		}
	}
	h.cpu, h.bytes = h.Limits.CPU, c.In+h.Limits.Output
	return h, nil
}

// under checks one quota and lowers the call's limits to what it leaves.
func (h *Hold) under(b *bound, now time.Time, in int64) error {
	if b.Cells > 0 && b.cells >= b.Cells {
		return b.refusal(again, "%d cells at once, and as many are at work", b.Cells)
	}
	at := now.Sub(h.k.base)
	if n := b.CallsPerSecond; n > 0 && b.calls.count(at) >= n {
		return b.refusal(b.calls.wait(at, n), "%d calls a second", n)
	}
	if b.CPUPerDay > 0 {
		rest := b.CPUPerDay - b.used.CPU
		if rest <= 0 || rest <= b.cpuHeld {
			return b.refusal(h.k.spent(now, rest <= 0), "%s of processor time a day; %s", b.CPUPerDay, left(rest <= 0))
		}
		free := rest - b.cpuHeld
		if p := part(free, leastCPU); p < h.Limits.CPU {
			h.Limits.CPU, h.lowCPU = p, b
		}
	}
	if b.BytesPerDay > 0 {
		rest := b.BytesPerDay - b.used.Bytes()
		if rest <= in || rest-in <= b.bytesHeld {
			return b.refusal(h.k.spent(now, rest <= in), "%d bytes a day; %s", b.BytesPerDay, left(rest <= in))
		}
		free := rest - in - b.bytesHeld
		if p := part(free, leastBytes); p < h.Limits.Output {
			h.Limits.Output, h.lowOut = p, b
		}
	}
	return nil
}

// part is how much of what is free one call may hold: half, so that others find something, but not less than least.
func part[T ~int64](free, least T) T { return max(free/2, min(free, least)) }

// spent is when to try again after a refusal for a day's quota, which is used, or else held by calls under way.
func (k *Keeper) spent(now time.Time, used bool) time.Duration {
	if used {
		return k.midnight(now)
	}
	return again
}

func left(used bool) string {
	if used {
		return "too little is left until midnight UTC"
	}
	return "calls under way hold what is left"
}

func (b *bound) String() string { return fmt.Sprintf("%s %q", b.what, b.name) }

func (b *bound) refusal(after time.Duration, format string, args ...any) error {
	return &agent.Error{
		Kind: agent.Exhausted, Limit: agent.LimitQuota, After: after, Msg: fmt.Sprintf("the quota of %s is "+format, append([]any{b}, args...)...),
		Hint: "try again later, or have an owner raise the quota",
	}
}

// Traffic takes bytes of an outbound request and of its answer from the quotas, before they are passed on, or returns an
// Exhausted error and takes none.
func (h *Hold) Traffic(sent, received int64) error {
	n := sent + received
	now := h.k.now()
	h.k.mu.Lock()
	defer h.k.mu.Unlock()
	if h.stopped {
		return agent.Errorf(agent.Cancelled, "the call has ended")
	}
	h.k.turn(now)
	for i := range h.bounds {
		b := &h.bounds[i]
		if rest := b.BytesPerDay - b.used.Bytes(); b.BytesPerDay > 0 && (rest < n || rest-n < b.bytesHeld) {
			return b.refusal(h.k.spent(now, rest < n), "%d bytes a day; %s", b.BytesPerDay, left(rest < n))
		}
	}
	h.bytes += n
	h.sent += sent
	h.received += received
	for i := range h.bounds {
		h.bounds[i].bytesHeld += n
	}
	return nil
}

// Stop lets no more traffic pass, and returns how much has since the last Settle.
func (h *Hold) Stop() (sent, received int64) {
	h.k.mu.Lock()
	defer h.k.mu.Unlock()
	h.stopped = true
	return h.sent, h.received
}

// Settle makes what traffic has passed count as used on the day of now, and returns it once it is at least most bytes; else it
// returns nothing. For what goes on for long: its caller writes down what it returns.
func (h *Hold) Settle(now time.Time, most int64) (sent, received int64) {
	h.k.mu.Lock()
	defer h.k.mu.Unlock()
	n := h.sent + h.received
	if h.stopped || n < most {
		return 0, 0
	}
	h.k.turn(now)
	h.bytes -= n
	for i := range h.bounds {
		h.bounds[i].bytesHeld -= n
		h.bounds[i].used.Add(agent.Cost{Sent: h.sent, Received: h.received})
	}
	sent, received, h.sent, h.received = h.sent, h.received, 0, 0
	return sent, received
}

// Done ends the call: it has cost c, which counts for the day of now, and what it held beyond that is given back. Only the first
// Done counts.
func (h *Hold) Done(now time.Time, c agent.Cost) {
	h.k.mu.Lock()
	defer h.k.mu.Unlock()
	if h.done {
		return
	}
	h.done, h.stopped = true, true
	h.k.turn(now)
	for i := range h.bounds {
		b := &h.bounds[i]
		b.holds--
		b.cells -= h.cells
		b.cpuHeld -= h.cpu
		b.bytesHeld -= h.bytes
		b.used.Add(c)
	}
}

// Explain returns err, or what it means when a limit was hit that a quota had lowered.
func (h *Hold) Explain(err error) error {
	if err == nil || agent.KindOf(err) != agent.Exhausted {
		return err
	}
	e := agent.AsError(err)
	var why string
	switch {
	case e.Limit == agent.LimitCPU && h.lowCPU != nil:
		why = fmt.Sprintf("the quota of %s, %s of processor time a day, had %s for this call", h.lowCPU, h.lowCPU.CPUPerDay, h.Limits.CPU)
	case e.Limit == agent.LimitOutput && h.lowOut != nil:
		why = fmt.Sprintf("the quota of %s, %d bytes a day, had %d bytes of output for this call", h.lowOut, h.lowOut.BytesPerDay, h.Limits.Output)
	default:
		return err
	}
	h.k.mu.Lock()
	defer h.k.mu.Unlock()
	return &agent.Error{
		Kind: agent.Exhausted, Limit: agent.LimitQuota, After: h.k.midnight(h.k.now()), Msg: why, Err: err,
		Hint: "try again after midnight UTC, or have an owner raise the quota", Pos: e.Pos, Stack: e.Stack,
	}
}

// Used returns how much of the quota q an app uses now, or one of its agents.
func (k *Keeper) Used(app agent.App, name string, q agent.Quota) agent.QuotaUse {
	now := k.now()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.turn(now)
	u := agent.QuotaUse{App: app, Agent: name, Quota: q}
	if c := k.counters[who{app, name}]; c != nil {
		u.Cells, u.Calls, u.CPU, u.CPUHeld = c.cells, c.calls.count(now.Sub(k.base)), c.used.CPU, c.cpuHeld
		u.Bytes, u.BytesHeld = c.used.Bytes(), c.bytesHeld
	}
	return u
}
