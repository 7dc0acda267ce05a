package runtime

import (
	"context"
	"encoding/json"
	"time"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/internal/phrase"
	"github.com/skep-dev/skep/runtime/journal"
)

// answers returns what answers the code: from the journal what is in there, and else by door.
func (x *execution) answers(door host.Calls) host.Calls {
	return func(ctx context.Context, name string, in []byte) ([]byte, error) {
		switch {
		case name == abi.CallLog:
			return nil, x.console(ctx, door, in)
		case name == abi.CallHTTPClose:
			x.closed(in)
			return door(ctx, name, in)
		}
		n, err := x.number(ctx)
		if err != nil {
			return nil, err
		}
		return x.answer(host.WithNumber(ctx, n), door, n, name, in)
	}
}

// number returns a call's number. Code that does not count its calls makes them one after the other.
func (x *execution) number(ctx context.Context) (uint64, error) {
	n := host.Number(ctx)
	x.mu.Lock()
	defer x.mu.Unlock()
	if n == 0 {
		x.script.Store(false)
		x.issued++
		n = x.issued
	}
	x.highest = max(x.highest, n)
	switch {
	case x.failed != nil:
		return n, x.failed
	case x.over || x.parked != nil:
		return n, errGoneAway
	}
	return n, nil
}

// console takes a line. Those that are in the log since an earlier life are dropped.
func (x *execution) console(ctx context.Context, door host.Calls, in []byte) error {
	var line abi.Log
	_ = json.Unmarshal(in, &line)
	x.mu.Lock()
	x.seen++
	x.seenLog += int64(len(line.Message)) + 1
	old := x.seen <= x.view.Mark.Lines
	x.mu.Unlock()
	if old {
		return nil
	}
	_, err := door(ctx, abi.CallLog, in)
	return err
}

// answer answers a call that has a number.
func (x *execution) answer(ctx context.Context, door host.Calls, n uint64, name string, in []byte) ([]byte, error) {
	a, err := x.know(n, name, in)
	if err != nil {
		return nil, err
	}
	if out, err, ok := x.recorded(ctx, n, a); ok {
		return x.handed(ctx, n, a, out, err)
	}
	switch {
	case x.refuses(n, a):
		return x.handed(ctx, n, a, nil, errTerminated())
	case a.name == abi.CallTool || a.name == abi.CallToolChange:
		return x.tool(ctx, door, n, a, in)
	case a.class == journal.Pure:
		return x.atOnce(ctx, door, n, a, in)
	case a.class == journal.Inside || a.class == journal.Own:
		return x.inside(ctx, door, n, a, in)
	case a.class == journal.Wait:
		return x.wait(ctx, door, n, a, in)
	}
	return x.outside(ctx, door, n, a, in)
}

// newAskedLocked returns a call that the code makes, or makes again in a new life. The caller holds mu.
func (x *execution) newAskedLocked(n uint64, p host.PendingCall) *asked {
	a := &asked{name: p.Name, sum: p.Sum(), input: p.Input, permission: permissionOf(p)}
	a.become(x.classLocked(n, p))
	return a
}

// classLocked returns the class of a call. That of a tool is found out when it is judged. The caller holds mu.
func (x *execution) classLocked(n uint64, p host.PendingCall) journal.Class {
	class := journal.ClassOf(p.Name, p.Input)
	c := x.view.Calls[n]
	switch {
	case class != journal.Judging || c == nil || c.Judged == nil:
		return class
	case c.Open():
		return journal.Wait
	case c.Asks && !c.Allowed:
		return journal.Read // it is refused
	}
	return c.Class
}

// become gives a call its class.
func (a *asked) become(class journal.Class) {
	a.class = class
	if class.Leaves() && class != journal.Read && a.opened == nil {
		a.opened = make(chan struct{})
	}
}

// know notes a call, and compares it with the one that had its number in an earlier life.
func (x *execution) know(n uint64, name string, in []byte) (*asked, error) {
	p := host.PendingCall{Name: name, Input: in}
	x.mu.Lock()
	defer x.mu.Unlock()
	a := x.asked[n]
	if a == nil {
		a = x.newAskedLocked(n, p)
		x.asked[n] = a
	}
	was := x.view.Calls[n]
	if was == nil || was.Name == "" || was.Sum == (journal.Sum{}) || was.Sum == a.sum {
		return a, nil
	}
	err := errDiverged(&agent.ReplayDifference{Call: n, Was: journal.Describe(was.Name, was.Text), Now: describeNow(was, name, in)})
	if x.failed == nil {
		x.failed = err
		x.stop(err)
	}
	return a, err
}

