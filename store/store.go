package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/blob"
	"github.com/skep-dev/skep/store/internal/dirlock"
	"github.com/skep-dev/skep/store/internal/disk"
	"github.com/skep-dev/skep/store/kv"
)

// Options sets what a store does where its defaults do not fit. nil and zero fields mean the defaults.
type Options struct {
	Now      func() time.Time // nil means time.Now
	AgentLog int64            // events an agent's log keeps; 0 means 10,000
	// Check bounds the Verify that Open runs after an unclean stop; 0 means 2 seconds. A negative one leaves it out.
	Check time.Duration
	// MinFree is the room in bytes that dir's disk must have for a commit or a blob; 0 means 256 MiB, a negative one asks
	// for none. Less is a refusal that ends when there is room again. Databases deal badly with a disk that is full.
	MinFree int64
	Log     *slog.Logger // nil says nothing
}

// Store is safe for concurrent use.
type Store struct {
	db       kv.DB
	blobs    *blob.Dir
	commit   *committer
	lock     *dirlock.Lock
	witness  *witness
	dir      string
	minFree  int64
	now      func() time.Time
	agentLog int64
	log      *slog.Logger

	known   settled[[32]byte, agent.ModelKey] // virtual keys by the hash of their value
	logging settled[agent.App, agent.ModelLogging]

	wasClosed bool
	damaged   atomic.Bool  // Verify found something
	onceFrom  atomic.Int64 // no idempotency key ends before this Unix second; a hint
	closeOnce sync.Once
	closeErr  error
}

// Open opens the store in db and dir, or makes a new one when db is empty. dir holds blobs and the lock that keeps another
// process out. db stays the caller's, to close after the store. It starts no goroutine.
func Open(ctx context.Context, db kv.DB, dir string, o *Options) (_ *Store, err error) {
	if o == nil {
		o = &Options{}
	}
	s := &Store{db: db, dir: dir, minFree: o.MinFree, now: o.Now, agentLog: o.AgentLog, log: o.Log}
	if s.minFree == 0 {
		s.minFree = 256 << 20
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.agentLog == 0 {
		s.agentLog = 10_000
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.lock, err = dirlock.Acquire(dir, "store.lock"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.lock.Release()
			if s.witness != nil {
				s.witness.abandon()
			}
		}
	}()
	if s.blobs, err = blob.Open(filepath.Join(dir, "blobs")); err != nil {
		return nil, agent.Wrap(agent.Unavailable, err, "cannot open the blobs in "+dir)
	}
	commit, err := openFormat(ctx, db)
	if err != nil {
		return nil, err
	}
	if s.witness, s.wasClosed, err = openWitness(filepath.Join(dir, "commit"), commit); err != nil {
		return nil, err
	}
	s.commit = newCommitter(db, commit, s.room, s.witness.saw)
	if !s.wasClosed && o.Check >= 0 {
		if err = s.checkAfterCrash(ctx, o.Check); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// checkAfterCrash runs as much of Verify as fits in limit.
func (s *Store) checkAfterCrash(ctx context.Context, limit time.Duration) error {
	if limit == 0 {
		limit = 2 * time.Second
	}
	short, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	start := time.Now()
	err := s.Verify(short)
	switch {
	case err == nil:
		s.log.Info("store was not closed; all of it was checked", "took", time.Since(start))
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		s.log.Warn("store was not closed; part of it was checked", "took", time.Since(start))
		return nil
	}
	return err
}

// Close lets go of the directory. Closing twice is allowed; no other method may be under way or follow.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		clean := s.commit.close() && !s.damaged.Load()
		s.closeErr = errors.Join(s.witness.close(clean), s.lock.Release())
	})
	return s.closeErr
}

// room refuses what would be written when the disk is nearly full.
func (s *Store) room() error { return dbError(disk.Room(s.dir, s.minFree)) }

// view runs fn on one snapshot.
func (s *Store) view(ctx context.Context, fn func(snapshot) error) error {
	if err := s.commit.dead(); err != nil {
		return err
	}
	return dbError(s.db.View(ctx, func(r kv.Reader) error { return fn(snapshot{r}) }))
}

// viewRecent runs fn on what the committer knows of the newest commit, or on a snapshot if that is not all that fn reads. Only a snapshot says that
// something is not there.
func (s *Store) viewRecent(ctx context.Context, fn func(g getter, below snapshot) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.commit.dead(); err != nil {
		return err
	}
	err := s.commit.recent.view(func(g getter) error { return fn(g, snapshot{}) })
	if errors.Is(err, errNotRecent) {
		err = s.view(ctx, func(snap snapshot) error { return fn(snap, snap) })
	}
	return err
}

// update runs fn in a transaction of the host's own. fn may run more than once and on another goroutine, and must not call the store.
func (s *Store) update(ctx context.Context, fn func(*tx) error) error {
	return s.updateOf(ctx, "", fn)
}

// updateOf is update for what an app does, in its share of what is committed.
func (s *Store) updateOf(ctx context.Context, app agent.App, fn func(*tx) error) error {
	return dbError(s.commit.do(ctx, app, fn))
}

// stamp is how the store writes a time: in UTC and without a monotonic clock, so that what is read equals what was put.
func stamp(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Round(0)
}

func (s *Store) stampOr(t time.Time) time.Time {
	if t.IsZero() {
		t = s.now()
	}
	return stamp(t)
}

// PutBlob stores b outside the database. It is durable once PutBlob has returned.
func (s *Store) PutBlob(ctx context.Context, b []byte) (agent.Digest, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	return s.putBlob(b)
}

func (s *Store) putBlob(b []byte) (agent.Digest, error) {
	if err := s.room(); err != nil {
		return "", err
	}
	d, err := s.blobs.Put(b)
	if errors.Is(err, syscall.ENOSPC) {
		return "", dbError(fmt.Errorf("%w: %w", kv.ErrFull, err))
	}
	if err != nil {
		return "", agent.Wrap(agent.Unavailable, err, "the data could not be written to disk")
	}
	return d, nil
}

// PutBlobFrom stores what r has outside the database, without holding it in memory. An error of r that has a kind keeps it.
func (s *Store) PutBlobFrom(ctx context.Context, r io.Reader) (agent.Digest, int64, error) {
	if err := ctx.Err(); err != nil {
		return "", 0, err
	}
	return s.putBlobFrom(r)
}

// OpenBlob returns a blob, which the caller closes. It is whole: one that is damaged is an error.
func (s *Store) OpenBlob(ctx context.Context, d agent.Digest) (io.ReadSeekCloser, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f, err := s.blobs.Open(d)
	if err != nil {
		return nil, noBlob(d, err)
	}
	return f, nil
}

// Blob returns what PutBlob stored.
func (s *Store) Blob(ctx context.Context, d agent.Digest) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b, err := s.blobs.Get(d)
	if err != nil {
		return nil, noBlob(d, err)
	}
	return b, nil
}

// noBlob is the error of a blob that cannot be read.
func noBlob(d agent.Digest, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return agent.Errorf(agent.NotFound, "there is no blob %s", d)
	case errors.Is(err, blob.ErrCorrupt):
		return damaged("blob "+string(d), "%v", err)
	}
	return agent.Wrap(agent.Unavailable, err, "the file could not be read from disk")
}
