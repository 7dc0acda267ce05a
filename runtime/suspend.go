package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/runtime/journal"
	"github.com/skep-dev/skep/store/instance"
)

// parked is what a run waits for that gives up its cell.
type parked struct {
	waits   []waiting
	outside int           // calls that are under way
	leaves  agent.RunWait // Call and Name of one of these
	timer   time.Time     // of the code; zero when it has none
}

type waiting struct {
	call  uint64
	name  string
	input []byte
	until time.Time
}

// until returns when the run has to go on at the latest.
func (p *parked) until() (at time.Time) {
	for _, w := range p.waits {
		at = earlier(at, w.until)
	}
	return earlier(at, p.timer)
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// told is what people see of it.
func (p *parked) told() *agent.RunWait {
	w := &agent.RunWait{Until: p.until()}
	switch n := len(p.waits); {
	case n+p.outside > 1:
		w.For = "several"
	case n == 1:
		one := p.waits[0]
		w.Call = one.call
		switch one.name {
		case abi.CallWait:
			var q abi.Wait
			decode(one.input, &q)
			w.For, w.Name = "event", q.Type
		case abi.CallResult:
			var q abi.Result
			decode(one.input, &q)
			w.For, w.Name = "run", q.Run
		case abi.CallTool, abi.CallToolChange:
			w.For, w.Name = "approval", journal.Brief(one.name, one.input)
		case abi.CallAgent:
			var q abi.AgentCall
			decode(one.input, &q)
			w.For, w.Name = "reply", journal.Brief(one.name, one.input)
		default:
			w.For = "sleep"
		}
	case p.outside == 1:
		w.For, w.Name, w.Call = "reply", p.leaves.Name, p.leaves.Call
	default:
		w.For = "sleep"
	}
	return w
}

// rest is asked when a script has come to rest. It lets others have the instance, and says whether the cell is given up.
func (x *execution) rest(_ context.Context, p host.Pending) bool {
	stay, starts := x.examine(p)
	if stay {
		return false
	}
	x.gate.Lock()
	defer x.gate.Unlock()
	if x.park(p) {
		return true // what there is goes into the commit of the snapshot
	}
	x.mu.Lock()
	again := x.patience(x.since, x.began)
	if x.stopping || x.pausing {
		again = time.Now()
	}
	var opens []chan struct{}
	for _, n := range starts {
		if a := x.asked[n]; !a.leaves {
			a.leaves = true
			opens = append(opens, a.opened)
			if a.class == journal.Once {
				x.appendLocked(a.entry(journal.Start, n))
			}
		}
	}
	x.mu.Unlock()
	if len(opens) > 0 || x.unasked() {
		if x.commit(x.ctx) == nil {
			for _, open := range opens {
				close(open)
			}
		}
	}
	_ = x.leaveTurn(x.ctx) // which says so to the run
	x.lookAgain(again)
	return false
}

// lookAgain has the code's rest looked at again at a time.
func (x *execution) lookAgain(at time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	d := max(time.Until(at), time.Millisecond)
	if x.alarm == nil {
		x.alarm = time.AfterFunc(d, x.ask)
	} else {
		x.alarm.Reset(d)
	}
}

// patience returns until when a cell is kept while calls are outside: not for long, and not for more than half of the time it has. After that it is kept ever
// shorter, and in its last quarter not at all: a life of many short waits, none of which is worth giving up the cell for, is over before its time is.
func (x *execution) patience(since, began time.Time) time.Time {
	wall := x.rec.agent.Limits.Or(x.r.opts.Limits).Wall
	now := time.Now()
	return earlier(since.Add(x.r.opts.Outside), later(began.Add(wall/2), now.Add((began.Add(wall).Sub(now)-wall/4)/4)))
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// inFlight is how many of a script's calls are under way at once: the first ones.
const inFlight = 128

// examine notes what the code waits for. It reports that the cell stays when something is answered at once, and else which calls have yet to
// leave.
func (x *execution) examine(p host.Pending) (stay bool, starts []uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.failed != nil || x.over {
		return true, nil
	}
	if x.since.IsZero() {
		x.since = time.Now()
	}
	x.forgetSleeps(p)
	for i, c := range p.Calls {
		a := x.asked[c.ID]
		if a == nil {
			a = x.newAskedLocked(c.ID, c)
			x.asked[c.ID] = a
			x.highest = max(x.highest, c.ID)
		}
		known := x.view.Calls[c.ID]
		switch {
		case a.returned, known != nil && known.Known, x.refusesLocked(c.ID, a), a.class == journal.Inside, a.class == journal.Own,
			a.class == journal.Judging:
			stay = true
		case a.class == journal.Wait:
			if known == nil || !known.Waits() {
				judged := a.name == abi.CallTool || a.name == abi.CallToolChange // a person has answered just now
				if judged || a.name == abi.CallAgent || x.awaitLocked(c.ID, a) != nil {
					stay = true // it goes on, its message is being sent, or it is refused
					continue
				}
			}
			stay = stay || x.pendingLocked(c.ID, a)
		case x.staysLocked(c.ID, a) && i < inFlight:
			starts = append(starts, c.ID)
		}
	}
	return stay, starts
}

// forgetSleeps drops sleeps that the code has given up, which would hold up others that end after them. The caller holds mu.
func (x *execution) forgetSleeps(p host.Pending) {
	for n, a := range x.asked {
		given := func(c host.PendingCall) bool { return c.ID == n }
		if a.name == abi.CallSleep && !slices.ContainsFunc(p.Calls, given) {
			delete(x.asked, n)
			x.pokeLocked()
		}
	}
}

// park decides whether the cell is given up. What returns from then on goes to the journal, and not to the code. The caller holds gate.
func (x *execution) park(p host.Pending) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	k := &parked{timer: p.Alarm}
	now := time.Now()
	soon := now.Add(shortWait)
	leave := x.stopping || x.pausing
	for i, c := range p.Calls {
		a := x.asked[c.ID]
		switch {
		case a == nil || a.returned, a.name == abi.CallModelOpen: // which is answered at once
			return false
		case a.class.Leaves() && x.flights[c.ID] == nil && i < inFlight && (a.leaves || !leave): // what makes it has not got the processor yet, and would not make it then
			return false
		case a.class == journal.Wait:
			k.waits = append(k.waits, waiting{c.ID, c.Name, c.Input, x.view.Calls[c.ID].Until})
		default:
			k.outside++
			k.leaves = agent.RunWait{Call: c.ID, Name: journal.Describe(c.Name, journal.Brief(c.Name, c.Input))}
		}
	}
	until := k.until()
	switch {
	case leave:
	case k.outside == 0 && (until.IsZero() || until.After(soon)):
	case k.outside == 0 && !p.Alarm.IsZero() && x.astray: // its timer was set when the journal was played
	case k.outside > 0 && len(x.open) == 0 && !now.Before(x.patience(x.since, x.began)):
	default:
		return false
	}
	if !leave && x.unopened() { // the cell is given up once they have left
		return false
	}
	x.parked, x.detached = k, k.outside > 0
	return true
}

// unopened reports whether a call waits for its start to be committed.
func (x *execution) unopened() bool {
	for n, a := range x.asked {
		if !a.returned && x.staysLocked(n, a) {
			return true
		}
	}
	return false
}

// staysLocked reports whether a call may not leave before what came before it is committed, and that is not done yet. One that an earlier life has under way
// has left. The caller holds mu.
func (x *execution) staysLocked(n uint64, a *asked) bool {
	return a.class.Leaves() && a.class != journal.Read && !a.leaves && (a.ours || x.flights[n] == nil)
}

// giveUp gives up the cell of code that waits inside of it, unless other calls of the same batch are still to be answered, or it is not for
// long.
func (x *execution) giveUp(n uint64, a *asked) error {
	x.gate.Lock()
	defer x.gate.Unlock()
	if err := x.leaveTurn(x.ctx); err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.parked != nil {
		return errGoneAway
	}
	k := &parked{}
	for n, a := range x.asked {
		c := x.view.Calls[n]
		if a.class != journal.Wait || c == nil || !c.Waits() || x.pendingLocked(n, a) {
			return nil
		}
		k.waits = append(k.waits, waiting{n, a.name, a.input, c.Until})
	}
	if until := k.until(); !x.stopping && !x.pausing && !until.IsZero() && until.Before(time.Now().Add(shortWait)) {
		return nil
	}
	x.parked = k
	x.stop(errSuspended)
	return errGoneAway
}

// gaveUp reports whether a life ended because its run waits.
func (x *execution) gaveUp(res host.Result, err error) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.parked != nil && x.failed == nil && (res.Suspended != nil || err != nil && !x.script.Load() && errors.Is(context.Cause(x.ctx), errSuspended)) {
		return true
	}
	if x.parked != nil {
		x.parked, x.detached = nil, false
	}
	close(x.settled)
	return false
}

