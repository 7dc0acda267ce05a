package runtime

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/internal/phrase"
	"github.com/skep-dev/skep/runtime/durable"
	"github.com/skep-dev/skep/runtime/journal"
	"github.com/skep-dev/skep/store/instance"
)

// Bounds of events from outside.
const (
	maxEventData = 64 << 10
	maxEvents    = 1000 // of one run that no call got yet
)

// SendEvent brings an event from outside to runs that wait for it, or will: each keeps it until it asks. The answer is the run as it
// is then. Repeated with the same once-key it is kept once, and answered so also when the run has ended since; "" is none. Else a run that
// has ended is a Conflict.
func (r *Runtime) SendEvent(ctx context.Context, app agent.App, id agent.RunID, eventType, onceKey string, data json.RawMessage) (agent.Run, error) {
	switch {
	case eventType == "" || len(eventType) > maxName:
		return agent.Run{}, agent.Errorf(agent.Invalid, "an event's type has 1 to %d bytes", maxName)
	case len(onceKey) > maxName:
		return agent.Run{}, agent.Errorf(agent.Invalid, "an event's once-key has up to %d bytes", maxName)
	case len(data) > maxEventData:
		return agent.Run{}, agent.Errorf(agent.Invalid, "the event's data has %d bytes, more than %d", len(data), maxEventData)
	case len(data) > 0 && !json.Valid(data):
		return agent.Run{}, agent.Errorf(agent.Invalid, "an event's data is a JSON value")
	}
	run, err := r.inRun(ctx, app, id, func(ctx context.Context, t *durable.Turn, _ agent.Run) error {
		v, err := r.viewOf(ctx, t, id)
		if err != nil {
			return err
		}
		if v.Has(onceKey) {
			return nil
		}
		waiting := 0
		for _, e := range v.Events {
			if e.By == 0 {
				waiting++
			}
		}
		if waiting >= maxEvents || v.Full() != nil {
			return agent.Errorf(agent.Exhausted, "run %s has %d events that it has not asked for", id, waiting)
		}
		e := journal.Entry{Kind: journal.Event, Name: eventType, ID: onceKey, Out: append([]byte{}, data...), Time: time.Time{}}
		return r.tellRun(ctx, t, app, id, []journal.Entry{e}, []agent.Event{{Kind: agent.EventReceived, Name: eventType, Data: data}})
	})
	if agent.KindOf(err) == agent.Conflict && onceKey != "" {
		if run, came := r.cameBefore(ctx, app, id, onceKey); came {
			return run, nil
		}
	}
	return run, err
}

// cameBefore returns a run that has ended, when its journal has an event of that once-key.
func (r *Runtime) cameBefore(ctx context.Context, app agent.App, id agent.RunID, onceKey string) (agent.Run, bool) {
	run, err := r.store.Run(ctx, app, id)
	if err != nil || !run.Status.Terminal() {
		return run, false
	}
	came := false
	err = r.eachEntryOf(ctx, run, func(e journal.Entry) error {
		came = came || e.Kind == journal.Event && e.ID == onceKey
		return nil
	})
	return run, came && err == nil
}

func errEnded(run agent.Run) error {
	return agent.Errorf(agent.Conflict, "run %s has ended: it is %s", run.ID, run.Status)
}

// inRun does something with a run that has not ended, in a turn of its instance, and returns the run as it is then.
func (r *Runtime) inRun(ctx context.Context, app agent.App, id agent.RunID, fn func(context.Context, *durable.Turn, agent.Run) error) (agent.Run, error) {
	run, err := r.store.Run(ctx, app, id)
	if err != nil {
		return agent.Run{}, err
	}
	if run.Status.Terminal() {
		return agent.Run{}, errEnded(run)
	}
	of, err := r.instanceOfRun(ctx, run)
	if err != nil {
		return agent.Run{}, err
	}
	t, err := r.keeper.Enter(ctx, of, durable.Entry{})
	if err != nil {
		return agent.Run{}, err
	}
	defer t.Abandon()
	if run, err = r.store.Run(ctx, app, id); err != nil { // nobody else changes it now
		return agent.Run{}, err
	}
	if run.Status.Terminal() {
		return agent.Run{}, errEnded(run)
	}
	if err := fn(ctx, t, run); err != nil {
		return agent.Run{}, err
	}
	if err := r.leave(ctx, t); err != nil {
		return agent.Run{}, err
	}
	return r.store.Run(ctx, app, id)
}

