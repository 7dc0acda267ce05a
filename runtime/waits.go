package runtime

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/host/grant"
	grantagent "github.com/skep-dev/skep/host/grant/agent"
	"github.com/skep-dev/skep/internal/phrase"
	"github.com/skep-dev/skep/runtime/durable"
	"github.com/skep-dev/skep/runtime/journal"
	"github.com/skep-dev/skep/store/instance"
)

// shortWait is what a run waits in its cell: giving that up and coming back would take about as long.
const shortWait = time.Second

// maxWait is how long a run may sleep at a time.
const maxWait = 10 * 365 * 24 * time.Hour

// errPosted says of a call of an instance that its message is in the outbox.
var errPosted = agent.Errorf(agent.Unavailable, "the answer comes later")

func errTerminated() error { return agent.Errorf(agent.Cancelled, "the run was terminated") }

// refuses reports whether a call is refused because the run is to end.
func (x *execution) refuses(n uint64, a *asked) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.refusesLocked(n, a)
}

func (x *execution) refusesLocked(n uint64, a *asked) bool {
	return x.view.Terminate && (x.rejects || n <= x.view.Rejected) && (a.class == journal.Wait || a.class == journal.Judging || a.class.Leaves())
}

// wait answers a call that waits. A script's goes with its cell, and is asked again in the next one; of other code it gives up the cell.
func (x *execution) wait(ctx context.Context, door host.Calls, n uint64, a *asked, in []byte) ([]byte, error) {
	if err := x.await(ctx, door, n, a, in); err != nil {
		return x.handed(ctx, n, a, nil, err)
	}
	x.ask()
	for {
		x.mu.Lock()
		changed := x.changed
		x.mu.Unlock()
		if err := x.look(ctx, n, a); err != nil {
			return x.handed(ctx, n, a, nil, err)
		}
		if out, err, ok := x.satisfied(ctx, n, a); ok {
			return x.handed(ctx, n, a, out, err)
		}
		x.saw(a, changed)
		if !x.script.Load() {
			if err := x.giveUp(n, a); err != nil {
				return nil, err
			}
		}
		if err := x.pass(ctx, n, changed); err != nil {
			return nil, err
		}
	}
}

