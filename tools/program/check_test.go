package program

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/skep-dev/skep/agent"
)

const worked = `{
  "title": "collect what is left to do",
  "steps": [
    {"step": "list", "tool": "fs.search_files", "args": {"path": "${input.dir}", "pattern": "*.md"}, "as": "files", "limit": 100},
    {"step": "set", "name": "found", "value": []},
    {"step": "repeat", "over": "${files}", "as": "file", "steps": [
      {"step": "read", "tool": "fs.read_text_file", "args": {"path": "${file}"}, "as": "body"},
      {"step": "if_contains", "value": "${body}", "text": "TODO", "then": [
        {"step": "set", "name": "found", "append": "${file}"}
      ], "else": [{"step": "set", "name": "note", "value": "${index}: nothing"}]}
    ]},
    {"step": "repeat", "times": 2, "as": "n", "steps": [{"step": "call", "tool": "fs.stat", "args": {"n": "${n}"}}]},
    {"step": "diff", "before": "a", "after": {"b": "${found/0}"}, "name": "x", "as": "patch"},
    {"step": "change_set", "title": "write ${input.out}", "as": "written", "calls": [
      {"tool": "fs.write_file", "args": {"path": "${input.out}", "content": "costs $${5}"}, "undo": {"tool": "fs.delete", "args": {"path": "${input.out}"}}},
      {"tool": "fs.mark", "over": "${found}", "as": "f", "args": {"path": "${f}"}}
    ]},
    {"step": "return", "value": {"found": "${found}"}}
  ]
}`

func TestParse(t *testing.T) {
	p, err := Parse([]byte(worked))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"fs.delete", "fs.mark", "fs.read_text_file", "fs.search_files", "fs.stat", "fs.write_file"}, p.Tools()); d != "" {
		t.Error(d)
	}
	if p.Steps() != 12 {
		t.Errorf("%d steps", p.Steps())
	}
	in, err := p.Input(nil)
	if err != nil || !strings.Contains(string(in), `"steps":1000`) || !strings.Contains(string(in), `"input":null`) {
		t.Errorf("%s %v", in, err)
	}
}

// steps makes a program of steps.
func steps(s string) string { return `{"steps":[` + s + `]}` }