// suspend makes a run wait without a cell, in one commit with all that its slice did.
func (x *execution) suspend(res host.Result) {
	defer close(x.settled)
	close(x.gone)
	x.gate.Lock()
	defer x.gate.Unlock()
	defer x.drop()
	err := x.r.retry(x.hard, func(ctx context.Context) error { return x.snapshot(ctx, res) })
	if err == nil {
		err = x.suspended(res)
	}
	if err != nil {
		x.r.log.WarnContext(x.hard, "a run that waits could not be written down", "run", x.run.ID, "error", err)
		x.mu.Lock()
		x.detached = false
		x.mu.Unlock()
	}
	x.mu.Lock()
	x.over = !x.detached
	x.mu.Unlock()
}

// snapshot adds the entry of the cell that is given up.
func (x *execution) snapshot(ctx context.Context, res host.Result) error {
	s := res.Suspended
	if s == nil {
		return nil
	}
	e := journal.Entry{Kind: journal.Snapshot, Image: s.Image, Until: x.parked.timer}
	if s.Exported != nil {
		d, err := x.r.store.PutBlob(ctx, s.Exported)
		if err != nil {
			return err
		}
		x.r.images.put(x.imageOf(), s.Image, d)
	}
	e.ImageBlob = x.r.images.blob(x.imageOf(), s.Image)
	e, err := x.result(ctx, e, s.Snapshot, nil)
	if err != nil {
		return err
	}
	x.r.stats.snapshot(len(s.Snapshot))
	x.mu.Lock()
	defer x.mu.Unlock()
	e.Time, e.Lines, e.Call, e.Count = x.clock, x.seen, x.highest, x.random.used
	e.Bytes = x.seenLog
	e.Usage = addUsage(x.base(), res.Usage)
	x.appendLocked(e)
	return nil
}

