package runtime

import (
	"context"
	"io"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/host/grant"
	"github.com/skep-dev/skep/host/grant/reply"
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
	j := r.jobOf(agent.UseCall, rec, limits)
	j.function, j.input, j.depth, j.sinks = req.Function, req.Input, depth, r.logbook.sinks(rec.agent)
	var res host.Result
	err = r.inCell(ctx, j, func(ctx context.Context, c host.Call) (agent.Usage, error) {
		var err error
		res, err = r.cells.Call(ctx, c)
		res.Output.Body = j.secrets.Bytes(res.Output.Body)
		return res.Usage, err
	})
	return res, r.ended(ctx, rec.agent, err)
}

// Fetch gives an HTTP request to an agent's fetch handler, in a fresh cell.
func (r *Runtime) Fetch(ctx context.Context, app agent.App, name string, req host.Request) (host.Response, error) {
	return r.fetch(ctx, app, name, req, 0, nil)
}

// FetchTo is Fetch for a caller who takes a body in pieces. begin is called when the handler has answered with a stream, and gets
// the response without its body, and the body, which ends before FetchTo returns; what FetchTo returns then is of no use.
// The caller reads the body beside FetchTo, and ends ctx when it wants no more of it.
func (r *Runtime) FetchTo(ctx context.Context, app agent.App, name string, req host.Request, begin func(host.Response, io.Reader)) (host.Response, error) {
	return r.fetch(ctx, app, name, req, 0, begin)
}

func (r *Runtime) fetch(
	ctx context.Context, app agent.App, name string, req host.Request, depth int, begin func(host.Response, io.Reader),
) (host.Response, error) {
	rec, limits, err := r.admit(ctx, app, name, agent.Limits{})
	if err != nil {
		return host.Response{}, r.stats.failed(err)
	}
	j := r.jobOf(agent.UseFetch, rec, limits)
	j.sinks, j.in, j.depth = r.logbook.sinks(rec.agent), int64(len(req.Body)), depth
	cleanHeader := func(h [][2]string) {
		for i := range h {
			h[i][1] = j.secrets.String(h[i][1])
		}
	}
	if begin != nil {
		j.reply = reply.New(func(head abi.HTTPReply, body io.Reader) {
			cleanHeader(head.Header)
			begin(host.Response{Status: head.Status, Header: head.Header}, j.secrets.Scrubber().Reader(body))
		})
	}
	var res host.Response
	err = r.inCell(ctx, j, func(ctx context.Context, c host.Call) (usage agent.Usage, err error) {
		res, usage, err = r.cells.Fetch(ctx, c, req)
		res.Body = j.secrets.Bytes(res.Body)
		cleanHeader(res.Header)
		return usage, err
	})
	if j.reply != nil {
		j.reply.Close(err)
	}
	return res, r.ended(ctx, rec.agent, err)
}

// admit finds the agent, which must have code, and settles its limits.
func (r *Runtime) admit(ctx context.Context, app agent.App, name string, asked agent.Limits) (record, agent.Limits, error) {
	rec, limits, err := r.admitCode(ctx, app, name, asked)
	if err == nil && rec.plugin == noPlugin {
		err = errNoCode(rec.agent)
	}
	return rec, limits, err
}

// admitCode is admit for scripts that need no code of their agent's.
func (r *Runtime) admitCode(ctx context.Context, app agent.App, name string, asked agent.Limits) (record, agent.Limits, error) {
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

// ended tells an agent's author of what its code did not catch.
func (r *Runtime) ended(ctx context.Context, a *agent.Agent, err error) error {
	if err == nil {
		return nil
	}
	switch e := agent.AsError(err); e.Kind {
	case agent.Failed, agent.Exhausted:
		if e.Limit != agent.LimitQuota { // of which there may be many, and the caller knows
			r.logbook.failure(a, e)
		}
	case agent.Internal:
		r.log.ErrorContext(ctx, "call", "app", a.App, "agent", a.Name, "error", err)
	default:
	}
	return err
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
	info, err := r.App(ctx, app)
	if err != nil {
		return CodeResult{}, r.stats.failed(err)
	}
	limits := req.Limits.Or(r.opts.Limits)
	var lines lineList
	j := job{
		Subject: grant.Subject{App: app}, kind: agent.UseCode, function: req.Function, input: req.Input, config: req.Config, limits: limits,
		sinks: sinks{line: lines.add}, weight: info.Weight, appQuota: info.Quota,
	}
	var res host.Result
	err = r.inCell(ctx, j, func(ctx context.Context, c host.Call) (agent.Usage, error) {
		var err error
		res, err = r.cells.Eval(ctx, req.Source, c)
		return res.Usage, err
	})
	if err != nil && agent.KindOf(err) == agent.Internal {
		r.log.ErrorContext(ctx, "code", "app", app, "error", err)
	}
	return CodeResult{Output: res.Output, Logs: lines.take(), Usage: res.Usage}, err
}