// wrongs are programs with one mistake each; schema says whether the schema finds it, too.
var wrongs = []struct {
	program, at, says string
	schema            bool
}{
	{`[]`, "its top", "expected an object", true},
	{`{}`, "/steps", "missing", true},
	{`{"steps":[{"step":"return"}],"stepz":1}`, "/stepz", "no such field", true},
	{`{"steps":[]}`, "/steps", "at least one step", true},
	{`{"steps":{}}`, "/steps", "expected a list of steps, not an object", true},
	{`{"title":7,"steps":[{"step":"return"}]}`, "/title", "expected a text", true},
	{steps(`"list"`), "/steps/0", "expected a step", true},
	{steps(`{"step":"lisst","tool":"a.b"}`), "/steps/0/step", "expected one of call, change_set, diff", true},
	{steps(`{"tool":"a.b"}`), "/steps/0/step", "expected one of", true},
	{steps(`{"step":"list"}`), "/steps/0/tool", "missing", true},
	{steps(`{"step":"read","tool":"b"}`), "/steps/0/tool", "SERVER.METHOD", true},
	{steps(`{"step":"read","tool":7}`), "/steps/0/tool", "SERVER.METHOD", true},
	{steps(`{"step":"read","tool":"fs.${input}"}`), "/steps/0/tool", "without references", true},
	{steps(`{"step":"read","tool":"a.b","args":[1]}`), "/steps/0/args", "expected an object, not a list", true},
	{steps(`{"step":"read","tool":"a.b","limit":1}`), "/steps/0/limit", "no such field", true},
	{steps(`{"step":"list","tool":"a.b","limit":0}`), "/steps/0/limit", "from 1 to 10000", true},
	{steps(`{"step":"list","tool":"a.b","limit":10001}`), "/steps/0/limit", "from 1 to 10000", true},
	{steps(`{"step":"list","tool":"a.b","limit":1.5}`), "/steps/0/limit", "whole number", true},
	{steps(`{"step":"list","tool":"a.b","as":"1a"}`), "/steps/0/as", "expected a name", true},
	{steps(`{"step":"list","tool":"a.b","as":"input"}`), "/steps/0/as", "name of something else", false},
	{steps(`{"step":"list","tool":"a.b","as":"x"},{"step":"read","tool":"a.b","as":"x"}`), "/steps/1/as", "name of something else", false},
	{steps(`{"step":"read","tool":"a.b","args":{"a/b":["${fiels}"]}}`), "/steps/0/args/a~1b/0", "nothing called fiels here; there are input", false},
	{steps(`{"step":"read","tool":"a.b","args":{"a":"${input"}}`), "/steps/0/args/a", "expected a }", false},
	{steps(`{"step":"return","value":"${input.a + 1}/"}`), "", "", false},
	{steps(`{"step":"return","value":"${input..a}"}`), "/steps/0/value", "expected a reference", false},
	{steps(`{"step":"return","value":"${input/a~2}"}`), "/steps/0/value", "expected a reference", false},
	{steps(`{"step":"return","value":"${ input }"}`), "/steps/0/value", "expected a reference", false},
	{steps(`{"step":"return"},{"step":"return"}`), "/steps/1", "no step can follow a return", false},
	{steps(`{"step":"diff","before":"a"}`), "/steps/0/after", "missing", true},
	{steps(`{"step":"diff","before":"a","after":"b","name":1}`), "/steps/0/name", "expected a text", true},
	{steps(`{"step":"set","name":"a"}`), "/steps/0", "either value or append", true},
	{steps(`{"step":"set","name":"a","value":1,"append":1}`), "/steps/0", "either value or append", true},
	{steps(`{"step":"set","name":"input","value":1}`), "/steps/0/name", "cannot be set", true},
	{steps(`{"step":"repeat","steps":[{"step":"return"}]}`), "/steps/0", "either over or times", true},
	{steps(`{"step":"repeat","times":1,"over":[],"steps":[{"step":"return"}]}`), "/steps/0", "either over or times", true},
	{steps(`{"step":"repeat","times":201,"steps":[{"step":"return"}]}`), "/steps/0/times", "from 0 to 200", true},
	{steps(`{"step":"repeat","times":-1,"steps":[{"step":"return"}]}`), "/steps/0/times", "from 0 to 200", true},
	{steps(`{"step":"repeat","over":"x${input}","steps":[{"step":"return"}]}`), "/steps/0/over", "one reference to a list", true},
	{steps(`{"step":"repeat","over":{},"steps":[{"step":"return"}]}`), "/steps/0/over", "not an object", true},
	{steps(`{"step":"repeat","times":1}`), "/steps/0/steps", "missing", true},
	{steps(`{"step":"repeat","times":1,"steps":[{"step":"set","name":"a","value":1}]},{"step":"return","value":"${a}"}`), "/steps/1/value", "only within the block", false},
	{steps(`{"step":"return","value":"${index}"}`), "/steps/0/value", "nothing called index", false},
	{steps(`{"step":"if_contains","value":"a","text":"","then":[{"step":"return"}]}`), "/steps/0/text", "not an empty one", true},
	{steps(`{"step":"if_contains","value":"a","text":"b"}`), "/steps/0/then", "missing", true},
	{steps(`{"step":"if_contains","value":"a","text":"b","then":[{"step":"return"}],"else":[]}`), "/steps/0/else", "at least one step", true},
	{steps(`{"step":"change_set","calls":[{"tool":"a.b"}]}`), "/steps/0/title", "missing", true},
	{steps(`{"step":"change_set","title":"","calls":[{"tool":"a.b"}]}`), "/steps/0/title", "expected a title", true},
	{steps(`{"step":"change_set","title":"t"}`), "/steps/0/calls", "missing", true},
	{steps(`{"step":"change_set","title":"t","calls":null}`), "/steps/0/calls", "1 to 256 calls", true},
	{steps(`{"step":"change_set","title":"t","calls":[]}`), "/steps/0/calls", "1 to 256 calls", true},
	{steps(`{"step":"change_set","title":"t","calls":["a.b"]}`), "/steps/0/calls/0", "which is an object", true},
	{steps(`{"step":"change_set","title":"t","calls":[{"tool":"a.b","as":"x"}]}`), "/steps/0/calls/0/as", "expected over beside it", true},
	{steps(`{"step":"change_set","title":"t","calls":[{"tool":"a.b","undo":"c"}]}`), "/steps/0/calls/0/undo", "which is an object", true},
	{steps(`{"step":"change_set","title":"t","calls":[{"tool":"a.b","undo":{"args":{}}}]}`), "/steps/0/calls/0/undo/tool", "missing", true},
	{steps(`{"step":"change_set","title":"t","as":"a","calls":[{"tool":"a.b","args":{"x":"${a}"}}]}`), "/steps/0/calls/0/args/x", "nothing called a", false},
}

