package runtime

import (
	"context"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/host/grant"
	"github.com/skep-dev/skep/host/grant/emit"
	"github.com/skep-dev/skep/host/grant/http"
	"github.com/skep-dev/skep/host/grant/log"
)

// CallRequest asks for one stateless call. Limits may lower what the agent has, never raise it.
type CallRequest struct {
	Agent, Function string
	Input           agent.Payload
	Limits          agent.Limits
}

// Call runs one function in a fresh cell. Its console output, its events and what it did not catch go to the agent's log,
// soon but not before Call returns. The usage is filled in even when the call failed.
func (r *Runtime) Call(ctx context.Context, app agent.App, req CallRequest) (host.Result, error) {
	return r.call(ctx, app, req, 0)
}

func (r *Runtime) call(ctx context.Context, app agent.App, req CallRequest, depth int) (host.Result, error) {
	if req.Function == "" {
		return host.Result{}, r.stats.failed(agent.Errorf(agent.Invalid, "a call must name a function"))
	}
	rec, limits, err := r.admit(ctx, app, req.Agent, req.Limits)
	if err != nil {
		return host.Result{}, r.stats.failed(err)
	}
	d := r.door(rec.agent, limits, depth, r.logbook.sinks(rec.agent))
	done := r.stats.begin()
	res, err := r.cells.Call(ctx, host.Call{
		Plugin: rec.plugin.Digest, Tenant: app, Function: req.Function, Input: req.Input,
		Config: rec.agent.Config, Limits: limits, Calls: d.Call, Depth: depth,
	})
	done()
	return res, r.ended(ctx, rec.agent, err)
}

// Fetch gives an HTTP request to an agent's fetch handler, in a fresh cell.
func (r *Runtime) Fetch(ctx context.Context, app agent.App, name string, req host.Request) (host.Response, error) {
	rec, limits, err := r.admit(ctx, app, name, agent.Limits{})
	if err != nil {
		return host.Response{}, r.stats.failed(err)
	}
	d := r.door(rec.agent, limits, 0, r.logbook.sinks(rec.agent))
	done := r.stats.begin()
	res, _, err := r.cells.Fetch(ctx, host.Call{
		Plugin: rec.plugin.Digest, Tenant: app, Config: rec.agent.Config, Limits: limits, Calls: d.Call,
	}, req)
	done()
	return res, r.ended(ctx, rec.agent, err)
}

// admit finds the agent and settles its limits.
func (r *Runtime) admit(ctx context.Context, app agent.App, name string, asked agent.Limits) (record, agent.Limits, error) {
	rec, err := r.records.resolve(ctx, r.store, app, name)
	if err != nil {
		return record{}, agent.Limits{}, err
	}
	limits := rec.agent.Limits.Or(r.opts.Limits)
	if err := asked.Check(limits); err != nil {
		return record{}, agent.Limits{}, err
	}
	return rec, asked.Or(limits), nil
}

// ended counts a stateless call's outcome, and tells the agent's author of what its code did not catch.
func (r *Runtime) ended(ctx context.Context, a *agent.Agent, err error) error {
	if err == nil {
		return nil
	}
	switch e := agent.AsError(err); e.Kind {
	case agent.Failed, agent.Exhausted:
		r.logbook.failure(a, e)
	case agent.Internal:
		r.log.ErrorContext(ctx, "call", "app", a.App, "agent", a.Name, "error", err)
	default:
	}
	return r.stats.failed(err)
}

// CodeRequest asks to run code once, without an agent: it is granted nothing.
type CodeRequest struct {
	Source   agent.Source
	Function string
	Input    agent.Payload
	Config   map[string]string
	Limits   agent.Limits
}

// CodeResult is what the code returned, said and cost.
type CodeResult struct {
	Output agent.Payload
	Logs   []agent.LogLine
	Usage  agent.Usage
}

// Code runs code once and keeps nothing of it. The logs and the usage are filled in even when it failed.
func (r *Runtime) Code(ctx context.Context, app agent.App, req CodeRequest) (CodeResult, error) {
	if err := req.Limits.Check(r.opts.MaxLimits); err != nil {
		return CodeResult{}, r.stats.failed(err)
	}
	limits := req.Limits.Or(r.opts.Limits)
	var lines lineList
	d := grant.NewDoor(limits, map[string]grant.Handler{
		abi.CallLog:  log.New(limits.Log, lines.add),
		abi.CallEmit: emit.Refused("code that runs once"),
		abi.CallHTTP: http.New("code that runs once"),
	}, &grant.Options{Log: r.log})
	done := r.stats.begin()
	res, err := r.cells.Eval(ctx, req.Source, host.Call{
		Tenant: app, Function: req.Function, Input: req.Input, Config: req.Config, Limits: limits, Calls: d.Call,
	})
	done()
	if err != nil {
		if agent.KindOf(err) == agent.Internal {
			r.log.ErrorContext(ctx, "code", "app", app, "error", err)
		}
		err = r.stats.failed(err)
	}
	return CodeResult{Output: res.Output, Logs: lines.take(), Usage: res.Usage}, err
}
