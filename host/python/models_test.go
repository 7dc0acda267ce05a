package python

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
)

const modelUser = `
import skep
from skep import generate, stream, tool_result

def text(question):
    return generate(question).text

def tools(city):
    messages = [{"role": "user", "content": ["How is it in", {"type": "image", "mime": "image/png", "data": b"\x00\xff"}]}]
    a = generate(messages, model="@cheap", tools=[{"name": "look"}], stop="END", temperature=None)
    messages += [a, {"role": "user", "content": [tool_result(c, {"city": city}, failed=True) for c in a.calls]}]
    b = generate({"messages": messages})
    return [a.stop, a.text, repr(b), b.stop, b.usage["input"], b.model]

def pieces():
    s = stream("go")
    got = list(s)
    return [got, s.answer.text]

def left():
    with stream("go") as s:
        first = next(s)
    return [first["text"], s.answer, list(s)]

def broken():
    try:
        for _ in stream("break"):
            pass
    except skep.CallError as e:
        return [e.kind, e.message]

def names():
    return skep.list_models()

def wrong(question):
    try:
        generate(question)
    except TypeError as e:
        return str(e)
`

// library answers as models do.
type library struct {
	mu    sync.Mutex
	asked []string
	reads int
}

func (l *library) calls(ctx context.Context, name string, in []byte) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	said := func(parts ...abi.ModelPart) *abi.ModelAnswer {
		return &abi.ModelAnswer{ID: "1", Model: "m", Content: parts, Stop: "end", Usage: abi.ModelUsage{Input: 7}}
	}
	if strings.HasPrefix(name, "model.") {
		l.asked = append(l.asked, name+" "+string(in))
	}
	switch name {
	case abi.CallModel, abi.CallModelOpen:
		var q abi.ModelAsk
		if err := json.Unmarshal(in, &q); err != nil {
			return nil, err
		}
		last := q.Messages[len(q.Messages)-1].Content
		if name == abi.CallModelOpen {
			if last.Text() == "break" {
				return json.Marshal(abi.ModelStream{ID: 9})
			}
			return json.Marshal(abi.ModelStream{ID: 3})
		}
		if len(q.Tools) > 0 {
			a := said(abi.ModelPart{Type: "text", Text: "let me "}, abi.ModelPart{Type: "text", Text: "look"},
				abi.ModelPart{Type: "tool-call", ID: "c1", Name: "look", Args: abi.Raw(`{}`), Opaque: "sig"})
			a.Stop = "tool"
			return json.Marshal(a)
		}
		return json.Marshal(said(abi.ModelPart{Type: "text", Text: "you said " + last[len(last)-1].Text + last[len(last)-1].Result.Text()}))
	case abi.CallModelRead:
		if string(in) == `{"id": 9}` {
			return nil, agent.Errorf(agent.Unavailable, "the provider broke off")
		}
		if l.reads++; l.reads == 1 {
			return json.Marshal(abi.ModelPieces{Pieces: []abi.ModelPiece{{Index: 0, Type: "text", Text: "on"}, {Index: 0, Type: "text", Text: "e"}}})
		}
		return json.Marshal(abi.ModelPieces{
			Pieces: []abi.ModelPiece{{Index: 1, Type: "tool-call", ID: "c1", Name: "f"}}, Answer: said(abi.ModelPart{Type: "text", Text: "one"}),
		})
	case abi.CallModelClose:
		return nil, nil
	case abi.CallModelList:
		return json.Marshal(abi.Models{Models: []abi.ModelInfo{{Name: "@main"}}})
	}
	return (&asked{}).answer(ctx, name, in)
}

func TestModels(t *testing.T) {
	a := load(t, "main.py", modelUser)
	for _, tt := range []struct {
		function, in, want string
		asked              []string
	}{
		{"text", `"hi"`, `you said hi`, []string{`model.generate {"messages": [{"role": "user", "content": "hi"}]}`}},
		{"tools", `"Oslo"`, `["tool","let me look","Answer('you said {\"city\": \"Oslo\"}')","end",7,"m"]`, []string{
			`model.generate {"messages": [{"role": "user", "content": [{"type": "text", "text": "How is it in"}, {"type": "image", "mime": "image/png", "data": "AP8="}]}], ` +
				`"model": "@cheap", "tools": [{"name": "look"}], "stop": ["END"]}`,
			`model.generate {"messages": [{"role": "user", "content": [{"type": "text", "text": "How is it in"}, {"type": "image", "mime": "image/png", "data": "AP8="}]}, ` +
				`{"role": "assistant", "content": [{"type": "text", "text": "let me "}, {"type": "text", "text": "look"}, {"type": "tool-call", "opaque": "sig", "id": "c1", "name": "look", "args": {}}]}, ` +
				`{"role": "user", "content": [{"type": "tool-result", "id": "c1", "name": "look", "result": "{\"city\": \"Oslo\"}", "failed": true}]}]}`,
		}},
		{"pieces", "", `[[{"index":0,"type":"text","text":"on"},{"index":0,"type":"text","text":"e"},{"index":1,"type":"tool-call","text":"","id":"c1","name":"f"}],"one"]`, nil},
		{"left", "", `["on",null,[]]`, []string{`model.open {"messages": [{"role": "user", "content": "go"}]}`, `model.read {"id": 3}`, `model.close {"id": 3}`}},
		{"broken", "", `["unavailable","the provider broke off"]`, nil},
		{"names", "", `[{"name":"@main"}]`, []string{`model.list {}`}},
		{"wrong", "7", `a model is asked by a text, a list of messages or a dict, not int`, []string{}},
		{"wrong", `["x"]`, `messages[0] is an Answer, or a dict such as {"role": "user", "content": "text"}`, []string{}},
	} {
		l := &library{}
		got, err := call(t, a, tt.function, js(tt.in), cell.Env{Calls: l.calls})
		if err != nil || string(got.Body) != tt.want {
			t.Errorf("%s: got %s, %v, want %s", tt.function, got.Body, err, tt.want)
		}
		if d := cmp.Diff(strings.Join(tt.asked, "\n"), strings.Join(l.asked, "\n")); tt.asked != nil && d != "" {
			t.Errorf("%s (-want +asked):\n%s", tt.function, d)
		}
	}
}
