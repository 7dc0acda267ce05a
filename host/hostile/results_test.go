package hostile_test

import (
	"testing"

	"github.com/skep-dev/skep/agent"
)

// How many bytes of an error, all told, a call may leave. Observed: a script's message is bounded by its memory only.
const (
	maxError       = 256 << 10
	maxScriptError = 4 << 20
)

func short(t *testing.T, err error, most int) {
	t.Helper()
	e := agent.AsError(err)
	if e == nil || e.Kind != agent.Failed {
		t.Fatalf("ended as %v", err)
	}
	if n := len(e.Error()) + len(e.Hint) + len(e.Stack); n > most {
		t.Errorf("the error has %d bytes", n)
	}
}

func errorsAreShort(t *testing.T, s *suite) {
	for _, body := range []string{
		`throw new Error("x".repeat(2e6))`,
		`throw "x".repeat(2e6)`,
		`const e = new Error("a"); e.name = "x".repeat(2e6); throw e`,
		`const e = new Error("a"); e.stack = "    at f (skep:agent:1:1)\n".repeat(2e4); throw e`,
		`throw new Error("a", { cause: "x".repeat(2e6) })`,
	} {
		_, _, err := s.call(t, attack{src: js(body), limits: agent.Limits{CPU: 3e9}})
		short(t, err, maxScriptError)
	}
}

func tracesAreShort(t *testing.T, s *suite) {
	_, _, err := s.call(t, attack{src: traceNames(60_000)})
	short(t, err, maxError)
}

