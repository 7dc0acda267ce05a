// Package fair shares a number of places among apps by their weights, and each app's among its agents.
//
// While places are free, whoever comes gets one. When they are short, callers wait, and a place that becomes free goes to
// an app that holds less than its weight's part of them; when none does, to the one that has held places for the least
// time by its weight (start-time fair queueing, Goyal, Vin and Chen 1996, with an estimate for what is not over). Within
// the app it goes to the agent that holds the fewest, and then to the caller who came first. An app that comes anew is
// owed nothing, and owes at most what it was served too much a moment ago.
//
// So a flood makes its own app wait: another app's call waits for a place of all to become free, and no longer. The queue
// is bounded for each app and in all; when all of it is taken, the app that fills most of it for its weight loses its
// newest, not the one that comes.
package fair

import (
	"context"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
)

// Who asks for a place.
type Who struct {
	App    agent.App
	Agent  string // of the app; may be empty
	Weight int    // of the app; 0 means 1, and more than MaxWeight means that
}

// MaxWeight is the most that an app can weigh against another.
const MaxWeight = 1000

// Options adjusts a Gate. The zero value is the default.
type Options struct {
	Waiting int    // who may wait in all; 0 means four for each place
	Each    int    // who may wait of one app; 0 means half of Waiting
	What    string // what is waited for, in errors; "a place" unless given
}

// Gate hands out places. It is safe for concurrent use, starts no goroutine, and takes a time for each call that grows
// with the logarithm of the number of apps that wait.
type Gate struct {
	places int
	opts   Options

	mu      sync.Mutex
	free    int
	waiting int
	apps    map[agent.App]*app    // who hold places or wait
	weights float64               // of these
	debts   map[agent.App]float64 // what others were served, when that is more than virtual
	sweep   int                   // how many debts there may be before those that are settled are looked for
	virtual float64               // where an app begins that comes anew
	typical float64               // seconds that a place is held
	least   heap                  // apps that wait, who holds the least part of the places first
	due     heap                  // the same, who was served least first
	longest heap                  // the same, who fills most of the queue first
}

// New returns a gate with some places.
func New(places int, o *Options) *Gate {
	g := &Gate{places: places, free: places, apps: map[agent.App]*app{}, debts: map[agent.App]float64{}, least: heap{by: leastHeld}, due: heap{by: leastServed}, longest: heap{by: mostWaiting}}
	if o != nil {
		g.opts = *o
	}
	if g.opts.Waiting == 0 {
		g.opts.Waiting = 4 * places
	}
	if g.opts.Each == 0 {
		g.opts.Each = max(1, g.opts.Waiting/2)
	}
	if g.opts.What == "" {
		g.opts.What = "a place"
	}
	return g
}

// Enter waits for a place and returns the function that gives it back, to be called once. It returns an Unavailable error
// when too many wait, now or before the place was there, and a Cancelled one when ctx ends first.
func (g *Gate) Enter(ctx context.Context, who Who) (leave func(), err error) {
	g.mu.Lock()
	a := g.join(who)
	p := a.party(who.Agent)
	if g.free > 0 {
		g.virtual = max(g.virtual, a.served)
		h := g.admit(a, p)
		g.mu.Unlock()
		return h.leave, nil
	}
	if err := g.room(a, p); err != nil {
		g.part(a, p)
		g.mu.Unlock()
		return nil, err
	}
	w := &waiter{app: a, party: p, ready: make(chan struct{})}
	g.line(w)
	g.mu.Unlock()
	select {
	case <-w.ready:
	case <-ctx.Done():
		g.mu.Lock()
		if w.element != nil {
			g.unline(w)
			g.part(a, p)
		}
		g.mu.Unlock()
		if w.held != nil { // it came at the same time
			w.held.leave()
		}
		return nil, agent.Wrap(agent.Cancelled, context.Cause(ctx), "cancelled while waiting for "+g.opts.What)
	}
	if w.err != nil {
		return nil, w.err
	}
	return w.held.leave, nil
}

