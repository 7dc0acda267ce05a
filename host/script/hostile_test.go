package script

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
)

// TestHostile runs scripts that try to run for ever, to use all memory or to break the engine. Each must end within its
// limits, and the engine must go on.
func TestHostile(t *testing.T) {
	limits := agent.Limits{CPU: 4 * time.Second, Wall: 10 * time.Second, Memory: 64 << 20}
	const cpu, memory, stack, anyEnd = agent.LimitCPU, agent.LimitMemory, agent.LimitStack, agent.Limit(255)
	for _, c := range []struct {
		name, code string
		limit      agent.Limit // of the error, anyEnd for one of several; none where the code is stopped by a plain exception, which it catches
	}{
		{"recursion", `function f(n){return 1+f(n+1)};f(0)`, stack},
		{"recursion through natives", `class A{m(n){return [1].map(()=>this.m(n+1))[0]}};new A().m(0)`, stack},
		{"caught recursion", `function f(n){return 1+f(n+1)};try{f(0)}catch(e){if(!(e instanceof RangeError))throw e}`, 0},
		{"deep JSON", `try{JSON.parse('['.repeat(200000))}catch(e){}`, 0},
		{"deep source", `try{eval('('.repeat(100000)+'1'+')'.repeat(100000))}catch(e){}`, 0},
		{"deep object", `let o={};let p=o;for(let i=0;i<5000;i++){p.a={};p=p.a};try{JSON.stringify(o).length}catch(e){}`, 0},
		{"deep regex", `try{new RegExp('('.repeat(50000)+')'.repeat(50000))}catch(e){}`, 0},
		{"toString", `let o={toString(){return ''+o}};try{''+o}catch(e){}`, 0},
		{"proxies", `let p={};for(let i=0;i<100000;i++)p=new Proxy(p,{});try{p.x}catch(e){}`, 0},
		{"promise chain", `let p=Promise.resolve();for(let i=0;i<50000;i++)p=p.then(()=>{})`, 0},
		{"flat", `let a=[];for(let i=0;i<100000;i++)a=[a];try{a.flat(Infinity).length}catch(e){}`, 0},
		{"arrays", `const a=[];for(;;)try{a.push(new Array(1000).fill(7))}catch(e){}`, memory},
		{"strings", `let s='x';for(;;)s+=s`, anyEnd},
		{"buffers", `const a=[];for(;;)try{a.push(new ArrayBuffer(1<<20))}catch{}`, anyEnd},
		{"blobs", `let b=new Blob(['x'.repeat(1000)]);for(;;)b=new Blob([b,b])`, anyEnd},
		{"loop", `for(;;){}`, cpu},
		{"regex", `/(a+)+$/.test('a'.repeat(40)+'b')`, cpu},
		{"holes", `[].indexOf.call({length:2**53-1},1)`, cpu},
		{"bigint", `let x=2n**100000n;for(;;){x*x}`, cpu},
		{"sort", `const a=Array.from({length:100000},(_,i)=>(i*7919)%100000);for(;;)a.slice().sort((x,y)=>x-y)`, cpu},
		{"JSON loop", `const o=Array.from({length:20000},(_,i)=>({i}));for(;;)JSON.stringify(o)`, anyEnd},
		{"split", `const s='x'.repeat(1e5);for(;;)s.split('')`, cpu},
		{"jobs", `await new Promise(()=>{(function f(){Promise.resolve().then(f)})()})`, cpu},
		{"timers", `await new Promise(()=>{(function f(){setTimeout(f)})()})`, cpu},
		{"intervals", `for(let i=0;i<1e6;i++)setInterval(()=>{},1);await new Promise(()=>{})`, anyEnd},
		{"rejections", `for(;;){Promise.reject(1);await 0}`, anyEnd},
		{"caught loop", `for(;;){try{for(;;){}}catch(e){}}`, cpu},
		{"finally", `(function g(){try{for(;;){}}finally{g()}})()`, cpu},
		{"console", `for(;;)console.log('x'.repeat(1000))`, agent.LimitLog},
		{"console of much", `const o={};o.a=Array(1000).fill(o);for(let i=0;i<10;i++)console.log(Array(100).fill(Array(100).fill({a:[1,{b:[{}]}]})))`, 0},
		{"host calls", `for(;;)fetch('http://a.b').catch(()=>{})`, anyEnd},
		{"never settles", `await new Promise(()=>{})`, anyEnd},
		{"clone", `let o={};for(let i=0;i<1e5;i++)o={o};try{structuredClone(o)}catch(e){}`, 0},
		{"wait", `await new Promise((f)=>setTimeout(f,1e6))`, agent.LimitWall},
	} {
		t.Run(c.name, func(t *testing.T) {
			limits := limits
			switch c.limit {
			case agent.LimitWall:
				limits.Wall = 50 * time.Millisecond
			case agent.LimitCPU, anyEnd:
				limits.CPU = 80 * time.Millisecond
			}
			began := time.Now()
			_, usage, err := engine.Eval(t.Context(), source("export default async () => {"+c.code+"}"), Call{Limits: limits})
			if d := time.Since(began); d > limits.Wall+2*time.Second {
				t.Errorf("took %s", d)
			}
			if usage.CPU > limits.CPU+2*time.Second || usage.Memory > limits.Memory {
				t.Errorf("used %+v", usage)
			}
			e := agent.AsError(err)
			switch {
			case c.limit == 0 && err != nil:
				t.Errorf("failed: %v", err)
			case c.limit == anyEnd && (err == nil || e.Kind != agent.Failed && e.Kind != agent.Exhausted):
				t.Errorf("ended with %v", err)
			case c.limit != 0 && c.limit != anyEnd && (err == nil || e.Kind != agent.Exhausted || e.Limit != c.limit):
				t.Errorf("ended with %v (%v, %v)", err, e.Kind, e.Limit)
			}
		})
	}
	if out, _, err := engine.Eval(t.Context(), source(`export default 1 + 1`), Call{}); err != nil || string(out.Body) != "2" {
		t.Errorf("the engine does not go on: %s, %v", out.Body, err)
	}
}

