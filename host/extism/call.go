package extism

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
)

// Call is one call of a function.
type Call struct {
	Function string
	Input    agent.Payload // its type is not told to the module
	Config   map[string]string
	Vars     bool // variables are keys of the agent's state, by Env.Calls; else they last as long as the call
	Env      cell.Env
}

// Call runs a function in a cell of its own and returns what it has set as its output, as bytes. Errors are of kind
// NotFound and Invalid for the function's name, Failed for whatever went wrong in the module, Exhausted for limits,
// Cancelled, or what the host's Calls refused an HTTP request with. The usage is filled in for those too.
func (a *Agent) Call(ctx context.Context, call Call) (agent.Payload, agent.Usage, error) {
	if err := a.check(call.Function); err != nil {
		return agent.Payload{}, agent.Usage{}, err
	}
	image, init := a.image, a.each
	if call.Function == start {
		init = false
		if a.command != nil {
			image = a.command
		}
	}
	c, err := image.Cell(ctx, call.Env)
	if err != nil {
		return agent.Payload{}, agent.Usage{}, initError(startSection, err)
	}
	defer c.Close()
	out, err := a.run(c, call, init)
	return out, c.Usage(), err
}

// check refuses what is not a function that callers may name.
func (a *Agent) check(name string) error {
	const most = 20
	sig, ok := a.code.Export(name)
	if ok && !reserved(name) && callable(sig.Params, sig.Results) {
		return nil
	}
	there := a.Exports()
	if len(there) > most {
		there = append(there[:most], "...")
	}
	hint := "it has " + strings.Join(there, ", ")
	if len(there) == 0 {
		hint = "it exports no function that takes no parameters and returns an i32 or nothing"
	}
	switch {
	case !ok:
		return agent.Errorf(agent.NotFound, "the module has no function %.100q; %s", name, hint)
	case reserved(name):
		return agent.Errorf(agent.NotFound, "%q belongs to the module's runtime; %s", name, hint)
	}
	return agent.Errorf(agent.Invalid, "the function %q is %s; one that can be called is () -> (i32) or () -> ()", name, sig)
}

func (a *Agent) run(c *cell.Cell, call Call, init bool) (agent.Payload, error) {
	if err := c.In(len(call.Input.Body)); err != nil {
		return agent.Payload{}, err
	}
	g, err := newGuest(c, a.arena(), call)
	if err != nil {
		return agent.Payload{}, err
	}
	defer func() { a.reuse(g.heap.bytes) }()
	status, err := a.enter(c, call.Function, init)
	if flushed := c.Do(func() { g.stdio.Flush(c) }); err == nil {
		err = flushed
	}
	if err != nil {
		return agent.Payload{}, lastWords(err, g.message())
	}
	if msg := g.message(); msg != "" {
		return agent.Payload{}, agent.Errorf(agent.Failed, "%s", msg)
	}
	if status != 0 {
		return agent.Payload{}, &agent.Error{
			Kind: agent.Failed, Msg: fmt.Sprintf("%s ended with status %d and set no error", call.Function, status),
			Hint: "what it printed is in its log",
		}
	}
	if err := c.Out(int(g.output.n)); err != nil {
		return agent.Payload{}, err
	}
	out, _ := g.heap.span(g.output.at, g.output.n)
	return agent.Payload{Type: agent.TypeBytes, Body: bytes.Clone(out)}, nil
}

// lastWords puts what a module said before it trapped, as a language's panic does, in place of what the engine says of that.
func lastWords(err error, msg string) error {
	var e *agent.Error
	if msg == "" || !errors.As(err, &e) || e.Kind != agent.Failed {
		return err
	}
	said := *e
	said.Msg = msg
	return &said
}

// keepArena is the most bytes of a heap that are kept for a later call.
const keepArena = 4 << 20

// arena returns bytes for a heap, which writes or clears each before the guest can see it.
func (a *Agent) arena() []byte {
	if b, ok := a.arenas.Get().(*[]byte); ok {
		return *b
	}
	return nil
}

func (a *Agent) reuse(b []byte) {
	if cap(b) <= keepArena {
		a.arenas.Put(&b)
	}
}

// enter runs what comes before the function, and the function. A module that exits by itself returns that status.
func (a *Agent) enter(c *cell.Cell, name string, init bool) (uint32, error) {
	if init {
		if err := a.initialise(c); err != nil {
			return 0, err
		}
	}
	if err := a.reseed(c); err != nil {
		return 0, err
	}
	status, err := c.Call(name)
	var exit *cell.Exit
	if errors.As(err, &exit) {
		return exit.Code, nil
	}
	if sig, _ := a.code.Export(name); len(sig.Results) == 0 {
		status = 0
	}
	return uint32(status), err
}

// reseed mixes fresh randomness into a module that asks for it.
func (a *Agent) reseed(c *cell.Cell) error {
	sig, ok := a.code.Export(abi.Reseed)
	if !ok {
		return nil
	}
	var args []uint64
	if len(sig.Params) == 1 {
		var seed [8]byte
		if _, err := io.ReadFull(c.Env().Random, seed[:]); err != nil {
			return agent.Wrap(agent.Internal, err, "the host has no randomness for the code")
		}
		args = []uint64{binary.LittleEndian.Uint64(seed[:])}
	}
	if _, err := c.Call(abi.Reseed, args...); err != nil {
		return initError(abi.Reseed, err)
	}
	return nil
}
