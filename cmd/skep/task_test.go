package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

// Nothing is made on the server for a task whose files cannot be sent: no session stays there empty.
func TestTaskWithoutItsFiles(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("the server was asked: %s %s", r.Method, r.URL) }))
	t.Cleanup(server.Close)
	cl := client.New(server.URL, "", nil)
	dir := t.TempDir()
	large := filepath.Join(dir, "large")
	if err := os.WriteFile(large, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(large, agent.MaxFile+1); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		flags taskFlags
		want  agent.Kind
	}{
		"no folder":        {taskFlags{repo: filepath.Join(dir, "none")}, agent.Invalid},
		"a file":           {taskFlags{repo: large}, agent.Invalid},
		"no attachment":    {taskFlags{repo: t.TempDir(), attach: []string{filepath.Join(dir, "none")}}, agent.Invalid},
		"large attachment": {taskFlags{attach: []string{large}}, agent.Exhausted},
	} {
		if err := tt.flags.input(t.Context(), cl, []string{"coder", "Do it."}, &client.NewRun{Agent: "coder"}); agent.KindOf(err) != tt.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
