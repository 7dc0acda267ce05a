package program_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
	"github.com/skep-dev/skep/host/script"
	"github.com/skep-dev/skep/host/wasi"
	"github.com/skep-dev/skep/tools/program"
)

// interpreter is the script that runs programs, in a real cell.
var interpreter *script.Agent

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(func() int {
		if flag.Lookup("test.fuzz").Value.String() != "" && flag.Lookup("test.run").Value.String() == "^$" {
			return m.Run() // nothing that is fuzzed runs a program, and under the fuzzer's coverage an engine takes long to make
		}
		ctx := context.Background()
		cells, err := cell.New(ctx, append(script.Funcs(), wasi.Funcs()...), nil)
		if err != nil {
			panic(err)
		}
		defer cells.Close(ctx)
		engine, err := script.New(ctx, cells, nil)
		if err != nil {
			panic(err)
		}
		defer engine.Close(ctx)
		interpreter, err = engine.Load(ctx, agent.Source{Kind: agent.Script, Main: "main.ts", Files: map[string][]byte{
			"main.ts":   []byte(`import { tools } from "skep"; import run from "./runner.ts"; (globalThis as any).tools = tools; export default run;`),
			"runner.ts": []byte(program.Runner()),
		}}, nil)
		if err != nil {
			panic(err)
		}
		defer interpreter.Close()
		return m.Run()
	}())
}

// world is what a program under test calls: files by name, and a record of what was done to them.
type world struct {
	mu      sync.Mutex
	files   map[string]string
	effects map[string]string
	did     []string
	titles  []string
	deny    bool
	results map[string]string // by tool: what it returns in place of what it does
}

func newWorld(files map[string]string) *world {
	return &world{files: files, effects: map[string]string{
		"fs.list": "read", "fs.read": "read", "fs.write": "modify", "fs.delete": "modify_execute", "fs.any": "read",
	}, results: map[string]string{}}
}

func (w *world) calls(_ context.Context, name string, in []byte) ([]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch name {
	case abi.CallToolList:
		var out abi.Tools
		for tool, effect := range w.effects {
			out.Tools = append(out.Tools, abi.ToolInfo{Name: tool, Effect: effect})
		}
		return json.Marshal(out)
	case abi.CallToolChange:
		var c abi.ToolChange
		if err := json.Unmarshal(in, &c); err != nil {
			return nil, err
		}
		undos := 0
		for _, one := range c.Calls {
			if one.Undo {
				undos++
			}
		}
		w.titles = append(w.titles, fmt.Sprintf("%s (%d, %d undos)", c.Title, len(c.Calls)-undos, undos))
		if w.deny {
			return nil, agent.Errorf(agent.Denied, "a person refused it: not today")
		}
		return nil, nil
	case abi.CallTool:
		var c abi.ToolCall
		if err := json.Unmarshal(in, &c); err != nil {
			return nil, err
		}
		v, err := w.call(c.Tool, []byte(c.Args))
		if err != nil {
			return nil, err
		}
		return json.Marshal(map[string]any{"value": v})
	}
	return nil, agent.Errorf(agent.Denied, "no %s here", name)
}

func (w *world) call(tool string, in []byte) (any, error) {
	var args struct{ Path, Content string }
	if err := json.Unmarshal(in, &args); err != nil {
		return nil, err
	}
	w.did = append(w.did, tool+" "+string(in))
	if v, ok := w.results[tool]; ok {
		return json.RawMessage(v), nil
	}
	switch tool {
	case "fs.list":
		names := []string{}
		for name := range w.files {
			names = append(names, name)
		}
		slices.Sort(names)
		return map[string]any{"content": strings.Join(names, "\n")}, nil
	case "fs.read":
		text, ok := w.files[args.Path]
		if !ok {
			return nil, agent.Errorf(agent.NotFound, "there is no file %s", args.Path)
		}
		return map[string]any{"content": text}, nil
	case "fs.write":
		if strings.HasPrefix(args.Path, "/full/") {
			return nil, agent.Errorf(agent.Failed, "the disk is full")
		}
		w.files[args.Path] = args.Content
		return "written", nil
	case "fs.delete":
		delete(w.files, args.Path)
		return nil, nil
	}
	return nil, nil
}

