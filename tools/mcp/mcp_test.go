package mcp_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/tools"
	"github.com/skep-dev/skep/tools/mcp"
)

func TestMain(m *testing.M) {
	if mode := os.Getenv("HOSTILE"); mode != "" {
		hostile(mode)
		return
	}
	if os.Getenv("ORPHAN") != "" {
		parent()
		return
	}
	os.Exit(m.Run())
}

// open opens a source that is closed at the test's end.
func open(t *testing.T, rec agent.ToolServer, o *mcp.Options, changed func()) tools.Source {
	t.Helper()
	rec.App = "default"
	if rec.Name == "" {
		rec.Name = "it"
	}
	if o == nil {
		o = &mcp.Options{}
	}
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	s, err := mcp.Open(t.Context(), rec, o, changed)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// list lists tools by their method.
func list(t *testing.T, s tools.Source) map[string]tools.Offer {
	t.Helper()
	offers, err := s.Tools(t.Context())
	if err != nil {
		t.Fatalf("%v\n%s", err, s.Status().Stderr)
	}
	out := map[string]tools.Offer{}
	for _, o := range offers {
		out[o.Method] = o
	}
	return out
}

// call calls a tool that is to work.
func call(t *testing.T, s tools.Source, method, args string, o *tools.CallOptions) agent.ToolResult {
	t.Helper()
	res, err := s.Call(t.Context(), method, json.RawMessage(args), o)
	if err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	return res
}

// until waits for something that happens elsewhere.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(20 * time.Second)
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: not after 20 s", what)
		}
	}
}

// npm is the command of a server that npm ci has installed in testdata/servers.
func npm(t *testing.T, name string, args ...string) []string {
	t.Helper()
	file, err := filepath.Abs(filepath.Join("testdata", "servers", "node_modules", ".bin", name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); err != nil {
		if os.Getenv("CI")+os.Getenv("SKEP_TEST_CACHE") != "" {
			t.Fatalf("%v; run npm ci in tools/mcp/testdata/servers", err)
		}
		t.Skip("run npm ci in tools/mcp/testdata/servers for servers to test with")
	}
	return append([]string{file}, args...)
}

func wantError(t *testing.T, err error, kind agent.Kind, unsent bool, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("there is no error")
	}
	if got := agent.KindOf(err); got != kind {
		t.Errorf("the error is of kind %s, not %s: %v", got, kind, err)
	}
	if tools.Unsent(err) != unsent {
		t.Errorf("unsent is %t: %v", tools.Unsent(err), err)
	}
	msg := agent.AsError(err).Msg
	for _, w := range words {
		if !strings.Contains(msg, w) {
			t.Errorf("%q is not in %q", w, msg)
		}
	}
}
