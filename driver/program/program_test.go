package program

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver/backend"
)

// runMain runs the program with in on its standard input.
func runMain(t *testing.T, in string, args ...string) (code int, out, errOut string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(file, []byte(in), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var o, e bytes.Buffer
	code = Main("1.2.3", Backends(), args, f, &o, &e)
	return code, o.String(), e.String()
}

func TestProgram(t *testing.T) {
	for _, tt := range []struct {
		in, args string
		code     int
		want     string
	}{
		{"", "--version", 0, "skep-driver 1.2.3, protocol "},
		{"", "nonsense", 1, "usage: skep-driver"},
		{"", "", 1, "there is no boot payload"},
		{"token-of-a-box\n", "", 1, "is no JSON"},
		{`{"version":999,"token":"token-of-a-box"}`, "", 1, "of version 999"},
	} {
		code, out, errOut := runMain(t, tt.in, strings.Fields(tt.args)...)
		if code != tt.code || !strings.Contains(out+errOut, tt.want) || strings.Contains(out+errOut, "token-of-a-box") {
			t.Errorf("%q %q: %d %q %q, want %d with %q", tt.in, tt.args, code, out, errOut, tt.code, tt.want)
		}
	}
}

// TestBackends wants one for each CLI that an agent may name.
func TestBackends(t *testing.T) {
	_, out, _ := runMain(t, "", "backends")
	var specs []backend.Spec
	if err := json.Unmarshal([]byte(out), &specs); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range specs {
		names = append(names, s.Name)
		if !slices.Contains(s.Abilities, backend.Asks) {
			t.Errorf("%s does not ask to be allowed", s.Name)
		}
	}
	slices.Sort(names)
	if !slices.Equal(names, agent.CLIs()) {
		t.Errorf("backends are %q, and agents may name %q", names, agent.CLIs())
	}
}
