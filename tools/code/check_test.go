package code

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/skep-dev/skep/agent"
)

func checkTools() []agent.Tool {
	tools := named("fs.read_file", "fs.write_file", "my-server.get-sum", "github.create_issue", "open.any", "secret.drop")
	tools[0].Input = []byte(`{"type":"object","properties":{"path":{"type":"string"},"head":{"type":"integer"}},"required":["path"],"additionalProperties":false}`)
	tools[1].Input = []byte(`{"type":"object","properties":{"path":{"type":"string"},"content":{"type":"string"},"mode":{"enum":["append","replace"]},"meta":{"$ref":"#/$defs/m"}},"required":["path","content"],"$defs":{"m":{"type":"object","properties":{"owner":{"type":"string"}},"required":["owner"],"additionalProperties":false}}}`)
	tools[2].Input = []byte(`{"type":"object","properties":{"a":{"type":"number"},"b":{"type":["number","null"]}},"required":["a","b"]}`)
	tools[3].Input = []byte(`{"type":"object","properties":{"title":{"type":"string","minLength":3},"labels":{"type":"array","items":{"type":"string"}},"draft":{"type":"boolean"}},"required":["title"],"additionalProperties":false}`)
	tools[4].Input = []byte(`{"anyOf":[{"required":["a"]},{"required":["b"]}],"properties":{"a":{},"b":{}}}`)
	return tools
}

// checked bundles a script as the host does and checks it. Findings are one to a line.
func checked(t testing.TB, text string) []Finding {
	t.Helper()
	r := api.Transform(Wrap(text), api.TransformOptions{Loader: api.LoaderTS, Format: api.FormatESModule, Target: api.ES2023})
	if len(r.Errors) > 0 {
		t.Fatalf("%s\n%s", r.Errors[0].Text, text)
	}
	tools := checkTools()
	return Check(r.Code, func(line, column int) (agent.Pos, bool) { return agent.Pos{Line: line, Column: column}, true }, tools[:5], NewNames(tools))
}

func TestCheckFinds(t *testing.T) {
	for _, c := range []struct{ text, message, hint string }{
		{`return tools.fss.read_file({path:"a"})`, `there is no tool server "fss"`, "did you mean tools.fs?"},
		{`return tools.nothing_like_it.x({})`, `there is no tool server "nothing_like_it"`, "tools.search"},
		{`return tools.fs.readFile({path:"a"})`, `the tool server fs has no tool "readFile"`, "did you mean tools.fs.read_file?"},
		{`const { fss } = tools; return fss`, `no tool server "fss"`, ""},
		{`const { fs: { raed_file } } = tools; return raed_file`, `no tool "raed_file"`, "tools.fs.read_file"},
		{`const f = tools.fs; return f.red_file({path:"a"})`, `no tool "red_file"`, ""},
		{`const { fs } = tools; const { read_file: r } = fs; return r({})`, `fs.read_file needs path (string)`, ""},
		{`let r = tools?.fs?.["read_file"]; return r?.({})`, `fs.read_file needs path`, ""},
		{"return tools['fs'][`nope`]()", `no tool "nope"`, ""},
		{`return tools.my_server.get_sums({})`, `my-server has no tool "get_sums"`, "tools.my_server.get_sum"},
		{`return tools["my-server"]["get-sum"]({a:1})`, `my-server.get-sum needs b`, ""},
		{`return tools.fs.read_file()`, `fs.read_file needs path (string)`, ""},
		{`return tools.fs.read_file("a.txt")`, `fs.read_file takes one object, not a string`, "call it as tools.fs.read_file({ path: ... })"},
		{`return tools.fs.read_file(["a.txt"])`, `takes one object, not an array`, ""},
		{`return tools.fs.read_file({path:"a", hed: 1})`, `fs.read_file knows no hed`, "did you mean head?"},
		{`return tools.fs.read_file({path: 7})`, `fs.read_file: path must be a string, not a number`, ""},
		{`return tools.fs.read_file({path: x(), head: 1.5})`, `head must be an integer, not a number`, ""},
		{`return tools.fs.read_file({path: null})`, `path must be a string, not null`, ""},
		{`return tools.fs.write_file({path: p, content: c, mode: "apend"})`, `mode must be "append" or "replace", not "apend"`, "did you mean append?"},
		{`return tools.fs.write_file({path: p, content: c, meta: {}})`, `needs meta.owner`, ""},
		{`return tools.fs.write_file({path: p, content: c, meta: {ower: o}})`, `needs meta.owner`, ""},
		{`return tools.github.create_issue({title: t, labels: ["a", 7]})`, `labels[] must be a string, not a number`, ""},
		{`return tools.github.create_issue({title: t, draft: "yes"})`, `draft must be a boolean, not a string`, ""},
		{`return tools.github.create_issue({title: "x"})`, `github.create_issue: title: minLength`, ""},
		{`return tools.open.any({})`, `open.any: `, ""},
		{`return tools.call("fs.red_file", {path: "a"})`, `there is no tool "fs.red_file"`, "tools.fs.read_file"},
		{`return tools.call("fs.read_file", {pth: "a"})`, `needs path`, ""},
		{`return tools.change("x", [{tool: "fs.write_fil", args: {}}])`, `there is no tool "fs.write_fil"`, ""},
		{`return tools.change("x", [{tool: "fs.write_file", args: {path: "a"}}])`, `fs.write_file needs content`, ""},
		{`return tools.secret.drop({})`, `the tool secret.drop is not granted to this script`, "grant"},
		{`import { tools as t } from "skep"; return t.fss.x()`, `no tool server "fss"`, ""},
		{`import * as skep from "skep"; return skep.tools.fss.x()`, `no tool server "fss"`, ""},
		{`export default async function main() { return tools.fss.x() }`, `no tool server "fss"`, ""},
		{`async () => (await Promise.all([1].map(async i => tools.fss.x(i))))`, `no tool server "fss"`, ""},
		{`class A { x = tools.fss.y } return A`, `no tool server "fss"`, ""},
		{"return `${tools.fss.x()}`", `no tool server "fss"`, ""},
	} {
		found := checked(t, c.text)
		if len(found) == 0 || !strings.Contains(found[0].Message, c.message) || !strings.Contains(found[0].Hint, c.hint) || !found[0].Fatal || found[0].Pos.Line == 0 {
			t.Errorf("%s\n gives %+v\n want %q, %q", c.text, found, c.message, c.hint)
		}
	}
}

