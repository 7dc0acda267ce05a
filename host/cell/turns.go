package cell

import (
	"context"
	"maps"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skep-dev/skep/agent"
)

// How long cells run. The numbers are CPU time but for quiet.
const (
	slice = 250 * time.Microsecond // between looks at who else wants to run
	start = time.Millisecond       // that each call runs before it has to take turns
	short = 20 * time.Millisecond  // up to which a call is let ahead
	turn  = 5 * time.Millisecond   // that a place is held while others wait for one
	quiet = 20 * time.Millisecond  // without a new call, after which no processor is kept free

	hostCall = 10 * time.Microsecond // what a call to the host costs whoever makes it, beside the time in its own code
)

// starters is how many cells of a tenant may run for each processor without taking turns. More, and who floods the machine with
// short calls fills its run queues, in which all others wait.
const starters = 1

// turns shares the processors among cells.
//
// A call runs freely at first, so what is quick is never queued, but behind many others of its own tenant. Then it needs a
// place. There are as many places as processors, and one less while calls keep beginning, so that those find a processor
// free, and with it the network's poller: Go looks at the network last, after all that could run.
//
// The tenant that was served least for its weight goes first, and in it the agent that was. Calls that have not run for
// long yet count as served less, so that they get a place from one that has run for long at the end of its slice. Who
// comes anew is owed nothing, and owes at most what it was served too much a moment ago. A call that enters and leaves many times, as those of
// scripts do, would wait for the end of a slice each time; so if its tenant has no place, it gets one at once, and who has
// run for long leaves it one at the end of its slice.
//
// A cell joins for its life. It enters and leaves each time its guest begins and ends to run, which takes no lock while
// nobody waits.
type turns struct {
	places int
	begun  atomic.Int64 // when the newest call began, in nanoseconds since epoch
	epoch  time.Time
	busy   atomic.Int64 // running and waiting

	mu      sync.Mutex
	running int // cells that have a place
	waiting int // for one
	floor   time.Duration
	tenants map[agent.App]*tenant
	debts   map[agent.App]time.Duration // what tenants were served that have no cells now
}

// placing is whether a cell may run, and how.
type placing uint8

const (
	outside  placing = iota // it does not run, or is about to end
	starting                // it runs freely
	placed                  // it has a place
)

// waiter is a cell that waits to start, or for a place. ready is closed when it may run.
type waiter struct {
	share *share
	line  int // of its agent, in which it waits for a place
	ready chan struct{}
}

func newTurns(places int) *turns {
	return &turns{places: places, tenants: map[agent.App]*tenant{}, debts: map[agent.App]time.Duration{}, epoch: time.Now()}
}

// begin notes that a call begins.
func (t *turns) begin(now time.Time) { t.begun.Store(int64(now.Sub(t.epoch))) }

func (t *turns) allowed(now time.Time) int {
	if now.Sub(t.epoch)-time.Duration(t.begun.Load()) < quiet {
		return max(1, t.places-1)
	}
	return t.places
}

// enter is called before a cell runs its guest, and returns when it may.
func (t *turns) enter(ctx context.Context, c *Cell) {
	if c.meter.spent() >= start && t.busy.Load() >= int64(t.places) {
		t.mu.Lock()
		t.await(ctx, c)
		return
	}
	n := c.share.tenant
	most := int64(starters * t.places)
	if n.starting.Add(1) <= most && n.entering.Load() == 0 {
		c.placing = starting
		return
	}
	n.starting.Add(-1)
	w := &waiter{share: c.share, ready: make(chan struct{})}
	t.mu.Lock()
	n.starters = append(n.starters, w)
	n.entering.Add(1)
	n.start(most) // who left before it saw that somebody waits
	t.mu.Unlock()
	select {
	case <-w.ready:
		c.placing = starting
	case <-ctx.Done():
		t.mu.Lock()
		defer t.mu.Unlock()
		if !n.giveUp(w) {
			c.placing = starting // it was let in at the same time
		}
	}
}

