package hostile_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	w "github.com/skep-dev/skep/internal/wasmtest"
)

// twice calls put and then get of src many times, as one tenant and as two; get must always find the same.
func twice(src agent.Source, want string) func(*testing.T, *suite) {
	return func(t *testing.T, s *suite) {
		d := s.put(src)
		defer s.drop(d)
		for n := range 8 {
			tenants := [2]agent.App{"one", []agent.App{"one", "two"}[n%2]}
			ask := func(tenant agent.App, fn string) string {
				res, err := s.host.Call(t.Context(), host.Call{
					Plugin: d, Tenant: tenant, Function: fn, Limits: twiceLimits(fn), Calls: answer,
					Input: agent.Payload{Type: agent.TypeText, Body: fmt.Appendf(nil, "secret of %s %d", tenant, n)},
				})
				if err != nil && agent.KindOf(err) != agent.Failed && agent.KindOf(err) != agent.Exhausted {
					t.Fatalf("%s: %v", fn, err)
				}
				return string(res.Output.Body)
			}
			ask(tenants[0], "put")
			if got := ask(tenants[1], "get"); got != want {
				t.Fatalf("round %d: found %.200q, want %.200q", n, got, want)
			}
		}
	}
}

// twiceLimits gives put, which may run for ever, little time, and get, which must not, enough.
func twiceLimits(fn string) agent.Limits {
	if fn == "put" {
		return small
	}
	return agent.Limits{CPU: 3 * time.Second}.Or(small)
}