func (w *world) run(t testing.TB, text, input string) (string, error) {
	t.Helper()
	p, err := program.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	in, err := p.Input(json.RawMessage(input))
	if err != nil {
		t.Fatal(err)
	}
	out, _, err := interpreter.Call(t.Context(), script.Call{Function: "default", Input: agent.JSON(in), Calls: w.calls, Limits: agent.Limits{Input: 64 << 20}})
	if err == nil && !out.IsJSON() {
		return strconv.Quote(string(out.Body)), nil
	}
	return string(out.Body), err
}

func steps(s string) string { return `{"steps":[` + s + `]}` }

const todos = `{"steps":[
  {"step":"list","tool":"fs.list","as":"files"},
  {"step":"set","name":"found","value":[]},
  {"step":"set","name":"text","value":""},
  {"step":"repeat","over":"${files}","as":"file","steps":[
    {"step":"read","tool":"fs.read","args":{"path":"${file}"},"as":"body"},
    {"step":"if_contains","value":"${body}","text":"${input.word}","then":[{"step":"set","name":"found","append":"${index}: ${file}"},{"step":"set","name":"text","value":"${text}- ${file}\n"}]}
  ]},
  {"step":"change_set","title":"write ${input.out}","as":"done","calls":[
    {"tool":"fs.write","args":{"path":"${input.out}","content":"${text}"},"undo":{"tool":"fs.delete","args":{"path":"${input.out}"}}},
    {"tool":"fs.write","over":"${files}","as":"f","args":{"path":"${input.copies}${f}","content":"x"},"undo":{"tool":"fs.delete","args":{"path":"${input.copies}${f}"}}}
  ]},
  {"step":"return","value":{"found":"${found}","done":"${done}","first":"${found.0}"}}
]}`

