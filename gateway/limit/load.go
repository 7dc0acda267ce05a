package limit

import (
	"context"
	"slices"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/ledger"
)

// refresh makes the rules those of the limits. The caller holds the lock of c.
func (l *Limiter) refresh(ctx context.Context, c *counts, app agent.App, limits []agent.ModelLimit, now time.Time) error {
	if len(limits) == len(c.seen) && (len(limits) == 0 || &limits[0] == &c.seen[0]) {
		return nil
	}
	var rules, fresh []*rule
	for _, lim := range limits {
		at := slices.IndexFunc(c.rules, func(r *rule) bool { return r.Name == lim.Name && sameCount(&r.ModelLimit, &lim) })
		if at >= 0 {
			c.rules[at].ModelLimit = lim // its bounds may be others
			rules = append(rules, c.rules[at])
			continue
		}
		r := &rule{ModelLimit: lim, whose: map[string]*counter{}}
		rules, fresh = append(rules, r), append(fresh, r)
	}
	if err := l.load(ctx, app, fresh, now); err != nil {
		return err
	}
	c.seen, c.rules = limits, rules
	for h := range c.holds {
		h.entries = slices.DeleteFunc(h.entries, func(e entry) bool { return !slices.Contains(rules, e.rule) })
		for _, r := range fresh {
			if !r.about(&h.ask) {
				continue
			}
			e := entry{rule: r, of: r.counter(h.ask.who(r.Each), now), part: r.part(h.at), took: r.estimate(&h.ask)}
			r.take(e.of, e.part, e.took)
			h.entries = append(h.entries, e)
		}
	}
	return nil
}

// sameCount reports whether two limits count the same.
func sameCount(a, b *agent.ModelLimit) bool {
	return a.Each == b.Each && a.Window == b.Window && a.Unpriced == b.Unpriced && slices.Equal(a.Match, b.Match) && slices.Equal(a.Models, b.Models)
}

// load counts what the ledger knows of.
func (l *Limiter) load(ctx context.Context, app agent.App, fresh []*rule, now time.Time) error {
	days, longest := int64(0), time.Duration(0)
	for _, r := range fresh {
		if r.days() {
			days = max(days, daysOf(r.Window))
		} else {
			longest = max(longest, r.Window+time.Duration(r.step()))
		}
	}
	if days > 0 {
		if err := l.loadDays(ctx, app, fresh, now, days); err != nil {
			return err
		}
	}
	if longest > 0 {
		return l.loadEvents(ctx, app, fresh, now, longest)
	}
	return nil
}

func (l *Limiter) loadDays(ctx context.Context, app agent.App, fresh []*rule, now time.Time, days int64) error {
	rows, err := l.led.Rows(ctx, ledger.Query{
		App: app, From: now.AddDate(0, 0, int(1-days)), To: now.Add(day), // a clock that was set back has calls of tomorrow
		By: ledger.ByDay | ledger.ByAgent | ledger.ByProvider | ledger.ByModel | ledger.ByRoute | ledger.ByUser | ledger.ByKey,
	})
	if err != nil {
		return err
	}
	for _, row := range rows {
		at, err := time.Parse(time.DateOnly, row.Day)
		if err != nil || row.Models == nil {
			continue
		}
		a := Ask{App: app, Agent: nameOf(row.Agent), Key: row.Key, User: row.User, Model: row.Provider + "/" + row.Model, Route: row.Route}
		for _, r := range fresh {
			if m := row.Models; r.days() && r.about(&a) {
				used := amount{requests: m.Calls - m.Cached, tokens: add(m.Tokens.Input, m.Tokens.Output), micro: m.Unpriced * r.Unpriced}
				if m.Micro != nil {
					used.micro = add(used.micro, *m.Micro)
				}
				r.count(&a, used, at, now)
			}
		}
	}
	return nil
}

func nameOf(agentName string) string {
	if agentName == agent.NoAgent {
		return ""
	}
	return agentName
}

func (l *Limiter) loadEvents(ctx context.Context, app agent.App, fresh []*rule, now time.Time, longest time.Duration) error {
	q := ledger.Query{App: app, From: now.Add(-longest), To: now.Add(day)}
	for after := ""; ; {
		page, next, err := l.led.Events(ctx, q, after, 1000)
		if err != nil {
			return err
		}
		for _, e := range page {
			u := e.Model
			if u == nil || u.Source == agent.FromCache {
				continue
			}
			a := Ask{App: app, Agent: e.Agent, Key: u.Key, User: u.User, Model: u.Provider + "/" + u.Model, Route: u.Route}
			used := amount{requests: 1, tokens: add(max(u.Tokens.Input, 0), max(u.Tokens.Output, 0))}
			for _, r := range fresh {
				if r.days() || !r.about(&a) {
					continue
				}
				if used.micro = r.Unpriced; u.Micro != nil {
					used.micro = *u.Micro
				}
				r.count(&a, used, e.Time.Add(-max(e.Wall, 0)), now)
			}
		}
		if after = next; next == "" {
			return nil
		}
	}
}

// count counts what was used at a time that is past.
func (r *rule) count(a *Ask, used amount, at, now time.Time) {
	p := r.part(at)
	if p < r.first(now) {
		return
	}
	c := r.counter(a.who(r.Each), now)
	c.parts[p] = c.parts[p].plus(used)
}
