package runtime

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/host/grant"
	"github.com/skep-dev/skep/internal/phrase"
	"github.com/skep-dev/skep/runtime/journal"
	"github.com/skep-dev/skep/store/instance"
	"github.com/skep-dev/skep/tools"
)

// askTimeout is how long a person has to answer when the policy does not say.
const askTimeout = 24 * time.Hour

// maxAskBytes is how many bytes of arguments the open questions of one run show in all.
const maxAskBytes = 96 << 10

// tool makes a call of a tool: it is judged, a person is asked where the policy says so, which the run waits for without a cell, and then it is
// made like any other call of its class.
func (x *execution) tool(ctx context.Context, door host.Calls, n uint64, a *asked, in []byte) ([]byte, error) {
	err := x.judge(ctx, n, a, in)
	if err == nil {
		err = x.approval(ctx, n, a)
	}
	if err != nil {
		if agent.AsError(err) == errGoneAway || ctx.Err() != nil {
			return nil, err
		}
		return x.handed(ctx, n, a, nil, err)
	}
	if a.name == abi.CallToolChange {
		return x.handed(ctx, n, a, []byte("{}"), nil)
	}
	x.mu.Lock()
	made := x.view.Calls[n].Judged.Calls[0]
	x.mu.Unlock()
	return x.outside(context.WithValue(ctx, madeKey{}, made), door, n, a, in)
}

// judge has a call judged, unless it was in an earlier life, and notes what came of it.
func (x *execution) judge(ctx context.Context, n uint64, a *asked, in []byte) error {
	x.mu.Lock()
	c := x.view.Calls[n]
	done := c != nil && c.Judged != nil
	x.mu.Unlock()
	if done {
		return nil
	}
	title, calls, err := decodeTools(a.name, in)
	var asked []askedTool
	tally := tools.Tally{Ahead: a.name == abi.CallToolChange} // its calls are judged again, each when it is made
	for _, q := range calls {
		var one askedTool
		if one, err = x.tools.judge(ctx, n, q, &tally); err != nil {
			break
		}
		asked = append(asked, one)
	}
	if err != nil {
		x.become(a, journal.Read)
		return err
	}
	return x.decided(ctx, n, a, title, asked)
}

func decodeTools(name string, in []byte) (title string, calls []abi.ToolCall, err error) {
	if name == abi.CallTool {
		calls = make([]abi.ToolCall, 1)
		return "", calls, grant.Decode(in, &calls[0])
	}
	var set abi.ToolChange
	if err := grant.Decode(in, &set); err != nil {
		return "", nil, err
	}
	does := 0
	for i, c := range set.Calls {
		if !c.Undo {
			does++
		} else if i == 0 || set.Calls[i-1].Undo {
			return "", nil, agent.Errorf(agent.Invalid, "call %d of the change set is an undo, and there is no call before it that it could take back", i+1)
		}
	}
	if does == 0 || does > maxChange {
		return "", nil, agent.Errorf(agent.Invalid, "a change set has 1 to %d calls, not %d", maxChange, does)
	}
	return phrase.Clip(set.Title, maxName), set.Calls, nil
}

// become gives a call another class, and has the code's rest looked at again.
func (x *execution) become(a *asked, class journal.Class) {
	x.mu.Lock()
	a.become(class)
	x.pokeLocked()
	x.mu.Unlock()
	x.ask()
}

// decided notes a judgement: in the journal, in the log, and as a question where a person is asked.
func (x *execution) decided(ctx context.Context, n uint64, a *asked, title string, list []askedTool) error {
	j := journal.Judgement{}
	ask := agent.Approval{ID: agent.NewApprovalID(x.run.ID, n), App: x.run.App, Agent: x.run.Agent, Session: x.run.Session, Run: x.run.ID, Call: n, Title: title}
	verdict, timeout, class, told := agent.Allow, time.Duration(0), journal.Read, []agent.Event(nil)
	for i := range list {
		one := &list[i]
		if a.name == abi.CallTool {
			x.permit(n, one, &j)
		}
		j.Calls = append(j.Calls, one.judged())
		if a.name == abi.CallTool || !one.undo || one.d.Verdict == agent.Deny {
			told = append(told, x.tools.told(n, *one))
		}
		verdict = min(verdict, one.d.Verdict)
		if one.d.Verdict == agent.Ask && one.d.Timeout > 0 && (timeout == 0 || one.d.Timeout < timeout) {
			timeout = one.d.Timeout
		}
		if one.d.Verdict == agent.Deny {
			return x.refuse(ctx, n, a, told, refused(*one))
		}
	}
	if a.name == abi.CallTool {
		class = list[0].class()
	}
	e := a.entry(journal.Judged, n)
	e.Class, e.Out = class, encode(j)
	if verdict == agent.Allow {
		x.mu.Lock()
		x.appendLocked(e)
		x.tellLocked(told)
		a.become(class)
		x.pokeLocked()
		x.mu.Unlock()
		x.flushSoon()
		x.ask()
		return nil
	}
	ask.Created = time.Now().UTC().Truncate(time.Millisecond)
	ask.Expires = ask.Created.Add(cmp.Or(timeout, askTimeout))
	e.Flag, e.Until = true, ask.Expires
	for _, one := range list {
		ask.Calls = append(ask.Calls, agent.ApprovalCall{
			Tool: one.tool.Name, Digest: one.tool.Digest, Args: one.args, ArgsDigest: agent.DigestOf(one.args), Decision: one.d, Undo: one.undo,
		})
	}
	return x.openAsk(ctx, a, ask, e, told)
}

