package faultkv_test

import (
	"errors"
	"testing"

	"github.com/skep-dev/skep/store/faultkv"
	"github.com/skep-dev/skep/store/kv"
	"github.com/skep-dev/skep/store/kv/kvtest"
	"github.com/skep-dev/skep/store/memkv"
)

// Without a plan it is the database below.
func TestConformance(t *testing.T) {
	kvtest.Run(t, func(*testing.T) kv.DB {
		return faultkv.New(memkv.New(), func(faultkv.Op) faultkv.Fault { return faultkv.Fault{} })
	})
}

func set(key string) []kv.Change { return []kv.Change{{Key: []byte(key), Value: []byte("v")}} }

func has(t *testing.T, db kv.DB, key string) (found bool) {
	t.Helper()
	err := db.View(t.Context(), func(r kv.Reader) (err error) {
		_, found, err = r.Get([]byte(key))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestNth(t *testing.T) {
	for _, took := range []bool{false, true} {
		inner := memkv.New()
		db := faultkv.New(inner, faultkv.Nth(faultkv.Apply, 2, faultkv.Fault{Err: faultkv.ErrFault, Took: took}))
		for i, key := range []string{"a", "b", "c"} {
			err := db.Apply(t.Context(), set(key))
			if failed := i == 1; errors.Is(err, faultkv.ErrFault) != failed {
				t.Errorf("apply %d: %v", i+1, err)
			}
		}
		if !has(t, inner, "a") || has(t, inner, "b") != took || !has(t, inner, "c") {
			t.Errorf("took=%v: the wrong batch took effect", took)
		}
	}
}

func TestByKey(t *testing.T) {
	db := faultkv.New(memkv.New(), func(o faultkv.Op) faultkv.Fault {
		if o.Touches("bad/") {
			return faultkv.Fault{Err: faultkv.ErrFault}
		}
		return faultkv.Fault{}
	})
	if err := db.Apply(t.Context(), set("good/1")); err != nil {
		t.Error(err)
	}
	if err := db.Apply(t.Context(), set("bad/1")); !errors.Is(err, faultkv.ErrFault) {
		t.Errorf("Apply returned %v", err)
	}
	err := db.View(t.Context(), func(r kv.Reader) error {
		_, _, err := r.Get([]byte("bad/1"))
		return err
	})
	if !errors.Is(err, faultkv.ErrFault) {
		t.Errorf("Get returned %v", err)
	}
}

func TestCrash(t *testing.T) {
	inner := memkv.New()
	db := faultkv.New(inner, faultkv.Nth(faultkv.Apply, 1, faultkv.Fault{Err: faultkv.ErrFault, Took: true, Crash: true}))
	if err := db.Apply(t.Context(), set("a")); !errors.Is(err, faultkv.ErrFault) {
		t.Errorf("Apply returned %v", err)
	}
	if err := db.Apply(t.Context(), set("b")); !errors.Is(err, faultkv.ErrCrashed) {
		t.Errorf("Apply after a crash returned %v", err)
	}
	if err := db.View(t.Context(), func(kv.Reader) error { return nil }); !errors.Is(err, faultkv.ErrCrashed) {
		t.Errorf("View after a crash returned %v", err)
	}
	if !has(t, inner, "a") || has(t, inner, "b") {
		t.Error("the wrong batch took effect")
	}
}
