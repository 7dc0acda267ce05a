package hostile_test

import (
	"bytes"
	"fmt"
	"math"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
	"github.com/skep-dev/skep/host/wasi"
	w "github.com/skep-dev/skep/internal/wasmtest"
)

// args is code that puts values of one size on the stack, as many as fn takes.
func args(fn cell.Func, v int64) []byte {
	var b []byte
	for _, t := range fn.Params {
		if t == w.I32 {
			b = append(b, w.I32Const(int32(v))...)
		} else {
			b = append(b, w.I64Const(v)...)
		}
	}
	return b
}

// abuse is a module that calls fn with one value for every parameter.
func abuse(i int, fn cell.Func, v int64) agent.Source {
	return wasm(args(fn, v), callOp, w.U(i), bytes.Repeat([]byte{drop}, len(fn.Results)))
}

// badValues are addresses at, across and past the ends of memory, and numbers that wrap.
var badValues = []int64{-1, -4, 0, 1, 65535, 65536, 65528, math.MaxInt32, math.MinInt32, math.MaxInt64, 1 << 32}

// abusive has a row for each function of a module, which calls it with each of badValues. It must answer, or end its cell
// by a failure or a limit.
func abusive(module string) []attack {
	ends := append(over(agent.LimitMemory, agent.LimitCPU, agent.LimitWall, agent.LimitLog, agent.LimitHostCalls),
		end{ok: true}, end{kind: agent.Failed}, end{kind: agent.Denied}, end{kind: agent.NotFound})
	var rows []attack
	for i, fn := range lib {
		if fn.Module != module {
			continue
		}
		var funcs []w.Func
		for n, v := range badValues {
			funcs = append(funcs, w.Func{
				Export: fmt.Sprint("f", n), Body: w.Code(args(fn, v), callOp, w.U(i), bytes.Repeat([]byte{drop}, len(fn.Results))),
			})
		}
		rows = append(rows, attack{name: fn.Name + " with bad values", run: each(attack{
			src:    moduleWith(funcs),
			limits: agent.Limits{Wall: 100 * time.Millisecond}, want: ends,
		}, len(funcs))})
	}
	return rows
}

func moduleWith(funcs []w.Func) agent.Source {
	return module(w.Module{Memory: w.Size(1, 1), Funcs: funcs})
}

