package runtime

import "sync/atomic"

// SQLHeld counts the bytes of SQL that instances hold between turns.
func (r *Runtime) SQLHeld() *atomic.Int64 { return &r.sqlHeld }

// ForgetRecords empties the cache.
func (r *Runtime) ForgetRecords() {
	r.records.mu.Lock()
	defer r.records.mu.Unlock()
	clear(r.records.agents)
	clear(r.records.plugins)
}

// Living counts the agents that the cache or a cell holds.
func (r *Runtime) Living() int {
	r.records.mu.RLock()
	defer r.records.mu.RUnlock()
	n := 0
	for _, p := range r.records.living {
		if p.Value() != nil {
			n++
		}
	}
	return n
}
