package runtime

import (
	"context"
	"sync/atomic"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime/journal"
)

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

// SnapshotImages returns where the images of a run's snapshots are kept.
func (r *Runtime) SnapshotImages(ctx context.Context, run agent.Run) (list []agent.Digest) {
	_ = r.eachEntryOf(ctx, run, func(e journal.Entry) error {
		if e.Kind == journal.Snapshot {
			list = append(list, e.ImageBlob)
		}
		return nil
	})
	return list
}

// Resume is what recovery does with a run that it has found.
func (r *Runtime) Resume(ctx context.Context, run agent.Run) error { return r.resume(ctx, run) }

// ForgetInstances drops what is known of idle instances, as time would.
func (r *Runtime) ForgetInstances() { r.keeper.Forget() }
