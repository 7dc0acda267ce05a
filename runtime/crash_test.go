package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/internal/crashtest"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/runtime/quota"
	"github.com/skep-dev/skep/runtime/runtimetest"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/badgerkv"
	"github.com/skep-dev/skep/store/ledger"
)

func TestMain(m *testing.M) { crashtest.Main(m, map[string]crashtest.Work{"call": callForEver}) }

// openDir opens a data directory as a server does.
func openDir(ctx context.Context, dir string) (*runtime.Runtime, func() error, error) {
	db, err := badgerkv.Open(filepath.Join(dir, "kv"), nil)
	if err != nil {
		return nil, nil, err
	}
	st, err := store.Open(ctx, db, dir, nil)
	if err != nil {
		return nil, nil, err
	}
	l, err := ledger.Open(ctx, st, dir, &ledger.Options{Segment: 256 << 10})
	if err != nil {
		return nil, nil, err
	}
	k, err := quota.Load(ctx, l)
	if err != nil {
		return nil, nil, err
	}
	cells := runtimetest.New(map[string]runtimetest.Func{"f": echo})
	cells.Any = echo
	r := runtime.New(st, cells, &runtime.Options{Ledger: l, Quotas: k})
	return r, func() error { return errors.Join(l.Close(), st.Close(), db.Close()) }, nil
}

const callers = 8

// callForEver makes calls from several goroutines, each of a function of its own name, and prints what was answered.
func callForEver(dir, _ string) error {
	ctx := context.Background()
	r, _, err := openDir(ctx, dir)
	if err != nil {
		return err
	}
	go r.Ledger().Run(ctx)
	failed := make(chan error)
	go func() {
		for {
			if err := r.Ledger().Fold(ctx); err != nil {
				failed <- err
			}
		}
	}()
	var out sync.Mutex
	for w := range callers {
		go func() {
			for i := 0; ; i++ {
				name := fmt.Sprintf("f-%d-%d-%d", os.Getpid(), w, i)
				res, err := r.Call(ctx, app, runtime.CallRequest{Agent: "a", Function: name, Input: agent.Text("0123456789")})
				if err != nil {
					failed <- err
					return
				}
				out.Lock()
				fmt.Println(name, len(res.Output.Body))
				out.Unlock()
			}
		}()
	}
	return <-failed
}

// A server that is killed again and again has every call that it answered in the ledger, once: in detail, in the sums, and in
// what it counts for quotas when it is started again.
func TestUsageCrash(t *testing.T) {
	dir := t.TempDir()
	open := func() (*runtime.Runtime, func() error) {
		r, done, err := openDir(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		return r, done
	}
	r, done := open()
	if _, _, err := r.PutPlugin(t.Context(), app, runtime.Upload{Name: "code", Filename: "a.ts", Body: []byte("export {}")}, store.Once{}, nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.CreateAgent(t.Context(), agent.Agent{App: app, Name: "a", Plugin: "code"}, store.Once{}); err != nil {
		t.Fatal(err)
	}
	done()
	answered := map[string]bool{}
	for round := range 3 {
		crashtest.Kill(t, "call", dir, "", 50+rand.IntN(800), func(line string) {
			name, _, _ := strings.Cut(line, " ")
			answered[name] = true
		})

		r, done := open()
		there, bytes := map[string]int{}, int64(0)
		q := ledger.Query{App: app, To: time.Now().Add(time.Hour)}
		for after := ""; ; {
			page, next, err := r.Ledger().Events(t.Context(), q, after, 1000)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range page {
				there[e.Function]++
				bytes += e.Bytes()
			}
			if after = next; next == "" {
				break
			}
		}
		for name := range answered {
			if there[name] != 1 {
				t.Errorf("call %s was answered and is there %d times", name, there[name])
			}
		}
		for name, n := range there {
			if n != 1 {
				t.Errorf("call %s is there %d times", name, n)
			}
		}
		if extra := len(there) - len(answered); extra > (round+1)*callers {
			t.Errorf("%d calls are there that were not answered", extra)
		}
		rows, err := r.Ledger().Rows(t.Context(), ledger.Query{App: app, From: time.Now().AddDate(0, 0, -1), To: time.Now()})
		if err != nil || len(rows) != 1 || rows[0].Events != int64(len(there)) || rows[0].Bytes() != bytes {
			t.Errorf("%d events with %d bytes, but the sums are %+v, %v", len(there), bytes, rows, err)
		}
		uses, err := r.QuotaUses(t.Context(), app, []agent.Agent{{Name: "a"}})
		if err != nil || uses[0].Bytes != bytes || uses[1].Bytes != bytes {
			t.Errorf("quotas count %+v, %v, want %d bytes", uses, err, bytes)
		}
		if err := done(); err != nil {
			t.Error(err)
		}
	}
}
