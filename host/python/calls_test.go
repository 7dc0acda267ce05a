package python

import (
	"context"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
)

const asking = `
import skep

def one(word): return skep.call("words", "up", word)
def both(words): return skep.batch(*(skep.Call("words", "up", w) for w in words))
def value(x): return skep.call("words", "same", x)
def refused():
    try:
        skep.call("other", "f")
    except skep.CallError as e:
        return [e.kind, e.message, e.limit]

async def later(word): return await skep.Call("words", "up", word)
async def twice(word):
    word = await later(word)
    return await later(word + "x")
async def many(words): return await skep.gather(*(twice(w) for w in words), skep.Call("words", "up", "z"))
async def none(): return await skep.gather()
async def fails():
    try:
        await skep.gather(later("a"), skep.Call("other", "f"))
    except skep.CallError as e:
        return e.kind

def say():
    print("first")
    skep.log.warn("second", 2)
    print("third", end="")
    skep.emit("done", {"n": 1})
`

// asked answers as two agents, words and other, and keeps what it was asked.
type asked struct {
	mu    sync.Mutex
	lines []string
}

func (a *asked) note(s string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lines = append(a.lines, s)
}

func (a *asked) answer(_ context.Context, name string, in []byte) ([]byte, error) {
	if name != abi.CallAgent {
		a.note(name + " " + string(in))
		return nil, nil
	}
	var c abi.AgentCall
	if err := json.Unmarshal(in, &c); err != nil {
		return nil, err
	}
	a.note(c.Function + " " + string(c.Input))
	if c.Agent != "words" {
		return nil, &agent.Error{Kind: agent.Exhausted, Limit: agent.LimitEvents, Msg: "enough"}
	}
	if c.Function == "up" {
		c.Input = []byte(strings.ToUpper(string(c.Input)))
	}
	return json.Marshal(abi.AgentResult{Type: c.Type, Output: c.Input})
}

func TestCalls(t *testing.T) {
	a := load(t, "main.py", asking)
	for _, tt := range []struct{ function, in, want string }{
		{"one", `"é"`, "É"},
		{"both", `["a","b"]`, `["A","B"]`},
		{"value", `{"a":[1,null,"é"]}`, `{"a":[1,null,"é"]}`},
		{"refused", "", `["exhausted","enough","events"]`},
		{"later", `"a"`, "A"},
		{"many", `["a","b"]`, `["AX","BX","Z"]`},
		{"none", "", "[]"},
		{"fails", "", "exhausted"},
	} {
		got, err := call(t, a, tt.function, js(tt.in), cell.Env{Calls: (&asked{}).answer})
		if err != nil || string(got.Body) != tt.want {
			t.Errorf("%s: got %s, %v, want %s", tt.function, got.Body, err, tt.want)
		}
	}
}

func TestOutputKeepsItsOrder(t *testing.T) {
	a := load(t, "main.py", asking)
	r := &asked{}
	env := cell.Env{Calls: r.answer, Log: func(l agent.LogLevel, s string) { r.note(l.String() + " " + s) }}
	if _, err := call(t, a, "say", agent.Payload{}, env); err != nil {
		t.Fatal(err)
	}
	want := []string{"info first", "warn second 2", `emit {"name": "done", "data": {"n": 1}}`, "info third"}
	if d := cmp.Diff(want, r.lines); d != "" {
		t.Error(d)
	}
}

func TestFiles(t *testing.T) {
	a := load(t, "src/agent.py", `
import skep
from pkg import thing
from pkg.sub import deeper
import data.tool

def all(): return [thing, deeper, data.tool.x, skep.files["text.txt"].decode(), sorted(skep.files), __name__, __file__]
`, "pkg/__init__.py", "from .sub import value as thing\n", "pkg/sub.py", "value = 1\ndeeper = 2\n", "data/tool.py", "x = 3\n", "text.txt", "hi")
	if !slices.Equal(a.Exports(), []string{"all"}) {
		t.Errorf("exports = %v", a.Exports())
	}
	got, err := call(t, a, "all", agent.Payload{}, cell.Env{})
	if want := `[1,2,3,"hi",["text.txt"],"src.agent","src/agent.py"]`; err != nil || string(got.Body) != want {
		t.Errorf("got %s, %v, want %s", got.Body, err, want)
	}
}

func TestEval(t *testing.T) {
	e := engine(t)
	src := source("main.py", "import skep\nskep.emit('loaded')\ndef main(x): return x + 1\ndef other(): return skep.config['a']\n")
	r := &asked{}
	out, usage, err := e.Eval(t.Context(), src, Call{Input: js("1"), Env: cell.Env{Calls: r.answer}})
	if err != nil || string(out.Body) != "2" || usage.CPU == 0 || len(r.lines) != 1 {
		t.Errorf("got %s, %v, %v; asked %v", out.Body, usage, err, r.lines)
	}
	out, _, err = e.Eval(t.Context(), src, Call{Function: "other", Config: map[string]string{"a": "b"}, Env: cell.Env{Calls: r.answer}})
	if err != nil || string(out.Body) != "b" {
		t.Errorf("got %s, %v", out.Body, err)
	}
	if _, _, err = e.Eval(t.Context(), source("main.py", "x = 1"), Call{}); agent.KindOf(err) != agent.NotFound {
		t.Errorf("without main: %v", err)
	}
}

// TestDeclarations holds what editors are told of the module skep against what is in it.
func TestDeclarations(t *testing.T) {
	a := load(t, "main.py", "import skep\ndef names(): return sorted(n for n in vars(skep) if not n.startswith('_'))\n")
	out, err := call(t, a, "names", agent.Payload{}, cell.Env{})
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	if err := json.Unmarshal(out.Body, &got); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile("../../sdk/python/skep.pyi")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^(?:class |def )?([A-Za-z]\w*)(?:\(|:)`).FindAllStringSubmatch(string(b), -1) {
		want = append(want, m[1])
	}
	slices.Sort(want)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("skep.pyi and the module differ (-declared +there):\n%s", d)
	}
}
