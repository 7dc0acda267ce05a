package script

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
)

// toolbox is a host that answers calls of tools: each by the function of its name.
type toolbox struct {
	mu    sync.Mutex
	asked []string // what was called, with its arguments
	lines []string
	tools map[string]func(ctx context.Context, args string) (string, error)
	more  Calls // answers everything else
}

func (b *toolbox) calls(ctx context.Context, name string, in []byte) ([]byte, error) {
	switch name {
	case abi.CallToolChange:
		b.note("change " + string(in))
		if f := b.tools["change"]; f != nil {
			_, err := f(ctx, string(in))
			return nil, err
		}
		return nil, nil
	case abi.CallTool:
		var c abi.ToolCall
		if err := json.Unmarshal(in, &c); err != nil {
			return nil, err
		}
		if c.Undo {
			b.note("undo " + c.Tool + string(c.Args))
		} else {
			b.note(c.Tool + string(c.Args))
		}
		f := b.tools[c.Tool]
		if f == nil {
			return nil, &agent.Error{Kind: agent.NotFound, Msg: "there is no tool " + c.Tool, Hint: "search for it"}
		}
		v, err := f(ctx, string(c.Args))
		if err != nil {
			return nil, err
		}
		return json.Marshal(abi.ToolResult{Value: abi.Raw(v)})
	}
	if b.more != nil {
		return b.more(ctx, name, in)
	}
	return nil, agent.Errorf(agent.Denied, "%s was not granted", name)
}

func (b *toolbox) note(s string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = append(b.asked, s)
}

func (b *toolbox) log(_ agent.LogLevel, line string) { b.lines = append(b.lines, line) }

func (b *toolbox) call(function, input string) Call {
	return Call{Function: function, Input: js(input), Calls: b.calls, Log: b.log}
}

func gives(v string) func(context.Context, string) (string, error) {
	return func(context.Context, string) (string, error) { return v, nil }
}

func fails(kind agent.Kind, msg string) func(context.Context, string) (string, error) {
	return func(context.Context, string) (string, error) {
		return "", &agent.Error{Kind: kind, Msg: msg, Hint: "do something else"}
	}
}

func echo(_ context.Context, args string) (string, error) { return args, nil }

