package examples

import (
	"regexp"
	"strings"
	"testing"
)

// TestChat goes the way of the example's README: a conversation, and a question in the middle of it.
func TestChat(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts the server")
	}
	s := start(t)
	s.must(t, "model", "provider", "add", "fake", "--script", "chat/turns.jsonl", "--models", "bee-1")
	s.must(t, "model", "route", "set", "main", "fake/bee-1")
	s.must(t, "push", "chat", "--agent", "chat")
	if out, code := s.run(t, "", "agent", "update", "chat", "--grant-asked", "--yes"); code != 0 || !strings.Contains(out, "@main") || !strings.Contains(out, "files.write") {
		t.Fatalf("granting what it asks for: exit code %d\n%s", code, out)
	}
	id := strings.TrimSpace(s.must(t, "sessions", "create", "chat"))
	for _, say := range []struct{ text, want string }{
		{"I need milk and bread", "It is on your list."},
		{"What is on my list?", "On your list: bread, milk."},
		{"I have the milk", "It is off your list."},
		{"What is on my list?", "On your list: bread."},
	} {
		if got := strings.TrimSpace(s.must(t, "sessions", "send", id, say.text, "-q")); got != say.want {
			t.Errorf("%s: %s, want %s", say.text, got, say.want)
		}
	}
	run := strings.TrimSpace(s.must(t, "sessions", "send", id, "Write it down", "--detach"))
	s.until(t, "files.write.*wants your approval", "run", "attach", run)
	question := regexp.MustCompile(run + `-\d+`).FindString(s.must(t, "approvals", "--run", run))
	s.must(t, "approvals", "approve", question)
	if got := strings.TrimSpace(s.must(t, "run", "attach", "-q", run)); got != "Your list is in list.md." {
		t.Errorf("after the question: %s", got)
	}
	if got := s.must(t, "file", "get", id, "list.md"); got != "- bread\n" {
		t.Errorf("list.md is %q", got)
	}
}
