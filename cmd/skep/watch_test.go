package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestWatcherSeesSaves(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "main.ts")
	write(t, file, "1")
	write(t, filepath.Join(dir, "other.txt"), "1")
	saves := map[string]func(){
		"in place": func() { write(t, file, "2") },
		"by renaming a new file over it": func() {
			write(t, file+"~", "3")
			if err := os.Rename(file+"~", file); err != nil {
				t.Fatal(err)
			}
		},
		"again after that": func() { write(t, file, "4") },
	}
	for _, root := range []string{file, dir} {
		w, err := newWatcher(root)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		for how, save := range saves {
			save()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			if err := w.wait(ctx); err != nil {
				t.Errorf("watching %s: a save %s was not seen: %v", filepath.Base(root), how, err)
			}
			cancel()
		}
	}
}

func TestWatcherFollowsNewDirectories(t *testing.T) {
	dir := t.TempDir()
	w, err := newWatcher(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	sub := filepath.Join(dir, "lib")
	if err := os.Mkdir(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := w.wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(sub, "a.ts"), "1")
	if err := w.wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestWatcherIgnores(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "main.ts")
	write(t, file, "1")
	w, err := newWatcher(file)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	write(t, filepath.Join(dir, "other.ts"), "1")
	ctx, cancel := context.WithTimeout(t.Context(), 3*settle)
	defer cancel()
	if err := w.wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a change of another file: got %v, want silence", err)
	}
}

func write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
