package script

import (
	"context"
	"encoding/json"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
)

// Calls answers what a script asks of its host, as package abi names and spells it. It runs on many goroutines at once.
type Calls func(ctx context.Context, name string, in []byte) ([]byte, error)

// Log takes a line of console output, as soon as it is written.
type Log func(level agent.LogLevel, line string)

// Call is one call of a function.
type Call struct {
	Tenant   agent.App
	Agent    string // of the tenant; see cell.Env
	Weight   int    // of the tenant
	Function string // one of Exports
	Input    agent.Payload
	Config   map[string]string
	Limits   agent.Limits // zero fields mean the defaults
	Calls    Calls        // nil refuses every call
	Log      Log          // nil drops the lines
	Now      func() time.Time
	Random   io.Reader
	Waiting  *Waiting // for Run and RunBundle; nil means that the call is never suspended
}

// Request and Response are an HTTP exchange with a fetch handler.
type Request struct {
	Method string
	URL    string
	Header [][2]string
	Body   []byte
}

type Response struct {
	Status int         `json:"status"`
	Header [][2]string `json:"header"`
	Body   []byte      `json:"-"`
}

// LoadOptions is for the time in which a module is evaluated.
type LoadOptions struct {
	Env cell.Env // whose turn it is, limits, and where console output goes
}

// Agent is a script, bundled and loaded into an image. It is safe for concurrent use.
type Agent struct {
	engine  *Engine
	image   *cell.Image
	source  *SourceMap
	exports []string
	fetch   bool
}

