package cell

import (
	"iter"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/skep-dev/skep/agent"
)

// The lines in which cells wait for a place: those that have not run for long, and the others.
const (
	brief = iota
	long
	lines
)

const (
	maxWeight = 1000        // of a tenant
	maxDebt   = time.Second // of service, for which a tenant is held back that comes again
	credit    = short       // what is kept by who stops computing for a while, as for a call to the host
	maxGone   = 64          // tenants, and agents of one, that are remembered although they have no cells
)

// tenant is what a tenant has of the processors, while it has cells.
type tenant struct {
	name   agent.App
	weight time.Duration
	cells  int
	placed int           // cells that have a place
	served time.Duration // by its weight
	agents map[string]*share
	queued [lines]int

	starting atomic.Int64 // cells that run freely
	entering atomic.Int64 // cells in starters
	starters []*waiter    // in the order in which they came
}

// share is what an agent has of its tenant's.
type share struct {
	tenant *tenant
	name   string
	cells  int
	placed int
	served time.Duration
	queue  [lines][]*waiter // in the order in which they came
}

// join adds a cell for its life.
func (t *turns) join(c *Cell) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.tenants[c.env.Tenant]
	if n == nil {
		n = &tenant{name: c.env.Tenant, agents: map[string]*share{}, served: min(t.debts[c.env.Tenant], t.floor+maxDebt)}
		delete(t.debts, n.name)
		t.tenants[n.name] = n
	}
	n.weight = time.Duration(min(max(c.env.Weight, 1), maxWeight))
	s := n.agents[c.env.Agent]
	if s == nil {
		s = &share{tenant: n, name: c.env.Agent}
		n.agents[s.name] = s
	}
	n.cells++
	s.cells++
	c.share = s
}

// part is the reverse of join. ran is what was not paid for yet.
func (t *turns) part(c *Cell, ran time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, n := c.share, c.share.tenant
	c.share = nil
	s.charge(ran)
	n.cells--
	if s.cells--; s.cells == 0 && len(n.agents) > maxGone {
		maps.DeleteFunc(n.agents, func(_ string, s *share) bool { return s.cells == 0 })
	}
	if n.cells > 0 {
		return
	}
	delete(t.tenants, n.name)
	if n.served > t.floor {
		t.debts[n.name] = n.served
	}
	if len(t.debts) > maxGone {
		maps.DeleteFunc(t.debts, func(_ agent.App, served time.Duration) bool { return served <= t.floor })
	}
	for name := range t.debts {
		if len(t.debts) <= maxGone {
			break
		}
		delete(t.debts, name)
	}
}

// place counts places that the agent's cells have.
func (s *share) place(n int) {
	s.placed += n
	s.tenant.placed += n
}

// charge counts what a cell has run.
func (s *share) charge(ran time.Duration) {
	s.served += ran
	s.tenant.served += ran / s.tenant.weight
}

func (n *tenant) waits() bool { return n.queued != [lines]int{} }

// rank orders who wants a place: the lowest goes first.
func (n *tenant) rank() time.Duration {
	if n.queued[brief] > 0 {
		return n.served - short
	}
	return n.served
}

// arrive is called before a cell of an agent waits for a place or gets one. A tenant that begins to compute has no more than some credit over the
// one that was served least; and so has an agent. The caller holds the lock.
func (t *turns) arrive(s *share) {
	n := s.tenant
	if !n.waits() && n.placed == 0 {
		if least, some := leastServed(maps.Values(t.tenants), (*tenant).computes, func(n *tenant) time.Duration { return n.served }); some {
			t.floor = max(t.floor, least)
		}
		n.served = max(n.served, t.floor-credit)
	}
	if !s.computes() {
		if least, some := leastServed(maps.Values(n.agents), (*share).computes, func(s *share) time.Duration { return s.served }); some {
			s.served = max(s.served, least-credit)
		}
	}
}

// wait puts a cell in line. The caller holds the lock.
func (t *turns) wait(w *waiter) {
	s, n := w.share, w.share.tenant
	s.queue[w.line] = append(s.queue[w.line], w)
	n.queued[w.line]++
	t.waiting++
	t.busy.Add(1)
}

// giveUp takes back a wait for a place, and reports false when it is over already. The caller holds the lock.
func (t *turns) giveUp(w *waiter) bool {
	at := slices.Index(w.share.queue[w.line], w)
	if at < 0 {
		return false
	}
	w.share.queue[w.line] = slices.Delete(w.share.queue[w.line], at, at+1)
	w.share.tenant.queued[w.line]--
	t.waiting--
	t.busy.Add(-1)
	return true
}

func (n *tenant) computes() bool { return n.waits() || n.placed > 0 }
func (s *share) computes() bool  { return s.waits() || s.placed > 0 }
func (s *share) waits() bool     { return len(s.queue[brief])+len(s.queue[long]) > 0 }

// first returns the agent that goes next. One waits.
func (n *tenant) first() (best *share) {
	for _, s := range n.agents {
		if s.waits() && (best == nil || s.rank() < best.rank()) {
			best = s
		}
	}
	return best
}

func (s *share) rank() time.Duration {
	if len(s.queue[brief]) > 0 {
		return s.served - short
	}
	return s.served
}

// take takes the cell that goes next out of its line. One waits.
func (s *share) take() *waiter {
	line := brief
	if len(s.queue[brief]) == 0 {
		line = long
	}
	w := s.queue[line][0]
	s.queue[line] = slices.Delete(s.queue[line], 0, 1)
	s.tenant.queued[line]--
	return w
}

// start lets cells in, up to some. The caller holds the turns' lock.
func (n *tenant) start(most int64) {
	for len(n.starters) > 0 && n.starting.Load() < most {
		w := n.starters[0]
		n.starters = slices.Delete(n.starters, 0, 1)
		n.entering.Add(-1)
		n.starting.Add(1)
		close(w.ready)
	}
}

// giveUp takes back a wait to start, and reports false when it is over already. The caller holds the turns' lock.
func (n *tenant) giveUp(w *waiter) bool {
	at := slices.Index(n.starters, w)
	if at < 0 {
		return false
	}
	n.starters = slices.Delete(n.starters, at, at+1)
	n.entering.Add(-1)
	return true
}

func leastServed[T any](all iter.Seq[T], counts func(T) bool, served func(T) time.Duration) (least time.Duration, some bool) {
	for x := range all {
		if counts(x) && (!some || served(x) < least) {
			least, some = served(x), true
		}
	}
	return least, some
}
