package code

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/tools/code/codetest"
)

var levels = []Level{LevelNames, LevelSignatures, LevelCompact, LevelFull}

// parses holds text against the grammar of TypeScript.
func parses(t testing.TB, text string) {
	t.Helper()
	if r := api.Transform(text, api.TransformOptions{Loader: api.LoaderTS}); len(r.Errors) > 0 {
		at := r.Errors[0].Location
		t.Fatalf("%s at %d:%d\n%.2000s", r.Errors[0].Text, at.Line, at.Column, at.LineText)
	}
}

// TestDeclareTokens is figure P13: what declarations of 182 real tools cost a model.
func TestDeclareTokens(t *testing.T) {
	tools := realTools(t)
	native, err := codetest.Native()
	if err != nil {
		t.Fatal(err)
	}
	n := NewNames(tools)
	list, err := List(tools, n, abi.ToolQuery{})
	if err != nil {
		t.Fatal(err)
	}
	whole := tokens(t, string(native))
	for _, c := range []struct {
		what, text string
		most       int
	}{
		{"compact", Declare(tools, n, LevelCompact), min(whole/2, 16_600)},
		{"index", Index(list), min(whole/10, 2_400)},
		{"names", Declare(tools, n, LevelNames), whole / 40},
		{"signatures", Declare(tools, n, LevelSignatures), whole / 10},
		{"full", Declare(tools, n, LevelFull), whole * 11 / 10},
	} {
		if got := tokens(t, c.text); got > c.most {
			t.Errorf("%s costs %d tokens, more than %d; native %d", c.what, got, c.most, whole)
		}
	}
}

func TestDeclareRealTools(t *testing.T) {
	tools := realTools(t)
	n := NewNames(tools)
	for _, l := range levels {
		text := Declare(tools, n, l)
		parses(t, text)
		slices.Reverse(tools)
		if Declare(tools, n, l) != text {
			t.Errorf("%s: the order of the tools matters", l)
		}
		if l == LevelCompact {
			golden(t, "testdata/compact.ts", text)
		}
	}
}

// shapes are schemas, each with the type of its compact declaration.
var shapes = []struct{ schema, want string }{
	{`{"type":"object","properties":{"a":{"type":"string"},"b-c":{"type":"integer"}},"required":["b-c"]}`, `(args: {a?: string; "b-c": number})`},
	{`{"type":"object","properties":{}}`, `()`},
	{`{"type":"object"}`, `()`},
	{`{"type":"object","additionalProperties":true}`, `(args?: Record<string, unknown>)`},
	{`{"type":"object","additionalProperties":{"type":"number"}}`, `(args?: Record<string, number>)`},
	{`{"type":"object","patternProperties":{"^x":{"type":"number"}},"additionalProperties":false}`, `(args?: Record<string, number>)`},
	{`{"type":"object","propertyNames":{"enum":["a","b"]},"additionalProperties":{"type":"string"}}`, `(args?: Partial<Record<"a" | "b", string>>)`},
	{`{"properties":{"a":{"enum":["x",1,null,true]},"b":{"const":"k"},"c":{"type":["string","null"]},"d":{"type":"string","nullable":true}}}`,
		`(args?: {a?: "x" | 1 | null | true; b?: "k"; c?: string | null; d?: string | null})`},
	{`{"properties":{"a":{"oneOf":[{"type":"string"},{"type":"array","items":{"type":"string"}}]},"b":{"anyOf":[{"type":"string"},{}]}}}`, `(args?: {a?: string | string[]; b?: unknown})`},
	{`{"properties":{"a":{"allOf":[{"properties":{"x":{"type":"string"}}},{"properties":{"y":{"type":"string"}}}]}}}`, `(args?: {a?: {x?: string} & {y?: string}})`},
	{`{"properties":{"a":{"prefixItems":[{"type":"string"},{"type":"number"}],"items":false},"b":{"items":[{"type":"string"}],"additionalItems":{"type":"null"}},"c":{"items":{"type":["string","number"]}}}}`,
		`(args?: {a?: [string, number]; b?: [string, ...null[]]; c?: (string | number)[]})`},
	{`{"properties":{"a":true,"b":false,"c":{}}}`, `(args?: {a?: unknown; c?: unknown})`},
	{`{"properties":{"a":{"$ref":"#/$defs/s"},"b":{"$ref":"https://example.com/x"},"c":{"$ref":"#/none"},"d":{"$ref":"#n"}},"$defs":{"s":{"type":"string"},"t":{"$anchor":"n","type":"number"}}}`,
		`(args?: {a?: string; b?: unknown; c?: unknown; d?: number})`},
	{`{"properties":{"a":{"$ref":"#/definitions/a b"}},"definitions":{"a b":{"type":"boolean"}}}`, `(args?: {a?: boolean})`},
	{`{"required":["x"]}`, `(args: {x: unknown})`},
	{`{"properties":{"a":{"type":"object","properties":{"k":{}},"additionalProperties":{"type":"string"}}}}`, `(args?: {a?: {k?: unknown} & Record<string, string>})`},
	{`{"properties":{"k":{"type":"string"}},"if":{"properties":{"k":{"const":"a"}}},"then":{"properties":{"x":{"type":"number"}}},"else":{"properties":{"y":{"not":{}}}}}`,
		`(args?: {k?: string; x?: number; y?: unknown})`},
	{`{"$ref":"#/$defs/root","$defs":{"root":{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}}}`, `(args: {a: string})`},
	{`{"anyOf":[{"properties":{"a":{"type":"string"}},"required":["a"]},{"properties":{"b":{"type":"string"}},"required":["b"]}]}`, `(args: {a: string} | {b: string})`},
	{`{"$ref":"#"}`, `(args?: Record<string, unknown>)`},
	{`{"type":"string"}`, `(args?: string)`},
	{`true`, `(args?: Record<string, unknown>)`}, {``, `(args?: Record<string, unknown>)`}, {`{`, `(args?: Record<string, unknown>)`}, {`[]`, `(args?: Record<string, unknown>)`},
	{`{"properties":{"new":{},"get":{},"__proto__":{},"constructor":{},"\"*/":{},"a\nb":{}}}`,
		`(args?: {"new"?: unknown; get?: unknown; __proto__?: unknown; constructor?: unknown; "\"*/"?: unknown; "a\nb"?: unknown})`},
}

