package hostile_test

import "github.com/skep-dev/skep/agent"

// poisons change what the bridge and the polyfills might lean on.
var poisons = map[string]string{
	"Object.prototype getters":     `for (const k of ["name", "type", "text", "bytes", "ok", "agent", "function", "then", "get", "value", "resolve", "kind", "id", "config", "status", "header"]) Object.defineProperty(Object.prototype, k, { get() { throw new Error("evil") }, set() {}, configurable: true });`,
	"Object.prototype values":      `Object.assign(Object.prototype, { exports: ["evil"], fetch: true, status: 7, kind: "internal", limit: "cpu_time", function: "evil", tag: "bytes", config: {}, waiting: 1 });`,
	"Object.prototype setters":     `for (const k of ["0", "1", "2", "name", "message", "stack", "config"]) Object.defineProperty(Object.prototype, k, { set() { for (;;); }, get() {}, configurable: true });`,
	"Object's functions":           `Object.defineProperty = Object.getOwnPropertyDescriptor = Object.getPrototypeOf = Object.create = Object.freeze = Object.keys = () => { throw new Error("evil") };`,
	"Array.prototype":              `(Array.prototype as any)[Symbol.iterator] = Array.prototype.push = Array.prototype.map = Array.prototype.slice = Array.prototype.shift = () => { throw new Error("evil") };`,
	"Array.prototype indices":      `Object.defineProperty(Array.prototype, "0", { set() { throw new Error("evil") }, get() { return "evil" }, configurable: true });`,
	"the array iterator":           `Object.getPrototypeOf([][Symbol.iterator]()).next = () => ({ done: true });`,
	"Promise":                      `(globalThis as any).Promise = class { constructor() { throw new Error("evil") } };`,
	"Promise.prototype.then":       `(Promise.prototype as any).then = () => { throw new Error("evil") };`,
	"Promise's species":            `Object.defineProperty(Promise, Symbol.species, { get() { throw new Error("evil") } }); Promise.resolve = Promise.reject = () => { throw new Error("evil") };`,
	"JSON":                         `JSON.parse = JSON.stringify = () => { throw new Error("evil") };`,
	"JSON as an accessor":          `Object.defineProperty(globalThis, "JSON", { get() { throw new Error("evil") } });`,
	"toJSON":                       `(BigInt.prototype as any).toJSON = (Boolean.prototype as any).toJSON = () => "evil";`,
	"Function.prototype":           `Function.prototype.call = Function.prototype.apply = Function.prototype.bind = () => { throw new Error("evil") }; Function.prototype.toString = () => "class {}";`,
	"Reflect":                      `Reflect.apply = Reflect.construct = Reflect.ownKeys = () => { throw new Error("evil") };`,
	"String.prototype":             `for (const k of ["replace", "split", "slice", "indexOf", "startsWith", "endsWith", "toLowerCase", "charCodeAt", "trim", "toWellFormed"]) (String.prototype as any)[k] = () => { throw new Error("evil") };`,
	"RegExp.prototype":             `(RegExp.prototype as any).exec = (RegExp.prototype as any).test = (RegExp.prototype as any)[Symbol.replace] = () => { throw new Error("evil") };`,
	"Map.prototype":                `for (const C of [Map, Set, WeakMap]) for (const k of ["get", "set", "has", "delete", "add"]) (C.prototype as any)[k] = () => { throw new Error("evil") };`,
	"typed arrays":                 `(globalThis as any).Uint8Array = (globalThis as any).ArrayBuffer = (globalThis as any).DataView = undefined;`,
	"typed arrays' prototypes":     `Object.defineProperty(Object.getPrototypeOf(Uint8Array.prototype), "length", { get() { return 2 ** 31 } }); Object.defineProperty(Object.getPrototypeOf(Uint8Array.prototype), "buffer", { get() { throw new Error("evil") } });`,
	"Error":                        `(globalThis as any).Error = (globalThis as any).TypeError = (globalThis as any).RangeError = undefined;`,
	"Error.prototype":              `Object.defineProperty(Error.prototype, "stack", { get() { throw new Error("evil") }, set() {} }); Error.prototype.toString = () => { throw 1 };`,
	"Error.prepareStackTrace":      `(Error as any).prepareStackTrace = () => { throw new Error("evil") };`,
	"Error.stackTraceLimit":        `Object.defineProperty(Error, "stackTraceLimit", { get() { throw new Error("evil") } });`,
	"Symbol.prototype":             `Symbol.prototype.toString = Symbol.prototype.valueOf = () => { throw new Error("evil") };`,
	"Symbol.hasInstance":           `Object.defineProperty(Response, Symbol.hasInstance, { value: () => true }); Object.defineProperty(Uint8Array, Symbol.hasInstance, { value: () => true });`,
	"Response.prototype":           `for (const k of ["headers", "body", "status", "arrayBuffer"]) Object.defineProperty(Response.prototype, k, { get() { throw new Error("evil") } });`,
	"Headers.prototype":            `Headers.prototype.get = Headers.prototype.forEach = (Headers.prototype as any)[Symbol.iterator] = () => { throw new Error("evil") };`,
	"all globals":                  `for (const k of Object.getOwnPropertyNames(globalThis)) try { delete (globalThis as any)[k] } catch {}`,
	"globalThis's prototype":       `Object.setPrototypeOf(globalThis, new Proxy({}, { get() { throw new Error("evil") }, has() { return true } }));`,
	"timers":                       `(globalThis as any).setTimeout = (globalThis as any).clearTimeout = (globalThis as any).queueMicrotask = undefined;`,
	"Date":                         `Date.now = () => { throw new Error("evil") }; (globalThis as any).Date = undefined;`,
	"Math":                         `for (const k of Object.getOwnPropertyNames(Math)) try { (Math as any)[k] = () => NaN } catch {}`,
	"the async function prototype": `Object.getPrototypeOf(async function () {}).constructor.prototype.call = 1; Object.setPrototypeOf(Object.getPrototypeOf(async function () {}), null);`,
	"the generator prototype":      `Object.getPrototypeOf(Object.getPrototypeOf((function* () {})())).next = () => { throw new Error("evil") };`,
}

