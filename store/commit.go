package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/instance"
	"github.com/skep-dev/skep/store/kv"
)

const (
	groupTxs     = 256     // transactions in one batch
	groupBytes   = 1 << 20 // bytes in one batch, unless one transaction alone is bigger
	maxTxBytes   = 2 << 20 // bytes in one transaction, or less where the database takes less
	maxTxChanges = 20_000
	maxValue     = 256 << 10 // bytes in one record
)

// committer puts the transactions of many callers into one durable batch. It has no goroutine: the caller who finds no
// leader leads, which is to run the waiting transactions and apply their writes at once; whoever came meanwhile waits, and one
// of them leads the next batch (flat combining, Hendler et al. 2010). Apps take turns, and none has more than its part of a
// batch: whoever comes waits for the batch that is being written, and is in the next, whatever others write.
type committer struct {
	db         kv.DB
	maxBytes   int
	maxChanges int
	room       func() error       // asked by the leader before each batch
	applied    func(commit int64) // called by the leader after each durable batch

	changes changes

	mu      sync.Mutex // guards what follows; held for no longer than it takes to change a queue
	queue   queue
	leading bool
	broken  error // why nothing can be committed or read any more; never cleared

	// Only the leader touches these.
	commit int64         // number of the newest durable commit
	took   time.Duration // the newest of them, to write
	soon   int           // callers who are expected in the queue by now: see gather
	debts  debts

	recent recent
	writes writes
}

// request is a transaction that waits. fn may run more than once, and on another caller's goroutine; only its last run
// counts.
type request struct {
	app      agent.App
	fn       func(*tx) error
	wake     chan bool // true: lead; false: err is the outcome
	err      error
	panicked any
}

func newCommitter(db kv.DB, commit int64, room func() error, applied func(int64)) *committer {
	c := &committer{db: db, commit: commit, room: room, applied: applied, debts: debts{}, maxBytes: maxTxBytes, maxChanges: maxTxChanges}
	if l, ok := db.(kv.Limits); ok {
		bytes, changes := l.MaxBatch()
		if bytes > 0 {
			c.maxBytes = min(c.maxBytes, bytes)
		}
		if changes > 0 {
			c.maxChanges = min(c.maxChanges, changes)
		}
	}
	c.maxBytes, c.maxChanges = c.maxBytes-1024, c.maxChanges-1 // room for the commit number
	return c
}

