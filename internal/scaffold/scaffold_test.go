package scaffold

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
)

func TestGoProject(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "hive")
	if _, err := Write(dir, "hive", Go); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"vet", "."}, {"test", "."}} {
		cmd := exec.Command("go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

func TestTypeScriptProject(t *testing.T) {
	dir := t.TempDir()
	files, err := Write(dir, "hive", TypeScript)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{".gitignore", ".skep/chat.d.ts", ".skep/durable.d.ts", ".skep/index.d.ts", ".skep/model.d.ts", ".skep/sandbox.d.ts", ".skep/testing.d.ts", ".skep/tools.d.ts", "README.md", "main.ts", "package.json", "tsconfig.json"}
	if !slices.Equal(files, want) {
		t.Errorf("files = %v, want %v", files, want)
	}
	readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil || !strings.Contains(string(readme), "skep call hive greet") {
		t.Errorf("README does not name the agent: %v", err)
	}
}

func TestNothingIsOverwritten(t *testing.T) {
	dir := t.TempDir()
	mine := filepath.Join(dir, "tsconfig.json")
	if err := os.WriteFile(mine, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Write(dir, "hive", TypeScript); agent.KindOf(err) != agent.Exists {
		t.Fatalf("got %v, want an exists error", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the directory has %v, want only the file that was there", entries)
	}
}

func TestBadNames(t *testing.T) {
	for _, name := range []string{"", "Hive", "../up", "a b"} {
		if _, err := Write(t.TempDir(), name, Go); agent.KindOf(err) != agent.Invalid {
			t.Errorf("Write(%q): got %v, want an invalid error", name, err)
		}
	}
}