// TestCheckIsSilent holds scripts that are right, or of which nobody can say before they run.
func TestCheckIsSilent(t *testing.T) {
	for _, text := range []string{
		`return tools.fs.read_file({path:"a", head: 2})`,
		`return tools.my_server.get_sum({a: 1, b: null}) + tools["my-server"]["get-sum"]({a: -1.5, b: 2e300})`,
		`const path = "a"; return tools.fs.read_file({path})`,
		`const o = {}; return tools.fs.read_file({...o})`,
		`return tools.fs.read_file({["pa" + "th"]: "a"})`,
		`return tools.fs.read_file(args())`,
		`return tools.fs.read_file(...args())`,
		"return tools.fs.read_file({path: `a/${1}`})",
		`return tools.fs.write_file({path: "a", content: "b", mode: x ? "append" : "replace"})`,
		`return tools.fs[name]({})`,
		`return tools[server].x()`,
		`return tools.call(name, {})`,
		`return [tools.search("x"), tools.list(), tools.describe(["fs.*"]), tools.change("t", calls), tools.then, tools.toJSON]`,
		`function f(tools) { return tools.fss.x() } return f({})`,
		`const tools = { fss: { x() {} } }; return tools.fss.x()`,
		`let fs = tools.fs; fs = other; return fs.nope()`,
		`let fs; fs = tools.fs; return fs.nope()`,
		`function a() { const s = tools.fs; return s.read_file({path:"a"}) } function b() { const s = { nope() {} }; return s.nope() } return a(b())`,
		`try { return await tools.fs } catch (tools) { return tools.fss }`,
		`for (const tools of list) tools.fss.x(); return 1`,
		`const { fs = {} } = tools; return fs.nope`,
		`const [fs] = tools; return fs.nope`,
		`const { ...rest } = tools; return rest.nope`,
		`import { tools } from "./mine"; return tools.fss.x()`,
		`return other.tools.fss.x() + this.tools.fss.x()`,
		`return tools.open.any({ a: 1 }) + tools.open.any({ c: x, b: 1 })`,
		`return tools.github.create_issue({ title: "abc", labels: labels.map(l => l.name), draft: !0 })`,
		`const s = "tools.fss.x()"; return s // tools.fss.x()`,
		`return 1`, ``, `return /tools.fss.x/`,
		`for await (const x of y()) { await tools.fs.read_file({ path: x ?? "a" }) } class A { #p = 1; static { this.q = 2 } get p() { return this.#p } } return 10n`,
	} {
		if found := checked(t, text); len(found) > 0 {
			t.Errorf("%s\n gives %+v", text, found)
		}
	}
}