// base is what the lives before this one used that it goes on from.
func (x *execution) base() agent.Usage {
	if s := x.view.Snapshot; s != nil && x.resumed {
		return s.Usage
	}
	return agent.Usage{}
}

// suspended commits it. The caller holds gate.
func (x *execution) suspended(res host.Result) error {
	ctx, cancel := x.lasting()
	defer cancel()
	t, err := x.theTurn(ctx)
	if err != nil {
		return err
	}
	x.mu.Lock()
	next, k := x.run, x.parked
	next.Usage, next.Lost = addUsage(x.run.Usage, res.Usage), 0
	next.Wait = k.told()
	next.Status = agent.Waiting
	for _, w := range k.waits {
		if a := x.asked[w.call]; a != nil && x.pendingLocked(w.call, a) {
			next.Status = agent.Queued // it came in between
		}
	}
	switch {
	case x.pausing:
		next.Status, next.Wait.For = agent.Paused, "pause"
	case k.outside > 0 && (x.stopping || len(x.flights) == 0):
		next.Status = agent.Queued
	case k.outside > 0 && next.Status == agent.Waiting:
		next.Status = agent.Running // a process that has it knows what is under way
	}
	if next.Status.Active() {
		next.Wait = nil
	}
	x.mu.Unlock()
	switch next.Status {
	case agent.Waiting:
		x.tell(agent.EventRunWaiting, encode(next.Wait))
	case agent.Running:
		x.tell(agent.EventRunWaiting, encode(k.told()))
	case agent.Paused:
		x.tell(agent.EventRunPaused, encode(next.Wait))
	}
	if until := k.until(); !until.IsZero() && (next.Status == agent.Waiting || next.Status == agent.Running) {
		set := instance.Alarm{Name: runAlarm + string(next.ID), At: until}
		if err := t.SetAlarm(ctx, instance.AlarmEdit{Alarm: set}); err != nil {
			return err
		}
	}
	if err := t.ChangeRun(ctx, instance.RunEdit{From: x.run.Status, Run: next}); err != nil {
		return err
	}
	if err := x.r.retry(x.hard, t.Commit); err != nil {
		return err
	}
	x.run = next
	return nil
}

