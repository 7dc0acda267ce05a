package python

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
)

const toolUser = `
import skep
from skep import ToolCall

def plain():
    return [
        skep.tools.fs.read(path="a"), skep.tools["my-server"]["read-file"]({"a b": 1}, c=2), skep.call_tool("fs.read", name="n"), skep.tools.fs.read(),
    ]

def errors():
    out = []
    for name in ("a.denied", "a.failed"):
        try:
            skep.call_tool(name)
        except skep.ToolError as e:
            out.append([isinstance(e, skep.CallError), e.kind, e.tool, e.message, e.hint])
    return out

def bad(which):
    given = {
        "set": {"x": [1, {"y": {1}}]}, "nan": {"n": float("nan")}, "bytes": {"b": b"x"}, "list": [1], "key": {"a": {(1, 2): 3}},
    }[which]
    try:
        skep.tools.fs.write(given) if isinstance(given, dict) else ToolCall("fs.write", given)
    except TypeError as e:
        return str(e)

def name():
    try:
        skep.call_tool("read")
    except TypeError as e:
        return str(e)

def uncaught():
    skep.tools.a.failed()

async def meet():
    got = await skep.gather(*(ToolCall("a.meet", {"i": i}) for i in range(8)))
    return [g["i"] for g in got]

def both():
    return skep.batch(ToolCall("fs.read", {"n": 1}), skep.Call("words", "same", 2))

async def settled():
    try:
        await skep.gather(ToolCall("fs.read"), ToolCall("a.failed"))
    except skep.ToolError as e:
        return [e.tool, e.kind]

def change(last):
    undone = []
    async def undo(value):
        undone.append(value)
        await ToolCall("fs.delete", value)
    try:
        return skep.change_tools("Move", ToolCall("fs.read", {"n": 1}, undo=undo), ToolCall("fs.read", {"n": 2}), ToolCall(last))
    except skep.ToolError as e:
        return [e.kind, e.tool, e.message, undone]

def change_back(last):
    try:
        return skep.change_tools("Move", ToolCall("fs.read", {"n": 1}, undo=ToolCall("fs.delete", {"n": [1.5, "é"]})), ToolCall(last))
    except skep.ToolError as e:
        return e.message

def find():
    return [skep.search_tools("issue", server="github", limit=2), len(skep.list_tools()), skep.describe_tools("fs.*")]

def files():
    skep.write_file("b.txt", "héllo")
    skep.write_file({"path": "c.json"}, {"a": [1]})
    skep.write_file("d.png", b"\x00\xff", type="image/png")
    return [
        skep.read_file("long").decode(), list(skep.read_file({"artifact": "d.png"})), [f["path"] for f in skep.list_files("a")], skep.list_skills(), skep.load_skill("pdf", "b.md"),
    ]
`

// toolbox answers as tools do, and keeps files.
type toolbox struct {
	mu    sync.Mutex
	asked []string
	met   sync.WaitGroup
	files map[string]abi.FilePut
}

func (b *toolbox) calls(ctx context.Context, name string, in []byte) ([]byte, error) {
	b.mu.Lock()
	b.asked = append(b.asked, name+" "+string(in))
	b.mu.Unlock()
	var body struct {
		Tool               string
		Args               abi.Raw
		Path, After, Title string
		Offset             int
	}
	if len(in) > 0 {
		if err := json.Unmarshal(in, &body); err != nil {
			return nil, err
		}
	}
	switch name {
	case abi.CallTool:
		switch body.Tool {
		case "a.denied":
			return nil, &agent.Error{Kind: agent.Denied, Msg: "policy says no", Hint: "ask Ada"}
		case "a.failed":
			return nil, agent.Errorf(agent.Failed, "the disk is full")
		case "a.meet":
			b.met.Done()
			b.met.Wait()
		}
		return json.Marshal(abi.ToolResult{Value: body.Args})
	case abi.CallToolChange:
		if body.Title != "Move" {
			return nil, agent.Errorf(agent.Denied, "no")
		}
		return nil, nil
	case abi.CallToolList, abi.CallToolSearch:
		return json.Marshal(abi.Tools{Tools: []abi.ToolInfo{{Name: "github.create_issue"}}})
	case abi.CallToolDescribe:
		return json.Marshal(abi.ToolText{Text: "declare"})
	case abi.CallFilePut:
		var p abi.FilePut
		if err := json.Unmarshal(in, &p); err != nil {
			return nil, err
		}
		b.files[p.Path] = p
		return json.Marshal(abi.FileInfo{Path: p.Path, Type: p.Type})
	case abi.CallFileRead:
		f := b.files[body.Path].Body
		return json.Marshal(abi.FilePart{Body: f[body.Offset:min(body.Offset+3, len(f))], FileInfo: abi.FileInfo{Size: int64(len(f))}})
	case abi.CallFileList:
		if body.After == "" {
			return []byte(`{"files":[{"path":"a1"}],"after":"a1"}`), nil
		}
		return []byte(`{"files":[{"path":"a2"}]}`), nil
	case abi.CallSkillList:
		return []byte(`{"skills":[{"name":"pdf","description":"reads"}]}`), nil
	case abi.CallSkillLoad:
		return json.Marshal(abi.SkillText{Text: body.Path})
	}
	return (&asked{}).answer(ctx, name, in)
}

