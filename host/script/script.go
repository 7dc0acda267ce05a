// Package script runs agents written in JavaScript and TypeScript.
//
// An agent's files are bundled to one module (bundle.go, by esbuild, from memory), which runs in QuickJS-ng, itself a
// WebAssembly guest of package cell. The base image holds the engine and the prelude: the web's globals and the bridge
// (guest/src). An agent's image is the base with its module loaded, so that a call starts where loading ended. A cell is
// driven by one goroutine: its calls to the host run beside it and settle in the order in which they end (flight.go), its
// timers are the host's. Errors and console output are mapped back to the author's files (sourcemap.go, trace.go).
package script

import (
	"bytes"
	"context"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
	"github.com/skep-dev/skep/host/script/guest"
)

// Options adjusts an Engine. The zero value is the default.
type Options struct {
	Bundle  BundleOptions
	Prelude []byte // in place of guest.Prelude, as another version of Skep has another; nil for this one's
}

// Engine loads and runs scripts. It is safe for concurrent use.
type Engine struct {
	opts    Options
	code    *cell.Code
	base    *cell.Image
	handles handles
}

// guestStack bounds the engine's own stack, which lies in a megabyte of its linear memory: about 2,200 nested calls, after
// which the author's code gets a RangeError. The native stack beneath grows up to stackRatio times as fast; nativeStack
// has room for it, and is the limit of calls that name none. A call with a lower limit gets less of the engine's stack, so
// that it ends by a RangeError too.
const (
	guestStack  = 512 << 10
	leastStack  = 64 << 10
	nativeStack = 32 << 20
	stackRatio  = 44
)

// headroom is memory that every image has ready, so that ordinary calls need not grow it: growth costs, and a cell that
// grew cannot be made new in place. garbage is how much may be allocated before the collector runs, which touches
// every page that holds objects. For the same reason an agent's image is collected only if it holds that much more than
// the base.
const (
	headroom        = 4 << 20
	garbage         = 16 << 20
	worthCollecting = 1 << 20
)

// The sizes of holes that fillHoles looks for, in the allocator and in the engine's lists of small blocks.
const (
	largestHole  = 64 << 10
	largestBlock = 504
)

// New compiles the script guest on cells, which must have been made with Funcs and with WASI, and makes the base image.
// Close frees both.
func New(ctx context.Context, cells *cell.Engine, o *Options) (*Engine, error) {
	prelude := guest.Prelude
	if o != nil && o.Prelude != nil {
		prelude = o.Prelude
	}
	return newEngine(ctx, cells, prelude, o)
}

func newEngine(ctx context.Context, cells *cell.Engine, prelude []byte, o *Options) (*Engine, error) {
	if o == nil {
		o = &Options{}
	}
	e := &Engine{opts: *o}
	var err error
	if e.code, err = cells.Compile(ctx, guest.Wasm, hostModule, "wasi_snapshot_preview1"); err != nil {
		return nil, agent.Wrap(agent.Internal, err, "compile the script guest")
	}
	if err := e.makeBase(ctx, cells, prelude); err != nil {
		_ = e.code.Close(ctx)
		return nil, agent.Wrap(agent.Internal, err, "make the base image of scripts")
	}
	return e, nil
}

// makeBase makes the base image. The prelude is compiled in one instance and run in another, so that the image holds
// neither its text nor what parsing it left in freed memory: that is two megabytes less in every image.
func (e *Engine) makeBase(ctx context.Context, cells *cell.Engine, text []byte) error {
	env := cell.Env{Limits: agent.MaxLimits()}
	repeatable(&env)
	build := func(do func(*vm) error) (*cell.Image, error) {
		return cells.NewImage(ctx, e.code, env, func(_ context.Context, c *cell.Cell) error {
			v := &vm{cell: c, h: &e.handles, preparing: true}
			c.Guest = v
			defer v.land()
			return do(v)
		})
	}
	var prelude []byte
	i, err := build(func(v *vm) error {
		prelude = v.compile(text, preludeName)
		return v.err
	})
	if err != nil {
		return err
	}
	if err := i.Close(); err != nil {
		return err
	}
	e.base, err = build(func(v *vm) error { return v.prepare(prelude) })
	return err
}