func wasiAttacks() []attack {
	const outside = "outside of its memory"
	const cpu, wall = agent.LimitCPU, agent.LimitWall
	exit := func(code int32) []byte { return w.Code(w.I32Const(code), call("proc_exit")) }
	subscribe := func(at int32, kind int32, timeout int64) []byte { // to a clock, or to a stream
		return w.Code(store(at+8, kind), w.I32Const(at), w.I64Const(timeout), 0x37, 3, w.U(24))
	}
	poll := func(n int32) []byte { return w.Code(i32s(1024, 512, n, 0), call("poll_oneoff")) }
	soon := agent.Limits{Wall: 60 * time.Millisecond}
	return append(abusive(wasi.Module), []attack{
		{name: "a vector across the end of memory", src: wasm(i32s(1, 65532, 1, 0), call("fd_write"), drop), want: failed(outside)},
		{name: "a vector that points outside", src: wasm(store(0, -1), store(4, 4), i32s(1, 0, 1, 8), call("fd_write"), drop), want: failed(outside)},
		{name: "a vector with a length that wraps", src: wasm(store(0, 16), store(4, -1), i32s(1, 0, 1, 8), call("fd_write"), drop), want: failed(outside)},
		{name: "vectors that lie outside in the end", src: wasm(i32s(1, 65000, 1000, 0), call("fd_write"), drop), want: failed(outside)},
		{name: "more vectors than there are", src: wasm(i32s(1, 0, -1, 0), call("fd_write"), w.I32Const(28), 0x47, if_, empty, unreachable, end_), want: gives("")},
		{name: "the result of a write outside", src: wasm(i32s(1, 0, 0, 65533), call("fd_write"), drop), want: failed(outside)},
		{name: "a poll of nothing", src: wasm(poll(0), w.I32Const(28), 0x47, if_, empty, unreachable, end_), want: gives("")},
		{name: "a poll of 2³² subscriptions", src: wasm(poll(-1), w.I32Const(28), 0x47, if_, empty, unreachable, end_), want: gives("")},
		{name: "a poll of more than there is memory for", src: wasm(poll(4000), drop), want: failed(outside)},
		{name: "a poll of a thousand streams for ever", src: wasm(i32s(1024, 1, 60_000), misc, 11, 0, forever(i32s(1024, 1024, 1000, 0), call("poll_oneoff"), drop)), want: over(cpu)},
		{name: "a sleep of centuries", src: wasm(subscribe(1024, 0, math.MaxInt64), poll(1), drop), limits: soon, want: over(wall)},
		{name: "a sleep of 2⁶⁴ nanoseconds", src: wasm(subscribe(1024, 0, -1), poll(1), drop), limits: soon, want: over(wall)},
		{name: "a sleep until the end of time", src: wasm(subscribe(1024, 0, -1), store(1024+40, 1), poll(1), drop), limits: soon, want: over(wall)},
		{name: "sleeps of nothing for ever", src: wasm(forever(subscribe(1024, 0, 0), poll(1), drop)), want: over(cpu)},
		{name: "short sleeps for ever", src: wasm(forever(subscribe(1024, 0, 1000), poll(1), drop)), limits: soon, want: over(wall, cpu)},
		{name: "a sleep on a clock that is not there", src: wasm(store(1024+16, 77), poll(1), drop), want: gives("")},
		{name: "an exit with 0", src: wasm(exit(0), unreachable), want: gives("")},
		{name: "an exit with 1", src: wasm(exit(1)), want: failed("status 1")},
		{name: "an exit with 2³²-1", src: wasm(exit(-1)), want: failed("status 4294967295")},
		{name: "an exit in the start function", src: module(w.Module{Start: len(lib) + 1, Funcs: []w.Func{f(nil), {Body: exit(0)}}}), want: failed("exited with status 0 in its start function")},
		{name: "an exit in _initialize", src: module(w.Module{Funcs: []w.Func{f(nil), {Export: "_initialize", Body: exit(3)}}}), want: failed("exited with status 3")},
		{name: "a file to be opened", src: wasm(i32s(3, 0, 0, 4, 0), i64s(-1, -1), i32s(0, 8), call("path_open"), w.I32Const(8), 0x47, if_, empty, unreachable, end_), want: gives("")},
		{name: "an environment to be read", src: wasm(i32s(0, 4), call("environ_sizes_get"), drop, w.I32Const(0), i32Load, 2, 0, if_, empty, unreachable, end_), want: gives("")},
		{name: "randomness outside of memory", src: wasm(i32s(65535, 2), call("random_get"), drop), want: failed(outside)},
		{name: "randomness for all of memory", src: wasm(w.I32Const(100), memoryGrow, 0, drop, forever(i32s(0, 100<<16), call("random_get"), drop)), limits: agent.Limits{Memory: 8 << 20}, want: over(cpu)},
		{name: "an input to be read into nowhere", src: wasm(i32s(0, -1, -1, -1), call("fd_read"), drop), want: failed(outside)},
		{name: "an import with another type", src: binary(w.Module{
			Types: []w.Type{{}}, Imports: []w.Import{{Module: wasi.Module, Name: "fd_write"}}, Funcs: []w.Func{{Export: "f"}},
		}.Bytes()), want: refused("fd_write")},
		{name: "an import that is not there", src: binary(w.Module{
			Types: []w.Type{{}}, Imports: []w.Import{{Module: wasi.Module, Name: "exec"}}, Funcs: []w.Func{{Export: "f"}},
		}.Bytes()), want: refused("exec")},
		{name: "an import of the fuel's function", src: binary(w.Module{
			Types: []w.Type{{Params: []byte{w.I64}, Results: []byte{w.I64}}}, Imports: []w.Import{{Module: "skep:meter", Name: "refill"}},
		}.Bytes()), want: refused("refill")},
		{name: "an import of the script engine's functions", src: binary(w.Module{
			Types: []w.Type{{Params: bytes.Repeat([]byte{w.I32}, 5), Results: []byte{w.I32}}}, Imports: []w.Import{{Module: "env", Name: "host_call"}},
		}.Bytes()), want: refused("host_call")},
		{name: "an export of the fuel", src: binary(w.Module{
			Types: []w.Type{{}}, Funcs: []w.Func{{Export: "skep:fuel"}},
		}.Bytes()), want: refused("reserved")},
		{name: "a call of the dispatcher", src: wasm(), fn: "skep:call", want: []end{{kind: agent.NotFound}}},
		{name: "a call of the start function", src: module(w.Module{Start: len(lib) + 1, Funcs: []w.Func{f(nil), {}}}), fn: "skep:start", want: []end{{kind: agent.NotFound}}},
	}...)
}
