// Package badgerkv is a kv.DB on Badger, set so that an applied batch is on disk, memory stays small, and what Badger
// would pass over in silence is an error.
package badgerkv

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/internal/dirlock"
	"github.com/skep-dev/skep/store/internal/disk"
	"github.com/skep-dev/skep/store/kv"
)

// Options sets what its defaults do not fit. nil and zero fields mean the defaults.
type Options struct {
	// MinFree is the room in bytes that the disk must have for Open; 0 means 64 MiB, a negative one asks for none.
	MinFree int64
	// Verify reads every table to verify the checksums when the database is opened, also after it was closed.
	Verify bool
	Log    *slog.Logger // takes Badger's warnings and errors; nil drops them
}

// memTable is the size of Badger's write buffer. Memory use and the largest batch follow from it.
const memTable = 16 << 20

// DB is an open database. It implements kv.DB and kv.Limits. Badger writes through a memory map: on a full disk it does
// not fail but dies of SIGBUS, and the process with it. Whoever calls Apply sees to it that there is room.
type DB struct {
	db   *badger.DB
	dir  string
	lock *dirlock.Lock

	writing sync.Mutex // held by one Apply at a time, before mu
	journal *journal

	mu     sync.Mutex    // guards closed, broken and sync
	sync   chan struct{} // closed when the batch that is being applied is durable, which nobody sees before; nil while there is none
	closed bool
	broken error // an Apply failed half way: what memory holds is not to be trusted
	views  sync.WaitGroup
	once   sync.Once
	err    error // of Close
}

// Open opens the database in dir, or makes one. Only one process can have it open. After a stop without Close it reads
// every table to verify the checksums, about a second for each gigabyte, and refuses a database that fails.
func Open(dir string, o *Options) (*DB, error) {
	if o == nil {
		o = &Options{}
	}
	lock, err := dirlock.Acquire(dir, "badger.lock")
	if err != nil {
		return nil, err
	}
	db := &DB{dir: dir, lock: lock}
	if err := db.open(o); err != nil {
		lock.Release()
		return nil, err
	}
	return db, nil
}

func (db *DB) open(o *Options) (err error) {
	need := o.MinFree
	if need == 0 {
		need = 64 << 20
	}
	if err := disk.Room(db.dir, need); err != nil { // opening writes, too
		return agent.Wrap(agent.Unavailable, err, "the disk of "+db.dir+" is full")
	}
	defer func() { // Badger's decoders believe what they read
		if p := recover(); p != nil {
			err = damaged(db.dir, fmt.Errorf("badger panicked: %v", p))
		}
	}()
	b, err := badger.Open(badger.DefaultOptions(db.dir).
		WithSyncWrites(!disk.SyncsMaps). // Badger's default loses what was acknowledged in a power cut; see journal
		WithDetectConflicts(false).      // there is one writer
		WithMemTableSize(memTable).WithNumMemtables(2).WithNumCompactors(2).WithBaseTableSize(4 << 20).
		WithCompression(options.None).WithBlockCacheSize(0).WithIndexCacheSize(32 << 20).
		WithValueLogFileSize(64 << 20). // values stay far below the threshold for the value log
		WithMetricsEnabled(false).WithLogger(logger{o.Log}))
	if err != nil {
		return agent.Wrap(agent.Unavailable, err, "cannot open the database in "+db.dir)
	}
	if err = db.check(b, o.Verify); err == nil {
		err = b.Sync() // what opening wrote
	}
	if err == nil && disk.SyncsMaps {
		db.journal, err = openJournal(db.dir)
	}
	if err != nil {
		return errors.Join(err, b.Close())
	}
	db.db = b
	return nil
}

// check verifies the tables when the database was not closed, or when it is told to, and marks it as open.
func (db *DB) check(b *badger.DB, verify bool) error {
	_, err := os.Stat(db.marker())
	closed := errors.Is(err, os.ErrNotExist)
	if err != nil && !closed {
		return err
	}
	if verify || !closed {
		if err := b.VerifyChecksum(); err != nil {
			return damaged(db.dir, err)
		}
	}
	if closed {
		return mark(db.marker())
	}
	return nil
}

