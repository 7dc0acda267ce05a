package durable

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/instance"
)

const (
	commitTimeout = 10 * time.Second // of one attempt
	resolveFor    = 30 * time.Second // how long an unknown outcome is asked for
	lastTimeout   = 2 * time.Second  // of what is tried after Hasten
	firstPause    = 20 * time.Millisecond
	lastPause     = time.Second

	// Past these a turn is committed in the middle, so that it can be as large as it needs to be.
	manyOps   = instance.MaxOps * 3 / 4
	manyBytes = instance.MaxBytes * 2 / 3
)

// Turn is one piece of work that has its instance alone. What it changes is seen by its own reads at once, and by others when it
// is committed; what was not committed when it is abandoned never was. It is safe for concurrent use.
type Turn struct {
	k     *Keeper
	o     *owned
	by    instance.ID // whose turn waits for this one
	began time.Time

	mu     sync.Mutex
	over   error                        // why nothing can be done in it any more
	ending bool                         // it is being left
	state  map[string]*agent.StateEntry // changed keys; nil is one that was deleted
	size   agent.StateSize              // with what was changed
	alarms map[string]instance.AlarmEdit
	batch  instance.Batch // the other parts
	then   []func()
	gather func(*instance.Batch)
	bytes  int
	beside Attached
	read   readAlarm
	values values
}

// Attached is what holds changes that a turn is to commit, and has not got yet.
type Attached interface {
	Finish(ctx context.Context) error // puts them into the turn, before a commit; after an error the turn has to be undone
	Undo()                            // drops them, and those that it has put in since the newest commit
}

// Attach has a finished before each Commit and Leave, and undone with the turn. The error is that of Over.
func (t *Turn) Attach(a Attached) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.closed(); err != nil {
		return err
	}
	t.beside = a
	return nil
}

func (t *Turn) attached() Attached {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.beside
}

// undoAttached is called without the lock.
func (t *Turn) undoAttached() {
	if a := t.attached(); a != nil {
		a.Undo()
	}
}

var errOver = agent.Errorf(agent.Cancelled, "the turn is over")

// ID returns whose turn it is.
func (t *Turn) ID() instance.ID { return t.o.id }

// Info returns the instance as of its newest commit, with the alarms that the turn sets counted in, each as a new one.
func (t *Turn) Info() instance.Info {
	t.mu.Lock()
	defer t.mu.Unlock()
	info := t.o.info
	for _, e := range t.alarms {
		if !e.Clear {
			info.Alarms++
		}
	}
	return info
}

// Memo is what callers keep in memory with the instance between its turns. It may be lost at any time; one that has a Close method
// is closed then. One that has a Rest method is told when a turn has ended. When the turn is over there is none.
func (t *Turn) Memo() any {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over != nil {
		return nil
	}
	return t.o.memo
}

// SetMemo sets it.
func (t *Turn) SetMemo(memo any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over == nil {
		t.o.memo = memo
	}
}

// Over returns why nothing can be begun in the turn any more, nil while it goes on. What is attached to it asks before it takes a change,
// under a lock that its Finish takes as well.
func (t *Turn) Over() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed()
}

// closed is Over, with the lock.
func (t *Turn) closed() error {
	if t.over == nil && t.ending {
		return errOver
	}
	return t.over
}

// Finish puts into the turn what is attached to it, which its commit does also. After an error the turn has to be undone.
func (t *Turn) Finish(ctx context.Context) error {
	if a := t.attached(); a != nil {
		return a.Finish(ctx)
	}
	return nil
}

// Append adds an event to a log. Its time is now unless it has one.
func (t *Turn) Append(ctx context.Context, log instance.Log, ev agent.Event) error {
	if ev.Time.IsZero() {
		ev.Time = t.k.opts.Now().UTC()
	}
	size := len(ev.Name) + min(len(ev.Data), instance.MaxInline) // what is larger the store keeps elsewhere
	return t.add(ctx, size, func() { t.batch.Events = append(t.batch.Events, instance.Append{Log: log, Event: ev}) })
}

// Journal adds an entry to a run's journal.
func (t *Turn) Journal(ctx context.Context, e instance.Entry) error {
	return t.add(ctx, len(e.Data), func() { t.batch.Journal = append(t.batch.Journal, e) })
}

// Send puts a message in the outbox.
func (t *Turn) Send(ctx context.Context, m instance.Send) error {
	if err := t.check(instance.Batch{Outbox: []instance.Send{m}}); err != nil {
		return err
	}
	return t.add(ctx, len(m.Data), func() { t.batch.Outbox = append(t.batch.Outbox, m) })
}

// Child registers an instance of its own, or removes it.
func (t *Turn) Child(ctx context.Context, c instance.Child) error {
	if err := t.check(instance.Batch{Children: []instance.Child{c}}); err != nil {
		return err
	}
	return t.add(ctx, 0, func() { t.batch.Children = append(t.batch.Children, c) })
}

