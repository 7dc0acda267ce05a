package python

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
	"github.com/skep-dev/skep/host/wasi"
)

// Call is one call of a function.
type Call struct {
	Function string // one of Exports
	Input    agent.Payload
	Config   map[string]string
	Env      cell.Env
}

// Agent is Python code, imported into an image. It is safe for concurrent use.
type Agent struct {
	engine  *Engine
	image   *cell.Image
	exports []string
}

// head says what a turn is about. The body that follows it is the files, one after the other, or the input.
type head struct {
	Op       string            `json:"op"` // load or call
	Main     string            `json:"main,omitempty"`
	Files    [][2]any          `json:"files,omitempty"` // path and length
	Function string            `json:"function,omitempty"`
	Type     string            `json:"type"` // media type of the input
	Config   map[string]string `json:"config"`
}

// Load imports the main file of src once. What its top level leaves behind is where each call begins; host calls are refused
// to it. Errors in the code are of kind Invalid when it does not parse, Failed when it raises. Close the agent.
func (e *Engine) Load(ctx context.Context, src agent.Source, env cell.Env) (*Agent, error) {
	h, body := loading(src)
	a := &Agent{engine: e}
	var err error
	a.image, err = e.base.Extend(ctx, env, func(_ context.Context, c *cell.Cell) error {
		t, err := e.turn(c, h, body)
		if err != nil {
			return err
		}
		a.exports = t.exports
		return nil
	})
	if err != nil {
		return nil, err
	}
	return a, nil
}

// loading is the turn that imports src.
func loading(src agent.Source) (head, []byte) {
	h := head{Op: "load", Main: src.Main, Config: map[string]string{}}
	var body []byte
	for _, name := range slices.Sorted(maps.Keys(src.Files)) {
		h.Files = append(h.Files, [2]any{name, len(src.Files[name])})
		body = append(body, src.Files[name]...)
	}
	return h, body
}

// Eval imports src and calls a function of it, main when the call names none, in a cell of its own that is thrown away. Its top
// level may do all that a call may.
func (e *Engine) Eval(ctx context.Context, src agent.Source, call Call) (agent.Payload, agent.Usage, error) {
	c, err := e.base.Cell(ctx, call.Env)
	if err != nil {
		return agent.Payload{}, agent.Usage{}, err
	}
	defer c.Close()
	h, body := loading(src)
	t, err := e.turn(c, h, body)
	if err != nil {
		return agent.Payload{}, c.Usage(), err
	}
	if call.Function == "" {
		call.Function = "main"
	}
	a := &Agent{engine: e, exports: t.exports}
	if err := a.check(call); err != nil {
		return agent.Payload{}, c.Usage(), err
	}
	out, err := a.answer(c, call)
	return out, c.Usage(), err
}

// Exports lists the functions that a caller may name, sorted.
func (a *Agent) Exports() []string { return a.exports }

// Size returns the bytes of memory that a call begins with.
func (a *Agent) Size() int64 { return a.image.Size() }

// Cost returns what importing the main file has cost.
func (a *Agent) Cost() agent.Usage { return a.image.Cost() }

// Close frees the agent's image. Calls under way end as they would.
func (a *Agent) Close() error { return a.image.Close() }

// Call runs a function in a fresh cell. The usage counts also when the call failed.
func (a *Agent) Call(ctx context.Context, call Call) (agent.Payload, agent.Usage, error) {
	if err := a.check(call); err != nil {
		return agent.Payload{}, agent.Usage{}, err
	}
	c, err := a.image.Cell(ctx, call.Env)
	if err != nil {
		return agent.Payload{}, agent.Usage{}, err
	}
	defer c.Close()
	out, err := a.answer(c, call)
	return out, c.Usage(), err
}

// check refuses a call before it costs anything.
func (a *Agent) check(call Call) error {
	if !slices.Contains(a.exports, call.Function) {
		return noFunction(call.Function, a.exports)
	}
	if in := call.Input; in.IsJSON() && len(in.Body) > 0 && !json.Valid(in.Body) {
		return agent.Errorf(agent.Invalid, "the input says that it is JSON, and is not")
	}
	return nil
}

func (a *Agent) answer(c *cell.Cell, call Call) (agent.Payload, error) {
	in := call.Input
	if err := c.In(len(in.Body)); err != nil {
		return agent.Payload{}, err
	}
	h := head{Op: "call", Function: call.Function, Config: call.Config}
	if len(in.Body) > 0 {
		h.Type = in.Type
	}
	if h.Config == nil {
		h.Config = map[string]string{}
	}
	t, err := a.engine.turn(c, h, in.Body)
	if err != nil {
		return agent.Payload{}, err
	}
	return *t.output, c.Out(len(t.output.Body))
}

// turn has the guest do one thing and returns what it said. It has an output or exports when there is no error.
func (e *Engine) turn(c *cell.Cell, h head, body []byte) (*turn, error) {
	text, err := json.Marshal(h)
	if err != nil {
		return nil, agent.Wrap(agent.Invalid, err, "the call cannot be written as JSON")
	}
	t := &turn{head: text, body: body}
	p := &program{wasi.State{Device: t}}
	c.Guest = p
	status, err := c.Call(runName, uint64(e.command), 0)
	if flushed := c.Do(func() { p.stdio.Flush(c) }); err == nil {
		err = flushed
	}
	switch {
	case err != nil:
		return nil, exited(err)
	case t.failed != nil:
		return nil, t.failed
	case uint32(status) != 0, t.output == nil && h.Op == "call", t.exports == nil && h.Op == "load":
		return nil, agent.Errorf(agent.Failed, "the code broke the interpreter it runs in")
	}
	return t, nil
}

func noFunction(name string, exports []string) error {
	e := &agent.Error{Kind: agent.NotFound, Msg: "the code has no function " + strings.ToValidUTF8(name, "?")}
	if len(exports) > 0 {
		e.Hint = "its functions are " + strings.Join(exports, ", ")
	} else {
		e.Hint = "define a function in the main file, or list names in __all__"
	}
	return e
}
