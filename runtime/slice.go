package runtime

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/runtime/durable"
	"github.com/skep-dev/skep/runtime/journal"
	"github.com/skep-dev/skep/store/instance"
)

var cryptoRandom = rand.Reader

// What a run keeps in memory before it commits: a slice of it may be long.
const (
	sliceParts = 64
	sliceBytes = 160 << 10
	hostEvents = 1000 // of ours, past which they are dropped
	flushAfter = 50 * time.Millisecond
	insideRoom = 24 // parts of a commit that one call may add
	roomBytes  = 256 << 10
)

// enter waits in the instance's line, for as long as it takes.
func (x *execution) enter(ctx context.Context) (*durable.Turn, error) {
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		t, err := x.r.keeper.Enter(ctx, x.id, durable.Entry{})
		if err == nil || ctx.Err() != nil || agent.AsError(err).Limit != agent.LimitConcurrency {
			return t, err
		}
		pause(ctx, wait)
	}
}

// again is enter in a life that has begun. Where the instance was acquired anew since, another process may have had it meanwhile and have gone on with
// the run; then nothing that is known of it here counts any more, and the error is ErrFenced.
func (x *execution) again(ctx context.Context) (*durable.Turn, error) {
	t, err := x.enter(ctx)
	if err != nil {
		return nil, err
	}
	epoch := t.Info().Fence.Epoch
	if x.epoch.Load() == epoch || !x.newest() {
		return t, nil
	}
	run, err := x.r.store.Run(ctx, x.run.App, x.run.ID)
	if err == nil && (run.Lives != x.run.Lives || run.Lost > x.run.Lost) {
		err = agent.Wrap(agent.Conflict, instance.ErrFenced, "the run goes on in another process")
		x.fail(err)
	}
	if err != nil {
		t.Abandon()
		return nil, err
	}
	x.epoch.Store(epoch)
	return t, nil
}

// newest reports that the run does not go on in a later life of this process. One that begins makes itself known before it enters the instance.
func (x *execution) newest() bool {
	x.r.mu.Lock()
	defer x.r.mu.Unlock()
	return x.r.active[x.run.ID] == x
}

// theTurn returns the turn of the slice, which begins when something of the instance is asked for, and lasts until the code comes to rest. A store that
// fails for now is asked again, until ctx ends or the process must. The caller holds gate.
func (x *execution) theTurn(ctx context.Context) (*durable.Turn, error) {
	for wait := firstRetry; x.turn == nil; wait = min(2*wait, lastRetry) {
		t, err := x.again(ctx)
		switch {
		case err == nil:
			t.Gather(x.collect)
			x.turn = t
		case ctx.Err() != nil || x.hard.Err() != nil || !passing(err):
			return nil, err
		default:
			x.r.log.WarnContext(x.hard, "an instance could not be acquired for its run, and is tried again", "run", x.run.ID, "error", err)
			pause(ctx, wait)
		}
	}
	return x.turn, nil
}

// lasting returns a context for the end of a life: it outlives the cell, and the process's own end by the time of one commit.
func (x *execution) lasting() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(x.hard))
	stop := context.AfterFunc(x.hard, func() {
		pause(ctx, commitTimeout)
		cancel()
	})
	return ctx, func() { stop(); cancel() }
}

// undo forgets what the slice did to the instance. The caller holds gate, as do those of the next four.
func (x *execution) undo() {
	if x.turn != nil {
		x.turn.Undo()
	}
}

// drop leaves the turn, without what it has not committed.
func (x *execution) drop() {
	if x.turn != nil {
		x.turn.Abandon()
		x.turn = nil
	}
}

// commit makes all durable that there is.
func (x *execution) commit(ctx context.Context) error {
	if !x.holds() && x.turn == nil {
		return nil
	}
	short := x.turn == nil
	t, err := x.theTurn(ctx)
	if err != nil {
		if ctx.Err() == nil {
			x.fail(err)
		}
		return err
	}
	err = x.r.retry(x.hard, t.Commit)
	if short {
		x.drop()
	}
	if err != nil {
		x.fail(err)
	}
	return err
}

func (x *execution) holds() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.entries)+len(x.events) > 0 || x.asksChanged
}

// leaveTurn commits what the slice did to the instance, and lets others have it. Journal entries and events alone ride with the next commit.
func (x *execution) leaveTurn(ctx context.Context) error {
	if x.turn == nil {
		return nil
	}
	defer x.drop()
	x.mu.Lock()
	urgent := x.urgent
	x.mu.Unlock()
	if !urgent && !x.turn.Changed() {
		return nil
	}
	return x.commit(ctx)
}

// fail ends the run because of what happened to it here.
func (x *execution) fail(err error) {
	x.mu.Lock()
	if x.failed == nil {
		x.failed = err
	}
	x.mu.Unlock()
	x.stop(err)
}

// collect moves what is not yet committed into a batch.
func (x *execution) collect(b *instance.Batch) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.events) > 0 && x.view.Begun && (x.emitted != x.view.Mark.Call || x.lines != x.view.Mark.Lines) {
		m := journal.Entry{Kind: journal.Mark, Call: x.emitted, Lines: x.lines, Count: x.emits, Bytes: x.logged}
		x.view.Add(m)
		x.entries = append(x.entries, m)
	}
	b.Journal = append(b.Journal, journal.Pack(x.run.ID, x.entries)...)
	log := instance.SessionLog(x.run.Session)
	for _, ev := range x.events {
		b.Events = append(b.Events, instance.Append{Log: log, Event: ev})
	}
	x.entries, x.events, x.bytes, x.urgent = nil, nil, 0, false
	x.collectAsksLocked(b)
}