// ChangeRun makes or changes the record of a run.
func (t *Turn) ChangeRun(ctx context.Context, e instance.RunEdit) error {
	size := (&instance.Batch{Runs: []instance.RunEdit{e}}).Size()
	return t.add(ctx, size, func() { t.batch.Runs = append(t.batch.Runs, e) })
}

// Trim removes the events of a log of its own that are numbered below before. It is done at once, whatever becomes of the turn.
func (t *Turn) Trim(ctx context.Context, log instance.Log, before int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over != nil {
		return t.over
	}
	return t.k.store.Trim(ctx, t.o.id, t.o.info.Fence, log, before)
}

// Gather has f add to each batch of this turn right before it is committed. It must not use the turn, and has room for what instance.MaxOps
// and instance.MaxBytes allow beyond three quarters and two thirds of them; edits of the state that take more are refused as Exhausted.
func (t *Turn) Gather(f func(*instance.Batch)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gather = f
}

// Fits reports whether so many parts more, of so many bytes, fit in one commit with what is there.
func (t *Turn) Fits(parts, bytes int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.fits(parts, bytes)
}

func (t *Turn) fits(parts, bytes int) bool {
	return t.ops()+parts <= manyOps && t.bytes+bytes <= manyBytes
}

// MakeRoom commits what is there unless so many parts more, of so many bytes, fit in one commit with it: what is then added is not
// divided.
func (t *Turn) MakeRoom(ctx context.Context, parts, bytes int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over != nil {
		return t.over
	}
	return t.makeRoom(ctx, parts, bytes)
}

// Then has f called right after the next commit of this turn, when there is one.
func (t *Turn) Then(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.then = append(t.then, f)
}

// check refuses a part that no commit can have when it is added, and not at the end, where it would take all else with it.
func (t *Turn) check(b instance.Batch) error {
	b.ID = instance.BatchID{1}
	return b.Check(t.o.id)
}

// add makes room for a part, then adds it.
func (t *Turn) add(ctx context.Context, size int, part func()) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over != nil {
		return t.over
	}
	if err := t.makeRoom(ctx, 1, size); err != nil {
		return err
	}
	part()
	t.bytes += size
	return nil
}

// makeRoom commits what is there when a few parts more would be too much for one commit.
func (t *Turn) makeRoom(ctx context.Context, parts, size int) error {
	if t.fits(parts, size) {
		return nil
	}
	return t.commit(ctx)
}

func (t *Turn) ops() int { return t.batch.Ops() + len(t.state) + len(t.alarms) }

// Changed reports whether there is something to commit.
func (t *Turn) Changed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ops() > 0 || t.beside != nil
}

// Commit is the output gate: when it returns nil, all that the turn has changed is durable, and what depends on it may leave. After an
// error of kind Conflict or Unavailable that ends the turn, another owner has the instance, or may have; after any other error
// nothing was changed, and the turn can go on or be abandoned.
func (t *Turn) Commit(ctx context.Context) error {
	if err := t.Finish(ctx); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over != nil {
		return t.over
	}
	return t.commit(ctx)
}

func (t *Turn) commit(ctx context.Context) error {
	if t.gather != nil {
		t.gather(&t.batch)
	}
	if t.ops() == 0 {
		t.ran()
		return nil
	}
	b := t.whole()
	res, err := t.k.commit(ctx, t.o, b)
	if err != nil {
		if errors.Is(err, instance.ErrFenced) || errors.Is(err, instance.ErrGone) || errors.Is(err, instance.ErrUnknown) {
			if a := t.k.agenda.Load(); a != nil && len(b.Alarms) > 0 {
				a.lookAgain() // they may be there
			}
			t.over, t.o.have = err, false
			t.undo()
		}
		return err
	}
	info := &t.o.info
	info.Fence, info.State, info.Updated = res.Fence, t.size, t.k.opts.Now()
	info.LogBytes, info.Alarms, info.Outbox, info.Children = res.Counts.LogBytes, res.Counts.Alarms, res.Counts.Outbox, res.Counts.Children
	if b.Snapshot != nil {
		info.Snapshot = *b.Snapshot
	}
	t.forgetParts()
	if t.k.opts.Committed != nil {
		t.k.opts.Committed(t.o.id, b, res)
	}
	t.ran()
	t.k.noticed(t.o.id, b, res)
	return nil
}

// ran calls what waited for the commit.
func (t *Turn) ran() {
	then := t.then
	t.then = nil
	for _, f := range then {
		f()
	}
}

// whole returns the turn's parts as a batch.
func (t *Turn) whole() *instance.Batch {
	b := t.batch
	b.ID = instance.NewBatchID()
	for _, key := range slices.Sorted(maps.Keys(t.state)) {
		e := agent.StateEdit{Act: agent.StateDelete, Key: key}
		if now := t.state[key]; now != nil {
			e.Act, e.Value = agent.StateSet, now.Value
		}
		b.State = append(b.State, e)
	}
	for _, name := range slices.Sorted(maps.Keys(t.alarms)) {
		b.Alarms = append(b.Alarms, t.alarms[name])
	}
	return &b
}

