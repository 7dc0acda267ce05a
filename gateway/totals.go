package gateway

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
)

// maxTotals is how many providers are counted apart; calls of others are not counted.
const maxTotals = 10_000

// Total is what calls to a provider came to since the start.
type Total struct {
	App      agent.App
	Provider string

	Calls  int64
	Faults map[agent.FaultClass]int64 // calls that failed, by class
	Tokens agent.ModelTokens
	Micro  int64 // of the calls whose price is known
	Took   time.Duration

	Open    bool // no call goes to it for the moment, as it failed several times in a row
	Refused int  // its keys that it refuses
}

type totalKey struct {
	app      agent.App
	provider string
}

type totals struct {
	mu sync.Mutex
	by map[totalKey]*Total
}

func (t *totals) add(l *call, u *agent.ModelUse, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	x := t.of(l.x.who.App, u.Provider)
	if x == nil {
		return
	}
	x.Calls++
	x.Took += took
	x.Tokens.Add(u.Tokens)
	if u.Micro != nil {
		x.Micro += *u.Micro
	}
	if u.Fault == agent.ClientAbort {
		x.Faults[u.Fault]++
	}
}

func (t *totals) fault(app agent.App, provider string, c agent.FaultClass) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if x := t.of(app, provider); x != nil {
		x.Faults[c]++
	}
}

// of returns the total of a provider. The caller holds mu.
func (t *totals) of(app agent.App, provider string) *Total {
	k := totalKey{app, provider}
	x := t.by[k]
	if x == nil && len(t.by) < maxTotals {
		if t.by == nil {
			t.by = map[totalKey]*Total{}
		}
		x = &Total{App: app, Provider: provider, Faults: map[agent.FaultClass]int64{}}
		t.by[k] = x
	}
	return x
}

// Totals tells what calls came to since the start, by app and provider.
func (g *Gateway) Totals() []Total {
	g.totals.mu.Lock()
	list := make([]Total, 0, len(g.totals.by))
	for _, x := range g.totals.by {
		y := *x
		y.Faults = map[agent.FaultClass]int64{}
		for c, n := range x.Faults {
			y.Faults[c] = n
		}
		list = append(list, y)
	}
	g.totals.mu.Unlock()
	now := g.o.Now()
	g.mu.Lock()
	for i := range list {
		if b := g.books[list[i].App]; b != nil {
			if p := b.providers[list[i].Provider]; p != nil {
				list[i].Open, list[i].Refused = p.health.isOpen(now), p.health.refusedKeys(now)
			}
		}
	}
	g.mu.Unlock()
	slices.SortFunc(list, func(a, b Total) int {
		return cmp.Or(cmp.Compare(a.App, b.App), cmp.Compare(a.Provider, b.Provider))
	})
	return list
}
