// Package cell runs WebAssembly in cells: live, sealed instances made from images at the cost of the pages they touch.
//
// An Engine compiles prepared modules (package prep) with wazero. From compiled Code comes an Image: the memory and
// globals of an instance whose initialisers have run. From an image come Cells, by copy-on-write mapping or by resetting
// a used one in place. Everything a cell may do to the world is a host function (Func) given to the engine at its making;
// everything it may spend is in its Env. Fuel, which prep put into the code, brings the cell back to the host every
// fraction of a millisecond: there it is metered, and there it is stopped when its time is up or its caller is gone.
//
// A cell belongs to one goroutine at a time. What stops it from outside is its context.
package cell

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"runtime"
	"sync"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/prep"
)

// Options adjusts an Engine. The zero value is the default.
type Options struct {
	CacheDir string     // directory for compiled code; it is trusted like the program itself. "" keeps it in memory
	Copy     bool       // copy images instead of mapping them, as on systems without memfd
	Caps     *prep.Caps // what a module may ask; nil means prep.DefaultCaps
	Memory   int64      // bytes that all cells may have together; 0 means no bound
	Pool     int        // used cells kept for each image, to be reset in place; 0 means 16, negative none
}

// Engine compiles code and makes images. It is safe for concurrent use.
type Engine struct {
	opts     Options
	caps     prep.Caps
	runtime  wazero.Runtime
	cache    wazero.CompilationCache
	funcs    map[string]map[string]Func
	stack    stackLayout
	memories *memories
	turns    *turns
	budget   *budget
	packer   *packer

	mu     sync.Mutex
	closed bool
}

// New returns an engine whose guests may import funcs. Close frees it.
func New(ctx context.Context, funcs []Func, o *Options) (_ *Engine, err error) {
	if o == nil {
		o = &Options{}
	}
	all := &budget{most: o.Memory}
	if all.most == 0 {
		all.most = math.MaxInt64 / 2
	}
	e := &Engine{packer: newPacker(), budget: all, opts: *o, caps: prep.DefaultCaps(), funcs: map[string]map[string]Func{}, memories: newMemories(o.Copy, all), turns: newTurns(runtime.GOMAXPROCS(0))}
	if o.Caps != nil {
		e.caps = *o.Caps
	}
	if e.opts.Pool == 0 {
		e.opts.Pool = 16
	}
	if o.CacheDir == "" {
		e.cache = wazero.NewCompilationCache()
	} else if e.cache, err = wazero.NewCompilationCacheWithDir(o.CacheDir); err != nil {
		return nil, agent.Wrap(agent.Unavailable, err, "the directory for compiled code cannot be used")
	}
	if e.stack, err = findStackLayout(); err != nil {
		return nil, err
	}
	e.runtime = wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().
		WithCoreFeatures(api.CoreFeaturesV2).WithCompilationCache(e.cache).WithMemoryLimitPages(e.caps.Pages))
	if err := e.register(ctx, append(funcs, meter)); err != nil {
		return nil, errors.Join(err, e.Close(ctx))
	}
	return e, nil
}

// Close frees all code. Cells must be closed before.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	e.memories.close()
	return errors.Join(e.runtime.Close(ctx), e.cache.Close(ctx))
}

// register makes the host modules that hold funcs.
func (e *Engine) register(ctx context.Context, funcs []Func) error {
	for _, f := range funcs {
		if e.funcs[f.Module] == nil {
			e.funcs[f.Module] = map[string]Func{}
		}
		if _, twice := e.funcs[f.Module][f.Name]; twice {
			return fmt.Errorf("host function %s.%s is given twice", f.Module, f.Name)
		}
		e.funcs[f.Module][f.Name] = f
	}
	for module, fs := range e.funcs {
		b := e.runtime.NewHostModuleBuilder(module)
		for name, f := range fs {
			b.NewFunctionBuilder().WithGoModuleFunction(f.bind(), f.Params, f.Results).Export(name)
		}
		if _, err := b.Instantiate(ctx); err != nil {
			return fmt.Errorf("host module %s: %w", module, err)
		}
	}
	return nil
}

// Code is a compiled module. It is safe for concurrent use.
type Code struct {
	engine   *Engine
	module   *prep.Module
	compiled wazero.CompiledModule
	exports  map[string]prep.Signature

	digestOnce sync.Once
	digestSum  [sha256.Size]byte // see digest
}

// Compile prepares and compiles wasm, whose imports must be functions of the named host modules. The errors are those of
// prep.Prepare, and Invalid when the module does not validate.
func (e *Engine) Compile(ctx context.Context, wasm []byte, modules ...string) (*Code, error) {
	m, err := prep.Prepare(wasm, e.allow(modules), &e.caps)
	if err != nil {
		return nil, err
	}
	compiled, err := e.runtime.CompileModule(ctx, m.Code)
	if file := new(fs.PathError); errors.As(err, &file) {
		compiled, err = e.runtime.CompileModule(ctx, m.Code) // it could not be written to the cache, but is in memory now
	}
	if err != nil {
		return nil, &agent.Error{Kind: agent.Invalid, Msg: "module refused: it does not validate: " + err.Error()}
	}
	c := &Code{engine: e, module: m, compiled: compiled, exports: map[string]prep.Signature{}}
	for _, f := range m.Exports {
		c.exports[f.Name] = f.Signature
	}
	return c, nil
}

func (e *Engine) allow(modules []string) prep.Allow {
	return func(module, name string) (prep.Signature, bool) {
		for _, m := range modules {
			if m != module {
				continue
			}
			if f, ok := e.funcs[m][name]; ok {
				return prep.Signature{Params: f.Params, Results: f.Results}, true
			}
		}
		return prep.Signature{}, false
	}
}

// Imports lists the host functions that the code asks for.
func (c *Code) Imports() []prep.Func { return c.module.Imports }

// Exports lists the author's exported functions in their order.
func (c *Code) Exports() []prep.Func { return c.module.Exports }

// Export returns the signature of an exported function.
func (c *Code) Export(name string) (prep.Signature, bool) {
	s, ok := c.exports[name]
	return s, ok
}

// Size returns about how much memory the code takes: itself, what it was compiled to, which is some four times as long,
// its data, and what the engine keeps of any module.
func (c *Code) Size() int64 {
	const times, each = 5, 64 << 10
	n := int64(times*len(c.module.Code) + each)
	for _, s := range c.module.Data {
		n += int64(len(s.Data))
	}
	return n
}

// Close frees the code. Its images must be closed before.
func (c *Code) Close(ctx context.Context) error { return c.compiled.Close(ctx) }
