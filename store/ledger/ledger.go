// Package ledger keeps what agents cost: one usage event for each call, run and load.
//
// An event is one record, appended with one write(2) to a segment file before the call it tells of is answered, so that a
// killed process has lost none. Files are synced every second: a power cut loses at most the last one. Fold adds what is not
// yet counted to the daily rollups of the store in a commit that also moves the mark up to which they count, so each event
// counts once whatever happens in between. Segments are kept for detail and then deleted. docs/design/usage.md tells more.
package ledger

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
)

// Options sets what a ledger does where its defaults do not fit. nil and zero fields mean the defaults.
type Options struct {
	Keep    time.Duration // how long events are kept in detail; 35 days
	Segment int64         // bytes of a file; 16 MiB
	MinFree int64         // bytes the disk must have left to append; 256 MiB, a negative one asks for none
	Now     func() time.Time
	Log     *slog.Logger // nil says nothing
}

// Ledger is safe for concurrent use. Its lock order: folding, syncing, mu.
type Ledger struct {
	st   *store.Store
	dir  string
	opts Options
	log  *slog.Logger

	folding sync.Mutex // held by Fold
	syncing sync.Mutex // held by Sync

	full atomic.Bool // the last append found no room

	mu      sync.Mutex
	segment int64
	file    *os.File // nil once closed
	born    time.Time
	size    int64 // what stands beyond belongs to a write that failed
	synced  int64 // of size
	checked int64 // size at which the room was last asked for
	end     ending
	sealed  bool                 // the ending is written, a new segment is not yet there
	retired []*os.File           // sealed and synced, to be closed by Sync
	open    map[string]*openCall // by their ids
	broken  error                // why nothing can be appended any more
}

// Open opens the ledger in the directory usage of dir, which is the data directory of st. It cuts off what a crash left of a
// record, and writes down calls of models that it cut off. Damage in what is not yet folded is an error. It starts no goroutine.
func Open(ctx context.Context, st *store.Store, dir string, o *Options) (*Ledger, error) {
	l := &Ledger{st: st, dir: filepath.Join(dir, "usage"), open: map[string]*openCall{}}
	if o != nil {
		l.opts = *o
	}
	l.opts.Keep = cmp.Or(l.opts.Keep, 35*24*time.Hour)
	l.opts.Segment = cmp.Or(l.opts.Segment, 16<<20)
	l.opts.MinFree = cmp.Or(l.opts.MinFree, 256<<20)
	if l.opts.Now == nil {
		l.opts.Now = time.Now
	}
	if l.log = l.opts.Log; l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return nil, agent.Wrap(agent.Unavailable, err, "cannot make "+l.dir)
	}
	mark, err := st.UsageMark(ctx)
	if err != nil {
		return nil, err
	}
	err = l.begin(mark)
	if err == nil {
		err = l.recover(ctx, mark)
	}
	if err != nil {
		if l.file != nil {
			_ = l.file.Close()
		}
		return nil, err
	}
	return l, nil
}

// begin finds the end of the newest segment, or makes the first.
func (l *Ledger) begin(mark store.UsageMark) error {
	list, err := segments(l.dir)
	if err != nil {
		return err
	}
	newest := int64(0)
	if len(list) > 0 {
		newest = list[len(list)-1]
	}
	if newest < mark.Segment { // the database came from a backup, or somebody took the files away
		l.log.Warn("the ledger's files are not there; usage that was rolled up is", "dir", l.dir, "segment", mark.Segment)
		newest = mark.Segment
		l.sealed = true
	}
	if newest == 0 || l.sealed {
		l.segment, l.sealed = newest, true
		return l.next()
	}
	folded := int64(0)
	if mark.Segment == newest {
		folded = mark.Offset
	}
	return l.resume(newest, folded)
}

// resume opens the newest segment, of which all before folded is in the rollups, and was therefore on disk.
func (l *Ledger) resume(n, folded int64) error {
	path := segmentPath(l.dir, n)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return agent.Wrap(agent.Unavailable, err, "cannot open "+path)
	}
	l.file, l.segment = f, n
	size, err := fileSize(f)
	if err != nil {
		return err
	}
	if size < headerSize && folded == 0 { // a crash came before its first bytes
		l.log.Warn("a segment of the ledger that a crash left without a beginning is begun anew", "file", path)
		return l.start(f, n)
	}
	if l.born, err = readHeader(f, n); err != nil {
		return err
	}
	at, err := scan(f, n, headerSize, size, func(_ int64, r record) error {
		switch r.kind {
		case recordEvent:
			l.end.note(r.event.Time)
		case recordEnd:
			l.sealed = true
		}
		return nil
	})
	if (err == nil || errors.Is(err, errTorn)) && at < folded {
		return damaged(path, "it ends at %d; it was rolled up to %d", at, folded)
	}
	if errors.Is(err, errTorn) {
		l.log.Warn("the ledger ends in a part of a record, as a crash leaves it; it is cut off", "file", path, "at", at, "bytes", size-at)
		err = agentError(f.Truncate(at), "cannot write "+path)
	}
	if err != nil {
		return err
	}
	l.size, l.synced, l.checked = at, 0, at-roomEvery
	if l.sealed {
		return l.next()
	}
	return nil
}

// Run syncs, folds and deletes old segments until ctx ends. Without it, Append works all the same.
func (l *Ledger) Run(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := l.Sync(); err != nil {
			l.log.ErrorContext(ctx, "the ledger could not be synced", "error", err)
		}
		if n%60 != 0 {
			continue
		}
		if err := l.Fold(ctx); err != nil && ctx.Err() == nil {
			l.log.WarnContext(ctx, "usage could not be rolled up yet", "error", err)
		}
		if err := l.expire(ctx); err != nil {
			l.log.WarnContext(ctx, "old usage could not be deleted", "error", err)
		}
	}
}

// Close syncs and folds what is left. Nothing may be under way or follow. Closing twice is allowed.
func (l *Ledger) Close() error {
	l.mu.Lock()
	closed := l.file == nil
	l.mu.Unlock()
	if closed {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := l.Fold(ctx); err != nil { // it stays to be folded next time
		l.log.Warn("usage could not be rolled up at the end", "error", err)
	}
	err := l.Sync()
	l.mu.Lock()
	defer l.mu.Unlock()
	err = errors.Join(err, l.file.Close())
	l.file = nil
	return err
}
