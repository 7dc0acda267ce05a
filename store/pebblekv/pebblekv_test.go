package pebblekv_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/kv"
	"github.com/skep-dev/skep/store/kv/kvtest"
	"github.com/skep-dev/skep/store/pebblekv"
)

func open(t *testing.T, dir string) *pebblekv.DB {
	t.Helper()
	db, err := pebblekv.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func TestConformance(t *testing.T) {
	kvtest.Run(t, func(t *testing.T) kv.DB { return open(t, t.TempDir()) })
	t.Run("Reopen", func(t *testing.T) {
		kvtest.RunReopen(t, func(t *testing.T, dir string) kv.DB { return open(t, dir) })
	})
}

func TestOneProcess(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir)
	_, err := pebblekv.Open(dir, nil)
	if agent.KindOf(err) != agent.Unavailable || !strings.Contains(err.Error(), dir) {
		t.Errorf("a second Open returned %v", err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, dir).Close()
}

func TestFullDisk(t *testing.T) {
	_, err := pebblekv.Open(t.TempDir(), &pebblekv.Options{MinFree: math.MaxInt64})
	if !errors.Is(err, kv.ErrFull) {
		t.Errorf("Open on a full disk returned %v", err)
	}
}

// flip changes one bit in the only file that pattern names, at a place in parts of its length.
func flip(t *testing.T, pattern string, part float64) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no %s: %v", pattern, err)
	}
	name := files[len(files)-1]
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	b[int(float64(len(b))*part)] ^= 4
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func fill(t *testing.T, db kv.DB) {
	t.Helper()
	for i := range 20 {
		if err := db.Apply(t.Context(), []kv.Change{{Key: []byte{'k', byte(i)}, Value: make([]byte, 10_000)}}); err != nil {
			t.Fatal(err)
		}
	}
}

// A damaged table is an error for who reads it and for who writes thereafter; the process goes on.
func TestDamagedTable(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir)
	fill(t, db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = open(t, dir) // writes the table
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	flip(t, filepath.Join(dir, "*.sst"), 0.1)
	db = open(t, dir)
	defer db.Close()
	err := db.View(t.Context(), func(r kv.Reader) error {
		return r.Scan(nil, nil, false, func(_, _ []byte) error { return nil })
	})
	if !errors.Is(err, kv.ErrCorrupt) {
		t.Fatalf("a scan of damaged data returned %v", err)
	}
	err = db.Apply(t.Context(), []kv.Change{{Key: []byte("a")}})
	if !errors.Is(err, kv.ErrCorrupt) {
		t.Errorf("an Apply to a damaged database returned %v", err)
	}
	err = db.View(t.Context(), func(r kv.Reader) error {
		_, found, err := r.Get([]byte("a"))
		if found {
			t.Error("a refused Apply happened")
		}
		return err
	})
	if err != nil && !errors.Is(err, kv.ErrCorrupt) {
		t.Error(err)
	}
}

func TestDamagedManifest(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir)
	fill(t, db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	flip(t, filepath.Join(dir, "MANIFEST-*"), 0.5)
	_, err := pebblekv.Open(dir, nil)
	if !errors.Is(err, kv.ErrCorrupt) || !strings.Contains(err.Error(), "is damaged") {
		t.Errorf("Open of a damaged database returned %v", err)
	}
	open(t, t.TempDir()).Close() // the process lives
}