// recorded returns what is known of a call's answer.
func (x *execution) recorded(ctx context.Context, n uint64, a *asked) (out []byte, err error, ok bool) {
	x.mu.Lock()
	c := x.view.Calls[n]
	if c == nil || !c.Known || a.name == abi.CallStart && c.Name == "" {
		x.mu.Unlock()
		return nil, nil, false
	}
	res := c.Result
	x.mu.Unlock()
	out, err = x.r.resultOf(ctx, res)
	return out, err, true
}

// resultOf returns a result with its bytes.
func (r *Runtime) resultOf(ctx context.Context, res journal.Result) ([]byte, error) {
	switch {
	case res.Err != nil:
		return nil, res.Err
	case res.Blob != "":
		return r.store.Blob(ctx, res.Blob)
	}
	return res.Out, nil
}

// telling is an entry of what a call came to. Where its start has told what it asked for, that is not said again.
func (x *execution) telling(k journal.Kind, n uint64, a *asked) journal.Entry {
	x.mu.Lock()
	c := x.view.Calls[n]
	told := c != nil && c.Started
	x.mu.Unlock()
	if told {
		return journal.Entry{Kind: k, Call: n, Name: a.name, Sum: a.sum}
	}
	return a.entry(k, n)
}

// result puts an answer into an entry.
func (x *execution) result(ctx context.Context, e journal.Entry, out []byte, err error) (journal.Entry, error) {
	if err != nil {
		bare := *agent.AsError(err)
		bare.Err, bare.Stack, bare.After = nil, "", 0
		bare.Msg, bare.Hint = phrase.Clip(bare.Msg, maxMessage), phrase.Clip(bare.Hint, maxMessage)
		e.Err = &bare
		return e, nil
	}
	if e.Out = out; out == nil {
		e.Out = []byte{}
	}
	if len(out) > journal.MaxInline {
		d, err := x.r.store.PutBlob(ctx, out)
		if err != nil {
			return e, err
		}
		e.Out, e.Blob, e.Bytes = nil, d, int64(len(out))
	}
	return e, nil
}

// handed gives the code an answer.
func (x *execution) handed(ctx context.Context, n uint64, a *asked, out []byte, err error) ([]byte, error) {
	out, err = x.hand(ctx, n, a, out, err)
	if failed := x.room(x.ctx); failed != nil {
		return nil, failed
	}
	return out, err
}

// hand is the delivery of an answer, where code gets it right where it asked.
func (x *execution) hand(ctx context.Context, n uint64, a *asked, out []byte, err error) ([]byte, error) {
	x.mu.Lock()
	if x.script.Load() {
		defer x.mu.Unlock()
		if x.parked != nil {
			return nil, errGoneAway
		}
		a.returned = true
		if a.class == journal.Pure || whileItRuns(a.name) {
			delete(x.asked, n)
		}
		return out, err
	}
	delete(x.asked, n)
	c := x.view.Calls[n]
	if c != nil && a.class == journal.Pure { // it was answered at once before, too, and the clock stood still
		x.mu.Unlock()
		return out, err
	}
	if c != nil && c.Delivered {
		if at := x.played[n]; at.After(x.clock) {
			x.clock = at
		}
		x.mu.Unlock()
		return out, err
	}
	known := c != nil && c.Known
	x.mu.Unlock()
	e := journal.Entry{Kind: journal.Deliver, Call: n}
	if !known {
		e = x.telling(e.Kind, n, a)
		var failed error
		if e, failed = x.result(ctx, e, out, err); failed != nil {
			x.fail(failed)
			return nil, failed
		}
	}
	x.deliver(e)
	return out, err
}

// deliver notes that the code gets something now.
func (x *execution) deliver(e journal.Entry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.moved = true
	if now := time.Now().UTC(); now.After(x.clock) {
		x.clock = now
	}
	e.Time = x.clock
	if x.rejects && e.Err != nil && e.Err.Kind == agent.Cancelled {
		x.rejects = false
		x.appendLocked(journal.Entry{Kind: journal.Rejected, Call: x.highest})
	}
	lost := len(x.view.Crashes) > 0
	x.appendLocked(e)
	if lost && len(x.view.Crashes) == 0 { // the run has got on, which the next crash is to find
		x.urgent = true
		x.flushSoonLocked()
	}
	delete(x.asked, e.Call)
	if e.Name == abi.CallSleep {
		x.pokeLocked() // the next may end
	}
}

