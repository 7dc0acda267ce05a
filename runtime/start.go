package runtime

import (
	"context"
	"slices"
	"time"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/grant"
	"github.com/skep-dev/skep/runtime/durable"
	"github.com/skep-dev/skep/store/instance"
)

// starts returns the handler by which code of an agent begins runs: in the commit of its own turn, so that a run is begun when, and only when,
// that is. script says that the code is a script of code mode; name says who begins the run, what it is called, and in which turn.
func (r *Runtime) starts(auth *grant.Authority, caller string, script bool, name func(context.Context, *message) (*durable.Turn, error)) grant.Handler {
	return grant.JSON(func(ctx context.Context, in abi.Start) (abi.Started, error) {
		if in.Agent == "" {
			in.Agent = caller
		}
		if in.Agent != caller {
			if err := auth.CallAgent(ctx, in.Agent); err != nil {
				return abi.Started{}, err
			}
		}
		m := message{Kind: messageStart, Function: in.Function, Type: in.Type, Body: in.Input}
		if in.Code != "" {
			if script {
				return abi.Started{}, agent.Errorf(agent.Denied, "a script cannot begin another")
			}
			if err := r.prepareCode(ctx, auth.App, caller, in, &m); err != nil {
				return abi.Started{}, err
			}
		}
		t, err := name(ctx, &m)
		if err != nil {
			return abi.Started{}, err
		}
		if in.Code != "" {
			in.Key = string(m.Of) // so that it waits for nobody
		}
		if in.Key == "" {
			in.Key = defaultKey
			if in.Agent == caller {
				in.Key = t.ID().Key
			}
		}
		return abi.Started{Run: string(m.Of), Session: string(m.Of)}, r.startFrom(ctx, t, in.Agent, in.Key, m)
	})
}

// prepareCode checks a script that code of an agent wants run, and keeps it.
func (r *Runtime) prepareCode(ctx context.Context, app agent.App, caller string, in abi.Start, m *message) error {
	if in.Agent != caller || in.Key != "" || in.Function != "" {
		return agent.Errorf(agent.Invalid, "a script is run for the agent itself, in an instance of its own: it takes no agent, key or function")
	}
	req := CodeRun{Agent: caller, Text: in.Code, Tools: in.Tools}
	src, err := r.codeSource(ctx, app, req)
	if err != nil {
		return err
	}
	m.Function, m.Tools = codeFunction, slices.Clone(in.Tools)
	m.Code, err = r.keepCode(ctx, src)
	return err
}

// inTurns names runs that turns begin: nobody waits for them.
func inTurns(p *place) func(context.Context, *message) (*durable.Turn, error) {
	return func(ctx context.Context, m *message) (*durable.Turn, error) {
		m.Of = agent.NewRunID(time.Now())
		return p.turn(ctx)
	}
}

// startFrom begins a run of an instance in a turn of another, or of the same.
func (r *Runtime) startFrom(ctx context.Context, t *durable.Turn, name, key string, m message) error {
	if m.Type == "" {
		m.Type = agent.TypeJSON
	}
	id, rec, err := r.instanceOf(ctx, t.ID().App, name, key)
	if err != nil {
		return err
	}
	if m.Code == "" {
		if m.Code, err = r.workerCode(ctx, rec, m.Function); err != nil {
			return err
		}
		if m.Code != "" {
			m.Function = codeFunction
		}
	}
	if m.Function == "" {
		if m.Function, err = defaultFunction(rec.plugin); err != nil {
			return err
		}
	}
	limits := rec.agent.Limits.Or(r.opts.Limits)
	if size := int64(len(m.Body)); size > limits.Input {
		return agent.Exceeded(agent.LimitInput, "the input has %d bytes, more than %d", size, limits.Input)
	}
	if err := checkNames(m.Function, key, m.Type); err != nil {
		return err
	}
	if err := r.mayQueue(rec, limits, agent.Payload{Body: m.Body}); err != nil {
		return r.stats.failed(err)
	}
	if id == t.ID() {
		return r.makeRun(ctx, t, rec, m)
	}
	return r.post(ctx, t, id, m)
}

// makeRun makes a run that code has begun, in a session of its own.
func (r *Runtime) makeRun(ctx context.Context, t *durable.Turn, rec record, m message) error {
	now := time.Now().UTC()
	run := agent.Run{
		App: t.ID().App, ID: m.Of, Session: agent.SessionID(m.Of), Agent: rec.agent.Name, Plugin: rec.plugin.Digest, Function: m.Function,
		Input: agent.Payload{Type: m.Type, Body: m.Body}, Status: agent.Queued, Created: now,
	}
	if m.Code != "" {
		run.Plugin, run.Code, run.Tools = m.Code, true, m.Tools
	}
	if m.Run != "" {
		run.Parent = &agent.RunParent{Run: m.Run, Call: m.Call}
	}
	session := &agent.Session{App: run.App, ID: run.Session, Agent: run.Agent, Key: t.ID().Key, Created: now}
	if err := t.ChangeRun(ctx, instance.RunEdit{Run: run, Session: session}); err != nil {
		return err
	}
	return t.Append(ctx, instance.SessionLog(run.Session), agent.Event{
		Kind: agent.EventRunQueued, Run: run.ID, Time: now, Data: encode(map[string]string{"function": run.Function}),
	})
}
