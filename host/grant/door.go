// Package grant is the door between a guest and its host: the one place where a guest's call is counted, decoded, checked
// against what its agent was granted, and answered. Each family of calls is a leaf package below it. What no leaf answers
// is refused.
package grant

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/internal/phrase"
)

// Handler answers one of package abi's calls: in and out are that call's bytes. It is called from many goroutines, and
// it keeps nothing of in.
type Handler func(ctx context.Context, in []byte) (out []byte, err error)

// Options of a Door.
type Options struct {
	Log   *slog.Logger // faults of ours, which the guest never sees; nil means nowhere
	Close []func()     // what ends with the cell

	// More returns further handlers, which are made when the first call comes that the others do not answer: most cells never make one.
	More func() map[string]Handler
}

// Door answers the calls of one cell. It is safe for concurrent use.
type Door struct {
	limits   agent.Limits
	handlers map[string]Handler
	log      *slog.Logger
	close    []func()
	more     func() map[string]Handler
	calls    atomic.Int64

	mu    sync.Mutex
	hints []hint // of the latest calls that failed, oldest first
}

// hint is what to do about an error that a guest was told of.
type hint struct{ msg, hint string }

// maxHints is how many are kept.
const maxHints = 8

// NewDoor returns a door that answers the named calls within limits, whose fields must all be set. It keeps handlers,
// which must not change any more.
func NewDoor(limits agent.Limits, handlers map[string]Handler, o *Options) *Door {
	d := &Door{limits: limits, handlers: handlers, log: slog.New(slog.DiscardHandler)}
	if o != nil && o.Log != nil {
		d.log = o.Log
	}
	if o != nil {
		d.close = o.Close
		if o.More != nil {
			d.more = sync.OnceValue(o.More)
		}
	}
	return d
}

// Close ends what the cell's calls left open. It is called once, when the cell has ended.
func (d *Door) Close() {
	for _, f := range d.close {
		f()
	}
}

// Call answers one call; it is a host.Calls. A handler that panics fails that call only.
func (d *Door) Call(ctx context.Context, name string, in []byte) (out []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			d.log.ErrorContext(ctx, "host call panicked", "call", name, "panic", p, "stack", string(debug.Stack()))
			out, err = nil, agent.Wrap(agent.Internal, fmt.Errorf("panic: %v", p), "internal error")
		}
	}()
	if name != abi.CallLog && d.calls.Add(1) > d.limits.HostCalls { // console output has a limit of its own
		return nil, agent.Exceeded(agent.LimitHostCalls, "the code made more than %d calls to its host", d.limits.HostCalls)
	}
	if most := maxBody(d.limits); int64(len(in)) > most {
		return nil, agent.Exceeded(agent.LimitInput, "the body of host call %q has %d bytes, more than %d", clip(name), len(in), most)
	}
	h, ok := d.handlers[name]
	if !ok && d.more != nil {
		h, ok = d.more()[name]
	}
	if !ok {
		return nil, notHere(name)
	}
	out, err = h(ctx, in)
	if err != nil && agent.KindOf(err) == agent.Internal {
		d.log.ErrorContext(ctx, "host call", "call", name, "error", err)
	}
	if e := agent.AsError(err); e != nil && e.Hint != "" {
		d.keep(hint{e.Msg, e.Hint})
	}
	return out, err
}

// notHere is the error of a call that a cell of this kind cannot make.
func notHere(name string) error {
	e := &agent.Error{Kind: agent.Denied, Msg: fmt.Sprintf("host call %q is not granted here", clip(name))}
	switch family, _, _ := strings.Cut(name, "."); family {
	case "storage", "shared", "alarm", "socket", "child", "turn":
		e.Msg = fmt.Sprintf("host call %q works in a call of an instance", clip(name))
		e.Hint = "call the instance: skep instance call AGENT KEY METHOD"
	case "run", "step":
		e.Msg = fmt.Sprintf("host call %q works in a run", clip(name))
		e.Hint = "start a run: skep run AGENT FUNCTION --key KEY"
	}
	return e
}

func (d *Door) keep(h hint) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.hints) == maxHints {
		d.hints = append(d.hints[:0], d.hints[1:]...)
	}
	d.hints = append(d.hints, h)
}

// Explain returns how the cell ended, with what to do about it when it failed because its code did not catch the error of a call.
// The words are of the host alone: what code writes into its own errors is never a hint.
func (d *Door) Explain(err error) error {
	e := agent.AsError(err)
	if e == nil || e.Kind != agent.Failed || e.Hint != "" {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, h := range slices.Backward(d.hints) {
		if strings.Contains(e.Msg, h.msg) {
			explained := *e
			explained.Hint = h.hint
			return &explained
		}
	}
	return err
}

// maxBody leaves room for an input of the largest size in base64, with the fields around it.
func maxBody(l agent.Limits) int64 { return l.Input/3*4 + 64<<10 }

func clip(s string) string { return phrase.Clip(s, 64) }
