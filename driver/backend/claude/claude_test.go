package claude_test

import (
	"testing"

	"github.com/skep-dev/skep/driver/backend"
	"github.com/skep-dev/skep/driver/backend/backendtest"
	"github.com/skep-dev/skep/driver/backend/claude"
	"github.com/skep-dev/skep/gateway/script"
)

var cli = backendtest.CLI{Name: "claude", Vars: map[string]string{"CLAUDE_CODE_MAX_RETRIES": "2"}}

func matrix() *backendtest.Matrix {
	return &backendtest.Matrix{
		New: func() backend.Backend { return claude.New() }, CLI: cli,
		Edit: func(path, text string) script.Call {
			return backendtest.Call("Write", map[string]any{"file_path": path, "content": text})
		},
		Run: func(command string) script.Call {
			return backendtest.Call("Bash", map[string]any{"command": command, "description": "Make a file"})
		},
	}
}

func TestMatrix(t *testing.T) { matrix().Test(t) }
