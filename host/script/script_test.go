package script

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"sync"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
	"github.com/skep-dev/skep/host/wasi"
)

// engine is shared by the tests of this package: compiling the guest takes a second.
var engine *Engine

var cellEngine *cell.Engine // of engine

// With -copy the tests run on images that are copied, as where there is no memfd.
var copied = flag.Bool("copy", false, "copy images instead of mapping them")

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(func() int {
		only := flag.Lookup("test.fuzz").Value.String()
		if only != "" && flag.Lookup("test.run").Value.String() == "^$" && !regexp.MustCompile(only).MatchString("FuzzImport") {
			return m.Run() // nothing that is fuzzed needs an engine but FuzzImport, and under the fuzzer's coverage it takes long to make
		}
		ctx := context.Background()
		var err error
		cellEngine, err = cell.New(ctx, append(Funcs(), wasi.Funcs()...), &cell.Options{Copy: *copied})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer cellEngine.Close(ctx)
		if engine, err = New(ctx, cellEngine, nil); err != nil {
			fmt.Fprintln(os.Stderr, err, agent.AsError(err).Stack)
			return 1
		}
		defer engine.Close(ctx)
		if os.Getenv(childVar) != "" {
			return child(ctx)
		}
		return m.Run()
	}())
}

func source(text string) agent.Source { return files("agent.ts", "agent.ts", text) }

// files makes a source of pairs of a name and a text.
func files(main string, pairs ...string) agent.Source {
	s := agent.Source{Kind: agent.Script, Main: main, Files: map[string][]byte{}}
	for i := 0; i < len(pairs); i += 2 {
		s.Files[pairs[i]] = []byte(pairs[i+1])
	}
	return s
}

func load(t testing.TB, src agent.Source) *Agent {
	t.Helper()
	a, err := engine.Load(t.Context(), src, nil)
	if err != nil {
		t.Fatalf("load: %v\n%s", err, agent.AsError(err).Stack)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

// result calls a function with a JSON input and returns its output's body.
func result(t testing.TB, a *Agent, call Call) string {
	t.Helper()
	out, _, err := a.Call(t.Context(), call)
	if err != nil {
		t.Fatalf("call %s: %v\n%s", call.Function, err, agent.AsError(err).Stack)
	}
	return string(out.Body)
}

// TestConcurrent makes calls of several agents at once.
func TestConcurrent(t *testing.T) {
	var wg sync.WaitGroup
	for i := range 4 {
		a := load(t, source(fmt.Sprintf(`let n = 0; export const f = async (x) => { await null; n++; return [x, n, %d] }`, i)))
		for j := range 8 {
			wg.Go(func() {
				for range 5 {
					out, _, err := a.Call(t.Context(), Call{Function: "f", Input: js(fmt.Sprint(j)), Tenant: agent.App(fmt.Sprint(j % 2))})
					if want := fmt.Sprintf("[%d,1,%d]", j, i); err != nil || string(out.Body) != want {
						t.Errorf("got %s, %v, want %s", out.Body, err, want)
					}
				}
			})
		}
	}
	wg.Wait()
}

func TestHello(t *testing.T) {
	a := load(t, source(`export function greet(name: string) { return "Hello, " + name }`))
	if got := result(t, a, Call{Function: "greet", Input: agent.JSON([]byte(`"Ada"`))}); got != "Hello, Ada" {
		t.Errorf("got %q", got)
	}
}
