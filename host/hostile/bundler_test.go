package hostile_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
)

// upload is a source of files: name, text, name, text. The first is the main one.
func upload(files ...string) agent.Source {
	src := agent.Source{Kind: agent.Script, Main: files[0], Files: map[string][]byte{}}
	for i := 0; i < len(files); i += 2 {
		src.Files[files[i]] = []byte(files[i+1])
	}
	return src
}

func bundlerAttacks() []attack {
	const body = `export function f() { return 1 }`
	imports := func(spec string) attack {
		return attack{name: "import of " + spec, src: upload("a.ts", `import x from "`+spec+`"; export function f() { return x }`), want: refused("")}
	}
	rows := []attack{
		imports("/etc/passwd"), imports("../../../../../../etc/passwd"), imports("./../../etc/passwd"), imports("file:///etc/passwd"),
		imports("http://169.254.169.254/latest"), imports("https://esm.sh/left-pad"), imports("data:text/javascript,export default 1"),
		imports("node:fs"), imports("fs"), imports("child_process"), imports("bun:ffi"), imports("cloudflare:workers"), imports("std"), imports("os"),
		imports("/proc/self/environ"), imports("./.env"), imports("#secret"), imports("@scope/../../etc/passwd"), imports("a/../../../etc/passwd"),
		imports("./a.ts\\0"), imports("..\\\\..\\\\etc\\\\passwd"), imports("%2e%2e/%2e%2e/etc/passwd"), imports("skep/../../etc/passwd"), imports("skep:web"),
		imports(strings.Repeat("../", 1000) + "x"), imports("./" + strings.Repeat("x/", 2000) + "x"),
	}
	long := rows[len(rows)-2:]
	long[0].name, long[1].name = "import of a path of a thousand levels up", "import of a path of two thousand levels down"
	many := func(n int, text func(int) string) agent.Source {
		files := []string{"a.ts", `import "./m0"; ` + body}
		for i := range n {
			files = append(files, fmt.Sprintf("m%d.ts", i), text(i))
		}
		return upload(files...)
	}
	return append(rows,
		attack{name: "require of a file", src: upload("a.js", `const x = require("/etc/passwd"); `+body), want: refused("")},
		attack{name: "require of a computed file", src: upload("a.js", `export function f() { try { return require("/etc/" + "passwd") } catch { return "no" } }`), want: either(refused("not found"), gives("no"))},
		attack{name: "a template in import()", src: upload("a.js", "export async function f() { try { const x = 'passwd'; return await import(`/etc/${x}`) } catch { return 'no' } }"), want: gives("no")},
		attack{name: "a template in import() of a parent", src: upload("a.js", "export async function f() { try { const x = 'passwd'; return await import(`../../../etc/${x}.js`) } catch { return 'no' } }"), want: gives("no")},
		attack{name: "a template in require()", src: upload("a.js", "export function f() { try { const x = 'passwd'; return require(`./../../etc/${x}`) } catch { return 'no' } }"), want: gives("no")},
		attack{name: "new URL of a file", src: upload("a.js", `export function f() { return new URL("../../../etc/passwd", "http://a.b/c").href }`), want: gives("http://a.b/etc/passwd")},
		attack{name: "import.meta.url", src: upload("a.js", `export function f() { return String(import.meta.url).includes("/work") || String(import.meta.url).startsWith("file:") }`), want: gives("false")},
		attack{name: "a source map that is a file", run: mapsAreNotRead},
		attack{name: "a source map of junk", src: upload("a.js", body+"\n//# sourceMappingURL=data:application/json;base64,"+strings.Repeat("A", 100_000)), want: either(gives("1"), refused(""))},
		attack{name: "a source map that names other files", src: upload("a.js", body+"\n//# sourceMappingURL=data:application/json,{\"version\":3,\"sources\":[\"/etc/passwd\"],\"mappings\":\"AAAA\"}"), want: gives("1")},
		attack{name: "a sourceMappingURL in the styles' way", src: upload("a.js", body+"\n/*# sourceMappingURL=/etc/passwd */"), want: gives("1")},
		attack{name: "package.json with a main outside", src: upload("a.js", `import x from "p"; `+body, "node_modules/p/package.json", `{"main":"../../../../etc/passwd"}`), want: refused("")},
		attack{name: "package.json with exports outside", src: upload("a.js", `import x from "p"; `+body, "node_modules/p/package.json", `{"exports":"./../../../etc/passwd"}`), want: refused("")},
		attack{name: "package.json with deep conditions", src: upload("a.js", `import x from "p"; `+body, "node_modules/p/package.json",
			`{"exports":`+strings.Repeat(`{"default":`, 1000)+`"./x.js"`+strings.Repeat("}", 1000)+`}`), want: either(refused(""), gives("1"))},
		attack{name: "package.json with a wide pattern", src: upload("a.js", `import x from "p/`+strings.Repeat("a/", 500)+`"; `+body, "node_modules/p/package.json",
			`{"exports":{"./*/*":"./*"}}`), want: refused("")},
		attack{name: "package.json that is not JSON", src: upload("a.js", `import x from "p"; `+body, "node_modules/p/package.json", `{"main":`), want: refused("")},
		attack{name: "package.json that refers to itself", src: upload("a.js", `import x from "#a"; `+body, "package.json", `{"imports":{"#a":"#a"}}`), want: refused("")},
		attack{name: "package.json that refers in a circle", src: upload("a.js", `import x from "#a"; `+body, "package.json", `{"imports":{"#a":"#b","#b":"#a"}}`), want: refused("")},
		attack{name: "package.json with __proto__", src: upload("a.js", body, "package.json", `{"__proto__":{"main":"/etc/passwd"}}`), want: gives("1")},
		attack{name: "tsconfig that reads elsewhere", src: upload("a.ts", `import x from "secret"; export function f() { return x }`, "tsconfig.json", `{"extends":"/etc/passwd","compilerOptions":{"baseUrl":"/etc","paths":{"secret":["passwd"]}}}`), want: refused("")},
		attack{name: "tsconfig that is not JSON", src: upload("a.ts", body, "tsconfig.json", `{"extends":`), want: gives("1")},
		attack{name: "a file outside of the upload", src: upload("../a.js", body), want: refused("")},
		attack{name: "a file of an absolute path", src: upload("/a.js", body), want: refused("")},
		attack{name: "a main file that is not there", src: agent.Source{Kind: agent.Script, Main: "b.js", Files: map[string][]byte{"a.js": []byte(body)}}, want: refused("")},
		attack{name: "a main file that is a binary", src: upload("a.js", "\x00asm\x01\x00\x00\x00"), want: refused("")},
		attack{name: "a file name with a zero", src: upload("a.js", body, "b\x00.js", ""), want: either(refused(""), gives("1"))},
		attack{name: "a file name with a newline", src: upload("a.js", `import "./b\n"; `+body, "b\n", ""), want: either(refused(""), gives("1"))},
		attack{name: "no files", src: agent.Source{Kind: agent.Script, Main: "a.js"}, want: refused("")},
		attack{name: "code of an unknown kind", src: agent.Source{Kind: 77, Main: "a", Files: map[string][]byte{"a": nil}}, want: refused("")},
		attack{name: "a JSON file that is deep", src: upload("a.js", `import x from "./x.json"; `+body, "x.json", strings.Repeat("[", 20_000)+strings.Repeat("]", 20_000)), want: either(refused(""), gives("1"), over(agent.LimitStack))},
		attack{name: "a JSON file with __proto__", src: upload("a.js", `import x from "./x.json"; export function f() { return [Object.keys(x), x.evil ?? null] }`, "x.json", `{"__proto__":{"evil":1}}`), want: either(gives(`[["__proto__"],null]`), gives(`[["__proto__"],1]`))},
		attack{name: "files that import each other", src: upload("a.js", `import "./b.js"; `+body, "b.js", `import "./a.js"`), want: gives("1")},
		attack{name: "a file that imports itself", src: upload("a.js", `import "./a.js"; `+body), want: gives("1")},
		attack{name: "two thousand files in a chain", src: many(2000, func(i int) string {
			if i == 1999 {
				return ""
			}
			return fmt.Sprintf(`import "./m%d"`, i+1)
		}), want: either(gives("1"), refused(""), over(agent.LimitStack, agent.LimitModule, agent.LimitUpload))},
		attack{name: "five thousand files that nothing imports", src: many(5000, func(int) string { return "" }), want: either(gives("1"), refused(""), over(agent.LimitModule, agent.LimitUpload))},
		attack{name: "a hundred files that import all", src: many(100, func(int) string {
			var b strings.Builder
			for j := range 100 {
				fmt.Fprintf(&b, "import \"./m%d\";", j)
			}
			return b.String()
		}), want: gives("1")},
		attack{name: "a thousand errors", src: upload("a.js", strings.Repeat("import \"./nope\";\n", 1000)+body), run: nil, want: refused("nope")},
		attack{name: "an export called twice", src: upload("a.js", body+body), want: refused("")},
		attack{name: "a comment that ends the wrapper", src: upload("a.js", body+"\n/* "), want: refused("")},
		attack{name: "a hashbang", src: upload("a.js", "#!/bin/sh\n"+body), want: gives("1")},
		attack{name: "decorators, enums and namespaces", src: upload("a.ts", `enum A { B = "x".length } namespace N { export const x = 1 } `+body), want: gives("1")},
		attack{name: "a define that is overwritten", src: upload("a.js", `const process = { env: { NODE_ENV: "evil" } }; export function f() { return process.env.NODE_ENV }`), want: either(gives("evil"), gives("production"))},
		attack{name: "names of the bundler's runtime", src: upload("a.js", `const __export = 1, __toESM = 2, __commonJS = 3, skepImport = 4; export function f() { return __export + __toESM + __commonJS + skepImport }`), want: gives("10")},
	)
}

// mapsAreNotRead has the code name a real file as its source map. Nothing of that file may be in an error.
func mapsAreNotRead(t *testing.T, s *suite) {
	secret := filepath.Join(t.TempDir(), "a.js.map")
	if err := os.WriteFile(secret, []byte(`{"version":3,"sources":["stolen.ts"],"sourcesContent":["stolen"],"mappings":"AAAA"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, comment := range []string{"//# sourceMappingURL=", "//@ sourceMappingURL=", "/*# sourceMappingURL="} {
		src := upload("a.js", "import './b.js'; export function f() { throw new Error('x') }\n"+comment+secret, "b.js", "1\n"+comment+secret)
		_, _, err := s.call(t, attack{src: src})
		if e := agent.AsError(err); e == nil || strings.Contains(e.Error()+e.Stack+e.Pos.String(), "stolen") {
			t.Errorf("%s: %+v", comment, e)
		}
	}
}