const toolUser = `
	import { Agent, tools, files, skills, ToolError, SkepError } from "skep";
	export const plain = async () => [
		await tools.fs.read_file({ path: "a" }), await tools.fs["read-file"]({ n: [1, "x", null, { d: new Date(0), gone: undefined }] }),
		await tools["my-server"].x(), await tools.call("my-server.x", { y: 1 }),
	];
	export const frozen = async () => {
		const tried = [];
		for (const f of [() => { tools.fs = 1 }, () => { tools.fs.read = 1 }, () => { delete tools.call }, () => { files.read = 1 }, () => { Object.defineProperty(tools, "x", { value: 1 }) }]) {
			try { f(); tried.push("no error") } catch (e) { tried.push(e instanceof TypeError) }
		}
		return [tried, (await tools.fs) === undefined, tools.then, tools.fs.then, JSON.stringify({ tools }), typeof tools.fs.x, "fs" in tools];
	};
	export const errors = async () => {
		const all = [];
		for (const name of ["a.denied", "a.failed", "a.missing"]) {
			try { await tools.call(name) } catch (e) { all.push([e instanceof ToolError, e instanceof SkepError, e instanceof Error, e.name, e.kind, e.tool, e.message, e.hint]) }
		}
		return all;
	};
	async function helper() {
		await null;
		return await tools.a.failed({ x: 1 });
	}
	export const uncaught = async () => { await helper() };
	export const stacked = async () => { try { await helper() } catch (e) { console.log(e.stack) } };
	export const bad = async (which) => {
		const loop = { a: [] }; loop.a.push(loop);
		const given = {
			text: "x", array: [1], nothing: null, nan: { a: { "b c": [1, NaN] } }, big: { n: 1n }, fn: { f() {} }, map: { m: new Map() }, set: { s: new Set() }, promise: { p: Promise.resolve(1) },
			bytes: { b: new Uint8Array(1) }, hole: { list: [1, undefined] }, loop, symbol: { s: Symbol("x") }, error: { e: new Error("x") }, odd: { toJSON() { return 1 } },
		};
		return await tools.fs.write(given[which]).then(() => "sent", (e) => e.name + ": " + e.message);
	};
	export const overlap = async () => (await Promise.all(Array.from({ length: 8 }, (_, i) => tools.a.meet({ i })))).map((r) => r.i);
	export const settled = async () => (await Promise.allSettled([tools.a.failed(), tools.fs.read_file({ a: 1 })])).map((r) => r.status);
	export const lost = async () => {
		tools.fs.write_file({ path: "a" }).then(() => tools.fs.write_file({ path: "b" }));
		return "returned";
	};
	export const sync = () => { tools.fs.write_file({ path: "s" }); return 7 };
	export const thrown = () => { tools.fs.write_file({ path: "t" }); throw new Error("after") };
	export const raced = async () => await Promise.all([tools.fs.write_file({ path: "slow" }), tools.a.failed()]);
	export const stuck = async () => { await Promise.all([tools.a.never({}), tools["my-server"].never()]) };
	export const change = async (which) => {
		const undone = [];
		try {
			return await tools.change("Move the notes", [
				{ tool: "fs.write_file", args: { path: "1" }, undo: { tool: "fs.delete", args: { path: "1" } } },
				{ tool: "fs.write_file", args: { path: "2" }, undo: async (result, args) => { undone.push(result, args); await tools.fs.delete({ path: args.path }) } },
				{ tool: "fs.write_file", args: { path: "3" } },
				{ tool: which, args: {} },
			]);
		} catch (e) {
			return [e instanceof ToolError, e.kind, e.tool, e.message, e.data, undone, e.stack.includes("skep:agent")];
		}
	};
	export const badChange = async (n) => {
		const given = [[], ["t"], ["t", []], ["t", [{ tool: "x" }]], ["t", [{ tool: "a.b", args: { f() {} } }]], ["t", [{ tool: "a.b", undo: 1 }]]][n];
		return await tools.change(...given).then(() => "made", (e) => e.message);
	};
	export const find = async () => {
		const found = await tools.search("create issue", { server: "github", effect: "modify", limit: 3 });
		return [found, found.more, (await tools.list()).length, await tools.describe("fs.*", { level: "full" }), await tools.search("x", { limit: 0 }).catch((e) => e.message)];
	};
	export const file = async () => {
		const picture = await files.read({ artifact: "a.png" }, { as: "bytes" });
		return [
			await files.read("long.txt"), await files.read("a.json", { as: "json" }), await files.read("long.txt", { offset: 2, length: 3 }), Array.from(picture), picture instanceof Uint8Array,
			await files.read("none", { length: 0 }), await files.read("none").catch((e) => e.kind),
			await files.write("t.txt", "héllo"), await files.write({ path: "b.bin" }, picture, { type: "image/png" }), await files.write("j.json", { a: [1] }),
			(await files.list("a")).map((f) => f.path), await skills.list(), await skills.load("pdf", "more.md"), await files.instructions("src"),
		];
	};
	export default class extends Agent {
		async own(_, ctx) { return [await this.tools.fs.read_file({}), ctx.tools === this.tools, ctx.files === files, this.skills === skills] }
	}`

func TestTools(t *testing.T) {
	a := load(t, source(toolUser))
	meet := make(chan struct{})
	var met sync.WaitGroup
	met.Add(8)
	go func() { met.Wait(); close(meet) }()
	box := &toolbox{tools: map[string]func(context.Context, string) (string, error){
		"fs.read_file": echo, "fs.read-file": echo, "my-server.x": gives(`"text"`), "a.denied": fails(agent.Denied, "policy says no"),
		"a.failed": fails(agent.Failed, "the disk is full"), "a.meet": func(_ context.Context, args string) (string, error) { met.Done(); <-meet; return args, nil },
	}}
	for function, want := range map[string]string{
		"plain":  `[{"path":"a"},{"n":[1,"x",null,{"d":"1970-01-01T00:00:00.000Z"}]},"text","text"]`,
		"frozen": `[[true,true,true,true,true],false,null,null,"{\"tools\":{}}","function",false]`,
		"errors": `[[true,true,true,"ToolError","denied","a.denied","policy says no","do something else"],` +
			`[true,true,true,"ToolError","failed","a.failed","the disk is full","do something else"],` +
			`[true,true,true,"ToolError","not_found","a.missing","there is no tool a.missing","search for it"]]`,
		"overlap": `[0,1,2,3,4,5,6,7]`,
		"settled": `["rejected","fulfilled"]`,
		"own":     `[{},true,true,true]`,
	} {
		if got := result(t, a, box.call(function, "")); got != want {
			t.Errorf("%s: got %s\nwant %s", function, got, want)
		}
	}
}

