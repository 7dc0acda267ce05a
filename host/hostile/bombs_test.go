package hostile_test

import (
	"bytes"
	"slices"
	"strings"

	"github.com/skep-dev/skep/agent"
	w "github.com/skep-dev/skep/internal/wasmtest"
)

// compileBombs are modules that cost the compiler more than their author. What the caps let pass must be compiled soon.
func compileBombs() []attack {
	capped := over(agent.LimitModule)
	one := func(body []byte, locals ...byte) agent.Source {
		return module(w.Module{Memory: w.Size(1, -1), Funcs: []w.Func{f(body, locals...)}})
	}
	deep := func(n int) []byte {
		return slices.Concat(slices.Repeat([]byte{block, empty}, n), bytes.Repeat([]byte{end_}, n))
	}
	head := section{1, w.Code(1, 0x60, 0, 0)}
	declared := func(n int) section { return section{3, w.Code(w.U(n), make([]byte, n))} }
	bodies := func(n int, body []byte) section {
		return section{10, w.Code(w.U(n), slices.Repeat(w.Code(w.U(len(body)), body), n))}
	}
	exports := func(n int, name func(int) string) section {
		b := w.U(n)
		for i := range n {
			b = append(append(append(b, w.U(len(name(i)))...), name(i)...), 0, 0)
		}
		return section{7, b}
	}
	numbered := func(i int) string {
		return string([]byte{'a' + byte(i%26), 'a' + byte(i/26%26), 'a' + byte(i/676%26), 'a' + byte(i/17576)})
	}
	return []attack{
		{name: "locals: 2³² in one declaration", src: sections(head, declared(1), bodies(1, w.Code(1, w.U(1<<32-1), w.I64, end_))), want: capped},
		{name: "locals: 2³² in two declarations", src: sections(head, declared(1), bodies(1, w.Code(2, w.U(1<<31), w.I64, w.U(1<<31), w.I32, end_))), want: capped},
		{name: "locals: just above the cap", src: sections(head, declared(1), bodies(1, w.Code(1, w.U(5001), w.I64, end_))), want: capped},
		{name: "locals: as many as are allowed, all live", src: one(w.Code(liveLocals(4900)), bytes.Repeat([]byte{w.I64}, 4900)...), want: gives("")},
		{name: "locals: as many as are allowed, live in branches", src: one(slices.Repeat(w.Code(block, empty, localGet, 0, 0xa7, brIf, 0, liveLocals(1000), end_), 4), bytes.Repeat([]byte{w.I64}, 1000)...), want: gives("")},
		{name: "nesting above the cap", src: one(deep(20_001)), want: capped},
		{name: "blocks in blocks, five thousand", src: one(deep(5_000)), want: gives("")},
		{name: "loops above the cap", src: one(slices.Repeat([]byte{loop, empty, end_}, 1001)), want: capped},
		{name: "nested loops up to the cap", src: one(slices.Concat(slices.Repeat([]byte{loop, empty}, 1000), bytes.Repeat([]byte{end_}, 1000))), want: gives("")},
		{name: "nested ifs", src: one(slices.Concat(slices.Repeat([]byte{localGet, 0, if_, empty}, 1500), bytes.Repeat([]byte{end_}, 1500)), w.I32), want: gives("")},
		{name: "a br_table above the cap", src: one(w.Code(block, empty, localGet, 0, brTable, w.U(70_000), make([]byte, 70_001), end_), w.I32), want: capped},
		{name: "a br_table of 2³² targets", src: one(w.Code(block, empty, localGet, 0, brTable, w.U(1<<32-1), end_), w.I32), want: either(refused(""), capped)},
		{name: "twenty large br_tables", src: one(slices.Repeat(w.Code(block, empty, localGet, 0, brTable, w.U(2000), make([]byte, 2001), end_), 20), w.I32), want: gives("")},
		{name: "functions: 2³² declared", src: sections(head, section{3, w.U(1<<32 - 1)}), want: either(refused(""), capped)},
		{name: "functions above the cap", src: sections(head, declared(200_001), bodies(200_001, []byte{0, end_})), want: capped},
		{name: "thirty thousand functions", src: sections(head, declared(30_000), exports(1, func(int) string { return "f" }), bodies(30_000, []byte{0, end_})), want: gives("")},
		{name: "a body above the cap", src: one(bytes.Repeat([]byte{0x01}, 5<<20)), want: capped},
		{name: "a body of a megabyte of nops", src: one(bytes.Repeat([]byte{0x01}, 1<<20)), want: gives("")},
		{name: "a body of a long expression", src: one(w.Code(localGet, 0, slices.Repeat([]byte{localGet, 0, i32Add}, 50_000), drop), w.I32), want: gives("")},
		{name: "a body with a deep operand stack", src: one(w.Code(slices.Repeat([]byte{localGet, 0}, 20_000), bytes.Repeat([]byte{drop}, 20_000)), w.I32), want: gives("")},
		{name: "a body of many calls", src: module(w.Module{Funcs: []w.Func{f(slices.Repeat(self(1), 20_000)), {}}}), want: gives("")},
		{name: "a body of many fills", src: one(slices.Repeat(w.Code(i32s(0, 0, 0), misc, 11, 0), 1_000)), want: gives("")},
		{name: "types above the cap", src: sections(section{1, w.Code(w.U(10_001), slices.Repeat([]byte{0x60, 0, 0}, 10_001))}), want: capped},
		{name: "parameters above the cap", src: sections(section{1, w.Code(1, 0x60, w.U(129), bytes.Repeat([]byte{w.I32}, 129), 0)}), want: capped},
		{name: "results above the cap", src: sections(section{1, w.Code(1, 0x60, 0, w.U(1000), bytes.Repeat([]byte{w.I32}, 1000))}), want: capped},
		{name: "globals above the cap", src: sections(section{6, w.Code(w.U(10_001), slices.Repeat(w.Code(w.I32, 1, w.I32Const(0), end_), 10_001))}), want: capped},
		{name: "mutable globals up to the cap", src: module(w.Module{Funcs: []w.Func{f(nil)}, Globals: slices.Repeat([]w.Global{{Type: w.I32, Mutable: true, Init: w.I32Const(0)}}, 9000)}), want: gives("")},
		{name: "exports above the cap", src: sections(head, declared(1), exports(20_001, numbered), bodies(1, []byte{0, end_})), want: capped},
		{name: "exports up to the cap", src: sections(head, declared(1), exports(19_000, numbered), bodies(1, []byte{0, end_})), fn: "aaaa", want: gives("")},
		{name: "an export's name above the cap", src: sections(head, declared(1), exports(1, func(int) string { return strings.Repeat("n", 4097) }), bodies(1, []byte{0, end_})), want: either(capped, refused(""))},
		{name: "a data segment that says it is 4 GiB", src: sections(section{5, []byte{1, 0, 1}}, section{11, w.Code(1, 0, w.I32Const(0), end_, w.U(1<<32-1))}), want: refused("")},
		{name: "data segments above the cap", src: sections(section{11, w.U(1_000_001)}), want: either(refused(""), capped)},
		{name: "elements that say they are 2³²", src: sections(head, section{4, []byte{1, w.FuncRef, 0, 1}}, section{9, w.Code(1, 0, w.I32Const(0), end_, w.U(1<<32-1))}), want: refused("")},
		{name: "a module above the cap", src: binary(make([]byte, 64<<20+1)), want: capped},
		{name: "a name section of function names of 60 kB", src: traceNames(60_000), run: tracesAreShort},
		{name: "a name section that does not read", src: sections(head, declared(1), exports(1, func(int) string { return "f" }), bodies(1, []byte{0, end_}), named(w.Code(1, w.U(3), 9, 9, 9))), want: gives("")},
		{name: "a name section with functions twice", src: sections(head, declared(1), exports(1, func(int) string { return "f" }), bodies(1, []byte{0, end_}), named(slices.Repeat(w.Code(1, 4, 1, 0, 1, byte('x')), 2))), want: gives("")},
		{name: "a name section with a function named often", src: sections(head, declared(1), exports(1, func(int) string { return "f" }), bodies(1, []byte{0, end_}), named(w.Code(1, 7, 2, 0, 1, byte('x'), 0, 1, byte('y')))), want: gives("")},
		{name: "a thousand custom sections", src: sections(slices.Concat([]section{head, declared(1), exports(1, func(int) string { return "f" }), bodies(1, []byte{0, end_})}, slices.Repeat([]section{{0, w.Code(1, byte('x'), make([]byte, 100))}}, 1000))...), want: gives("")},
		{name: "source: a script of 300 kB", src: script("export function f() { return 1 }\n" + strings.Repeat("{ const a = [1, 2, 3].map((x) => x + 1); }\n", 7_000)), want: either(gives("1"), over(agent.LimitCPU))},
		{name: "source: deep parentheses", src: script("export const a = " + strings.Repeat("(", 20_000) + "1" + strings.Repeat(")", 20_000) + "; export function f() {}"), want: deepSource},
		{name: "source: deep arrays", src: script("export const a = " + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + "; export function f() {}"), want: deepSource},
		{name: "source: deep blocks", src: script(strings.Repeat("{", 2_000) + strings.Repeat("}", 2_000) + "export function f() {}"), want: deepSource},
		{name: "source: deep functions", src: script("export const a = " + strings.Repeat("() => ", 5_000) + "1; export function f() {}"), want: deepSource},
		{name: "source: a long chain of operators", src: script("export const a = 1" + strings.Repeat(" + 1", 50_000) + "; export function f() {}"), want: deepSource},
		{name: "source: deep types", src: script("type A = " + strings.Repeat("Array<", 10_000) + "1" + strings.Repeat(">", 10_000) + "; export function f() {}"), want: either(refused(""), gives(""))},
		{name: "source: deep markup", src: agent.Source{Kind: agent.Script, Main: "a.tsx", Files: map[string][]byte{"a.tsx": []byte("export const a = () => " + strings.Repeat("<a>", 10_000) + strings.Repeat("</a>", 10_000) + "; export function f() {}")}}, want: either(refused(""), gives(""), over(agent.LimitStack))},
		{name: "source: deep templates", src: script("export const a = " + strings.Repeat("`${", 10_000) + "1" + strings.Repeat("}`", 10_000) + "; export function f() {}"), want: deepSource},
		{name: "source: not UTF-8", src: script("export const a = \"\xff\xfe\"; export function f() {}"), want: either(refused(""), gives(""))},
		{name: "source: zero bytes", src: script("export function f() {}\x00\x00"), want: refused("")},
	}
}

