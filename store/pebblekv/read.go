package pebblekv

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/skep-dev/skep/store/kv"
)

type reader struct{ snap *pebble.Snapshot }

func (r reader) Get(key []byte) ([]byte, bool, error) {
	v, done, err := r.snap.Get(key)
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		return nil, false, nil
	case err != nil:
		return nil, false, readError("get", key, err)
	}
	v = append([]byte{}, v...)
	return v, true, done.Close()
}

func (r reader) Scan(from, to []byte, reverse bool, fn func(key, value []byte) error) (err error) {
	if to != nil && bytes.Compare(from, to) >= 0 {
		return nil
	}
	it, err := r.snap.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return readError("scan", from, err)
	}
	defer func() {
		if cerr := it.Close(); err == nil && cerr != nil {
			err = readError("scan", from, cerr)
		}
	}()
	start, step := it.First, it.Next
	if reverse {
		start, step = it.Last, it.Prev
	}
	for ok := start(); ok; ok = step() {
		v, err := it.ValueAndErr()
		if err != nil {
			return readError("scan", it.Key(), err)
		}
		if err := fn(it.Key(), v); err != nil {
			return err
		}
	}
	return nil // an iterator that failed says so when it is closed
}

func readError(what string, key []byte, err error) error {
	if pebble.IsCorruptionError(err) {
		err = fmt.Errorf("%w: %w", kv.ErrCorrupt, err)
	}
	return fmt.Errorf("pebble: %s %q: %w", what, key, err)
}
