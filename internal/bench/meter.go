//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
	"github.com/skep-dev/skep/internal/wasmtest"
)

// task is something that keeps a CPU busy for some tens of milliseconds.
type task struct {
	name     string
	subject  subject
	function string // "" means the subject's own call
	arg      uint64
}

// counting is a module with two small things to compute, as tight as they get.
func counting() subject {
	code, i32 := wasmtest.Code, wasmtest.I32Const
	unary := wasmtest.Type{Params: []byte{wasmtest.I32}, Results: []byte{wasmtest.I32}}
	m := wasmtest.Module{
		Types: []wasmtest.Type{unary},
		Funcs: []wasmtest.Func{
			{Export: "fib", Body: code( // n < 2 ? n : fib(n - 1) + fib(n - 2)
				0x20, 0, i32(2), 0x48, 0x04, wasmtest.I32, 0x20, 0,
				0x05, 0x20, 0, i32(1), 0x6b, 0x10, 0, 0x20, 0, i32(2), 0x6b, 0x10, 0, 0x6a, 0x0b,
			)},
			{Export: "lcg", Locals: []byte{wasmtest.I32}, Body: code( // x = x * 1103515245 + 12345, n times
				0x03, 0x40, 0x20, 1, i32(1103515245), 0x6c, i32(12345), 0x6a, 0x21, 1,
				0x20, 0, i32(1), 0x6b, 0x22, 0, 0x0d, 0, 0x0b, 0x20, 1,
			)},
		},
		Memory: wasmtest.Size(1, 1),
	}
	return subject{name: "counting", wasm: m.Bytes(), start: idle}
}

func idle(instance) (lightCall, error) { return func(instance) error { return nil }, nil }

func tasks(goGuest subject) []task {
	compute := counting()
	js := inScript("(function () { const fib = (n) => n < 2 ? n : fib(n - 1) + fib(n - 2); return fib(25) })")
	return []task{
		{"fib(32)", compute, "fib", 32},
		{"LCG, 2e7 steps", compute, "lcg", 20_000_000},
		{"Go sha256", goGuest, "hash", 400},
		{"Go json", goGuest, "jsons", 40},
		{"Go matmul", goGuest, "matmul", 20},
		{"JavaScript fib(25)", js, "", 0},
	}
}

// metering is figure P8: the same work in a metered cell and in bare wazero, unprepared.
func metering(ctx context.Context, b *bench) ([]Figure, error) {
	goGuest, err := b.goGuest(ctx, "large")
	if err != nil {
		return nil, err
	}
	plain, err := b.bareEngine(ctx)
	if err != nil {
		return nil, err
	}
	e, err := b.engine(ctx, -1)
	if err != nil {
		return nil, err
	}
	defer func() { _ = e.Close(ctx) }()
	w, err := b.startWasmtime(ctx)
	if err != nil {
		return nil, err
	}
	defer w.stop()
	var fs, inWasmtime []Figure
	var mean []float64
	for _, t := range tasks(goGuest) {
		theirs, err := plain.Plain(ctx, t.subject.wasm)
		if err != nil {
			return nil, err
		}
		call, err := t.subject.start(theirs)
		if err != nil {
			return nil, err
		}
		f, err := meterOne(ctx, e, t, theirs, call, b.count(12, 3))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.name, err)
		}
		if err := theirs.Close(); err != nil {
			return nil, err
		}
		fs = append(fs, f)
		mean = append(mean, f.Ratio)
		if w == nil || t.function == "" { // the script engine imports what only we have
			continue
		}
		if f, err = b.wasmtimeFigure(w, t, f.Ours); err != nil {
			return nil, fmt.Errorf("%s: %w", t.name, err)
		}
		inWasmtime = append(inWasmtime, f)
	}
	g := Figure{ID: "P8", Name: "metered, geometric mean", Unit: Times, Ours: geomean(mean), Theirs: 1, Peer: bareWazero, Ratio: geomean(mean), Target: Target{Bound: 1.2}}
	return slices.Concat(fs, []Figure{g}, inWasmtime), nil
}

const bareWazero = "bare wazero"

// meterOne alternates the sides and compares their least times: CPU time can only be made longer by what else runs.
func meterOne(ctx context.Context, e *cell.Engine, t task, theirs instance, theirCall lightCall, rounds int) (Figure, error) {
	img, ourCall, err := t.subject.image(ctx, e)
	if err != nil {
		return Figure{}, err
	}
	defer func() { _ = img.Close() }()
	ours, err := img.Cell(ctx, cell.Env{Limits: agent.MaxLimits()})
	if err != nil {
		return Figure{}, err
	}
	defer ours.Close()
	if t.function != "" {
		run := func(x instance) error { _, err := x.Call(t.function, t.arg); return err }
		ourCall, theirCall = run, run
	}
	least := [2]time.Duration{time.Hour, time.Hour}
	for range rounds + 1 { // the first one warms up
		for i, run := range []func() error{
			func() error { return ourCall(ours) }, func() error { return theirCall(theirs) },
		} {
			took, err := cpuOfOne(run)
			if err != nil {
				return Figure{}, err
			}
			least[i] = min(least[i], took)
		}
	}
	return compare("P8", "metered, "+t.name, Seconds, []float64{least[0].Seconds()}, []float64{least[1].Seconds()}, bareWazero,
		Target{Bound: 1.2}), nil
}
