package script

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
)

// TestPositions follows an error through several files of TypeScript, with lines that bundling moves.
func TestPositions(t *testing.T) {
	src := files("src/agent.ts",
		"src/agent.ts", `import { check } from "./lib/check"; import { SkepError } from "skep";
import type { Order } from "./types";

type Unused = { a: number };
interface AlsoUnused { b: string }

export default {
	async handle(o: Order) {
		await null;
		console.log("seen", new Error("in a log"));
		return check(o);
	},
	hidden() {
		throw "just a string";
	},
	caused() {
		try {
			check({ amount: -1 });
		} catch (e) {
			throw new Error("outer", { cause: e });
		}
	},
	same() { throw new TypeError("no host", { cause: new SkepError("denied", "no host") }); },
	deeper() {
		const cause = new SkepError("denied", "no host");
		cause.cause = new RangeError("deep");
		throw new TypeError("no host", { cause });
	},
};
`,
		"src/lib/check.ts", `// A comment

const limit: number = 3; export function check(o: { amount: number }): boolean {
	if (o.amount < limit) { const e: Error = new RangeError("too small: é " + o.amount); throw e; }
	return (o as any).missing.x;
}
`,
		"src/types.ts", `export interface Order { amount: number }`)
	a := load(t, src)
	r := &recorder{}
	_, _, err := a.Call(t.Context(), Call{Function: "handle", Input: js(`{"amount":1}`), Log: r.log})
	want := &agent.Error{Kind: agent.Failed, Msg: "RangeError: too small: é 1", Pos: agent.Pos{File: "src/lib/check.ts", Line: 4, Column: 76},
		Stack: "at check (src/lib/check.ts:4:76)\nat handle (src/agent.ts:11:16)"}
	if d := cmp.Diff(want, agent.AsError(err)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"info: seen Error: in a log\n    at handle (src/agent.ts:10:27)"}, r.asked); d != "" {
		t.Error(d)
	}
	_, _, err = a.Call(t.Context(), Call{Function: "handle", Input: js(`{"amount":5}`)})
	if e := agent.AsError(err); err == nil || e.Msg != "TypeError: cannot read property 'x' of undefined" || e.Pos.File != "src/lib/check.ts" || e.Pos.Line != 5 {
		t.Errorf("%v at %v", err, e.Pos)
	}
	_, _, err = a.Call(t.Context(), Call{Function: "hidden"})
	if e := agent.AsError(err); err == nil || e.Kind != agent.Failed || e.Msg != `threw "just a string", which is not an Error` {
		t.Errorf("a thrown string: %v", err)
	}
	_, _, err = a.Call(t.Context(), Call{Function: "caused"})
	if e := agent.AsError(err); err == nil || e.Pos.Line != 20 || !strings.Contains(e.Stack, "Caused by: RangeError: too small: é -1\nat check (src/lib/check.ts:4:76)") {
		t.Errorf("caused: %v\n%s", err, e.Stack)
	}
	// A cause of ours that says the same is not said twice; what is below it is.
	for function, want := range map[string]string{"same": "", "deeper": "Caused by: RangeError: deep"} {
		_, _, err = a.Call(t.Context(), Call{Function: function})
		e := agent.AsError(err)
		if err == nil || e.Msg != "TypeError: no host" || strings.Contains(e.Stack, "SkepError") || !strings.Contains(e.Stack, want) || want == "" && strings.Contains(e.Stack, "Caused") {
			t.Errorf("%s: %v\n%s", function, err, e.Stack)
		}
	}
}

func TestLoadErrors(t *testing.T) {
	for _, c := range []struct {
		code, want string
		line       int
	}{
		{"\nconst x: number = ;", "agent.ts:2:19: Unexpected \";\"", 2},
		{"const a = 1;\nconst a = 2;", "agent.ts:2:7: The symbol \"a\" has already been declared\n  agent.ts:1:7:", 2},
		{"export const f = () => 1;\nnull.x;", "TypeError: cannot read property 'x' of null", 2},
		{"await new Promise(() => {});", "its top-level await waits for nothing", 0},
		{"export const x = 1;\nMath.random()", "Math.random is not available while the module loads", 2},
		{"const id = crypto.randomUUID();", "crypto.randomUUID is not available", 1},
		{"setTimeout(() => {}, 1);", "setTimeout is not available", 1},
		{"await fetch('http://a.b');", "fetch is not available", 1},
		{`import { config } from "skep"; const k = config.key;`, "config is not available", 1},
		{`import { emit } from "skep"; emit("x");`, "emit is not available", 1},
		{"const n = 'y';\nawait import('./' + n);", "import() needs a literal name", 2},
		{"function f() { f() } f()", "recursed too deeply", 0},
		{`import { nothing } from "skep"; nothing()`, "nothing", 0},
	} {
		a, err := engine.Load(t.Context(), source(c.code), nil)
		if err == nil {
			t.Errorf("%s: loaded", c.code)
			_ = a.Close()
			continue
		}
		e := agent.AsError(err)
		if !strings.Contains(e.Msg, c.want) || e.Pos.Line != c.line || (c.line > 0 && e.Pos.File != "agent.ts") {
			t.Errorf("%s: %q at %v", c.code, e.Msg, e.Pos)
		}
	}
}