func TestTools(t *testing.T) {
	a := load(t, "main.py", toolUser)
	for _, tt := range []struct{ function, in, want string }{
		{"plain", "", `[{"path":"a"},{"a b":1,"c":2},{"name":"n"},{}]`},
		{"errors", "", `[[true,"denied","a.denied","policy says no","ask Ada"],[true,"failed","a.failed","the disk is full",""]]`},
		{"bad", `"set"`, `fs.write: args['x'][1]['y'] is {1}, a set, which has no JSON form`},
		{"bad", `"nan"`, `fs.write: args['n'] is nan, a float, which has no JSON form`},
		{"bad", `"bytes"`, `fs.write: args['b'] is b'x', a bytes, which has no JSON form`},
		{"bad", `"list"`, `fs.write: the arguments are a dict, not list`},
		{"bad", `"key"`, `fs.write: args['a'] has a key of type tuple, which has no JSON form`},
		{"name", "", `'read' is not the name of a tool: it is SERVER.METHOD`},
		{"meet", "", `[0,1,2,3,4,5,6,7]`},
		{"both", "", `[{"n":1},2]`},
		{"settled", "", `["a.failed","failed"]`},
		{"change", `"fs.read"`, `[{"n":1},{"n":2},{}]`},
		{"change", `"a.failed"`, `["failed","a.failed","call 3 of 3, a.failed, failed: the disk is full; call 2, fs.read, was not undone: it has no undo; call 1, fs.read, was undone",[{"n":1}]]`},
		{"change_back", `"a.failed"`, `call 2 of 2, a.failed, failed: the disk is full; call 1, fs.read, was undone`},
		{"find", "", `[[{"name":"github.create_issue","path":"","effect":""}],1,"declare"]`},
		{"files", "", `["0123456789",[0,255],["a1","a2"],[{"name":"pdf","description":"reads"}],"b.md"]`},
	} {
		b := &toolbox{files: map[string]abi.FilePut{"long": {Body: []byte("0123456789")}}}
		b.met.Add(8)
		got, err := call(t, a, tt.function, js(tt.in), cell.Env{Calls: b.calls})
		if err != nil || string(got.Body) != tt.want {
			t.Errorf("%s %s: got %s, %v, want %s", tt.function, tt.in, got.Body, err, tt.want)
		}
		if tt.function == "bad" && len(b.asked) > 0 {
			t.Errorf("%s was sent: %q", tt.in, b.asked)
		}
		if tt.function == "change_back" {
			var change abi.ToolChange
			var undo abi.ToolCall
			bad := errors.Join(json.Unmarshal([]byte(strings.TrimPrefix(b.asked[0], "tool.change ")), &change), json.Unmarshal([]byte(strings.TrimPrefix(b.asked[3], "tool.call ")), &undo))
			if bad != nil || len(change.Calls) != 3 || !undo.Undo || change.Calls[0].Undo || change.Calls[2].Undo || !cmp.Equal(change.Calls[1], undo) {
				t.Errorf("asked: %q, %v", b.asked, bad)
			}
		}
		if tt.function == "files" && (b.files["b.txt"].Type != "text/plain; charset=utf-8" || string(b.files["c.json"].Body) != `{"a":[1]}` || b.files["d.png"].Type != "image/png") {
			t.Errorf("written: %+v", b.files)
		}
	}
	b := &toolbox{}
	if _, err := call(t, a, "find", js(""), cell.Env{Calls: b.calls}); err != nil {
		t.Error(err)
	}
	want := []string{`tool.search {"query": "issue", "server": "github", "limit": 2}`, `tool.list {}`, `tool.describe {"names": ["fs.*"], "level": "compact"}`}
	if d := cmp.Diff(want, b.asked); d != "" {
		t.Error(d)
	}
	_, err := call(t, a, "uncaught", js(""), cell.Env{Calls: b.calls})
	if e := agent.AsError(err); e == nil || e.Msg != "ToolError: the disk is full" || e.Pos.File != "main.py" || e.Pos.Line != 35 {
		t.Errorf("%v at %v", err, e.Pos)
	}
}