// leave is called when a cell does not run its guest any more.
func (t *turns) leave(c *Cell) {
	was := c.placing
	c.placing = outside
	switch n := c.share.tenant; was {
	case starting:
		n.starting.Add(-1)
		if n.entering.Load() > 0 {
			t.mu.Lock()
			n.start(int64(starters * t.places))
			t.mu.Unlock()
		}
	case placed:
		t.mu.Lock()
		t.vacate(c)
		t.admit(time.Now())
		t.mu.Unlock()
	default:
	}
}

// next is called by a cell that has run for a slice, and returns when it may run on. A cell that has run for less than
// start just goes on: to let others go first would put it behind all that are ready, which may be a flood of its neighbour's.
func (t *turns) next(ctx context.Context, c *Cell, ran time.Duration) {
	now := time.Now()
	t.mu.Lock()
	c.share.charge(ran)
	quick := c.placing == starting && c.meter.spent() < start
	if quick || c.placing == placed && !t.yields(c, now) && t.running <= t.allowed(now) {
		t.admit(now)
		t.mu.Unlock()
		if !quick {
			runtime.Gosched()
		}
		return
	}
	t.await(ctx, c)
}

// vacate takes c's place. The caller holds the lock.
func (t *turns) vacate(c *Cell) {
	c.share.place(-1)
	t.running--
	t.busy.Add(-1)
}

// await gives up what c has, and waits for a place. The caller holds the lock, which is given up.
func (t *turns) await(ctx context.Context, c *Cell) {
	w := &waiter{share: c.share, ready: make(chan struct{})}
	if c.meter.spent() >= short {
		w.line = long
	}
	now := time.Now()
	t.arrive(c.share)
	if w.line == brief && c.placing != placed && t.cutsIn(c.share.tenant, now) {
		t.cutIn(c, now)
		t.mu.Unlock()
		return
	}
	t.wait(w)
	switch n := c.share.tenant; c.placing {
	case starting:
		n.starting.Add(-1)
		n.start(int64(starters * t.places))
	case placed:
		t.vacate(c)
	default:
	}
	c.placing = outside
	t.admit(now)
	t.mu.Unlock()
	select {
	case <-w.ready:
		c.placing, c.placedAt = placed, time.Now()
	case <-ctx.Done():
		t.mu.Lock()
		defer t.mu.Unlock()
		if !t.giveUp(w) {
			c.placing = placed // it came at the same time
		}
	}
}

// cutsIn reports whether a cell of n that has not run for long gets a place although there is none: its tenant has none, was not served
// more than any that computes, and who has cut in before is gone again. The caller holds the lock.
func (t *turns) cutsIn(n *tenant, now time.Time) bool {
	if n.placed > 0 || t.running > t.allowed(now) {
		return false
	}
	least, some := leastServed(maps.Values(t.tenants), (*tenant).computes, func(n *tenant) time.Duration { return n.served })
	return !some || n.served-short <= least
}

// cutIn gives c a place. The caller holds the lock.
func (t *turns) cutIn(c *Cell, now time.Time) {
	if n := c.share.tenant; c.placing == starting {
		n.starting.Add(-1)
		n.start(int64(starters * t.places))
	}
	c.placing, c.placedAt = placed, now
	c.share.place(1)
	t.running++
	t.busy.Add(1)
}

// yields reports whether c, which has a place, has to give it up. The caller holds the lock.
func (t *turns) yields(c *Cell, now time.Time) bool {
	if t.waiting == 0 {
		return false
	}
	rank := c.share.tenant.served
	if c.meter.spent() < short {
		rank -= short
	}
	return rank-t.first().rank() > turn || now.Sub(c.placedAt) >= turn
}

// first returns the tenant that goes next. The caller holds the lock; somebody waits.
func (t *turns) first() (best *tenant) {
	for _, n := range t.tenants {
		if n.waits() && (best == nil || n.rank() < best.rank()) {
			best = n
		}
	}
	return best
}

// admit gives places to those who wait. The caller holds the lock.
func (t *turns) admit(now time.Time) {
	for t.waiting > 0 && t.running < t.allowed(now) {
		w := t.first().first().take()
		t.waiting--
		t.running++
		w.share.place(1)
		close(w.ready)
	}
}
