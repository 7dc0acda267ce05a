package store_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/kv"
	"github.com/skep-dev/skep/store/memkv"
)

func TestReopen(t *testing.T) {
	dir := t.TempDir()
	for round := range 3 {
		db := openBadger(t, dir)
		s := openStore(t, db, dir, nil)
		if round == 0 {
			addAgent(t, s, "a")
			addSession(t, s, "a")
		}
		list, _, err := s.Sessions(t.Context(), app, "", agent.Page{})
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		evs, err := s.Append(t.Context(), store.SessionLog(app, list[0].ID), events(1))
		if err != nil || evs[0].Seq != int64(round+1) {
			t.Fatal(evs, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNewerFormatIsRefused(t *testing.T) {
	db, dir := memkv.New(), t.TempDir()
	openStore(t, db, dir, nil).Close()
	apply(t, db, kv.Change{Key: []byte("meta/format"), Value: store.Seal("meta/format", []byte(`{"format":2,"needs":"1.7.0"}`))})
	_, err := store.Open(t.Context(), db, dir, nil)
	wantKind(t, err, agent.Unavailable)
	if e := agent.AsError(err); !strings.Contains(e.Hint, "1.7.0") || !strings.Contains(e.Msg, "format 2") {
		t.Errorf("the error does not say which Skep is needed: %q, %q", e.Msg, e.Hint)
	}
}

func TestForeignDatabaseIsRefused(t *testing.T) {
	db := memkv.New()
	apply(t, db, kv.Change{Key: []byte("some"), Value: []byte("thing")})
	_, err := store.Open(t.Context(), db, t.TempDir(), nil)
	wantCorrupt(t, err, "meta/format")
}

// copyOf returns a database that holds what db holds now.
func copyOf(t *testing.T, db kv.DB) kv.DB {
	t.Helper()
	out := memkv.New()
	apply(t, out, keys(t, db, "")...)
	return out
}

// A database that has forgotten its newest commits looks whole by itself; the witness tells.
func TestLostCommitsAreNoticed(t *testing.T) {
	for name, closed := range map[string]bool{"closed": true, "killed": false} {
		t.Run(name, func(t *testing.T) {
			db, dir := memkv.New(), t.TempDir()
			s := openStore(t, db, dir, nil)
			addAgent(t, s, "a")
			early := copyOf(t, db)
			addAgent(t, s, "b")
			witness := must(os.ReadFile(filepath.Join(dir, "commit")))(t)
			s.Close()
			if !closed {
				if err := os.WriteFile(filepath.Join(dir, "commit"), witness, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, err := store.Open(t.Context(), early, dir, nil)
			wantCorrupt(t, err, "the database")
			openStore(t, db, dir, nil) // the whole one is accepted
		})
	}
}

func TestDamagedWitness(t *testing.T) {
	db, dir := memkv.New(), t.TempDir()
	s := openStore(t, db, dir, nil)
	addAgent(t, s, "a")
	s.Close()
	file := filepath.Join(dir, "commit")
	good := must(os.ReadFile(file))(t)
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 1
		if err := os.WriteFile(file, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := store.Open(t.Context(), db, dir, nil)
		wantCorrupt(t, err, file)
	}
	// Behind, as a power cut leaves it, is fine.
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	openStore(t, db, dir, nil)
}

// After an unclean stop the store is checked as it is opened; after a clean one it is not.
func TestCheckAfterCrash(t *testing.T) {
	db, dir := memkv.New(), t.TempDir()
	s := openStore(t, db, dir, nil)
	addAgent(t, s, "a")
	dirty := must(os.ReadFile(filepath.Join(dir, "commit")))(t)
	s.Close()
	apply(t, db, kv.Change{Key: []byte("ord/agents/default/0000000000000001"), Delete: true})
	openStore(t, db, dir, nil).Close()
	if err := os.WriteFile(filepath.Join(dir, "commit"), dirty, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := store.Open(t.Context(), db, dir, nil)
	wantCorrupt(t, err, "ord/agents/default/0000000000000001")
	openStore(t, db, dir, &store.Options{Check: -1})
}

// hasty is a context whose time is up once it was asked so often.
type hasty struct {
	context.Context
	left int
}

func (h *hasty) Err() error {
	if h.left--; h.left < 0 {
		return context.DeadlineExceeded
	}
	return nil
}

// A check that is out of time, wherever it is, has found no damage: a start on a busy machine is not refused for it.
func TestVerifyOutOfTime(t *testing.T) {
	s := memStore(t)
	addAgent(t, s, "a")
	d := must(s.PutBlob(t.Context(), []byte("code")))(t)
	if _, _, err := s.PutPlugin(t.Context(), agent.Plugin{App: app, Name: "p", Version: "1.0.0", Digest: d, Size: 4}, store.Once{}); err != nil {
		t.Fatal(err)
	}
	for n := 0; ; n++ {
		if n > 10_000 {
			t.Fatal("it never ends")
		}
		err := s.Verify(&hasty{t.Context(), n})
		if err == nil {
			break
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("after %d looks at the time: %v", n, err)
		}
	}
}

func TestVerifyStops(t *testing.T) {
	s := memStore(t)
	addAgent(t, s, "a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Verify(ctx); err != context.Canceled {
		t.Errorf("error is %v", err)
	}
}