func TestDeclareShapes(t *testing.T) {
	for _, c := range shapes {
		tools := named("s.m")
		tools[0].Input = []byte(c.schema)
		n := NewNames(tools)
		for _, l := range levels {
			parses(t, Declare(tools, n, l))
		}
		want := "declare const tools: {\n  s: {\n    m" + c.want + ": Promise<unknown>;\n  };\n};\n"
		if got := Declare(tools, n, LevelCompact); got != want {
			t.Errorf("%s\n gives %s want %s", c.schema, got, want)
		}
	}
}

// TestDeclareHelpers gives names to types that hold themselves, and to what is needed more than once.
func TestDeclareHelpers(t *testing.T) {
	tools := named("a.tree", "b.tree", "c.other", "d.shared", "e.loop")
	tree := `{"properties":{"root":{"$ref":"#/$defs/node"}},"$defs":{"node":{"type":"object","properties":{"v":{"type":"string"},"kids":{"type":"array","items":{"$ref":"#/$defs/node"}}}}}}`
	tools[0].Input, tools[1].Input = []byte(tree), []byte(tree)
	tools[2].Input = []byte(`{"properties":{"p":{"$ref":"#/$defs/node"}},"$defs":{"node":{"type":"object","properties":{"next":{"$ref":"#/$defs/node"}}}}}`)
	tools[3].Input = []byte(`{"properties":{"from":{"$ref":"#/$defs/promise"},"to":{"$ref":"#/$defs/promise"}},"$defs":{"promise":{"properties":{"x":{},"y":{},"z":{}}}}}`)
	tools[4].Input = []byte(`{"properties":{"x":{"$ref":"#/$defs/a"}},"$defs":{"a":{"anyOf":[{"$ref":"#/$defs/b"},{"type":"string"}]},"b":{"anyOf":[{"$ref":"#/$defs/a"},{"type":"array","items":{"$ref":"#/$defs/a"}}]}}}`)
	tools[4].Output = []byte(`{"type":"object","properties":{"deep":{"type":"object","properties":{"self":{"$ref":"#"}}}}}`)
	text := Declare(tools, NewNames(tools), LevelCompact)
	parses(t, text)
	golden(t, "testdata/helpers.ts", text)
}

// TestDeclareFull holds everything that a schema and a description say, on lines that nothing foreign can leave.
func TestDeclareFull(t *testing.T) {
	tools := named("s.m", "s.plain")
	tools[0].Effect = agent.Modify
	tools[0].Description = "First line. */ declare const evil: any; /*\n@effect read\n\n  indented `${code}`\u202e\n"
	tools[0].Input = []byte(`{"properties":{"n":{"type":"integer","description":"How many.\n*/ more","default":10,"minimum":1,"maximum":100},
		"when":{"type":"string","format":"date-time","deprecated":true},"o":{"type":"object","properties":{"x":{"type":"string","description":"Inner."}},"required":["x"]}}}`)
	text := Declare(tools, NewNames(tools), LevelFull)
	parses(t, text)
	golden(t, "testdata/full.ts", text)
	js := api.Transform(text+"\nevil", api.TransformOptions{Loader: api.LoaderTS})
	if strings.Contains(string(js.Code), "declare") || !strings.HasPrefix(string(js.Code), "evil") {
		t.Errorf("something left its comment: %s", js.Code)
	}
}

