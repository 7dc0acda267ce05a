// Package limit bounds what models are asked for: requests, tokens and spending, strict also for calls at once.
//
// A call takes the most that it may use from each limit that is about it before it is made, all or none, and gives back what it did not use when
// it has ended. So no number of calls at once goes past a limit, but for one call that used more than it was estimated to.
//
// Windows below a day slide, in steps of a 64th: a call counts for when it began, and no span of the window's length, wherever it begins, has more
// than the limit. From a day on they are whole days in UTC, today included: what a call may use counts while it is under way, and what it has used
// on the day on which it ends, which is how the ledger's daily rows tell it. Counts are read from the ledger when a limit is first seen, so they
// hold across restarts, and a new limit counts what was used before it.
package limit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/ledger"
)

// Options sets what a limiter does where its defaults do not fit.
type Options struct {
	Now func() time.Time
}

// Ask is one call to a provider, before it is made.
type Ask struct {
	App    agent.App
	Agent  string
	Key    string // id of the virtual key
	User   string
	Model  string // as PROVIDER/MODEL
	Route  string // as @ROUTE; "" when none was asked for
	Tokens int64  // the most that it may use, as estimated: input and output
	Micro  *int64 // the most that it may cost; nil when its price is not known
}

// who returns whose use is counted together. Who has no name is counted as "-", together with others that have none.
func (a *Ask) who(each agent.LimitEach) string {
	name := ""
	switch each {
	case agent.EachApp:
		return string(a.App)
	case agent.EachOrg:
		return "all apps"
	case agent.EachAgent:
		name = a.Agent
	case agent.EachKey:
		name = a.Key
	case agent.EachUser:
		name = a.User
	}
	if name == "" {
		return agent.NoAgent
	}
	return name
}

// Instead is the error of a call whose limit is reached and names a route to ask in its place.
type Instead struct {
	Route string // as @NAME
	Limit string // its name
	Err   error  // the refusal that there would be without the route
}

func (e *Instead) Error() string { return fmt.Sprintf("%v; route %s is asked instead", e.Err, e.Route) }
func (e *Instead) Unwrap() error { return e.Err }

// Limiter holds the counts of all limits. It may be used at once. Lock order: mu, then that of an app.
type Limiter struct {
	led    *ledger.Ledger
	limits func(ctx context.Context, app agent.App) ([]agent.ModelLimit, error)
	now    func() time.Time

	mu   sync.Mutex
	apps map[agent.App]*counts
}

// counts are those of one app.
type counts struct {
	mu    sync.Mutex
	seen  []agent.ModelLimit // that the rules were made of
	rules []*rule
	holds map[*Hold]struct{} // of calls under way
}

// Org stands for all apps together.
const Org agent.App = ""

// New returns a limiter that goes on from what the ledger tells of. limits returns the limits of an app, and of Org those of agent.EachOrg, which are in no
// app's; it is asked at each Hold, so it should keep what it read.
func New(l *ledger.Ledger, limits func(ctx context.Context, app agent.App) ([]agent.ModelLimit, error), o *Options) *Limiter {
	lim := &Limiter{led: l, limits: limits, now: time.Now, apps: map[agent.App]*counts{}}
	if o != nil && o.Now != nil {
		lim.now = o.Now
	}
	return lim
}

func (l *Limiter) app(name agent.App) *counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.apps[name]
	if c == nil {
		c = &counts{holds: map[*Hold]struct{}{}}
		l.apps[name] = c
	}
	return c
}

// lock locks the counts of an app, brought up to its limits of now. The caller unlocks them, unless there is an error.
func (l *Limiter) lock(ctx context.Context, app agent.App) (c *counts, now time.Time, err error) {
	limits, err := l.limits(ctx, app)
	if err != nil {
		return nil, now, err
	}
	c = l.app(app)
	c.mu.Lock()
	now = l.now()
	if err := l.refresh(ctx, c, app, limits, now); err != nil {
		c.mu.Unlock()
		return nil, now, err
	}
	return c, now, nil
}

