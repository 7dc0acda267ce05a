package script

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
)

func bundle(t testing.TB, src agent.Source) string {
	t.Helper()
	b, err := MakeBundle(t.Context(), src, nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(b.Code)
}

// TestImports runs an agent that imports in every way there is.
func TestImports(t *testing.T) {
	src := files("src/agent.ts",
		"src/agent.ts", `
import { a } from "./a"; import { b } from "./b.js"; import { c } from "./dir"; import d from "../data.json"; import { e } from "/src/e.mts";
import txt from "./words.txt"; import sql from "./q.sql";
import { worker } from "cond"; import { sub } from "cond/sub/x"; import cjs from "old"; import { m } from "@scope/mod"; import { inner } from "cond/inner";
import { real } from "types-in-js"; import type { T } from "./only-a-type";
export const all = async (t: T) => [a, b, c, d.n, e, txt, sql, worker, sub, cjs.twice(2), m, inner, real, (await import("./late")).late, process.env.NODE_ENV];
using done = { [Symbol.dispose]() {} };
`,
		"src/a.ts", `export const a: string = "a"`,
		"src/b.ts", `export { b } from "./dir/b"`,
		"src/dir/index.tsx", `export const c = "c"`,
		"src/dir/b.js", `export const b = "b"`,
		"src/e.mts", `export const e = "e" as const`,
		"src/late.ts", `export const late = "late"`,
		"src/words.txt", "two\nlines",
		"src/q.sql", "SELECT 1",
		"data.json", `{"n":5}`,
		"node_modules/cond/package.json", `{"exports":{".":{"node":"./node.js","worker":"./worker.js","default":"./default.js"},"./sub/*":"./lib/*.js","./inner":[{"import":"./inner.js"}]},"imports":{"#own":"./own.js"}}`,
		"node_modules/cond/worker.js", `export const worker = "worker"`,
		"node_modules/cond/node.js", `throw 1`,
		"node_modules/cond/lib/x.js", `export const sub = "sub"`,
		"node_modules/cond/inner.js", `import { own } from "#own"; export const inner = own`,
		"node_modules/cond/own.js", `export const own = "own"`,
		"node_modules/old/package.json", `{"main":"./lib"}`,
		"node_modules/old/lib/index.js", `const h = require("./h"); exports.twice = (x) => h(x)`,
		"node_modules/old/lib/h.js", `module.exports = (x) => 2 * x; if (0) require(process.env.X)`,
		"node_modules/@scope/mod/package.json", `{"module":"esm.js","main":"cjs.js"}`,
		"node_modules/@scope/mod/esm.js", `export const m = "m"`,
		"node_modules/types-in-js/index.js", `export const real = "real"`,
	)
	want := `["a","b","c",5,"e","two\nlines","SELECT 1","worker","sub",4,"m","own","real","late","production"]`
	if got := result(t, load(t, src), Call{Function: "all"}); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestRefusedImports(t *testing.T) {
	for _, c := range []struct{ code, want string }{
		{`import fs from "node:fs"`, `agent.ts:1:16: "node:fs" is not available here`},
		{`import fs from "fs"`, `"fs" is not available here`},
		{"\n  import x from 'left-pad'", `agent.ts:2:17: the package "left-pad" was not found: upload it in node_modules`},
		{`import x from "./none"`, `"./none" was not found`},
		{`import x from "../../etc/passwd"`, `is outside of the uploaded files`},
		{`import x from "https://esm.sh/x"`, `code comes from the uploaded files only`},
		{`import x from "./m.wasm"`, `a script cannot load WebAssembly`},
		{`import x from "./m.bin"`, `files of this kind cannot be imported`},
		{`import x from "p/secret"`, `the package's exports have no "./secret"`},
		{`import x from "p"`, `which was not uploaded`},
		{`import { x } from "./one"`, `No matching export in "one.ts" for import "x"`},
		{"import './a1'; import './a2';\nlet 5", "agent.ts:2:5: Expected \";\" but found \"5\""},
	} {
		// TypeScript drops imports of names that are not used.
		src := files("agent.ts", "agent.ts", c.code+"\nglobalThis.used = [x, fs];", "m.wasm", "\x00asm", "m.bin", "", "one.ts", "export const y = 1",
			"node_modules/p/package.json", `{"exports":{".":"./gone.js"}}`)
		_, err := MakeBundle(t.Context(), src, nil)
		if e := agent.AsError(err); e == nil || e.Kind != agent.Invalid || !strings.Contains(e.Msg, c.want) || e.Pos.File != "agent.ts" {
			t.Errorf("%s: %v", c.code, err)
		}
	}
	_, err := MakeBundle(t.Context(), files("a.ts", "a.ts", "import './x';\nimport './y';\nimport './z'"), nil)
	if n := strings.Count(err.Error(), "was not found"); n != 3 {
		t.Errorf("%d of 3 errors are listed: %v", n, err)
	}
}

func TestRefusedSources(t *testing.T) {
	big := files("a.ts", "a.ts", "1", "b.txt", strings.Repeat("x", 1000))
	for _, c := range []struct {
		src  agent.Source
		o    *BundleOptions
		kind agent.Kind
	}{
		{agent.Source{Kind: agent.Wasm}, nil, agent.Invalid},
		{files("none.ts", "a.ts", "1"), nil, agent.Invalid},
		{files("a.json", "a.json", "1"), nil, agent.Invalid},
		{files("a.ts", "a.ts", "1", "../b.ts", "1"), nil, agent.Invalid},
		{files("a.ts", "a.ts", "1", "/etc/x", "1"), nil, agent.Invalid},
		{big, &BundleOptions{MaxBytes: 1000}, agent.Exhausted},
		{big, &BundleOptions{MaxFiles: 1}, agent.Exhausted},
	} {
		if _, err := MakeBundle(t.Context(), c.src, c.o); agent.KindOf(err) != c.kind {
			t.Errorf("%v: %v", c.src.Main, err)
		}
	}
}

// TestSealed has code that makes the bundler look at the file system, next to files that it would find there.
func TestSealed(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret.js")
	if err := os.WriteFile(secret, []byte(`export const found = "the secret"`), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	rel := strings.Repeat("../", 40) + strings.TrimPrefix(dir, "/") + "/"
	for _, code := range []string{
		`const n = "secret"; import("./" + n + ".js")`,
		"const n = 'secret'; import(`./${n}.js`)",
		`const n = "secret"; import /* x */ (("` + rel + `" + n))`,
		`let n = "secret"; export const f = () => require("` + rel + `" + n)`,
		`let n = "secret"; export const f = () => requ\u0069re("./" + n)`,
		`let n = "secret"; try { require(n ? "./" + n : "./x" + n) } catch {}`,
		`let n = "secret"; import("./" + n + import("./" + n)); if (0) import("./" + n)`,
		"import './b';\n//# sourceMappingURL=file://" + secret,
		"import './b';\n//# sourceMappingURL=" + secret,
		"/*# sourceMappingURL=" + secret + " */ import './b'",
	} {
		src := files("agent.ts", "agent.ts", `import "./b"; `+code, "b.ts", "export {}")
		b, err := MakeBundle(t.Context(), src, nil)
		if err != nil {
			if strings.Contains(err.Error(), "secret.js") {
				t.Errorf("%s: %v", code, err)
			}
			continue
		}
		if strings.Contains(string(b.Code), "the secret") || strings.Contains(string(b.Code), "secret.js\"()") || strings.Contains(string(b.Code), "__glob") {
			t.Errorf("%s:\n%s", code, b.Code)
		}
	}
}

func TestSelfContained(t *testing.T) {
	for text, want := range map[string]bool{
		`export const a = 1`: true,
		`import { Agent, emit as e } from "skep"; Array.from([])`:    true,
		`import * as s from 'skep'`:                                  true,
		`import x from "./x"`:                                        false,
		`import "skep/x"`:                                            false,
		`export * from "./x"`:                                        false,
		`const x = require("x")`:                                     false,
		`await import("./x")`:                                        false,
		`import x from "skep"; import/**/y from/**/"./y"`:            false,
		`import.meta.url`:                                            false,
		`import { a } from "skep"; import { b } from "skep"; b.from`: true,
	} {
		if got := selfContained([]byte(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

func TestLowered(t *testing.T) {
	code := bundle(t, source(`
		function twice(_: unknown, __: unknown) { return (x: number) => 2 * x }
		export class A { @twice m(x: number) { return x } }
		enum E { One = 1 }
		export const e: E = E.One satisfies E;`))
	for _, gone := range []string{"@twice", "enum E", "satisfies", ": number"} {
		if strings.Contains(code, gone) {
			t.Errorf("%q is still there:\n%s", gone, code)
		}
	}
}
