package pebblekv

import (
	"errors"
	"testing"

	"github.com/skep-dev/skep/store/kv"
)

// A disk that fails during a commit fails the database and not the process: nothing more is read or written, and what was
// acknowledged is there when it is opened anew in the same process.
func TestDiskFails(t *testing.T) {
	dir := t.TempDir()
	db, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	put := func(key string) error {
		return db.Apply(t.Context(), []kv.Change{{Key: []byte(key), Value: []byte("v")}})
	}
	if err := put("before"); err != nil {
		t.Fatal(err)
	}
	db.mu.Lock()
	db.dead = true // every write fails from here
	db.mu.Unlock()
	if err := put("during"); !errors.Is(err, errDead) {
		t.Fatalf("a commit to a failing disk returned %v", err)
	}
	if err := put("after"); err == nil {
		t.Error("a commit after it succeeded")
	}
	if err := db.View(t.Context(), func(kv.Reader) error { return nil }); err == nil {
		t.Error("a view after it succeeded, though it may show what is not durable")
	}
	if err := db.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}

	if db, err = Open(dir, nil); err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.View(t.Context(), func(r kv.Reader) error {
		_, before, err := r.Get([]byte("before"))
		_, after, err2 := r.Get([]byte("after"))
		if !before || after {
			t.Errorf("the acknowledged key is there: %t, the refused one: %t", before, after)
		}
		return errors.Join(err, err2)
	})
	if err != nil {
		t.Error(err)
	}
	if err := put("again"); err != nil {
		t.Error(err)
	}
}

// A fatal error of Pebble in the background refuses commits; what was there can be read and the database closed.
func TestFatalInBackground(t *testing.T) {
	db, err := Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.guarded(func() error { logger{db}.Fatalf("no %s", "luck"); t.Error("Fatalf returned"); return nil })
	if !errors.Is(err, errDead) {
		t.Errorf("error is %v", err)
	}
	if err := db.Apply(t.Context(), []kv.Change{{Key: []byte("a")}}); err == nil {
		t.Error("a commit succeeded")
	}
	if err := db.View(t.Context(), func(kv.Reader) error { return nil }); err != nil {
		t.Error(err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}
