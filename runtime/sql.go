package runtime

import (
	"context"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/runtime/durable"
	"github.com/skep-dev/skep/runtime/sqldb"
)

// sqlMemory is how much of a connection's memory an instance keeps between its turns.
const sqlMemory = 4 << 20

// sqlOf is the SQL of a cell's instance, which is opened by the first statement of a turn, and kept open between turns.
type sqlOf struct{ j *job }

func (s sqlOf) Query(ctx context.Context, q abi.SQL) (abi.SQLRows, error) {
	t, err := s.j.place.turn(ctx)
	if err != nil {
		return abi.SQLRows{}, err
	}
	db, err := s.in(ctx, t)
	if err != nil {
		return abi.SQLRows{}, err
	}
	return db.Query(ctx, q)
}

// in returns the database as turn t has it.
func (s sqlOf) in(ctx context.Context, t *durable.Turn) (*sqldb.DB, error) {
	m := memoryOf(t)
	if m.db != nil && m.turn == t {
		return m.db, nil
	}
	bounds := storageBounds(s.j.grants())
	pages := sqldb.StatePages(t, bounds)
	if m.db != nil && m.db.Memory() > sqlMemory {
		_ = m.db.Close() // a connection never gives memory back
		m.db = nil
	}
	if m.db == nil {
		db, err := sqldb.Open(ctx, pages, &sqldb.Options{Bytes: bounds.Bytes})
		if err != nil {
			return nil, err
		}
		m.db = db
	}
	m.db.Begin(pages, s.j.now, nil) // chance needs no journal: what a statement returned is in a run's own
	m.turn = t
	t.Attach(m.db)
	return m.db, nil
}