// Hold is what one call may use. It must be settled or released; what comes after the first of these does nothing.
type Hold struct {
	of      *counts
	ask     Ask
	at      time.Time
	now     func() time.Time
	entries []entry
	and     *Hold // of the limits of all apps together
}

// entry is what a hold has taken of one limit.
type entry struct {
	rule *rule
	of   *counter
	part int64
	took amount
}

// Hold takes what the call may use from all limits that are about it, or from none. Its error is an *agent.Error, of kind Exhausted with After when
// a limit is reached and Denied when a limit of spending meets a price that is not known, or an *Instead that wraps it.
func (l *Limiter) Hold(ctx context.Context, a Ask) (*Hold, error) {
	h, err := l.hold(ctx, a.App, a) // first: who is past their own limit takes nothing of all's
	if err != nil {
		return nil, err
	}
	if h.and, err = l.hold(ctx, Org, a); err != nil {
		h.Release()
		return nil, err
	}
	return h, nil
}

// hold is Hold of the limits of one app, or of all together.
func (l *Limiter) hold(ctx context.Context, app agent.App, a Ask) (*Hold, error) {
	c, now, err := l.lock(ctx, app)
	if err != nil {
		return nil, err
	}
	defer c.mu.Unlock()
	h := &Hold{of: c, ask: a, at: now, now: l.now}
	var refusal error
	for _, r := range c.rules {
		if !r.about(&a) {
			continue
		}
		e := entry{rule: r, of: r.counter(a.who(r.Each), now), part: r.part(now), took: r.estimate(&a)}
		err := r.room(&a, e.of, e.took, now)
		switch {
		case err == nil:
			h.entries = append(h.entries, e)
		case refusal == nil && r.Instead != "" && r.Instead != a.Route:
			return nil, &Instead{Route: r.Instead, Limit: r.Name, Err: err}
		case refusal == nil:
			refusal = err
		default: // whoever waits for one limit has to wait for the other, too
			later(refusal, err)
		}
	}
	if refusal != nil {
		return nil, refusal
	}
	for _, e := range h.entries {
		e.rule.take(e.of, e.part, e.took)
	}
	c.holds[h] = struct{}{}
	return h, nil
}

// Settle counts what the call has used, and gives back the rest. micro is nil when its cost is not known. The call's event must be in the ledger
// before.
func (h *Hold) Settle(tokens int64, micro *int64) {
	if h.and != nil {
		h.and.Settle(tokens, micro)
	}
	h.end(func(e *entry) amount {
		used := amount{requests: 1, tokens: max(tokens, 0)}
		switch {
		case micro != nil:
			used.micro = max(*micro, 0)
		case e.rule.Unpriced > 0:
			used.micro = e.rule.Unpriced
		default:
			used.micro = e.took.micro
		}
		return used
	})
}

// Release gives back everything: nothing was asked of the provider.
func (h *Hold) Release() {
	if h.and != nil {
		h.and.Release()
	}
	h.end(func(*entry) amount { return amount{} })
}

// Left is what the limits that are about the call leave now. What calls under way hold is taken off, until they have ended.
func (h *Hold) Left() agent.ModelLeft {
	var l agent.ModelLeft
	if h.and != nil {
		l = h.and.Left()
	}
	h.of.mu.Lock()
	defer h.of.mu.Unlock()
	now := h.now()
	least := func(left, of *int64, bound, used int64) {
		if n := max(bound-used, 0); bound > 0 && (*of == 0 || n < *left) {
			*left, *of = n, bound
		}
	}
	for i := range h.entries {
		e := &h.entries[i]
		used := e.rule.used(e.of, now)
		least(&l.Requests, &l.RequestsOf, e.rule.Requests, used.requests)
		least(&l.Tokens, &l.TokensOf, e.rule.Tokens, used.tokens)
	}
	return l
}