func TestWrong(t *testing.T) {
	check := compiled(t)
	for _, w := range wrongs {
		if w.at == "" { // right, though it may not look so
			if _, err := Parse([]byte(w.program)); err != nil {
				t.Errorf("%s: %v", w.program, err)
			}
			continue
		}
		_, err := Parse([]byte(w.program))
		e := agent.AsError(err)
		if err == nil || e.Kind != agent.Invalid || e.Hint == "" || !strings.HasPrefix(e.Msg, "the program is not right at "+w.at+": ") || !strings.Contains(e.Msg, w.says) {
			t.Errorf("%s\n\tsays %v\n\twant %s: %s", w.program, err, w.at, w.says)
		}
		if got := check(w.program) != nil; got != w.schema {
			t.Errorf("%s\n\tthe schema finds it wrong: %v", w.program, got)
		}
	}
	if err := check(worked); err != nil {
		t.Error(err)
	}
	_, err := Parse([]byte(steps(`{"step":"x"},{"step":"read"},{"step":"read","tool":"a.b","as":""}`)))
	if got := strings.Split(agent.AsError(err).Msg, "\n"); len(got) != 4 || got[0] != "the program is not right at 3 places:" {
		t.Errorf("%q", got)
	}
}

func compiled(t testing.TB) func(string) error {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("program.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("program.json")
	if err != nil {
		t.Fatal(err)
	}
	return func(text string) error {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			return err
		}
		return s.Validate(v)
	}
}

func TestNotJSON(t *testing.T) {
	for _, tt := range []struct{ program, says string }{
		{``, "ends too early"}, {`{"steps":`, "ends too early"}, {`{"steps":[}`, "not valid JSON"}, {"{} {}", "something after it"}, {"{\"steps\":\"\xff\"}", "UTF-8"},
		{`{"steps":[{"step":"list","a/b":1,"a/b":2}]}`, "/steps/0/a~1b: this name is there twice"},
		{strings.Repeat(`[`, 1000) + strings.Repeat(`]`, 1000), "more than 64 deep"}, {`{"steps":"` + strings.Repeat("x", MaxBytes) + `"}`, "bytes, more than 262144"},
	} {
		if _, err := Parse([]byte(tt.program)); agent.KindOf(err) != agent.Invalid || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%.60q: %v, want %s", tt.program, err, tt.says)
		}
	}
	_, err := Parse([]byte("{\n \"steps\": [,]}"))
	if e := agent.AsError(err); e.Pos.Line != 2 {
		t.Errorf("%v at %v", err, e.Pos)
	}
}

