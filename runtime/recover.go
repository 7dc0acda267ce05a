package runtime

import (
	"context"

	"github.com/skep-dev/skep/agent"
)

// recover takes up what the last process left: queued runs are queued again, runs that were Running have ended.
func (r *Runtime) recover(ctx context.Context) error {
	runs, err := r.store.Unfinished(ctx)
	if err != nil {
		return err
	}
	for _, run := range runs {
		if run.Status == agent.Queued {
			r.queue.push(taskOf(run))
			continue
		}
		if err := r.resume(ctx, run); err != nil {
			return err
		}
	}
	if len(runs) > 0 {
		r.log.InfoContext(ctx, "recovered", "runs", len(runs))
	}
	return nil
}

// resume deals with a run whose process died. Nothing tells which of its host calls were made, so it is ended. A journal
// changes only this: the run then goes back to the queue, to be fed from it.
func (r *Runtime) resume(ctx context.Context, run agent.Run) error {
	_, err := r.end(ctx, run, agent.RunFailed, errInterrupted(), nil)
	if err != nil && agent.KindOf(err) == agent.Conflict { // it was cancelled just now
		return nil
	}
	return err
}