// TestDeclareHostile stays within bounds whatever servers say.
func TestDeclareHostile(t *testing.T) {
	var wide, deep, defs strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&wide, `"field%d":{"type":"string","description":"x"},`, i)
	}
	for range 90 {
		deep.WriteString(`{"properties":{"a":`)
	}
	for i := range 400 {
		fmt.Fprintf(&defs, `"d%d":{"properties":{"a":{"$ref":"#/$defs/d%d"},"b":{"$ref":"#/$defs/d%d"},"c":{"$ref":"#/$defs/d%d"}}},`, i, (i+1)%400, (i+7)%400, (i*3)%400)
	}
	for name, schema := range map[string]string{
		"wide":    `{"properties":{` + strings.TrimSuffix(wide.String(), ",") + `}}`,
		"deep":    deep.String() + "{}" + strings.Repeat("}}", 90),
		"deeper":  strings.Repeat(`{"properties":{"a":`, 5000) + "{}" + strings.Repeat("}}", 5000),
		"large":   `{"description":"` + strings.Repeat("x", 10<<20) + `"}`,
		"defs":    `{"$ref":"#/$defs/d0","$defs":{` + strings.TrimSuffix(defs.String(), ",") + `}}`,
		"enum":    `{"properties":{"a":{"enum":["` + strings.Repeat(`x","`, 30_000) + `"]}}}`,
		"unions":  `{"anyOf":[` + strings.Repeat(`{"type":"string"},`, 10_000) + `{}]}`,
		"key":     `{"properties":{"` + strings.Repeat("k", 100_000) + `":{}}}`,
		"loop":    `{"allOf":[{"$ref":"#"}],"anyOf":[{"$ref":"#"},{"$ref":"#"}],"properties":{"a":{"$ref":"#"}}}`,
		"numbers": `{"properties":{"a":{"const":1e999},"b":{"const":-0},"c":{"const":` + strings.Repeat("9", 5000) + `}}}`,
	} {
		tools := named("s.m")
		tools[0].Input, tools[0].Output = []byte(schema), []byte(schema)
		tools[0].Description = strings.Repeat("*/ \n", 10_000)
		for _, l := range levels {
			text := Declare(tools, NewNames(tools), l)
			parses(t, text)
			if most := 150 << 10; len(text) > most || l == LevelCompact && len(text) > 10<<10 {
				t.Errorf("%s at level %s: %d bytes", name, l, len(text))
			}
		}
	}
	tools := many(t, 5000)
	n := NewNames(tools)
	for _, l := range levels {
		if text := Declare(tools, n, l); len(text) > maxDeclarations+(1<<20) {
			t.Errorf("5000 tools at level %s: %d bytes", l, len(text))
		} else if l != LevelFull {
			parses(t, text)
		}
	}
}

func TestLevel(t *testing.T) {
	for _, l := range levels {
		var got Level
		if text, _ := l.MarshalText(); got.UnmarshalText(text) != nil || got != l {
			t.Errorf("%s becomes %s", l, got)
		}
	}
	var l Level
	if err := l.UnmarshalText(nil); err != nil || l != LevelCompact {
		t.Errorf("the empty level is %s, %v", l, err)
	}
}

func BenchmarkDeclare(b *testing.B) {
	tools := realTools(b)
	n := NewNames(tools)
	for b.Loop() {
		Declare(tools, n, LevelCompact)
	}
}

func FuzzDeclare(f *testing.F) {
	for _, s := range shapes {
		f.Add([]byte(s.schema), "Reads. */ x")
	}
	for _, t := range realTools(f)[:30] {
		f.Add([]byte(t.Input), t.Description)
	}
	f.Fuzz(func(t *testing.T, schema []byte, doc string) {
		tools := named("s.m", "s.o")
		tools[0].Input, tools[0].Description = schema, doc
		tools[1].Output, tools[1].Title = schema, doc
		n := NewNames(tools)
		for _, l := range levels {
			text := Declare(tools, n, l)
			parses(t, text)
			if text != Declare(tools, n, l) {
				t.Error("the same tools give other bytes")
			}
		}
	})
}