func prototypeAttacks() []attack {
	const use = `const r = await skep.callAgent("x", "f", { a: 1 }); skep.emit("e", 1); skep.log("line"); return [r, 1, 2]`
	fine := either(gives("[1,1,2]"), failed(""))
	var rows []attack
	for name, evil := range poisons {
		rows = append(rows,
			attack{name: "poisoned during the call: " + name, src: js(evil + use), want: fine},
			attack{name: "poisoned at load: " + name, src: script(`import * as skep from "skep"; ` + evil + ` export async function f() { ` + use + ` }`), want: either(fine, refused(""))},
		)
	}
	never := gives("undefined")
	typeOf := func(name, expr string) attack {
		return attack{name: "escape: " + name, src: js(`try { return String(` + expr + `) } catch (e) { return "undefined" }`), want: never}
	}
	return append(rows,
		attack{name: "poisoned setters loop for ever", src: js(`Object.defineProperty(Array.prototype, "0", { set() { for (;;); }, configurable: true }); const a: any[] = []; a[0] = 1; return 1`), want: over(agent.LimitCPU)},
		typeOf("process by the Function constructor", `new Function("return typeof process")()`),
		typeOf("process by a constructor's constructor", `([] as any).constructor.constructor("return typeof process")()`),
		typeOf("require by eval", `(0, eval)("typeof require")`),
		typeOf("the global of an async function's constructor", `await Object.getPrototypeOf(async function () {}).constructor("return typeof process")()`),
		typeOf("the generator's constructor", `Object.getPrototypeOf(function* () {}).constructor("yield typeof process")().next().value`),
		typeOf("the engine's std module", `typeof (globalThis as any).std`),
		typeOf("the engine's os module", `typeof (globalThis as any).os`),
		typeOf("the engine's scriptArgs", `typeof (globalThis as any).scriptArgs`),
		typeOf("the prelude's leftovers", `typeof (globalThis as any).__skep`),
		typeOf("callers", `typeof (function g() { return (g as any).caller })()`),
		typeOf("WebAssembly", `typeof (globalThis as any).WebAssembly`),
		typeOf("Worker", `typeof (globalThis as any).Worker`),
		attack{name: "import of a computed file", src: js(`const n = "/etc/" + "passwd"; try { await import(n) } catch (e) { return "no" }`), want: gives("no")},
		attack{name: "import of a computed std", src: js(`const n = "st" + "d"; try { return Object.keys(await import(n)) } catch (e) { return "no" }`), want: gives("no")},
		attack{name: "import by eval", src: js(`try { return Object.keys(await (0, eval)("import('std')")) } catch (e) { return "no" }`), want: gives("no")},
		attack{name: "import by eval of a file", src: js(`try { return Object.keys(await (0, eval)("import('file:///etc/passwd')")) } catch (e) { return "no" }`), want: gives("no")},
		attack{name: "import by eval of a long name", src: js(`try { return Object.keys(await (0, eval)("import('" + "x".repeat(1e6) + "')")) } catch (e) { return "no" }`), want: gives("no")},
		attack{name: "import by eval of a name with a zero", src: js(`try { return Object.keys(await (0, eval)("import('skep\\0evil')")) } catch (e) { return "no" }`), want: either(gives("no"), gives(""))},
		attack{name: "import by eval of oneself", src: js(`try { return Object.keys(await (0, eval)("import('skep:agent')")) } catch (e) { return "no" }`), want: either(gives("no"), gives(`["f"]`))},
		attack{name: "import by eval of the prelude", src: js(`try { return Object.keys(await (0, eval)("import('skep:web')")) } catch (e) { return "no" }`), want: either(gives("no"), gives("[]"))},
		attack{name: "import by eval, for ever", src: js(`for (let i = 0;; i++) try { await (0, eval)("import('m" + i + "')") } catch {}`), want: over(agent.LimitCPU, agent.LimitMemory)},
		attack{name: "import with a specifier that is an object", src: js(`const o: any = { toString() { throw new Error("evil") } }; try { await import(o) } catch (e) { return "no" }`), want: gives("no")},
		attack{name: "import with attributes", src: js(`try { await (0, eval)("import('x', { with: { type: 'json' } })") } catch (e) { return "no" }`), want: gives("no")},
		attack{name: "the engine's bytecode", src: js(`try { return typeof (globalThis as any).bjson } catch { return "undefined" }`), want: never},
		attack{name: "a shared buffer", src: js(`try { const b = new SharedArrayBuffer(8); return b.byteLength } catch { return 8 }`), want: gives("8")},
		attack{name: "a frozen globalThis", src: js(`Object.freeze(globalThis); Object.freeze(Object.prototype); Object.freeze(Array.prototype); ` + use), want: fine},
		attack{name: "a module namespace that is written to", src: js(`try { (skep as any).emit = () => {} } catch (e) { return e.name }`), want: gives("TypeError")},
		attack{name: "the default export of skep changed", src: js(`try { (skep as any).default.callAgent = () => "evil" } catch {} return await skep.callAgent("x", "f", 1)`), want: gives("1")},
	)
}
