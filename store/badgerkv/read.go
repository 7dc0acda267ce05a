package badgerkv

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/dgraph-io/badger/v4"
)

type reader struct{ txn *badger.Txn }

func (r reader) Get(key []byte) ([]byte, bool, error) {
	item, err := r.txn.Get(key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return nil, false, nil
	}
	var v []byte
	if err == nil {
		v, err = item.ValueCopy(nil)
	}
	if err != nil {
		return nil, false, fmt.Errorf("badger: get %q: %w", key, err)
	}
	return v, true, nil
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
	for it.Seek(start); it.Valid(); it.Next() {
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
		var stop error
		err := item.Value(func(v []byte) error {
			stop = fn(k, v)
			return nil
		})
		if err != nil {
			return fmt.Errorf("badger: scan %q: %w", k, err)
		}
		if stop != nil {
			return stop
		}
	}
	return nil
}

func commonPrefix(a, b []byte) []byte {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return a[:n]
}
