package store_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/faultkv"
	"github.com/skep-dev/skep/store/kv"
	"github.com/skep-dev/skep/store/memkv"
)

// switchboard is a plan that a test changes as it goes.
type switchboard struct {
	mu   sync.Mutex
	plan func(faultkv.Op) faultkv.Fault
}

func (s *switchboard) set(plan func(faultkv.Op) faultkv.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plan = plan
}

func (s *switchboard) at(o faultkv.Op) faultkv.Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.plan == nil {
		return faultkv.Fault{}
	}
	return s.plan(o)
}

func onApply(f faultkv.Fault) func(faultkv.Op) faultkv.Fault {
	return func(o faultkv.Op) faultkv.Fault {
		if o.Kind == faultkv.Apply {
			return f
		}
		return faultkv.Fault{}
	}
}

// faulty returns a store with one session, over a database that does what the switchboard says from now on.
func faulty(t *testing.T) (*store.Store, *faultkv.DB, *switchboard, store.Log) {
	t.Helper()
	sw := &switchboard{}
	db := faultkv.New(memkv.New(), sw.at)
	s := openStore(t, db, t.TempDir(), nil)
	addAgent(t, s, "a")
	return s, db, sw, store.SessionLog(app, addSession(t, s, "a").ID)
}

// Whoever comes while a commit is under way shares the next one.
func TestGroupCommit(t *testing.T) {
	s, db, sw, log := faulty(t)
	const writers = 64
	hold, held := make(chan struct{}), make(chan struct{})
	sw.set(func(o faultkv.Op) faultkv.Fault {
		if o.Kind != faultkv.Apply {
			return faultkv.Fault{}
		}
		sw.plan = nil
		close(held)
		return faultkv.Fault{Before: hold}
	})
	before := db.Count(faultkv.Apply)
	var all sync.WaitGroup
	seqs := make(chan int64, writers)
	add := func() {
		evs, err := s.Append(context.Background(), log, events(1))
		if err != nil {
			t.Error(err)
			return
		}
		seqs <- evs[0].Seq
	}
	all.Go(add)
	<-held
	for range writers - 1 {
		all.Go(add)
	}
	waitFor(t, func() bool { return store.Waiting(s) == writers-1 })
	close(hold)
	all.Wait()
	close(seqs)
	if n := db.Count(faultkv.Apply) - before; n != 2 {
		t.Errorf("%d commits took %d batches, want 2", writers, n)
	}
	seen := map[int64]bool{}
	for n := range seqs {
		seen[n] = true
	}
	if len(seen) != writers || !seen[1] || !seen[writers] {
		t.Errorf("events got the numbers %v", seen)
	}
}

// waitFor spins until ok: what it waits for is another goroutine's step, which comes at once.
func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for ; !ok(); runtime.Gosched() {
		if t.Context().Err() != nil {
			t.Fatal("it never happened")
		}
	}
}

// One transaction's error is its own: the others of its batch are committed, and it leaves nothing.
func TestErrorsStayApart(t *testing.T) {
	s, _, sw, log := faulty(t)
	hold, held := make(chan struct{}), make(chan struct{})
	sw.set(func(o faultkv.Op) faultkv.Fault {
		if o.Kind != faultkv.Apply {
			return faultkv.Fault{}
		}
		sw.plan = nil
		close(held)
		return faultkv.Fault{Before: hold}
	})
	var all sync.WaitGroup
	all.Go(func() { s.Append(context.Background(), log, events(1)) })
	<-held
	mine := errors.New("mine")
	ctx, cancel := context.WithCancel(t.Context())
	for i := range 12 {
		all.Go(func() {
			switch i % 4 {
			case 0:
				if _, err := s.Append(t.Context(), log, events(1)); err != nil {
					t.Error(err)
				}
			case 1:
				_, err := s.UpdateAgent(t.Context(), app, "a", func(a *agent.Agent) error { a.Plugin = "bad"; return mine })
				if err == nil || !errors.Is(err, mine) {
					t.Errorf("error is %v, want %v", err, mine)
				}
			case 2:
				defer func() {
					if p := recover(); p != "mine" {
						t.Errorf("recovered %v, want the caller's own panic", p)
					}
				}()
				s.UpdateAgent(t.Context(), app, "a", func(a *agent.Agent) error { a.Plugin = "bad"; panic("mine") })
			case 3:
				if _, err := s.Append(ctx, log, events(1)); !errors.Is(err, context.Canceled) {
					t.Errorf("error of a caller who left the queue: %v", err)
				}
			}
		})
	}
	waitFor(t, func() bool { return store.Waiting(s) == 12 })
	cancel()
	waitFor(t, func() bool { return store.Waiting(s) == 9 })
	close(hold)
	all.Wait()
	if a, err := s.Agent(t.Context(), app, "a"); err != nil || a.Plugin != "p" {
		t.Errorf("agent is %+v, %v", a, err)
	}
	if _, last, err := s.Bounds(t.Context(), log); err != nil || last != 4 {
		t.Errorf("%d events, %v; want 4", last, err)
	}
	if err := s.Verify(t.Context()); err != nil {
		t.Error(err)
	}
}

