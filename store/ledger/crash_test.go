package ledger_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/internal/crashtest"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/badgerkv"
	"github.com/skep-dev/skep/store/ledger"
)

func TestMain(m *testing.M) {
	crashtest.Main(m, map[string]crashtest.Work{"append": appendForEver, "call": callForEver})
}

type opened struct {
	*ledger.Ledger
	close func()
}

func openDir(ctx context.Context, dir string) (opened, error) {
	db, err := badgerkv.Open(filepath.Join(dir, "kv"), nil)
	if err != nil {
		return opened{}, err
	}
	st, err := store.Open(ctx, db, dir, nil)
	if err != nil {
		return opened{}, err
	}
	l, err := ledger.Open(ctx, st, dir, &ledger.Options{Segment: 128 << 10})
	return opened{l, func() { l.Close(); st.Close(); db.Close() }}, err
}

const writers = 8

// appendForEver appends events from several goroutines, each of its own name, and prints those that were taken; meanwhile it
// folds as fast as it can.
func appendForEver(dir, _ string) error {
	ctx := context.Background()
	l, err := openDir(ctx, dir)
	if err != nil {
		return err
	}
	failed := make(chan error)
	go func() {
		for {
			if err := l.Fold(ctx); err != nil {
				failed <- err
			}
		}
	}()
	var out sync.Mutex
	for w := range writers {
		go func() {
			for i := 0; ; i++ {
				e := call(time.Now(), "a", i)
				e.Function = fmt.Sprintf("%d-%d-%d", os.Getpid(), w, i)
				if err := l.Append(e); err != nil {
					failed <- err
					return
				}
				out.Lock()
				fmt.Println(e.Function)
				out.Unlock()
			}
		}()
	}
	return <-failed
}

// A process that is killed again and again, while it appends, folds and begins segments, loses nothing that it has taken, and
// counts nothing twice.
func TestCrash(t *testing.T) {
	dir := t.TempDir()
	taken := map[string]bool{}
	for round := range 3 {
		crashtest.Kill(t, "append", dir, "", 100+rand.IntN(900), func(line string) { taken[line] = true })

		l, err := openDir(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		events := map[string]int{}
		for after := ""; ; {
			page, next, err := l.Events(t.Context(), ledger.Query{App: app, To: time.Now().Add(time.Hour)}, after, 1000)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range page {
				events[e.Function]++
			}
			if after = next; next == "" {
				break
			}
		}
		for name := range taken {
			if events[name] != 1 {
				t.Errorf("event %s is there %d times", name, events[name])
			}
		}
		// What is there beyond what was printed is what the killed writers were about to print.
		if extra := len(events) - len(taken); extra < 0 || extra > (round+1)*writers {
			t.Errorf("%d events are there that were not taken", extra)
		}
		rows, err := l.Rows(t.Context(), ledger.Query{App: app, From: time.Now().AddDate(0, 0, -1), To: time.Now()})
		if err != nil || len(rows) != 1 || rows[0].Events != int64(len(events)) {
			t.Errorf("%d events, rows %+v, %v", len(events), rows, err)
		}
		if rows[0].Kind != agent.UnknownUse {
			t.Errorf("kind %s", rows[0].Kind)
		}
		l.close()
	}
}