// refuse notes that a judgement has ended a call, so that this is made and told of once, too.
func (x *execution) refuse(ctx context.Context, n uint64, a *asked, told []agent.Event, why error) error {
	x.become(a, journal.Read)
	e, err := x.result(ctx, a.entry(journal.Done, n), nil, why)
	if err != nil {
		return err
	}
	x.mu.Lock()
	x.appendLocked(e)
	x.tellLocked(told)
	x.mu.Unlock()
	x.flushSoon()
	return why
}

// tellLocked adds events of ours, which go into the commit of the entries that were appended since mu is held. The caller holds mu.
func (x *execution) tellLocked(events []agent.Event) {
	for _, ev := range events {
		if len(x.events) < hostEvents && !x.over {
			x.addLocked(ev)
		}
	}
}

// permit allows a call that is a part of an approved change set. What needs no approval is noted as its part as well: by that it can be taken back.
func (x *execution) permit(n uint64, a *askedTool, j *journal.Judgement) {
	if a.d.Verdict == agent.Deny {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	change := x.view.Permit(n, a.judged())
	if j.Change = change; change != 0 && a.d.Verdict == agent.Ask {
		a.d.Verdict, a.d.Reason = agent.Allow, fmt.Sprintf("it was approved as a part of change set %s", agent.NewApprovalID(x.run.ID, change))
	}
}

// openAsk asks a person. The question is in the run's record and in its log when anybody learns of it.
func (x *execution) openAsk(ctx context.Context, a *asked, ask agent.Approval, e journal.Entry, told []agent.Event) error {
	x.mu.Lock()
	for {
		if len(x.asks) >= agent.MaxAsks {
			x.mu.Unlock()
			return x.refuse(ctx, ask.Call, a, told, &agent.Error{
				Kind: agent.Exhausted, Limit: agent.LimitConcurrency, Msg: fmt.Sprintf("the run has %d questions to a person that are open", agent.MaxAsks),
				Hint: "await some of its calls before it makes more, or make them a change set",
			})
		}
		if shown, cut := x.show(ask); !cut || e.Blob != "" {
			ask.Calls = shown
			break
		}
		x.mu.Unlock()
		if err := x.keepArguments(ctx, &e, ask); err != nil {
			x.fail(err)
			return err
		}
		x.mu.Lock()
	}
	x.appendLocked(e)
	x.asks, x.asksChanged = append(slices.Clip(x.asks), ask), true
	slices.SortFunc(x.asks, func(a, b agent.Approval) int { return cmp.Compare(a.Call, b.Call) })
	x.tellLocked(told)
	x.addLocked(agent.Event{Kind: agent.EventApprovalRequested, Run: x.run.ID, Time: time.Now().UTC(), Data: encode(ask)})
	a.become(journal.Wait)
	x.pokeLocked()
	x.mu.Unlock()
	x.flushSoon()
	x.ask()
	return nil
}

// show returns the calls of a question with long arguments cut, so that the run's record stays small, and whether any were. The caller holds mu.
func (x *execution) show(ask agent.Approval) (calls []agent.ApprovalCall, cut bool) {
	room := maxAskBytes
	for _, open := range x.asks {
		for _, c := range open.Calls {
			room -= len(c.Args)
		}
	}
	calls = slices.Clone(ask.Calls)
	for i := range calls {
		c := &calls[i]
		most := max(min(agent.MaxShownArgs, room), 256)
		cut = cut || len(c.Args) > most
		c.Args = shownArgs(c.Args, most)
		room -= len(c.Args)
	}
	return calls, cut
}

// approval returns when a call may be made: at once, unless a person is asked.
func (x *execution) approval(ctx context.Context, n uint64, a *asked) error {
	for {
		x.mu.Lock()
		changed, c := x.changed, x.view.Calls[n]
		switch {
		case x.parked != nil && x.script.Load():
		case x.refusesLocked(n, a):
			x.closeLocked(n)
			x.mu.Unlock()
			return errTerminated()
		case !c.Asks || c.Answered && c.Allowed:
			a.become(c.Class)
			x.mu.Unlock()
			x.ask()
			return nil
		case c.Answered:
			a.become(journal.Read)
			x.mu.Unlock()
			return refusedBy(c)
		case x.r.boxes.isWithdrawn(x.run.ID, a.permission):
			x.denyLocked(n, agent.ApprovalAnswered{By: byCLI}, errWithdrawn.Msg)
			x.mu.Unlock()
			continue
		case !time.Now().Before(c.Until):
			x.denyLocked(n, agent.ApprovalAnswered{By: "timeout", Due: c.Until}, "nobody has answered by "+c.Until.Format(time.RFC3339))
			x.mu.Unlock()
			continue
		}
		x.mu.Unlock()
		x.ask()
		if !x.script.Load() {
			if err := x.giveUp(n, a); err != nil {
				return err
			}
			x.flushSoon()
		}
		if err := x.pass(ctx, n, changed); err != nil {
			return err
		}
	}
}

// denyLocked denies a call for which no person has answered. The caller holds mu.
func (x *execution) denyLocked(n uint64, said agent.ApprovalAnswered, why string) {
	said.ID, said.Reason = agent.NewApprovalID(x.run.ID, n), why
	x.appendLocked(journal.Entry{Kind: journal.Verdict, Call: n, Out: encode(said)})
	x.closeLocked(n)
	x.addLocked(agent.Event{Kind: agent.EventApprovalAnswered, Run: x.run.ID, Time: time.Now().UTC(), Data: encode(said)})
}

// closeLocked takes a question back. The caller holds mu.
func (x *execution) closeLocked(n uint64) {
	id := agent.NewApprovalID(x.run.ID, n)
	if left := without(x.asks, []agent.ApprovalID{id}); len(left) < len(x.asks) {
		x.asks, x.asksChanged = left, true
	}
}

// refusedBy is the error of a call that a person has refused.
func refusedBy(c *journal.Call) error {
	var said agent.ApprovalAnswered
	_ = json.Unmarshal(c.Answer, &said)
	msg := "a person has denied it"
	if said.By == "timeout" || said.By == byCLI {
		msg = said.Reason
	} else if said.Reason != "" {
		msg += ": " + said.Reason
	}
	name := "the change set"
	if c.Judged != nil && len(c.Judged.Calls) == 1 {
		name = "the call of " + c.Judged.Calls[0].Tool
	}
	return &agent.Error{Kind: agent.Denied, Msg: name + " was not approved: " + phrase.Clip(msg, maxMessage)}
}

// without returns list without the questions of those ids.
func without(list []agent.Approval, ids []agent.ApprovalID) []agent.Approval {
	if len(list) == 0 || len(ids) == 0 {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), func(a agent.Approval) bool { return slices.Contains(ids, a.ID) })
}