// Load bundles src and evaluates it once. What its top level leaves behind is where each call begins; so timers, requests
// and randomness are refused to it. Close the agent.
func (e *Engine) Load(ctx context.Context, src agent.Source, o *LoadOptions) (*Agent, error) {
	if o == nil {
		o = &LoadOptions{}
	}
	b, err := MakeBundle(ctx, src, &e.opts.Bundle)
	if err != nil {
		return nil, err
	}
	a := &Agent{engine: e, source: b.Map}
	env := o.Env
	env.Limits = limits(env.Limits)
	repeatable(&env)
	a.image, err = e.base.Extend(ctx, env, func(_ context.Context, c *cell.Cell) error {
		v := &vm{cell: c, h: &e.handles}
		c.Guest = v
		defer v.land()
		if err := v.evaluate(b); err != nil {
			return err
		}
		a.exports, a.fetch = v.loaded.Exports, v.loaded.Fetch
		v.settleMemory()
		return v.err
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(a.exports)
	return a, nil
}

// Exports lists the functions that a caller may name, and the handlers that only the host calls (abi.Handler), sorted. "initialState" is
// among them when the code has one, in whatever form.
func (a *Agent) Exports() []string { return a.exports }

// HasFetch reports whether the default export has a fetch handler.
func (a *Agent) HasFetch() bool { return a.fetch }

// Size returns about how much memory the agent keeps.
func (a *Agent) Size() int64 { return a.image.Size() + int64(a.source.Size()) }

// Cost returns what evaluating the module has cost.
func (a *Agent) Cost() agent.Usage { return a.image.Cost() }

// Close frees the agent's image. Calls under way end as they would.
func (a *Agent) Close() error { return a.image.Close() }

// Call runs a function in a fresh cell. The usage counts also when the call failed.
func (a *Agent) Call(ctx context.Context, call Call) (agent.Payload, agent.Usage, error) {
	call.Waiting = nil
	res, err := a.Run(ctx, call)
	return res.Output, res.Usage, err
}

// Fetch answers an HTTP request with the agent's fetch handler. Of call, Function and Input mean nothing.
func (a *Agent) Fetch(ctx context.Context, call Call, req Request) (Response, agent.Usage, error) {
	if !a.fetch {
		return Response{}, agent.Usage{}, &agent.Error{Kind: agent.NotFound, Msg: "the agent answers no HTTP requests",
			Hint: "give its default export a method fetch(request) that returns a Response"}
	}
	call.Waiting = nil
	var out Response
	usage, err := a.engine.run(ctx, a.image, &a.engine.handles, a.source, call, func(v *vm) error {
		if err := v.cell.In(len(req.Body)); err != nil {
			return err
		}
		b, err := json.Marshal(head{Method: req.Method, URL: req.URL, Header: req.Header})
		if err != nil {
			return agent.Wrap(agent.Invalid, err, "the request cannot be written as JSON")
		}
		v.begin(kindFetch, v.newText(string(b)), v.newBytes(req.Body), v.newConfig(call.Config))
		if err := v.drive(v.hasEnded, neverEnds); err != nil {
			return err
		}
		out = *v.response
		return nil
	})
	return out, usage, err
}

// Eval runs src once, in a cell of its own that is thrown away: no image is made, and its top level may do all that a
// call may. An empty function means the default export: called when it is a function, else its value.
func (e *Engine) Eval(ctx context.Context, src agent.Source, call Call) (agent.Payload, agent.Usage, error) {
	b, err := e.Bundle(ctx, src)
	if err != nil {
		return agent.Payload{}, agent.Usage{}, err
	}
	return e.EvalBundle(ctx, b, call)
}

// Bundle is the part of Eval that is not metered: MakeBundle with the engine's options.
func (e *Engine) Bundle(ctx context.Context, src agent.Source) (*Bundle, error) {
	return MakeBundle(ctx, src, &e.opts.Bundle)
}

// EvalBundle is the rest of Eval.
func (e *Engine) EvalBundle(ctx context.Context, b *Bundle, call Call) (agent.Payload, agent.Usage, error) {
	call.Waiting = nil
	res, err := e.RunBundle(ctx, b, call)
	return res.Output, res.Usage, err
}

// run gives fn the guest of a fresh cell of image.
func (e *Engine) run(ctx context.Context, image *cell.Image, h *handles, source *SourceMap, call Call, fn func(*vm) error) (agent.Usage, error) {
	env := cell.Env{
		Tenant: call.Tenant, Agent: call.Agent, Weight: call.Weight, Limits: limits(call.Limits), Calls: call.Calls, Log: call.Log, Now: call.Now, Random: call.Random,
	}
	c, before, err := e.open(ctx, image, env, call.Waiting)
	if err != nil {
		return agent.Usage{}, err
	}
	defer c.Close()
	v := &vm{cell: c, h: h, source: source}
	if call.Waiting != nil {
		v.rest = newRest(ctx, call.Waiting)
	}
	c.Guest = v
	if before != nil {
		v.resume(before)
	}
	v.fitStack()
	err = v.named(fn(v))
	v.land()
	return c.Usage(), err
}

// open makes the cell of a call: a fresh one, or the one that was suspended.
func (e *Engine) open(ctx context.Context, image *cell.Image, env cell.Env, w *Waiting) (*cell.Cell, *saved, error) {
	if w == nil || w.Resume == nil {
		c, err := image.Cell(ctx, env)
		return c, nil, err
	}
	s, err := readSaved(w.Resume)
	if err != nil {
		return nil, nil, err
	}
	c, err := image.Restore(ctx, env, s.memory)
	return c, s, err
}

const neverEnds = "the function never returns: it waits for nothing"

// head is a request without its body, as the prelude takes it.
type head struct {
	Method string      `json:"method"`
	URL    string      `json:"url"`
	Header [][2]string `json:"header,omitempty"`
}

// enterFunction calls a function of the loaded module.
func (v *vm) enterFunction(call Call) error {
	if err := v.cell.In(len(call.Input.Body)); err != nil {
		return err
	}
	in := call.Input
	f := formOf(in)
	if in.Type == "" && len(in.Body) == 0 {
		f = formJSON // of nothing, which is undefined
	}
	if f == formJSON && len(in.Body) > 0 && !json.Valid(in.Body) {
		return agent.Errorf(agent.Invalid, "the input says that it is JSON, and is not")
	}
	v.begin(kindCall, v.newText(call.Function), v.newNumber(float64(f)), v.newBody(f, in.Body), v.newConfig(call.Config))
	return nil
}

// begin hands a call to the prelude. It frees args.
func (v *vm) begin(kind int, args ...uint64) {
	v.await(v.entered(kind, args...))
	for _, a := range args {
		v.call("qjs_free_value", a)
	}
}

// newConfig makes the text of a call's settings, empty when there are none.
func (v *vm) newConfig(m map[string]string) uint64 {
	if len(m) == 0 {
		return v.newText("")
	}
	b, _ := json.Marshal(m) // strings always marshal
	return v.newText(string(b))
}

func noFunction(name string, exports []string) error {
	e := &agent.Error{Kind: agent.NotFound, Msg: "the code has no function " + quote(name)}
	if exports = slices.DeleteFunc(slices.Clone(exports), abi.Handler); len(exports) > 0 {
		e.Hint = "its functions are " + strings.Join(exports, ", ")
	} else {
		e.Hint = "export a function, or a default object or class with methods"
	}
	return e
}

func number(f float64) uint64 { return math.Float64bits(f) }
