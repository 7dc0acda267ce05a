//go:build linux

// Package bare is the limit that in-process figures are compared with: wazero used directly, with nothing of Skep around it
// but the modules that package prep rewrote. Its instances are plain ones, or come from a copy-on-write image by the least
// that such a thing takes. Nothing here is limited, metered or safe.
package bare

import (
	"context"
	"math"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/skep-dev/skep/host/prep"
)

// Engine is a wazero runtime with WASI and with imports that do nothing.
type Engine struct {
	runtime wazero.Runtime
	cache   wazero.CompilationCache
}

// New returns an engine that keeps compiled code in cacheDir. Close frees it.
func New(ctx context.Context, cacheDir string) (*Engine, error) {
	cache, err := wazero.NewCompilationCacheWithDir(cacheDir)
	if err != nil {
		return nil, err
	}
	e := &Engine{cache: cache, runtime: wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCompilationCache(cache))}
	if _, err = wasi_snapshot_preview1.Instantiate(ctx, e.runtime); err != nil {
		return nil, err
	}
	meter := e.runtime.NewHostModuleBuilder(prep.MeterModule)
	endless := api.GoModuleFunc(func(_ context.Context, _ api.Module, s []uint64) { s[0] = math.MaxInt64 })
	meter.NewFunctionBuilder().WithGoModuleFunction(endless, []api.ValueType{api.ValueTypeI64}, []api.ValueType{api.ValueTypeI64}).
		Export(prep.RefillName)
	if _, err = meter.Instantiate(ctx); err != nil {
		return nil, err
	}
	return e, nil
}

// Close frees all code and instances.
func (e *Engine) Close(ctx context.Context) error {
	if err := e.runtime.Close(ctx); err != nil {
		return err
	}
	return e.cache.Close(ctx)
}

// Import is a function that guests may import. It does nothing, and its result, if it has one, is 0.
type Import struct {
	Name            string
	Params, Results []api.ValueType
}

// Imports offers functions under a module's name.
func (e *Engine) Imports(ctx context.Context, module string, fs ...Import) error {
	b := e.runtime.NewHostModuleBuilder(module)
	for _, f := range fs {
		nothing := api.GoModuleFunc(func(_ context.Context, _ api.Module, s []uint64) {
			if len(s) > 0 {
				s[0] = 0
			}
		})
		b.NewFunctionBuilder().WithGoModuleFunction(nothing, f.Params, f.Results).Export(f.Name)
	}
	_, err := b.Instantiate(ctx)
	return err
}

// Plain instantiates a module as it is. It runs no function of it.
func (e *Engine) Plain(ctx context.Context, wasm []byte) (*Instance, error) {
	code, err := e.runtime.CompileModule(ctx, wasm)
	if err != nil {
		return nil, err
	}
	m, err := e.runtime.InstantiateModule(ctx, code, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		return nil, err
	}
	return newInstance(m, nil), nil
}

// Instance is a live module.
type Instance struct {
	module  api.Module
	funcs   map[string]api.Function
	globals []api.MutableGlobal
	image   *Image
	mem     *mapping
}

func newInstance(m api.Module, image *Image) *Instance {
	return &Instance{module: m, image: image, funcs: map[string]api.Function{}}
}

// Call runs an exported function and returns its result, or 0.
func (i *Instance) Call(name string, args ...uint64) (uint64, error) {
	f := i.funcs[name]
	if f == nil {
		f = i.module.ExportedFunction(name)
		i.funcs[name] = f
	}
	var stack [16]uint64
	copy(stack[:], args)
	err := f.CallWithStack(context.Background(), stack[:])
	return stack[0], err
}

// Memory returns the linear memory. It is valid until the guest runs again.
func (i *Instance) Memory() []byte {
	m := i.module.Memory()
	b, _ := m.Read(0, m.Size())
	return b
}

// Close frees the instance.
func (i *Instance) Close() error { return i.module.Close(context.Background()) }