// collectAsksLocked puts the open questions into the run's record, in the batch that has what led to them. The caller holds mu.
func (x *execution) collectAsksLocked(b *instance.Batch) {
	set := func(run *agent.Run) {
		if run.Asks = slices.Clone(x.asks); run.Status.Terminal() {
			run.Asks = nil
		}
	}
	mine := false
	for i := range b.Runs {
		if b.Runs[i].Run.ID == x.run.ID {
			set(&b.Runs[i].Run)
			mine = true
		}
	}
	if x.asksChanged && !mine {
		next := x.run
		set(&next)
		b.Runs = append(b.Runs, instance.RunEdit{From: x.run.Status, Run: next})
	}
	x.asksChanged = false
}

// unasked reports whether there are questions that nobody can see yet.
func (x *execution) unasked() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.asksChanged
}

// adoptAsksLocked takes over the questions that are open still. The caller holds mu.
func (x *execution) adoptAsksLocked(asks []agent.Approval) {
	x.asks = slices.DeleteFunc(slices.Clone(asks), func(a agent.Approval) bool {
		c := x.view.Calls[a.Call]
		if a.Asks != nil {
			return !x.r.asking.there(a.ID) // it was of a process that has ended
		}
		return c == nil || !c.Open() || c.Known
	})
	x.asksChanged = len(x.asks) != len(asks)
}
