package hostile_test

import (
	"fmt"
	"testing"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	w "github.com/skep-dev/skep/internal/wasmtest"
)

// each makes calls of f0, f1, ... of one module, and judges each.
func each(a attack, n int) func(*testing.T, *suite) {
	return func(t *testing.T, s *suite) {
		for i := range n {
			a.fn = fmt.Sprint("f", i)
			out, usage, err := s.call(t, a)
			s.judge(t, a, out, usage, err)
		}
	}
}

func extismAttacks() []attack {
	const cpu, memory = agent.LimitCPU, agent.LimitMemory
	rows := append(abusive("extism:host/env"), abusive(abi.Module)...)
	alloc := func(n int64) []byte { return w.Code(i64s(n), call("alloc")) }
	return append(rows, []attack{
		{name: "alloc of everything", src: wasm(alloc(-1), drop), want: over(memory)},
		{name: "alloc of a tebibyte", src: wasm(alloc(1<<40), drop), want: over(memory)},
		{name: "alloc of a gigabyte", src: wasm(alloc(1<<30), drop), want: over(memory)},
		{name: "alloc of just too much", src: wasm(alloc(64<<20), drop), want: over(memory)},
		{name: "alloc for ever", src: wasm(forever(alloc(5<<20), drop)), want: over(memory, cpu)},
		{name: "alloc of a byte for ever", src: wasm(forever(alloc(1), drop)), want: over(memory, cpu)},
		{name: "alloc of nothing for ever", src: wasm(forever(alloc(0), drop)), want: over(cpu)},
		{name: "alloc and free for ever", src: wasm(forever(alloc(5<<20), call("free"))), want: over(cpu)},
		{name: "alloc and reset for ever", src: wasm(forever(alloc(50<<20), drop, call("reset"))), want: over(cpu)},
		{name: "alloc of many sizes, and free", src: wasm(forever(localGet, 2, i64s(1), i64Add, localTee, 2, call("alloc"), call("free"))), want: over(cpu, memory)},
		{name: "free twice", src: wasm(alloc(16), localTee, 2, call("free"), localGet, 2, call("free"),
			// If the block were free twice, two more would be one.
			alloc(16), localSet, 2, alloc(16), localGet, 2, 0x51, if_, empty, unreachable, end_), want: gives("")},
		{name: "free inside a block", src: wasm(alloc(64), i64s(8), i64Add, call("free"), alloc(64), drop), want: gives("")},
		{name: "free the input, then read it", src: wasm(call("input_offset"), call("free"), i64s(0), call("input_load_u64"), drop), input: `"secret"`, want: gives("")},
		{name: "output from below the heap", src: wasm(i64s(0, 16), call("output_set")), want: failed("outside of the")},
		{name: "output past the end", src: wasm(alloc(16), i64s(1<<20), call("output_set")), want: failed("outside of the")},
		{name: "output that wraps", src: wasm(alloc(16), i64s(-8), call("output_set")), want: failed("outside of the")},
		{name: "output after a reset", src: wasm(alloc(16), i64s(16), call("output_set"), call("reset")), want: gives("")},
		{name: "output of a block that is freed", src: wasm(alloc(16), localTee, 2, i64s(16), call("output_set"), localGet, 2, call("free")), want: gives("")},
		{name: "output above the limit", src: wasm(alloc(16<<20), i64s(16<<20), call("output_set")), limits: agent.Limits{Output: 1 << 20}, want: over(agent.LimitOutput)},
		{name: "input set past the end", src: wasm(alloc(16), i64s(17), call("input_set")), want: failed("outside of the")},
		{name: "input set, then reset, then read", src: wasm(alloc(4096), i64s(4096), call("input_set"), call("reset"), i64s(4088), call("input_load_u64"), drop), want: gives("")},
		{name: "error that is no block", src: wasm(i64s(12345), call("error_set")), want: failed("where no block begins")},
		{name: "error of 30 MB", run: wasmErrorsAreShort},
		{name: "variables for ever", src: wasm(forever(
			block64("xxxxxxxx", 2), localGet, 3, i64s(1), i64Add, localSet, 3, localGet, 2, localGet, 3, call("store_u64"),
			localGet, 2, alloc(1<<16), call("var_set"))), want: over(memory, cpu)},
		{name: "one variable set for ever", src: wasm(forever(block64("k", 2), block64("value", 3), localGet, 2, localGet, 3, call("var_set"))), want: over(cpu)},
		{name: "a large variable read for ever", src: wasm(block64("k", 2), localGet, 2, alloc(8<<20), call("var_set"),
			forever(block64("k", 2), localGet, 2, call("var_get"), call("free"))), want: over(cpu)},
		{name: "lengths for ever", src: wasm(forever(alloc(16), localTee, 2, call("length"), drop, localGet, 2, call("free"))), want: over(cpu)},
		{name: "a request of 2 MB of headers", src: wasm(alloc(2<<20), i64s(0), call("http_request"), drop), want: failed("URL and headers")},
		{name: "a request that is refused", src: wasm(request(`{"url":"http://169.254.169.254/"}`)), want: []end{{kind: agent.Denied, says: "not allowed"}}},
		{name: "a call with a long name", src: wasm(alloc(1<<20), i64s(0), call("skep_call"), drop), want: failed("longer than")},
		{name: "a call with a name that is free", src: wasm(alloc(8), localTee, 2, call("free"), localGet, 2, i64s(0), call("skep_call"), drop), want: failed("empty")},
		{name: "host calls in the start function", src: module(w.Module{Start: len(lib) + 1, Funcs: []w.Func{f(nil), {Body: w.Code(alloc(1), drop)}}}), want: refused("start function")},
		{name: "host calls in _initialize", src: module(w.Module{Funcs: []w.Func{f(nil), {Export: "_initialize", Body: w.Code(alloc(1), drop)}}}), want: gives("")},
		{name: "a call of malloc", src: module(w.Module{Funcs: []w.Func{{Export: "malloc"}}}), fn: "malloc", want: []end{{kind: agent.NotFound}}},
		{name: "a call of a function with parameters", src: module(w.Module{Funcs: []w.Func{{Export: "f", Type: takes}}}), want: refused("can be called")},
		{name: "a reseed of another type", src: module(w.Module{Funcs: []w.Func{{Export: abi.Reseed, Type: takes}}}), want: refused(abi.Reseed)},
		{name: "a reseed that loops", src: module(w.Module{Funcs: []w.Func{f(nil), {Export: abi.Reseed, Body: forever()}}}), want: over(cpu)},
		{name: "a reseed that exits", src: module(w.Module{Funcs: []w.Func{f(nil), {Export: abi.Reseed, Body: w.Code(w.I32Const(0), call("proc_exit"))}}}), want: failed("exited")},
		{name: "a trap", src: wasm(unreachable), want: failed("unreachable")},
		{name: "a division by zero", src: wasm(i32s(1, 0), 0x6d, drop), want: failed("divide by zero")},
		{name: "a number too large for an integer", src: wasm(0x44, []byte{0, 0, 0, 0, 0, 0, 0xf0, 0x7f}, 0xaa, drop), want: failed("overflow")},
	}...)
}

// request is code that makes a request with text, eight bytes at a time.
func request(text string) []byte {
	for len(text)%8 != 0 {
		text += " "
	}
	b := w.Code(i64s(int64(len(text))), call("alloc"), localSet, 2)
	for at := 0; at < len(text); at += 8 {
		n := int64(0)
		for i := 7; i >= 0; i-- {
			n = n<<8 | int64(text[at+i])
		}
		b = append(b, w.Code(localGet, 2, i64s(int64(at)), i64Add, i64s(n), call("store_u64"))...)
	}
	return append(b, w.Code(localGet, 2, i64s(0), call("http_request"), drop)...)
}

func wasmErrorsAreShort(t *testing.T, s *suite) {
	_, _, err := s.call(t, attack{src: wasm(i64s(30<<20), call("alloc"), call("error_set"))})
	short(t, err, maxError)
}
