package main

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// TestPackWorktree packs a worktree of git, whose .git is a file that says where the repository is: there is none to go along, so neither does the file.
func TestPackWorktree(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not there")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"repo/a.txt": "a", "repo/.gitignore": "*.log\n"} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"init", "-q"}, {"add", "-A"}, {"-c", "user.name=Ada", "-c", "user.email=ada@example.com", "commit", "-qm", "first"}, {"worktree", "add", "-q", "../tree"},
	} {
		if out, err := exec.Command("git", append([]string{"-C", filepath.Join(dir, "repo")}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "tree", "a.log"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := packFolder(filepath.Join(dir, "tree"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var names []string
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
	}
	if want := []string{".gitignore", "a.txt"}; !slices.Equal(names, want) {
		t.Errorf("%q are packed, not %q", names, want)
	}
}
