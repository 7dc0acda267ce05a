package hostile_test

import (
	"bytes"
	"slices"

	"github.com/skep-dev/skep/agent"
	w "github.com/skep-dev/skep/internal/wasmtest"
)

// orTrap traps when the value on the stack is -1: what was asked for was refused.
var orTrap = w.Code(w.I32Const(-1), eq, if_, empty, unreachable, end_)

func memoryAttacks() []attack {
	const cpu, memory = agent.LimitCPU, agent.LimitMemory
	grow := func(pages int32) []byte { return w.Code(w.I32Const(pages), memoryGrow, 0) }
	sized := func(pages int, parts ...any) agent.Source {
		return module(w.Module{Memory: w.Size(pages, -1), Funcs: []w.Func{f(w.Code(parts...), w.I32)}})
	}
	return slices.Concat([]attack{
		{name: "grow by a page for ever", src: wasm(forever(grow(1), orTrap)), want: over(memory)},
		{name: "grow on after a refusal", src: wasm(forever(grow(1), drop)), want: over(cpu)},
		{name: "grow by all there is", src: wasm(grow(65535), orTrap), want: failed("unreachable")},
		{name: "grow by a negative number", src: wasm(grow(-1), orTrap), want: failed("unreachable")},
		{name: "grow by nothing for ever", src: wasm(forever(grow(0), drop)), want: over(cpu)},
		{name: "use what was refused", src: wasm(grow(16000), drop, i32s(1<<29, 7), i32Store, 2, 0), want: over(memory)},
		{name: "touch each page up to the limit", src: wasm(grow(900), orTrap, i32s(0, 1, 900<<16), misc, 11, 0), want: gives("")},
		{name: "begin above the limit", src: sized(2000), want: over(memory)},
		{name: "begin above the limit, and touch it in the start function", src: module(w.Module{
			Memory: w.Size(8000, -1), Start: len(lib) + 1,
			Funcs: []w.Func{f(nil), {Body: w.Code(i32s(0, 1, 8000<<16), misc, 11, 0)}},
		}), want: over(memory)},
		{name: "begin above the limit, where no image can be taken", src: module(w.Module{
			Memory: w.Size(8000, -1), Table: w.Size(1, 1),
			Funcs: []w.Func{f(w.Code(w.I32Const(0), refNull, w.FuncRef, 0x26, 0))},
		}), want: over(memory)},
		{name: "begin with 4 GiB", src: sized(65536), want: over(memory)},
		{name: "begin with more than 4 GiB", src: sized(1 << 20), want: over(memory)},
		{name: "grow to the limit in the start function", src: module(w.Module{
			Memory: w.Size(1, -1), Start: len(lib) + 1, Funcs: []w.Func{f(nil), {Body: forever(grow(16), orTrap)}},
		}), want: over(memory)},
		{name: "data past the end", src: module(w.Module{
			Memory: w.Size(1, -1), Funcs: []w.Func{f(nil)}, Data: []w.Data{{Offset: 65535, Bytes: []byte("ab")}},
		}), want: refused("outside its memory")},
		{name: "data at a negative offset", src: module(w.Module{
			Memory: w.Size(1, -1), Funcs: []w.Func{f(nil)}, Data: []w.Data{{Offset: -4, Bytes: []byte("abcdefgh")}},
		}), want: refused("outside its memory")},
		{name: "data without a memory", src: module(w.Module{
			Funcs: []w.Func{f(nil)}, Data: []w.Data{{Bytes: []byte("a")}},
		}), want: refused("there is none")},
		{name: "a hundred thousand data segments", src: module(w.Module{
			Memory: w.Size(1, -1), Funcs: []w.Func{f(nil)}, Data: slices.Repeat([]w.Data{{Bytes: []byte("a")}}, 100_000),
		}), want: gives("")},
		{name: "memory.init of 16 MiB for ever", src: module(w.Module{
			Memory: w.Size(300, -1), Data: []w.Data{{Passive: true, Bytes: make([]byte, 16<<20)}},
			Funcs: []w.Func{f(forever(i32s(0, 0, 16<<20), misc, 8, 0, 0))},
		}), want: over(cpu)},
		{name: "memory.init after a drop", src: module(w.Module{
			Memory: w.Size(1, -1), Data: []w.Data{{Passive: true, Bytes: []byte("abc")}},
			Funcs: []w.Func{f(w.Code(misc, 9, 0, i32s(0, 0, 3), misc, 8, 0, 0))},
		}), want: failed("out of bounds")},
		{name: "store past the end", src: wasm(i32s(65533, 1), i32Store, 2, 0), want: failed("out of bounds")},
		{name: "store with an offset that wraps", src: wasm(i32s(-1, 1), i32Store, 2, w.U(1<<32-1)), want: failed("out of bounds")},
		{name: "fill past the end", src: wasm(i32s(0, 1, 65537), misc, 11, 0), want: failed("out of bounds")},
		{name: "fill with a length that wraps", src: wasm(i32s(-1, 1, -1), misc, 11, 0), want: failed("out of bounds")},
		{name: "copy with a length that wraps", src: wasm(i32s(1, -1, -1), misc, 10, 0, 0), want: failed("out of bounds")},
		{name: "a data segment of all bytes of the image", src: module(w.Module{
			Memory: w.Size(160, -1), Funcs: []w.Func{f(nil)}, Data: []w.Data{{Bytes: bytes.Repeat([]byte{7}, 160<<16)}},
		}), want: gives("")},
	}, scriptHoards())
}

