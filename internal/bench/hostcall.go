//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/host/cell"
	"github.com/skep-dev/skep/host/grant"
	"github.com/skep-dev/skep/host/grant/emit"
	"github.com/skep-dev/skep/internal/bench/bare"
	"github.com/skep-dev/skep/internal/wasmtest"
)

// calling is a module that calls a function of its host n times, and does nothing else.
func calling() subject {
	code := wasmtest.Code
	m := wasmtest.Module{
		Types:   []wasmtest.Type{{Params: []byte{wasmtest.I32}, Results: []byte{wasmtest.I32}}},
		Imports: []wasmtest.Import{{Module: benchModule, Name: "nop"}},
		Funcs: []wasmtest.Func{{Export: "ask", Body: code(
			0x03, 0x40, 0x20, 0, 0x10, 0, 0x1a, 0x20, 0, wasmtest.I32Const(1), 0x6b, 0x22, 0, 0x0d, 0, 0x0b, wasmtest.I32Const(0),
		)}},
		Memory: wasmtest.Size(1, 1),
	}
	return subject{name: "calling", wasm: m.Bytes(), start: idle}
}

// hostCalls is figure P9.
func hostCalls(ctx context.Context, b *bench) ([]Figure, error) {
	raw, err := b.rawCalls(ctx)
	if err != nil {
		return nil, err
	}
	granted, err := b.grantedCalls(ctx)
	return append([]Figure{raw}, granted...), err
}

func (b *bench) rawCalls(ctx context.Context) (Figure, error) {
	nop := cell.Func{
		Module: benchModule, Name: "nop", Params: []byte{cell.I32}, Results: []byte{cell.I32},
		Call: func(_ context.Context, _ *cell.Cell, stack []uint64) { stack[0] = 0 },
	}
	e, err := b.engine(ctx, -1, nop)
	if err != nil {
		return Figure{}, err
	}
	defer func() { _ = e.Close(ctx) }()
	plain, err := bare.New(ctx, b.cache())
	if err != nil {
		return Figure{}, err
	}
	defer func() { _ = plain.Close(ctx) }()
	if err := plain.Imports(ctx, benchModule, bare.Import{Name: nop.Name, Params: nop.Params, Results: nop.Results}); err != nil {
		return Figure{}, err
	}
	s := calling()
	theirs, err := plain.Plain(ctx, s.wasm)
	if err != nil {
		return Figure{}, err
	}
	const n = 100_000
	f, err := meterOne(ctx, e, task{"host call", s, "ask", n}, theirs, nil, b.count(20, 5))
	f.ID, f.Name, f.Target = "P9", "host call, raw", Target{Bound: 1e-6, Value: true}
	f.Ours, f.Theirs = f.Ours/n, f.Theirs/n
	return f, err
}

const emitting = `import { emit, callAgent } from "skep";
export function events(n) { for (let i = 0; i < n; i++) emit("step", { i }); return n }
export async function calls(n) { for (let i = 0; i < n; i++) await callAgent("other", "f", i); return n }`