// TestToolErrorsSayWhereFrom: the answer arrives long after the call, and its error is from the call.
func TestToolErrorsSayWhereFrom(t *testing.T) {
	a := load(t, source(toolUser))
	box := &toolbox{tools: map[string]func(context.Context, string) (string, error){"a.failed": fails(agent.Failed, "the disk is full")}}
	_, _, err := a.Call(t.Context(), box.call("uncaught", ""))
	e := agent.AsError(err)
	line := 1 + strings.Count(toolUser[:strings.Index(toolUser, "tools.a.failed({ x")], "\n")
	if e == nil || e.Kind != agent.Failed || e.Msg != "ToolError: the disk is full" || e.Hint != "do something else" || e.Pos.Line != line || !strings.HasPrefix(e.Stack, fmt.Sprintf("at helper (agent.ts:%d:", line)) {
		t.Errorf("%v at %v\n%s", err, e.Pos, e.Stack)
	}
	result(t, a, box.call("stacked", ""))
	if len(box.lines) != 1 || !strings.HasPrefix(box.lines[0], fmt.Sprintf("    at helper (agent.ts:%d:", line)) {
		t.Errorf("%q", box.lines)
	}
}

func TestArgumentsAreJSON(t *testing.T) {
	a := load(t, source(toolUser))
	for which, want := range map[string]string{
		"text":    `the arguments are an object such as { path: "notes.txt" }, not a string`,
		"array":   `the arguments are an object such as { path: "notes.txt" }, not an array`,
		"nothing": `the arguments are an object such as { path: "notes.txt" }, not null`,
		"nan":     `arguments.a["b c"][1] is NaN, which has no JSON form`,
		"big":     `arguments.n is a bigint, which has no JSON form: use Number or String`,
		"fn":      `arguments.f is a function, which has no JSON form`,
		"map":     `arguments.m is a Map, which has no JSON form: use Object.fromEntries`,
		"set":     `arguments.s is a Set, which has no JSON form: use Array.from`,
		"promise": `arguments.p is a Promise, which has no JSON form: await it first`,
		"bytes":   `arguments.b is a Uint8Array, which has no JSON form: keep bytes by files.write and pass the path, or write them as the tool wants them`,
		"hole":    `arguments.list[1] is undefined, which has no JSON form`,
		"loop":    `arguments.a[0] holds itself, which has no JSON form`,
		"symbol":  `arguments.s is a symbol, which has no JSON form`,
		"error":   `arguments.e is a Error, which has no JSON form`,
		"odd":     `the arguments are an object, and have the JSON form 1`,
	} {
		box := &toolbox{}
		if got, want := result(t, a, box.call("bad", fmt.Sprintf("%q", which))), "TypeError: tools.fs.write: "+want; got != want || box.asked != nil {
			t.Errorf("%s: got %s\nwant %s\n%v", which, got, want, box.asked)
		}
	}
}

