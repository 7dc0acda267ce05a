package runtime

import (
	"hash/maphash"
	"maps"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/skep-dev/skep/agent"
)

// liveAgent is an agent as it is now, shared by the cache and by all cells that work for the agent.
type liveAgent struct {
	now atomic.Pointer[agent.Agent] // nil before it is read
	_   [256]byte                   // keeps few of them in one span: the collector walks a span's weak pointers one by one
}

// deleted stands where an agent was that is no more: it is granted nothing.
var deleted = new(agent.Agent)

// grantsOf returns what tells an agent's grants as they are when it is asked. It costs a load from memory.
func (r *Runtime) grantsOf(rec record) func() agent.Grants {
	live := rec.live
	return func() agent.Grants { return live.now.Load().Grants }
}

// adopt makes the liveAgent of key. Those that neither the cache nor a cell has any more are forgotten here, once there may be more
// of them than of others. The caller holds c.mu.
func (c *records) adopt(key recordKey) *liveAgent {
	live := new(liveAgent)
	if c.living == nil {
		c.living = make(map[recordKey]weak.Pointer[liveAgent])
	}
	if len(c.living) >= max(2*maxRecords, c.sweepAt) {
		maps.DeleteFunc(c.living, func(_ recordKey, p weak.Pointer[liveAgent]) bool { return p.Value() == nil })
		c.sweepAt = 2 * len(c.living)
	}
	c.living[key] = weak.Make(live)
	return live
}

// stripes are locks by agent. Agents share some.
type stripes struct {
	seed  maphash.Seed
	locks [64]sync.Mutex
}

// lock locks agents against other changes until unlock is called.
func (s *stripes) lock(app agent.App, names ...string) (unlock func()) {
	var held [len(s.locks)]bool
	for _, name := range names {
		held[maphash.Comparable(s.seed, recordKey{app, name})%uint64(len(s.locks))] = true
	}
	for i := range s.locks { // in their order, so that two callers never wait for each other
		if held[i] {
			s.locks[i].Lock()
		}
	}
	return func() {
		for i := range s.locks {
			if held[i] {
				s.locks[i].Unlock()
			}
		}
	}
}