// bringHome takes what a call came to whose cell is gone, and has the run go on with it. That has to be written down first: it would fail if the run
// was Queued by then. told is what it has told of its return.
func (x *execution) bringHome(n uint64, a *asked, f *flight, told []agent.Event) {
	select {
	case <-x.settled:
	case <-x.ctx.Done():
	case <-time.After(commitTimeout): // the cell waits for this call
	}
	if a.name == abi.CallHTTPOpen && f.err == nil {
		f.out, f.err = x.whole(f.out)
	}
	returned := append(x.takeReturned(), told...)
	e, err := x.result(x.hard, x.telling(journal.Done, n, a), f.out, f.err)
	if err == nil {
		err = x.r.retry(x.hard, func(ctx context.Context) error {
			t, err := x.enter(ctx)
			if err != nil {
				return err
			}
			defer t.Abandon()
			if err := x.r.tellRun(ctx, t, x.run.App, x.run.ID, []journal.Entry{e}, returned); err != nil {
				return err
			}
			return t.Leave(ctx)
		})
	}
	if err != nil && x.hard.Err() == nil {
		x.r.log.WarnContext(x.hard, "what a call came to could not be written down", "run", x.run.ID, "call", n, "error", err)
	}
}

// takeReturned takes the events that tell of requests and of answers of models, to be committed with what one of those came to. That a tool has returned
// is not among them: see flight. What the code has told stays, as its place in the journal is committed with it.
func (x *execution) takeReturned() (out []agent.Event) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.events = slices.DeleteFunc(x.events, func(ev agent.Event) bool {
		switch ev.Kind {
		case agent.EventHTTP, agent.EventMessageStarted, agent.EventMessageDelta, agent.EventMessageDone:
			out = append(out, ev)
			x.bytes -= len(ev.Data)
			return true
		}
		return false
	})
	return out
}

// call runs the code, from its beginning or from where it was.
func (x *execution) call(ctx context.Context, c host.Call) (host.Result, error) {
	x.ctx, x.door = ctx, c.Calls
	c.Calls, c.Now = x.answers(c.Calls), x.now
	if !x.script.Load() {
		return x.play(ctx, c, nil)
	}
	s := x.view.Snapshot
	if s == nil {
		return x.play(ctx, c, nil)
	}
	res, err := x.play(ctx, c, s)
	if s.ImageBlob != "" && x.misfit(err) {
		image, failed := x.r.store.Blob(ctx, s.ImageBlob)
		switch {
		case failed == nil:
			c.Waiting = &host.Waiting{Image: image}
			res, err = x.play(ctx, c, s)
		case agent.KindOf(failed) == agent.Unavailable: // it may be there the next time
			return res, failed
		default:
			x.r.log.WarnContext(ctx, "a run's image is lost, and it is played again from its beginning", "error", failed)
		}
	}
	if !x.misfit(err) {
		return res, err
	}
	// Another version of Skep, and no image: the journal has it all.
	view, failed := x.r.readView(ctx, x.id, x.run.ID, true)
	if failed != nil {
		return res, failed
	}
	x.mu.Lock()
	view.Snapshot, view.Lives = nil, x.view.Lives
	x.view = view
	x.mu.Unlock()
	c.Waiting = nil
	return x.play(ctx, c, nil)
}

