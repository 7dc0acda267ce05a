package engine_test

import (
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/engine"
)

func TestKind(t *testing.T) {
	for k := engine.Unknown; k <= engine.Memory; k++ {
		b, _ := k.MarshalText()
		got := engine.Kind(99)
		if err := got.UnmarshalText(b); err != nil || got != k {
			t.Errorf("%s became %s, %v", k, got, err)
		}
	}
	if err := new(engine.Kind).UnmarshalText([]byte("floppy")); agent.KindOf(err) != agent.Invalid {
		t.Errorf("error is %v", err)
	}
}

// A directory is opened as what it is, and as nothing else.
func TestOpen(t *testing.T) {
	for _, k := range []engine.Kind{engine.Badger, engine.Pebble} {
		dir := t.TempDir()
		if got, err := engine.Detect(dir); got != engine.Unknown || err != nil {
			t.Fatal(got, err)
		}
		for _, as := range []engine.Kind{k, engine.Unknown, k} {
			db, err := engine.Open(dir, as, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			if got, err := engine.Detect(dir); got != k || err != nil {
				t.Errorf("a directory of kind %s is %s, %v", k, got, err)
			}
		}
		_, err := engine.Open(dir, engine.Badger+engine.Pebble-k, nil)
		if agent.KindOf(err) != agent.Conflict || !strings.Contains(err.Error(), dir) {
			t.Errorf("the other kind was answered %v", err)
		}
	}
}
