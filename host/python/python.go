// Package python runs agents written in Python, in CPython for WASI, which the operator brings along: it is 26 MB, and not
// part of the program.
//
// The interpreter is a WASI command, and a command's state is on its stack. So it is started once, with a program
// (guest/boot.py and the files beside it) that ends by exiting in the middle of a call: what its memory is then, together with its stack pointer,
// becomes the base image. In a copy of it the host calls the interpreter's own function for running a string, as a C function
// beneath that program might have done. From there on Python agents are like scripts: an agent's image is the base with its
// module imported, and each call gets a copy of its own.
package python

import (
	"context"
	_ "embed"
	"errors"
	"io"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
	"github.com/skep-dev/skep/host/wasi"
)

// The program, in order.
var (
	//go:embed guest/boot.py
	bootPy string
	//go:embed guest/skep.py
	skepPy string
	//go:embed guest/durable.py
	durablePy string
	//go:embed guest/tools.py
	toolsPy string
	//go:embed guest/models.py
	modelsPy string
	//go:embed guest/turn.py
	turnPy string
)

// Options adjusts an Engine. The zero value is the default.
type Options struct {
	// Random is what the interpreter draws from when it starts, the order of its sets above all: a run that is played again in another
	// process needs it to be the same there. nil means the system's randomness.
	Random io.Reader
	Now    func() time.Time // the time then; nil means the system's
}

// Engine loads and runs agents. It is safe for concurrent use.
type Engine struct {
	code    *cell.Code
	base    *cell.Image
	command uint32 // address of the text that starts a turn
}

// New compiles the interpreter, which takes seconds the first time, and starts it once. wasm is checked as by CheckFile. The
// cells must have been made with package wasi. Close the engine.
func New(ctx context.Context, cells *cell.Engine, wasm []byte, o *Options) (_ *Engine, err error) {
	if o == nil {
		o = &Options{}
	}
	if err := CheckFile(wasm); err != nil {
		return nil, err
	}
	if wasm, err = adapt(wasm); err != nil {
		return nil, err
	}
	e := &Engine{}
	if e.code, err = cells.Compile(ctx, wasm, wasi.Module); err != nil {
		return nil, agent.Wrap(agent.Internal, err, "compile the Python interpreter")
	}
	env := cell.Env{Limits: agent.MaxLimits(), Random: o.Random, Now: o.Now}
	e.base, err = cells.NewImage(ctx, e.code, env, func(_ context.Context, c *cell.Cell) error {
		d := &bootDevice{}
		c.Guest = &program{wasi.State{Args: []string{"python", "-I", "-S", "-B", "-X", "utf8", "-c", bootPy + skepPy + durablePy + toolsPy + modelsPy + turnPy}, Device: d}}
		_, err := c.Call("_start")
		var exit *cell.Exit
		if !errors.As(err, &exit) || d.command == 0 {
			return agent.Wrap(agent.Internal, err, "the Python interpreter did not start")
		}
		e.command = d.command
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, e.code.Close(ctx))
	}
	return e, nil
}

// Close frees the engine. Its agents must be closed before.
func (e *Engine) Close(ctx context.Context) error {
	return errors.Join(e.base.Close(), e.code.Close(ctx))
}

// program is the guest state of a cell.
type program struct{ stdio wasi.State }

func (p *program) WASI() *wasi.State { return &p.stdio }

// bootDevice learns where the text lies that starts a turn.
type bootDevice struct{ command uint32 }

func (d *bootDevice) Write(_ *cell.Cell, at uint32, _ []byte) { d.command = at }
func (d *bootDevice) Read(*cell.Cell, uint32) []byte          { return nil }
