package runtime

import (
	"context"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/grant"
)

// refused writes an agent's refusals where its author looks, which is the run's session or the agent's log, and in the app's
// audit log.
func (r *Runtime) refused(j job) grant.Refused {
	return func(ctx context.Context, ref agent.Refusal) {
		r.stats.refused.add(ref.Grant)
		j.sinks.event(ctx, agent.Event{Kind: agent.EventRefused, Data: encode(ref)})
		write, more := r.refusals.admit(refusalKey{j.App, j.Agent, ref.Grant, ref.What}, time.Now())
		if !write {
			return
		}
		ref.More = more
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
		defer cancel()
		if err := r.Audit(ctx, j.App, agent.Event{Kind: agent.EventRefused, Data: encode(ref)}); err != nil {
			r.log.ErrorContext(ctx, "a refusal was not written to the audit log", "app", j.App, "agent", j.Agent, "error", err)
		}
	}
}

// What one app may add to its audit log by being refused. The log is kept in full, and must not be a way to fill the disk.
const (
	refusalsEach   = time.Minute // at most one of a kind
	refusalsMinute = 100         // of all kinds
)

type refusalKey struct {
	app               agent.App
	agent, kind, what string
}

// refusals holds back what the audit log has heard already.
type refusals struct {
	mu     sync.Mutex
	since  time.Time // when the minute began that the figures are of
	heard  map[refusalKey]bool
	perApp map[agent.App]int
	held   map[agent.App]int64 // not written, and not yet told with one that was
}

// admit says whether a refusal is to be written, and how many of the app's were not since the last one that was.
func (f *refusals) admit(k refusalKey, now time.Time) (write bool, more int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held == nil || now.Sub(f.since) >= refusalsEach || now.Before(f.since) {
		f.since, f.heard, f.perApp = now, map[refusalKey]bool{}, map[agent.App]int{}
		if f.held == nil {
			f.held = map[agent.App]int64{}
		}
	}
	if f.heard[k] || f.perApp[k.app] >= refusalsMinute {
		f.held[k.app]++
		return false, 0
	}
	f.heard[k] = true
	f.perApp[k.app]++
	more = f.held[k.app]
	delete(f.held, k.app)
	return true, more
}
