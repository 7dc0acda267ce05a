package hostile_test

import (
	"bytes"
	"slices"

	"github.com/skep-dev/skep/agent"
	w "github.com/skep-dev/skep/internal/wasmtest"
)

func loopAttacks() []attack {
	cpu := over(agent.LimitCPU)
	return []attack{
		{name: "loop", src: wasm(forever()), want: cpu},
		{name: "loop in the start function", src: module(w.Module{Start: len(lib) + 1, Funcs: []w.Func{f(nil), {Body: forever()}}}), want: cpu},
		{name: "loop in _initialize", src: module(w.Module{Funcs: []w.Func{f(nil), {Body: forever(), Export: "_initialize"}}}), want: cpu},
		{name: "loop by a conditional branch", src: wasm(loop, empty, w.I32Const(1), brIf, 0, end_), want: cpu},
		{name: "loop by a branch table", src: wasm(loop, empty, w.I32Const(0), brTable, 1, 0, 0, end_), want: cpu},
		{name: "loop out of an inner block", src: wasm(loop, empty, block, empty, block, empty, br, 2, end_, end_, end_), want: cpu},
		{name: "loop out of an if", src: wasm(loop, empty, w.I32Const(1), if_, empty, br, 1, else_, br, 1, end_, end_), want: cpu},
		{name: "loop with parameters", src: module(w.Module{
			Types: []w.Type{{Params: []byte{w.I32}, Results: []byte{w.I32}}},
			Funcs: []w.Func{f(w.Code(w.I32Const(1), loop, w.S(int64(own+len(lib))), br, 0, end_, drop))},
		}), want: cpu},
		{name: "loop that fills up the fuel in its local", src: module(w.Module{Funcs: []w.Func{f(forever(w.I64Const(1<<62), localSet, 0))}}), want: refused("local 0 is not there")},
		{name: "loop that fills up the fuel in its global", src: module(w.Module{Funcs: []w.Func{f(forever(w.I64Const(1<<62), globalSet, 0))}}), want: refused("global 0 is not there")},
		{name: "loop that reads the fuel in dead code", src: module(w.Module{Funcs: []w.Func{f(w.Code(unreachable, localGet, 0))}}), want: refused("local 0 is not there")},
		{name: "a call of the rewriting's own functions", src: module(w.Module{Funcs: []w.Func{f(w.Code(i32s(0, 0, 0), self(1)))}}), want: refused("is not there")},
		{name: "a block of the rewriting's own types", src: module(w.Module{Funcs: []w.Func{f(w.Code(block, w.S(int64(own+len(lib))), end_))}}), want: refused("is not there")},
		{name: "loop after dead code", src: wasm(block, empty, br, 0, loop, empty, br, 0, end_, end_, forever()), want: cpu},
		{name: "loop in a loop", src: wasm(forever(forever())), want: cpu},
		{name: "two hundred nested loops", src: wasm(nested(200)), want: cpu},
		{name: "loop of a thousand nested blocks", src: wasm(forever(slices.Repeat([]byte{block, empty}, 1000), bytes.Repeat([]byte{end_}, 1000))), want: cpu},
		{name: "calls without a loop", src: callTree(60), want: cpu},
		{name: "indirect calls without a loop", src: indirectTree(60), want: cpu},
		{name: "calls of a leaf without a loop", src: leafTree(), want: cpu},
		{name: "fill of a megabyte for ever", src: wasm(w.I32Const(20), memoryGrow, 0, drop, forever(i32s(0, 7, 1<<20), misc, 11, 0)), want: cpu},
		{name: "fill of two kilobytes for ever", src: wasm(forever(i32s(0, 7, 2048), misc, 11, 0)), want: cpu},
		{name: "fill of nothing for ever", src: wasm(forever(i32s(0, 7, 0), misc, 11, 0)), want: cpu},
		{name: "fill of sixty megabytes for ever", src: wasm(w.I32Const(970), memoryGrow, 0, drop, forever(i32s(0, 7, 960<<16), misc, 11, 0)), want: cpu},
		{name: "copy of a megabyte for ever", src: wasm(w.I32Const(40), memoryGrow, 0, drop, forever(i32s(1<<20, 0, 1<<20), misc, 10, 0, 0)), want: cpu},
		{name: "copy onto itself for ever", src: wasm(w.I32Const(40), memoryGrow, 0, drop, forever(i32s(1, 0, 2<<20), misc, 10, 0, 0)), want: cpu},
		{name: "divisions for ever", src: wasm(forever(i64s(-1, 3), 0x7f, i64s(7), 0x81, drop)), want: cpu},
		{name: "page faults for ever", src: wasm(w.I32Const(900), memoryGrow, 0, drop, forever(localGet, 0, w.I32Const(1), i32Store, 2, 0,
			localGet, 0, w.I32Const(4096), i32Add, w.I32Const(900<<16-1), 0x71, localSet, 0)), want: either(cpu, failed("out of bounds"))},
		{name: "a long straight line, again and again", src: wasm(forever(bytes.Repeat([]byte{localGet, 0, drop}, 300_000))), want: cpu},
		{name: "br_table of 8000 targets for ever", src: wasm(forever(block, empty, localGet, 0, brTable, w.U(8_000), make([]byte, 8_001), end_)), want: cpu},
	}
}