// delivered is told of what the code of a script gets.
func (x *execution) delivered(d host.Delivery) {
	x.mu.Lock()
	x.since = time.Time{}
	if len(x.replay) > 0 {
		x.moved = true
		x.clock = x.replay[0]
		x.replay = x.replay[1:]
		x.highest = max(x.highest, d.ID)
		x.mu.Unlock()
		return
	}
	a, c := x.asked[d.ID], x.view.Calls[d.ID]
	x.mu.Unlock()
	e := journal.Entry{Kind: journal.Deliver, Call: d.ID}
	switch {
	case d.ID == 0:
		e.Kind = journal.Timer
	case c == nil || !c.Known:
		if e.Name = d.Name; a != nil {
			e = x.telling(e.Kind, d.ID, a)
		}
		var err error
		if e, err = x.result(x.ctx, e, d.Out, d.Err); err != nil {
			x.fail(err)
			return
		}
	}
	x.deliver(e)
	_ = x.room(x.ctx) // which says so to the run
}

// atOnce answers what the code does not wait for: events, marks of steps, who it is. What an earlier life did is not done again.
func (x *execution) atOnce(ctx context.Context, door host.Calls, n uint64, a *asked, in []byte) ([]byte, error) {
	if a.name == abi.CallSelf {
		x.forget(n)
		return door(ctx, a.name, in)
	}
	x.mu.Lock()
	old := x.script.Load() && n <= x.view.Mark.Call
	delete(x.asked, n)
	x.mu.Unlock()
	if old {
		return nil, nil
	}
	var out []byte
	var err error
	if a.name == abi.CallEmit {
		out, err = door(ctx, a.name, in)
	} else {
		err = x.step(ctx, n, a.name == abi.CallStepEnd, in)
	}
	if err != nil || !x.script.Load() {
		e, failed := x.result(ctx, a.entry(journal.Answered, n), out, err)
		if failed != nil {
			return nil, failed
		}
		x.append(e)
	}
	return out, err
}

func (x *execution) forget(n uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.asked, n)
}

// inside makes a call that concerns the instance only. What it changes, and its answer, are in one commit.
func (x *execution) inside(ctx context.Context, door host.Calls, n uint64, a *asked, in []byte) ([]byte, error) {
	out, err := x.insideTurn(ctx, door, n, a, in)
	if !x.script.Load() {
		x.poke() // a call of the same batch may wait
	}
	if failed := x.room(x.ctx); failed != nil {
		return nil, failed
	}
	return out, err
}

func (x *execution) insideTurn(ctx context.Context, door host.Calls, n uint64, a *asked, in []byte) ([]byte, error) {
	x.gate.Lock()
	defer x.gate.Unlock()
	t, err := x.theTurn(ctx)
	if err == nil {
		parts, bytes := x.held()
		err = t.MakeRoom(ctx, insideRoom+parts, max(roomBytes, len(in))+bytes)
	}
	if err != nil {
		if ctx.Err() == nil {
			x.fail(err)
		}
		return nil, err
	}
	out, err := door(ctx, a.name, in)
	kind := journal.Done
	if whileItRuns(a.name) && x.script.Load() {
		kind = journal.Answered
	} else if a.class == journal.Own || !x.script.Load() { // the delivery has it
		return x.hand(ctx, n, a, out, err)
	}
	e, failed := x.result(ctx, x.telling(kind, n, a), out, err)
	if failed != nil {
		x.fail(failed)
		return nil, failed
	}
	x.append(e)
	return x.hand(ctx, n, a, out, err)
}

// whileItRuns reports whether scripts get the answer of such a call while they run.
func whileItRuns(name string) bool { return name == abi.CallSharedGet || name == abi.CallSharedSet }

// poke tells those who wait that something has come.
func (x *execution) poke() {
	x.mu.Lock()
	x.pokeLocked()
	x.mu.Unlock()
}

func (x *execution) pokeLocked() {
	close(x.changed)
	x.changed = make(chan struct{})
}

// ask has the code's rest looked at again.
func (x *execution) ask() {
	select {
	case x.nudge <- struct{}{}:
	default:
	}
}
