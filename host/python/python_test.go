package python

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
	"github.com/skep-dev/skep/host/wasi"
)

// interpreter returns the bytes of python.wasm, or skips the test where there is none: npm ci in this folder fetches it.
func interpreter(t testing.TB) []byte {
	t.Helper()
	name := os.Getenv("SKEP_PYTHON")
	if name == "" {
		name = filepath.Join("node_modules", "@antonz", "python-wasi", "dist", "python.wasm")
	}
	b, err := os.ReadFile(name)
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("no Python interpreter: %v", err)
		}
		t.Skipf("no Python interpreter (npm ci in host/python fetches it): %v", err)
	}
	return b
}

// The engine is shared by the tests: compiling it takes seconds.
var shared struct {
	once sync.Once
	eng  *Engine
	err  error
}

func engine(t testing.TB) *Engine {
	t.Helper()
	wasm := interpreter(t)
	shared.once.Do(func() {
		ctx := context.Background()
		o := &cell.Options{CacheDir: os.Getenv("SKEP_TEST_CACHE")}
		cells, err := cell.New(ctx, wasi.Funcs(), o)
		if err != nil {
			shared.err = err
			return
		}
		shared.eng, shared.err = New(ctx, cells, wasm, nil)
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.eng
}

func source(files ...string) agent.Source {
	src := agent.Source{Kind: agent.Script, Main: files[0], Files: map[string][]byte{}}
	for i := 0; i < len(files); i += 2 {
		src.Files[files[i]] = []byte(files[i+1])
	}
	return src
}

func load(t testing.TB, files ...string) *Agent {
	t.Helper()
	a, err := engine(t).Load(t.Context(), source(files...), cell.Env{})
	if err != nil {
		t.Fatalf("%+v", agent.AsError(err))
	}
	t.Cleanup(func() { a.Close() })
	return a
}

func js(s string) agent.Payload { return agent.Payload{Type: agent.TypeJSON, Body: []byte(s)} }

func call(t testing.TB, a *Agent, function string, in agent.Payload, env cell.Env) (agent.Payload, error) {
	t.Helper()
	out, _, err := a.Call(t.Context(), Call{Function: function, Input: in, Env: env})
	return out, err
}

const hello = `
import skep, random, dataclasses

count = 0

@dataclasses.dataclass
class Greeting:
    text: str

def greet(person):
    print("greeting", person["name"])
    return Greeting(f"Hello, {person['name']}!")

def shout(text): return text.upper() + "!"
def flip(data): return data[::-1]
def nothing(): pass
def bump():
    global count
    count += 1
    return count
def dice(): return random.random()
def word(): return skep.config.get("word", "none")
def _hidden(): pass
`

func TestValues(t *testing.T) {
	a := load(t, "main.py", hello)
	if d := cmp.Diff([]string{"bump", "dice", "flip", "greet", "nothing", "shout", "word"}, a.Exports()); d != "" {
		t.Errorf("exports: %s", d)
	}
	var logs []string
	env := cell.Env{Log: func(l agent.LogLevel, s string) { logs = append(logs, l.String()+" "+s) }}
	for _, tt := range []struct {
		function string
		in, want agent.Payload
	}{
		{"greet", js(`{"name":"Ada"}`), js(`{"text":"Hello, Ada!"}`)},
		{"shout", agent.Payload{Type: "text/plain", Body: []byte("é")}, agent.Payload{Type: agent.TypeText, Body: []byte("É!")}},
		{"flip", agent.Payload{Type: agent.TypeBytes, Body: []byte{1, 2, 0}}, agent.Payload{Type: agent.TypeBytes, Body: []byte{0, 2, 1}}},
		{"nothing", agent.Payload{}, js(`null`)},
		{"bump", agent.Payload{}, js(`1`)},
		{"bump", agent.Payload{}, js(`1`)},
		{"nothing", js(`{"ignored":1}`), js(`null`)},
		{"word", agent.Payload{}, agent.Payload{Type: agent.TypeText, Body: []byte("none")}},
	} {
		got, err := call(t, a, tt.function, tt.in, env)
		if err != nil {
			t.Errorf("%s: %+v", tt.function, agent.AsError(err))
			continue
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%s: %s", tt.function, d)
		}
	}
	if !slices.Equal(logs, []string{"info greeting Ada"}) {
		t.Errorf("logs = %q", logs)
	}
	one, _ := call(t, a, "dice", agent.Payload{}, cell.Env{})
	two, _ := call(t, a, "dice", agent.Payload{}, cell.Env{})
	if string(one.Body) == string(two.Body) {
		t.Errorf("two copies throw the same dice: %s", one.Body)
	}
}
