// Package kv is the seam between the store and a database: an ordered map with snapshots and atomic, durable batches.
// Package kvtest holds the tests that every implementation passes.
package kv

import (
	"context"
	"errors"
)

var (
	// ErrClosed is returned by every method of a closed DB. An Apply that returns it changed nothing.
	ErrClosed = errors.New("kv: closed")
	// ErrTooBig is returned by an Apply that was over the database's MaxBatch. It changed nothing.
	ErrTooBig = errors.New("kv: batch is too big")
	// ErrFull is returned by an Apply that the disk has no room for. It changed nothing.
	ErrFull = errors.New("kv: disk is full")
	// ErrCorrupt is in the error of a database that noticed itself that what it holds is not what was applied.
	ErrCorrupt = errors.New("kv: data is damaged")
)

// DB is an ordered map from keys to values. It is safe for concurrent use, but has one writer: Apply is never called
// twice at once. Keys are not empty. An absent value and an empty one are different.
type DB interface {
	// View runs fn on a snapshot: no later Apply is seen inside it. It returns fn's error as it is.
	View(ctx context.Context, fn func(Reader) error) error
	// Apply makes all changes or none. Once it has returned nil they survive a crash of the process and of the machine.
	// After an error it is unknown whether they happened, except for the first three errors above. Where two changes name the
	// same key the later one counts. The database keeps nothing of changes once Apply has returned.
	Apply(ctx context.Context, changes []Change) error
	// Close waits for running views. Closing twice is allowed.
	Close() error
}

// Reader reads one snapshot. It must not be used after the fn it was passed to has returned, nor by two goroutines.
type Reader interface {
	// Get returns the value, which is the caller's to keep, and whether the key is there.
	Get(key []byte) (value []byte, found bool, err error)
	// Scan calls fn for each key in [from, to) in byte order, or in reverse order, until fn returns an error, which Scan
	// returns. A nil to means no upper bound. key and value are valid only during the call.
	Scan(from, to []byte, reverse bool, fn func(key, value []byte) error) error
}

// Change sets a key, or deletes it when Delete is true. Deleting an absent key is no error.
type Change struct {
	Key, Value []byte
	Delete     bool
}

// Limits is implemented by databases that bound a batch; a DB without it takes any.
type Limits interface {
	// MaxBatch returns the most bytes (keys and values) and changes that one Apply may carry; 0 means any number.
	MaxBatch() (bytes, changes int)
}

// PrefixEnd returns the least key that is greater than every key beginning with prefix, or nil when there is none.
func PrefixEnd(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 0xff {
			end[i]++
			return end[:i+1]
		}
	}
	return nil
}
