//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
	"github.com/skep-dev/skep/host/prep"
	"github.com/skep-dev/skep/host/script"
	"github.com/skep-dev/skep/host/script/guest"
	"github.com/skep-dev/skep/host/wasi"
	"github.com/skep-dev/skep/internal/bench/bare"
	"github.com/skep-dev/skep/internal/wasmtest"
)

// instance is a cell of ours or a bare one.
type instance interface {
	Call(name string, args ...uint64) (uint64, error)
	Memory() []byte
}

// subject is a module that figures are made with.
type subject struct {
	name string
	wasm []byte
	// start runs before the image is taken. It returns a light call for instances that come from that image.
	start func(instance) (lightCall, error)
}

type lightCall func(instance) error

// engine is ours, for modules that import WASI or are the script guest.
func (b *bench) engine(ctx context.Context, pool int, more ...cell.Func) (*cell.Engine, error) {
	funcs := slices.Concat(wasi.Funcs(), script.Funcs(), more)
	return cell.New(ctx, funcs, &cell.Options{CacheDir: b.cache(), Pool: pool})
}

// modules are those that a subject may import from.
var modules = []string{wasi.Module, scriptModule, benchModule}

const (
	scriptModule = "env"
	benchModule  = "bench"
)

// image makes our image of a subject.
func (s subject) image(ctx context.Context, e *cell.Engine) (img *cell.Image, call lightCall, err error) {
	code, err := e.Compile(ctx, s.wasm, modules...)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", s.name, err)
	}
	img, err = e.NewImage(ctx, code, cell.Env{Limits: agent.MaxLimits()}, func(_ context.Context, c *cell.Cell) (err error) {
		call, err = s.start(c)
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", s.name, err)
	}
	return img, call, nil
}

// bareImage makes the prototype's image of it.
func (s subject) bareImage(ctx context.Context, e *bare.Engine) (img *bare.Image, call lightCall, err error) {
	allowed := map[[2]string]prep.Signature{}
	for _, f := range slices.Concat(wasi.Funcs(), script.Funcs()) {
		allowed[[2]string{f.Module, f.Name}] = prep.Signature{Params: f.Params, Results: f.Results}
	}
	m, err := prep.Prepare(s.wasm, func(module, name string) (prep.Signature, bool) {
		sig, ok := allowed[[2]string{module, name}]
		return sig, ok
	}, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", s.name, err)
	}
	img, err = e.Image(ctx, m, func(i *bare.Instance) (err error) {
		call, err = s.start(i)
		return err
	})
	return img, call, err
}

// inC stands for a guest in C with a heap of two megabytes that is in use: there is not a C compiler everywhere.
func inC(pages uint64) subject {
	const heap = 64 << 10
	code, i32 := wasmtest.Code, wasmtest.I32Const
	m := wasmtest.Module{
		Types: []wasmtest.Type{{}, {Params: []byte{wasmtest.I32}, Results: []byte{wasmtest.I32}}},
		Funcs: []wasmtest.Func{
			{Export: "fill", Body: code(i32(heap), i32(0x5a), i32(2<<20), 0xfc, 11, 0)},
			{Type: 1, Export: "touch", Locals: []byte{wasmtest.I32}, Body: code(
				0x03, 0x40, // loop: heap[i * 4096] = i, while ++i < n
				0x20, 1, i32(4096), 0x6c, i32(heap), 0x6a, 0x20, 1, 0x3a, 0, 0,
				0x20, 1, i32(1), 0x6a, 0x22, 1, 0x20, 0, 0x49, 0x0d, 0, 0x0b,
				0x23, 0, i32(1), 0x6a, 0x24, 0, 0x23, 0, // ++calls
			)},
		},
		Globals: []wasmtest.Global{{Type: wasmtest.I32, Mutable: true, Init: i32(0)}},
		Memory:  wasmtest.Size(34, 1024),
	}
	return subject{
		name: "C-like guest", wasm: m.Bytes(),
		start: func(x instance) (lightCall, error) {
			_, err := x.Call("fill")
			return func(x instance) error { return expect(x, 1, "touch", pages) }, err
		},
	}
}

func inGo(name string, wasm []byte) subject {
	return subject{
		name: name, wasm: wasm,
		start: func(x instance) (lightCall, error) {
			_, err := x.Call("_initialize")
			return func(x instance) error { return expect(x, 1, "bump") }, err
		},
	}
}

func expect(x instance, want uint64, name string, args ...uint64) error {
	got, err := x.Call(name, args...)
	if err == nil && uint32(got) != uint32(want) {
		err = fmt.Errorf("%s returned %d, want %d", name, uint32(got), want)
	}
	return err
}

// inScript is the script engine with one function evaluated. It is driven by hand, so that a bare instance does exactly
// the same work; what a whole call of a script agent costs is another figure.
func inScript(function string) subject {
	return subject{name: "script guest", wasm: guest.Wasm, start: func(x instance) (lightCall, error) { return startScript(x, function) }}
}

func startScript(x instance, function string) (_ lightCall, err error) {
	do := func(name string, args ...uint64) uint64 {
		if err != nil {
			return 0
		}
		var r uint64
		r, err = x.Call(name, args...)
		return uint64(uint32(r))
	}
	text := func(t string) uint64 {
		ptr := do("wasm_malloc", uint64(len(t)+1))
		if err == nil {
			copy(x.Memory()[ptr:], t+"\x00")
		}
		return ptr
	}
	do("_initialize")
	if do("qjs_init") != 0 && err == nil {
		err = errors.New("the script engine does not start")
	}
	do("qjs_set_max_stack_size", 512<<10)
	f := do("qjs_eval", text(function), uint64(len(function)), text("bench.js"), 0)
	if do("qjs_is_exception", f) != 0 && err == nil {
		err = errors.New("the script does not evaluate")
	}
	undefined, argv := do("qjs_get_undefined"), do("wasm_malloc", 64)
	return func(x instance) error {
		r, err := x.Call("qjs_call", f, undefined, 0, argv)
		if err != nil {
			return err
		}
		_, err = x.Call("qjs_free_value", uint64(uint32(r)))
		return err
	}, err
}

// bareScriptImports offers what the script engine imports, to bare instances.
func bareScriptImports(ctx context.Context, e *bare.Engine) error {
	var fs []bare.Import
	for _, f := range script.Funcs() {
		fs = append(fs, bare.Import{Name: f.Name, Params: f.Params, Results: f.Results})
	}
	return e.Imports(ctx, scriptModule, fs...)
}
