// Package extism runs modules that were built with the public Extism PDKs, unchanged, in cells.
//
// It answers the import module "extism:host/env" itself, from a heap beside the cell, where Extism's own hosts add a second
// WebAssembly instance to each plugin, and adds Skep's calls (package abi). A module is loaded once: its initialisers run,
// and what it is then becomes the image from which each call gets a cell of its own. Variables, like all other state, end
// with the call.
package extism

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
	"github.com/skep-dev/skep/host/wasi"
)

// Funcs returns the functions of the Extism ABI and of Skep's own, for cell.New. Modules need those of package wasi too.
func Funcs() []cell.Func {
	var fs []cell.Func
	for _, f := range env() {
		fs = append(fs, f.bind(envModule))
	}
	for _, f := range skep() {
		fs = append(fs, f.bind(abi.Module))
	}
	return fs
}

// LoadOptions adjusts Load. The zero value is the default.
type LoadOptions struct {
	Env cell.Env // of the cell in which the initialisers run
}

// Agent is a loaded module. It is safe for concurrent use.
type Agent struct {
	code    *cell.Code
	image   *cell.Image
	command *cell.Image // for _start, which initialises by itself; nil when image does
	each    bool        // every cell runs the initialisers: the image was taken before them
	arenas  sync.Pool   // of *[]byte, for heaps
}

// Load compiles wasm and runs its initialisers: hs_init, or _initialize, or __wasm_call_ctors, whichever is there first.
// The errors are those of cell.Engine.Compile and cell.Cell.Call. Close the agent before the engine.
func Load(ctx context.Context, eng *cell.Engine, wasm []byte, o *LoadOptions) (_ *Agent, err error) {
	if o == nil {
		o = &LoadOptions{}
	}
	a := &Agent{}
	defer func() {
		if err != nil {
			_ = a.Close(ctx)
		}
	}()
	if a.code, err = compile(ctx, eng, wasm); err != nil {
		return nil, err
	}
	if sig, ok := a.code.Export(abi.Reseed); ok && len(sig.Params) > 0 && string(sig.Params) != string(cell.I64) {
		return nil, agent.Errorf(agent.Invalid, "module refused: %s is %s; it must be () -> () or (i64) -> ()", abi.Reseed, sig)
	}
	imaged := len(a.initialisers()) == 0
	a.image, err = eng.NewImage(ctx, a.code, o.Env, func(_ context.Context, c *cell.Cell) error {
		if !c.Env().Imaging {
			return nil // no image can be taken of such code: each call begins with an instance that has not been initialised
		}
		imaged = true
		c.Guest = &initialising{}
		return a.initialise(c)
	})
	if errors.Is(err, errEarly) {
		imaged = false
		a.image, err = eng.NewImage(ctx, a.code, o.Env, nil)
	}
	if err != nil {
		return nil, initError(startSection, err)
	}
	a.each = !imaged
	if _, ok := a.code.Export(start); ok && imaged && len(a.initialisers()) > 0 {
		a.command, err = eng.NewImage(ctx, a.code, o.Env, nil)
	}
	return a, err
}

// Compile checks and compiles wasm, runs nothing of it, and leaves it in the engine's cache, where Load finds it.
func Compile(ctx context.Context, eng *cell.Engine, wasm []byte) error {
	code, err := compile(ctx, eng, wasm)
	if err != nil {
		return err
	}
	return code.Close(ctx)
}

func compile(ctx context.Context, eng *cell.Engine, wasm []byte) (*cell.Code, error) {
	return eng.Compile(ctx, wasm, envModule, abi.Module, wasi.Module)
}

// The functions by which modules begin.
const (
	start      = "_start"
	initialize = "_initialize"
	ctors      = "__wasm_call_ctors"
	haskell    = "hs_init"

	startSection = "its start function" // for messages: it need not have a name
)

// initialisers lists the functions that bring a fresh instance to life.
func (a *Agent) initialisers() []string {
	has := func(name string, params int) bool {
		sig, ok := a.code.Export(name)
		return ok && len(sig.Params) == params
	}
	switch {
	case has(haskell, 2) && has(initialize, 0):
		return []string{initialize, haskell}
	case has(haskell, 2):
		return []string{haskell}
	case has(initialize, 0):
		return []string{initialize}
	case has(ctors, 0):
		return []string{ctors}
	}
	return nil
}

func (a *Agent) initialise(c *cell.Cell) error {
	for _, name := range a.initialisers() {
		args := []uint64{0, 0} // hs_init takes argc and argv
		if _, err := c.Call(name, args...); err != nil {
			return initError(name, err)
		}
	}
	return nil
}

// initError says of an exit that it came from an initialiser.
func initError(name string, err error) error {
	var exit *cell.Exit
	if errors.As(err, &exit) {
		return agent.Errorf(agent.Failed, "the module exited with status %d in %s, before the call", exit.Code, name)
	}
	return err
}

// Exports lists the functions that callers may name, sorted. A module's _start is listed when it is all there is.
func (a *Agent) Exports() []string {
	var names []string
	for _, f := range a.code.Exports() {
		if !reserved(f.Name) && f.Name != start && callable(f.Params, f.Results) {
			names = append(names, f.Name)
		}
	}
	if sig, ok := a.code.Export(start); ok && len(names) == 0 && callable(sig.Params, sig.Results) {
		names = append(names, start)
	}
	slices.Sort(names)
	return names
}

// reserved reports whether a name belongs to a language's runtime.
func reserved(name string) bool {
	switch name {
	case initialize, ctors, haskell, "__wasm_call_dtors", "hs_exit", "hs_perform_gc", "malloc", "free", abi.Reseed:
		return true
	}
	return strings.HasPrefix(name, "asyncify_")
}

func callable(params, results []byte) bool {
	return len(params) == 0 && (len(results) == 0 || len(results) == 1 && results[0] == cell.I32)
}

// Size returns about how much memory the agent keeps.
func (a *Agent) Size() int64 {
	n := a.code.Size() + a.image.Size()
	if a.command != nil {
		n += a.command.Size()
	}
	return n
}

// Cost returns what the module's initialisers have cost.
func (a *Agent) Cost() agent.Usage { return a.image.Cost() }

// Close frees the agent when no call is under way. It may be called twice.
func (a *Agent) Close(ctx context.Context) error {
	var errs []error
	for _, i := range []*cell.Image{a.image, a.command} {
		if i != nil {
			errs = append(errs, i.Close())
		}
	}
	if a.code != nil {
		errs = append(errs, a.code.Close(ctx))
	}
	a.code, a.image, a.command = nil, nil, nil
	return errors.Join(errs...)
}