// Count returns how many places are taken and how many callers wait.
func (g *Gate) Count() (taken, waiting int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.places - g.free, g.waiting
}

// room makes room in the queue for one more, or says why there is none. The caller holds the lock.
func (g *Gate) room(a *app, p *party) error {
	switch {
	case a.waiting >= g.opts.Each:
		return g.pushOut(a, a, p)
	case g.waiting < g.opts.Waiting:
		return nil
	case len(g.longest.items) == 0:
		return g.full(a)
	}
	most := g.longest.items[0].(*app)
	if float64(a.waiting+1)/a.weight >= float64(most.waiting)/most.weight {
		most = a
	}
	return g.pushOut(most, a, p)
}

// pushOut takes the newest caller of the agent that fills most of from's queue out of it, for a caller of a and p; or
// refuses that one, when it is this agent's. The caller holds the lock.
func (g *Gate) pushOut(from, a *app, p *party) error {
	if len(from.longest.items) == 0 {
		return g.full(a)
	}
	most := from.longest.items[0].(*party)
	if from == a && p.line.Len()+1 >= most.line.Len() {
		return g.full(a)
	}
	w := most.line.Back().Value.(*waiter)
	w.err = g.full(w.app)
	g.unline(w)
	g.part(w.app, w.party)
	close(w.ready)
	return nil
}

// full is the error of a caller for whom there is no room. The caller holds the lock.
func (g *Gate) full(a *app) error {
	part := max(1, float64(g.places)*a.weight/g.weights)
	wait := time.Duration(a.typical * float64(a.waiting+1) / part * float64(time.Second))
	return &agent.Error{
		Kind: agent.Unavailable, Limit: agent.LimitConcurrency, Msg: "too many calls are waiting for " + g.opts.What,
		Hint: "try again in a moment", After: min(max(wait, time.Second), time.Minute),
	}
}

// held is a place that somebody has.
type held struct {
	gate    *Gate
	app     *app
	party   *party
	since   time.Time
	charged float64 // seconds
}

// admit gives a place to a caller of a and p, who does not wait any more. The caller holds the lock.
func (g *Gate) admit(a *app, p *party) *held {
	h := &held{gate: g, app: a, party: p, since: time.Now(), charged: max(a.typical, leastTypical)}
	g.free--
	a.active++
	p.active++
	h.charge(h.charged)
	return h
}

// charge has the place's time paid for. The caller holds the lock.
func (h *held) charge(seconds float64) {
	g, a, p := h.gate, h.app, h.party
	a.served += seconds / a.weight
	p.served += seconds
	g.least.fix(a)
	g.due.fix(a)
	a.due.fix(p)
}

// maxDebt is for how many seconds of places, by its weight, an app is held back that comes again.
const maxDebt = 10

// leastTypical is what a place costs at least until it is given back: who was given one has to be behind who was not.
const leastTypical = 1e-6

// smooth is how slowly estimates follow.
const smooth = 8

func (h *held) leave() {
	g, a, p := h.gate, h.app, h.party
	g.mu.Lock()
	defer g.mu.Unlock()
	took := time.Since(h.since).Seconds()
	g.free++
	a.active--
	p.active--
	h.charge(took - h.charged)
	a.typical += (took - a.typical) / smooth
	g.typical += (took - g.typical) / smooth
	g.part(a, p)
	if g.waiting > 0 {
		g.next()
	}
}

// next gives the free place to who is to have it. The caller holds the lock; somebody waits.
func (g *Gate) next() {
	a, due := g.least.items[0].(*app), g.due.items[0].(*app)
	g.virtual = max(g.virtual, due.served)
	if float64(a.active+1)*g.weights > float64(g.places)*a.weight {
		a = due
	}
	p := a.due.items[0].(*party)
	a.virtual = max(a.virtual, p.served)
	w := p.line.Front().Value.(*waiter)
	g.unline(w)
	w.held = g.admit(a, p)
	close(w.ready)
}