func leftoverAttacks() []attack {
	left := func(name, module, put, get, want string) attack {
		return attack{name: "script " + name, run: twice(script(module+
			"\nexport async function put(x: any, ctx: any) { "+put+" }\nexport async function get(_: any, ctx: any) { "+get+" }"), want)}
	}
	dirty := func(name string, m w.Module, put, get []byte) attack {
		m.Funcs = append([]w.Func{
			{Export: "put", Type: toI32, Body: w.Code(put, w.I32Const(0)), Locals: []byte{w.I64, w.I64}},
			{Export: "get", Type: toI32, Body: get, Locals: []byte{w.I64, w.I64}},
		}, m.Funcs...)
		return attack{name: "wasm " + name, run: twice(module(m), "")}
	}
	// get fails, with no output, when what it finds is not zero; so does put, which must not matter.
	zero := func(parts ...any) []byte {
		return w.Code(w.Code(parts...), if_, empty, i64s(8), call("alloc"), localTee, 0, i64s(8), call("output_set"), end_, w.I32Const(0))
	}
	page := w.Size(2, -1)
	return []attack{
		left("globals", ``, `(globalThis as any).x = x`, `return String((globalThis as any).x)`, "undefined"),
		left("module state", `let kept: any = 0; const list: any[] = [];`, `kept = x; list.push(x)`, `return [kept, list]`, "[0,[]]"),
		left("prototypes", ``, `(Array.prototype as any).x = x; (Object.prototype as any).y = x`, `return [([] as any).x ?? 0, ({} as any).y ?? 0]`, "[0,0]"),
		left("built-ins", ``, `JSON.parse = () => x; Date.now = () => x; (Math as any).max = x`, `return [JSON.parse("1"), typeof Math.max]`, `[1,"function"]`),
		left("symbols", ``, `(globalThis as any)[Symbol.for("x")] = x`, `return String((globalThis as any)[Symbol.for("x")])`, "undefined"),
		left("timers", `let fired = 0;`, `setTimeout(() => { fired++; (globalThis as any).x = x }, 0); setInterval(() => fired++, 1)`, `await new Promise((r) => setTimeout(r, 5)); return [fired, (globalThis as any).x ?? 0]`, "[0,0]"),
		left("promises", `let p: any = 0, done = 0;`, `p = new Promise((r) => setTimeout(() => r(x), 1)).then(() => done++); skep()`, `await 0; return [p, done]`, "[0,0]"),
		left("unhandled rejections", `let seen = 0; globalThis.addEventListener?.("unhandledrejection", () => seen++);`, `Promise.reject(x)`, `await 0; return seen`, "0"),
		left("what a failed call left", `let kept: any = 0;`, `kept = x; throw new Error(x)`, `return kept`, "0"),
		left("what a loop left", `let kept: any = 0;`, `kept = x; for (;;);`, `return kept`, "0"),
		left("what a hoarder left", `let kept: any = 0;`, `kept = x; const a = []; for (;;) a.push(new Uint8Array(1 << 20).fill(7))`, `return kept`, "0"),
		left("fresh buffers", ``, `for (let i = 0; i < 50; i++) new Uint8Array(10000).fill(42)`, `for (let i = 0; i < 20; i++) if (new Uint8Array(1000).some((b) => b !== 0)) return "found"; return "clean"`, "clean"),
		left("large fresh buffers", ``, `for (let i = 0; i < 20; i++) new Uint8Array(1e6).fill(42)`, `if (new BigUint64Array(2e4).some((b) => b !== 0n)) return "found"; return "clean"`, "clean"),
		left("an instance", ``, ``, `return 1`, "1"),
		left("the console's groups", ``, `console.group(x); console.count(x); console.time(x)`, `return 1`, "1"),
		left("event listeners", `let seen = 0; const t = new EventTarget();`, `t.addEventListener("x", () => seen++)`, `t.dispatchEvent(new Event("x")); return seen`, "0"),
		left("weak things", `const m = new WeakMap(), key = {};`, `m.set(key, x)`, `return String(m.get(key))`, "undefined"),
		left("template caches", `const tag = (s: any) => s; const g = () => tag`+"`a`"+`;`, `(g() as any).x = x`, `return String((g() as any).x)`, "undefined"),
		left("regex state", `const r = /a/g;`, `r.lastIndex = 5; /(.*)/.exec(x)`, `return [r.lastIndex, (RegExp as any).$1 ?? ""]`, `[0,""]`),
		left("the input of the call before", ``, ``, `return typeof _`, "string"),
		left("config", ``, `try { ctx.config.x = x } catch {}`, `return String(ctx.config.x)`, "undefined"),
		dirty("memory", w.Module{Memory: page}, store(4096, 7), zero(w.I32Const(4096), i32Load, 2, 0)),
		dirty("memory that grew", w.Module{Memory: page}, w.Code(w.I32Const(3), memoryGrow, 0, drop, store(2<<16+8, 7)),
			zero(w.I32Const(3), memoryGrow, 0, w.I32Const(2), 0x47, w.I32Const(2<<16+8), i32Load, 2, 0, 0x72)),
		dirty("memory after a trap", w.Module{Memory: page}, w.Code(store(4096, 7), unreachable), zero(w.I32Const(4096), i32Load, 2, 0)),
		dirty("memory after a loop", w.Module{Memory: page}, w.Code(store(4096, 7), forever()), zero(w.I32Const(4096), i32Load, 2, 0)),
		dirty("memory after an exit", w.Module{Memory: page}, w.Code(store(4096, 7), w.I32Const(0), call("proc_exit")), zero(w.I32Const(4096), i32Load, 2, 0)),
		dirty("globals", w.Module{Globals: []w.Global{{Type: w.I32, Mutable: true, Init: w.I32Const(0)}}}, w.Code(w.I32Const(7), globalSet, 0), zero(globalGet, 0)),
		dirty("tables", w.Module{Table: w.Size(1, 10)}, w.Code(refNull, w.FuncRef, w.I32Const(3), misc, 15, 0, drop), zero(misc, 16, 0, w.I32Const(1), 0x47)),
		dirty("dropped segments", w.Module{Memory: page, Data: []w.Data{{Passive: true, Bytes: []byte{0, 0, 0, 0}}}}, w.Code(misc, 9, 0),
			w.Code(i32s(0, 0, 4), misc, 8, 0, 0, w.I32Const(0))),
		dirty("blocks", w.Module{}, w.Code(i64s(4096), call("alloc"), localTee, 0, i64s(4088), i64Add, i64s(-1), call("store_u64")),
			zero(i64s(4096), call("alloc"), localTee, 0, i64s(4088), i64Add, call("load_u64"), i64s(0), 0x52)),
		dirty("variables", w.Module{}, w.Code(block64("k", 0), block64("v", 1), localGet, 0, localGet, 1, call("var_set")),
			zero(block64("k", 0), localGet, 0, call("var_get"), i64s(0), 0x52)),
		dirty("the error", w.Module{}, w.Code(block64("k", 0), localGet, 0, call("error_set")), zero(call("error_get"), i64s(0), 0x52)),
		dirty("the output", w.Module{}, w.Code(block64("k", 0), localGet, 0, i64s(1), call("output_set")), zero(call("output_length"), i64s(0), 0x52)),
		dirty("half a line of output", w.Module{Memory: page}, w.Code(store(0, 16), store(4, 1), store(16, 'x'), i32s(1, 0, 1, 8), call("fd_write"), drop), w.I32Const(0)),
		{name: "wasm an initialiser's secret is not another tenant's", run: twice(script(`const made = []; export function put(x: any) { made.push(x) } export function get() { return made.length }`), "0")},
		{name: "two codes with one digest's prefix", run: sameNames},
	}
}

