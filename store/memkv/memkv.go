// Package memkv keeps a kv.DB in memory. Its snapshots cost nothing: the map is a persistent treap (Aragon and Seidel,
// "Randomized search trees"), so a view keeps the root it started with while later batches build new ones.
package memkv

import (
	"bytes"
	"context"
	"sync"

	"github.com/skep-dev/skep/store/kv"
)

// DB implements kv.DB. What it holds is lost with the process.
type DB struct {
	mu     sync.Mutex // guards root and closed; held for no longer than it takes to read or set them
	root   *node
	closed bool
	views  sync.WaitGroup
}

// New returns an empty DB.
func New() *DB { return &DB{} }

func (db *DB) View(ctx context.Context, fn func(kv.Reader) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	db.mu.Lock()
	if db.closed {
		db.mu.Unlock()
		return kv.ErrClosed
	}
	root := db.root
	db.views.Add(1)
	db.mu.Unlock()
	defer db.views.Done()
	return fn(reader{root})
}

func (db *DB) Apply(_ context.Context, changes []kv.Change) error {
	db.mu.Lock()
	root, closed := db.root, db.closed
	db.mu.Unlock()
	if closed {
		return kv.ErrClosed
	}
	for _, c := range changes {
		if c.Delete {
			root = root.without(c.Key)
		} else {
			root = root.with(bytes.Clone(c.Key), append([]byte{}, c.Value...))
		}
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed {
		return kv.ErrClosed
	}
	db.root = root
	return nil
}

func (db *DB) Close() error {
	db.mu.Lock()
	db.closed = true
	db.mu.Unlock()
	db.views.Wait()
	return nil
}

type reader struct{ root *node }

func (r reader) Get(key []byte) ([]byte, bool, error) {
	n := r.root.find(key)
	if n == nil {
		return nil, false, nil
	}
	return append([]byte{}, n.value...), true, nil
}

func (r reader) Scan(from, to []byte, reverse bool, fn func(key, value []byte) error) error {
	return r.root.scan(from, to, reverse, fn)
}