// emitModule makes n calls of emit through the bare ABI. Its input is not read: n is one of two functions.
func emitModule() []byte {
	const (
		toI64 = iota
		storeU8
		call
		free
		run
	)
	code, i64 := wasmtest.Code, wasmtest.I64Const
	put := func(local int, text string) []byte { // allocates a block and stores text in it
		b := code(i64(int64(len(text))), 0x10, 0, 0x21, local)
		for i, c := range []byte(text) {
			b = code(b, 0x20, local, i64(int64(i)), 0x7c, wasmtest.I32Const(int32(c)), 0x10, 1)
		}
		return b
	}
	const name, body = 0, 1
	once := code(put(name, abi.CallEmit), put(body, `{"name":"step","data":{"i":1}}`), 0x20, name, 0x20, body, 0x10, 2, 0x10, 3)
	times := func(n int32) []byte {
		return code(wasmtest.I32Const(n), 0x21, 2, 0x03, 0x40, once, 0x20, 2, wasmtest.I32Const(1), 0x6b, 0x22, 2, 0x0d, 0, 0x0b, wasmtest.I32Const(0))
	}
	locals := []byte{wasmtest.I64, wasmtest.I64, wasmtest.I32}
	return wasmtest.Module{
		Types: []wasmtest.Type{
			toI64:   {Params: []byte{wasmtest.I64}, Results: []byte{wasmtest.I64}},
			storeU8: {Params: []byte{wasmtest.I64, wasmtest.I32}},
			call:    {Params: []byte{wasmtest.I64, wasmtest.I64}, Results: []byte{wasmtest.I64}},
			free:    {Params: []byte{wasmtest.I64}},
			run:     {Results: []byte{wasmtest.I32}},
		},
		Imports: []wasmtest.Import{
			{Module: "extism:host/env", Name: "alloc", Type: toI64}, {Module: "extism:host/env", Name: "store_u8", Type: storeU8},
			{Module: abi.Module, Name: "skep_call", Type: call}, {Module: "extism:host/env", Name: "free", Type: free},
		},
		Funcs: []wasmtest.Func{
			{Type: run, Export: "few", Locals: locals, Body: times(1)}, {Type: run, Export: "many", Locals: locals, Body: times(emits + 1)},
		},
		Memory: wasmtest.Size(1, 1),
	}.Bytes()
}

// emits is how many calls one life makes more than another, to find what each costs.
const emits = 5000

// grantedCalls measures calls that go through the door: counted, decoded, checked and answered, with no journal behind it.
func (b *bench) grantedCalls(ctx context.Context) ([]Figure, error) {
	h, err := host.New(ctx, &host.Options{CacheDir: b.cache(), Load: func(_ context.Context, d agent.Digest) (agent.Source, error) {
		if d == "module" {
			return agent.Source{Kind: agent.Wasm, Main: "emit.wasm", Files: map[string][]byte{"emit.wasm": emitModule()}}, nil
		}
		return agent.Source{Kind: agent.Script, Main: "emit.js", Files: map[string][]byte{"emit.js": []byte(emitting)}}, nil
	}})
	if err != nil {
		return nil, err
	}
	defer func() { _ = h.Close(context.WithoutCancel(ctx)) }()
	limits := agent.MaxLimits()
	run := func(plugin agent.Digest, function string, n int) error {
		door := grant.NewDoor(limits, map[string]grant.Handler{
			abi.CallEmit: emit.New(limits.Events, func(context.Context, string, json.RawMessage) error { return nil }),
			abi.CallAgent: grant.JSON(func(_ context.Context, in abi.AgentCall) (abi.AgentResult, error) {
				return abi.AgentResult{Type: agent.TypeJSON, Output: in.Input}, nil
			}),
		}, nil)
		_, err := h.Call(ctx, host.Call{
			Plugin: plugin, Tenant: "bench", Function: function, Input: agent.JSON(fmt.Appendf(nil, "%d", n)), Limits: limits, Calls: door.Call,
		})
		return err
	}
	var fs []Figure
	for _, c := range []struct {
		name      string
		few, many func() error
	}{
		{"module, skep_call", func() error { return run("module", "few", 0) }, func() error { return run("module", "many", 0) }},
		{"script, emit", func() error { return run("script", "events", 1) }, func() error { return run("script", "events", emits+1) }},
		{"script, await callAgent", func() error { return run("script", "calls", 1) }, func() error { return run("script", "calls", emits+1) }},
	} {
		least, err := eachCosts(c.few, c.many, b.count(8, 2))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		fs = append(fs, alone("P9", "host call through grant, "+c.name, Seconds, least, Target{Bound: 20e-6, Value: true}))
	}
	return fs, nil
}

// eachCosts returns the least CPU time of one call: all of the process, since the host answers scripts on other threads.
func eachCosts(few, many func() error, rounds int) (float64, error) {
	least := [2]float64{1e9, 1e9}
	for range rounds {
		for i, fn := range []func() error{few, many} {
			start := processCPU()
			if err := fn(); err != nil {
				return 0, err
			}
			least[i] = min(least[i], (processCPU() - start).Seconds())
		}
	}
	return (least[1] - least[0]) / emits, nil
}
