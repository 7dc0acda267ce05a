package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/internal/crashtest"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/badgerkv"
)

func TestMain(m *testing.M) {
	crashtest.Main(m, map[string]crashtest.Work{"commit": commitForEver, "edit": editForEver, "turn": turnForEver})
}

// openDir opens a store on Badger in dir.
func openDir(ctx context.Context, dir string) (*store.Store, func(), error) {
	db, err := badgerkv.Open(filepath.Join(dir, "kv"), nil)
	if err != nil {
		return nil, nil, err
	}
	s, err := store.Open(ctx, db, dir, nil)
	if err != nil {
		return nil, nil, err
	}
	return s, func() { s.Close(); db.Close() }, nil
}

// reopen is openDir in a test, which fails when it does.
func reopen(t *testing.T, dir string) (*store.Store, func()) {
	t.Helper()
	s, done, err := openDir(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return s, done
}

// commitForEver appends to a log from several goroutines, and prints each event that was acknowledged.
func commitForEver(dir, _ string) error {
	ctx := context.Background()
	s, _, err := openDir(ctx, dir)
	if err != nil {
		return err
	}
	list, _, err := s.Sessions(ctx, app, "", agent.Page{})
	if err != nil {
		return err
	}
	log := store.SessionLog(app, list[0].ID)
	var out sync.Mutex
	failed := make(chan error)
	for w := range 8 {
		go func() {
			for i := 0; ; i++ {
				data := fmt.Sprintf(`"%d-%d-%d"`, os.Getpid(), w, i)
				evs, err := s.Append(ctx, log, []agent.Event{{Kind: agent.EventEmit, Data: json.RawMessage(data)}})
				if err != nil {
					failed <- err
					return
				}
				out.Lock()
				fmt.Printf("%d %s\n", evs[0].Seq, data)
				out.Unlock()
			}
		}()
	}
	return <-failed
}

// A process that is killed again and again loses nothing that it acknowledged, and doubles nothing.
func TestCrash(t *testing.T) {
	dir := t.TempDir()
	s, done := reopen(t, dir)
	addAgent(t, s, "a")
	log := store.SessionLog(app, addSession(t, s, "a").ID)
	done()

	acked := map[int64]string{}
	for round := range 4 {
		crashtest.Kill(t, "commit", dir, "", 200+100*round, func(line string) {
			var seq int64
			var data string
			if _, err := fmt.Sscanf(line, "%d %s", &seq, &data); err != nil {
				t.Fatalf("line %q: %v", line, err)
			}
			if old, ok := acked[seq]; ok {
				t.Errorf("event %d was acknowledged as %s and as %s", seq, old, data)
			}
			acked[seq] = data
		})

		s, done := reopen(t, dir)
		_, last, err := s.Bounds(t.Context(), log)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		n := int64(0)
		for n < last {
			evs, err := s.Read(t.Context(), log, n, 1000)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range evs {
				if n++; e.Seq != n {
					t.Fatalf("event %d follows %d", e.Seq, n-1)
				}
				if want, ok := acked[n]; ok && want != string(e.Data) {
					t.Errorf("event %d is %s, and was acknowledged as %s", n, e.Data, want)
				}
				if seen[string(e.Data)] {
					t.Errorf("event %s is there twice", e.Data)
				}
				seen[string(e.Data)] = true
			}
		}
		for seq := range acked {
			if seq > last {
				t.Errorf("event %d was acknowledged; the log ends at %d", seq, last)
			}
		}
		if err := s.Verify(t.Context()); err != nil {
			t.Error(err)
		}
		done()
	}
}
