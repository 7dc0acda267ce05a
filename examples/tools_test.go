package examples

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// folder makes files in a new folder, and returns its path as MCP servers see it.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// holds compares the files in a folder with names.
func holds(t *testing.T, dir string, names ...string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*.md"))
	deeper, err2 := filepath.Glob(filepath.Join(dir, "*", "*.md"))
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	got := append(found, deeper...)
	for i, file := range got {
		got[i] = strings.TrimPrefix(file, dir+"/")
	}
	slices.Sort(got)
	if diff := cmp.Diff(names, got); diff != "" {
		t.Errorf("the folder holds (-want +got):\n%s", diff)
	}
}

// asked starts a run that comes to ask a person, and returns its id and that of the question.
func (s skep) asked(t *testing.T, tool string, args ...string) (run, question string) {
	t.Helper()
	run = strings.TrimSpace(s.must(t, append([]string{"run", "--detach"}, args...)...))
	s.until(t, tool+".*wants your approval", "run", "attach", run)
	question = regexp.MustCompile(run + `-\d+`).FindString(s.must(t, "approvals", "--run", run))
	if question == "" {
		t.Fatalf("nothing is asked by %s", run)
	}
	return run, question
}

// TestNoteArchive goes the way of the example's README, with the real server, a refusal, a move that fails, and a server that is killed while a
// person thinks.
func TestNoteArchive(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts the server")
	}
	withNPX(t)
	s := start(t)
	dir := folder(t, map[string]string{
		"a.md": "# Alpha\nstatus: done\nOne two\n", "b.md": "Three four five\n", "c.md": "# Gamma\nstatus: done\n", "archive/old.md": "# Old\nstatus: done\n",
	})
	input := fmt.Sprintf(`{"dir":%q}`, dir)

	s.must(t, "tools", "add", "notes", "--", "npx", "-y", "@modelcontextprotocol/server-filesystem", dir)
	s.must(t, "push", "note-archive", "--agent", "note-archive")
	if out, code := s.run(t, "", "run", "note-archive", "report", input); code == 0 || !strings.Contains(out, "notes.search_files") {
		t.Errorf("without grants: exit code %d\n%s", code, out)
	}
	if out, code := s.run(t, "", "agent", "update", "note-archive", "--grant-asked", "--yes"); code != 0 || !strings.Contains(out, "notes.move_file") {
		t.Fatalf("granting what it asks for: exit code %d\n%s", code, out)
	}

	// To write is asked about, and what was written is there.
	run, question := s.asked(t, "files.write", "note-archive", "report", input)
	s.must(t, "approvals", "approve", question)
	if got, want := s.must(t, "run", "attach", "-q", run), `{"notes":3,"file":"report.md"}`; cmp.Diff(value(want), value(got)) != "" {
		t.Errorf("the report: %s", got)
	}
	session := regexp.MustCompile(`(?m)"session": "(\w+)"`).FindStringSubmatch(s.must(t, "run", "show", run, "--json"))
	if session == nil {
		t.Fatal("the run has no session")
	}
	report := s.must(t, "file", "get", session[1], "report.md")
	if want := "| note | words | |\n|---|---|---|\n| Alpha | 6 | done |\n| b.md | 3 | open |\n| Gamma | 4 | done |\n"; report != want {
		t.Errorf("report.md is\n%s", report)
	}

	// One question is about all moves. No is no, for all of them.
	run, question = s.asked(t, "Archive", "note-archive", "archive", input)
	shown := s.must(t, "approvals", "show", question)
	for _, part := range []string{"Archive 2 of the notes in " + dir, "call 2 of 2", "archive/c.md", "notes.move_file"} {
		if !strings.Contains(shown, part) {
			t.Errorf("the question does not show %s:\n%s", part, shown)
		}
	}
	s.must(t, "approvals", "deny", question, "--reason", "not today")
	if got := s.must(t, "run", "attach", "-q", run); !strings.Contains(got, `"moved":[]`) || !strings.Contains(got, "not today") {
		t.Errorf("refused: %s", got)
	}
	holds(t, dir, "a.md", "archive/old.md", "b.md", "c.md")

	// When the second move fails, the first is taken back.
	if err := os.WriteFile(filepath.Join(dir, "archive", "c.md"), []byte("there"), 0o600); err != nil {
		t.Fatal(err)
	}
	run, question = s.asked(t, "Archive", "note-archive", "archive", input)
	s.must(t, "approvals", "approve", question)
	out, code := s.run(t, "", "run", "attach", "-q", run)
	if code == 0 || !strings.Contains(out, "call 2 of 2, notes.move_file, failed") || !strings.Contains(out, "call 1, notes.move_file, was undone") {
		t.Errorf("a move that fails: exit code %d\n%s", code, out)
	}
	holds(t, dir, "a.md", "archive/c.md", "archive/old.md", "b.md", "c.md")
	if err := os.Remove(filepath.Join(dir, "archive", "c.md")); err != nil {
		t.Fatal(err)
	}

	// A server that is killed while it waits asks the same, and makes each move once.
	run, question = s.asked(t, "Archive", "note-archive", "archive", input)
	s.server.crash(t)
	s.must(t, "approvals", "approve", question)
	want := fmt.Sprintf(`{"moved":["%[1]s/archive/a.md","%[1]s/archive/c.md"]}`, dir)
	if got := s.must(t, "run", "attach", "-q", run); cmp.Diff(value(want), value(got)) != "" {
		t.Errorf("got %s, want %s", got, want)
	}
	holds(t, dir, "archive/a.md", "archive/c.md", "archive/old.md", "b.md")
	s.is(t, `{"moved":[]}`, "run", "note-archive", "archive", input, "-q")

	// A message is answered, and only reads.
	id := strings.TrimSpace(s.must(t, "sessions", "create", "note-archive"))
	if got := s.must(t, "sessions", "send", id, dir); !strings.HasSuffix(got, "\n1 open: b.md\n") {
		t.Errorf("a message is answered with %s", got)
	}
}
