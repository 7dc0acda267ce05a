package runtime

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/internal/telemetry"
	"github.com/skep-dev/skep/runtime/durable"
	"github.com/skep-dev/skep/runtime/journal"
	"github.com/skep-dev/skep/store/instance"
)

const (
	commitTimeout = 10 * time.Second // of one attempt
	firstRetry    = 50 * time.Millisecond
	lastRetry     = 5 * time.Second
)

func errCancelled() error { return agent.Errorf(agent.Cancelled, "the run was cancelled") }

// Why a cell is given up that its run needs no more, for now.
var (
	errStopping  = agent.Errorf(agent.Unavailable, "the server is stopping")
	errSuspended = agent.Errorf(agent.Cancelled, "the run waits")
	errGoneAway  = agent.Errorf(agent.Cancelled, "the run has given up its cell")
)

// execution is one life of a run: from its queue to its end, or to where it gives up its cell. It may outlive the cell, for what the code
// has asked of the outside goes on. The lock order is gate, the turn's own, mu.
type execution struct {
	r     *Runtime
	hard  context.Context // of the process
	ctx   context.Context // of the cell, and of what it asked for
	stop  context.CancelCauseFunc
	ended chan struct{}
	leave func() // gives up its places in the queue

	run    agent.Run // as it is stored
	rec    record
	id     instance.ID
	script atomic.Bool // deliveries come from the cell; else each call's answer is one
	random *stream

	gate  sync.Mutex // held over what uses the turn
	turn  *durable.Turn
	epoch atomic.Int64 // of the instance's fence, as of the latest turn

	mu          sync.Mutex
	view        *journal.View
	clock       time.Time // of the newest delivery
	moved       bool      // something was delivered in this life
	resumed     bool      // from a snapshot
	replay      []time.Time
	played      map[uint64]time.Time // when calls were delivered, of code that is played from its beginning
	issued      uint64               // calls of code that does not count them
	highest     uint64               // number of a call
	seen        int64                // console lines, and their bytes, since the run began
	seenLog     int64
	emits       int64
	emitted     uint64 // highest call that is among the events
	lines       int64  // that are among the events
	logged      int64
	entries     []journal.Entry // not yet committed
	events      []agent.Event   // the same
	bytes       int             // of both
	urgent      bool            // among entries is one that the end of the slice commits
	asked       map[uint64]*asked
	flights     map[uint64]*flight
	opening     int             // calls that are outside now
	open        map[uint32]bool // exchanges whose bodies are not read to their end
	changed     chan struct{}   // closed and replaced when something came for who waits
	gone        chan struct{}   // closed when the cell is given up
	nudge       chan struct{}
	flushing    bool
	astray      bool // timers were set while the journal was played, and are late
	door        host.Calls
	since       time.Time // when the cell came to rest
	began       time.Time
	rejects     bool // what the code waits for is refused now
	pausing     bool
	stopping    bool
	detached    bool          // the cell is given up, and calls go on
	settled     chan struct{} // closed when that is written down, or when the cell was not given up after all
	over        bool          // nothing is added any more
	failed      error
	parked      *parked
	tools       *toolbox
	asks        []agent.Approval // questions to a person that are open, as the run's record is to have them
	asksChanged bool             // and has not yet
	asking      map[string]context.CancelCauseFunc
	flying      sync.WaitGroup
	alarm       *time.Timer
}

// asked is a call of the code whose answer it has not got.
type asked struct {
	class    journal.Class
	name     string
	sum      journal.Sum
	input    []byte
	ours     bool          // its flight is of this life
	leaves   bool          // what came before it is being committed, or was
	opened   chan struct{} // closed when that is durable; nil for calls that need not wait for it
	returned bool          // its answer is on the way to the code
	looked   bool          // of a run's result: the store was asked, and nothing has come since
	cancel   context.CancelCauseFunc

	permission string // of a CLI, for which a call of a tool stands
}

// entry is one that tells of a call, and what that asked for.
func (a *asked) entry(k journal.Kind, n uint64) journal.Entry {
	return journal.Entry{Kind: k, Call: n, Name: a.name, Sum: a.sum, Class: a.class, Text: journal.Brief(a.name, a.input)}
}

