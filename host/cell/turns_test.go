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
	t.join(h.cell)
	t.enter(ctx, h.cell)
	for ctx.Err() == nil {
		time.Sleep(slice)
		h.ran += slice
		h.cell.meter.active += slice
		t.next(ctx, h.cell, slice)
	}
	t.leave(h.cell)
	t.part(h.cell, 0)
}

// crowd runs hogs of some tenants and returns how to add more and how much each tenant ran.
type crowd struct {
	turns *turns
	ctx   context.Context //nolint:containedctx // of one test
	all   sync.WaitGroup
	hogs  map[agent.App][]*hog
}

func (c *crowd) add(tenant agent.App, n int) { c.addAs(Env{Tenant: tenant}, tenant, n) }

// addAs adds hogs that are counted under a name.
func (c *crowd) addAs(env Env, tenant agent.App, n int) {
	for range n {
		h := &hog{cell: &Cell{env: env}}
		c.hogs[tenant] = append(c.hogs[tenant], h)
		c.all.Go(func() { h.run(c.ctx, c.turns) })
	}
}

func (c *crowd) ran(tenant agent.App) (d time.Duration) {
	synctest.Wait()
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
		if c.turns.running != 0 || c.turns.waiting != 0 || len(c.turns.tenants) != 0 {
			t.Errorf("%d run, %d wait and %d tenants are there after all have gone", c.turns.running, c.turns.waiting, len(c.turns.tenants))
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
			c.turns.join(h.cell)
			c.turns.enter(ctx, h.cell)
			for h.ran < 10*time.Millisecond {
				time.Sleep(slice)
				h.ran += slice
				h.cell.meter.active += slice
				c.turns.next(ctx, h.cell, slice)
			}
			c.turns.leave(h.cell)
			c.turns.part(h.cell, 0)
			took = time.Since(began)
			done()
		})
		<-ctx.Done()
		if took > 12*time.Millisecond {
			t.Errorf("10 ms of computing beside three hogs took %s", took)
		}
	})
}