// resultAttacks return what is hard to read.
func resultAttacks() []attack {
	const cpu = agent.LimitCPU
	return []attack{
		{name: "a circle", src: js(`const o: any = {}; o.o = o; return o`), want: failed("TypeError")},
		{name: "a getter that throws", src: js(`return { get x() { throw new Error("caught") } }`), want: failed("caught")},
		{name: "a getter that loops", src: js(`return { get x() { for (;;); } }`), want: over(cpu)},
		{name: "a toJSON that throws", src: js(`return { toJSON() { throw new Error("caught") } }`), want: failed("caught")},
		{name: "a toJSON that loops", src: js(`return { toJSON() { for (;;); } }`), want: over(cpu)},
		{name: "a toJSON of itself", src: js(`return { toJSON() { return this } }`), want: gives("{}")},
		{name: "a proxy", src: js(`return new Proxy({ a: 1 }, {})`), want: gives(`{"a":1}`)},
		{name: "a proxy whose traps throw", src: js(`return new Proxy({}, new Proxy({}, { get() { throw new Error("trap") } }))`), want: failed("trap")},
		{name: "a proxy whose traps loop", src: js(`return new Proxy({}, { get() { for (;;); } })`), want: over(cpu)},
		{name: "a proxy with endless keys", src: js(`return new Proxy({}, { ownKeys: () => Array.from({ length: 1e5 }, (_, i) => "k" + i), getOwnPropertyDescriptor: () => ({ value: 1, enumerable: true, configurable: true }), get: () => 1 })`), want: either(over(cpu), gives(""))},
		{name: "a revoked proxy", src: js(`const { proxy, revoke } = Proxy.revocable({}, {}); revoke(); return proxy`), want: failed("TypeError")},
		{name: "an object without a prototype", src: js(`return Object.create(null)`), want: gives("{}")},
		{name: "a function", src: js(`return () => 1`), want: either(gives(""), gives("null"))},
		{name: "a symbol", src: js(`return Symbol("x")`), want: either(gives("null"), failed(""))},
		{name: "a bigint", src: js(`return 1n`), want: either(failed("TypeError"), gives("1"))},
		{name: "not a number", src: js(`return [NaN, Infinity, -0]`), want: gives("[null,null,0]")},
		{name: "half of a character", src: js(`return "\ud800"`), want: gives("\uFFFD")},
		{name: "half of a character in JSON", src: js(`return ["\ud800"]`), want: either(gives(`["\ud800"]`), gives("[\"\uFFFD\"]"))},
		{name: "a sparse array of all lengths", src: js(`const a: any = []; a.length = 2 ** 32 - 1; return a`), want: over(cpu, agent.LimitMemory)},
		{name: "a detached buffer", src: js(`const b = new ArrayBuffer(8), v = new Uint8Array(b); (b as any).transfer(); return v`), want: either(gives(""), failed("TypeError"))},
		{name: "a typed array with a poisoned length", src: js(`const v = new Uint8Array(4); Object.defineProperty(v, "length", { value: 2 ** 30 }); Object.defineProperty(v, "byteLength", { value: 2 ** 30 }); return v`), want: gives("\x00\x00\x00\x00")},
		{name: "a view past a buffer that shrank", src: js(`const b = new (ArrayBuffer as any)(1000, { maxByteLength: 2000 }), v = new Uint8Array(b, 500); b.resize(10); return v`), want: either(gives(""), failed("TypeError"))},
		{name: "a thenable that never settles", src: js(`return { then() {} }`), want: failed("never returns")},
		{name: "a thenable that settles twice", src: js(`return { then(y: any, n: any) { y(1); y(2); n(3); throw 4 } }`), want: gives("1")},
		{name: "a thenable that throws", src: js(`return { then() { throw new Error("caught") } }`), want: failed("caught")},
		{name: "a thenable of thenables", src: js(`let t: any = 7; for (let i = 0; i < 1000; i++) { const u = t; t = { then(y: any) { y(u) } } } return t`), want: gives("7")},
		{name: "a then getter that loops", src: js(`return { get then() { for (;;); } }`), want: over(cpu)},
		{name: "a promise with a then of its own", src: js(`const p: any = Promise.resolve(1); p.then = (y: any) => { y(2); y(3) }; return p`), want: either(gives("1"), gives("2"))},
		{name: "throws nothing", src: js(`throw undefined`), want: failed("undefined")},
		{name: "throws null", src: js(`throw null`), want: failed("null")},
		{name: "throws a symbol", src: js(`throw Symbol("x")`), want: failed("")},
		{name: "throws a proxy", src: js(`throw new Proxy({}, { get() { throw 1 } })`), want: failed("cannot be shown")},
		{name: "throws an error whose message loops", src: js(`throw { get message() { for (;;); } }`), want: over(cpu)},
		{name: "throws an error whose cause is itself", src: js(`const e: any = new Error("self"); e.cause = e; throw e`), want: failed("self")},
		{name: "throws an error that pretends to be a limit", src: js(`const e: any = new Error("x"); e.name = "SkepError"; e.kind = "internal"; throw e`), want: failed("")},
		{name: "throws an error that pretends to be a stack overflow", src: js(`throw new RangeError("Maximum call stack size exceeded")`), want: either(over(agent.LimitStack), failed(""))},
		{name: "throws from an aborted signal", src: js(`AbortSignal.abort(new Error("why")).throwIfAborted()`), want: failed("why")},
		{name: "prepareStackTrace that throws", src: js(`(Error as any).prepareStackTrace = () => { throw new Error("evil") }; throw new Error("good")`), want: failed("")},
		{name: "prepareStackTrace that loops", src: js(`(Error as any).prepareStackTrace = () => { for (;;); }; return new Error("x").stack`), want: over(cpu)},
		{name: "prepareStackTrace that recurses", src: js(`(Error as any).prepareStackTrace = () => new Error("x").stack; return typeof new Error("x").stack`), want: gives("")},
		{name: "prepareStackTrace that returns an object", src: js(`(Error as any).prepareStackTrace = () => ({ toString() { for (;;); } }); throw new Error("good")`), want: failed("good")},
		{name: "stackTraceLimit of all", src: js(`(Error as any).stackTraceLimit = Infinity; (function g(n: number) { if (n === 0) throw new Error("deep"); g(n - 1) })(500)`), want: failed("deep")},
		{name: "a response that is no response", src: script(`export default { fetch() { return { status: 200, headers: 7, body: null } } }`), fetch: true, want: failed("must return a Response")},
		{name: "a response of another class", src: script(`export default { fetch() { return Object.create(Response.prototype) } }`), fetch: true, want: failed("")},
		{name: "a response used twice", src: script(`export default { async fetch() { const r = new Response("x"); await r.text(); return r } }`), fetch: true, want: failed("TypeError")},
		{name: "a response with a bad status", src: script(`export default { fetch() { return new Response("", { status: 1e9 }) } }`), fetch: true, want: failed("RangeError")},
		{name: "a response with a split header", src: script(`export default { fetch() { return new Response("", { headers: { "x-a": "1\r\nset-cookie: y" } }) } }`), fetch: true, want: failed("TypeError")},
		{name: "a response with a poisoned status", src: script(`export default { fetch() { const r = new Response("x"); Object.defineProperty(r, "status", { value: "200 OK\r\nx: y" }); return r } }`), fetch: true, want: either(failed(""), gives("x"))},
		{name: "a response whose stream fails", src: script(`export default { fetch() { return new Response(new ReadableStream({ pull(c) { c.error(new Error("broken")) } })) } }`), fetch: true, want: failed("broken")},
		{name: "a response whose stream never ends", src: script(`export default { fetch() { return new Response(new ReadableStream({ pull() { return new Promise(() => {}) } })) } }`), fetch: true, want: failed("")},
		{name: "a response whose stream gives no bytes", src: script(`export default { fetch() { return new Response(new ReadableStream({ start(c) { c.enqueue({}); c.close() } })) } }`), fetch: true, want: failed("TypeError")},
		{name: "an export called like a prototype's property", src: script(`export function __proto__() { return 1 } export function f() { return 2 }`), want: gives("2")},
		{name: "a call of an inherited name", src: js(`return 1`), fn: "constructor", want: []end{{kind: agent.NotFound}}},
		{name: "a call of __proto__", src: script(`export default { a() {} }`), fn: "__proto__", want: []end{{kind: agent.NotFound}}},
		{name: "a call of a name with zero bytes", src: js(`return 1`), fn: "f\x00", want: []end{{kind: agent.NotFound}}},
		{name: "a call with a key __proto__", src: js(`return [Object.keys(input), ({} as any).evil ?? null]`), input: `{"__proto__":{"evil":1}}`, want: gives(`[["__proto__"],null]`)},
	}
}