// flight is a call that is outside. It may land after the cell is gone.
type flight struct {
	done chan struct{}
	out  []byte
	err  error
	told []agent.Event // that it has returned: goes into the commit that has what it came to
}

// execute carries one run through a life. hard ends when the process must stop; leave gives up the run's places in the queue.
func (r *Runtime) execute(hard context.Context, t *task, a admission, leave func()) {
	defer a.leave()
	ctx, stop := context.WithCancelCause(hard)
	defer stop(nil)
	x := r.newExecution(hard, ctx, stop, leave)
	x.adopt(t.id)
	defer x.retire(t.id)
	if a.err != nil {
		x.refused(t, a.err)
		return
	}
	live, err := x.begin(t, a)
	if err != nil {
		if agent.KindOf(err) != agent.Conflict && ctx.Err() == nil { // else it was cancelled before its turn, or the server stops
			r.log.ErrorContext(hard, "run was not started and stays queued", "run", t.id, "error", err)
		}
		return
	}
	if live {
		if x.run.Lives > 1 {
			r.stats.woke(time.Since(t.since))
		}
		x.live(a)
	}
}

func (r *Runtime) newExecution(hard, ctx context.Context, stop context.CancelCauseFunc, leave func()) *execution {
	return &execution{
		r: r, hard: hard, ctx: ctx, stop: stop, ended: make(chan struct{}), leave: leave, asked: map[uint64]*asked{}, flights: map[uint64]*flight{},
		open: map[uint32]bool{}, changed: make(chan struct{}), gone: make(chan struct{}), settled: make(chan struct{}), nudge: make(chan struct{}, 1), began: time.Now(),
	}
}

// adopt makes this the run's execution, and takes over the calls that an earlier life has under way.
func (x *execution) adopt(id agent.RunID) {
	x.r.mu.Lock()
	defer x.r.mu.Unlock()
	if old := x.r.active[id]; old != nil {
		old.mu.Lock()
		for n, f := range old.flights {
			x.flights[n] = f
		}
		old.mu.Unlock()
	}
	x.r.active[id] = x
	x.stopping = x.r.stopping
}

func (x *execution) retire(id agent.RunID) {
	x.r.mu.Lock()
	if x.r.active[id] == x {
		delete(x.r.active, id)
	}
	x.r.mu.Unlock()
	x.mu.Lock()
	x.over = true
	if x.alarm != nil {
		x.alarm.Stop()
	}
	x.mu.Unlock()
	x.leave()
	select {
	case <-x.ended:
	default:
		close(x.ended)
	}
}

// refused ends a run that may not begin.
func (x *execution) refused(t *task, why error) {
	err := x.r.retry(x.hard, func(ctx context.Context) error {
		run, err := x.r.store.Run(ctx, t.app, t.id)
		if err != nil || run.Status != agent.Queued {
			return err
		}
		_, err = x.r.end(ctx, run, agent.RunFailed, x.r.stats.failed(why))
		return err
	})
	if err != nil && agent.KindOf(err) != agent.Conflict {
		x.r.log.ErrorContext(x.hard, "the end of a run could not be written", "run", t.id, "error", err)
	}
}

// begin makes a queued run Running, in a commit that is durable before any of its code runs. It reports false when the run needs no cell.
func (x *execution) begin(t *task, a admission) (live bool, err error) {
	err = x.r.retry(x.hard, func(ctx context.Context) error {
		run, err := x.r.store.Run(ctx, t.app, t.id)
		if err != nil {
			return err
		}
		session, err := x.r.store.Session(ctx, t.app, run.Session)
		if err != nil {
			return err
		}
		kind, err := x.r.kindOf(ctx, run)
		x.rec, x.id = a.record, instance.ID{App: run.App, Agent: a.record.agent.ID, Key: session.Key}
		x.script.Store(kind == agent.Script)
		return err
	})
	if err != nil {
		return false, err
	}
	if err := x.id.Check(); err != nil {
		x.refused(t, err)
		return false, nil
	}
	err = x.r.retry(x.hard, func(ctx context.Context) error {
		turn, err := x.enter(x.ctx) // where it keeps its place in the line
		if err != nil {
			return err
		}
		defer turn.Abandon()
		x.epoch.Store(turn.Info().Fence.Epoch)
		live, err = x.enterLife(ctx, turn, t)
		return err
	})
	return live, err
}