func (h *Hold) end(used func(*entry) amount) {
	h.of.mu.Lock()
	defer h.of.mu.Unlock()
	if _, held := h.of.holds[h]; !held {
		return
	}
	delete(h.of.holds, h)
	now := h.now()
	for i := range h.entries {
		e := &h.entries[i]
		e.rule.settle(e.of, e.part, e.took, used(e), now)
	}
}

// rule is a limit with its counts.
type rule struct {
	agent.ModelLimit
	whose map[string]*counter
	swept int // how many counters there were after the last look for those that are not needed
}

// about reports whether the limit is about the call.
func (r *rule) about(a *Ask) bool {
	if len(r.Match) > 0 && !slices.ContainsFunc(r.Match, func(p string) bool { return agent.Glob(p, a.who(r.Each)) }) {
		return false
	}
	return len(r.Models) == 0 || slices.ContainsFunc(r.Models, func(p string) bool {
		if strings.HasPrefix(p, "@") {
			return a.Route != "" && agent.Glob(p, a.Route)
		}
		return agent.Glob(p, a.Model)
	})
}

// estimate is what a call may use.
func (r *rule) estimate(a *Ask) amount {
	e := amount{requests: 1, tokens: max(a.Tokens, 0), micro: r.Unpriced}
	if a.Micro != nil {
		e.micro = max(*a.Micro, 0)
	}
	return e
}

// room returns an error unless the limit has what the call may use.
func (r *rule) room(a *Ask, c *counter, want amount, now time.Time) error {
	if r.Spend > 0 && a.Micro == nil && r.Unpriced == 0 {
		return &agent.Error{
			Kind: agent.Denied, Msg: fmt.Sprintf("limit %q bounds spending, and the price of %s is not known", r.Name, a.Model),
			Hint: "set the model's price at its provider, or what such calls count for (unpriced) at the limit",
		}
	}
	used := r.used(c, now)
	var refusal error
	for _, b := range []struct {
		what                string
		bound, used, wanted int64
		of                  func(amount) int64
	}{
		{"requests", r.Requests, used.requests, want.requests, func(a amount) int64 { return a.requests }},
		{"tokens", r.Tokens, used.tokens, max(want.tokens, 1), func(a amount) int64 { return a.tokens }},
		{"millionths of a dollar", r.Spend, used.micro, want.micro, func(a amount) int64 { return a.micro }},
	} {
		if b.bound == 0 || b.wanted == 0 || b.wanted <= b.bound && b.used <= b.bound-b.wanted {
			continue
		}
		err := &agent.Error{Kind: agent.Exhausted, Limit: agent.LimitQuota}
		if b.wanted > b.bound {
			err.Msg = fmt.Sprintf("limit %q allows %d %s in %s; this one call may use %d", r.Name, b.bound, b.what, span(r.Window), b.wanted)
			err.Hint = "ask for fewer tokens at most (max_tokens), or send less"
			return err
		}
		err.Msg = fmt.Sprintf("limit %q, counted by %s, is reached for %q: %d of %d %s in %s are used or held, and the call may use %d",
			r.Name, r.Each, a.who(r.Each), b.used, b.bound, b.what, span(r.Window), b.wanted)
		err.After = r.after(c, now, b.bound-b.wanted, b.of)
		err.Hint = "wait, or have an owner raise the limit"
		if refusal == nil {
			refusal = err
		} else {
			later(refusal, err)
		}
	}
	return refusal
}

// later makes a refusal tell to wait for another one, too: for as long as nobody knows when one of them does not say.
func later(refusal, other error) {
	a, b := agent.AsError(refusal), agent.AsError(other)
	if a.After > 0 && b.After > 0 {
		a.After = max(a.After, b.After)
	} else {
		a.After = 0
	}
}

func span(d time.Duration) string {
	if d >= day {
		if n := daysOf(d); n > 1 {
			return fmt.Sprintf("%d days (UTC)", n)
		}
		return "a day (UTC)"
	}
	return d.String()
}
