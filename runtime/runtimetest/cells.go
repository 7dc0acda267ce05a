// Package runtimetest has cells for tests: Go functions, called by name, in place of WebAssembly. They are bound by time,
// input, output and ctx as real ones are, and reach their host through the same door.
package runtimetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
)

// Func is a function of an agent. It returns soon after ctx ends. A plain error counts as one that the agent's code threw.
type Func func(ctx context.Context, c host.Call) (agent.Payload, error)

// Fetch is an agent's fetch handler.
type Fetch func(ctx context.Context, c host.Call, req host.Request) (host.Response, error)

// Cells runs functions. Any code may be prepared, but for code that contains SyntaxError; it has all the functions. The
// fields must not change while cells run.
type Cells struct {
	Funcs   map[string]Func
	Any     Func  // every other function; nil means there are none
	OnFetch Fetch // nil means the code has no fetch handler
}

// SyntaxError in a source makes Prepare refuse it, with the position.
const SyntaxError = "syntax error!"

// New returns cells that have the functions.
func New(funcs map[string]Func) *Cells { return &Cells{Funcs: funcs} }

// Prepare implements runtime.Cells.
func (c *Cells) Prepare(ctx context.Context, _ host.Who, src agent.Source, progress func(host.Progress)) (host.Prepared, error) {
	body := src.Files[src.Main]
	if at := bytes.Index(body, []byte(SyntaxError)); at >= 0 {
		line := 1 + bytes.Count(body[:at], []byte("\n"))
		column := at - bytes.LastIndexByte(body[:at], '\n')
		return host.Prepared{}, &agent.Error{
			Kind: agent.Invalid, Msg: "syntax error", Pos: agent.Pos{File: src.Main, Line: line, Column: column},
		}
	}
	if progress != nil {
		progress(host.Progress{Stage: "compile", Done: int64(len(body)), Total: int64(len(body))})
	}
	return host.Prepared{Exports: slices.Sorted(maps.Keys(c.Funcs)), Fetch: c.OnFetch != nil}, ctx.Err()
}

// Call implements runtime.Cells.
func (c *Cells) Call(ctx context.Context, call host.Call) (host.Result, error) {
	fn, ok := c.Funcs[call.Function]
	if !ok && c.Any != nil {
		fn, ok = c.Any, true
	}
	if !ok {
		return host.Result{}, agent.Errorf(agent.NotFound, "the code has no function %q", call.Function)
	}
	limits := call.Limits.Or(agent.DefaultLimits())
	if n := int64(len(call.Input.Body)); n > limits.Input {
		return host.Result{}, agent.Exceeded(agent.LimitInput, "the input has %d bytes, more than %d", n, limits.Input)
	}
	start := time.Now()
	var calls, logged atomic.Int64
	ask := call.Calls
	call.Calls = func(ctx context.Context, name string, in []byte) ([]byte, error) {
		var line abi.Log
		if name != abi.CallLog {
			calls.Add(1)
		} else if json.Unmarshal(in, &line) == nil {
			logged.Add(int64(len(line.Message)) + 1)
		}
		if ask == nil {
			return nil, agent.Errorf(agent.Denied, "host call %q is not granted here", name)
		}
		return ask(ctx, name, in)
	}
	out, err := within(ctx, limits, func(ctx context.Context) (agent.Payload, error) { return fn(ctx, call) })
	if n := int64(len(out.Body)); err == nil && n > limits.Output {
		err = agent.Exceeded(agent.LimitOutput, "the output has %d bytes, more than %d", n, limits.Output)
	}
	res := host.Result{Usage: agent.Usage{
		Wall: time.Since(start), CPU: time.Since(start), Fuel: 1, Memory: 1 << 16, In: int64(len(call.Input.Body)),
		HostCalls: calls.Load(), Log: logged.Load(),
	}}
	if err == nil {
		res.Output, res.Usage.Out = out, int64(len(out.Body))
	}
	return res, err
}

// Fetch implements runtime.Cells.
func (c *Cells) Fetch(ctx context.Context, call host.Call, req host.Request) (host.Response, agent.Usage, error) {
	if c.OnFetch == nil {
		return host.Response{}, agent.Usage{}, agent.Errorf(agent.NotFound, "the code has no fetch handler")
	}
	start := time.Now()
	res, err := within(ctx, call.Limits.Or(agent.DefaultLimits()), func(ctx context.Context) (host.Response, error) {
		return c.OnFetch(ctx, call, req)
	})
	return res, agent.Usage{Wall: time.Since(start)}, err
}

// Eval implements runtime.Cells.
func (c *Cells) Eval(ctx context.Context, src agent.Source, call host.Call) (host.Result, error) {
	if _, err := c.Prepare(ctx, host.Who{App: call.Tenant}, src, nil); err != nil {
		return host.Result{}, err
	}
	if call.Function == "" {
		call.Function = "default"
	}
	return c.Call(ctx, call)
}

// Bundle implements runtime.Cells.
func (c *Cells) Bundle(ctx context.Context, _ host.Who, src agent.Source) (host.Bundled, error) {
	return host.NewBundled(src.Files[src.Main], nil), nil
}

// within runs fn for at most the wall time, and tells its end as a host does.
func within[T any](ctx context.Context, limits agent.Limits, fn func(context.Context) (T, error)) (out T, err error) {
	inner, cancel := context.WithTimeout(ctx, limits.Wall)
	defer cancel()
	out, err = fn(inner)
	var typed *agent.Error
	switch {
	case err == nil, errors.As(err, &typed):
	case ctx.Err() != nil:
		err = agent.Wrap(agent.Cancelled, ctx.Err(), "the call was cancelled")
	case inner.Err() != nil:
		err = agent.Exceeded(agent.LimitWall, "the call took longer than %s", limits.Wall)
	default:
		err = &agent.Error{Kind: agent.Failed, Msg: err.Error(), Pos: agent.Pos{File: "main.ts", Line: 1}, Stack: "at main.ts:1"}
	}
	return out, err
}

// Log writes a line to the call's console.
func Log(ctx context.Context, c host.Call, level agent.LogLevel, msg string) error {
	return ask(ctx, c, abi.CallLog, abi.Log{Level: level.String(), Message: msg}, nil)
}

// Emit emits an event.
func Emit(ctx context.Context, c host.Call, name string, data any) error {
	b, err := json.Marshal(data)
	if err != nil {
		return err
	}
	return ask(ctx, c, abi.CallEmit, abi.Emit{Name: name, Data: b}, nil)
}

// CallAgent calls a function of another agent.
func CallAgent(ctx context.Context, c host.Call, name, function string, in agent.Payload) (agent.Payload, error) {
	var out abi.AgentResult
	err := ask(ctx, c, abi.CallAgent, abi.AgentCall{Agent: name, Function: function, Type: in.Type, Input: in.Body}, &out)
	return agent.Payload{Type: out.Type, Body: out.Output}, err
}

func ask(ctx context.Context, c host.Call, name string, in, out any) error {
	b, err := json.Marshal(in)
	if err != nil {
		return err
	}
	if b, err = c.Calls(ctx, name, b); err != nil || out == nil {
		return err
	}
	return json.Unmarshal(b, out)
}
