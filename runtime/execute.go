package runtime

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/internal/telemetry"
	"github.com/skep-dev/skep/store"
)

const (
	commitTimeout = 10 * time.Second // of one attempt
	firstRetry    = 50 * time.Millisecond
	lastRetry     = 5 * time.Second
)

func errCancelled() error { return agent.Errorf(agent.Cancelled, "the run was cancelled") }

func errInterrupted() error {
	return &agent.Error{Kind: agent.Unavailable, Msg: "interrupted by a restart", Hint: "start the run again"}
}

// execution is a run that this process executes.
type execution struct {
	stop  context.CancelCauseFunc
	ended chan struct{}
}

// execute carries one run from Queued to its end. hard ends when the process must stop.
func (r *Runtime) execute(hard context.Context, t *task, a admission) {
	defer a.leave()
	ctx, stop := context.WithCancelCause(hard)
	defer stop(nil)
	x := &execution{stop: stop, ended: make(chan struct{})}
	r.mu.Lock()
	r.active[t.id] = x
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.active, t.id)
		r.mu.Unlock()
		close(x.ended)
	}()

	run, err := r.begin(hard, t)
	if err != nil {
		if agent.KindOf(err) != agent.Conflict { // else it was cancelled before its turn
			r.log.ErrorContext(hard, "run was not started and stays queued", "run", t.id, "error", err)
		}
		return
	}
	ctx = telemetry.With(telemetry.WithTraceparent(ctx, run.Trace), slog.String("run", string(run.ID)))
	rec := newRecorder(run.ID)
	go rec.write(
		func(events []agent.Event) error {
			return r.append(hard, store.SessionLog(run.App, run.Session), events)
		},
		stop)
	res, err := r.perform(ctx, run, a, rec)
	rest, lost := rec.finish()
	if lost != nil {
		err = lost
	}
	run.Usage = res.Usage
	status, why := agent.Completed, err
	if err == nil {
		run.Output = &res.Output
	} else {
		status, why = outcome(err, context.Cause(ctx))
	}
	end := func(ctx context.Context) error {
		_, err := r.end(ctx, run, status, why, rest)
		return err
	}
	err = r.retry(hard, end)
	if err != nil && agent.KindOf(err) == agent.Invalid { // what the code returned cannot be stored
		run.Output, rest = nil, nil
		status, why = agent.RunFailed, err
		err = r.retry(hard, end)
	}
	if err != nil {
		r.log.ErrorContext(hard, "the end of a run could not be written", "run", run.ID, "error", err)
	}
}

// outcome returns how a run ends whose call failed. What stopped the call explains more than what the call says of it.
func outcome(err, cause error) (agent.RunStatus, error) {
	switch {
	case cause == nil:
		return agent.RunFailed, err
	case agent.KindOf(cause) == agent.Cancelled:
		return agent.RunCancelled, cause
	}
	return agent.RunFailed, cause
}

// begin makes a queued run Running. That is durable before any of its code runs, so that no run is executed twice.
func (r *Runtime) begin(hard context.Context, t *task) (run agent.Run, err error) {
	err = r.retry(hard, func(ctx context.Context) error {
		now := time.Now().UTC()
		started := []agent.Event{{Kind: agent.EventRunStarted, Run: t.id, Time: now}}
		var events []agent.Event
		run, events, err = r.store.UpdateRun(ctx, t.app, t.id, started, func(stored *agent.Run) error {
			if stored.Status != agent.Queued {
				return agent.Errorf(agent.Conflict, "run %s is %s", stored.ID, stored.Status)
			}
			stored.Status, stored.Started = agent.Running, now
			return nil
		})
		if err == nil {
			r.feeds.publish(store.SessionLog(run.App, run.Session), events)
		}
		return err
	})
	return run, err
}

// perform runs the code in a cell.
func (r *Runtime) perform(ctx context.Context, run agent.Run, a admission, rec *recorder) (host.Result, error) {
	if a.err != nil {
		return host.Result{}, r.stats.failed(a.err)
	}
	j := r.jobOf(agent.UseRun, a.record, a.hold.Limits)
	j.hold = a.hold
	j.Session, j.Run, j.plugin, j.function, j.input = run.Session, run.ID, run.Plugin, run.Function, run.Input
	j.sinks = sinks{rec.line, rec.emit, rec.event}
	var res host.Result
	err := r.inCell(ctx, j, func(ctx context.Context, c host.Call) (agent.Usage, error) {
		var err error
		res, err = r.cells.Call(ctx, c)
		res.Output.Body = j.secrets.Bytes(res.Output.Body)
		return res.Usage, err
	})
	if err == nil {
		return res, nil
	}
	if agent.KindOf(err) == agent.Internal && ctx.Err() == nil {
		r.log.ErrorContext(ctx, "run", "agent", run.Agent, "error", err)
	}
	return res, err
}

// end writes the last events of a run together with its terminal status, and tells everybody. run is the run as it was
// read; when it has changed since, nothing is written and the error is a Conflict.
func (r *Runtime) end(ctx context.Context, run agent.Run, status agent.RunStatus, why error, rest []agent.Event) (agent.Run, error) {
	was := run.Status
	run.Status, run.Error, run.Ended = status, clipped(agent.ErrorOf(why)), time.Now().UTC()
	rest = append(rest[:len(rest):len(rest)], lastEvent(run))
	run, events, err := r.store.UpdateRun(ctx, run.App, run.ID, rest, func(stored *agent.Run) error {
		if stored.Status != was {
			return agent.Errorf(agent.Conflict, "run %s is %s", stored.ID, stored.Status)
		}
		*stored = run
		return nil
	})
	if err != nil {
		return agent.Run{}, err
	}
	r.stats.ended(status)
	r.feeds.publish(store.SessionLog(run.App, run.Session), events)
	r.watches.ended(run.ID)
	return run, nil
}

// What a run or a log keeps of an error, in bytes: its author may make it as long as memory allows.
const (
	maxMessage = 8 << 10
	maxStack   = 16 << 10
)

func clipped(e *agent.RunError) *agent.RunError {
	if e != nil {
		e.Msg, e.Stack, e.Hint, e.Pos.File = clip(e.Msg, maxMessage), clip(e.Stack, maxStack), clip(e.Hint, maxMessage), clip(e.Pos.File, maxName)
	}
	return e
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "..."
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
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-hard.Done():
			timer.Stop()
		}
	}
}

// passing reports whether an error of the store may go away.
func passing(err error) bool {
	switch agent.KindOf(err) {
	case agent.Unavailable, agent.Internal, agent.Exhausted:
		return true
	default:
		return false
	}
}
