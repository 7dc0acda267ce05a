package ledger_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sort"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/kv"
	"github.com/skep-dev/skep/store/ledger"
	"github.com/skep-dev/skep/store/memkv"
)

const app = agent.DefaultApp

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// rig is a data directory whose ledger can be opened again and again, as after a crash or a stop.
type rig struct {
	t   *testing.T
	dir string
	db  kv.DB             // what is on disk
	via func(kv.DB) kv.DB // what the store sees of it
	st  *store.Store
	*ledger.Ledger
	log *lines
}

// lines keeps what a ledger logs.
type lines struct{ b []byte }

func (l *lines) Write(b []byte) (int, error) { l.b = append(l.b, b...); return len(b), nil }

func newRig(t *testing.T, o ledger.Options) *rig {
	r := &rig{t: t, dir: t.TempDir(), db: memkv.New(), via: func(db kv.DB) kv.DB { return db }}
	r.open(o)
	t.Cleanup(func() { r.Ledger.Close(); r.st.Close() })
	return r
}

func (r *rig) tryOpen(o ledger.Options) (err error) {
	r.t.Helper()
	if r.st, err = store.Open(r.t.Context(), r.via(r.db), r.dir, &store.Options{Check: -1, Now: func() time.Time { return noon }}); err != nil {
		r.t.Fatal(err)
	}
	r.log = &lines{}
	o.Log = slog.New(slog.NewTextHandler(r.log, nil))
	if o.MinFree == 0 {
		o.MinFree = -1
	}
	l, err := ledger.Open(r.t.Context(), r.st, r.dir, &o)
	if err == nil {
		r.Ledger = l
	}
	return err
}

func (r *rig) open(o ledger.Options) {
	r.t.Helper()
	if err := r.tryOpen(o); err != nil {
		r.t.Fatal(err)
	}
}

// crash leaves everything as a killed process does, and opens it again.
func (r *rig) crash(o ledger.Options) {
	r.t.Helper()
	r.st.Close()
	r.open(o)
}

func (r *rig) add(events ...agent.UsageEvent) {
	r.t.Helper()
	for _, e := range events {
		if err := r.Append(e); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *rig) fold() {
	r.t.Helper()
	if err := r.Fold(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// call is an event that is unlike any other n.
func call(at time.Time, name string, n int) agent.UsageEvent {
	return agent.UsageEvent{
		Time: at, Kind: agent.UseCall, App: app, Agent: name, Function: fmt.Sprintf("f%d", n), Outcome: agent.Succeeded,
		Cost: agent.Cost{CPU: time.Duration(n), Wall: 2, Memory: int64(n), In: 3, Out: 4, Sent: 5, Received: 6, HostCalls: 7, Fuel: 8},
	}
}

// rows returns the usage of all days, told apart by everything.
func (r *rig) rows() []agent.UsageRow {
	r.t.Helper()
	rows, err := r.Rows(r.t.Context(), ledger.Query{
		App: app, From: noon.AddDate(0, 0, -400), To: noon.AddDate(0, 0, 400), By: ledger.ByDay | ledger.ByAgent | ledger.ByKind,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return rows
}

// count returns how many events the rollups and the rest make together.
func (r *rig) count() (n int64) {
	r.t.Helper()
	for _, row := range r.rows() {
		n += row.Events
	}
	return n
}

// all returns every event that is kept in detail.
func (r *rig) all() (out []ledger.Entry) {
	r.t.Helper()
	for after := ""; ; {
		page, next, err := r.Events(r.t.Context(), ledger.Query{App: app, To: noon.AddDate(10, 0, 0)}, after, 100)
		if err != nil {
			r.t.Fatal(err)
		}
		out = append(out, page...)
		if next == "" {
			return out
		}
		after = next
	}
}

// files returns the segments, oldest first.
func (r *rig) files() []string {
	r.t.Helper()
	list, err := filepath.Glob(filepath.Join(r.dir, "usage", "*.usage"))
	if err != nil {
		r.t.Fatal(err)
	}
	sort.Strings(list)
	return list
}

func (r *rig) newest() string { list := r.files(); return list[len(list)-1] }

func edit(t *testing.T, path string, change func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, change(b), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
