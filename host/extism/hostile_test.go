package extism_test

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
	"github.com/skep-dev/skep/host/extism"
	"github.com/skep-dev/skep/host/wasi"
	w "github.com/skep-dev/skep/internal/wasmtest"
)

// raw is a module whose function f has the given body and two i64 locals. The functions that it may call are numbered below.
func raw(memory *w.Limits, body []byte) []byte {
	const env = "extism:host/env"
	m := w.Module{
		Types: []w.Type{
			{}, {Params: []byte{w.I64}, Results: []byte{w.I64}}, {Params: []byte{w.I64}}, {Params: []byte{w.I64, w.I64}},
			{Params: []byte{w.I32, w.I32, w.I32, w.I32}, Results: []byte{w.I32}},
			{Results: []byte{w.I64}},
		},
		Imports: []w.Import{
			callAlloc: {Module: env, Name: "alloc", Type: 1}, callFree: {Module: env, Name: "free", Type: 2},
			callLoad: {Module: env, Name: "load_u64", Type: 1}, callStore: {Module: env, Name: "store_u64", Type: 3},
			callOutput: {Module: env, Name: "output_set", Type: 3}, callError: {Module: env, Name: "error_set", Type: 2},
			callLog: {Module: env, Name: "log_info", Type: 2}, callVarSet: {Module: env, Name: "var_set", Type: 3},
			callInput: {Module: env, Name: "input_load_u64", Type: 1}, callWrite: {Module: wasi.Module, Name: "fd_write", Type: 4},
			callInputAt: {Module: env, Name: "input_offset", Type: 5}, callInputLength: {Module: env, Name: "input_length", Type: 5},
		},
		Memory: memory,
		Funcs:  []w.Func{{Type: 0, Export: "f", Locals: []byte{w.I64, w.I64}, Body: body}},
	}
	return m.Bytes()
}

const (
	callAlloc = iota
	callFree
	callLoad
	callStore
	callOutput
	callError
	callLog
	callVarSet
	callInput
	callWrite
	callInputAt
	callInputLength
	callSelf // f itself

	call0       = 0x10 // the opcodes used here
	drop        = 0x1a
	unreachable = 0x00
)

func forever(body ...any) []byte { return w.Code(0x03, 0x40, w.Code(body...), 0x0c, 0, 0x0b) }

func TestHostileModules(t *testing.T) {
	i32, i64 := w.I32Const, w.I64Const
	allocate := func(n int64) []byte { return w.Code(i64(n), call0, callAlloc) }
	page := w.Size(1, 4096)
	for _, tc := range []struct {
		name   string
		memory *w.Limits
		body   []byte
		kind   agent.Kind
		limit  agent.Limit
		says   string // "" when the call works
	}{
		{"alloc of a tebibyte", nil, w.Code(allocate(1<<40), drop), agent.Exhausted, agent.LimitMemory, "more memory than its limit"},
		{"alloc of everything", nil, w.Code(allocate(-1), drop), agent.Exhausted, agent.LimitMemory, "more memory than its limit"},
		{"small allocs for ever", nil, forever(allocate(1), drop), agent.Exhausted, agent.LimitMemory, "more memory than its limit"},
		{"large allocs for ever", nil, forever(allocate(5<<20), drop), agent.Exhausted, agent.LimitMemory, "more memory than its limit"},
		{"alloc and free for ever", nil, forever(allocate(5<<20), call0, callFree), agent.Exhausted, agent.LimitCPU, "more CPU time"},
		{"load at 0", nil, w.Code(i64(0), call0, callLoad, drop), agent.Failed, 0, "loaded 8 bytes at offset 0"},
		{"load below 0", nil, w.Code(i64(-4), call0, callLoad, drop), agent.Failed, 0, "outside of the"},
		{"load far away", nil, w.Code(i64(1<<32+16), call0, callLoad, drop), agent.Failed, 0, "outside of the"},
		{"store past the end", nil, w.Code(allocate(16), i64(9), 0x7c, i64(1), call0, callStore), agent.Failed, 0, "stored 8 bytes"},
		{"input past the end", nil, w.Code(i64(-1), call0, callInput, drop), 0, 0, ""},
		{"free of nothing", nil, w.Code(i64(99), call0, callFree, i64(-1), call0, callFree, i64(0), call0, callFree), 0, 0, ""},
		{"output past the end", nil, w.Code(allocate(16), i64(17), call0, callOutput), agent.Failed, 0, "set as its output 17 bytes"},
		{"output that wraps", nil, w.Code(allocate(16), i64(-8), call0, callOutput), agent.Failed, 0, "set as its output"},
		{"empty output", nil, w.Code(i64(12345), i64(0), call0, callOutput), 0, 0, ""},
		{"error that is no block", nil, w.Code(i64(12345), call0, callError), agent.Failed, 0, "where no block begins"},
		{"error within a block", nil, w.Code(allocate(64), i64(8), 0x7c, call0, callError), agent.Failed, 0, "where no block begins"},
		{"log of nothing for ever", nil, forever(i64(0), call0, callLog), agent.Exhausted, agent.LimitLog, "console output"},
		{
			"variables for ever", nil, forever(
				allocate(8), 0x21, 0, 0x20, 1, i64(1), 0x7c, 0x21, 1, // local 0 = a block, local 1 += 1
				0x20, 0, 0x20, 1, call0, callStore, // the name is the number
				0x20, 0, allocate(1<<16), call0, callVarSet),
			agent.Exhausted, agent.LimitMemory, "more memory than its limit",
		},
		{"write without a memory", nil, w.Code(i32(1), i32(0), i32(1), i32(0), call0, callWrite, drop), agent.Failed, 0, "outside of its memory"},
		{"write at a bad address", page, w.Code(i32(1), i32(-4), i32(1), i32(0), call0, callWrite, drop), agent.Failed, 0, "outside of its memory"},
		{"write of 2³² vectors", page, w.Code(i32(1), i32(0), i32(-1), i32(0), call0, callWrite, drop), 0, 0, ""},
		{"loop", nil, forever(), agent.Exhausted, agent.LimitCPU, "more CPU time"},
		{"recursion", nil, w.Code(call0, callSelf, call0, callSelf), agent.Exhausted, agent.LimitStack, "recursed"},
		{"memory.grow for ever", page, forever(i32(16), 0x40, 0, i32(-1), 0x46, 0x04, 0x40, unreachable, 0x0b), agent.Exhausted, agent.LimitMemory, "more memory than its limit"},
		{"trap", nil, w.Code(unreachable), agent.Failed, 0, "unreachable"},
		{
			"words before a trap", nil, w.Code(
				allocate(8), 0x21, 0, 0x20, 0, i64(0x217261656420686f), call0, callStore, // "oh dear!"
				0x20, 0, call0, callError, unreachable),
			agent.Failed, 0, "oh dear!",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			limits := agent.Limits{Memory: 16 << 20}
			if tc.limit == agent.LimitCPU {
				limits.CPU = 50 * time.Millisecond
			}
			a := load(t, raw(tc.memory, tc.body))
			_, usage, err := a.Call(t.Context(), extism.Call{Function: "f", Env: cell.Env{Limits: limits}})
			if tc.says == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			e := agent.AsError(err)
			if err == nil || e.Kind != tc.kind || e.Limit != tc.limit || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v; want %v %v that says %q", err, tc.kind, tc.limit, tc.says)
			}
			if usage.Memory > limits.Memory {
				t.Errorf("%d bytes of memory were used, the limit is %d", usage.Memory, limits.Memory)
			}
		})
	}
}

