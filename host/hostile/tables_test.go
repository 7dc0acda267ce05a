package hostile_test

import (
	"slices"

	"github.com/skep-dev/skep/agent"
	w "github.com/skep-dev/skep/internal/wasmtest"
)

func tableAttacks() []attack {
	const cpu, table = agent.LimitCPU, agent.LimitTable
	tabled := func(size *w.Limits, parts ...any) agent.Source {
		return module(w.Module{Memory: w.Size(1, -1), Table: size, Funcs: []w.Func{f(w.Code(parts...), w.I32)}})
	}
	grow := func(n int32) []byte { return w.Code(refNull, w.FuncRef, w.I32Const(n), misc, 15, 0) }
	fill := func(n int32) []byte { return w.Code(w.I32Const(0), refNull, w.FuncRef, w.I32Const(n), misc, 17, 0) }
	return []attack{
		{name: "table grows for ever", src: tabled(w.Size(1, -1), forever(grow(1000), orTrap)), want: over(table)},
		{name: "table grows on after a refusal", src: tabled(w.Size(1, -1), forever(grow(1000), drop)), want: over(cpu)},
		{name: "table grows by all there is", src: tabled(w.Size(1, -1), grow(-1), orTrap), want: over(table)},
		{name: "table grows within its limit", src: tabled(w.Size(1, -1), grow(99_999), orTrap), want: gives("")},
		{name: "table begins above its limit", src: tabled(w.Size(100_001, -1)), want: over(table)},
		{name: "table begins above the cap", src: tabled(w.Size(1<<30, -1)), want: over(table)},
		{name: "too many tables", src: sections(section{1, w.Code(1, 0x60, 0, 0)}, section{4, w.Code(9, slices.Repeat([]byte{w.FuncRef, 0, 1}, 9))}),
			want: over(agent.LimitModule)},
		{name: "table is filled for ever", src: tabled(w.Size(100_000, -1), forever(fill(100_000))), want: over(cpu)},
		{name: "table is copied for ever", src: tabled(w.Size(100_000, -1), forever(i32s(0, 1, 99_999), misc, 14, 0, 0)), want: over(cpu)},
		{name: "table is set for ever", src: tabled(w.Size(1, -1), forever(w.I32Const(0), refNull, w.FuncRef, 0x26, 0)), want: over(cpu)},
		{name: "table is filled past its end", src: tabled(w.Size(10, -1), fill(11)), want: failed("invalid table access")},
		{name: "call past the end of the table", src: tabled(w.Size(10, -1), w.I32Const(10), indirect, void, 0), want: failed("table")},
		{name: "call of a null", src: tabled(w.Size(10, -1), w.I32Const(3), indirect, void, 0), want: failed("table")},
		{name: "call of another type", src: module(w.Module{
			Table: w.Size(1, 1), Elems: []int{len(lib)}, Funcs: []w.Func{f(w.Code(w.I32Const(0), indirect, toI32, 0, drop))},
		}), want: failed("indirect call")},
		{name: "an element past the table's end", src: module(w.Module{
			Table: w.Size(1, 1), Elems: []int{len(lib), len(lib)}, Funcs: []w.Func{f(nil)},
		}), want: gives("")}, /* the engine leaves such elements out */
		{name: "an element that is no function", src: module(w.Module{
			Table: w.Size(1, 1), Elems: []int{1 << 20}, Funcs: []w.Func{f(nil)},
		}), want: refused("function 1048576 is not there")},
		{name: "calls of host functions through the table", src: module(w.Module{
			Table: w.Size(1, 1), Elems: []int{slot("random_get")}, Memory: w.Size(1, 1),
			Funcs: []w.Func{f(forever(i32s(-1, -1, 0), indirect, w.U(own+slot("random_get")), 0, drop))},
		}), want: failed("outside of its memory")},
	}
}