// pass returns when something may have changed for a call that waits.
func (x *execution) pass(ctx context.Context, n uint64, changed <-chan struct{}) error {
	var due <-chan time.Time
	if until := x.until(n); !until.IsZero() {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-due:
	case <-changed:
	case <-x.gone:
		return errGoneAway
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

func (x *execution) until(n uint64) time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	if c := x.view.Calls[n]; c != nil {
		return c.Until
	}
	return time.Time{}
}

// await notes what a call waits for, once in all the run's lives, and has the message sent whose answer it is.
func (x *execution) await(ctx context.Context, door host.Calls, n uint64, a *asked, in []byte) error {
	x.mu.Lock()
	if c := x.view.Calls[n]; c != nil && c.Started {
		x.mu.Unlock()
		return nil
	}
	if a.name != abi.CallAgent {
		defer x.mu.Unlock()
		return x.awaitLocked(n, a)
	}
	x.mu.Unlock()
	x.gate.Lock()
	defer x.gate.Unlock()
	_, err := door(ctx, a.name, in)
	if !errors.Is(err, errPosted) {
		return err
	}
	x.append(a.entry(journal.Start, n))
	return nil
}

// awaitLocked is await for waits that send nothing.
func (x *execution) awaitLocked(n uint64, a *asked) error {
	until, err := waitUntil(a.name, a.input, x.clock)
	if err == nil {
		e := a.entry(journal.Start, n)
		e.Until = until
		x.appendLocked(e)
	}
	return err
}

// waitUntil returns when a wait is over at the latest; zero when nothing says so.
func waitUntil(name string, in []byte, now time.Time) (until time.Time, err error) {
	ms := int64(0)
	switch name {
	case abi.CallSleep:
		var s abi.Sleep
		if err := grant.Decode(in, &s); err != nil {
			return until, err
		}
		if s.Until != 0 {
			until = time.UnixMilli(s.Until)
			ms = until.Sub(now).Milliseconds()
			break
		}
		ms, until = s.For, now.Add(time.Duration(min(max(s.For, 0), maxWait.Milliseconds()))*time.Millisecond)
	case abi.CallWait:
		var w abi.Wait
		if err := grant.Decode(in, &w); err != nil {
			return until, err
		}
		if w.Type == "" || len(w.Type) > maxName {
			return until, agent.Errorf(agent.Invalid, "an event's type has 1 to %d bytes", maxName)
		}
		if ms = w.Timeout; ms != 0 {
			until = now.Add(time.Duration(min(max(ms, 0), maxWait.Milliseconds())) * time.Millisecond)
		}
	case abi.CallResult:
		var q abi.Result
		if err := grant.Decode(in, &q); err != nil {
			return until, err
		}
	}
	if ms > maxWait.Milliseconds() || name != abi.CallSleep && ms < 0 {
		return until, agent.Errorf(agent.Invalid, "a wait lasts up to %d days", int(maxWait.Hours()/24))
	}
	return until.UTC(), nil
}

// look finds out what has to be read from the store.
func (x *execution) look(ctx context.Context, n uint64, a *asked) error {
	if a.name != abi.CallResult {
		return nil
	}
	var q abi.Result
	if err := json.Unmarshal(a.input, &q); err != nil {
		return agent.Errorf(agent.Invalid, "run.result names a run")
	}
	id := agent.RunID(q.Run)
	run, err := x.r.store.Run(ctx, x.run.App, id)
	res := journal.Entry{Kind: journal.Done, Call: n, Name: a.name, Sum: a.sum}
	switch {
	case agent.KindOf(err) == agent.NotFound && x.notBegun(id, &res): // it could not be made
	case agent.KindOf(err) == agent.NotFound && x.mayBegin(id): // its message is on its way
		return nil
	case err != nil:
		return err
	case run.Parent == nil || run.Parent.Run != x.run.ID:
		return agent.Errorf(agent.Denied, "run %s was not begun by this one", id)
	case !run.Status.Terminal():
		return nil
	case run.Error != nil:
		res.Err = &agent.Error{Kind: run.Error.Kind, Msg: run.Error.Msg, Hint: run.Error.Hint, Limit: run.Error.Limit}
	default:
		out := abi.AgentResult{}
		if run.Output != nil {
			out = abi.AgentResult{Type: run.Output.Type, Output: run.Output.Body}
		}
		var failed error
		if res, failed = x.result(ctx, res, encode(out), nil); failed != nil {
			return failed
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if c := x.view.Calls[n]; x.parked == nil && (c == nil || !c.Known) {
		x.appendLocked(res)
	}
	return nil
}

// saw notes that a look found nothing, unless something has come since it began.
func (x *execution) saw(a *asked, before <-chan struct{}) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.changed == before && !a.looked && x.parked == nil {
		a.looked = true
		x.ask()
	}
}

// notBegun reports whether a run that this one began could not be made, and puts why into e.
func (x *execution) notBegun(id agent.RunID, e *journal.Entry) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for n, c := range x.view.Calls {
		if c.Err != nil && childID(x.run.ID, n) == id {
			e.Err = c.Err
			return true
		}
	}
	return false
}

// mayBegin reports whether this run has begun one of that id.
func (x *execution) mayBegin(id agent.RunID) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for n := uint64(1); n <= x.highest; n++ {
		if childID(x.run.ID, n) == id {
			return true
		}
	}
	return false
}

// satisfied returns the answer of a call that waits, when there is one, and takes it.
func (x *execution) satisfied(ctx context.Context, n uint64, a *asked) (out []byte, err error, ok bool) {
	x.mu.Lock()
	if x.parked != nil && x.script.Load() {
		x.mu.Unlock()
		return nil, nil, false
	}
	if x.refusesLocked(n, a) {
		x.mu.Unlock()
		return nil, errTerminated(), true
	}
	c := x.view.Calls[n]
	if c != nil && c.Known {
		res := c.Result
		a.returned = true
		x.mu.Unlock()
		out, err := x.r.resultOf(ctx, res)
		return out, err, true
	}
	defer x.mu.Unlock()
	switch a.name {
	case abi.CallSleep:
		if c != nil && !time.Now().Before(c.Until) && !x.sleepsBefore(n, c.Until) {
			a.returned = true
			return nil, nil, true
		}
	case abi.CallWait:
		var w abi.Wait
		_ = json.Unmarshal(a.input, &w)
		if i := x.view.Find(w.Type); i >= 0 {
			ev := x.view.Events[i]
			x.appendLocked(journal.Entry{Kind: journal.Take, Call: n, Count: int64(i + 1)})
			a.returned = true
			return encode(abi.Waited{Data: abi.Raw(ev.Data)}), nil, true
		}
		if c != nil && !c.Until.IsZero() && !time.Now().Before(c.Until) {
			a.returned = true
			return encode(abi.Waited{TimedOut: true}), nil, true
		}
	}
	return nil, nil, false
}