func TestLoadConsole(t *testing.T) {
	r := &recorder{}
	a, err := engine.Load(t.Context(), source("export const f = 1;\nconsole.warn('loading', new Error('x'));\nPromise.reject(5)"), &LoadOptions{Env: cell.Env{Log: r.log}})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if d := cmp.Diff([]string{"warn: loading Error: x\n    at <anonymous> (agent.ts:2:29)", "error: Uncaught (in promise) 5"}, r.asked); d != "" {
		t.Error(d)
	}
}

func TestRejections(t *testing.T) {
	a := load(t, source(`
		export async function f() {
			Promise.reject(new Error("lost"));
			const late = Promise.reject(new Error("handled late"));
			await null;
			late.catch(() => {});
			(async () => { throw new TypeError("also lost") })();
			try { await (async () => { throw 1 })() } catch {}
			await new Promise((done) => setTimeout(done, 1));
			return 1;
		}`))
	r := &recorder{}
	result(t, a, Call{Function: "f", Log: r.log})
	want := []string{
		"error: Uncaught (in promise) Error: lost\n    at f (agent.ts:3:23)",
		"error: Uncaught (in promise) TypeError: also lost\n    at <anonymous> (agent.ts:7:29)\n    at f (agent.ts:7:52)",
	}
	if d := cmp.Diff(want, r.asked); d != "" {
		t.Error(d)
	}
}

func TestConsole(t *testing.T) {
	a := load(t, source(`
		export function f() {
			console.log("%s is %i, %j %o %%", "a", 4.7, { x: 1 }, [1]);
			console.debug(new Map([[1, new Set(["x"])]]), new Date(0), /x/g, Symbol("s"), 5n, -0, null, undefined, () => 1, class A {});
			class Point { x = 1; get y() { return 2 } #z = 3 }
			console.log(new Point(), Object.create(null), { get g() { throw new Error() } }, [1, , 3], new Uint8Array(3));
			const ring: any = { deep: { a: { b: { c: { d: 1 } } } } }; ring.self = ring; console.log(ring);
			console.group("in"); console.warn("two\nlines"); console.groupEnd();
			console.assert(1 > 2, "no");
			console.count(); console.count();
			console.table([{ a: 1, b: "x" }, { a: 22 }]);
			console.log(new Proxy({}, { ownKeys() { throw new Error("trap") } }));
			console.log("x".repeat(20000).length, ["y".repeat(20000)]);
		}`))
	r := &recorder{}
	result(t, a, Call{Function: "f", Log: r.log})
	want := []string{
		`info: a is 4, {"x":1} [1] %`,
		`debug: Map(1) { 1 => Set(1) { "x" } } 1970-01-01T00:00:00.000Z /x/g Symbol(s) 5n -0 null undefined [Function: (anonymous)] [class A]`,
		`info: Point { x: 1 } [Object: null prototype] {} { g: [Getter] } [1, <empty>, 3] Uint8Array(3) [0, 0, 0]`,
		`info: { deep: { a: { b: { c: { d: 1 } } } }, self: [Circular] }`,
		"info: in", "warn:   two\n  lines", "error: Assertion failed: no", "info: default: 1", "info: default: 2",
		"info:   | a  | b\n0 | 1  | \"x\"\n1 | 22 |",
		"info: (a value that cannot be shown)",
	}
	if len(r.asked) != len(want)+1 {
		t.Fatalf("%d lines: %q", len(r.asked), r.asked)
	}
	if d := cmp.Diff(want, r.asked[:len(want)]); d != "" {
		t.Error(d)
	}
	if last := r.asked[len(want)]; len(last) > 10_100 || !strings.Contains(last, "10000 more characters") {
		t.Errorf("a long string is shown in %d bytes: %.100s", len(last), last)
	}
}
