package store

import (
	"sync/atomic"
	"time"

	"github.com/skep-dev/skep/store/internal/disk"
)

// Stats is what a store did since it was opened.
type Stats struct {
	Batches      int64 // durable commits, each of many transactions
	Transactions int64 // in them
	Bytes        int64 // keys and values written
	Failed       int64 // batches that were refused or that the database could not write
	Writing      time.Duration
	DiskFree     int64 // bytes for ordinary users on the data directory's disk; -1 when that is not known
}

// writes counts batches. The leader of each counts it.
type writes struct{ batches, transactions, bytes, failed, nanos atomic.Int64 }

// Stats returns the figures.
func (s *Store) Stats() Stats {
	w := &s.commit.writes
	st := Stats{
		Batches: w.batches.Load(), Transactions: w.transactions.Load(), Bytes: w.bytes.Load(), Failed: w.failed.Load(),
		Writing: time.Duration(w.nanos.Load()), DiskFree: -1,
	}
	if free, err := disk.Free(s.dir); err == nil {
		st.DiskFree = free
	}
	return st
}
