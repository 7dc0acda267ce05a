package cell

import (
	"context"
	"runtime"
	"slices"
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
)

// turns shares the processors among cells that compute for long.
//
// A call runs freely at first, so what is quick is never queued. Then it needs a place. There are as many places as
// processors, and one less while calls keep beginning, so that those find a processor free, and with it the network's
// poller: Go looks at the network last, after all that could run.
//
// The tenant that was served least goes first, and calls that have not run for long yet count as served less, so that they
// get a place from one that has run for long at the end of its slice.
type turns struct {
	places int
	begun  atomic.Int64 // when the newest call began, in nanoseconds since epoch

	mu      sync.Mutex
	running int
	waiting []*waiter // in the order in which they came
	shares  map[agent.App]*share
	epoch   time.Time
}

// share is what a tenant has of the processors while any of its cells runs or waits here.
type share struct {
	cells  int
	served time.Duration
}

// waiter is a cell that waits for a place. ready is closed when it has one.
type waiter struct {
	tenant agent.App
	short  bool
	ready  chan struct{}
}

func newTurns(places int) *turns {
	return &turns{places: places, shares: map[agent.App]*share{}, epoch: time.Now()}
}

// begin notes that a call begins.
func (t *turns) begin(now time.Time) { t.begun.Store(int64(now.Sub(t.epoch))) }

func (t *turns) allowed(now time.Time) int {
	if now.Sub(t.epoch)-time.Duration(t.begun.Load()) < quiet {
		return max(1, t.places-1)
	}
	return t.places
}

// next is called by a cell that has run for a slice, and returns when it may run on. A cell that has run for less than
// start only lets others go first.
func (t *turns) next(ctx context.Context, c *Cell, ran time.Duration) {
	if c.meter.active < start {
		runtime.Gosched()
		return
	}
	now := time.Now()
	t.mu.Lock()
	if c.placed {
		t.shares[c.env.Tenant].served += ran
		if !t.yields(c, now) && t.running <= t.allowed(now) {
			t.admit(now)
			t.mu.Unlock()
			runtime.Gosched()
			return
		}
		c.placed = false
		t.running--
	} else {
		t.join(c.env.Tenant)
	}
	w := &waiter{tenant: c.env.Tenant, short: c.meter.active < short, ready: make(chan struct{})}
	t.waiting = append(t.waiting, w)
	t.admit(now)
	t.mu.Unlock()
	select {
	case <-w.ready:
		c.placed, c.placedAt = true, time.Now()
	case <-ctx.Done():
		t.forget(w)
	}
}

// rank orders who wants a place: the lowest goes first. The caller holds the lock.
func (t *turns) rank(tenant agent.App, isShort bool) time.Duration {
	served := t.shares[tenant].served
	if isShort {
		served -= short
	}
	return served
}

// first returns the index of the waiter who goes next. The caller holds the lock; somebody waits.
func (t *turns) first() int {
	best := 0
	for i, w := range t.waiting {
		if b := t.waiting[best]; t.rank(w.tenant, w.short) < t.rank(b.tenant, b.short) {
			best = i
		}
	}
	return best
}

// yields reports whether c, which has a place, has to give it up. The caller holds the lock.
func (t *turns) yields(c *Cell, now time.Time) bool {
	if len(t.waiting) == 0 {
		return false
	}
	w := t.waiting[t.first()]
	ahead := t.rank(c.env.Tenant, c.meter.active < short) - t.rank(w.tenant, w.short)
	return ahead > turn || now.Sub(c.placedAt) >= turn
}

// join adds a cell to its tenant's share. A tenant that comes anew begins level with the one that was served least: it
// owes nothing, and is owed nothing. The caller holds the lock.
func (t *turns) join(tenant agent.App) {
	s := t.shares[tenant]
	if s == nil {
		s = &share{}
		for _, other := range t.shares {
			if s.served == 0 || other.served < s.served {
				s.served = other.served
			}
		}
		t.shares[tenant] = s
	}
	s.cells++
}

// part is the reverse of join. The caller holds the lock.
func (t *turns) part(tenant agent.App) {
	s := t.shares[tenant]
	if s.cells--; s.cells == 0 {
		delete(t.shares, tenant)
	}
}

// admit gives places to those who wait. The caller holds the lock.
func (t *turns) admit(now time.Time) {
	for len(t.waiting) > 0 && t.running < t.allowed(now) {
		best := t.first()
		w := t.waiting[best]
		t.waiting = slices.Delete(t.waiting, best, best+1)
		t.running++
		close(w.ready)
	}
}

// forget takes back a wait that was given up.
func (t *turns) forget(w *waiter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.part(w.tenant)
	select {
	case <-w.ready: // it came at the same time
		t.running--
		t.admit(time.Now())
	default:
		t.waiting = slices.DeleteFunc(t.waiting, func(x *waiter) bool { return x == w })
	}
}

// leave gives up c's place, if it has one.
func (t *turns) leave(c *Cell) {
	if !c.placed {
		return
	}
	c.placed = false
	t.mu.Lock()
	defer t.mu.Unlock()
	t.part(c.env.Tenant)
	t.running--
	t.admit(time.Now())
}