// enterLife reads the journal and decides what becomes of the run.
func (x *execution) enterLife(ctx context.Context, t *durable.Turn, task *task) (live bool, err error) {
	run, err := x.r.store.Run(ctx, task.app, task.id)
	if err != nil {
		return false, err
	}
	if run.Status != agent.Queued {
		return false, agent.Errorf(agent.Conflict, "run %s is %s", run.ID, run.Status)
	}
	x.run = run
	view, err := x.r.readView(ctx, x.id, run.ID, false)
	if err != nil {
		return false, err
	}
	now := time.Now().UTC()
	x.mu.Lock()
	x.view, x.entries, x.events, x.bytes, x.clock = view, nil, nil, 0, view.Clock
	x.lines, x.logged, x.emits, x.emitted = view.Mark.Lines, view.Mark.Bytes, view.Mark.Count, view.Mark.Call
	x.adoptAsksLocked(run.Asks)
	x.mu.Unlock()
	next := run
	next.Wait = nil
	if run.Lives > 0 {
		if err := t.SetAlarm(ctx, instance.AlarmEdit{Clear: true, Alarm: instance.Alarm{Name: runAlarm + string(run.ID)}}); err != nil {
			return false, err
		}
	}
	if n := view.Uncertain(func(n uint64) bool { return x.flights[n] != nil }); n != 0 {
		c := view.Calls[n]
		next.Status, next.Wait = agent.Uncertain, &agent.RunWait{For: "answer", Name: journal.Describe(c.Name, c.Text), Call: n}
		x.tell(agent.EventRunUncertain, encode(next.Wait))
		return false, x.change(ctx, t, run.Status, next)
	}
	if len(view.Crashes) > 1 {
		next.Status, next.Ended, next.Error = agent.RunFailed, now, agent.ErrorOf(lostTooOften(view))
		x.append(journal.Entry{Kind: journal.End, Text: next.Status.String()})
		x.addLast(next)
		if err := x.r.endedParent(ctx, t, next); err != nil {
			return false, err
		}
		return false, x.change(ctx, t, run.Status, next)
	}
	x.append(x.begun(now)...)
	x.mu.Lock()
	x.view.Now = true
	x.mu.Unlock()
	next.Status, next.Lives = agent.Running, run.Lives+1
	kind := agent.EventRunResumed
	if run.Started.IsZero() {
		next.Started, kind = now, agent.EventRunStarted
	}
	x.tell(kind, nil)
	return true, x.change(ctx, t, run.Status, next)
}

// begun returns the entries with which a life begins.
func (x *execution) begun(now time.Time) []journal.Entry {
	var out []journal.Entry
	if !x.view.Begun {
		out = append(out, journal.Entry{Kind: journal.Begin, Seed: newSeed(), Time: now, Image: x.run.Plugin})
	}
	return append(out, journal.Entry{Kind: journal.Life, Count: x.view.Lives + 1})
}

func newSeed() (seed [32]byte) {
	_, _ = io.ReadFull(cryptoRandom, seed[:]) // it never fails
	return seed
}

func lostTooOften(v *journal.View) error {
	return &agent.Error{
		Kind: agent.Exhausted, Msg: "the run was lost twice in a row: " + strings.Join(v.Crashes, "; "),
		Hint: "see what its code does there, and start the run again from a step before",
	}
}

// change commits a turn that changes the run.
func (x *execution) change(ctx context.Context, t *durable.Turn, from agent.RunStatus, to agent.Run) error {
	t.Gather(x.collect)
	if err := t.ChangeRun(ctx, instance.RunEdit{From: from, Run: to}); err != nil {
		return err
	}
	if err := t.Leave(ctx); err != nil {
		return err
	}
	x.run = to
	return nil
}

