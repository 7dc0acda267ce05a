package store_test

import (
	"math"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/memkv"
)

// On a disk that is nearly full nothing is written, and all is read. (internal/fault fills real disks.)
func TestNearlyFullDisk(t *testing.T) {
	db, dir := memkv.New(), t.TempDir()
	s := openStore(t, db, dir, nil)
	addAgent(t, s, "a")
	s.Close()
	s = openStore(t, db, dir, &store.Options{MinFree: math.MaxInt64})
	_, _, err := s.CreateAgent(t.Context(), agent.Agent{App: app, Name: "b"}, store.Once{})
	wantKind(t, err, agent.Unavailable)
	if e := agent.AsError(err); !strings.Contains(e.Msg, "nearly full") || !strings.Contains(e.Hint, "room") {
		t.Errorf("error is %q, %q", e.Msg, e.Hint)
	}
	_, err = s.PutBlob(t.Context(), []byte("x"))
	wantKind(t, err, agent.Unavailable)
	if _, err := s.Agent(t.Context(), app, "a"); err != nil {
		t.Error(err)
	}
	if err := s.Blobs(t.Context(), func(d agent.Digest, _ int64) error { t.Errorf("blob %s is there", d); return nil }); err != nil {
		t.Error(err)
	}
}