// repeatable makes an Env for the making of an image that is the same whenever and wherever it is made, so that snapshots of its
// cells mean something elsewhere: time stands still at 1970, as it does in Workers, and randomness is none. The prelude
// refuses both to authors at that time, but for Date.
func repeatable(env *cell.Env) {
	env.Imaging, env.Now, env.Random = true, func() time.Time { return time.Unix(0, 0).UTC() }, zeros{}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// Close frees the engine. Its agents must be closed before.
func (e *Engine) Close(ctx context.Context) error {
	if err := e.base.Close(); err != nil {
		return err
	}
	return e.code.Close(ctx)
}

// startEngine starts the engine in a fresh instance.
func (v *vm) startEngine() {
	v.call("_initialize")
	if v.call("qjs_init") != 0 {
		v.fail(agent.Errorf(agent.Internal, "the script engine does not start"))
	}
	v.h.scratch = uint32(v.call("wasm_malloc", scratchSize))
}

// compile returns the engine's own form of a script, in which functions have no text: toString gives "[native code]".
func (v *vm) compile(code []byte, name string) []byte {
	const stripSource = 1 << 4
	v.startEngine()
	text, n := v.copyIn(code)
	file, _ := v.copyIn([]byte(name))
	p := v.call("qjs_compile", text, uint64(n), file, evalGlobal, stripSource, uint64(v.h.scratch))
	if p == 0 {
		v.exception()
	}
	return bytes.Clone(v.read(uint32(p), v.u32(v.h.scratch)))
}

// prepare runs the compiled prelude in a fresh instance.
func (v *vm) prepare(prelude []byte) error {
	v.startEngine()
	v.call("qjs_set_max_stack_size", guestStack)
	v.call("qjs_set_promise_rejection_handler", 1)
	v.call("qjs_set_module_loader", 1)
	h := v.h
	h.undefined = uint32(v.call("qjs_get_undefined"))
	h.isTrue = uint32(v.call("qjs_get_true"))
	h.isFalse = uint32(v.call("qjs_get_false"))
	h.argv = uint32(v.call("wasm_malloc", 4*uint64(max(len(bridge), maxEntryArgs+1))))
	for i := range h.kinds {
		h.kinds[i] = uint32(v.call("qjs_new_number", number(float64(i))))
	}
	code, n := v.copyIn(prelude)
	boot := v.check(v.call("qjs_eval_bytecode", code, uint64(n)))
	v.call("wasm_free", code)
	for i, name := range bridge {
		ptr, n := v.copyIn([]byte(name))
		v.putU32(h.argv+4*uint32(i), uint32(v.call("qjs_new_host_function", ptr, uint64(n), 0)))
	}
	h.entry = uint32(v.check(v.call("qjs_call", boot, uint64(h.undefined), uint64(len(bridge)), uint64(h.argv))))
	if v.err != nil {
		return v.err
	}
	m := v.eval([]byte(`import "skep"; export {}`), preludeName, evalModule)
	v.pump()
	if v.err == nil && v.call("qjs_promise_state", m) != promiseFulfilled {
		v.fail(agent.Errorf(agent.Internal, "the module skep does not load"))
	}
	v.settleMemory()
	return v.err
}

// limits fills in what a script needs otherwise than other guests.
func limits(l agent.Limits) agent.Limits {
	if l.Stack == 0 {
		l.Stack = nativeStack
	}
	return l
}

// fitStack gives the engine the stack that the cell's limit has room for.
func (v *vm) fitStack() {
	if n := v.cell.Env().Limits.Stack / stackRatio; n < guestStack {
		v.call("qjs_set_max_stack_size", uint64(max(n, leastStack)))
	}
}

// settleMemory makes the memory ready to be an image: with headroom, and collected when there may be much to collect.
func (v *vm) settleMemory() {
	if v.preparing || v.call("qjs_get_allocated_size") > uint64(v.h.allocated)+worthCollecting {
		v.call("qjs_run_gc")
	}
	top := v.call("wasm_malloc", headroom)
	v.call("wasm_free", top)
	if v.preparing && top != 0 {
		v.fillHoles(top)
	}
	size := v.call("qjs_get_allocated_size")
	v.call("qjs_set_gc_threshold", size+garbage)
	if v.preparing {
		v.h.allocated = uint32(size)
	}
}

// fillHoles takes the free blocks of the base image below top for good, so that what agents and calls allocate lies
// together above it: a call that filled holes all over the heap would have a private copy of a page for each.
func (v *vm) fillHoles(top uint64) {
	for size := uint64(largestHole); size >= 8; size /= 2 {
		for v.err == nil {
			if p := v.call("wasm_malloc", size); p == 0 || p >= top {
				v.call("wasm_free", p)
				break
			}
		}
	}
	// The engine has lists of its own for small blocks, one for each size.
	ctx := v.call("qjs_get_context_ptr")
	for size := uint64(8); size <= largestBlock; size += 8 {
		for v.err == nil {
			if p := v.call("js_malloc", ctx, size); p == 0 || p >= top {
				break
			}
		}
	}
}
