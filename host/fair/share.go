package fair

import (
	"container/list"
	"maps"

	"github.com/skep-dev/skep/agent"
)

// app is an app that holds places or waits for some.
type app struct {
	name    agent.App
	weight  float64
	active  int     // places that it holds
	waiting int     // callers that wait
	served  float64 // seconds for which it held places, by its weight
	typical float64 // seconds for which its places are held

	parties map[string]*party
	virtual float64 // where an agent begins that comes anew
	due     heap    // agents that wait, who is to have the next place first
	longest heap    // the same, who has the most callers waiting first
	at      [3]int
}

// party is an agent of an app, while it holds places or waits for some.
type party struct {
	name   string
	active int
	served float64
	line   list.List // of *waiter
	at     [3]int
}

// waiter is a caller that waits. Once ready is closed, it has held or err.
type waiter struct {
	app     *app
	party   *party
	element *list.Element // in its party's line; nil once it is out of it
	ready   chan struct{}
	held    *held
	err     error
}

// The orders. Each has a slot for the place of an item in its heap.
const (
	leastHeld order = iota
	leastServed
	mostWaiting
)

func (a *app) slot(o order) *int { return &a.at[o] }

func (a *app) before(o order, other item) bool {
	b := other.(*app)
	switch o {
	case leastHeld:
		return float64(a.active+1)*b.weight < float64(b.active+1)*a.weight
	case mostWaiting:
		return float64(a.waiting)*b.weight > float64(b.waiting)*a.weight
	default:
		return a.served < b.served
	}
}

func (p *party) slot(o order) *int { return &p.at[o] }

func (p *party) before(o order, other item) bool {
	q := other.(*party)
	switch {
	case o == mostWaiting:
		return p.line.Len() > q.line.Len()
	case p.active != q.active:
		return p.active < q.active
	}
	return p.served < q.served
}

// join returns the app of a caller. The caller holds the lock.
func (g *Gate) join(who Who) *app {
	weight := float64(min(max(who.Weight, 1), MaxWeight))
	a := g.apps[who.App]
	if a == nil {
		a = &app{
			name: who.App, weight: weight, served: max(g.virtual, g.debts[who.App]), typical: g.typical, parties: map[string]*party{},
			due: heap{by: leastServed}, longest: heap{by: mostWaiting}, at: [3]int{-1, -1, -1},
		}
		g.apps[who.App] = a
		delete(g.debts, who.App)
		g.weights += weight
	}
	if a.weight != weight {
		g.weights += weight - a.weight
		a.weight = weight
		g.fix(a)
	}
	return a
}

func (a *app) party(name string) *party {
	p := a.parties[name]
	if p == nil {
		p = &party{name: name, served: a.virtual, at: [3]int{-1, -1, -1}}
		a.parties[name] = p
	}
	return p
}

// part forgets an agent and an app that neither hold places nor wait. The caller holds the lock.
func (g *Gate) part(a *app, p *party) {
	if p.active == 0 && p.line.Len() == 0 {
		delete(a.parties, p.name)
	}
	if a.active == 0 && a.waiting == 0 {
		delete(g.apps, a.name)
		g.weights -= a.weight
		g.owe(a)
	}
}

// owe keeps what an app that goes was served too much. The caller holds the lock.
func (g *Gate) owe(a *app) {
	if len(g.apps) == 0 {
		clear(g.debts)
		return
	}
	if a.served > g.virtual {
		g.debts[a.name] = min(a.served, g.virtual+maxDebt)
	}
	if len(g.debts) > g.sweep {
		maps.DeleteFunc(g.debts, func(_ agent.App, served float64) bool { return served <= g.virtual })
		g.sweep = max(64, 2*len(g.debts))
	}
}

// line puts a caller at the end of its agent's line. The caller holds the lock.
func (g *Gate) line(w *waiter) {
	a, p := w.app, w.party
	if a.waiting == 0 {
		a.served = max(a.served, g.virtual)
	}
	if p.line.Len() == 0 {
		p.served = max(p.served, a.virtual)
	}
	w.element = p.line.PushBack(w)
	a.waiting++
	g.waiting++
	if a.waiting == 1 {
		g.least.add(a)
		g.due.add(a)
		g.longest.add(a)
	}
	if p.line.Len() == 1 {
		a.due.add(p)
		a.longest.add(p)
	}
	g.longest.fix(a)
	a.longest.fix(p)
}

// unline takes a caller out of its line. The caller holds the lock.
func (g *Gate) unline(w *waiter) {
	a, p := w.app, w.party
	p.line.Remove(w.element)
	w.element = nil
	a.waiting--
	g.waiting--
	if p.line.Len() == 0 {
		a.due.remove(p)
		a.longest.remove(p)
	}
	if a.waiting == 0 {
		g.least.remove(a)
		g.due.remove(a)
		g.longest.remove(a)
	}
	g.longest.fix(a)
	a.longest.fix(p)
}

func (g *Gate) fix(a *app) {
	g.least.fix(a)
	g.due.fix(a)
	g.longest.fix(a)
}