// live runs the code in a cell and deals with what that comes to.
func (x *execution) live(a admission) {
	ctx := telemetry.With(telemetry.WithTraceparent(x.ctx, x.run.Trace), slog.String("run", string(x.run.ID)))
	x.ctx = ctx
	j := x.r.jobOf(agent.UseRun, a.record, a.hold.Limits)
	j.hold, j.narrow, j.clock = a.hold, x.left, x.now
	j.Session, j.Run, j.plugin, j.function, j.input = x.run.Session, x.run.ID, x.run.Plugin, x.run.Function, x.run.Input
	j.sinks = sinks{x.line, x.emit, x.event}
	j.place = &place{id: x.id, turn: x.theTurn, run: x}
	var gone func()
	j.begun = func(done func()) { gone = done }
	var res host.Result
	suspended := false
	err := x.r.inCell(ctx, j, func(ctx context.Context, c host.Call) (agent.Usage, error) {
		var err error
		res, err = x.call(ctx, c)
		if suspended = x.gaveUp(res, err); suspended {
			gone()
			x.suspend(res)
			x.leave()
			x.flying.Wait() // with the door open, and what is held against quotas
			return res.Usage, nil
		}
		res.Output.Body = j.secrets.Bytes(res.Output.Body)
		return res.Usage, err
	})
	if !suspended {
		x.conclude(res, err)
	}
}

// conclude writes down how a life ended that did not wait.
func (x *execution) conclude(res host.Result, err error) {
	x.mu.Lock()
	x.over = true
	lost := x.failed
	x.mu.Unlock()
	cause := context.Cause(x.ctx)
	switch {
	case lost != nil && (errors.Is(lost, instance.ErrFenced) || errors.Is(lost, instance.ErrUnknown) || errors.Is(lost, instance.ErrGone)):
		x.gate.Lock()
		x.drop()
		x.gate.Unlock()
		x.r.log.WarnContext(x.hard, "a run was taken over, or its instance deleted", "run", x.run.ID, "error", lost)
		return
	case lost != nil:
		err = lost
	case errors.Is(cause, errStopping) && err != nil:
		x.giveBack(res.Usage)
		return
	case cause == nil && mayTryAgain(err) && len(x.view.Crashes) == 0:
		x.crashed(res.Usage, err)
		return
	case cause == nil && mayTryAgain(err):
		e := *agent.AsError(err)
		e.Kind, e.Msg = agent.Exhausted, "the run was lost twice in a row: "+strings.Join(x.view.Crashes, "; ")+"; "+e.Msg
		err = &e
	}
	if err != nil && agent.KindOf(err) == agent.Internal && x.ctx.Err() == nil {
		x.r.log.ErrorContext(x.hard, "run", "agent", x.run.Agent, "error", err)
	}
	x.finish(res, err, cause)
}

// mayTryAgain reports whether a life failed for what may be better the next time.
func mayTryAgain(err error) bool {
	e := agent.AsError(err)
	return e != nil && (e.Kind == agent.Unavailable || e.Kind == agent.Exhausted && e.Limit == agent.LimitMemory)
}

// finish ends the run.
func (x *execution) finish(res host.Result, err, cause error) {
	next := x.run
	next.Usage, next.Ended = addUsage(x.run.Usage, res.Usage), time.Now().UTC()
	status, why := agent.Completed, err
	x.mu.Lock()
	terminated := x.view.Terminate
	x.mu.Unlock()
	switch {
	case err != nil:
		status, why = outcome(err, cause)
		why = x.asWorker(why)
		if terminated && status == agent.RunFailed {
			status, why = agent.RunCancelled, errTerminated()
		}
	case terminated:
		status, why = agent.RunCancelled, errTerminated()
	default:
		next.Output = &res.Output
	}
	next.Status, next.Error = status, clipped(agent.ErrorOf(why))
	x.gate.Lock()
	defer x.gate.Unlock()
	defer x.drop()
	if err != nil {
		x.undo() // a slice that throws never was
	}
	err = x.write(next)
	if err != nil && agent.KindOf(err) == agent.Invalid { // what the code returned cannot be stored
		x.mu.Lock()
		x.entries, x.events, x.bytes = nil, nil, 0
		x.mu.Unlock()
		x.undo()
		next.Output, next.Status, next.Error = nil, agent.RunFailed, clipped(agent.ErrorOf(err))
		err = x.write(next)
	}
	if err != nil {
		x.r.log.ErrorContext(x.hard, "the end of a run could not be written", "run", x.run.ID, "error", err)
	}
}

