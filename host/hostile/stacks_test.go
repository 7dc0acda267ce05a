package hostile_test

import (
	"bytes"
	"slices"

	"github.com/skep-dev/skep/agent"
	w "github.com/skep-dev/skep/internal/wasmtest"
)

func stackAttacks() []attack {
	const stack = agent.LimitStack
	funcs := func(fs ...w.Func) agent.Source {
		return module(w.Module{Memory: w.Size(1, -1), Table: w.Size(2, 2), Elems: []int{len(lib)}, Funcs: fs})
	}
	throws := func(name, body string) attack { // it can be caught
		return attack{name: "script " + name, src: js(`try { ` + body + ` } catch (e) { return e instanceof RangeError || String(e) } return "no error"`),
			want: gives("true"), limits: agent.Limits{CPU: 3e9}}
	}
	return []attack{
		{name: "direct recursion", src: funcs(f(self(0))), want: over(stack)},
		{name: "mutual recursion", src: funcs(f(self(1)), w.Func{Body: self(0)}), want: over(stack)},
		{name: "indirect recursion", src: funcs(f(w.Code(w.I32Const(0), indirect, void, 0))), want: over(stack)},
		{name: "recursion with a thousand locals", src: funcs(f(self(0), bytes.Repeat([]byte{w.I64}, 1000)...)), want: over(stack)},
		{name: "recursion with vectors", src: funcs(f(self(0), bytes.Repeat([]byte{w.V128}, 1000)...)), want: over(stack)},
		{name: "recursion in the start function", src: module(w.Module{
			Start: len(lib) + 1, Funcs: []w.Func{f(nil), {Body: self(1)}},
		}), want: over(stack)},
		{name: "recursion, then each level again", src: funcs(f(w.Code(self(0), self(0)))), want: over(stack)},
		{name: "recursion within a small limit", src: funcs(f(self(0))), limits: agent.Limits{Stack: 64 << 10}, want: over(stack)},
		{name: "recursion through a hundred parameters", src: module(w.Module{
			Types: []w.Type{{Params: bytes.Repeat([]byte{w.I64}, 100)}},
			Funcs: []w.Func{
				f(w.Code(i64s(make([]int64, 100)...), self(1))),
				{Type: own + len(lib), Body: w.Code(i64s(make([]int64, 100)...), self(1))},
			},
		}), want: over(stack)},
		{name: "script recursion", src: js(`(function g(): any { return 1 + g() })()`), want: over(stack)},
		throws("recursion, caught", `(function g(): any { return 1 + g() })()`),
		throws("mutual recursion", `function a(): any { return 1 + b() } function b(): any { return 1 + a() } a()`),
		throws("getters", `const o = { get x(): any { return 1 + o.x } }; o.x`),
		throws("setters", `const o = { set x(v: any) { o.x = v } }; o.x = 1`),
		throws("proxies", `let p: any = {}; p = new Proxy({}, { get: (t, k) => p[k] }); p.x`),
		throws("a chain of proxies", `let p: any = {}; for (let i = 0; i < 1e5; i++) p = new Proxy(p, {}); p.x`),
		throws("toString", `const o: any = { toString() { return "" + o } }; "" + o`),
		throws("valueOf", `const o: any = { valueOf() { return +o } }; +o`),
		throws("toPrimitive", `const o: any = { [Symbol.toPrimitive]() { return o + 1 } }; o + 1`),
		throws("toJSON", `const o: any = { toJSON() { return JSON.stringify(o) } }; JSON.stringify(o)`),
		throws("a comparator that sorts", `const g = () => { [3, 2, 1].sort(() => { g(); return 0 }) }; g()`),
		throws("a replacer that replaces", `const g = (): string => "x".replace("x", g); g()`),
		throws("a map in a map", `const g = (): any => [1].map(g); g()`),
		throws("a reviver that parses", `const g = (): any => JSON.parse("[1]", g); g()`),
		throws("constructors", `class A { a = new A() } new A()`),
		throws("instanceof", `class A { static [Symbol.hasInstance](x: any): boolean { return x instanceof A } } ({}) instanceof (A as any)`),
		{name: "script bind of bind", limits: agent.Limits{CPU: 3e9, Memory: 64 << 20}, want: either(gives("RangeError"), over(agent.LimitMemory)), src: js(`try { let g: any = () => 1; for (let i = 0; i < 1e5; i++) g = g.bind(null); g() } catch (e) { return e.name }`)},
		throws("apply of apply", `const g: any = () => Reflect.apply(g, null, []); g()`),
		throws("iterators", `const o: any = { *[Symbol.iterator]() { yield* o } }; [...o]`),
		throws("species", `class A extends Array { static get [Symbol.species]() { new A(1).map((x) => x); return A } } new A(1).map((x) => x)`),
		{name: "script deep JSON", src: js(`try { JSON.parse("[".repeat(2e5)) } catch (e) { return e.name } `), want: either(gives("RangeError"), gives("SyntaxError"))},
		{name: "script deep value as JSON", src: js(`let o: any = {}; for (let i = 0; i < 2e5; i++) o = { o }; try { JSON.stringify(o); return "no" } catch (e) { return e.name } `), want: either(gives("RangeError"), over(agent.LimitCPU))},
		{name: "script deep value as the result", src: js(`let o: any = {}; for (let i = 0; i < 2e5; i++) o = { o }; return o`), want: over(stack, agent.LimitCPU)},
		{name: "script deep value cloned", src: js(`let o: any = {}; for (let i = 0; i < 1e5; i++) o = { o }; try { structuredClone(o) } catch (e) { return e.name } return "ok"`), limits: agent.Limits{CPU: 1e9}, want: either(gives("RangeError"), gives("ok"), over(agent.LimitCPU))},
		{name: "script deep value printed", src: js(`let o: any = {}; for (let i = 0; i < 1e5; i++) o = { o }; console.log(o); return "ok"`), want: gives("ok")},
		{name: "script deep value printed as an error's cause", src: js(`let e: any = null; for (let i = 0; i < 1e4; i++) e = new Error("x", { cause: e }); throw e`), limits: agent.Limits{CPU: 1e9}, want: failed("Error: x")},
		{name: "script deep source", src: js(`try { (0, eval)("(".repeat(1e5) + "1" + ")".repeat(1e5)) } catch (e) { return e.name } `), want: either(gives("RangeError"), gives("SyntaxError"), gives("InternalError"))},
		{name: "script deep regular expression", src: js(`try { new RegExp("(".repeat(5e4) + ")".repeat(5e4)) } catch (e) { return e.name } return "ok"`), want: either(gives("RangeError"), gives("SyntaxError"), gives("InternalError"))},
		{name: "script flattens without end", src: js(`let a: any = []; for (let i = 0; i < 1e5; i++) a = [a]; try { a.flat(Infinity) } catch (e) { return e.name } return "ok"`), want: either(gives("RangeError"), gives("InternalError"), gives("ok"))},
		{name: "script frees a deep value", src: js(`let o: any = {}; for (let i = 0; i < 3e5; i++) o = { o }; o = null; return "ok"`), limits: agent.Limits{CPU: 3e9}, want: gives("ok")},
		{name: "script frees a deep promise chain", src: js(`let p: any = Promise.resolve(); for (let i = 0; i < 5e4; i++) p = p.then(() => {}); return "ok"`), limits: agent.Limits{CPU: 3e9}, want: gives("ok")},
		{name: "script resolves promises with promises", src: js(`let p: any = 1; for (let i = 0; i < 2e4; i++) { const q = p; p = new Promise((r) => r(q)) } return await p`), limits: agent.Limits{CPU: 3e9}, want: gives("1")},
		{name: "script asks the host from a string conversion", src: js(`
			const o: any = { toString() { console.log("x" + o); return "x" } }; try { console.log("" + o) } catch (e) { return e.name } `), want: gives("RangeError")},
		{name: "script asks the host from a getter of what it logs", src: js(`
			let n = 0; const o: any = { get x() { if (n++ < 500) console.log(o); return 1 } }; console.log(o); return "ok"`), want: gives("ok")},
		{name: "script spreads a hundred thousand arguments", src: js(`try { return Math.max(...new Array(1e5).fill(1)) } catch (e) { return e.name } `), want: either(gives("RangeError"), gives("1"))},
		{name: "script recurses in a finally", src: js(`(function g() { try { g() } finally { g() } })()`), want: either(over(stack), over(agent.LimitCPU))},
		{name: "script recurses in a catch", src: js(`(function g() { try { g() } catch { g() } })()`), want: either(over(stack), over(agent.LimitCPU))},
	}
}

// slot is the index of a host's function.
func slot(name string) int {
	return slices.IndexFunc(imports(), func(i w.Import) bool { return i.Name == name })
}
