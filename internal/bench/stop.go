//go:build linux

package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/internal/wasmtest"
)

// busyScript has a function for each way to be busy: in the author's own code, and within single calls of the engine.
const busyScript = `
const big = (n) => Array.from({ length: n }, (_, i) => ({ id: i, name: "n" + i, tags: ["a", "b"] }));
export function loop() { for (;;) ; }
export function tree() { const f = (n) => n === 0 ? 0 : f(n - 1) + f(n - 1); return f(60) }
export async function promises() { for (;;) await null }
export function regex() { return /^(a+)+$/.test("a".repeat(60) + "!") }
export function sort() { const a = Array.from({ length: 1e6 }, (_, i) => (i * 7919) % 1000003); for (;;) a.sort().reverse() }
export function stringify() { const v = big(20000); let n = 0; for (;;) n += JSON.stringify(v).length }
export function parse() { const t = JSON.stringify(big(20000)); for (;;) JSON.parse(t) }
export function split() { const t = "a,".repeat(2e6); for (;;) t.split(",") }
export function replace() { const t = "ab".repeat(2e6); for (;;) t.replaceAll("b", "cd") }
export function search() { const t = "a".repeat(8e6); for (;;) t.indexOf("a".repeat(4e6) + "b") }
export function fill() { const a = new Uint8Array(64 << 20); for (;;) a.fill(1) }
export function bigint() { let x = 3n; for (;;) x = x * x }
export function concat() { let a = [1, 2, 3]; for (;;) a = a.length > 2e6 ? [1] : a.concat(a) }
`

// busyModule is the same for modules.
func busyModule() []byte {
	const mib = 1 << 20
	code, i32 := wasmtest.Code, wasmtest.I32Const
	forever := func(body ...any) []byte { return code(0x03, 0x40, code(body...), 0x0c, 0, 0x0b, i32(0)) }
	grow := code(i32(16_000), 0x40, 0, 0x1a) // memory.grow to almost a gibibyte, drop
	funcs := []wasmtest.Func{
		{Export: "loop", Body: forever()},
		{Export: "fill", Body: code(grow, forever(i32(0), i32(1), i32(1000*mib), 0xfc, 11, 0))},
		{Export: "copy", Body: code(grow, forever(i32(0), i32(500*mib), i32(499*mib), 0xfc, 10, 0, 0))},
	}
	twice := func(next int) []byte { return code(0x10, next, 0x10, next, 0x6a) }
	funcs = append(funcs, wasmtest.Func{Export: "tree", Body: twice(len(funcs) + 1)})
	for range 40 { // 2^41 calls, and no loop
		funcs = append(funcs, wasmtest.Func{Body: twice(len(funcs) + 1)})
	}
	funcs = append(funcs, wasmtest.Func{Body: i32(1)})
	return wasmtest.Module{
		Types:  []wasmtest.Type{{Results: []byte{wasmtest.I32}}},
		Funcs:  funcs,
		Memory: wasmtest.Size(1, 16_384),
	}.Bytes()
}

// shape is a function that never ends by itself.
type shape struct {
	plugin   agent.Digest
	function string
	tries    int
}

var sources = map[agent.Digest]func() agent.Source{
	"script": func() agent.Source {
		return agent.Source{Kind: agent.Script, Main: "busy.js", Files: map[string][]byte{"busy.js": []byte(busyScript)}}
	},
	"module": func() agent.Source {
		return agent.Source{Kind: agent.Wasm, Main: "busy.wasm", Files: map[string][]byte{"busy.wasm": busyModule()}}
	},
	"greet": func() agent.Source {
		return agent.Source{Kind: agent.Script, Main: "greet.js", Files: map[string][]byte{"greet.js": []byte(greetAgent)}}
	},
}

// stopping is figure P7: from the end of a caller's patience to the return of its call.
func stopping(ctx context.Context, b *bench) ([]Figure, error) {
	h, err := host.New(ctx, &host.Options{
		CacheDir: b.cache(), Load: func(_ context.Context, d agent.Digest) (agent.Source, error) { return sources[d](), nil },
	})
	if err != nil {
		return nil, err
	}
	defer func() { _ = h.Close(context.WithoutCancel(ctx)) }()
	var shapes []shape
	for line := range strings.Lines(busyScript) {
		if _, after, ok := strings.Cut(line, "function "); ok {
			name, _, _ := strings.Cut(after, "(")
			shapes = append(shapes, shape{"script", name, b.count(20, 4)})
		}
	}
	for _, f := range []string{"loop", "tree"} {
		shapes = append(shapes, shape{"module", f, b.count(20, 4)})
	}
	for _, f := range []string{"fill", "copy"} {
		shapes = append(shapes, shape{"module", f, b.count(8, 2)})
	}
	all, worst, err := stopAll(ctx, h, shapes)
	if err != nil {
		return nil, err
	}
	p99 := alone("P7", fmt.Sprintf("stop a busy guest, %d shapes, p99", len(shapes)), Seconds, percentile(all, 99), Target{Bound: 0.05, Value: true})
	p99.Note = fmt.Sprintf("%d tries, p50 %s, longest %s; slowest shapes by their longest: %s", len(all), Seconds.format(median(all)),
		Seconds.format(percentile(all, 100)), worst)
	cells, err := cellsBesideHogs(ctx, h, b.count(6, 2), b.count(400, 200))
	if err != nil {
		return nil, err
	}
	fs := []Figure{p99, cells}
	for _, kind := range []struct {
		name  string
		start func(context.Context) (*server, error)
	}{{"", b.ourServer}, {", in worker processes", b.apartServer}} {
		skep, err := kind.start(ctx)
		if err != nil {
			return nil, err
		}
		f, err := b.callersBesideHogs(ctx, skep, kind.name)
		if err != nil {
			return nil, err
		}
		fs = append(fs, f)
	}
	return fs, nil
}

// stopAll stops each shape at many moments.
func stopAll(ctx context.Context, h *host.Host, shapes []shape) (all []float64, worst string, err error) {
	type longest struct {
		name string
		took float64
	}
	var ls []longest
	for _, s := range shapes {
		l := longest{name: string(s.plugin) + " " + s.function}
		for range s.tries {
			took, err := stopOne(ctx, h, s)
			if err != nil {
				return nil, "", fmt.Errorf("%s: %w", l.name, err)
			}
			all = append(all, took)
			l.took = max(l.took, took)
		}
		ls = append(ls, l)
	}
	slices.SortFunc(ls, func(a, b longest) int { return cmp.Compare(b.took, a.took) })
	var names []string
	for _, l := range ls[:min(4, len(ls))] {
		names = append(names, l.name+" "+Seconds.format(l.took))
	}
	return all, strings.Join(names, ", "), nil
}

// stopOne lets a shape run for a while, not always the same, and returns how long it takes to stop it.
func stopOne(ctx context.Context, h *host.Host, s shape) (float64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := h.Call(ctx, host.Call{Plugin: s.plugin, Tenant: "bench", Function: s.function, Input: agent.JSON([]byte("1")), Limits: agent.MaxLimits()})
		ended <- err
	}()
	select {
	case err := <-ended:
		return 0, fmt.Errorf("it ended before it was stopped: %w", err)
	case <-time.After(time.Duration(10+rand.IntN(50)) * time.Millisecond):
	}
	start := time.Now()
	cancel()
	err := <-ended
	took := time.Since(start).Seconds()
	if agent.KindOf(err) != agent.Cancelled {
		return 0, fmt.Errorf("it was not stopped: %w", err)
	}
	return took, nil
}