// TestStackLimit recurses under limits of the native stack: the code can catch what ends it.
func TestStackLimit(t *testing.T) {
	a := load(t, source(`export const f = () => { let n = 0; const g = () => { n++; g() }; try { g() } catch (e) { return [e.name, n > 200] } }`))
	for _, limit := range []int64{0, 32 << 20, 8 << 20, 4 << 20} {
		if got := result(t, a, Call{Function: "f", Limits: agent.Limits{Stack: limit}}); got != `["RangeError",true]` {
			t.Errorf("with %d bytes: %s", limit, got)
		}
	}
}

func TestDeadlock(t *testing.T) {
	a := load(t, source(`export const f = () => new Promise(() => {}); export default { fetch: () => new Promise(() => {}) }`))
	_, _, err := a.Call(t.Context(), Call{Function: "f"})
	_, _, err2 := a.Fetch(t.Context(), Call{}, Request{Method: "GET", URL: "http://a.b"})
	for _, err := range []error{err, err2} {
		if e := agent.AsError(err); err == nil || e.Kind != agent.Failed || e.Msg != neverEnds || e.Hint == "" {
			t.Errorf("%v", err)
		}
	}
}

func TestCancel(t *testing.T) {
	a := load(t, source(`
		export const spin = () => { for (;;) {} };
		export const wait = () => fetch("http://a.b");`))
	for _, fn := range []string{"spin", "wait"} {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Millisecond, cancel)
		_, _, err := a.Call(ctx, Call{Function: fn, Calls: func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		if agent.KindOf(err) != agent.Cancelled {
			t.Errorf("%s: %v", fn, err)
		}
	}
}

// TestNoLeak looks for what one call may leave behind for the next, in the same pooled cell.
func TestNoLeak(t *testing.T) {
	a := load(t, source(`
		let count = 0; const kept = []; globalThis.shared = 0;
		class Main { n = 0 }
		export const touch = () => {
			count++; kept.push("secret"); globalThis.shared++; Array.prototype.leak = 1; Object.prototype.polluted = 1;
			setTimeout(() => {}, 100000); Promise.reject(new Error("old"));
			console.group();
			return [count, kept.length, globalThis.shared, [].leak, ({}).polluted];
		};
		export const same = () => { console.log("flush left"); return touch() };
		export const big = () => { globalThis.big = new Uint8Array(50 << 20).fill(7); return touch() };`))
	want := `[1,1,1,1,1]`
	for i := range 20 {
		fn := []string{"touch", "same", "big"}[i%3]
		r := &recorder{}
		if got := result(t, a, Call{Function: fn, Tenant: agent.App([]string{"a", "b"}[i/10]), Log: r.log}); got != want {
			t.Fatalf("call %d of %s sees %s", i, fn, got)
		}
		if fn == "same" && r.asked[0] != "info: flush left" {
			t.Errorf("console: %q", r.asked)
		}
	}
}

func TestRandomness(t *testing.T) {
	a := load(t, source(`
		export const f = () => [Math.random(), Math.random(), crypto.randomUUID(), crypto.getRandomValues(new Uint32Array(1))[0], btoa(String(Math.random()))].join(" ");
		export const spread = () => { let n = 0; for (let i = 0; i < 10000; i++) { const x = Math.random(); if (x < 0 || x >= 1) throw x; n += x } return n / 10000 };`))
	seen := map[string]bool{}
	for range 50 {
		for _, s := range strings.Fields(result(t, a, Call{Function: "f"})) {
			if seen[s] {
				t.Fatalf("%s came twice", s)
			}
			seen[s] = true
		}
	}
	if s := result(t, a, Call{Function: "spread"}); s < "0.48" || s > "0.52" {
		t.Errorf("the mean of Math.random is %s", s)
	}
	fixed := func() Call {
		return Call{Function: "f", Random: strings.NewReader(strings.Repeat("seed", 100)), Now: func() time.Time { return time.Unix(5, 0) }}
	}
	if x, y := result(t, a, fixed()), result(t, a, fixed()); x != y {
		t.Errorf("the same source of randomness gives %s and %s", x, y)
	}
}

func TestClock(t *testing.T) {
	a := load(t, source(`export const f = () => [Date.now(), new Date().toISOString(), new Date(0).getTimezoneOffset()]`))
	got := result(t, a, Call{Function: "f", Now: func() time.Time { return time.Unix(86400, 5e6) }})
	if got != `[86400005,"1970-01-02T00:00:00.005Z",0]` {
		t.Errorf("got %s", got)
	}
}

// TestPollution changes what the bridge might lean on; the call must come through, or fail cleanly.
func TestPollution(t *testing.T) {
	const use = `
		const r = await callAgent("x", "f", { a: 1 });
		console.log("line", [1]);
		emit("e", 1);
		return { r, n: [1, 2] };`
	for _, evil := range []string{
		``,
		`JSON.stringify = JSON.parse = () => { throw new Error("evil") }`,
		`Promise.prototype.then = () => { throw new Error("evil") }`,
		`globalThis.Promise = globalThis.Uint8Array = globalThis.Error = globalThis.Map = globalThis.Proxy = undefined`,
		`Array.prototype[Symbol.iterator] = Array.prototype.push = Array.prototype.map = undefined`,
		`Map.prototype.get = Map.prototype.set = Map.prototype.has = Map.prototype.delete = () => undefined`,
		`Object.prototype.toJSON = Array.prototype.toJSON = String.prototype.toJSON = () => "evil"`,
		`Object.defineProperty(Object.prototype, "config", { set() { throw new Error("evil") }, get() { return "evil" } })`,
		`Object.defineProperty(Object.prototype, "id", { get() { return 1 }, set() {} })`,
		`for (const k of ["name", "type", "text", "bytes", "ok", "agent", "function", "then", "get", "value", "resolve", "kind"]) Object.defineProperty(Object.prototype, k, { get() { throw new Error("evil") }, set() {}, configurable: true })`,
		`Reflect.apply = Function.prototype.call = Function.prototype.apply = () => { throw new Error("evil") }`,
		`Uint8Array.prototype.toBase64 = Uint8Array.fromBase64 = String.prototype.toWellFormed = RegExp.prototype.exec = () => { throw new Error("evil") }`,
		`globalThis.TextEncoder = globalThis.TextDecoder = globalThis.console = globalThis.setTimeout = undefined`,
		`Symbol.prototype.toString = Object.prototype.toString = Object.prototype.valueOf = () => { throw new Error("evil") }`,
	} {
		src := `import { callAgent, emit } from "skep"; const console = globalThis.console; export async function f() { ` + evil + `;` + use + ` }`
		a := load(t, files("a.js", "a.js", src))
		r := &recorder{}
		out, _, err := a.Call(t.Context(), Call{Function: "f", Calls: r.calls, Log: r.log, Limits: agent.Limits{CPU: time.Second}})
		evilJSON := strings.Contains(evil, "toJSON") // the author's own values do go through the author's toJSON
		switch {
		case err != nil && agent.KindOf(err) != agent.Failed:
			t.Errorf("%s: %v", evil, err)
		case err != nil && evil != "":
			t.Logf("%s: %v", evil, err)
		case err != nil:
			t.Error(err)
		case !evilJSON && string(out.Body) != `{"r":{"a":1},"n":[1,2]}`:
			t.Errorf("%s: %s", evil, out.Body)
		}
	}
}

// TestBridgeOutOfReach looks for the host's functions from an author's code.
func TestBridgeOutOfReach(t *testing.T) {
	a := load(t, source(`
		import * as skep from "skep";
		export const f = () => {
			const seen = new Set(), found = [];
			const names = ["call", "cancel", "sync", "alarm", "random", "result", "response", "fail", "loaded"];
			(function walk(o, path) {
				if ((typeof o !== "object" && typeof o !== "function") || o === null || seen.has(o) || path.length > 6) return;
				seen.add(o);
				for (const k of Reflect.ownKeys(o)) {
					let d; try { d = Reflect.getOwnPropertyDescriptor(o, k) } catch { continue }
					for (const v of [d?.value, d?.get, d?.set]) {
						if (typeof v === "function" && names.includes(v.name) && Function.prototype.toString.call(v).includes("native") && !(String(path).includes("ReadableStream") || o === Function.prototype || o === Math || o === Promise || o === Reflect)) found.push([...path, k].map(String).join("."));
						walk(v, [...path, k]);
					}
				}
				try { walk(Reflect.getPrototypeOf(o), [...path, "[[Prototype]]"]) } catch {}
			})({ globalThis, skep, x: 1 }, []);
			return { found, seen: seen.size > 500 };
		};`))
	if got := result(t, a, Call{Function: "f"}); got != `{"found":[],"seen":true}` {
		t.Errorf("got %s", got)
	}
}