// A call that enters and leaves many times, past its first millisecond, waits for nobody's slice each time: one that has run for long
// leaves it its place. A tenant cuts in with one call at a time, and not when it was served more than others.
func TestShortCallsCutIn(t *testing.T) {
	const pieces, piece = 8, 100 * time.Microsecond
	inCrowd(t, 1, func(c *crowd) {
		call := func(tenant agent.App, every time.Duration) (longest time.Duration) {
			for until := time.Now().Add(time.Second); time.Now().Before(until) && c.ctx.Err() == nil; time.Sleep(every) {
				h, came := &Cell{env: Env{Tenant: tenant}}, time.Now()
				h.meter.active = start
				c.turns.join(h)
				for range pieces {
					c.turns.enter(c.ctx, h)
					time.Sleep(piece)
					h.meter.active += piece
					c.turns.leave(h)
				}
				c.turns.part(h, pieces*piece)
				longest = max(longest, time.Since(came))
			}
			return longest
		}
		c.add("hogs", 3)
		time.Sleep(time.Second)
		if longest := call("new", 20*time.Millisecond); longest > pieces*piece {
			t.Errorf("a call of %v took %v", pieces*piece, longest)
		}
		before := c.ran("hogs")
		for range 20 { // a flood of them is no way to more than a fair part
			c.all.Go(func() { call("flood", 0) })
		}
		time.Sleep(time.Second)
		if ran := c.ran("hogs") - before; ran < 400*time.Millisecond {
			t.Errorf("beside a flood of short calls those who compute ran %v of a second", ran)
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

func TestWeightsOfTenants(t *testing.T) {
	inCrowd(t, 1, func(c *crowd) {
		c.addAs(Env{Tenant: "light"}, "light", 3)
		c.addAs(Env{Tenant: "heavy", Weight: 3}, "heavy", 2)
		time.Sleep(time.Second)
		near(t, "the light tenant", c.ran("light"), 250*time.Millisecond)
		near(t, "the heavy one", c.ran("heavy"), 750*time.Millisecond)
	})
}

func TestAgentsOfATenantShareEvenly(t *testing.T) {
	inCrowd(t, 1, func(c *crowd) {
		c.addAs(Env{Tenant: "a", Agent: "many"}, "many", 5)
		c.addAs(Env{Tenant: "a", Agent: "one"}, "one", 1)
		c.addAs(Env{Tenant: "b"}, "b", 1)
		time.Sleep(time.Second)
		near(t, "the agent of five cells", c.ran("many"), 250*time.Millisecond)
		near(t, "the agent of one", c.ran("one"), 250*time.Millisecond)
		near(t, "the other tenant", c.ran("b"), 500*time.Millisecond)
	})
}

// Cells that call their host before each slice is over pay as those that only compute.
func TestHostCallsAreNoWayAround(t *testing.T) {
	inCrowd(t, 1, func(c *crowd) {
		c.add("honest", 1)
		chatty := &hog{cell: &Cell{env: Env{Tenant: "chatty"}}}
		c.hogs["chatty"] = []*hog{chatty}
		c.all.Go(func() {
			h, t := chatty.cell, c.turns
			t.join(h)
			t.enter(c.ctx, h)
			for c.ctx.Err() == nil {
				time.Sleep(slice / 5)
				chatty.ran += slice / 5
				h.meter.active += slice / 5
				h.meter.owed += slice / 5
				t.leave(h) // asks its host, and is answered at once
				t.enter(c.ctx, h)
				if h.meter.owed >= slice {
					ran := h.meter.owed
					h.meter.owed = 0
					t.next(c.ctx, h, ran)
				}
			}
			t.leave(h)
			t.part(h, 0)
		})
		time.Sleep(time.Second)
		honest, all := c.ran("honest"), c.ran("honest")+c.ran("chatty")
		near(t, "both", all, time.Second)
		if honest < all/2 || honest > all*9/10 { // a place is given back at each call, and not had again before a slice's end
			t.Errorf("who computes ran %s of %s", honest, all)
		}
	})
}

// Short calls of one tenant start only so many at a time: others' find the processors' queues short.
func TestAFloodOfShortCallsStartsAFewAtATime(t *testing.T) {
	inCrowd(t, 2, func(c *crowd) {
		var mu sync.Mutex
		most, now := 0, 0
		add := func(n int) {
			mu.Lock()
			defer mu.Unlock()
			now += n
			most = max(most, now)
		}
		for range 100 {
			cell := &Cell{env: Env{Tenant: "flood"}}
			c.all.Go(func() {
				c.turns.join(cell)
				c.turns.enter(c.ctx, cell)
				add(1)
				time.Sleep(start / 2)
				add(-1)
				c.turns.leave(cell)
				c.turns.part(cell, start/2)
			})
			synctest.Wait()
		}
		other := &Cell{env: Env{Tenant: "other"}}
		c.turns.join(other)
		came := time.Now()
		c.turns.enter(c.ctx, other)
		if waited := time.Since(came); waited > 0 || other.placing != starting {
			t.Errorf("another tenant's call waited for %s", waited)
		}
		c.turns.leave(other)
		c.turns.part(other, 0)
		c.all.Wait()
		if want := 2 * starters; most != want {
			t.Errorf("%d calls ran at once, want %d", most, want)
		}
	})
}

func TestWhoGivesUpStartingLeavesNothingBehind(t *testing.T) {
	inCrowd(t, 1, func(c *crowd) {
		for n := range 50 {
			ctx, cancel := context.WithTimeout(c.ctx, time.Duration(n)*start)
			defer cancel()
			cell := &Cell{env: Env{Tenant: "a"}}
			c.all.Go(func() {
				c.turns.join(cell)
				c.turns.enter(ctx, cell)
				time.Sleep(start)
				c.turns.leave(cell)
				c.turns.part(cell, 0)
			})
		}
		c.all.Wait()
		cell := &Cell{env: Env{Tenant: "a"}}
		c.turns.join(cell)
		if n := cell.share.tenant; n.starting.Load() != 0 || n.entering.Load() != 0 || len(n.starters) != 0 {
			t.Errorf("%d start and %d wait to, after all have gone", n.starting.Load(), n.entering.Load())
		}
		c.turns.part(cell, 0)
	})
}
