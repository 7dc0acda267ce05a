package store_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/kv"
	"github.com/skep-dev/skep/store/memkv"
)

// batches is a database that tells of each batch before it takes it.
type batches struct {
	kv.DB
	before func([]kv.Change)
}

func (b *batches) Apply(ctx context.Context, cs []kv.Change) error {
	b.before(cs)
	return b.DB.Apply(ctx, cs)
}

// of returns how many events of an app's audit log are in a batch, and the bytes of all that names the app.
func of(app agent.App, cs []kv.Change) (events, size int) {
	for _, c := range cs {
		if bytes.Contains(c.Key, []byte(app)) {
			size += len(c.Key) + len(c.Value)
			if bytes.Contains(c.Value, []byte("said by "+app)) {
				events++
			}
		}
	}
	return events, size
}

// said returns n events of about some bytes each.
func said(by agent.App, n, size int) []agent.Event {
	evs := events(n)
	for i := range evs {
		evs[i].Data = fmt.Appendf(nil, `"said by %s %0*d"`, by, size, i)
	}
	return evs
}

// crowded has an app called loud, and then others, wait for one batch that is under way, and returns the batches after it.
func crowded(t *testing.T, loud, others []func(*store.Store) error) (all [][]kv.Change) {
	t.Helper()
	held, hold := make(chan struct{}), make(chan struct{})
	db := &batches{DB: memkv.New(), before: func([]kv.Change) {}}
	s := openStore(t, db, t.TempDir(), nil)
	db.before = func(cs []kv.Change) {
		if all = append(all, cs); len(all) == 1 {
			close(held)
			<-hold
		}
	}
	var done sync.WaitGroup
	start := func(fn func(*store.Store) error) {
		done.Go(func() {
			if err := fn(s); err != nil {
				t.Error(err)
			}
		})
	}
	start(appends("first", 1, 10))
	<-held
	for i, fn := range append(loud, others...) {
		start(fn)
		waitFor(t, func() bool { return store.Waiting(s) == i+1 })
	}
	close(hold)
	done.Wait()
	if err := s.Verify(t.Context()); err != nil {
		t.Error(err)
	}
	return all[1:]
}

func appends(by agent.App, n, size int) func(*store.Store) error {
	return func(s *store.Store) error {
		_, err := s.Append(context.Background(), store.AuditLog(by), said(by, n, size))
		return err
	}
}

func repeated[T any](n int, x T) (xs []T) {
	for range n {
		xs = append(xs, x)
	}
	return xs
}

// An app that fills the queue with as much as it may delays another's small commit by one batch, and that one is not long.
func TestALoudAppDelaysOthersByOneBatch(t *testing.T) {
	const appPart = 256 << 10
	for name, loud := range map[string]struct{ callers, events, size int }{
		"many small ones":  {600, 1, 10},
		"many large ones":  {60, 1, 60_000},
		"of many events":   {30, 400, 10},
		"the largest ones": {5, 250, 4000},
	} {
		t.Run(name, func(t *testing.T) {
			all := crowded(t, repeated(loud.callers, appends("loud", loud.events, loud.size)),
				[]func(*store.Store) error{appends("quiet", 1, 10), appends("silent", 1, 10)})
			for _, app := range []agent.App{"quiet", "silent"} {
				if n, _ := of(app, all[0]); n != 1 {
					t.Errorf("what %s wrote is not in the first batch after it came, of %d", app, len(all))
				}
			}
			total, one := 0, loud.events*(loud.size+1000)
			for i, cs := range all {
				n, size := of("loud", cs)
				total += n
				if size > appPart+one {
					t.Errorf("batch %d has %d bytes of one app, which may have %d and the end of a transaction of %d", i, size, appPart, one)
				}
				if n > 1100 {
					t.Errorf("batch %d has %d records of one app", i, n)
				}
			}
			if want := loud.callers * loud.events; total != want {
				t.Errorf("%d events came of %d", total, want)
			}
		})
	}
}

// After a transaction that was larger than its app's part the others go on alone, for as long as they wait.
func TestALargeTransactionIsPaidFor(t *testing.T) {
	others := repeated(3*120, appends("quiet", 1, 10)) // some three batches
	all := crowded(t, repeated(2, appends("loud", 250, 4000)), others)
	quiet := 0
	for i, cs := range all {
		n, _ := of("quiet", cs)
		quiet += n
		loud, _ := of("loud", cs)
		if want := i == 0 || quiet == len(others) && n == 0; (loud > 0) != want {
			t.Errorf("batch %d has %d events of loud, and %d of quiet; %d of quiet's were written by then", i, loud, n, quiet)
		}
	}
}

// Where only one app waits it is not made to wait by what it owes, and where there are more apps than fit into a batch they take turns.
func TestManyAppsTakeTurns(t *testing.T) {
	var apps []func(*store.Store) error
	for n := range 300 {
		apps = append(apps, appends(agent.App(fmt.Sprintf("app-%d-", n)), 1, 10))
	}
	all := crowded(t, repeated(300, appends("loud", 1, 10)), apps)
	turns := 0
	for n := range 300 {
		for i, cs := range all {
			if m, _ := of(agent.App(fmt.Sprintf("app-%d-", n)), cs); m > 0 {
				turns = max(turns, i+1)
			}
		}
	}
	if turns != 2 {
		t.Errorf("300 apps had each one commit after %d batches of 256, want 2", turns)
	}
}
