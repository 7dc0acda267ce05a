package badgerkv_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/badgerkv"
	"github.com/skep-dev/skep/store/kv"
	"github.com/skep-dev/skep/store/kv/kvtest"
)

func open(t *testing.T, dir string) *badgerkv.DB {
	t.Helper()
	db, err := badgerkv.Open(dir, nil)
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
	_, err := badgerkv.Open(dir, nil)
	if agent.KindOf(err) != agent.Unavailable || !strings.Contains(err.Error(), dir) {
		t.Errorf("a second Open returned %v", err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, dir).Close()
}

func TestFullDisk(t *testing.T) {
	_, err := badgerkv.Open(t.TempDir(), &badgerkv.Options{MinFree: math.MaxInt64})
	if !errors.Is(err, kv.ErrFull) {
		t.Errorf("Open on a full disk returned %v", err)
	}
}

// A flipped bit in a table is found when the database was not closed.
func TestDamagedTable(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir)
	for i := range 20 {
		if err := db.Apply(t.Context(), []kv.Change{{Key: []byte{'k', byte(i)}, Value: make([]byte, 10_000)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("no tables: %v", err)
	}
	b, err := os.ReadFile(tables[0])
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/3] ^= 4
	if err := os.WriteFile(tables[0], b, 0o600); err != nil {
		t.Fatal(err)
	}
	// As a killed process leaves it.
	if err := os.WriteFile(filepath.Join(dir, "open"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = badgerkv.Open(dir, nil)
	if err == nil || !strings.Contains(err.Error(), "is damaged") {
		t.Errorf("Open of a damaged database returned %v", err)
	}
}

// Each batch is in the file that is synced for it, also when Badger begins another one.
func TestJournal(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir)
	defer db.Close()
	if db.Journal() == "" {
		t.Skip("Badger syncs here")
	}
	journals := map[string]bool{}
	for i := range 80 {
		value := bytes.Repeat(fmt.Appendf(nil, "value %02d ", i), 25_000)
		if err := db.Apply(t.Context(), []kv.Change{{Key: []byte{'k', byte(i)}, Value: value}}); err != nil {
			t.Fatal(err)
		}
		newest := db.Journal()
		if journals[newest] && i > 0 {
			continue
		}
		journals[newest] = true
		if b, err := os.ReadFile(newest); err != nil || !bytes.Contains(b, value) {
			t.Fatalf("batch %d is not in %s: %v", i, newest, err)
		}
		names, err := filepath.Glob(filepath.Join(dir, "*.mem"))
		if err != nil || newest != slices.Max(names) {
			t.Fatalf("%s was synced of %v, %v", newest, names, err)
		}
	}
	if len(journals) < 2 {
		t.Errorf("all was in %v", journals)
	}
}