// starved is how a script ends when the engine has no memory left to say so: it throws null, or loses the promise.
var starved = either(failed("threw null"), failed("out of memory"), failed("never returns"))

// scriptHoards take memory inside the script engine. Its own "out of memory" cannot be caught; what can is the RangeError
// of a thing that is too long.
func scriptHoards() []attack {
	const cpu, memory = agent.LimitCPU, agent.LimitMemory
	slow := agent.Limits{CPU: 500 * 1e6, Memory: 24 << 20}
	hoard := func(name, body string) attack {
		return attack{name: "script " + name, src: js(body), limits: slow, want: either(over(memory, cpu), starved)}
	}
	return []attack{
		hoard("arrays", `const a = []; for (;;) a.push(new Array(1000).fill(7))`),
		hoard("arrays, caught", `const a = []; for (;;) try { a.push(new Array(1000).fill(7)) } catch {}`),
		hoard("an array of all lengths", `new Array(2 ** 32 - 1).fill(0)`),
		hoard("Array.from", `Array.from({ length: 2 ** 32 - 1 })`),
		hoard("objects", `let o = {}; for (;;) o = { o, p: o }`),
		hoard("properties", `const o: any = {}; for (let i = 0;; i++) o["k" + i] = i`),
		{name: "script strings", src: js(`let s = "x"; for (;;) s += s`), limits: slow, want: either(over(memory), failed("RangeError"), failed("InternalError"))},
		hoard("string pieces", `const a = []; for (let i = 0;; i++) a.push(("k" + i).repeat(100))`),
		hoard("buffers", `const a = []; for (;;) a.push(new ArrayBuffer(1 << 20))`),
		hoard("buffers, caught", `const a = []; for (;;) try { a.push(new ArrayBuffer(1 << 20)) } catch {}`),
		{name: "script a buffer of a tebibyte", src: js(`new ArrayBuffer(2 ** 40)`), want: either(over(memory), failed("RangeError"))},
		{name: "script a resizable buffer", src: js(`const b = new (ArrayBuffer as any)(0, { maxByteLength: 2 ** 30 }); for (let n = 1;; n *= 2) b.resize(n)`),
			want: either(over(memory), failed("RangeError"), failed("TypeError"))},
		hoard("typed arrays", `const a = []; for (;;) a.push(new Float64Array(1e5).fill(1))`),
		hoard("maps", `const m = new Map(); for (let i = 0;; i++) m.set(i, {})`),
		hoard("sets", `const m = new Set(); for (let i = 0;; i++) m.add("k" + i)`),
		hoard("weak maps", `const m = new WeakMap(), a = []; for (;;) { const k = {}; a.push(k); m.set(k, {}) }`),
		hoard("symbols", `const a = []; for (let i = 0;; i++) a.push(Symbol.for("s" + i))`),
		hoard("closures", `const a: any[] = []; for (;;) { const x = new Array(50).fill(a); a.push(() => x) }`),
		hoard("regex captures", `const a = [], r = new RegExp("(.)".repeat(200)), s = "x".repeat(200); for (;;) a.push(r.exec(s))`),
		hoard("generators", `const a = []; function* g() { yield new Array(100).fill(1) } for (;;) { const i = g(); i.next(); a.push(i) }`),
		{name: "script bigints", src: js(`let x = 3n; for (;;) x *= x`), want: either(over(memory), over(cpu), failed("RangeError"))},
		{name: "script a bigint shifted far", src: js(`1n << (1n << 40n)`), want: either(over(memory), failed("RangeError"))},
		hoard("promises", `const a = []; for (;;) a.push(new Promise(() => {}))`),
		hoard("async functions", `const a = [], g = async () => { await new Promise(() => {}) }; for (;;) a.push(g())`),
		hoard("timers", `for (;;) setTimeout(() => {}, 1e6)`),
		hoard("errors", `const a = []; for (;;) a.push(new Error("x".repeat(1000)))`),
		hoard("blobs", `let b = new Blob(["x".repeat(1000)]); const a = []; for (;;) a.push(new Blob([b, b, b]), (b = new Blob([b, b])))`),
		hoard("search parameters", `const p = new URLSearchParams(); for (let i = 0;; i++) p.append("k" + i, "v".repeat(100))`),
		hoard("headers", `const p = new Headers(); for (let i = 0;; i++) p.append("k" + i % 100, "v".repeat(100))`),
		hoard("clones", `let o: any = [1]; for (;;) o = [o, structuredClone(o)]`),
		hoard("listeners", `const t = new EventTarget(); for (;;) t.addEventListener("x", () => {})`),
		hoard("streams", `const s = new ReadableStream({ start(c) { for (;;) c.enqueue(new Uint8Array(1e4)) } }); await s.getReader().read()`),
		hoard("functions from text", `const a = []; for (let i = 0;; i++) a.push(new Function("return " + "1+".repeat(500) + i))`),
		hoard("arguments", `const a: any[] = []; for (;;) (function () { a.push(arguments) }).apply(null, new Array(1000).fill(1) as any)`),
		hoard("finalizers", `const r = new FinalizationRegistry(() => {}), a = []; for (;;) { const o = {}; a.push(o); r.register(o, {}) }`),
		{name: "script at its load", src: script(`const a = []; for (;;) a.push(new Uint8Array(1 << 20)); export function f() {}`), want: either(over(memory, cpu), starved)},
	}
}
