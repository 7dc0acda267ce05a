package acp_test

import (
	"testing"

	"github.com/skep-dev/skep/driver/backend"
	"github.com/skep-dev/skep/driver/backend/acp"
	"github.com/skep-dev/skep/driver/backend/backendtest"
	"github.com/skep-dev/skep/gateway/script"
)

func TestOpenCode(t *testing.T) {
	j := journey{
		new: func() backend.Backend { return acp.OpenCode() }, cli: backendtest.CLI{Name: "opencode"}, elsewhere: []string{"registry."},
		write: func(path, text string) script.Call {
			return backendtest.Call("write", map[string]any{"filePath": path, "content": text})
		},
		shell: func(command string) script.Call {
			return backendtest.Call("bash", map[string]any{"command": command, "description": "Make a file"})
		},
	}
	j.travel(t)
}

func TestGemini(t *testing.T) {
	j := journey{
		new: func() backend.Backend { return acp.Gemini() }, cli: backendtest.CLI{Name: "gemini"}, noDir: true,
		write: func(path, text string) script.Call {
			return backendtest.Call("write_file", map[string]any{"file_path": path, "content": text})
		},
		shell: func(command string) script.Call {
			return backendtest.Call("run_shell_command", map[string]any{"command": command})
		},
	}
	j.travel(t)
}