func TestCheckWarns(t *testing.T) {
	for text, message := range map[string]string{
		`return fetch("https://example.com")`:                                           "there is no fetch",
		`const fs = require("fs"); return fs`:                                           "there is no require",
		`return process.env.HOME`:                                                       "there is no process",
		`return new WebSocket("ws://x")`:                                                "there is no WebSocket",
		`return tools.fs.write_file({path: "a", content: "b", mod: 1})`:                 "knows no mod",
		`try { return await tools.weather.get({}) } catch { return "no weather here" }`: `no tool server "weather"`,
	} {
		found := checked(t, text)
		if len(found) != 1 || found[0].Fatal || !strings.Contains(found[0].Message, message) || found[0].Hint == "" {
			t.Errorf("%s gives %+v, want a warning %q", text, found, message)
		}
	}
}

func TestCheckPlaces(t *testing.T) {
	js := "import { tools } from \"skep\";\nasync function f() {\n  const s = \"😀é\"; await tools.fs.nope();\n}\nexport {\n  f as default\n};\n"
	tools := checkTools()
	var at []agent.Pos
	Check([]byte(js), func(line, column int) (agent.Pos, bool) {
		at = append(at, agent.Pos{Line: line, Column: column})
		return at[0], true
	}, tools, NewNames(tools))
	if len(at) != 1 || at[0] != (agent.Pos{Line: 3, Column: 35}) {
		t.Errorf("places %v", at)
	}
	if found := Check([]byte(js), func(int, int) (agent.Pos, bool) { return agent.Pos{}, false }, tools, NewNames(tools)); len(found) > 0 {
		t.Errorf("what is not the author's is spoken of: %v", found)
	}
}

// TestCheckBounds ends where scripts are large, deep or no scripts.
func TestCheckBounds(t *testing.T) {
	tools := checkTools()
	n := NewNames(tools)
	at := func(line, column int) (agent.Pos, bool) { return agent.Pos{Line: line, Column: column}, true }
	for _, js := range []string{
		strings.Repeat("(", 1<<20) + "tools", strings.Repeat("!", 1<<19) + "tools.fss", strings.Repeat("a=>", 1<<19) + "tools", "tools" + strings.Repeat("+a", 1<<19),
		"tools.fs.", "tools.fss.x(;", strings.Repeat("`${", 100_000) + "tools", strings.Repeat("x", 3<<20), "tools\x00\xff", "let x = <div/>; tools.fss",
	} {
		if found := Check([]byte(js), at, tools, n); len(found) > 0 {
			t.Errorf("%.20q gives %v", js, found)
		}
	}
	many := strings.Repeat("tools.fss.x();\n", 10_000)
	if found := Check([]byte(many), at, tools, n); len(found) != maxFindings {
		t.Errorf("%d findings", len(found))
	}
}

// TestCheckScripts is run over whole scripts, of which each line with a comment "want MESSAGE" has that finding and no other has one.
func TestCheckScripts(t *testing.T) {
	paths, err := filepath.Glob("testdata/check/*.ts")
	if err != nil || len(paths) == 0 {
		t.Fatal("no scripts", err)
	}
	tools := realTools(t)
	n := NewNames(tools)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		r := api.Transform(string(text), api.TransformOptions{Loader: api.LoaderTS, Format: api.FormatESModule})
		if len(r.Errors) > 0 {
			t.Fatal(path, r.Errors[0].Text)
		}
		lines := strings.Split(string(r.Code), "\n")
		var got, want []string
		for _, f := range Check(r.Code, func(line, column int) (agent.Pos, bool) { return agent.Pos{Line: line, Column: column}, true }, tools, n) {
			got = append(got, fmt.Sprintf("%s %s", strings.TrimSpace(lines[f.Pos.Line-1]), f.Message))
		}
		if len(got) != len(want) {
			t.Errorf("%s: %q", path, got)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	tools := many(b, 500)
	n := NewNames(tools)
	js := []byte("import { tools } from \"skep\";\nexport default async () => {\n" + strings.Repeat("const f = await tools.filesystem_0.read_text_file({ path: \"a\" });\n", 50) + "}")
	at := func(line, column int) (agent.Pos, bool) { return agent.Pos{Line: line, Column: column}, true }
	for b.Loop() {
		Check(js, at, tools, n)
	}
}

func FuzzCheck(f *testing.F) {
	for _, s := range []string{"tools.fss.x()", "export default async () => tools.fs.read_file({path:1})", "import {tools as t} from 'skep'; t.a.b", "export {a as default}", "export * from 'x'; tools", "const {fs:{x}}=tools", "import {", "export", "tools.call('a.b',{...x})", "`${tools.x}`"} {
		f.Add([]byte(s))
	}
	tools := checkTools()
	n := NewNames(tools)
	f.Fuzz(func(t *testing.T, js []byte) {
		Check(js, func(line, column int) (agent.Pos, bool) {
			if line < 1 || column < 1 || line > 1+strings.Count(string(js), "\n") {
				t.Errorf("place %d:%d", line, column)
			}
			return agent.Pos{Line: line, Column: column}, true
		}, tools, n)
	})
}
