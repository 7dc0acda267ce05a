package runtime

import (
	"context"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime/durable"
	"github.com/skep-dev/skep/store/instance"
)

// wakeRun lets a run go on whose time has come.
func (r *Runtime) wakeRun(ctx context.Context, due instance.Due, id agent.RunID) error {
	return errNotYet
}

// receiveForRun gives a run what it waits for, in a turn of its instance.
func (r *Runtime) receiveForRun(ctx context.Context, t *durable.Turn, from instance.ID, m message) error {
	return errNotYet
}

// endRunOf cancels a run that has no cell, in the last turn of its instance.
func (r *Runtime) endRunOf(ctx context.Context, t *durable.Turn, run agent.Run) error {
	_, err := r.end(ctx, run, agent.RunCancelled, errCancelled(), nil)
	return err
}
