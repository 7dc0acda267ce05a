package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/memkv"
)

// TestKeptSecret looks at a secret while it is made, over and over: it is whole or not there at all, so a server that is killed meanwhile starts again.
func TestKeptSecret(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.key")
	made := make(chan struct{})
	go func() {
		defer close(made)
		for range 500 {
			b, err := keptSecret(dir, "a.key")
			again, err2 := keptSecret(dir, "a.key")
			if err != nil || err2 != nil || !bytes.Equal(b, again) {
				t.Error(err, err2, b, again)
			}
			if err := os.Remove(file); err != nil {
				t.Error(err)
			}
		}
	}()
	for looking := true; looking; {
		select {
		case <-made:
			looking = false
		default:
		}
		if b, err := os.ReadFile(file); err == nil && len(b) != 32 {
			t.Errorf("a secret has %d bytes", len(b))
			looking = false
		}
	}
	<-made
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Error(left, err)
	}

	if err := os.WriteFile(file, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := keptSecret(dir, "a.key"); err == nil {
		t.Error("a short secret was taken")
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, err := keptSecret(dir, "a.key"); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
		t.Error(st.Mode(), err)
	}
}

func TestImageSeed(t *testing.T) {
	dir := t.TempDir()
	st, err := store.Open(t.Context(), memkv.New(), t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	file, old := filepath.Join(dir, "image.seed"), bytes.Repeat([]byte{3}, store.SeedSize)
	if err := os.WriteFile(file, old, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"of an older data directory", "once it is in the store"} {
		if got, err := imageSeed(t.Context(), st, dir); err != nil || !bytes.Equal(got, old) {
			t.Errorf("%s: %x, %v", when, got, err)
		}
		if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the file is there still: %v", err)
		}
	}
}
