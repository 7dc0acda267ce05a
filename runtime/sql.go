package runtime

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/runtime/durable"
	"github.com/skep-dev/skep/runtime/sqldb"
)

const (
	sqlKept    = 4 << 20   // bytes of a connection that an instance keeps between its turns
	sqlKeptAll = 256 << 20 // and of all instances together
)

// sqlMemory is the database of an instance, which is opened by the first statement of a turn, and kept open between turns.
type sqlMemory struct {
	mu   sync.Mutex // held over a statement, so that none is made in another call's turn or after its own was committed
	db   *sqldb.DB
	turn *durable.Turn // that uses it
	held *atomic.Int64 // by all instances together
	own  int64         // of that, by this one
}

// Finish implements durable.Attached.
func (m *sqlMemory) Finish(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.db == nil {
		return nil
	}
	return m.db.Finish(ctx)
}

// Undo implements durable.Attached.
func (m *sqlMemory) Undo() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.db != nil {
		m.db.Undo()
	}
}

// rest closes a database that holds much, for a connection never gives memory back; and one more when all together hold much.
func (m *sqlMemory) rest() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turn = nil
	if m.db == nil {
		return
	}
	holds := m.db.Memory()
	all := m.held.Add(holds - m.own)
	m.own = holds
	if holds > sqlKept || all > sqlKeptAll {
		m.drop()
	}
}

func (m *sqlMemory) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop()
}

// drop is called with the lock.
func (m *sqlMemory) drop() {
	if m.db != nil {
		_ = m.db.Close() // it holds nothing that is not in the store
		m.held.Add(-m.own)
		m.db, m.own = nil, 0
	}
}

// sqlOf is the SQL of a cell's instance.
type sqlOf struct {
	r *Runtime
	j *job
}

func (s sqlOf) Query(ctx context.Context, q abi.SQL) (abi.SQLRows, error) {
	t, err := s.j.place.turn(ctx)
	if err != nil {
		return abi.SQLRows{}, err
	}
	m := &memoryOf(t).sql
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := t.Over(); err != nil { // it was left at the same time
		return abi.SQLRows{}, err
	}
	if m.turn != t {
		if err := s.begin(ctx, m, t); err != nil {
			return abi.SQLRows{}, err
		}
	}
	return m.db.Query(ctx, q)
}

// begin has the database as turn t has it.
func (s sqlOf) begin(ctx context.Context, m *sqlMemory, t *durable.Turn) error {
	bounds := storageBounds(s.j.grants())
	pages := sqldb.StatePages(t, bounds)
	if m.db == nil {
		db, err := sqldb.Open(ctx, pages, &sqldb.Options{Bytes: bounds.Bytes})
		if err != nil {
			return err
		}
		m.db, m.held = db, &s.r.sqlHeld
	}
	m.db.Begin(pages, s.j.now, nil) // chance needs no journal: what a statement returned is in a run's own
	if err := t.Attach(m); err != nil {
		return err
	}
	m.turn = t
	return nil
}