// Each bound of what is written, at it and past it.
func TestWrittenBounds(t *testing.T) {
	nested := func(n int) string {
		inner := `{"step":"return"}`
		for range n - 1 {
			inner = `{"step":"repeat","times":1,"steps":[` + inner + `]}`
		}
		return steps(inner)
	}
	many := func(n int) string {
		return steps(strings.TrimSuffix(strings.Repeat(`{"step":"set","name":"a","value":1},`, n), ","))
	}
	calls := func(n int) string {
		return steps(`{"step":"change_set","title":"t","calls":[` + strings.TrimSuffix(strings.Repeat(`{"tool":"a.b"},`, n), ",") + `]}`)
	}
	items := func(n int) string {
		return steps(`{"step":"repeat","over":[` + strings.TrimSuffix(strings.Repeat(`1,`, n), ",") + `],"steps":[{"step":"return"}]}`)
	}
	full := `{"steps":[{"step":"return","value":"%s"}]}`
	sized := func(n int) string { return fmt.Sprintf(full, strings.Repeat("x", n-len(full)+2)) }
	for name, b := range map[string]struct {
		of   func(int) string
		most int
		says string
	}{
		"depth": {nested, MaxDepth, "/steps/0/steps/0/steps/0/steps/0/steps/0/steps/0/steps/0/steps: blocks are nested more than 8 deep"}, "steps": {many, MaxWritten, "/steps/500: the program has more than 500 steps"},
		"calls": {calls, MaxCalls, "/steps/0/calls: expected a list of 1 to 256 calls"}, "items": {items, MaxRounds, "/steps/0/over: the list has 201 items"}, "bytes": {sized, MaxBytes, "262145 bytes, more than 262144"},
	} {
		if _, err := Parse([]byte(b.of(b.most))); err != nil {
			t.Errorf("%s at the bound: %v", name, err)
		}
		if _, err := Parse([]byte(b.of(b.most + 1))); err == nil || !strings.Contains(err.Error(), b.says) {
			t.Errorf("%s past the bound: %v", name, err)
		}
	}
}

func TestCheckEffects(t *testing.T) {
	p, err := Parse([]byte(worked))
	if err != nil {
		t.Fatal(err)
	}
	effects := map[string]agent.Effect{"fs.write_file": agent.Modify, "fs.delete": agent.ModifyExecute, "fs.mark": agent.Execute, "fs.search_files": agent.Read, "fs.read_text_file": agent.Read, "fs.stat": agent.Read}
	of := func(tool string) (agent.Effect, error) {
		if e, ok := effects[tool]; ok {
			return e, nil
		}
		return 0, agent.Errorf(agent.NotFound, "there is no tool %q", tool)
	}
	if err := p.CheckEffects(of); err != nil {
		t.Error(err)
	}
	effects["fs.stat"], effects["fs.read_text_file"] = agent.Unclassified, agent.Modify
	err = p.CheckEffects(of)
	if e := agent.AsError(err); err == nil || e.Kind != agent.Invalid || !strings.Contains(e.Msg, "/steps/2/steps/0/tool: the effect of fs.read_text_file is modify") ||
		!strings.Contains(e.Msg, "/steps/3/steps/0/tool: the effect of fs.stat is unclassified") {
		t.Errorf("%v", err)
	}
	delete(effects, "fs.mark")
	if err := p.CheckEffects(of); agent.KindOf(err) != agent.Invalid || !strings.Contains(err.Error(), `/steps/5/calls/1/tool: there is no tool "fs.mark"`) {
		t.Error(err)
	}
}

// What Parse takes, the schema takes.
func FuzzParse(f *testing.F) {
	f.Add(worked)
	for _, w := range wrongs {
		f.Add(w.program)
	}
	check := compiled(f)
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse([]byte(text))
		if err != nil {
			if agent.KindOf(err) != agent.Invalid {
				t.Fatal(err)
			}
			return
		}
		if err := check(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if in, err := p.Input(json.RawMessage(`1`)); err != nil || !json.Valid(in) {
			t.Errorf("%s %v", in, err)
		}
	})
}
