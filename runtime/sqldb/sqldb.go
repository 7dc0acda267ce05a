// Package sqldb is SQLite over an instance's own data. The database is pages that somebody else keeps: nothing of it is on disk by
// itself, so what statements change is committed, or undone, with all else that a turn changed.
//
// A DB holds the library's own memory, bounded, and a cache of pages. It may be kept between turns. The order is Begin, any number of
// Query, and Finish before each commit; Undo when the turn's changes were dropped.
package sqldb

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/skep-dev/skep/agent"
)

// PageSize is the size of a page in bytes. A point update changes one or two, so smaller ones would save little of a commit and make
// trees deeper; of larger ones a commit of 1 MiB would hold too few. It is SQLite's own default.
const PageSize = 4 << 10

// Pages is where a database is: pages of PageSize bytes by number from 0. What Write changed is seen by Read; whoever owns it commits
// or drops. Read's result is not changed by the caller, nor Write's page by the callee.
type Pages interface {
	Read(ctx context.Context, n int64) ([]byte, error) // nil when it was never written
	Write(ctx context.Context, n int64, page []byte) error
	Truncate(ctx context.Context, pages int64) error // removes those from number pages on
}

// Applier is what Pages may be besides: it takes all changes at once, so that a crash leaves all or none. pages is the new size, and
// Read still shows the old one.
type Applier interface {
	Apply(ctx context.Context, pages int64, changed map[int64][]byte) error
}

// What an Options says unless it says otherwise.
const (
	DefaultMemory = 32 << 20
	DefaultCache  = 1 << 20
	minMemory     = 4 << 20
)

// The bounds of statements and results.
const (
	MaxQuery   = 128 << 10 // bytes of one call's statements
	MaxValue   = 1 << 20   // bytes of one text or blob
	MaxParams  = 1000      // parameters of a statement
	MaxColumns = 200       // columns of a table, index or result
	MaxRows    = 10_000    // rows of a result
	MaxResult  = 8 << 20   // bytes of a result's values, each counted with 16 more
)

// Options of a DB. A zero field means the default.
type Options struct {
	Now    func() time.Time // what 'now' is; the wall clock
	Random io.Reader        // what random() is; the system's
	Memory int64            // bytes that the library may use in all; DefaultMemory, at least 4 MiB
	Cache  int64            // bytes of pages kept between statements; DefaultCache
	Bytes  int64            // how large the database may be; agent.DefaultStateBytes
}

// DB is an open database. It is safe for concurrent use, and does one thing at a time.
type DB struct {
	o    Options
	name string // of its file system in the library's table

	mu     sync.Mutex
	file   *file
	c      *conn // nil until it is needed, and after it broke
	now    time.Time
	closed bool
	failed error // pages are neither as before nor as they should be: until Undo
	wrote  bool  // to pages, since Begin
}

// Open returns the database that is in pages, or an empty one. Nothing is read before the first Query.
func Open(_ context.Context, p Pages, o *Options) (*DB, error) {
	db := &DB{o: Options{Now: time.Now, Random: rand.Reader, Memory: DefaultMemory, Cache: DefaultCache, Bytes: agent.DefaultStateBytes}}
	if o != nil {
		if o.Now != nil {
			db.o.Now = o.Now
		}
		if o.Random != nil {
			db.o.Random = o.Random
		}
		for _, f := range []struct{ to, from *int64 }{{&db.o.Memory, &o.Memory}, {&db.o.Cache, &o.Cache}, {&db.o.Bytes, &o.Bytes}} {
			if *f.from != 0 {
				*f.to = *f.from
			}
		}
	}
	if db.o.Memory < minMemory || db.o.Cache < PageSize || db.o.Bytes < PageSize {
		return nil, agent.Errorf(agent.Invalid, "a database needs at least %d bytes of memory, and a page each of cache and size", minMemory)
	}
	db.file = &file{pages: p, limit: int(db.o.Memory / PageSize)}
	// The address is unique among those that are open, which is what the library's table needs.
	db.name = fmt.Sprintf("skep-%p", db)
	vfs.Register(db.name, system{db.file})
	return db, nil
}

// Begin says that a turn begins: where its pages are read and written, and what 'now' and random() are in it. A nil argument leaves
// what there was. What the turns before left in the connection (the last rowid, pragmas) is forgotten, so that a database that was
// open answers as one that was not; so is what a turn did that ended with neither Finish nor Undo.
func (db *DB) Begin(p Pages, now func() time.Time, random io.Reader) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if p != nil {
		db.file.pages = p
	}
	if now != nil {
		db.o.Now = now
	}
	if random != nil {
		db.o.Random = random
	}
	db.undo(false)
	db.wrote = false
	if db.c != nil {
		db.guard(db.c.fresh)
	}
}

// Finish writes what changed to the pages. It is called before each commit that others may see the effects of. A transaction that is
// still open is rolled back, and an Invalid error says so. After an error the turn has to be undone.
func (db *DB) Finish(ctx context.Context) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	switch {
	case db.failed != nil:
		return db.failed
	case db.c != nil && !db.c.GetAutocommit():
		db.rollback()
		db.failed = &agent.Error{Kind: agent.Invalid, Msg: "a SQL transaction was still open at the end of the turn, so it was rolled back",
			Hint: "end each BEGIN or SAVEPOINT before the call returns or waits for something outside; a turn is a transaction by itself"}
		return db.failed
	}
	wrote, err := db.file.flush(ctx)
	db.wrote = db.wrote || wrote
	db.failed = err
	return err
}

// Undo says that what the turn had written and not committed was dropped, and drops what it would have written. It costs nothing when
// that is nothing.
func (db *DB) Undo() {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.undo(db.wrote)
}

func (db *DB) undo(wrote bool) {
	switch {
	case wrote || db.failed != nil || db.file.dirty():
		db.invalidate()
	case db.c != nil && !db.c.GetAutocommit():
		db.rollback()
	}
}

// Invalidate says that the pages may be others than they were. The next Query opens them anew; what Finish had not written is lost.
func (db *DB) Invalidate() {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.invalidate()
}

// Memory returns how many bytes the database holds outside of Go's heap.
func (db *DB) Memory() int64 {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.c == nil {
		return 0
	}
	return db.c.memory()
}

// Close gives back what the database holds; the pages stay as they are.
func (db *DB) Close() error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if !db.closed {
		db.closed = true
		db.drop()
		vfs.Unregister(db.name)
	}
	return nil
}

// drop closes the connection. What it had not committed to the file is lost, which is what rolling back means.
func (db *DB) drop() {
	if db.c != nil {
		db.c.end()
		db.c, db.file.open = nil, false
	}
}

func (db *DB) invalidate() {
	db.drop()
	db.file.forget()
	db.failed, db.wrote = nil, false
}

func (db *DB) rollback() {
	db.file.begin(context.Background())
	db.guard(func() error { return db.c.ours("ROLLBACK") })
}

// guard does what should not fail; when it does the connection is made anew.
func (db *DB) guard(f func() error) {
	defer func() {
		if recover() != nil {
			db.drop()
		}
	}()
	if err := f(); err != nil {
		db.drop()
	}
}
