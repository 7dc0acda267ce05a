package extism_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	sdk "github.com/extism/go-sdk"
	"github.com/tetratelabs/wazero"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
	"github.com/skep-dev/skep/host/extism"
	"github.com/skep-dev/skep/host/wasi"
)

var sdkDir = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/extism/go-sdk").Output()
	return strings.TrimSpace(string(out)), err
})

// fixture reads one of the modules that come with the Extism Go SDK.
func fixture(t testing.TB, name string) []byte {
	t.Helper()
	dir, err := sdkDir()
	if err != nil {
		t.Fatalf("find the Extism SDK: %v", err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "wasm", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// work is where tests keep what is slow to make: compiled programs and modules.
var work string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if work, err = os.MkdirTemp("", "extism"); err != nil {
			panic(err)
		}
		defer func() { _ = os.RemoveAll(work) }()
		return m.Run()
	}())
}

// build compiles a program below testdata as an Extism module.
func build(t testing.TB, name string) []byte {
	t.Helper()
	out := filepath.Join(work, name+".wasm")
	if b, err := os.ReadFile(out); err == nil {
		return b
	}
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-ldflags=-s -w", "-o", out, "./testdata/"+name)
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if msg, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, msg)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func newEngine(t testing.TB) *cell.Engine {
	t.Helper()
	eng, err := cell.New(t.Context(), append(extism.Funcs(), wasi.Funcs()...), &cell.Options{CacheDir: filepath.Join(work, "cache")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := eng.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return eng
}

func load(t testing.TB, wasm []byte) *extism.Agent {
	t.Helper()
	a, err := extism.Load(t.Context(), newEngine(t), wasm, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return a
}

// call calls with an input as bytes and fails the test when that does not work.
func call(t testing.TB, a *extism.Agent, c extism.Call) string {
	t.Helper()
	out, _, err := a.Call(t.Context(), c)
	if err != nil {
		t.Fatalf("%s: %v", c.Function, err)
	}
	return string(out.Body)
}

func input(s string) agent.Payload { return agent.Payload{Type: agent.TypeBytes, Body: []byte(s)} }

// oracle is a plugin of the Extism Go SDK, compiled once.
func oracle(t testing.TB, wasm []byte, m sdk.Manifest) *sdk.CompiledPlugin {
	t.Helper()
	m.Wasm = []sdk.Wasm{sdk.WasmData{Data: wasm, Name: "main"}}
	if m.Memory == nil {
		m.Memory = &sdk.ManifestMemory{MaxHttpResponseBytes: -1, MaxVarBytes: -1}
	}
	p, err := sdk.NewCompiledPlugin(context.Background(), m, sdk.PluginConfig{
		EnableWasi: true, EnableHttpResponseHeaders: true, RuntimeConfig: wazero.NewRuntimeConfigInterpreter(),
	}, nil)
	if err != nil {
		t.Fatalf("oracle: %v", err)
	}
	t.Cleanup(func() {
		if err := p.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return p
}

// ask calls an instance of its own.
func ask(t testing.TB, p *sdk.CompiledPlugin, function, in string, logs *[]string) (code uint32, out string, err error) {
	t.Helper()
	sdk.SetLogLevel(sdk.LogLevelOff) // an instance logs its making
	i, err := p.Instance(context.Background(), sdk.PluginInstanceConfig{
		ModuleConfig: wazero.NewModuleConfig().WithSysWalltime().WithSysNanotime(),
	})
	if err != nil {
		t.Fatalf("oracle: %v", err)
	}
	defer func() {
		if err := i.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	sdk.SetLogLevel(sdk.LogLevelTrace)
	i.SetLogger(func(l sdk.LogLevel, s string) {
		if logs != nil {
			*logs = append(*logs, strings.ToLower(l.String())+": "+s)
		}
	})
	code, b, err := i.Call(function, []byte(in))
	return code, string(b), err
}