// TestOneMemoryLimit shows that blocks and linear memory share one limit.
func TestOneMemoryLimit(t *testing.T) {
	grow := w.Code(w.I32Const(8), 0x40, 0, w.I32Const(-1), 0x46, 0x04, 0x40, unreachable, 0x0b) // trap when it fails
	env := cell.Env{Limits: agent.Limits{Memory: 1 << 20}}
	for _, tc := range []struct {
		name string
		body []byte
		ok   bool
	}{
		{"grow", grow, true},
		{"alloc and grow", w.Code(w.I64Const(500<<10), call0, callAlloc, drop, grow), false},
		{"grow and alloc", w.Code(grow, w.I64Const(500<<10), call0, callAlloc, drop), false},
		{"alloc", w.Code(w.I64Const(500<<10), call0, callAlloc, drop), true},
	} {
		_, _, err := load(t, raw(w.Size(1, 4096), tc.body)).Call(t.Context(), extism.Call{Function: "f", Env: env})
		if tc.ok && err != nil || !tc.ok && agent.AsError(err).Limit != agent.LimitMemory {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

// TestFreedInput frees the input's block, after which there is no input, as in Extism's kernel.
func TestFreedInput(t *testing.T) {
	body := w.Code(call0, callInputAt, call0, callFree, call0, callInputLength, 0x50, 0x45, 0x04, 0x40, unreachable, 0x0b)
	a := load(t, raw(nil, body))
	if _, _, err := a.Call(t.Context(), extism.Call{Function: "f", Input: input("abc")}); err != nil {
		t.Error(err)
	}
}

// TestUnfinishedLine writes two bytes without a newline: they are a line of the log when the call ends, and count there.
func TestUnfinishedLine(t *testing.T) {
	put := func(at, v int32) []byte { return w.Code(w.I32Const(at), w.I32Const(v), 0x36, 2, 0) }
	hi := int32('h') | int32('i')<<8
	body := w.Code(put(0, 8), put(4, 2), put(8, hi), w.I32Const(1), w.I32Const(0), w.I32Const(1), w.I32Const(16), call0, callWrite, drop)
	a := load(t, raw(w.Size(1, 1), body))
	var lines []string
	env := cell.Env{Log: func(_ agent.LogLevel, s string) { lines = append(lines, s) }}
	if _, _, err := a.Call(t.Context(), extism.Call{Function: "f", Env: env}); err != nil || !slices.Equal(lines, []string{"hi"}) {
		t.Errorf("%q, %v", lines, err)
	}
	env.Limits.Log = 2
	if _, _, err := a.Call(t.Context(), extism.Call{Function: "f", Env: env}); agent.AsError(err).Limit != agent.LimitLog {
		t.Errorf("past the limit: %v", err)
	}
}

func TestInputAndOutputLimits(t *testing.T) {
	a := load(t, build(t, "pdk"))
	body := bytes.Repeat([]byte("x"), 1001)
	for _, tc := range []struct {
		n      int
		limits agent.Limits
		want   agent.Limit
	}{
		{1000, agent.Limits{Input: 1000}, 0},
		{1001, agent.Limits{Input: 1000}, agent.LimitInput},
		{1000, agent.Limits{Output: 1000}, 0},
		{1001, agent.Limits{Output: 1000}, agent.LimitOutput},
	} {
		out, usage, err := a.Call(t.Context(), extism.Call{
			Function: "echo", Input: agent.Payload{Body: body[:tc.n]}, Env: cell.Env{Limits: tc.limits},
		})
		switch {
		case tc.want == 0 && (err != nil || len(out.Body) != tc.n || usage.In != int64(tc.n) || usage.Out != int64(tc.n)):
			t.Errorf("%d bytes within %+v: %d, %+v, %v", tc.n, tc.limits, len(out.Body), usage, err)
		case tc.want != 0 && (err == nil || agent.AsError(err).Limit != tc.want):
			t.Errorf("%d bytes: %v, want limit %v", tc.n, err, tc.want)
		}
		if tc.want == agent.LimitInput && usage.Fuel > 0 {
			t.Errorf("the module ran on an input that was refused: %+v", usage)
		}
	}
}

// TestGoHogs has a real guest hit each limit that only time and memory can reach.
func TestGoHogs(t *testing.T) {
	a := load(t, build(t, "pdk"))
	for _, tc := range []struct {
		function string
		limits   agent.Limits
		want     agent.Limit
	}{
		{"spin", agent.Limits{CPU: 50 * time.Millisecond}, agent.LimitCPU},
		{"spin", agent.Limits{Wall: 50 * time.Millisecond}, agent.LimitWall},
		{"doze", agent.Limits{Wall: 50 * time.Millisecond, CPU: time.Hour}, agent.LimitWall},
		{"hoard", agent.Limits{Memory: 64 << 20}, agent.LimitMemory},
	} {
		_, _, err := a.Call(t.Context(), extism.Call{Function: tc.function, Env: cell.Env{Limits: tc.limits}})
		if e := agent.AsError(err); err == nil || e.Kind != agent.Exhausted || e.Limit != tc.want {
			t.Errorf("%s: %v, want limit %v", tc.function, err, tc.want)
		}
	}
}

// hog starts a call and returns when the module runs. end cancels it and returns its error.
func hog(t *testing.T, a *extism.Agent, function string) (running func() bool, end func() error) {
	ctx, cancel := context.WithCancel(t.Context())
	started, result := make(chan struct{}), make(chan error, 1)
	go func() {
		_, _, err := a.Call(ctx, extism.Call{Function: function, Env: cell.Env{
			Limits: agent.Limits{CPU: time.Hour, Wall: time.Hour},
			Log:    func(agent.LogLevel, string) { close(started) },
		}})
		result <- err
	}()
	<-started
	return func() bool { return len(result) == 0 }, func() error { cancel(); return <-result }
}

func TestNeighbourOfHog(t *testing.T) {
	a := load(t, build(t, "pdk"))
	running, end := hog(t, a, "spin")
	for i := range 20 {
		in := strings.Repeat("n", i)
		if got := call(t, a, extism.Call{Function: "echo", Input: input(in)}); got != in {
			t.Errorf("%q, want %q", got, in)
		}
	}
	if !running() {
		t.Error("the hog ended by itself")
	}
	if err := end(); agent.KindOf(err) != agent.Cancelled {
		t.Errorf("the hog ended with %v", err)
	}
}

func TestCancelSleep(t *testing.T) {
	a := load(t, build(t, "pdk"))
	for range 20 {
		running, end := hog(t, a, "doze")
		if !running() {
			t.Error("an hour has passed already")
		}
		if err := end(); agent.KindOf(err) != agent.Cancelled {
			t.Fatalf("cancelled asleep, it ended with %v", err)
		}
	}
}

func TestConcurrentCalls(t *testing.T) {
	a := load(t, fixture(t, "count_vowels.wasm"))
	results := make(chan string, 100)
	for i := range cap(results) {
		go func() {
			out, _, err := a.Call(t.Context(), extism.Call{Function: "count_vowels", Input: input(strings.Repeat("a", i))})
			if err != nil {
				t.Error(err)
			}
			results <- string(out.Body)
		}()
	}
	var got []string
	for range cap(results) {
		got = append(got, <-results)
	}
	slices.Sort(got)
	if n := len(slices.Compact(got)); n != cap(results) {
		t.Errorf("%d different counts of %d", n, cap(results))
	}
}