func damaged(dir string, err error) error {
	return &agent.Error{
		Kind: agent.Internal, Msg: "the database in " + dir + " is damaged", Err: fmt.Errorf("%w: %w", kv.ErrCorrupt, err),
		Hint: "restore the data directory from a backup",
	}
}

// marker is a file that is there while the database is open, or was not closed.
func (db *DB) marker() string { return filepath.Join(db.dir, "open") }

func mark(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close(), syncDir(filepath.Dir(path)))
}

func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// usable returns why the database cannot be used, or nil. After nil the caller calls db.views.Done.
func (db *DB) usable() error {
	db.mu.Lock()
	defer db.mu.Unlock()
	err := db.unusable()
	if err == nil {
		db.views.Add(1)
	}
	return err
}

// unusable returns why the database cannot be used, or nil. The caller holds mu.
func (db *DB) unusable() error {
	switch {
	case db.closed:
		return kv.ErrClosed
	case db.broken != nil:
		return db.broken
	}
	return nil
}

// View implements kv.DB.
func (db *DB) View(ctx context.Context, fn func(kv.Reader) error) error {
	txn, err := db.snapshot(ctx)
	if err != nil {
		return err
	}
	defer db.views.Done()
	defer txn.Discard()
	return fn(reader{txn})
}

// snapshot returns what is durable. After nil the caller calls db.views.Done.
func (db *DB) snapshot(ctx context.Context) (*badger.Txn, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		db.mu.Lock()
		wait := db.sync
		if wait == nil {
			defer db.mu.Unlock()
			if err := db.unusable(); err != nil {
				return nil, err
			}
			db.views.Add(1)
			return db.db.NewTransaction(false), nil
		}
		db.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
		}
	}
}

// Apply implements kv.DB. After an error whose outcome is unknown every View and Apply fails until the database is
// opened anew: Badger's memory may hold half a batch, which its log, read again, does not.
func (db *DB) Apply(_ context.Context, changes []kv.Change) error {
	if err := db.usable(); err != nil {
		return err
	}
	defer db.views.Done()
	txn := db.db.NewTransaction(true)
	defer txn.Discard()
	for _, c := range changes {
		var err error
		if c.Delete {
			err = txn.Delete(c.Key)
		} else {
			err = txn.Set(c.Key, c.Value)
		}
		if errors.Is(err, badger.ErrTxnTooBig) {
			return fmt.Errorf("%w: %v", kv.ErrTooBig, err)
		}
		if err != nil {
			return fmt.Errorf("badger: change %q: %w", c.Key, err)
		}
	}
	return db.commit(txn)
}

// commit writes a batch and makes it durable. Until then no View begins.
func (db *DB) commit(txn *badger.Txn) error {
	db.writing.Lock()
	defer db.writing.Unlock()
	done := make(chan struct{})
	defer close(done)
	db.mu.Lock()
	db.sync = done
	db.mu.Unlock()
	err := txn.Commit()
	if err == nil {
		err = db.journal.sync()
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	db.sync = nil
	switch {
	case err == nil:
		return nil
	case errors.Is(err, badger.ErrTxnTooBig):
		return fmt.Errorf("%w: %v", kv.ErrTooBig, err)
	}
	db.broken = fmt.Errorf("badger: commit failed, and the database must be opened anew: %w", err)
	return db.broken
}

// MaxBatch implements kv.Limits. It leaves room for what Badger adds to each change.
func (db *DB) MaxBatch() (bytes, changes int) {
	return int(db.db.MaxBatchSize() * 8 / 10), int(db.db.MaxBatchCount() / 2)
}

// Close implements kv.DB.
func (db *DB) Close() error {
	db.mu.Lock()
	db.closed = true
	broken := db.broken
	db.mu.Unlock()
	db.views.Wait()
	db.once.Do(func() {
		err := errors.Join(db.journal.close(), db.db.Close())
		if err == nil && broken == nil {
			if err = os.Remove(db.marker()); err == nil {
				err = syncDir(db.dir)
			}
		}
		db.err = errors.Join(err, db.lock.Release())
	})
	return db.err
}
