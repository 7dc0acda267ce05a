package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
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

// Files of one name that come from different folders all come to the session.
func TestTaskAttachments(t *testing.T) {
	dir := t.TempDir()
	var flags taskFlags
	for _, name := range []string{"a/n.txt", "b/n.txt", "c/n.txt", "c/m.txt"} {
		name = filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
		flags.attach = append(flags.attach, name)
	}
	files, err := flags.pack(false)
	if err != nil {
		t.Fatal(err)
	}
	var to []string
	for _, f := range files {
		to = append(to, f.to)
		_ = f.Close()
	}
	want := []string{"attachments/n.txt", "attachments/2/n.txt", "attachments/3/n.txt", "attachments/m.txt"}
	if !slices.Equal(to, want) {
		t.Errorf("they come to %q, want %q", to, want)
	}
}
