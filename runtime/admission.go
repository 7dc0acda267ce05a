package runtime

import (
	"context"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime/quota"
)

// patience is for how long a run whose turn has come waits for a quota that has no room. One that is used up for the day is not
// waited for.
const patience = time.Minute

// admission is a run's leave to begin, or the reason why it fails.
type admission struct {
	record record
	hold   *quota.Hold
	err    error
}

// leave gives back what is held for a run that did not get as far as its cell.
func (a admission) leave() {
	if a.hold != nil {
		a.hold.Done(time.Now(), agent.Cost{})
	}
}

// admitRun takes a queued run's place in the quotas. It returns how long the run has to wait when there is none now; a fresh
// call is refused instead.
func (r *Runtime) admitRun(ctx context.Context, t *task) (a admission, wait time.Duration) {
	rec, limits, err := r.admitCode(ctx, t.app, t.agent, agent.Limits{})
	switch {
	case err != nil && passing(err): // its agent could not be read
		r.log.WarnContext(ctx, "a run could not begin and waits", "run", t.id, "error", err)
		return admission{}, lastRetry
	case err != nil:
		return admission{err: err}, 0
	}
	j := r.jobOf(agent.UseRun, rec, limits)
	j.in = t.in
	hold, err := r.quotas.Begin(j.quotaCall())
	if err == nil {
		return admission{record: rec, hold: hold}, 0
	}
	switch after := agent.AsError(err).After; {
	case after > 0 && after <= patience:
		return admission{}, after
	case after > 0 && t.resumed: // what it has done is not lost for that
		return admission{}, patience
	}
	return admission{err: err}, 0
}

// mayQueue refuses a run at once for which there is no room today.
func (r *Runtime) mayQueue(rec record, limits agent.Limits, in agent.Payload) error {
	j := r.jobOf(agent.UseRun, rec, limits)
	j.input = in
	err := r.quotas.Check(j.quotaCall())
	if err != nil && agent.AsError(err).After > patience {
		return err
	}
	return nil
}

// pause returns after d, or when ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