// do runs fn in a transaction of app and returns once its writes are durable, or with fn's error and without its writes. Once fn
// may have run, ctx is no longer looked at: the outcome of a commit under way is worth waiting for.
func (c *committer) do(ctx context.Context, app agent.App, fn func(*tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r := &request{app: app, fn: fn, wake: make(chan bool, 1)}
	c.mu.Lock()
	lead := !c.leading
	if !lead {
		c.queue.add(r)
	}
	c.leading = true
	c.mu.Unlock()
	if !lead {
		select {
		case lead = <-r.wake:
		case <-ctx.Done():
			if c.leave(r) {
				return ctx.Err()
			}
			lead = <-r.wake
		}
	}
	if lead {
		c.lead(context.WithoutCancel(ctx), r)
	}
	if r.panicked != nil {
		panic(r.panicked)
	}
	return r.err
}

// leave takes r out of the queue, unless its batch has begun or it has been chosen to lead.
func (c *committer) leave(r *request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queue.remove(r)
}

// lead commits one batch, which begins with the leader's own request, and hands over.
func (c *committer) lead(ctx context.Context, own *request) {
	c.gather()
	c.mu.Lock()
	group := append([]*request{own}, c.queue.take(groupTxs-1, c.debts.sitsOut)...)
	err := c.broken
	c.mu.Unlock()

	if err == nil {
		err = c.room()
	}
	var left []*request
	if err == nil {
		group, left, err = c.batch(ctx, group)
	}
	if err != nil {
		c.writes.failed.Add(1)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue.back(left)
	for _, r := range group {
		if err != nil && r.err == nil {
			r.err = err
		}
		if r != own {
			r.wake <- false
		}
	}
	c.soon = c.queue.n + len(group)
	if c.queue.n > 0 {
		c.queue.lead(c.debts.sitsOut).wake <- true
		return
	}
	c.leading = false
}

// gather lets those who were just answered come back before a batch begins. Without it whoever is the first of them leads alone, and
// all others wait for a batch of one. It yields the processor for as long as that brings new callers, and for no longer than the last
// batch took to write: so it costs a lonely writer nothing, and nobody more than another batch would have.
func (c *committer) gather() {
	began := time.Now()
	for seen := 0; ; runtime.Gosched() {
		c.mu.Lock()
		n := c.queue.n + 1
		c.mu.Unlock()
		if n == seen || n >= min(c.soon, groupTxs) || time.Since(began) > c.took {
			return
		}
		seen = n
	}
}

// batch runs the transactions of group, as many as fit and as each app may have, and commits those that succeeded. It returns those
// that it ran, at least the first, and those that are left. An error is the outcome of every one that ran and has none of its own.
func (c *committer) batch(ctx context.Context, group []*request) (ran, left []*request, err error) {
	var b *batch
	had := map[agent.App]int{}
	err = c.db.View(ctx, func(r kv.Reader) error {
		b = newBatch(r, &c.recent)
		if err := c.checkCommit(b.snapshot); err != nil {
			return err
		}
		for i, r := range group {
			if i > 0 && c.debts[r.app]+had[r.app] >= appCost {
				left = append(left, r)
				continue
			}
			t := b.begin()
			r.run(t)
			if r.err == nil {
				r.err = c.checkSize(t)
			}
			full := b.bytes+t.bytes > min(groupBytes, c.maxBytes) || len(b.order)+len(t.order) > c.maxChanges
			if r.err == nil && i > 0 && full {
				left = append(left, group[i:]...)
				break
			}
			if r.err == nil {
				b.merge(t)
			}
			had[r.app] += t.cost()
			ran = append(ran, r)
		}
		if len(b.order) == 0 {
			return nil
		}
		t := b.begin()
		t.put(keyCommit, binary.BigEndian.AppendUint64(nil, uint64(c.commit+1)))
		b.merge(t)
		return nil
	})
	c.debts.spent(had)
	if err != nil && len(ran) == 0 {
		ran, left = group[:1], group[1:]
	}
	if err != nil {
		return ran, left, dbError(err)
	}
	if len(b.order) == 0 {
		return ran, left, nil
	}
	changes := b.changes()
	began := time.Now()
	c.recent.begin(b)
	err = c.apply(ctx, changes)
	c.changes.note(b.order) // also after an error, which may not say what became of it
	c.took = time.Since(began)
	c.writes.nanos.Add(int64(c.took))
	if err != nil {
		c.recent.forget()
		return ran, left, err
	}
	c.recent.done(b)
	c.writes.batches.Add(1)
	c.writes.transactions.Add(int64(len(ran)))
	c.writes.bytes.Add(sizeOf(changes))
	return ran, left, nil
}

func sizeOf(changes []kv.Change) (n int64) {
	for _, c := range changes {
		n += int64(len(c.Key) + len(c.Value))
	}
	return n
}

func (r *request) run(t *tx) {
	r.err, r.panicked = nil, nil
	defer func() {
		if p := recover(); p != nil {
			r.err, r.panicked = errors.New("panic in a transaction"), p
		}
	}()
	r.err = r.fn(t)
}

func (c *committer) checkSize(t *tx) error {
	for _, k := range t.order {
		if n := len(t.writes[k].payload); n > maxValue {
			return agent.Errorf(agent.Invalid, "a record of %d bytes is too big: %d are allowed", n, maxValue)
		}
	}
	if t.bytes > c.maxBytes || len(t.order) > c.maxChanges {
		return &agent.Error{
			Kind: agent.Invalid,
			Msg: fmt.Sprintf("%d records with %d bytes are too much for one commit: %d records and %d bytes are allowed",
				len(t.order), t.bytes, c.maxChanges, c.maxBytes),
			Hint: "send it in several parts",
		}
	}
	return nil
}

// checkCommit refuses to build upon a database that is not where the last commit left it.
func (c *committer) checkCommit(g getter) error {
	n, err := commitNumber(g)
	if err == nil && n != c.commit {
		err = corrupt(keyCommit, "newest commit is number %d and should be %d", n, c.commit)
	}
	return err
}

// commitNumber reads the number of the newest commit.
func commitNumber(g getter) (int64, error) {
	b, found, err := g.get(keyCommit)
	if err != nil {
		return 0, err
	}
	if !found || len(b) != 8 {
		return 0, corrupt(keyCommit, "record is missing")
	}
	return int64(binary.BigEndian.Uint64(b)), nil
}

// apply makes changes durable. When the database cannot say what became of them, the commit number can; when even that
// cannot be read, nothing more is committed or read until the store is opened anew.
func (c *committer) apply(ctx context.Context, changes []kv.Change) error {
	err := c.db.Apply(ctx, changes)
	switch {
	case err == nil:
		c.commit++
		c.applied(c.commit)
		return nil
	case errors.Is(err, kv.ErrClosed), errors.Is(err, kv.ErrTooBig), errors.Is(err, kv.ErrFull):
		return dbError(err)
	}
	var now int64
	rerr := c.db.View(ctx, func(r kv.Reader) (err error) {
		now, err = commitNumber(snapshot{r})
		return err
	})
	switch {
	case rerr == nil && now == c.commit+1:
		c.commit++
		c.applied(c.commit)
		return nil
	case rerr == nil && now == c.commit:
		return agent.Wrap(agent.Unavailable, err, "the database could not write; nothing was changed")
	}
	failed := agent.Error{
		Kind: agent.Unavailable, Msg: "the database failed while writing", Err: errors.Join(err, rerr),
		Hint: "look at the disk and the log, then restart Skep; what was answered before is safe",
	}
	c.mu.Lock()
	c.broken = &failed
	c.mu.Unlock()
	unknown := failed // what comes later fails as well, and is known not to have happened
	unknown.Err = errors.Join(instance.ErrUnknown, failed.Err)
	return &unknown
}

// dead returns why nothing can be read any more, or nil.
func (c *committer) dead() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken
}

// dbError gives an error of the database a kind, and leaves alone one that has a kind already.
func dbError(err error) error {
	var e *agent.Error
	switch {
	case err == nil, errors.As(err, &e), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, kv.ErrClosed):
		return agent.Wrap(agent.Unavailable, err, "the store is closed")
	case errors.Is(err, kv.ErrFull):
		return &agent.Error{
			Kind: agent.Unavailable, Msg: "the disk is nearly full; nothing was changed", Err: err,
			Hint: "make room on the disk of the data directory; no restart is needed",
		}
	case errors.Is(err, kv.ErrCorrupt):
		return damaged("the database", "%v", err)
	}
	return agent.Wrap(agent.Unavailable, err, "the database could not be read or written")
}

// close makes every later commit and read fail, and reports whether the store is whole.
func (c *committer) close() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	whole := c.broken == nil
	if whole {
		c.broken = agent.Wrap(agent.Unavailable, kv.ErrClosed, "the store is closed")
	}
	return whole
}
