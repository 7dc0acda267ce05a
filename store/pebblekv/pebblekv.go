// Package pebblekv is a kv.DB on Pebble, set so that an applied batch is on disk, memory stays small, and damage or a disk
// that fails is an error of the database instead of the end of the process.
package pebblekv

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/internal/dirlock"
	"github.com/skep-dev/skep/store/internal/disk"
	"github.com/skep-dev/skep/store/kv"
)

// Options sets what its defaults do not fit. nil and zero fields mean the defaults.
type Options struct {
	// MinFree is the room in bytes that the disk must have for Open; 0 means 64 MiB, a negative one asks for none.
	MinFree int64
	Log     *slog.Logger // takes Pebble's errors; nil drops them
}

const (
	memTable   = 8 << 20                // size of a write buffer
	cache      = 8 << 20                // blocks of tables; the system's page cache holds the rest
	maxBytes   = 3 << 20                // in a batch: below half a write buffer, above which Pebble treats batches in another way
	maxChanges = 100_000                // in a batch
	fullEvery  = 100 * time.Millisecond // how often a full disk is looked at
	needed     = 4 << 20                // bytes it must have for writes to go on
)

// DB is an open database. It implements kv.DB and kv.Limits.
type DB struct {
	db   *pebble.DB
	dir  string
	lock *dirlock.Lock
	log  *slog.Logger

	mu      sync.Mutex // guards closed, refuse and broken
	closed  bool
	refuse  error // no Apply is tried any more: something is damaged, or Pebble has given up
	broken  error // an Apply failed half way: what memory holds is not to be trusted
	dead    bool  // Pebble has given up: it is neither written nor closed any more
	closing chan struct{}
	views   sync.WaitGroup
	once    sync.Once
	err     error // of Close
}

// Open opens the database in dir, or makes one. Only one process can have it open. A log that is damaged before its end is
// refused; of tables each block is verified when it is read.
func Open(dir string, o *Options) (*DB, error) {
	if o == nil {
		o = &Options{}
	}
	lock, err := dirlock.Acquire(dir, "pebble.lock")
	if err != nil {
		return nil, err
	}
	db := &DB{dir: dir, lock: lock, log: o.Log, closing: make(chan struct{})}
	if db.log == nil {
		db.log = slog.New(slog.DiscardHandler)
	}
	need := o.MinFree
	if need == 0 {
		need = 64 << 20
	}
	if err := disk.Room(dir, need); err != nil { // opening writes, too
		lock.Release()
		return nil, agent.Wrap(agent.Unavailable, err, "the disk of "+dir+" is full")
	}
	if err := db.open(); err != nil {
		lock.Release()
		return nil, db.refusal(err)
	}
	return db, nil
}

func (db *DB) open() (err error) {
	blocks := pebble.NewCache(cache)
	defer blocks.Unref()
	return db.guarded(func() (err error) {
		db.db, err = pebble.Open(db.dir, &pebble.Options{
			FS: db.fileSystem(), Logger: logger{db}, EventListener: db.events(),
			FormatMajorVersion: pebble.FormatNewest, // its log tells a torn end from damage
			Cache:              blocks, MemTableSize: memTable, MemTableStopWritesThreshold: 4,
		})
		return err
	})
}

// refusal says why a database could not be opened.
func (db *DB) refusal(err error) error {
	if !pebble.IsCorruptionError(err) && !errors.Is(err, kv.ErrCorrupt) {
		return agent.Wrap(agent.Unavailable, err, "cannot open the database in "+db.dir)
	}
	return &agent.Error{
		Kind: agent.Internal, Msg: "the database in " + db.dir + " is damaged", Err: fmt.Errorf("%w: %w", kv.ErrCorrupt, err),
		Hint: "restore the data directory from a backup",
	}
}

// usable returns why the database cannot be used, or nil. After nil the caller calls db.views.Done.
func (db *DB) usable(write bool) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	switch {
	case db.closed:
		return kv.ErrClosed
	case db.broken != nil:
		return db.broken
	case write && db.refuse != nil:
		return db.refuse
	}
	db.views.Add(1)
	return nil
}

// View implements kv.DB.
func (db *DB) View(ctx context.Context, fn func(kv.Reader) error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := db.usable(false); err != nil {
		return err
	}
	defer db.views.Done()
	snap := db.db.NewSnapshot()
	defer func() {
		if cerr := snap.Close(); err == nil {
			err = cerr
		}
	}()
	return fn(reader{snap})
}

// Apply implements kv.DB. After an error whose outcome is unknown every View and Apply fails until the database is opened
// anew: readers see a batch before it is durable. On a full disk it waits for room.
func (db *DB) Apply(_ context.Context, changes []kv.Change) error {
	if err := db.usable(true); err != nil {
		return err
	}
	defer db.views.Done()
	size := 0
	for _, c := range changes {
		size += len(c.Key) + len(c.Value)
	}
	if size > maxBytes || len(changes) > maxChanges {
		return fmt.Errorf("%w: %d bytes in %d changes; %d and %d are allowed", kv.ErrTooBig, size, len(changes), maxBytes, maxChanges)
	}
	if len(changes) == 0 {
		return nil
	}
	b := db.db.NewBatchWithSize(size + 16*len(changes))
	for _, c := range changes {
		var err error
		if c.Delete {
			err = b.Delete(c.Key, nil)
		} else {
			err = b.Set(c.Key, c.Value, nil)
		}
		if err != nil {
			return fmt.Errorf("pebble: change %q: %w", c.Key, err)
		}
	}
	if err := db.guarded(func() error { return b.Commit(pebble.Sync) }); err != nil {
		err = fmt.Errorf("pebble: commit failed, and the database must be opened anew: %w", err)
		db.mu.Lock()
		db.broken = err
		db.mu.Unlock()
		return err
	}
	return b.Close()
}

// MaxBatch implements kv.Limits.
func (db *DB) MaxBatch() (bytes, changes int) { return maxBytes, maxChanges }

// Close implements kv.DB. A database that Pebble gave up is let go of; what it had acknowledged is on disk.
func (db *DB) Close() error {
	db.mu.Lock()
	if !db.closed {
		close(db.closing)
	}
	db.closed = true
	db.mu.Unlock()
	db.views.Wait()
	db.once.Do(func() {
		db.mu.Lock()
		dead := db.dead
		db.mu.Unlock()
		if !dead {
			db.err = db.guarded(db.db.Close)
		}
		db.err = errors.Join(db.err, db.lock.Release())
	})
	return db.err
}
