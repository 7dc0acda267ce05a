// Package faultkv wraps a kv.DB and makes it fail, wait or crash where a test says.
package faultkv

import (
	"bytes"
	"context"
	"errors"
	"sync"

	"github.com/skep-dev/skep/store/kv"
)

// ErrFault is what an operation returns that was told to fail, and ErrCrashed what every one returns after a crash.
var (
	ErrFault   = errors.New("faultkv: fault")
	ErrCrashed = errors.New("faultkv: crashed")
)

// Kind says which method an operation is.
type Kind uint8

const (
	Apply Kind = iota + 1
	View
	Get
	Scan
)

// Op is one operation that is about to happen.
type Op struct {
	Kind    Kind
	N       int         // counts the operations of its kind, from 1
	Changes []kv.Change // of an Apply
	Key     []byte      // of a Get; where a Scan begins
}

// Touches reports whether the operation reads or writes a key with that prefix.
func (o Op) Touches(prefix string) bool {
	for _, c := range o.Changes {
		if bytes.HasPrefix(c.Key, []byte(prefix)) {
			return true
		}
	}
	return bytes.HasPrefix(o.Key, []byte(prefix))
}

// Fault is what happens to an operation. The zero Fault lets it pass.
type Fault struct {
	Err    error           // returned in place of the operation's own outcome
	Took   bool            // an Apply with an Err happens nevertheless
	Crash  bool            // with an Err: everything after fails with ErrCrashed
	Before <-chan struct{} // waited for before the operation
	After  <-chan struct{} // waited for after it
}

// DB decorates a kv.DB.
type DB struct {
	inner kv.DB
	plan  func(Op) Fault

	mu      sync.Mutex
	counts  map[Kind]int
	crashed bool
}

// New returns inner, except where plan says otherwise. plan is called once for each operation, one at a time.
func New(inner kv.DB, plan func(Op) Fault) *DB {
	return &DB{inner: inner, plan: plan, counts: map[Kind]int{}}
}

// Count returns how many operations of a kind were asked for.
func (db *DB) Count(k Kind) int {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.counts[k]
}

// Nth plans one fault for the nth operation of a kind.
func Nth(k Kind, n int, f Fault) func(Op) Fault {
	return func(o Op) Fault {
		if o.Kind == k && o.N == n {
			return f
		}
		return Fault{}
	}
}

func (db *DB) next(o Op) (Fault, error) {
	db.mu.Lock()
	if db.crashed {
		db.mu.Unlock()
		return Fault{}, ErrCrashed
	}
	db.counts[o.Kind]++
	o.N = db.counts[o.Kind]
	f := db.plan(o)
	db.crashed = f.Crash
	db.mu.Unlock()
	wait(f.Before)
	return f, nil
}

func wait(c <-chan struct{}) {
	if c != nil {
		<-c
	}
}

func (db *DB) View(ctx context.Context, fn func(kv.Reader) error) error {
	f, err := db.next(Op{Kind: View})
	if err == nil {
		err = f.Err
	}
	if err != nil {
		return err
	}
	defer wait(f.After)
	return db.inner.View(ctx, func(r kv.Reader) error { return fn(reader{db, r}) })
}

func (db *DB) Apply(ctx context.Context, changes []kv.Change) error {
	f, err := db.next(Op{Kind: Apply, Changes: changes})
	if err != nil {
		return err
	}
	defer wait(f.After)
	if f.Err != nil && !f.Took {
		return f.Err
	}
	if err := db.inner.Apply(ctx, changes); err != nil {
		return err
	}
	return f.Err
}

// Close closes the database below, also after a crash.
func (db *DB) Close() error { return db.inner.Close() }

// MaxBatch returns the limits of the database below.
func (db *DB) MaxBatch() (size, changes int) {
	if l, ok := db.inner.(kv.Limits); ok {
		return l.MaxBatch()
	}
	return 0, 0
}

type reader struct {
	db *DB
	kv.Reader
}

func (r reader) Get(key []byte) ([]byte, bool, error) {
	f, err := r.db.next(Op{Kind: Get, Key: key})
	if err == nil {
		err = f.Err
	}
	if err != nil {
		return nil, false, err
	}
	return r.Reader.Get(key)
}

func (r reader) Scan(from, to []byte, reverse bool, fn func(key, value []byte) error) error {
	f, err := r.db.next(Op{Kind: Scan, Key: from})
	if err == nil {
		err = f.Err
	}
	if err != nil {
		return err
	}
	return r.Reader.Scan(from, to, reverse, fn)
}
