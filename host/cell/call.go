package cell

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tetratelabs/wazero/api"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/prep"
)

// Exit is the error of a guest that ended itself by WASI's proc_exit.
type Exit struct{ Code uint32 }

func (e *Exit) Error() string { return fmt.Sprintf("exit status %d", e.Code) }

// ErrNoFunction is returned by Call for a name that is not exported.
var ErrNoFunction = errors.New("no such function")

// maxArgs bounds the parameters and results of functions that hosts call.
const maxArgs = 16

// Call runs an exported function of at most 16 parameters and one result, and returns the result, or 0. It may be called
// from host functions too. After an error other than ErrNoFunction the cell is good for nothing but Close. Errors are of
// kind Failed for traps, Exhausted for limits, Cancelled; or *Exit.
func (c *Cell) Call(name string, args ...uint64) (uint64, error) {
	index, dispatched := c.image.code.module.Dispatch[name]
	through := name
	if dispatched {
		through = prep.DispatchName
	}
	fn := c.function(through)
	if fn == nil {
		return 0, ErrNoFunction
	}
	if s := c.stopped.Load(); s != nil {
		c.broken = true
		return 0, s.err
	}
	buf := c.args[len(c.running)]
	if dispatched {
		buf[0] = uint64(index)
		copy(buf[1:], args)
	} else {
		copy(buf[:], args)
	}
	outermost := len(c.running) == 0 && !c.together
	if outermost {
		c.enter(c.ctx)
	}
	c.running = append(c.running, fn)
	err := fn.CallWithStack(&c.call, buf[:])
	if outermost {
		c.leave()
	}
	c.running = c.running[:len(c.running)-1]
	if err != nil {
		c.broken = true
		return 0, c.explain(err)
	}
	return buf[0], nil
}

// Together runs fn, whose calls of the guest are one stretch of its running: they take one turn, and the time between them is
// the guest's. It is for many short calls with next to nothing in between; fn must not wait for anything but by Wait.
func (c *Cell) Together(fn func()) {
	if len(c.running) > 0 || c.together {
		fn()
		return
	}
	c.enter(c.ctx)
	c.together = true
	defer func() {
		c.together = false
		c.leave()
	}()
	fn()
}

// enter and leave stand around a stretch of the guest's running. It waits for its turns until ctx ends.
func (c *Cell) enter(ctx context.Context) {
	c.image.code.engine.turns.enter(ctx, c)
	c.meter.enter()
	c.takeTurn(ctx)
}

func (c *Cell) leave() {
	c.meter.leave()
	c.image.code.engine.turns.leave(c)
}

func (c *Cell) function(name string) api.Function {
	depth := len(c.running)
	for len(c.funcs) <= depth {
		c.funcs = append(c.funcs, map[string]api.Function{})
		c.args = append(c.args, new([maxArgs]uint64))
	}
	fn := c.funcs[depth][name]
	if fn == nil {
		if fn = c.module.ExportedFunction(name); fn != nil {
			c.funcs[depth][name] = fn
		}
	}
	return fn
}

// explain turns what the engine returns into an error that says what became of the guest.
func (c *Cell) explain(err error) error {
	var s *stopped
	var exit *Exit
	var known *agent.Error
	switch {
	case errors.As(err, &s):
		return s.err
	case errors.As(err, &exit):
		return exit
	case errors.As(err, &known):
		return err
	}
	msg, trace, _ := strings.Cut(err.Error(), "\nwasm stack trace:\n")
	msg = strings.TrimPrefix(msg, "wasm error: ")
	switch {
	case strings.Contains(msg, "stack overflow"):
		return c.stackError()
	case c.memory != nil && c.memory.short():
		return agent.Exceeded(agent.LimitMemory, "the code asked for more memory, which its app's cells had in use, and failed: %s", msg)
	case c.memory != nil && c.memory.denied():
		return agent.Exceeded(agent.LimitMemory, "the code asked for more memory than its limit of %d bytes, and failed: %s",
			c.env.Limits.Memory, msg)
	case c.table != nil && c.table.Get() == 0:
		return agent.Exceeded(agent.LimitTable, "the code asked for a table of more than its limit of %d entries, and failed: %s",
			c.env.Limits.Table, msg)
	}
	return &agent.Error{Kind: agent.Failed, Msg: "the code trapped: " + msg, Stack: frames(trace)}
}

func (c *Cell) stackError() error {
	return agent.Exceeded(agent.LimitStack, "the code recursed past its stack limit of %d bytes", c.env.Limits.Stack)
}

// frames tidies the engine's trace: one function a line, without its indentation. Functions have the names that the module
// gives them.
func frames(trace string) string {
	const most, longest = 32, 200
	var lines []string
	for l := range strings.Lines(trace) {
		if l = strings.TrimSpace(l); l != "" && !strings.HasPrefix(l, "."+prep.DispatchName+"(") {
			if len(l) > longest {
				l = strings.ToValidUTF8(l[:longest], "") + "..."
			}
			lines = append(lines, l)
		}
	}
	if len(lines) > most {
		lines = append(lines[:most], fmt.Sprintf("... %d more", len(lines)-most))
	}
	return strings.Join(lines, "\n")
}
