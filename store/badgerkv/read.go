package badgerkv

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/dgraph-io/badger/v4"

	"github.com/skep-dev/skep/store/kv"
)

type reader struct{ txn *badger.Txn }

func (r reader) Get(key []byte) ([]byte, bool, error) {
	v, err := r.get(key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("badger: get %q: %w", key, err)
	}
	return v, true, nil
}

func (r reader) get(key []byte) (v []byte, err error) {
	err = safely(func() error {
		item, err := r.txn.Get(key)
		if err == nil {
			v, err = item.ValueCopy(nil)
		}
		return err
	})
	return v, err
}

// safely turns a panic of Badger, which believes what its tables hold, into an error.
func safely(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: badger panicked: %.200v", kv.ErrCorrupt, p)
		}
	}()
	return fn()
}

func (r reader) Scan(from, to []byte, reverse bool, fn func(key, value []byte) error) error {
	o := badger.DefaultIteratorOptions
	o.PrefetchValues = false
	o.Reverse = reverse
	o.Prefix = commonPrefix(from, to) // spares Badger the tables that cannot matter
	it := r.txn.NewIterator(o)
	defer it.Close()
	start := from
	if reverse {
		start = to
	}
	// A seek to nothing begins at the first key, or the last.
	move := func() error { it.Seek(start); return nil }
	next := func() error { it.Next(); return nil }
	for ; ; move = next {
		if err := safely(move); err != nil {
			return fmt.Errorf("badger: scan %q: %w", start, err)
		}
		if !it.Valid() {
			return nil
		}
		item := it.Item()
		k := item.Key()
		if to != nil && bytes.Compare(k, to) >= 0 {
			if reverse {
				continue
			}
			return nil
		}
		if bytes.Compare(k, from) < 0 {
			return nil
		}
		v, err := value(item)
		if err != nil {
			return fmt.Errorf("badger: scan %q: %w", k, err)
		}
		if err := fn(k, v); err != nil {
			return err
		}
	}
}

// value returns what is valid until the iterator moves.
func value(item *badger.Item) (v []byte, err error) {
	err = safely(func() error { return item.Value(func(b []byte) error { v = b; return nil }) })
	return v, err
}

func commonPrefix(a, b []byte) []byte {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return a[:n]
}