// sameNames loads two agents that differ in one file's name only, and in where one file ends and the next begins.
func sameNames(t *testing.T, s *suite) {
	make := func(files ...string) agent.Source {
		src := agent.Source{Kind: agent.Script, Main: "a.js", Files: map[string][]byte{}}
		for i := 0; i < len(files); i += 2 {
			src.Files[files[i]] = []byte(files[i+1])
		}
		return src
	}
	text := `export function f() { return 1 }`
	got := map[string]bool{}
	for _, src := range []agent.Source{
		make("a.js", text, "b.js", ""), make("a.js", text+"\n", "b.js", ""), make("a.js", strings.Replace(text, "1", "2", 1), "b", ""),
	} {
		out, _, err := s.call(t, attack{src: src})
		if err != nil {
			t.Error(err)
		}
		got[string(out)] = true
	}
	if len(got) != 2 {
		t.Errorf("%v", got)
	}
}

// randomAttacks guess what another cell draws.
func randomAttacks() []attack {
	distinct := func(src agent.Source, fn string) func(*testing.T, *suite) {
		return func(t *testing.T, s *suite) {
			const n = 60
			d := s.put(src)
			defer s.drop(d)
			var mu sync.Mutex
			var all []string
			var wg sync.WaitGroup
			for i := range 4 {
				wg.Go(func() {
					for range n / 4 {
						res, err := s.host.Call(t.Context(), host.Call{Plugin: d, Tenant: agent.App(fmt.Sprint("t", i%2)), Function: fn})
						if err != nil {
							t.Error(err)
						}
						mu.Lock()
						all = append(all, string(res.Output.Body))
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			slices.Sort(all)
			if got := len(slices.Compact(all)); got != n {
				t.Errorf("%d of %d draws differ: %q", got, n, all[:min(3, len(all))])
			}
		}
	}
	js := func(expr string) func(*testing.T, *suite) {
		return distinct(script("export async function f() { return String("+expr+") }"), "f")
	}
	return []attack{
		{name: "Math.random", run: js(`Math.random()`)},
		{name: "Math.random after a draw", run: js(`(Math.random(), Math.random())`)},
		{name: "crypto.randomUUID", run: js(`crypto.randomUUID()`)},
		{name: "crypto.getRandomValues", run: js(`crypto.getRandomValues(new Uint32Array(4))`)},
		{name: "a generated key", run: js(`(await crypto.subtle.exportKey("jwk", await crypto.subtle.generateKey({ name: "HMAC", hash: "SHA-256" }, true, ["sign"]) as CryptoKey)).k`)},
		{name: "the order of a shuffle", run: js(`Array.from({ length: 50 }, (_, i) => i).map((i) => [Math.random(), i]).sort((a, b) => a[0] - b[0]).map((x) => x[1])`)},
		{name: "randomness at load", src: script(`const x = Math.random(); export function f() { return typeof x }`), want: either(failed("not available while the module loads"), gives("number"))},
		{name: "keys at load", src: script(`const x = crypto.randomUUID(); export function f() { return x }`), want: failed("not available while the module loads")},
		{name: "the seed of Math.random at load", run: distinct(script(`let x: any; try { x = Math.random() } catch {} export function f() { return String(Math.random()) }`), "f")},
		{name: "wasm random_get", run: distinct(wasm(i32s(0, 8), call("random_get"), drop,
			i64s(8), call("alloc"), localTee, 2, w.I32Const(0), i64Load, 3, 0, call("store_u64"), localGet, 2, i64s(8), call("output_set")), "f")},
		{name: "wasm skep_reseed", run: distinct(module(w.Module{
			Types: []w.Type{{Params: []byte{w.I64}}}, Globals: []w.Global{{Type: w.I64, Mutable: true, Init: w.I64Const(0)}},
			Funcs: []w.Func{
				f(w.Code(i64s(8), call("alloc"), localTee, 0, globalGet, 0, call("store_u64"), localGet, 0, i64s(8), call("output_set")), w.I64),
				{Type: own + len(lib), Export: "skep_reseed", Body: w.Code(localGet, 0, globalSet, 0)},
			},
		}), "f")},
		{name: "wasm random_get before the image", run: imagedRandomness},
	}
}

// imagedRandomness draws in _initialize, which runs once for all cells: the module has no skep_reseed, so what it drew is
// shared. That is the contract; what must differ is a draw of the call's.
func imagedRandomness(t *testing.T, s *suite) {
	draw := w.Code(i32s(0, 8), call("random_get"), drop)
	src := module(w.Module{Memory: w.Size(1, 1), Funcs: []w.Func{
		f(w.Code(draw, i64s(8), call("alloc"), localTee, 0, w.I32Const(0), i64Load, 3, 0, call("store_u64"), localGet, 0, i64s(8), call("output_set")), w.I64),
		{Export: "_initialize", Body: draw},
	}})
	a, _, err1 := s.call(t, attack{src: src})
	b, _, err2 := s.call(t, attack{src: src})
	if err1 != nil || err2 != nil || string(a) == string(b) {
		t.Errorf("%q %v, %q %v", a, err1, b, err2)
	}
}
