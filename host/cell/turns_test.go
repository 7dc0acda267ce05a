package cell

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skep-dev/skep/agent"
)

// hog is a cell that computes without end; sleeping stands for computing.
type hog struct {
	cell *Cell
	ran  time.Duration
}

func (h *hog) run(ctx context.Context, t *turns) {
	for ctx.Err() == nil {
		time.Sleep(slice)
		h.ran += slice
		h.cell.meter.active += slice
		t.next(ctx, h.cell, slice)
	}
	t.leave(h.cell)
}

// crowd runs hogs of some tenants and returns how to add more and how much each tenant ran.
type crowd struct {
	turns *turns
	ctx   context.Context //nolint:containedctx // of one test
	all   sync.WaitGroup
	hogs  map[agent.App][]*hog
}

func (c *crowd) add(tenant agent.App, n int) {
	for range n {
		h := &hog{cell: &Cell{env: Env{Tenant: tenant}}}
		c.hogs[tenant] = append(c.hogs[tenant], h)
		c.all.Go(func() { h.run(c.ctx, c.turns) })
	}
}

func (c *crowd) ran(tenant agent.App) (d time.Duration) {
	for _, h := range c.hogs[tenant] {
		d += h.ran
	}
	return d
}

func inCrowd(t *testing.T, places int, fn func(c *crowd)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := &crowd{turns: newTurns(places), ctx: ctx, hogs: map[agent.App][]*hog{}}
		c.turns.begun.Store(-int64(time.Hour))
		fn(c)
		cancel()
		c.all.Wait()
		if c.turns.running != 0 || len(c.turns.waiting) != 0 {
			t.Errorf("%d run and %d wait after all have gone", c.turns.running, len(c.turns.waiting))
		}
	})
}

func near(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if d := got - want; d < -want/10-2*start || d > want/10+2*start {
		t.Errorf("%s ran %s, want about %s", what, got, want)
	}
}

func TestTenantsShareEvenly(t *testing.T) {
	inCrowd(t, 1, func(c *crowd) {
		c.add("many", 5)
		c.add("one", 1)
		time.Sleep(time.Second)
		near(t, "the tenant of five cells", c.ran("many"), 500*time.Millisecond)
		near(t, "the tenant of one", c.ran("one"), 500*time.Millisecond)
		near(t, "each of the five", c.hogs["many"][3].ran, 100*time.Millisecond)
	})
}

func TestWhoComesLateOwesAndIsOwedNothing(t *testing.T) {
	inCrowd(t, 1, func(c *crowd) {
		c.add("early", 1)
		time.Sleep(time.Second)
		near(t, "the early tenant, alone", c.ran("early"), time.Second)
		c.add("late", 1)
		time.Sleep(time.Second)
		near(t, "the early tenant, in all", c.ran("early"), 1500*time.Millisecond)
		near(t, "the late tenant", c.ran("late"), 500*time.Millisecond)
	})
}

func TestShortCallsAreLetAhead(t *testing.T) {
	inCrowd(t, 1, func(c *crowd) {
		c.add("hogs", 3)
		time.Sleep(time.Second)
		ctx, done := context.WithCancel(c.ctx)
		h := &hog{cell: &Cell{env: Env{Tenant: "new"}}}
		began, took := time.Now(), time.Duration(0)
		c.all.Go(func() {
			for h.ran < 10*time.Millisecond {
				time.Sleep(slice)
				h.ran += slice
				h.cell.meter.active += slice
				c.turns.next(ctx, h.cell, slice)
			}
			c.turns.leave(h.cell)
			took = time.Since(began)
			done()
		})
		<-ctx.Done()
		if took > 12*time.Millisecond {
			t.Errorf("10 ms of computing beside three hogs took %s", took)
		}
	})
}

func TestAProcessorIsKeptFreeWhileCallsBegin(t *testing.T) {
	inCrowd(t, 2, func(c *crowd) {
		c.add("a", 2)
		time.Sleep(time.Second)
		near(t, "two cells on two processors", c.ran("a"), 2*time.Second)
		for range 100 {
			c.turns.begin(time.Now())
			time.Sleep(10 * time.Millisecond)
		}
		near(t, "two cells while calls begin", c.ran("a"), 3*time.Second)
		time.Sleep(time.Second)
		near(t, "two cells when it is quiet again", c.ran("a"), 5*time.Second)
	})
}

func TestWhoStopsWaitingLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := &crowd{turns: newTurns(1), ctx: ctx, hogs: map[agent.App][]*hog{}}
		c.add("stays", 1)
		time.Sleep(100 * time.Millisecond)
		impatient, stop := context.WithTimeout(ctx, 20*time.Millisecond)
		defer stop()
		h := &hog{cell: &Cell{env: Env{Tenant: "goes"}}}
		h.cell.meter.active = start
		c.all.Go(func() { h.run(impatient, c.turns) })
		time.Sleep(time.Second)
		before := c.ran("stays")
		time.Sleep(time.Second)
		near(t, "who stays, alone again", c.ran("stays")-before, time.Second)
		cancel()
		c.all.Wait()
	})
}
