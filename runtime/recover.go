package runtime

import (
	"context"
	"fmt"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/internal/phrase"
	"github.com/skep-dev/skep/runtime/durable"
	"github.com/skep-dev/skep/runtime/journal"
	"github.com/skep-dev/skep/store/instance"
)

// recover takes up what the last process left: queued runs, and those that were Running, go to the queue.
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

// resume deals with a run whose process died: it goes on from its journal. That its life was lost is counted, unless the run was waiting for
// what it had asked of others.
func (r *Runtime) resume(ctx context.Context, run agent.Run) error {
	err := r.requeue(ctx, run)
	switch agent.KindOf(err) {
	case agent.Conflict: // it was cancelled just now
		return nil
	case agent.NotFound: // its agent was deleted
		_, err = r.end(ctx, run, agent.RunCancelled, agent.Errorf(agent.Cancelled, "the agent was deleted"))
	}
	return err
}

func (r *Runtime) requeue(ctx context.Context, run agent.Run) error {
	id, err := r.instanceOfRun(ctx, run)
	if err != nil {
		return err
	}
	t, err := r.keeper.Enter(ctx, id, durable.Entry{})
	if err != nil {
		return err
	}
	defer t.Abandon()
	was := run.Status
	if run, err = r.store.Run(ctx, run.App, run.ID); err != nil { // a person may have answered since it was listed
		return err
	}
	if run.Status != was {
		return agent.Errorf(agent.Conflict, "run %s is %s", run.ID, run.Status)
	}
	v, err := r.readView(ctx, id, run.ID, false)
	if err != nil {
		return err
	}
	next := run
	next.Status = agent.Queued
	if !v.Rested {
		next.Lost++
		e := journal.Entry{Kind: journal.Crash, Count: v.Lives, Text: lifeText(run.Lives, "its process ended")}
		for _, packed := range journal.Pack(run.ID, []journal.Entry{e}) {
			if err := t.Journal(ctx, packed); err != nil {
				return err
			}
		}
	}
	if err := t.ChangeRun(ctx, instance.RunEdit{From: run.Status, Run: next}); err != nil {
		return err
	}
	return t.Leave(ctx)
}

// lifeText tells what became of a life.
func lifeText(life int, what string) string {
	return fmt.Sprintf("life %d: %s", life, phrase.Clip(what, maxMessage))
}
