package mcp_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/tools"
)

func stdio(command []string) agent.ToolServer {
	return agent.ToolServer{Kind: agent.MCPStdio, Command: command}
}

func TestEverything(t *testing.T) {
	s := open(t, stdio(npm(t, "mcp-server-everything", "stdio")), nil, nil)
	all := list(t, s)
	if len(all) < 10 {
		t.Errorf("there are %d tools", len(all))
	}
	if h := all["echo"].Hints; h == nil || h.ReadOnly == nil || !*h.ReadOnly {
		t.Errorf("hints of echo: %+v", h)
	}
	if got := call(t, s, "echo", `{"message":"hello"}`, nil); !got.Text || string(got.Value) != `"Echo: hello"` {
		t.Errorf("echo: %s", got.Value)
	}
	if got := call(t, s, "get-structured-content", `{"location":"New York"}`, nil); !strings.Contains(string(got.Value), `"temperature"`) || got.Text {
		t.Errorf("structured: %s", got.Value)
	}
	got := call(t, s, "get-tiny-image", `{}`, nil)
	if len(got.Blobs) != 1 || got.Blobs[0].Type != "image/png" || !strings.HasPrefix(string(got.Blobs[0].Body), "\x89PNG") || !strings.Contains(string(got.Value), `{"$blob":0}`) {
		t.Errorf("image: %s", got.Value)
	}
	var told atomic.Int32
	call(t, s, "trigger-long-running-operation", `{"duration":1,"steps":4}`, &tools.CallOptions{Progress: func(p tools.Progress) {
		if p.Total != 4 {
			t.Errorf("progress %+v", p)
		}
		told.Add(1)
	}})
	if told.Load() < 2 {
		t.Errorf("progress was told of %d times", told.Load())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := s.Call(ctx, "trigger-long-running-operation", json.RawMessage(`{"duration":30,"steps":2}`), nil)
	wantError(t, err, agent.Cancelled, false, "it.trigger-long-running-operation was cancelled")
	_, err = s.Call(t.Context(), "no-such-tool", nil, nil)
	wantError(t, err, agent.Failed, false, "no-such-tool")
}

func TestElicitation(t *testing.T) {
	s := open(t, stdio(npm(t, "mcp-server-everything", "stdio")), nil, nil)
	if _, ok := list(t, s)["trigger-elicitation-request"]; !ok {
		t.Fatal("the server offers no elicitation: it was told of none")
	}
	var asked agent.Question
	got := call(t, s, "trigger-elicitation-request", `{}`, &tools.CallOptions{Elicit: func(_ context.Context, q agent.Question) (agent.ApprovalAnswer, error) {
		asked = q
		return agent.ApprovalAnswer{Allow: true, Content: json.RawMessage(`{"name":"Ada"}`)}, nil
	}})
	if asked.Server != "it" || asked.Message == "" || !strings.Contains(string(asked.Schema), `"properties"`) {
		t.Errorf("asked was %+v", asked)
	}
	if !strings.Contains(string(got.Value), "Ada") {
		t.Errorf("got %s", got.Value)
	}
	got = call(t, s, "trigger-elicitation-request", `{}`, &tools.CallOptions{Elicit: func(context.Context, agent.Question) (agent.ApprovalAnswer, error) {
		return agent.ApprovalAnswer{}, nil
	}})
	if !strings.Contains(string(got.Value), "declin") {
		t.Errorf("got %s", got.Value)
	}
}

func TestFilesystem(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, stdio(npm(t, "mcp-server-filesystem", dir)), nil, nil)
	all := list(t, s)
	w := all["write_file"]
	if w.Hints == nil || w.Hints.Destructive == nil || !*w.Hints.Destructive || len(w.Output) == 0 {
		t.Errorf("write_file: %+v", w)
	}
	file := filepath.Join(dir, "a.txt")
	args, _ := json.Marshal(map[string]string{"path": file, "content": "bees\n"})
	call(t, s, "write_file", string(args), nil)
	if b, err := os.ReadFile(file); err != nil || string(b) != "bees\n" {
		t.Errorf("the file holds %q, %v", b, err)
	}
	args, _ = json.Marshal(map[string]string{"path": file})
	if got := call(t, s, "read_text_file", string(args), nil); string(got.Value) != `{"content":"bees\n"}` {
		t.Errorf("got %s", got.Value)
	}
	_, err = s.Call(t.Context(), "read_text_file", json.RawMessage(`{"path":"/etc/passwd"}`), nil)
	wantError(t, err, agent.Failed, false, "denied")
}

func TestMemory(t *testing.T) {
	s := open(t, stdio(npm(t, "mcp-server-memory")), nil, nil)
	call(t, s, "create_entities", `{"entities":[{"name":"skep","entityType":"hive","observations":["woven"]}]}`, nil)
	if got := call(t, s, "read_graph", `{}`, nil); !strings.Contains(string(got.Value), `"woven"`) || got.Text {
		t.Errorf("got %s", got.Value)
	}
}

func TestGit(t *testing.T) {
	dir := t.TempDir()
	for _, args := range [][]string{{"init", "-q"}, {"-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "--allow-empty", "-m", "the first"}} {
		if out, err := exec.Command("git", append([]string{"-C", dir}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	s := open(t, stdio(npm(t, "git-mcp-server")), nil, nil)
	if n := len(list(t, s)); n < 20 {
		t.Errorf("there are %d tools", n)
	}
	args, _ := json.Marshal(map[string]string{"path": dir})
	if got := call(t, s, "git_log", string(args), nil); !strings.Contains(string(got.Value), "the first") {
		t.Errorf("got %s", got.Value)
	}
}

func TestPlaywrightLists(t *testing.T) {
	s := open(t, stdio(npm(t, "playwright-mcp", "--headless")), nil, nil)
	if n := len(list(t, s)); n < 20 {
		t.Errorf("there are %d tools: %v", n, s.Status().Notes)
	}
	if st := s.Status(); len(st.Notes) > 0 || st.Protocol == "" {
		t.Errorf("status: %+v", st)
	}
}
