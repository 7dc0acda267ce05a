package runtime

import (
	"sync/atomic"

	"github.com/skep-dev/skep/agent"
)

// Stats is what the runtime counted since it was made, and what is going on now.
type Stats struct {
	Calls        int64                // cells begun, those of runs and of calls between agents included
	Live         int64                // cells that run now
	Failures     map[agent.Kind]int64 // of calls and runs
	Runs         map[agent.RunStatus]int64
	RunsQueued   int   // now
	RunsActive   int   // now
	LinesDropped int64 // console lines of stateless calls
	Listeners    int   // now
	LogsFollowed int   // logs that have a listener now
	LogReads     int64 // reads of the store for listeners
}

type counters struct {
	calls, live atomic.Int64
	failures    [agent.Cancelled + 1]atomic.Int64
	runs        [agent.RunCancelled + 1]atomic.Int64
}

// begin counts a cell until done is called.
func (c *counters) begin() (done func()) {
	c.calls.Add(1)
	c.live.Add(1)
	return func() { c.live.Add(-1) }
}

func (c *counters) failed(err error) error {
	c.failures[min(agent.KindOf(err), agent.Cancelled)].Add(1)
	return err
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
	for st := agent.Completed; st <= agent.RunCancelled; st++ {
		s.Runs[st] = r.stats.runs[st].Load()
	}
	s.LogsFollowed, s.Listeners, s.LogReads = r.feeds.figures()
	r.mu.Lock()
	defer r.mu.Unlock()
	s.RunsActive = len(r.active)
	return s
}
