package runtime

import (
	"context"
	"errors"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/internal/phrase"
	"github.com/skep-dev/skep/runtime/durable"
	"github.com/skep-dev/skep/runtime/journal"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/instance"
)

// end ends a run that has no cell. run is as it was read: when it has changed since, nothing is written and the error is a Conflict.
func (r *Runtime) end(ctx context.Context, run agent.Run, status agent.RunStatus, why error) (agent.Run, error) {
	next := run
	next.Status, next.Error, next.Ended, next.Wait, next.Asks = status, clipped(agent.ErrorOf(why)), time.Now().UTC(), nil, nil
	if run.Lives == 0 && run.Parent == nil {
		return r.endStored(ctx, run, next)
	}
	id, err := r.instanceOfRun(ctx, run)
	if agent.KindOf(err) == agent.NotFound { // its agent was deleted
		return r.endStored(ctx, run, next)
	}
	if err != nil {
		return agent.Run{}, err
	}
	t, err := r.keeper.Enter(ctx, id, durable.Entry{})
	if err != nil {
		return agent.Run{}, err
	}
	defer t.Abandon()
	if err := r.endIn(ctx, t, run, next); err != nil {
		return agent.Run{}, err
	}
	if err := t.Leave(ctx); err != nil {
		return agent.Run{}, err
	}
	return next, nil
}

// endIn ends it in a turn.
func (r *Runtime) endIn(ctx context.Context, t *durable.Turn, run, next agent.Run) error {
	log := instance.SessionLog(run.Session)
	for _, e := range journal.Pack(run.ID, []journal.Entry{{Kind: journal.End, Text: next.Status.String()}}) {
		if err := t.Journal(ctx, e); err != nil {
			return err
		}
	}
	if err := t.Append(ctx, log, lastEvent(next)); err != nil {
		return err
	}
	if err := t.SetAlarm(ctx, instance.AlarmEdit{Clear: true, Alarm: instance.Alarm{Name: runAlarm + string(run.ID)}}); err != nil {
		return err
	}
	if err := r.endedParent(ctx, t, next); err != nil {
		return err
	}
	return t.ChangeRun(ctx, instance.RunEdit{From: run.Status, Run: next})
}

// endRunOf cancels a run that has no cell, in the last turn of its instance.
func (r *Runtime) endRunOf(ctx context.Context, t *durable.Turn, run agent.Run) error {
	next := run
	next.Status, next.Ended, next.Wait, next.Asks = agent.RunCancelled, time.Now().UTC(), nil, nil
	next.Error = agent.ErrorOf(agent.Errorf(agent.Cancelled, "its instance was deleted"))
	return r.endIn(ctx, t, run, next)
}

// endStored ends a run that has no instance.
func (r *Runtime) endStored(ctx context.Context, was, next agent.Run) (agent.Run, error) {
	run, events, err := r.store.UpdateRun(ctx, was.App, was.ID, []agent.Event{lastEvent(next)}, func(stored *agent.Run) error {
		if stored.Status != was.Status {
			return agent.Errorf(agent.Conflict, "run %s is %s", stored.ID, stored.Status)
		}
		*stored = next
		return nil
	})
	if err != nil {
		return agent.Run{}, err
	}
	r.stats.ended(run.Status)
	r.feeds.publish(store.SessionLog(run.App, run.Session), events)
	r.watches.ended(run.ID)
	r.boxEnded(run)
	return run, nil
}

// What a run or a log keeps of an error, in bytes: its author may make it as long as memory allows.
const (
	maxMessage = 8 << 10
	maxStack   = 16 << 10
)

func clipped(e *agent.RunError) *agent.RunError {
	if e != nil {
		e.Msg, e.Stack, e.Hint, e.Pos.File = phrase.Clip(e.Msg, maxMessage), phrase.Clip(e.Stack, maxStack), phrase.Clip(e.Hint, maxMessage), phrase.Clip(e.Pos.File, maxName)
	}
	return e
}

func lastEvent(run agent.Run) agent.Event {
	ev := agent.Event{Run: run.ID, Time: run.Ended}
	switch run.Status {
	case agent.Completed:
		ev.Kind = agent.EventRunCompleted
		ev.Data = encode(struct {
			Output *agent.Payload `json:"output"`
			Usage  agent.Usage    `json:"usage"`
		}{run.Output, run.Usage})
	case agent.RunCancelled:
		ev.Kind, ev.Data = agent.EventRunCancelled, encode(run.Error)
	default:
		ev.Kind, ev.Data = agent.EventRunFailed, encode(run.Error)
	}
	return ev
}

// append writes events to a log and shows them to its listeners once they are durable.
func (r *Runtime) append(ctx context.Context, to store.Log, events []agent.Event) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	events, err := r.store.Append(ctx, to, events)
	if err == nil {
		r.feeds.publish(to, events)
	}
	return err
}

func (r *Runtime) appendLog(ctx context.Context, to logAddress, events []agent.Event) error {
	err := r.append(ctx, store.AgentLog(to.app, to.id), events)
	if err != nil {
		r.log.WarnContext(ctx, "console lines were lost", "app", to.app, "agent", to.id, "lines", len(events), "error", err)
	}
	return err
}

// retry repeats a commit until it works, can never work, or hard ends; then it gets one more attempt. Its attempts are not
// stopped by hard. The store knows of each attempt that failed that it changed nothing, unless all later ones fail too.
func (r *Runtime) retry(hard context.Context, commit func(context.Context) error) error {
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		last := hard.Err() != nil
		ctx, cancel := context.WithTimeout(context.WithoutCancel(hard), commitTimeout)
		err := commit(ctx)
		cancel()
		if err == nil || last || !passing(err) {
			return err
		}
		r.log.WarnContext(hard, "commit failed and is repeated", "error", err)
		pause(hard, wait)
	}
}

// passing reports whether an error of the store may go away.
func passing(err error) bool {
	if errors.Is(err, instance.ErrUnknown) || errors.Is(err, instance.ErrFenced) {
		return false
	}
	switch agent.KindOf(err) {
	case agent.Unavailable, agent.Internal, agent.Exhausted:
		return true
	default:
		return false
	}
}