// append adds entries to the journal, which the next commit carries.
func (x *execution) append(entries ...journal.Entry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.appendLocked(entries...)
}

func (x *execution) appendLocked(entries ...journal.Entry) {
	for _, e := range entries {
		x.view.Add(e)
		x.entries = append(x.entries, e)
		x.bytes += e.Size()
	}
	if err := x.view.Full(); err != nil && x.failed == nil && !x.over {
		x.failed = err
		x.stop(err)
	}
}

// use takes one use of a grant of which the run may have most, in all its lives.
func (x *execution) use(grant string, most int64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.view.Uses[grant] >= most {
		return false
	}
	x.appendLocked(journal.Entry{Kind: journal.Used, Name: grant})
	return true
}

// tell adds an event of ours, before the code runs or after.
func (x *execution) tell(kind agent.EventKind, data json.RawMessage) {
	x.addEvent(agent.Event{Kind: kind, Data: data})
}

func (x *execution) addEvent(ev agent.Event) {
	ev.Run = x.run.ID
	if ev.Time.IsZero() {
		ev.Time = time.Now().UTC()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.addLocked(ev)
}

// addLocked adds events, which the next commit carries. The caller holds mu.
func (x *execution) addLocked(events ...agent.Event) {
	x.events = append(x.events, events...)
	for _, ev := range events {
		x.bytes += len(ev.Data)
	}
}

func (x *execution) addLast(run agent.Run) { x.addEvent(lastEvent(run)) }

// event adds an event of ours that tells of the code. It may be dropped where lines may be. That a call has returned waits for what the call came to, so
// that one commit has both.
func (x *execution) event(ctx context.Context, ev agent.Event) {
	x.mu.Lock()
	if f := x.flights[host.Number(ctx)]; f != nil && ev.Kind == agent.EventToolReturned {
		f.told = append(f.told, ev)
		x.mu.Unlock()
		return
	}
	full := len(x.events) >= hostEvents || x.over
	x.mu.Unlock()
	if !full {
		x.addEvent(ev)
		x.flushSoon()
	}
}

// emit adds an event of the code's. A guest that emits faster than the store commits is held back.
func (x *execution) emit(ctx context.Context, name string, data json.RawMessage) error {
	n := host.Number(ctx)
	x.mu.Lock()
	x.emits++
	x.emitted = max(x.emitted, n)
	x.mu.Unlock()
	return x.add(ctx, agent.Event{Kind: agent.EventEmit, Name: name, Data: data})
}

func (x *execution) line(ctx context.Context, line agent.LogLine) error {
	x.mu.Lock()
	x.lines, x.logged = x.seen, x.seenLog
	x.mu.Unlock()
	return x.add(ctx, agent.Event{Kind: agent.EventLog, Data: encode(line)})
}

// add adds an event of the code's, and commits when many wait. The caller does not hold gate.
func (x *execution) add(ctx context.Context, ev agent.Event) error {
	x.mu.Lock()
	err := x.failed
	if err == nil && x.over {
		err = agent.Errorf(agent.Cancelled, "the run has ended")
	}
	x.mu.Unlock()
	if err != nil {
		return err
	}
	x.addEvent(ev)
	if err := x.room(ctx); err != nil {
		return err
	}
	x.flushSoon()
	return nil
}

// room commits when much waits to be.
func (x *execution) room(ctx context.Context) error {
	if !x.fuller(sliceParts, sliceBytes) {
		return nil
	}
	x.gate.Lock()
	defer x.gate.Unlock()
	if parts, bytes := x.held(); x.turn != nil && x.turn.Fits(parts, bytes) {
		return nil
	}
	return x.commit(ctx)
}

// fuller reports whether more waits to be committed.
func (x *execution) fuller(events, bytes int) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.events) >= events || x.bytes >= bytes
}

// held is how many parts wait to be committed beside those of the turn, and their bytes. Many entries of the journal are one.
func (x *execution) held() (parts, bytes int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.events) + 1 + x.bytes/journal.MaxInline, x.bytes
}

// flushSoon has events committed soon, so that those who listen see them while the code runs or waits. So is what is urgent.
func (x *execution) flushSoon() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.flushSoonLocked()
}

func (x *execution) flushSoonLocked() {
	if x.flushing || x.over {
		return
	}
	x.flushing = true
	time.AfterFunc(flushAfter, x.flush)
}

// flush commits events, unless the slice has changed the instance: what it does to that is not divided, and its rest commits them.
func (x *execution) flush() {
	x.mu.Lock()
	over := x.over
	x.mu.Unlock()
	if over {
		return
	}
	x.gate.Lock()
	defer x.gate.Unlock()
	x.mu.Lock()
	x.flushing = false
	none := x.over || len(x.events) == 0 && !x.urgent || x.failed != nil
	x.mu.Unlock()
	if none || x.ctx.Err() != nil {
		return
	}
	if x.turn != nil {
		x.flushSoon()
		return
	}
	_ = x.commit(x.ctx) // which says so to the run
}

// now is the time as the code sees it: that of the newest delivery. A cell that is being restored learns the real one, for its timers.
func (x *execution) now() time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.resumed && !x.moved {
		return time.Now()
	}
	return x.clock
}

// left returns what a life may use of the limits of its run: processor time and calls add up over the lives that a snapshot stands for. Time
// counts for each life by itself.
func (x *execution) left(l agent.Limits) agent.Limits {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.view.Snapshot; s != nil && x.script.Load() {
		l.CPU = max(l.CPU-s.Usage.CPU, time.Millisecond)
		l.HostCalls = max(l.HostCalls-s.Usage.HostCalls, 1)
		l.Log = max(l.Log-s.Bytes, 1)
	}
	l.Events = max(l.Events-x.view.Mark.Count, 1)
	return l
}