func TestRun(t *testing.T) {
	w := newWorld(map[string]string{"/a": "TODO: tea", "/b": "done", "/c": "TODO: cake"})
	out, err := w.run(t, todos, `{"word":"TODO","out":"/list","copies":"/copy"}`)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"found":["0: /a","2: /c"],"done":["written","written","written","written"],"first":"0: /a"}`; out != want {
		t.Errorf("%s, want %s", out, want)
	}
	if w.files["/list"] != "- /a\n- /c\n" || w.files["/copy/b"] != "x" || len(w.files) != 7 {
		t.Errorf("%v", w.files)
	}
	if d := cmp.Diff([]string{"write /list (4, 4 undos)"}, w.titles); d != "" {
		t.Error(d)
	}
}

func TestChangeSetIsTakenBack(t *testing.T) {
	w := newWorld(map[string]string{"/a": "TODO", "/b": ""})
	_, err := w.run(t, todos, `{"word":"TODO","out":"/list","copies":"/full"}`)
	e := agent.AsError(err)
	if err == nil || !strings.Contains(e.Msg, "/steps/4: ") || !strings.Contains(e.Msg, "the disk is full") || !strings.Contains(e.Msg, "was undone") {
		t.Errorf("%v", err)
	}
	if len(w.files) != 2 {
		t.Errorf("%v", w.files)
	}
	if last := w.did[len(w.did)-1]; !strings.HasPrefix(last, `fs.delete {"path":"/list"}`) {
		t.Error(last)
	}
}

func TestChangeSetIsRefused(t *testing.T) {
	w := newWorld(map[string]string{"/a": "TODO"})
	w.deny = true
	_, err := w.run(t, todos, `{"word":"TODO","out":"/list","copies":"/copy"}`)
	if e := agent.AsError(err); err == nil || !strings.Contains(e.Msg, "/steps/4: ") || !strings.Contains(e.Msg, "not today") {
		t.Error(err)
	}
	if len(w.files) != 1 || slices.ContainsFunc(w.did, func(s string) bool { return strings.HasPrefix(s, "fs.write") }) {
		t.Errorf("%v %v", w.files, w.did)
	}
}

func TestNothingRunsBeforeEffectsAreKnown(t *testing.T) {
	for effect, says := range map[string]string{"modify": "/steps/3/steps/0: the effect of fs.read is modify", "unclassified": "the effect of fs.read is unclassified"} {
		w := newWorld(nil)
		w.effects["fs.read"] = effect
		if _, err := w.run(t, todos, `{}`); err == nil || !strings.Contains(err.Error(), says) || len(w.did) > 0 {
			t.Errorf("%v, did %v", err, w.did)
		}
	}
	w := newWorld(nil)
	delete(w.effects, "fs.delete")
	if _, err := w.run(t, todos, `{}`); err == nil || !strings.Contains(err.Error(), `no tool "fs.delete" that this agent is granted`) || len(w.did) > 0 {
		t.Errorf("%v, did %v", err, w.did)
	}
}

func TestErrorsNameTheStep(t *testing.T) {
	for _, tt := range []struct{ program, input, says string }{
		{steps(`{"step":"if_contains","value":"a","text":"a","then":[{"step":"read","tool":"fs.read","args":{"path":"/no"}}]}`), `{}`, "/steps/0/then/0: there is no file /no"},
		{steps(`{"step":"return","value":{"x":["${input.a.b}"]}}`), `{"a":{"c":1,"d":2}}`, "/steps/0/value/x/0: ${input.a.b} leads nowhere: there is no \"b\" in an object with c, d"},
		{steps(`{"step":"return","value":"${input.3}"}`), `[1]`, "there is no \"3\" in a list of 1"},
		{steps(`{"step":"return","value":"${input.01}"}`), `[1,2]`, "leads nowhere"},
		{steps(`{"step":"return","value":"${input.constructor}"}`), `{}`, "leads nowhere"},
		{steps(`{"step":"return","value":"${input.length}"}`), `"text"`, "there is no \"length\" in a string"},
		{steps(`{"step":"repeat","over":"${input}","steps":[{"step":"return"}]}`), `{}`, "/steps/0/over: this is an object, and must be a list"},
		{steps(`{"step":"set","name":"a","value":1},{"step":"set","name":"a","append":1}`), `0`, "/steps/1: a is a number, to which nothing can be appended"},
		{steps(`{"step":"change_set","title":"${input}","calls":[{"tool":"fs.write"}]}`), `""`, "/steps/0/title: the title has 0 characters"},
		{steps(`{"step":"list","tool":"fs.any"}`), `0`, "/steps/0: the result is an object with a, b, in which no list can be told"},
	} {
		w := newWorld(map[string]string{})
		w.results["fs.any"] = `{"a":1,"b":{}}`
		if _, err := w.run(t, tt.program, tt.input); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want %s", tt.program, err, tt.says)
		}
	}
}

func TestTemplates(t *testing.T) {
	input := `{"a":{"b":[10,"x",null,true]},"s/t":{"~":1,"u.v":"w"},"text":"${input}"}`
	for template, want := range map[string]string{
		`"plain"`: `"plain"`, `""`: `""`, `"${input.a.b.0}"`: `10`, `"${input/a/b/1}"`: `"x"`, `"${input/s~1t/~0}"`: `1`, `"${input/s~1t/u.v}"`: `"w"`,
		`"n=${input.a.b.0}, ${input.a.b.2} ${input.a.b.3}"`: `"n=10, null true"`, `"${input.a.b}"`: `[10,"x",null,true]`, `"x${input.a.b}"`: `"x[10,\"x\",null,true]"`,
		`"$${input}"`: `"${input}"`, `"$$${input.a.b.0}"`: `"$${input.a.b.0}"`, `"$ {input} $"`: `"$ {input} $"`, `"${input.text}"`: `"${input}"`, `"${input.text}!"`: `"${input}!"`,
		`{"${input}":["${input.a.b.0}"]}`: `{"${input}":[10]}`, `{"__proto__":"${input.a.b.0}"}`: `{"__proto__":10}`, `1.50`: `1.5`, `null`: `null`,
	} {
		if got, err := newWorld(nil).run(t, steps(`{"step":"return","value":`+template+`}`), input); err != nil || got != want {
			t.Errorf("%s: %s %v, want %s", template, got, err, want)
		}
	}
}

func TestShapes(t *testing.T) {
	for _, tt := range []struct{ step, result, want string }{
		{"list", `[1,2]`, `[1,2]`}, {"list", `"a\r\nb\n\n"`, `["a","b"]`}, {"list", `{"items":[1],"next":"x"}`, `[1]`}, {"list", `{"content":"a\nb"}`, `["a","b"]`},
		{"list", `{"result":{"items":[1,2],"n":2}}`, `[1,2]`}, {"list", `null`, `[]`}, {"list", `""`, `[]`}, {"search", `["a"]`, `["a"]`},
		{"read", `"a\n"`, `"a\n"`}, {"read", `{"content":"a"}`, `"a"`}, {"read", `{"content":"a","more":1}`, `"a"`}, {"read", `{"path":"p","text":"a"}`, `"a"`}, {"read", `{"path":"p","size":1}`, `{"path":"p","size":1}`}, {"read", `[1]`, `[1]`}, {"read", `7`, `7`},
		{"call", `{"content":"a"}`, `{"content":"a"}`},
	} {
		w := newWorld(nil)
		w.results["fs.any"] = tt.result
		got, err := w.run(t, steps(`{"step":"`+tt.step+`","tool":"fs.any","as":"r"},{"step":"return","value":"${r}"}`), `null`)
		if err != nil || got != tt.want {
			t.Errorf("%s of %s: %s %v, want %s", tt.step, tt.result, got, err, tt.want)
		}
	}
	w := newWorld(nil)
	w.results["fs.any"] = `[1,2,3]`
	if got, err := w.run(t, steps(`{"step":"list","tool":"fs.any","as":"r","limit":2},{"step":"return","value":"${r}"}`), `null`); err != nil || got != `[1,2]` {
		t.Errorf("%s %v", got, err)
	}
	if got, err := w.run(t, steps(`{"step":"change_set","title":"t","as":"r","calls":[{"tool":"fs.write","over":[]}]},{"step":"return","value":"${r}"}`), `null`); err != nil || got != `[]` || len(w.titles) > 0 {
		t.Errorf("%s %v %v", got, err, w.titles)
	}
	if got, err := w.run(t, steps(`{"step":"repeat","times":3,"as":"n","steps":[{"step":"if_contains","value":"${n}","text":"1","then":[{"step":"return","value":"at ${n}"}],"else":[{"step":"call","tool":"fs.any"}]}]},{"step":"call","tool":"fs.read"}`), `null`); err != nil || got != `"at 1"` {
		t.Errorf("%s %v", got, err)
	}
}

// Each bound of what runs, at it and past it.
func TestRunBounds(t *testing.T) {
	list := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat("1,", n), ",") + "]" }
	text := func(n int) string { return strconv.Quote(strings.Repeat("x", n)) }
	lines := func(n int) string { return strconv.Quote(strings.Repeat("x\n", n-1) + "y\n") }
	sets := strings.TrimSuffix(strings.Repeat(`{"step":"set","name":"a","value":1},`, 9), ",")
	for name, b := range map[string]struct {
		program string
		at      string // input at the bound
		past    string
		says    string
	}{
		"steps": {steps(`{"step":"repeat","over":"${input}","steps":[` + sets + `]}`), list(111), list(112), "/steps/0/steps/0: the program has run 1000 steps"},
		"rounds": {steps(`{"step":"repeat","over":"${input}","steps":[{"step":"set","name":"a","value":1}]}`), list(program.MaxRounds), list(program.MaxRounds + 1),
			"/steps/0/over: the list has 201 items, and a repeat has at most 200 rounds"},
		"calls": {steps(`{"step":"change_set","title":"t","calls":[{"tool":"fs.write","over":"${input}","args":{"path":"/a","content":"${index}."}}]}`), list(program.MaxCalls), list(program.MaxCalls + 1),
			"/steps/0: the change set has more than 256 calls"},
		"text":   {steps(`{"step":"set","name":"a","value":"${input}${input}"}`), text(program.MaxText / 2), text(program.MaxText/2 + 1), "/steps/0/value: the text has 1048578 characters, more than 1048576"},
		"output": {steps(`{"step":"return","value":"${input}"}`), text(program.MaxOutput - 2), text(program.MaxOutput - 1), "/steps/0: the result has 262145 bytes, more than 262144"},
		"title":  {steps(`{"step":"change_set","title":"${input}","calls":[{"tool":"fs.write"}]}`), text(500), text(501), "/steps/0/title: the title has 501 characters"},
		"lines":  {steps(`{"step":"diff","before":"${input}","after":"x\n"}`), lines(20_000), lines(20_001), "/steps/0: a text has 20001 lines, and a diff takes at most 20000"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := newWorld(map[string]string{}).run(t, b.program, b.at); err != nil {
				t.Errorf("at the bound: %v", err)
			}
			w := newWorld(map[string]string{})
			if _, err := w.run(t, b.program, b.past); err == nil || !strings.Contains(err.Error(), b.says) {
				t.Errorf("past the bound: %v, want %s", err, b.says)
			}
			if len(w.did) > 0 {
				t.Errorf("did %d calls", len(w.did))
			}
		})
	}
}

func TestDiff(t *testing.T) {
	got, err := newWorld(nil).run(t, steps(`{"step":"diff","before":"a\nb\nc\n","after":"a\nB\nc","name":"x ${input}","as":"d"},{"step":"return","value":"${d}"}`), `"y"`)
	if want := `"--- a/x y\n+++ b/x y\n@@ -1,3 +1,3 @@\n a\n-b\n-c\n+B\n+c\n\\ No newline at end of file\n"`; err != nil || got != want {
		t.Errorf("%s %v, want %s", got, err, want)
	}
	random := rand.New(rand.NewPCG(1, 2))
	mk := func(n int) string {
		var b strings.Builder
		for range random.IntN(n) {
			fmt.Fprintf(&b, "l%d\n", random.IntN(6))
		}
		return strings.TrimSuffix(b.String(), "\n") + strings.Repeat("\n", random.IntN(2))
	}
	const pairs = 150
	texts := make([][2]string, pairs)
	for i := range texts {
		a := mk(40)
		b := mk(40)
		if i%2 == 0 && len(a) > 0 {
			at := random.IntN(len(a))
			b = a[:at] + mk(4) + a[at:]
		}
		texts[i] = [2]string{a, b}
	}
	in, _ := json.Marshal(texts)
	out, err := newWorld(nil).run(t, steps(`{"step":"set","name":"all","value":[]},{"step":"repeat","over":"${input}","as":"p","steps":[{"step":"diff","before":"${p.0}","after":"${p.1}","as":"d"},{"step":"set","name":"all","append":"${d}"}]},{"step":"return","value":"${all}"}`), string(in))
	if err != nil {
		t.Fatal(err)
	}
	var diffs []string
	if err := json.Unmarshal([]byte(out), &diffs); err != nil || len(diffs) != pairs {
		t.Fatal(err, len(diffs))
	}
	for i, d := range diffs {
		if after, err := apply(texts[i][0], d); err != nil || after != texts[i][1] {
			t.Fatalf("%q to %q by\n%s\ngives %q, %v", texts[i][0], texts[i][1], d, after, err)
		}
	}
}

// apply applies a unified diff to a text, and is strict about it.
func apply(before, diff string) (string, error) {
	if diff == "" {
		return before, nil
	}
	old, out := slices.Collect(strings.Lines(before)), ""
	diff = strings.ReplaceAll(diff, "\n\\ No newline at end of file\n", "\x00\n")
	at := 0
	for i, line := range slices.Collect(strings.Lines(diff)) {
		if i < 2 {
			continue
		}
		text := strings.TrimSuffix(strings.Replace(line[1:], "\x00\n", "\x00", 1), "\x00")
		switch line[0] {
		case '@':
			var from, count, to, more int
			if _, err := fmt.Sscanf(line, "@@ -%d,%d +%d,%d @@", &from, &count, &to, &more); err != nil {
				return "", err
			}
			if count > 0 {
				from--
			}
			for ; at < from; at++ {
				out += old[at]
			}
			if more > 0 {
				to--
			}
			if got := strings.Count(out, "\n"); got != to {
				return "", fmt.Errorf("hunk %q begins at line %d", line, got)
			}
		case '+':
			out += text
		default:
			if at >= len(old) || old[at] != text {
				return "", fmt.Errorf("line %d is not %q", at, text)
			}
			if at++; line[0] == ' ' {
				out += text
			}
		}
	}
	return out + strings.Join(old[at:], ""), nil
}