// misfit reports whether a snapshot was refused, before anything was done with it.
func (x *execution) misfit(err error) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	kind := agent.KindOf(err)
	return err != nil && x.failed == nil && !x.moved && len(x.asked) == 0 && (kind == agent.Conflict || kind == agent.Invalid)
}

// play has the code go on from a snapshot, or from its beginning, with what it got since.
func (x *execution) play(ctx context.Context, c host.Call, s *journal.Entry) (host.Result, error) {
	w := &host.Waiting{Rest: x.rest, Nudge: x.nudge, Delivered: x.delivered, Diverged: x.diverges, Export: !x.r.images.there(x.imageOf())}
	if c.Waiting != nil {
		w.Image = c.Waiting.Image
	}
	v := x.view
	x.mu.Lock()
	x.clock, x.seen, x.seenLog, x.resumed = v.Began, 0, 0, false
	used := int64(0)
	if s != nil {
		x.clock, x.seen, x.seenLog, x.resumed, used, x.highest = s.Time, s.Lines, s.Bytes, true, s.Count, s.Call
	}
	x.astray = s == nil && len(v.Deliveries) > 0
	x.rejects = v.Terminate && v.Rejected == 0
	x.random = newStream(v.Seed, used)
	x.replay, x.played = nil, map[uint64]time.Time{}
	deliveries := v.Deliveries
	x.mu.Unlock()
	c.Random = x.random
	if !x.script.Load() {
		for _, d := range deliveries {
			x.played[d.Call] = d.Time
		}
		return x.r.runCode(ctx, x.run, c)
	}
	if s != nil {
		snapshot, err := x.r.resultOf(ctx, journal.Result{Out: s.Out, Blob: s.Blob})
		if err != nil {
			return host.Result{}, err
		}
		w.Resume = snapshot
	}
	for _, d := range deliveries {
		given := host.Delivery{ID: d.Call}
		if d.Call != 0 {
			known := v.Calls[d.Call]
			given.Name, given.Sum = known.Name, known.Sum
			var err error
			if given.Out, err = x.r.resultOf(ctx, known.Result); err != nil && known.Err == nil {
				return host.Result{}, err
			}
			given.Err = err
			x.played[d.Call] = d.Time
		}
		w.Deliver = append(w.Deliver, given)
		x.replay = append(x.replay, d.Time)
	}
	c.Waiting = w
	return x.r.runCode(ctx, x.run, c)
}

// readView reads a run's journal.
func (r *Runtime) readView(ctx context.Context, id instance.ID, run agent.RunID, whole bool) (*journal.View, error) {
	v := journal.NewView()
	v.Whole = whole
	err := r.eachEntry(ctx, id, run, func(e journal.Entry) error {
		v.Add(e)
		return nil
	})
	return v, err
}

func (r *Runtime) eachEntry(ctx context.Context, id instance.ID, run agent.RunID, fn func(journal.Entry) error) error {
	for after := int64(0); ; {
		page, err := r.keeper.Store().ReadJournal(ctx, id, run, after, 0)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, stored := range page {
			entries, err := journal.Unpack(stored.Data)
			if err != nil {
				return err
			}
			for _, e := range entries {
				if err := fn(e); err != nil {
					return err
				}
			}
			after = stored.Seq
		}
	}
}

// decode reads what the code has passed; it was looked at before.
func decode(b []byte, v any) { _ = json.Unmarshal(b, v) }