// write commits the end of the run. The caller holds gate.
func (x *execution) write(next agent.Run) error {
	ctx, cancel := x.lasting()
	defer cancel()
	t, err := x.theTurn(ctx)
	if err != nil {
		return err
	}
	x.append(journal.Entry{Kind: journal.End, Text: next.Status.String()})
	x.addLast(next)
	if err := x.r.endedParent(ctx, t, next); err != nil {
		return err
	}
	if err := t.ChangeRun(ctx, instance.RunEdit{From: x.run.Status, Run: next}); err != nil {
		return err
	}
	if err := x.r.retry(x.hard, t.Commit); err != nil {
		return err
	}
	x.run = next
	x.r.trimJournals(ctx, t)
	return nil
}

// giveBack puts a run back into the queue whose process stops, as it was when it last committed.
func (x *execution) giveBack(u agent.Usage) {
	next := x.run
	next.Status, next.Usage = agent.Queued, addUsage(x.run.Usage, u)
	x.anew(next, nil)
}

// crashed puts a run back whose life ended for a reason that may go away. Where that cannot be written down, the next process finds it Running, as after
// any other end.
func (x *execution) crashed(u agent.Usage, why error) {
	next := x.run
	next.Status, next.Usage, next.Lost = agent.Queued, addUsage(x.run.Usage, u), x.run.Lost+1
	x.anew(next, &journal.Entry{Kind: journal.Crash, Count: x.view.Lives, Text: lifeText(x.run.Lives, agent.AsError(why).Msg)})
}

// anew drops what this life has not committed.
func (x *execution) anew(next agent.Run, why *journal.Entry) {
	x.gate.Lock()
	defer x.gate.Unlock()
	defer x.drop()
	x.undo()
	x.mu.Lock()
	x.entries, x.events, x.bytes = nil, nil, 0
	x.mu.Unlock()
	if why != nil {
		x.append(*why)
	}
	ctx, cancel := x.lasting()
	defer cancel()
	t, err := x.theTurn(ctx)
	if err == nil {
		err = t.ChangeRun(ctx, instance.RunEdit{From: x.run.Status, Run: next})
	}
	if err == nil {
		err = x.r.retry(x.hard, t.Commit) // of the same parts: what it has gathered is nowhere else
	}
	if err != nil {
		x.r.log.WarnContext(ctx, "a run was not put back into the queue", "run", x.run.ID, "error", err)
		return
	}
	x.run = next
}

// outcome returns how a run ends whose call failed. What stopped the call explains more than what the call says of it.
func outcome(err, cause error) (agent.RunStatus, error) {
	switch {
	case cause == nil:
		return agent.RunFailed, err
	case agent.KindOf(cause) == agent.Cancelled:
		return agent.RunCancelled, cause
	}
	return agent.RunFailed, cause
}

func addUsage(a, b agent.Usage) agent.Usage {
	return agent.Usage{
		CPU: a.CPU + b.CPU, Wall: a.Wall + b.Wall, Fuel: a.Fuel + b.Fuel, Memory: max(a.Memory, b.Memory), HostCalls: a.HostCalls + b.HostCalls,
		In: max(a.In, b.In), Out: a.Out + b.Out, Log: a.Log + b.Log,
	}
}

// stream is the randomness of a run, and how much of it was used.
type stream struct {
	mu   sync.Mutex
	from *rand.ChaCha8
	used int64
}

func newStream(seed [32]byte, used int64) *stream {
	s := &stream{from: rand.NewChaCha8(seed), used: used}
	for b := make([]byte, 4096); used > 0; {
		n, _ := s.from.Read(b[:min(used, int64(len(b)))])
		used -= int64(n)
	}
	return s
}

func (s *stream) Read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used += int64(len(b))
	return s.from.Read(b)
}