func nested(n int) []byte {
	return slices.Concat(slices.Repeat([]byte{loop, empty}, n), []byte{br, 0}, bytes.Repeat([]byte{end_}, n))
}

// callTree has functions of which each calls the next twice, and none loops: it ends after 2ⁿ calls.
func callTree(n int) agent.Source {
	fs := []w.Func{f(self(1))}
	for i := 1; i <= n; i++ {
		fs = append(fs, w.Func{Body: w.Code(self(i+1), self(i+1))})
	}
	return module(w.Module{Funcs: append(fs, w.Func{})})
}

func indirectTree(n int) agent.Source {
	fs, elems := []w.Func{f(self(1))}, []int{len(lib)}
	for i := 1; i <= n; i++ {
		next := w.Code(w.I32Const(int32(i+1)), indirect, void, 0)
		fs, elems = append(fs, w.Func{Body: w.Code(next, next)}), append(elems, len(lib)+i)
	}
	return module(w.Module{Table: w.Size(n+2, n+2), Elems: append(elems, len(lib)+n+1), Funcs: append(fs, w.Func{})})
}

// leafTree has functions that call the next two hundred times, down to one too small to be charged for.
func leafTree() agent.Source {
	const n, wide = 6, 200
	fs := []w.Func{f(self(1))}
	for i := 1; i <= n; i++ {
		fs = append(fs, w.Func{Body: slices.Repeat(self(i+1), wide)})
	}
	return module(w.Module{Funcs: append(fs, w.Func{Body: w.Code(w.I64Const(1), w.I64Const(0), i64Add, drop)})})
}