// sleepsBefore reports whether the code has yet to get the end of a sleep that ends before this one, or was begun before it: they end in
// order. The caller holds mu.
func (x *execution) sleepsBefore(n uint64, until time.Time) bool {
	for m, a := range x.asked {
		if m == n || a.name != abi.CallSleep {
			continue
		}
		if c := x.view.Calls[m]; c != nil && (c.Until.Before(until) || c.Until.Equal(until) && m < n) && !c.Until.IsZero() {
			return true
		}
	}
	return false
}

// pendingLocked reports whether a call that waits would get an answer now.
func (x *execution) pendingLocked(n uint64, a *asked) bool {
	c := x.view.Calls[n]
	switch {
	case x.refusesLocked(n, a), c != nil && (c.Known || c.Answered || !c.Until.IsZero() && !time.Now().Before(c.Until)), x.r.boxes.isWithdrawn(x.run.ID, a.permission):
		return true
	case a.name == abi.CallWait:
		var w abi.Wait
		_ = json.Unmarshal(a.input, &w)
		return x.view.Find(w.Type) >= 0
	}
	return a.name == abi.CallResult && !a.looked // maybe
}

// addHandlers gives a run's door what is another's there.
func (x *execution) addHandlers(handlers map[string]grant.Handler, auth *grant.Authority, j *job) {
	handlers[abi.CallStart] = x.r.starts(auth, j.Agent, x.run.Code, func(ctx context.Context, m *message) (*durable.Turn, error) {
		n := host.Number(ctx)
		m.Run, m.Call, m.Of = x.run.ID, n, childID(x.run.ID, n) // so it is begun once
		return x.theTurn(ctx)
	})
}

// childID names the run that a call of another run begins: the same each time. It has the form of the parent's, a ULID, and its time.
func childID(parent agent.RunID, call uint64) agent.RunID {
	const digits, timeDigits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ", 10
	sum := sha256.Sum256(fmt.Append(nil, parent, call))
	id := []byte(parent[:min(len(parent), timeDigits)])
	for _, b := range sum[:16] {
		id = append(id, digits[b%32])
	}
	return agent.RunID(id)
}

// callInstance sends a call of an instance as a message, whose answer the run waits for. The caller holds gate.
func (x *execution) callInstance(ctx context.Context, t *durable.Turn, id instance.ID, to grantagent.Target, in agent.Payload, depth int) error {
	rec, err := x.r.agentOf(ctx, id)
	if err != nil {
		return err
	}
	if limits := rec.agent.Limits.Or(x.r.opts.Limits); int64(len(in.Body)) > limits.Input {
		return agent.Exceeded(agent.LimitInput, "the input has %d bytes, more than %d", len(in.Body), limits.Input)
	}
	err = x.r.post(ctx, t, id, message{
		Kind: messageCall, Function: to.Function, Type: in.Type, Body: in.Body, Run: x.run.ID, Call: host.Number(ctx), Depth: depth,
	})
	if err != nil {
		return err
	}
	return errPosted
}

// step notes where a step begins or ends.
func (x *execution) step(ctx context.Context, n uint64, ends bool, in []byte) error {
	var m abi.StepMark
	if err := grant.Decode(in, &m); err != nil {
		return err
	}
	if m.Name == "" || len(m.Name) > maxName {
		return agent.Errorf(agent.Invalid, "a step's name has 1 to %d bytes", maxName)
	}
	kind, data := agent.EventStepStarted, agent.Step{Attempt: m.Attempt, Rollback: m.Rollback, Error: phrase.Clip(m.Error, maxMessage)}
	x.mu.Lock()
	if ends {
		kind = agent.EventStepEnded
		for _, s := range x.view.Steps {
			if s.Name == m.Name && !s.Flag && s.Class == rollbackClass(m.Rollback) && s.Count == int64(m.Attempt) {
				data.Duration = x.clock.Sub(s.Time) // the newest of them: a run that was begun from a step has its old mark, too
			}
		}
	}
	x.appendLocked(journal.Entry{Kind: journal.Step, Call: n, Name: m.Name, Count: int64(m.Attempt), Flag: ends, Time: x.clock, Class: rollbackClass(m.Rollback)})
	x.emitted = max(x.emitted, n)
	x.mu.Unlock()
	x.addEvent(agent.Event{Kind: kind, Name: m.Name, Data: encode(data)})
	if m.Rollback {
		// The run has failed, and its end undoes what is not committed. What a rollback takes back, and what it did, are no part of that.
		x.gate.Lock()
		defer x.gate.Unlock()
		return x.commit(ctx)
	}
	x.flushSoon()
	return nil
}

// rollbackClass sets what undoes a step apart from the step.
func rollbackClass(rollback bool) journal.Class {
	if rollback {
		return journal.Inside
	}
	return journal.UnknownClass
}
