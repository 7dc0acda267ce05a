package runtime

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime/durable"
)

// Stats is what the runtime counted since it was made, and what is going on now.
type Stats struct {
	Calls        int64                 // cells begun, those of runs and of calls between agents included
	Live         int64                 // cells that run now
	Failures     map[agent.Kind]int64  // of calls and runs
	Kills        map[agent.Limit]int64 // of calls and runs, by the limit or quota that was hit
	Refused      map[string]int64      // what agents asked for without a grant, by the kind of grant
	Egress       Egress
	Runs         map[agent.RunStatus]int64
	RunsQueued   int   // now
	RunsActive   int   // now
	LinesDropped int64 // console lines of stateless calls
	Listeners    int   // now
	Sockets      int   // connections with instances, now
	LogsFollowed int   // logs that have a listener now
	LogReads     int64 // reads of the store for listeners
	Durable      durable.Stats
	DeadAlarms   int64 // that failed for the last time

	Snapshots     int64 // of runs that gave up their cells
	SnapshotBytes int64
	Wakes         int64         // of runs that went on in another cell
	Waking        time.Duration // from when they could go on until their cell began, all together
}

// Egress is what agents' outbound requests came to.
type Egress struct {
	Requests       map[string]int64 // by outcome: a class of status such as "2xx", or "failed"
	Sent, Received int64            // bytes of bodies
}

type counters struct {
	calls, live atomic.Int64
	kills       [agent.MaxLimit + 1]atomic.Int64
	refused     tally
	egress      tally
	sent        atomic.Int64
	received    atomic.Int64
	failures    [agent.Cancelled + 1]atomic.Int64
	runs        [agent.RunCancelled + 1]atomic.Int64

	snapshots, snapshotBytes, wakes, waking, deadAlarms atomic.Int64
}

// begin counts a cell until done is called.
func (c *counters) begin() (done func()) {
	c.calls.Add(1)
	c.live.Add(1)
	return func() { c.live.Add(-1) }
}

func (c *counters) failed(err error) error {
	e := agent.AsError(err)
	c.failures[min(e.Kind, agent.Cancelled)].Add(1)
	if e.Limit != agent.NoLimit {
		c.kills[min(e.Limit, agent.MaxLimit)].Add(1)
	}
	return err
}

func (c *counters) snapshot(bytes int) {
	c.snapshots.Add(1)
	c.snapshotBytes.Add(int64(bytes))
}

func (c *counters) woke(after time.Duration) {
	c.wakes.Add(1)
	c.waking.Add(int64(after))
}

// tally counts by a name of a small set.
type tally struct {
	mu sync.Mutex
	n  map[string]int64
}

func (t *tally) add(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n == nil {
		t.n = map[string]int64{}
	}
	t.n[name]++
}

func (t *tally) all() map[string]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.n)
}

func (c *counters) ended(s agent.RunStatus) { c.runs[min(s, agent.RunCancelled)].Add(1) }

// Stats returns the figures.
func (r *Runtime) Stats() Stats {
	s := Stats{
		Calls: r.stats.calls.Load(), Live: r.stats.live.Load(), LinesDropped: r.logbook.droppedLines(),
		Failures: make(map[agent.Kind]int64), Runs: make(map[agent.RunStatus]int64), RunsQueued: r.queue.len(),
	}
	for _, k := range agent.Kinds() {
		s.Failures[k] = r.stats.failures[k].Load()
	}
	s.Kills, s.Refused = map[agent.Limit]int64{}, r.stats.refused.all()
	for l := range r.stats.kills {
		if n := r.stats.kills[l].Load(); n > 0 {
			s.Kills[agent.Limit(l)] = n
		}
	}
	s.Egress = Egress{Requests: r.stats.egress.all(), Sent: r.stats.sent.Load(), Received: r.stats.received.Load()}
	for st := agent.Completed; st <= agent.RunCancelled; st++ {
		s.Runs[st] = r.stats.runs[st].Load()
	}
	s.Sockets = r.sockets.All()
	s.LogsFollowed, s.Listeners, s.LogReads = r.feeds.figures()
	s.Durable, s.DeadAlarms = r.keeper.Stats(), r.stats.deadAlarms.Load()
	s.Snapshots, s.SnapshotBytes = r.stats.snapshots.Load(), r.stats.snapshotBytes.Load()
	s.Wakes, s.Waking = r.stats.wakes.Load(), time.Duration(r.stats.waking.Load())
	r.mu.Lock()
	defer r.mu.Unlock()
	s.RunsActive = len(r.active)
	return s
}
