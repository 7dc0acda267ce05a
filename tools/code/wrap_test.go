package code

import (
	"strings"
	"testing"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/skep-dev/skep/agent"
)

func TestWrap(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"a module", "import { a } from './a';\nexport default async () => a;", ""},
		{"a module that names its default", "async function f() {}\nexport { f as default };", ""},
		{"an arrow", "async () => { return 1 }", beforeFunc},
		{"an arrow with a semicolon", "async () => {\n  return 1\n};\n", beforeFunc},
		{"an arrow of types", "async (input: { a: string }, ctx): Promise<{ b: number }> => { return { b: 1 } }", beforeFunc},
		{"an arrow of type parameters", "<T,>(x: T) => x", beforeFunc},
		{"an arrow of an expression", "input => input.a + 1", beforeFunc},
		{"an arrow of a chain", "() => tools.a.b({})\n  .then(x => x.y)", beforeFunc},
		{"an arrow in brackets", "(async () => { return 1 })", beforeFunc},
		{"a function", "async function main(input) { return { a: `}${1}` } }", beforeFunc},
		{"a function with a type", "function main(input: any): Promise<{ a: 1 }> { return x }", beforeFunc},
		{"a generator is a function too", "function* g() {}", beforeFunc},
		{"a function with a comment before", "// what it does\n/* and */ async () => 1 // so", beforeFunc},
		{"a called function", "(async () => { return 1 })()", beforeCall},
		{"a called function with an end", "(async () => {\n  return 1;\n})();\n", beforeCall},
		{"a called function that is awaited", "await (async () => 1)()", beforeCall},
		{"a called function and more", "await (async () => 1)().x", beforeBody},
		{"statements", "const a = await tools.a.b({});\nreturn a;", beforeBody},
		{"a function and its call", "async function main() { return 1 }\nreturn await main()", beforeBody},
		{"an arrow and more", "const f = () => 1\nreturn f()", beforeBody},
		{"an arrow, then a line", "() => 1\nreturn 2", beforeBody},
		{"an arrow, then a call", "() => f()\ng()", beforeBody},
		{"one expression", "await tools.a.b({})", beforeBody},
		{"a return", "return 1", beforeBody},
		{"a block", "{ const a = 1; return a }", beforeBody},
		{"a comment at the end", "return 1 // so", beforeBody},
		{"a regular expression", "return /[/`}]\"/.test('a') ? 1 / 2 / 3 : 0", beforeBody},
		{"words like export", "const o = { export: 1 }; return o.export", beforeBody},
		{"export in a string", "return 'export default 1' + `export default ${'}'}`", beforeBody},
		{"nothing", "", ""},
		{"a comment only", "// nothing", ""},
		{"imports only", "import 'x'", ""},
		{"an import, then statements", "import { tools } from \"skep\";\nconst x = 1; return x", beforeBody},
		{"an import, then an arrow", "import { tools } from \"skep\";\n\nasync () => 1", beforeFunc},
		{"a dynamic import", "const m = await import('./a'); return m", beforeBody},
		{"an async call", "async(1)", beforeBody},
		{"types", "type A = { a: string };\ninterface B { b: A }\nconst x: B = { b: { a: 'x' } };\nreturn x", beforeBody},
	} {
		got := Wrap(c.text)
		if c.want == "" {
			if got != c.text {
				t.Errorf("%s: %q became %q", c.name, c.text, got)
			}
		} else if !strings.Contains(got, c.want) {
			t.Errorf("%s: %q became %q, want %q in it", c.name, c.text, got, c.want)
		}
		if c.want != "" || strings.Contains(c.text, "default") {
			r := api.Transform(got, api.TransformOptions{Loader: api.LoaderTS, Format: api.FormatESModule})
			if len(r.Errors) > 0 {
				t.Errorf("%s: %q: %s", c.name, got, r.Errors[0].Text)
			}
		}
		text, at := Unwrap(got)
		if text != c.text {
			t.Errorf("%s: unwrapped %q, want %q", c.name, text, c.text)
		}
		// The place of every line's last byte is found again.
		for i, l := range strings.Split(got, "\n") {
			if orig := strings.Split(c.text, "\n"); i < len(orig) && orig[i] != "" && strings.HasSuffix(l, orig[i][len(orig[i])-1:]) {
				if p := at(agent.Pos{Line: i + 1, Column: len(l)}); p.Line != i+1 || p.Column != len(orig[i]) {
					t.Errorf("%s: the end of line %d is %v, want %d", c.name, i+1, p, len(orig[i]))
				}
			}
		}
	}
}

func TestWrapKeepsLines(t *testing.T) {
	const text = "const a = 1;\nimport { x } from './x';\nimport {\n  y\n} from \"./y\" with { type: 'json' }\nreturn a + x + y;\n"
	got := Wrap(text)
	if strings.Split(got, "\n")[5] != "return a + x + y;" {
		t.Errorf("lines moved:\n%s", got)
	}
	if !strings.HasPrefix(got, mark+"import { x } from './x' ; ; import { y } from \"./y\"") {
		t.Errorf("imports did not go first:\n%s", got)
	}
	if r := api.Transform(got, api.TransformOptions{Loader: api.LoaderTS}); len(r.Errors) > 0 {
		t.Errorf("%s\n%s", r.Errors[0].Text, got)
	}
	if got := Wrap("```ts\nreturn 1\n```\n"); got != "\n"+mark+beforeBody+"return 1"+behindBody {
		t.Errorf("a fence: %q", got)
	}
	if got := Wrap("```ts\nreturn 1"); !strings.Contains(got, "```") {
		t.Errorf("half a fence: %q", got)
	}
}

func FuzzWrap(f *testing.F) {
	for _, s := range []string{"return 1", "async () => 1", "(async()=>{})()", "import 'a'\nx", "`${`${1}`}`", "/[/]/", "export default 1", "function f(): {a:1} {}", "```\nx\n```", "((((", "a =>\n{", "<T>(", "import {"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := Wrap(text)
		Unwrap(got)
		if plain := api.Transform(text, api.TransformOptions{Loader: api.LoaderTS, Format: api.FormatESModule}); len(plain.Errors) == 0 && len(text) < 4<<10 {
			// What is a module or a script already stays one that parses.
			if r := api.Transform(got, api.TransformOptions{Loader: api.LoaderTS, Format: api.FormatESModule}); len(r.Errors) > 0 && strings.Contains(got, mark) && !strings.ContainsAny(text, "/<>@#\\") {
				t.Logf("%q became %q: %s", text, got, r.Errors[0].Text)
			}
		}
	})
}