// viewOf returns what is known of a run's journal: what its execution has in memory need not be committed yet.
func (r *Runtime) viewOf(ctx context.Context, t *durable.Turn, id agent.RunID) (*journal.View, error) {
	return r.readView(ctx, t.ID(), id, false)
}

// each does something with several runs, and returns them in their order. When one of the ids is not known, nothing is done.
func (r *Runtime) each(ctx context.Context, app agent.App, ids []agent.RunID, fn func(agent.RunID) (agent.Run, error)) ([]agent.Run, error) {
	for _, id := range ids {
		if _, err := r.store.Run(ctx, app, id); err != nil {
			return nil, err
		}
	}
	out := make([]agent.Run, len(ids))
	for i, id := range ids {
		var err error
		if out[i], err = fn(id); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// PauseRuns holds runs where they next come to rest, and gives up their cells; ResumeRuns lets them go on. It returns when they are held, or
// with ctx's error.
func (r *Runtime) PauseRuns(ctx context.Context, app agent.App, ids ...agent.RunID) ([]agent.Run, error) {
	return r.each(ctx, app, ids, func(id agent.RunID) (agent.Run, error) { return r.pauseRun(ctx, app, id) })
}

func (r *Runtime) pauseRun(ctx context.Context, app agent.App, id agent.RunID) (agent.Run, error) {
	for {
		var x *execution
		run, err := r.inRun(ctx, app, id, func(ctx context.Context, t *durable.Turn, run agent.Run) error {
			if x = r.executionOf(id); x != nil && !x.isDetached() && run.Status == agent.Running {
				x.pauseSoon()
				return nil
			}
			if x = nil; run.Status == agent.Paused || run.Status == agent.Uncertain {
				return nil
			}
			next := run
			next.Status, next.Wait = agent.Paused, &agent.RunWait{For: "pause"}
			if run.Wait != nil {
				next.Wait.Name = run.Wait.For
			}
			err := t.Append(ctx, instance.SessionLog(run.Session), agent.Event{Kind: agent.EventRunPaused, Run: id, Data: encode(next.Wait)})
			if err == nil {
				err = t.SetAlarm(ctx, instance.AlarmEdit{Clear: true, Alarm: instance.Alarm{Name: runAlarm + string(id)}})
			}
			if err == nil {
				err = t.ChangeRun(ctx, instance.RunEdit{From: run.Status, Run: next})
			}
			if err == nil {
				t.Then(func() { r.queue.remove([]agent.RunID{id}) })
			}
			return err
		})
		if err != nil || x == nil {
			return run, err
		}
		select {
		case <-x.ended:
		case <-x.gone:
			pause(ctx, time.Millisecond) // it is being written down, in a turn that comes before ours
		case <-ctx.Done():
			x.mu.Lock()
			x.pausing = false
			x.mu.Unlock()
			return run, ctx.Err()
		}
		if run, err = r.store.Run(ctx, app, id); err != nil || run.Status.Terminal() {
			return run, err
		}
	}
}

// pauseSoon has the run give up its cell where it next comes to rest.
func (x *execution) pauseSoon() {
	x.mu.Lock()
	x.pausing = true
	x.pokeLocked()
	x.mu.Unlock()
	x.ask()
}

// ResumeRuns lets paused runs go on.
func (r *Runtime) ResumeRuns(ctx context.Context, app agent.App, ids ...agent.RunID) ([]agent.Run, error) {
	return r.each(ctx, app, ids, func(id agent.RunID) (agent.Run, error) {
		return r.inRun(ctx, app, id, func(ctx context.Context, t *durable.Turn, run agent.Run) error {
			if run.Status != agent.Paused {
				return agent.Errorf(agent.Conflict, "run %s is %s, and not paused", id, run.Status)
			}
			next := run
			next.Status, next.Wait = agent.Queued, nil
			return t.ChangeRun(ctx, instance.RunEdit{From: run.Status, Run: next})
		})
	})
}

// TerminateRuns has runs fail where they are, so that their rollbacks run; they end as cancelled. Cancel ends them at once, without.
func (r *Runtime) TerminateRuns(ctx context.Context, app agent.App, ids ...agent.RunID) ([]agent.Run, error) {
	return r.each(ctx, app, ids, func(id agent.RunID) (agent.Run, error) {
		run, err := r.store.Run(ctx, app, id)
		if err != nil || run.Status.Terminal() {
			return run, err
		}
		if run.Status == agent.Queued && run.Lives == 0 || run.Status == agent.Uncertain {
			ended, err := r.Cancel(ctx, app, id)
			if err != nil {
				return agent.Run{}, err
			}
			return ended[0], nil
		}
		return r.inRun(ctx, app, id, func(ctx context.Context, t *durable.Turn, run agent.Run) error {
			if run.Status == agent.Paused {
				next := run
				next.Status, next.Wait = agent.Queued, nil
				if err := t.ChangeRun(ctx, instance.RunEdit{From: run.Status, Run: next}); err != nil {
					return err
				}
			}
			return r.tellRun(ctx, t, app, id, []journal.Entry{{Kind: journal.Terminate}}, nil)
		})
	})
}

// ResolveRun lets an Uncertain run go on.
func (r *Runtime) ResolveRun(ctx context.Context, app agent.App, id agent.RunID, res agent.Resolution) (agent.Run, error) {
	return r.inRun(ctx, app, id, func(ctx context.Context, t *durable.Turn, run agent.Run) error {
		if run.Status != agent.Uncertain || run.Wait == nil {
			return agent.Errorf(agent.Conflict, "run %s is %s, and has no call whose effect is not known", id, run.Status)
		}
		if res.Call != run.Wait.Call {
			return agent.Errorf(agent.Invalid, "the call whose effect is not known is %d, not %d", run.Wait.Call, res.Call)
		}
		v, err := r.viewOf(ctx, t, id)
		if err != nil {
			return err
		}
		c := v.Calls[res.Call]
		if c == nil {
			return agent.Errorf(agent.Internal, "the journal of run %s has no call %d", id, res.Call)
		}
		e, err := entryOf(res, c)
		if err != nil {
			return err
		}
		for _, packed := range journal.Pack(id, []journal.Entry{e}) {
			if err := t.Journal(ctx, packed); err != nil {
				return err
			}
		}
		next := run
		next.Status, next.Wait, next.Lost = agent.Queued, nil, 0
		return t.ChangeRun(ctx, instance.RunEdit{From: run.Status, Run: next})
	})
}

// entryOf is what the journal is told of a call.
func entryOf(res agent.Resolution, c *journal.Call) (journal.Entry, error) {
	e := journal.Entry{Kind: journal.Done, Call: res.Call, Flag: true}
	switch res.Action {
	case "retry":
		e.Kind, e.Flag = journal.Retry, false
		return e, nil
	case "fail":
		if res.Error == "" {
			res.Error = "the call failed"
		}
		e.Err = &agent.Error{Kind: agent.Failed, Msg: phrase.Clip(res.Error, maxMessage)}
		return e, nil
	case "answer":
		out, err := answerOf(c.Name, res.Output)
		if err == nil && len(out) > journal.MaxInline {
			err = agent.Errorf(agent.Invalid, "the answer has more than %d bytes", journal.MaxInline)
		}
		e.Out = out
		return e, err
	}
	return e, agent.Errorf(agent.Invalid, `what became of a call is "retry", "answer" or "fail", not %.40q`, res.Action)
}

// answerOf gives what a person says a call returned the form of its answer.
func answerOf(name string, output json.RawMessage) ([]byte, error) {
	if len(output) == 0 {
		output = json.RawMessage("null")
	}
	if !json.Valid(output) {
		return nil, agent.Errorf(agent.Invalid, "the answer is a JSON value")
	}
	switch name {
	case abi.CallTool:
		return encode(abi.ToolResult{Value: abi.Raw(output)}), nil
	case abi.CallAgent:
		return encode(abi.AgentResult{Type: agent.TypeJSON, Output: output}), nil
	case abi.CallHTTPOpen, abi.CallHTTP:
		var in struct {
			Status int             `json:"status"`
			Header [][2]string     `json:"header"`
			Body   json.RawMessage `json:"body"`
		}
		if err := json.Unmarshal(output, &in); err != nil || in.Status < 100 || in.Status > 599 {
			return nil, agent.Errorf(agent.Invalid, `the answer to a request is {"status": 200, "header": [["name", "value"]], "body": ...}`)
		}
		body := []byte(in.Body)
		var text string
		if json.Unmarshal(in.Body, &text) == nil {
			body = []byte(text)
		}
		if name == abi.CallHTTP {
			return encode(abi.HTTPResponse{Status: in.Status, Header: in.Header, Body: body}), nil
		}
		return abi.AppendHTTPHead(nil, abi.HTTPHead{Status: in.Status, Header: in.Header, End: true}, body)
	}
	return slices.Clone(output), nil
}