// engineLoops are short scripts that keep the script engine in long loops of its own.
func engineLoops() []attack {
	const cpu, memory = agent.LimitCPU, agent.LimitMemory
	var rows []attack
	for name, body := range map[string]string{
		"for":                  `for (;;);`,
		"while with await":     `for (;;) await 0`,
		"try in try":           `for (;;) try { for (;;); } catch {}`,
		"finally":              `(function g() { try { for (;;); } finally { for (;;); } })()`,
		"labels":               `a: for (;;) { for (;;) continue a }`,
		"recursion in finally": `(function g() { try { for (;;); } finally { g() } })()`,
		"indexOf on holes":     `[].indexOf.call({ length: 2 ** 53 - 1 }, 1)`,
		"lastIndexOf on holes": `[].lastIndexOf.call({ length: 2 ** 53 - 1 }, 1 as never)`,
		"includes on holes":    `[].includes.call({ length: 2 ** 53 - 1 }, 1 as never)`,
		"forEach on holes":     `[].forEach.call({ length: 2 ** 53 - 1 }, () => {})`,
		"reverse of holes":     `[].reverse.call({ length: 2 ** 53 - 1 })`,
		"copyWithin of holes":  `[].copyWithin.call({ length: 2 ** 53 - 1 }, 1, 0)`,
		"splice of holes":      `[].splice.call({ length: 2 ** 53 - 2 }, 0, 0, 1 as never)`,
		"unshift of holes":     `[].unshift.call({ length: 2 ** 53 - 2 }, 1 as never)`,
		"fill of an object":    `[].fill.call({ length: 2 ** 53 - 1, set 0(v: any) {} }, undefined as never)`,
		"sort of holes":        `[].sort.call({ length: 2 ** 32 })`,
		"split":                `const s = "x".repeat(1e5); for (;;) s.split("")`,
		"join":                 `const a = new Array(1e6); for (;;) a.join("")`,
		"concat":               `const a = new Array(1e5).fill(1); for (;;) a.concat(a)`,
		"sort":                 `const a = Array.from({ length: 1e5 }, (_, i) => i * 7919 % 1e5); for (;;) a.slice().sort((x, y) => x - y)`,
		"sort without order":   `const a = Array.from({ length: 1e5 }, (_, i) => i); for (;;) a.slice().sort(() => Math.random() - 0.5)`,
		"sort of typed arrays": `const a = new Float64Array(1e6).map((_, i) => i * 7919 % 1e5); for (;;) a.slice().sort()`,
		"JSON.stringify":       `const o = Array.from({ length: 2e4 }, (_, i) => ({ i })); for (;;) JSON.stringify(o)`,
		"JSON.stringify wide":  `const o = Array.from({ length: 1e4 }, () => 1); for (;;) JSON.stringify(o, null, "          ")`,
		"JSON.parse":           `const s = "[" + "1,".repeat(1e5) + "1]"; for (;;) JSON.parse(s)`,
		"bigint products":      `let x = 2n ** 100000n; for (;;) x * x`,
		"bigint powers":        `for (;;) 3n ** 200000n`,
		"bigint to text":       `const x = 3n ** 60000n; for (;;) x.toString()`,
		"bigint from text":     `const s = "7".repeat(50000); for (;;) BigInt(s)`,
		"bigint division":      `const x = 3n ** 100000n, y = 7n ** 20000n; for (;;) x / y`,
		"regex backtracking":   `/(a+)+$/.test("a".repeat(40) + "b")`,
		"regex lookahead":      `/^(?=(a*)*b)/.test("a".repeat(40))`,
		"regex back reference": `/(a*)*\1*\1*\1*$b/.test("a".repeat(60))`,
		"regex of wide counts": `/(?:a{0,1000}){0,1000}b/.test("a".repeat(5000))`,
		"regex replace":        `const s = "ab".repeat(1e5); for (;;) s.replace(/a/g, "c")`,
		"regex global empty":   `const s = "a".repeat(1e5); for (;;) s.match(/(?:)/g)`,
		"regex case folding":   `const s = "ſ".repeat(1e5); for (;;) s.match(/[^\w]/giu)`,
		"String.raw":           `const raw: any = { raw: { length: 2 ** 31 } }; for (;;) String.raw(raw)`,
		"repeat":               `for (;;) "x".repeat(1e7)`,
		"padStart":             `for (;;) "x".padStart(1e7, "ab")`,
		"replaceAll":           `const s = "x".repeat(1e5); for (;;) s.replaceAll("x", "yy")`,
		"normalize":            `const s = "\u1e9b\u0323".repeat(1e5); for (;;) s.normalize("NFKD")`,
		"toUpperCase":          `const s = "ß".repeat(1e6); for (;;) s.toUpperCase()`,
		"localeCompare":        `const s = "ä".repeat(1e5); for (;;) s.localeCompare(s + "b")`,
		"indexOf in text":      `const s = "a".repeat(1e6), t = "a".repeat(1e3) + "b"; for (;;) s.indexOf(t)`,
		"Array.from":           `for (;;) Array.from({ length: 1e5 })`,
		"Array.from of a loop": `Array.from({ *[Symbol.iterator]() { for (;;) {} } } as any)`,
		"typed array fill":     `const a = new Uint8Array(1e7); for (;;) a.fill(7)`,
		"typed array set":      `const a = new Uint8Array(1e7), b = new Uint8Array(1e7); for (;;) a.set(b)`,
		"typed array convert":  `const a = new Float64Array(1e6), b = new Uint8ClampedArray(1e6); for (;;) b.set(a)`,
		"typed array from":     `const a = new Array(1e5).fill(1); for (;;) new Float32Array(a)`,
		"buffer slice":         `const a = new ArrayBuffer(1e7); for (;;) a.slice(1)`,
		"structuredClone":      `const o = Array.from({ length: 1e4 }, (_, i) => ({ i })); for (;;) structuredClone(o)`,
		"TextDecoder":          `const b = new Uint8Array(1e7).fill(65), d = new TextDecoder(); for (;;) d.decode(b)`,
		"TextDecoder of junk":  `const b = new Uint8Array(1e6).fill(255), d = new TextDecoder(); for (;;) d.decode(b)`,
		"TextEncoder":          `const s = "é".repeat(1e6), e = new TextEncoder(); for (;;) e.encode(s)`,
		"btoa":                 `const s = "x".repeat(1e6); for (;;) atob(btoa(s))`,
		"URL":                  `const u = "http://a.b/" + "../x/".repeat(1e4); for (;;) new URL(u)`,
		"URL of percents":      `const u = "http://a.b/?" + "%20é".repeat(1e4); for (;;) new URLSearchParams(new URL(u).search)`,
		"encodeURIComponent":   `const s = "é".repeat(1e5); for (;;) decodeURIComponent(encodeURIComponent(s))`,
		"streams":              `const s = new ReadableStream({ pull(c) { c.enqueue("x") } }); for await (const x of s as any);`,
		"transform streams":    `const s = new ReadableStream({ pull(c) { c.enqueue("x") } }).pipeThrough(new TransformStream()).pipeThrough(new TextEncoderStream()); for await (const x of s as any);`,
		"tee'd streams":        `let s: any = new ReadableStream({ pull(c) { c.enqueue(1) } }); for (let i = 0; i < 8; i++) s = s.tee()[0]; for await (const x of s);`,
		"promise jobs":         `await new Promise(() => { (function g() { Promise.resolve().then(g) })() })`,
		"queueMicrotask":       `await new Promise(() => { (function g() { queueMicrotask(g) })() })`,
		"promise storm":        `for (;;) await Promise.all(Array.from({ length: 1000 }, async () => {}))`,
		"rejections":           `for (;;) await Promise.reject(1).catch(() => {})`,
		"thenables":            `const t: any = { then(r: any) { r(t) } }; await t`,
		"zero timers":          `await new Promise(() => { (function g() { setTimeout(g) })() })`,
		"generators":           `const g = (function* () { for (;;) yield 1 })(); for (const x of g);`,
		"async generators":     `const g = (async function* () { for (;;) yield 1 })(); for await (const x of g);`,
		"endless iterator":     `new Set({ [Symbol.iterator]: () => ({ next: () => ({ done: false, value: 1 }) }) } as any)`,
		"endless destructure":  `const [...a] = { [Symbol.iterator]: () => ({ next: () => ({ done: false }) }) } as any`,
		"iterator helpers":     `(function* () { for (;;) yield 1 })().filter(() => false).next()`,
		"dates":                `for (;;) new Date("Tue Mar 01 2022 00:00:00 GMT+0100").toLocaleString()`,
		"Intl":                 `for (;;) new Intl.DateTimeFormat("en-US").format(0)`,
		"digests":              `const b = new Uint8Array(4e6); for (;;) await crypto.subtle.digest("SHA-512", b)`,
		"random bytes":         `const b = new Uint8Array(65536); for (;;) crypto.getRandomValues(b)`,
		"Math.random":          `for (;;) Math.random()`,
		"eval":                 `for (;;) (0, eval)("1+".repeat(1e4) + "1")`,
		"Function":             `for (let i = 0;; i++) new Function("a".repeat(1e4) + i, "")`,
		"proxy traps":          `const p: any = new Proxy({}, { ownKeys: () => Array.from({ length: 1e4 }, (_, i) => "k" + i) }); for (;;) Object.keys(p)`,
		"with getters":         `const o = { get length(): number { return 2 ** 53 } }; Array.prototype.every.call(o, () => true)`,
		"object spread":        `const o: any = Object.fromEntries(Array.from({ length: 1e4 }, (_, i) => ["k" + i, i])); for (;;) ({ ...o })`,
		"Object.entries":       `const o: any = Object.fromEntries(Array.from({ length: 1e4 }, (_, i) => ["k" + i, i])); for (;;) Object.entries(o)`,
		"hash collisions":      `const m = new Map(); for (let i = 0;; i++) { m.set(i * 2 ** 32, i); if (m.size > 1e4) m.clear() }`,
		"Atomics.wait":         `const b = new Int32Array(new (globalThis.SharedArrayBuffer ?? ArrayBuffer)(4)); try { Atomics.wait(b, 0, 0) } catch {} for (;;);`,
		"gc":                   `const a: any[] = []; for (let i = 0; i < 1e4; i++) a.push({ a }); for (;;) ({ a: [] })`,
		"string compare":       `const a = "x".repeat(1e7), b = "x".repeat(1e7); for (;;) a === b`,
		"events":               `const t = new EventTarget(); t.addEventListener("x", () => t.dispatchEvent(new Event("y"))); for (;;) t.dispatchEvent(new Event("x"))`,
		"abort signals":        `for (;;) AbortSignal.any([new AbortController().signal])`,
		"blobs":                `const b = new Blob([new Uint8Array(1e6)]); for (;;) await b.arrayBuffer()`,
		"form data":            `for (;;) { const d = new FormData(); for (let i = 0; i < 100; i++) d.append("k", "v") }`,
	} {
		rows = append(rows, attack{name: name, src: js(body), want: over(cpu, memory)})
	}
	return append(rows,
		attack{name: "loop at its load", src: script(`for (;;); export function f() {}`), want: over(cpu)},
		attack{name: "await for ever at its load", src: script(`await new Promise(() => {}); export function f() {}`), want: failed("never finishes loading")},
		attack{name: "jobs for ever at its load", src: script(`await new Promise(() => { (function g() { Promise.resolve().then(g) })() }); export function f() {}`), want: over(cpu)},
		attack{name: "await for ever", src: js(`await new Promise(() => {})`), want: failed("never returns")},
		attack{name: "sleep for long", src: js(`await new Promise((r) => setTimeout(r, 1e6))`), limits: agent.Limits{Wall: 50 * 1e6}, want: over(agent.LimitWall)},
		attack{name: "intervals", src: js(`setInterval(() => {}); await new Promise(() => {})`), limits: agent.Limits{Wall: 100 * 1e6}, want: over(cpu, agent.LimitWall)},
		attack{name: "loop in a fetch handler", src: script(`export default { fetch() { for (;;); } }`), fetch: true, want: over(cpu)},
		attack{name: "loop in a response's stream", src: script(`export default { fetch() { return new Response(new ReadableStream({ pull(c) { for (;;); } })) } }`), fetch: true, want: over(cpu)},
		attack{name: "loop in a constructor", src: script(`export default class { constructor() { for (;;); } f() {} }`), want: over(cpu)},
		attack{name: "loop in a getter of the module", src: script(`export default { get f() { for (;;); } }`), want: either(over(cpu), []end{{kind: agent.NotFound}})},
		attack{name: "loop after the result, in waitUntil", src: js(`ctx.waitUntil((async () => { for (;;) await 0 })()); return 1`), want: over(cpu)},
	)
}