// TestNoCallOfAToolIsLost: what was called and not awaited is done, and its author is told.
func TestNoCallOfAToolIsLost(t *testing.T) {
	a := load(t, source(toolUser))
	at := func(s string) int { return 1 + strings.Count(toolUser[:strings.Index(toolUser, s)], "\n") }
	for _, c := range []struct {
		function, want string
		fails          bool
		asked, lines   []string
	}{
		{"lost", "returned", false, []string{`fs.write_file{"path":"a"}`, `fs.write_file{"path":"b"}`}, []string{
			fmt.Sprintf("tools.fs.write_file at agent.ts:%d was not awaited: the result waits for it", at(`tools.fs.write_file({ path: "a"`)),
			fmt.Sprintf("tools.fs.write_file at agent.ts:%d was not awaited: the result waits for it", at(`tools.fs.write_file({ path: "b"`)),
		}},
		{"sync", "7", false, []string{`fs.write_file{"path":"s"}`}, []string{
			fmt.Sprintf("tools.fs.write_file at agent.ts:%d was not awaited: the result waits for it", at(`tools.fs.write_file({ path: "s"`)),
		}},
		{"thrown", "Error: after", true, []string{`fs.write_file{"path":"t"}`}, []string{
			fmt.Sprintf("tools.fs.write_file at agent.ts:%d was under way when the code failed: its error waits for that", at(`tools.fs.write_file({ path: "t"`)),
		}},
		{"raced", "ToolError: no", true, []string{`fs.write_file{"path":"slow"}`, "a.failed{}"}, []string{
			fmt.Sprintf("tools.fs.write_file at agent.ts:%d was under way when the code failed: its error waits for that", at(`tools.fs.write_file({ path: "slow"`)),
		}},
	} {
		t.Run(c.function, func(t *testing.T) {
			failed, done := make(chan struct{}), 0
			box := &toolbox{tools: map[string]func(context.Context, string) (string, error){
				"a.failed": func(context.Context, string) (string, error) {
					close(failed)
					return "", agent.Errorf(agent.Failed, "no")
				},
			}}
			var line sync.WaitGroup // the slow one answers when the code has failed, which it says in a line
			line.Add(1)
			call := box.call(c.function, "")
			call.Log = func(l agent.LogLevel, s string) {
				box.log(l, s)
				if c.function == "raced" {
					line.Done()
				}
			}
			box.tools["fs.write_file"] = func(ctx context.Context, _ string) (string, error) {
				if c.function == "raced" {
					<-failed
					line.Wait()
				}
				if err := ctx.Err(); err != nil {
					return "", err
				}
				done++
				return "true", nil
			}
			out, _, err := a.Call(t.Context(), call)
			got := string(out.Body)
			if err != nil {
				got = agent.AsError(err).Msg
			}
			if got != c.want || (err != nil) != c.fails || done != strings.Count(strings.Join(c.asked, " "), "write_file") {
				t.Errorf("%s: %v, %d done", out.Body, err, done)
			}
			for i, s := range box.asked { // of two at once either may come first
				if s == "a.failed{}" && i == 0 {
					box.asked[0], box.asked[1] = box.asked[1], s
				}
			}
			if d := cmp.Diff(c.asked, box.asked); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(c.lines, box.lines); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestLimitsNameTheCallsUnderWay(t *testing.T) {
	a := load(t, source(toolUser))
	never := func(ctx context.Context, _ string) (string, error) { <-ctx.Done(); return "", ctx.Err() }
	box := &toolbox{tools: map[string]func(context.Context, string) (string, error){"a.never": never, "my-server.never": never}}
	call := box.call("stuck", "")
	call.Limits.Wall = 50 * time.Millisecond
	_, _, err := a.Call(t.Context(), call)
	line := 1 + strings.Count(toolUser[:strings.Index(toolUser, "tools.a.never")], "\n")
	want := fmt.Sprintf(`; under way: tools.a.never at agent.ts:%d, tools["my-server"].never at agent.ts:%d`, line, line)
	if e := agent.AsError(err); e == nil || e.Limit != agent.LimitWall || !strings.HasSuffix(e.Msg, want) {
		t.Error(err)
	}
	// And after a suspension, whose snapshot knows the places.
	call.Limits.Wall = 0
	call.Waiting = &Waiting{Rest: func(context.Context, Pending) bool { return true }}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	res, err := a.Run(ctx, call)
	if err != nil || res.Suspended == nil {
		t.Fatal(err)
	}
	call.Limits.Wall, call.Waiting = 50*time.Millisecond, &Waiting{Resume: res.Suspended.Snapshot}
	_, err = a.Run(ctx, call)
	if e := agent.AsError(err); e == nil || e.Limit != agent.LimitWall || !strings.HasSuffix(e.Msg, want) {
		t.Error(err)
	}
}

func TestChange(t *testing.T) {
	a := load(t, source(toolUser))
	box := func() *toolbox {
		return &toolbox{tools: map[string]func(context.Context, string) (string, error){
			"fs.write_file": echo, "fs.delete": gives("true"), "a.ok": gives("4"), "a.failed": fails(agent.Failed, "the disk is full"),
		}}
	}
	const asked = `change {"title":"Move the notes","calls":[{"tool":"fs.write_file","args":{"path":"1"}},{"tool":"fs.delete","args":{"path":"1"},"undo":true},{"tool":"fs.write_file","args":{"path":"2"}},` +
		`{"tool":"fs.write_file","args":{"path":"3"}},{"tool":"%s","args":{}}]}`
	made := []string{`fs.write_file{"path":"1"}`, `fs.write_file{"path":"2"}`, `fs.write_file{"path":"3"}`}
	b := box()
	if got, want := result(t, a, b.call("change", `"a.ok"`)), `[{"path":"1"},{"path":"2"},{"path":"3"},4]`; got != want {
		t.Errorf("got %s", got)
	}
	if d := cmp.Diff(append([]string{fmt.Sprintf(asked, "a.ok")}, append(made, "a.ok{}")...), b.asked); d != "" {
		t.Error(d)
	}
	b = box()
	want := `[true,"failed","a.failed","call 4 of 4, a.failed, failed: the disk is full; call 3, fs.write_file, was not undone: it has no undo; ` +
		`call 2, fs.write_file, was undone; call 1, fs.write_file, was undone",{"failed":4,"undone":[{"call":2,"tool":"fs.write_file"},{"call":1,"tool":"fs.write_file"}],` +
		`"kept":[{"call":3,"tool":"fs.write_file","why":"it has no undo"}]},[{"path":"2"},{"path":"2"}],true]`
	if got := result(t, a, b.call("change", `"a.failed"`)); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if d := cmp.Diff([]string{`a.failed{}`, `fs.delete{"path":"2"}`, `undo fs.delete{"path":"1"}`}, b.asked[4:]); d != "" {
		t.Error(d)
	}
	b = box()
	b.tools["fs.delete"] = fails(agent.Denied, "not allowed")
	if got := result(t, a, b.call("change", `"a.failed"`)); !strings.Contains(got, "call 2, fs.write_file, was not undone: its undo failed: not allowed") {
		t.Errorf("got %s", got)
	}
	b = box()
	b.tools["change"] = fails(agent.Denied, "Ada says no")
	if got := result(t, a, b.call("change", `"a.ok"`)); got != `[true,"denied","","Ada says no",null,[],true]` || len(b.asked) != 1 {
		t.Errorf("got %s, %v", got, b.asked)
	}
	for n, want := range []string{"the first argument is a title", "the second argument is an array", "an array of 1 to 256 calls", "call 1: tool is the name", "call 1: arguments.f is a function", "call 1: undo is a call"} {
		b = box()
		if got := result(t, a, b.call("badChange", fmt.Sprint(n))); !strings.Contains(got, want) || b.asked != nil {
			t.Errorf("%d: got %s", n, got)
		}
	}
}

// TestToolsSuspended takes code out of its cell at each answer of a tool, and plays its journal from the beginning: the same comes of both,
// to the byte, and what is told of calls that nobody awaits is told once.
func TestToolsSuspended(t *testing.T) {
	a := load(t, source(toolUser))
	tool := func(id uint64, v string) Delivery {
		out, _ := json.Marshal(abi.ToolResult{Value: abi.Raw(v)})
		return Delivery{ID: id, Name: abi.CallTool, Out: out}
	}
	refused := Delivery{ID: 5, Name: abi.CallTool, Err: agent.Errorf(agent.Denied, "no")}
	for _, c := range []struct {
		function, input, want string
		lines                 int
		journal               []Delivery
	}{
		{"lost", "", "returned", 2, []Delivery{tool(1, "1"), tool(2, "2")}},
		{"sync", "", "7", 1, []Delivery{tool(1, "1")}},
		{"change", `"a.ok"`, "was not undone: it has no undo; call 2, fs.write_file, was undone; call 1, fs.write_file, was undone", 0,
			[]Delivery{{ID: 1, Name: abi.CallToolChange}, tool(2, "1"), tool(3, "1"), tool(4, "1"), refused, tool(6, "1"), tool(7, "1")}},
		{"settled", "", `["rejected","fulfilled"]`, 0, []Delivery{tool(2, "1"), {ID: 1, Name: abi.CallTool, Err: agent.Errorf(agent.Failed, "no")}}},
	} {
		t.Run(c.function, func(t *testing.T) {
			w := newWorld()
			var snapshot []byte
			for n := range c.journal {
				var deliver []Delivery
				if n > 0 {
					deliver = c.journal[n-1 : n]
				}
				snapshot = w.life(t, a, c.function, c.input, snapshot, deliver...).Suspended.Snapshot
				played := newWorld()
				if again := played.life(t, a, c.function, c.input, nil, c.journal[:n]...).Suspended.Snapshot; string(again) != string(snapshot) {
					t.Fatalf("played up to %d, its state is another", n)
				}
				if len(played.log) != len(w.log) {
					t.Errorf("played up to %d, it writes %q, and %q in lives", n, played.log, w.log)
				}
			}
			res := w.life(t, a, "", "", snapshot, c.journal[len(c.journal)-1])
			if !strings.Contains(string(res.Output.Body), c.want) || len(w.log) != c.lines {
				t.Errorf("%s\n%q", res.Output.Body, w.log)
			}
			if again := newWorld().life(t, a, c.function, c.input, nil, c.journal...); string(again.Output.Body) != string(res.Output.Body) {
				t.Errorf("played: %s", again.Output.Body)
			}
		})
	}
}

// TestToolsWithoutImport: code that runs once finds tools as globals, which it cannot overwrite, and its own names hide.
func TestToolsWithoutImport(t *testing.T) {
	box := &toolbox{tools: map[string]func(context.Context, string) (string, error){"fs.read_file": echo, "a.failed": fails(agent.Failed, "no")}}
	for text, want := range map[string]string{
		`export default async (input) => [await tools.fs.read_file({ input }), typeof files.read, typeof skills.load]`:      `[{"input":1},"function","function"]`,
		`export default () => { try { globalThis.tools = 1 } catch (e) { return e.name } }`:                                 "TypeError",
		`export default () => { try { tools = 1 } catch (e) { return e.name } }`:                                            "TypeError",
		`export default () => { try { delete globalThis.files } catch (e) { return e.name } }`:                              "TypeError",
		`var tools = { mine: 1 }; export default () => tools.mine`:                                                          "1",
		`const files = [1]; function skills() { return 2 } export default () => files[0] + skills()`:                        "3",
		`import { tools as t } from "skep"; export default () => t === tools`:                                               "true",
		`const first = await tools.fs.read_file({ n: 1 }); export default first`:                                            `{"n":1}`,
		`export default async () => tools.a.failed().catch((e) => e instanceof ToolError)`:                                  "true",
		`export default () => Object.keys(globalThis).filter((k) => ["tools", "files", "skills", "ToolError"].includes(k))`: "[]",
		`tools.fs.read_file({ n: 2 }); export default 5`:                                                                    "5",
	} {
		box.asked = nil
		out, _, err := engine.Eval(t.Context(), source(text), box.call("", "1"))
		if err != nil || string(out.Body) != want {
			t.Errorf("%s\ngot %s, %v", text, out.Body, err)
		}
	}
	a := load(t, source(`export const f = () => [typeof globalThis.tools, typeof globalThis.files]`))
	if got := result(t, a, box.call("f", "")); got != `["undefined","undefined"]` {
		t.Errorf("an agent has %s", got)
	}
	if _, err := engine.Load(t.Context(), source(`import { tools } from "skep"; await tools.a.b()`), nil); err == nil || !strings.Contains(err.Error(), "tools.a.b is not available while the module loads") {
		t.Error(err)
	}
}