// After an error of the database the commit number tells what became of the batch.
func TestUnknownOutcome(t *testing.T) {
	for _, took := range []bool{true, false} {
		t.Run(fmt.Sprintf("took=%v", took), func(t *testing.T) {
			s, _, sw, log := faulty(t)
			sw.set(onApply(faultkv.Fault{Err: faultkv.ErrFault, Took: took}))
			evs, err := s.Append(t.Context(), log, events(1))
			sw.set(nil)
			want := int64(0)
			if took {
				want = 1
				if err != nil || len(evs) != 1 {
					t.Errorf("the batch took effect, but Append returned %v", err)
				}
			} else {
				wantKind(t, err, agent.Unavailable)
			}
			if _, last, err := s.Bounds(t.Context(), log); err != nil || last != want {
				t.Errorf("%d events, %v; want %d", last, err, want)
			}
			// The store goes on.
			if evs, err := s.Append(t.Context(), log, events(1)); err != nil || evs[0].Seq != want+1 {
				t.Errorf("next append: %v, %v", evs, err)
			}
			if err := s.Verify(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// Where even the commit number cannot be read, nothing more is answered until the store is opened anew.
func TestCrashInCommit(t *testing.T) {
	for _, took := range []bool{true, false} {
		t.Run(fmt.Sprintf("took=%v", took), func(t *testing.T) {
			inner, dir := memkv.New(), t.TempDir()
			sw := &switchboard{}
			s := openStore(t, faultkv.New(inner, sw.at), dir, nil)
			addAgent(t, s, "a")
			log := store.SessionLog(app, addSession(t, s, "a").ID)
			sw.set(onApply(faultkv.Fault{Err: faultkv.ErrFault, Took: took, Crash: true}))
			once := store.Once{Scope: "s", Key: "k"}
			_, _, err := s.CreateSession(t.Context(), agent.Session{App: app, Agent: "a"}, once)
			wantKind(t, err, agent.Unavailable)
			_, err = s.Append(t.Context(), log, events(1))
			wantKind(t, err, agent.Unavailable)
			_, err = s.Agent(t.Context(), app, "a")
			wantKind(t, err, agent.Unavailable)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}

			s = openStore(t, inner, dir, nil)
			_, replayed, err := s.CreateSession(t.Context(), agent.Session{App: app, Agent: "a"}, once)
			if err != nil || replayed != took {
				t.Errorf("the same request again: replayed %v, %v; the first took effect: %v", replayed, err, took)
			}
			if list, _, err := s.Sessions(t.Context(), app, "", agent.Page{}); err != nil || len(list) != 2 {
				t.Errorf("%d sessions, %v; want 2", len(list), err)
			}
			if err := s.Verify(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestFullDisk(t *testing.T) {
	s, _, sw, log := faulty(t)
	sw.set(onApply(faultkv.Fault{Err: fmt.Errorf("no room: %w", kv.ErrFull)}))
	_, err := s.Append(t.Context(), log, events(1))
	wantKind(t, err, agent.Unavailable)
	if !strings.Contains(err.Error(), "disk is full") {
		t.Errorf("error is %v", err)
	}
	sw.set(nil)
	if _, err := s.Append(t.Context(), log, events(1)); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

// smallDB takes only small batches.
type smallDB struct {
	kv.DB
	bytes, changes int
	t              *testing.T
}

func (db smallDB) MaxBatch() (bytes, changes int) { return db.bytes, db.changes }

func (db smallDB) Apply(ctx context.Context, cs []kv.Change) error {
	n := 0
	for _, c := range cs {
		n += len(c.Key) + len(c.Value)
	}
	if n > db.bytes || len(cs) > db.changes {
		db.t.Errorf("a batch of %d bytes and %d changes; %d and %d are allowed", n, len(cs), db.bytes, db.changes)
	}
	return db.DB.Apply(ctx, cs)
}

// Batches stay within what the database takes, and a transaction that never could is refused.
func TestBatchLimits(t *testing.T) {
	for name, db := range map[string]smallDB{
		"bytes":   {memkv.New(), 20_000, 1_000_000, t},
		"changes": {memkv.New(), 1 << 30, 100, t},
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, db, t.TempDir(), nil)
			addAgent(t, s, "a")
			log := store.SessionLog(app, addSession(t, s, "a").ID)
			var all sync.WaitGroup
			for range 50 {
				all.Go(func() {
					if _, err := s.Append(t.Context(), log, events(20)); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			_, err := s.Append(t.Context(), log, events(2000))
			wantKind(t, err, agent.Invalid)
			if _, last, err := s.Bounds(t.Context(), log); err != nil || last != 1000 {
				t.Errorf("%d events, %v; want 1000", last, err)
			}
			if err := s.Verify(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRecordLimit(t *testing.T) {
	s := memStore(t)
	create := func(n int) error {
		_, _, err := s.CreateAgent(t.Context(), agent.Agent{App: app, Name: "a", Description: strings.Repeat("x", n)}, store.Once{})
		return err
	}
	wantKind(t, create(256<<10), agent.Invalid)
	if err := create(255 << 10); err != nil {
		t.Error(err)
	}
}

// Callers who were answered together come back together: no batch goes with only the first of them, which would leave half of
// the callers to each sync.
func TestComeBack(t *testing.T) {
	const writers, rounds = 64, 40
	most := 0.0
	for range 3 { // how many come is the scheduler's to say
		sw := &switchboard{}
		s := openStore(t, faultkv.New(memkv.New(), sw.at), t.TempDir(), nil)
		addAgent(t, s, "a")
		log := store.SessionLog(app, addSession(t, s, "a").ID)
		sw.set(func(o faultkv.Op) faultkv.Fault {
			if o.Kind != faultkv.Apply {
				return faultkv.Fault{}
			}
			synced := make(chan struct{})
			time.AfterFunc(time.Millisecond, func() { close(synced) })
			return faultkv.Fault{Before: synced}
		})
		before := s.Stats()
		var all sync.WaitGroup
		for range writers {
			all.Go(func() {
				for range rounds {
					if _, err := s.Append(t.Context(), log, events(1)); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		now := s.Stats()
		most = max(most, float64(now.Transactions-before.Transactions)/float64(now.Batches-before.Batches))
		if most > 0.65*writers {
			return
		}
	}
	t.Errorf("a batch has %.0f transactions of %d writers", most, writers)
}

// What commits have written and read is not read from the database again for a while; what a failed one wrote is never seen.
func TestReadsAgain(t *testing.T) {
	s, db, sw, log := faulty(t)
	other := store.SessionLog(app, addSession(t, s, "a").ID)
	store.Forget(s)
	// reads returns how many reads of the database an append to l takes.
	reads := func(l store.Log) int {
		t.Helper()
		before := db.Count(faultkv.Get)
		if _, err := s.Append(t.Context(), l, events(1)); err != nil {
			t.Fatal(err)
		}
		return db.Count(faultkv.Get) - before
	}
	const number, all = 1, 3 // the commit number; that, a log's head and its newest event
	reads(log)
	for _, step := range []struct {
		what string
		log  store.Log
		want int
	}{
		{"the newest commit", log, number},
		{"a log in none, which has no event", other, number + 1},
		{"the one before the newest", log, number},
		{"the newest but two", other, number},
		{"the newest commit", other, number},
		{"a commit before those", log, number},
	} {
		if got := reads(step.log); got != step.want {
			t.Errorf("%s: %d reads, want %d", step.what, got, step.want)
		}
	}
	// Past its bounds the oldest is let go of.
	for range 3 * store.RecentBytes / (64 << 10) {
		e := agent.Event{Kind: agent.EventEmit, Name: "x", Data: []byte(`"` + strings.Repeat("x", 64<<10) + `"`)}
		if _, err := s.Append(t.Context(), other, []agent.Event{e}); err != nil {
			t.Fatal(err)
		}
	}
	if got := reads(log); got != all {
		t.Errorf("after more than is kept: %d reads, want %d", got, all)
	}
	sw.set(onApply(faultkv.Fault{Err: faultkv.ErrFault}))
	if _, err := s.Append(t.Context(), log, events(1)); err == nil {
		t.Fatal("a commit succeeded that did not happen")
	}
	sw.set(nil)
	if got := reads(log); got != all {
		t.Errorf("after a failed commit: %d reads, want %d", got, all)
	}
	if evs, err := s.Read(t.Context(), log, 0, 0); err != nil || len(evs) != 6 || evs[5].Seq != 6 {
		t.Errorf("log has %d events, %v; want 6", len(evs), err)
	}
	if err := s.Verify(t.Context()); err != nil {
		t.Error(err)
	}
}