func (t *Turn) forgetParts() {
	t.batch, t.state, t.alarms, t.bytes = instance.Batch{}, nil, nil, 0
	t.read, t.values = readAlarm{}, values{}
}

// undo drops what was not committed.
func (t *Turn) undo() {
	t.forgetParts()
	t.size, t.then = t.o.info.State, nil
}

// Undo drops what the turn has changed since its last commit; it can go on.
func (t *Turn) Undo() {
	t.undoAttached()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.undo()
}

// Leave commits, and ends the turn. After an error what was not committed is undone.
func (t *Turn) Leave(ctx context.Context) error {
	t.mu.Lock()
	t.ending = true
	t.mu.Unlock()
	err := t.Finish(ctx)
	t.mu.Lock()
	if err == nil {
		err = t.over
	}
	if err == nil {
		err = t.commit(ctx)
	}
	if err == nil {
		t.beside = nil // all of it is committed
	}
	t.end() // under the same lock: what comes in between would be lost, and its caller told that it was not
	return err
}

// Abandon ends the turn and undoes what was not committed. It may be called twice, and after Leave.
func (t *Turn) Abandon() {
	t.mu.Lock()
	t.end()
}

// end ends the turn, unless it has ended. The caller holds the lock, which end gives up.
func (t *Turn) end() {
	if t.over == errOver {
		t.mu.Unlock()
		return
	}
	t.undo()
	t.over = errOver
	beside := t.beside
	t.mu.Unlock()
	if beside != nil {
		beside.Undo()
	}
	t.k.stats.turn(t.k.opts.Now().Sub(t.began))
	if m, ok := t.o.memo.(interface{ Rest() }); ok {
		m.Rest()
	}
	t.k.release(t.o, t.by)
}

// commit commits a batch, whatever becomes of the caller, and finds out about outcomes that are not known. Once one was not known, no
// error says that nothing was changed unless Resolve did.
func (k *Keeper) commit(ctx context.Context, o *owned, b *instance.Batch) (instance.Result, error) {
	ctx = context.WithoutCancel(ctx)
	start := time.Now() // and not Options.Now, which may jump
	var unclear error
	tried := false // once more, after it was long enough
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		once, cancel := k.attempt(ctx)
		res, err := k.store.Commit(once, o.id, o.info.Fence, b)
		cancel()
		switch {
		case err == nil:
			k.stats.committed(b, time.Since(start))
			return res, nil
		case errors.Is(err, instance.ErrUnknown):
			unclear = err
		case unclear == nil:
			return res, err
		}
		k.opts.Log.WarnContext(ctx, "the outcome of a commit is not known", "instance", o.id.Key, "error", err)
		late := tried
		tried = k.enough(start)
		switch landed, now, err := k.resolve(ctx, o, b.ID, start, pause); {
		case err != nil || late: // also when another owner came: that tells nothing of the batch
			return res, unclear
		case landed == instance.NotLanded:
			o.info.Fence, b.ID, unclear = now, instance.NewBatchID(), nil
		}
		// One that has landed is sent again for its result.
	}
}

// resolve asks what became of a batch until it is told, or the time for that is over.
func (k *Keeper) resolve(ctx context.Context, o *owned, batch instance.BatchID, start time.Time, pause time.Duration) (instance.Outcome, instance.Fence, error) {
	for {
		k.waitFor(pause)
		once, cancel := k.attempt(ctx)
		landed, now, err := k.store.Resolve(once, o.id, o.info.Fence, batch)
		cancel()
		if err == nil || errors.Is(err, instance.ErrFenced) || errors.Is(err, instance.ErrGone) || k.enough(start) {
			return landed, now, err
		}
		pause = min(2*pause, lastPause)
	}
}

// attempt bounds one attempt: after Hasten it has little time, also when it has begun before.
func (k *Keeper) attempt(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	ended := make(chan struct{})
	go func() {
		select {
		case <-ended:
			return
		case <-k.hasty:
		}
		timer := time.NewTimer(lastTimeout)
		defer timer.Stop()
		select {
		case <-ended:
		case <-timer.C:
			cancel()
		}
	}()
	return ctx, sync.OnceFunc(func() { cancel(); close(ended) })
}

// enough reports whether an outcome has been asked for long enough.
func (k *Keeper) enough(start time.Time) bool {
	select {
	case <-k.hasty:
		return true
	default:
		return time.Since(start) > resolveFor
	}
}

// waitFor returns after d, or with Hasten.
func (k *Keeper) waitFor(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-k.hasty:
	}
}

// rest returns after d, or when ctx ends.
func rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