// deepSource is how code may end that nests deeply: the bundler or the engine gives up, or does not.
var deepSource = either(refused(""), over(agent.LimitStack, agent.LimitMemory, agent.LimitCPU), gives(""))

// liveLocals is code in which n locals are set, and all of them used after.
func liveLocals(n int) []byte {
	var b []byte
	for i := range n {
		b = append(b, w.Code(w.I64Const(int64(i)), localSet, w.U(i))...)
	}
	b = append(b, w.Code(localGet, 0)...)
	for i := range n {
		b = append(b, w.Code(localGet, w.U(i), i64Add)...)
	}
	return append(b, drop)
}

// named is a name section.
func named(body []byte) section {
	return section{0, w.Code(4, "name"[0], "name"[1], "name"[2], "name"[3], body)}
}

// traceNames is a module whose functions, of which each calls the next, trap in the end, and have long names.
func traceNames(length int) agent.Source {
	const n = 40
	code, names := w.U(n), w.U(n)
	for i := range n {
		body := []byte{0, unreachable, end_}
		if i < n-1 {
			body = w.Code(0, callOp, w.U(i+1), end_)
		}
		code = append(append(code, w.U(len(body))...), body...)
		names = append(append(append(names, w.U(i)...), w.U(length)...), strings.Repeat("n", length)...)
	}
	return sections(
		section{1, w.Code(1, 0x60, 0, 0)}, section{3, w.Code(w.U(n), make([]byte, n))}, section{7, w.Code(1, 1, byte('f'), 0, 0)},
		section{10, code}, named(w.Code(1, w.U(len(names)), names)),
	)
}
