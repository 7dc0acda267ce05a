package tools

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
)

// Total is what calls of a server have come to since the start.
type Total struct {
	App    agent.App
	Server string
	Calls  int64
	Failed int64         // of these
	Took   time.Duration // together
}

// maxTotals is how many servers are counted by themselves.
const maxTotals = 10_000

type totals struct {
	mu sync.Mutex
	by map[entryKey]*Total
}

func (t *totals) add(app agent.App, server string, took time.Duration, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by == nil {
		t.by = map[entryKey]*Total{}
	}
	key := entryKey{app, server}
	one := t.by[key]
	if one == nil {
		if len(t.by) >= maxTotals {
			return
		}
		one = &Total{App: app, Server: server}
		t.by[key] = one
	}
	one.Calls++
	one.Took += took
	if err != nil {
		one.Failed++
	}
}

func (t *totals) forget(app agent.App) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.by, func(key entryKey, _ *Total) bool { return key.app == app })
}

// Totals lists them by app and server.
func (c *Catalogue) Totals() []Total {
	c.totals.mu.Lock()
	defer c.totals.mu.Unlock()
	out := make([]Total, 0, len(c.totals.by))
	for _, t := range c.totals.by {
		out = append(out, *t)
	}
	slices.SortFunc(out, func(a, b Total) int { return cmp.Or(cmp.Compare(a.App, b.App), cmp.Compare(a.Server, b.Server)) })
	return out
}
