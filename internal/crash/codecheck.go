package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

// sent is what a script returns of one call.
type sent struct {
	Sent  posting         `json:"sent"`
	Back  json.RawMessage `json:"back"`
	Kind  string          `json:"kind"`
	Error string          `json:"error"`
}

// checkCode holds the ledger against scripts, what they returned and what their logs tell: each call that was to be made has its effect once, none
// that was denied has one, and each was asked about at most once.
func (r *codeRound) checkCode(ctx context.Context, p *person) error {
	if len(r.wrong) > 0 { // scripts that did not end have not been checked
		return nil
	}
	lines, err := readLedger(r.ledger)
	if err != nil {
		return err
	}
	at := map[string][]line{}
	for _, l := range lines {
		at[l.Name] = append(at[l.Name], l)
		if strings.HasPrefix(l.Name, fmt.Sprintf("%d.", r.n)) && r.byCall[l.Name] == nil {
			r.fail("the ledger has %+v, which no script has asked for", l)
		}
	}
	known := map[agent.RunID]bool{}
	for _, s := range r.scripts {
		known[s.run.ID] = true
		r.ofScript(s, at)
		if err := r.ofLog(ctx, s, p); err != nil {
			return err
		}
	}
	err = r.eachRun(ctx, func(run agent.Run) {
		if !known[run.ID] && !r.before[run.ID] {
			r.fail("run %s was started, and no script is its", run.ID)
		}
	})
	if err != nil {
		return err
	}
	open, err := p.open(ctx)
	for _, a := range open {
		r.fail("approval %s is open when all runs have ended", a.ID)
	}
	return err
}

const lostTwice = "the run was lost twice in a row"

// ofScript checks what a script has done and what it returned.
func (r *codeRound) ofScript(s *script, at map[string][]line) {
	r.tally["scripts "+s.run.Status.String()]++
	if s.run.Status != agent.Completed {
		if e := s.run.Error; e == nil || e.Kind != agent.Exhausted || !strings.HasPrefix(e.Msg, lostTwice) {
			r.fail("script %s, run %s, is %s: %+v\n%s", s.name, s.run.ID, s.run.Status, e, s.text)
		}
		for _, c := range s.calls {
			r.atMostOnce(s, c, at[c.name])
		}
		return
	}
	var out map[string]sent
	if s.run.Output == nil || json.Unmarshal(s.run.Output.Body, &out) != nil {
		r.fail("script %s, run %s, returned %+v", s.name, s.run.ID, s.run.Output)
		return
	}
	for _, c := range s.calls {
		r.atMostOnce(s, c, at[c.name])
		r.tally["calls"]++
		if what := c.wrong(s, out[c.name], at[c.name]); what != "" {
			r.fail("script %s, run %s: of %s of %s %s; it was sent and returned %+v, and the ledger has %+v", s.name, s.run.ID, c.name, c.tool, what, out[c.name], at[c.name])
		}
	}
	if len(out) != len(s.calls) {
		r.fail("script %s, run %s, has made %d calls and tells of %d", s.name, s.run.ID, len(s.calls), len(out))
	}
}

// atMostOnce checks the promise that holds whatever became of the run.
func (r *codeRound) atMostOnce(s *script, c *toolCall, lines []line) {
	r.tally["effects"] += len(lines)
	most := 1
	switch {
	case c.tool == "look" || c.denied || s.failed[c.name]:
		most = 0
	case c.tool == "set":
		most = len(lines)
		r.tally["effects that may come twice and did"] += max(len(lines)-1, 0)
	}
	if len(lines) > most {
		r.fail("script %s, run %s: %s of %s took effect %d times, not %d: %+v", s.name, s.run.ID, c.name, c.tool, len(lines), most, lines)
	}
	for _, l := range lines {
		if l.Tool != c.tool || l.posting != lines[0].posting {
			r.fail("script %s, run %s: %s of %s took effect as %+v and as %+v", s.name, s.run.ID, c.name, c.tool, lines[0], l)
		}
	}
}

// wrong says what is wrong with what a script that came to its end tells of a call.
func (c *toolCall) wrong(s *script, got sent, lines []line) string {
	want := ""
	switch {
	case c.denied:
		want = "denied"
	case s.failed[c.name]:
		want = "failed"
	}
	if got.Kind != want {
		return fmt.Sprintf("the kind of error is %q, not %q", got.Kind, want)
	}
	switch {
	case want != "":
		return ""
	case c.tool == "look":
		var l looked
		if json.Unmarshal(got.Back, &l) != nil {
			return "the answer is none"
		}
		return ""
	case len(lines) == 0:
		return "there is no effect"
	}
	var back posting
	if json.Unmarshal(got.Back, &back) != nil || back != got.Sent || lines[0].posting != got.Sent {
		return "what was sent, had its effect and was answered differs"
	}
	return ""
}

// told is what a run's log has told so far.
type told struct {
	*codeRound
	s        *script
	called   map[uint64]posting // calls by their numbers
	names    map[string]bool
	returned map[string]int
	asked    map[agent.ApprovalID]bool // whether it was answered
	once     map[agent.EventKind]int
	rounds   map[agent.EventKind]int
}

func newTold(r *codeRound, s *script) *told {
	return &told{
		codeRound: r, s: s, called: map[uint64]posting{}, names: map[string]bool{}, returned: map[string]int{}, asked: map[agent.ApprovalID]bool{},
		once: map[agent.EventKind]int{}, rounds: map[agent.EventKind]int{},
	}
}

// ofLog checks that a script's log tells of all that happened, once and in order, and that its journal can be played again.
func (r *codeRound) ofLog(ctx context.Context, s *script, p *person) error {
	t, last := newTold(r, s), int64(0)
	for e, err := range r.cl.Events(ctx, client.SessionLog(s.run.Session), 0, false) {
		if err != nil {
			return err
		}
		if e.Seq != last+1 {
			r.fail("script %s: event %d follows %d", s.name, e.Seq, last)
		}
		last = e.Seq
		if t.once[agent.EventRunCompleted]+t.once[agent.EventRunFailed] > 0 {
			r.fail("script %s: %s follows the end in its log", s.name, e.Kind)
		}
		if err := t.event(e); err != nil {
			r.fail("script %s, run %s: event %d, %s %s: %v", s.name, s.run.ID, e.Seq, e.Kind, e.Data, err)
		}
	}
	t.end(p)
	if s.run.Status != agent.Completed {
		return nil
	}
	again, err := r.cl.ReplayRun(ctx, s.run.ID, "")
	if err == nil && (!again.Same || !again.Complete) {
		r.fail("script %s, run %s, comes to something else when it is played again: %+v, %+v", s.name, s.run.ID, again, again.Difference)
	}
	return err
}

// event takes the next event.
func (t *told) event(e agent.Event) error {
	switch e.Kind {
	case agent.EventRunQueued, agent.EventRunStarted, agent.EventRunCompleted, agent.EventRunFailed:
		if t.once[e.Kind]++; t.once[e.Kind] > 1 {
			return fmt.Errorf("it is there %d times", t.once[e.Kind])
		}
	case agent.EventRunResumed, agent.EventRunWaiting, agent.EventRunUncertain:
		t.tally["events "+e.Kind.String()]++
	case agent.EventLog, agent.EventEmit:
		n := t.rounds[e.Kind]
		t.rounds[e.Kind]++
		if want := fmt.Sprintf(`{"level":"info","message":"round %d"}`, n); e.Kind == agent.EventLog && string(e.Data) != want {
			return fmt.Errorf("want %s", want)
		}
		if want := fmt.Sprint(n); e.Kind == agent.EventEmit && string(e.Data) != want {
			return fmt.Errorf("want %s", want)
		}
	case agent.EventToolCalled:
		var use agent.ToolUse
		var p posting
		if err := json.Unmarshal(e.Data, &use); err != nil {
			return err
		}
		if err := json.Unmarshal(use.Args, &p); err != nil {
			return err
		}
		inChange := t.s.calls[p.Name] != nil && t.s.calls[p.Name].change != ""
		was, again := t.called[use.Call]
		if again && (!inChange || was.Name == p.Name) || t.names[p.Name] && !inChange {
			return fmt.Errorf("the call was judged before, as %+v", was)
		}
		t.called[use.Call], t.names[p.Name] = p, true
	case agent.EventToolReturned:
		var use agent.ToolUse
		if err := json.Unmarshal(e.Data, &use); err != nil {
			return err
		}
		if _, called := t.called[use.Call]; !called {
			return fmt.Errorf("it was never judged")
		}
		t.returned[t.called[use.Call].Name]++
	case agent.EventApprovalRequested:
		var a agent.Approval
		if err := json.Unmarshal(e.Data, &a); err != nil {
			return err
		}
		if _, twice := t.asked[a.ID]; twice {
			return fmt.Errorf("it was asked before")
		}
		t.asked[a.ID] = false
	case agent.EventApprovalAnswered:
		var a agent.ApprovalAnswered
		if err := json.Unmarshal(e.Data, &a); err != nil {
			return err
		}
		if answered, asked := t.asked[a.ID]; answered || !asked {
			return fmt.Errorf("it was asked: %v, and answered: %v", asked, answered)
		}
		t.asked[a.ID] = true
	default:
		return fmt.Errorf("such an event is not expected")
	}
	return nil
}

// end checks what the log told in all.
func (t *told) end(p *person) {
	s := t.s
	completed := s.run.Status == agent.Completed
	if n := t.once[agent.EventRunCompleted]; t.once[agent.EventRunQueued] != 1 || n+t.once[agent.EventRunFailed] != 1 || completed != (n == 1) {
		t.fail("script %s, run %s, which is %s: its log has %v", s.name, s.run.ID, s.run.Status, t.once)
	}
	for id, answered := range t.asked {
		q := p.asked[id]
		if q == nil && completed || q != nil && q.settled && !answered || q != nil && answered && !q.settled && !q.tried {
			t.fail("script %s: its log tells of approval %s, answered: %v; the person has %+v", s.name, id, answered, q)
		}
	}
	for id, q := range p.asked {
		if _, there := t.asked[id]; q.Run == s.run.ID && !there {
			t.fail("script %s: its log does not tell of approval %s", s.name, id)
		}
	}
	for _, c := range s.calls {
		n := t.returned[c.name]
		switch {
		case c.tool == "look" || c.tool == "set":
			if completed && n == 0 {
				t.fail("script %s: its log does not tell that %s of %s returned", s.name, c.name, c.tool)
			}
		case c.denied && n > 0, n > 1+s.again[c.name],
			completed && n == 0 && !c.denied && !s.told[c.name] && !s.failed[c.name]:
			t.fail("script %s: its log tells %d times that %s of %s returned", s.name, n, c.name, c.tool)
		}
	}
	kinds := []agent.EventKind{agent.EventLog, agent.EventEmit}
	if completed && slices.ContainsFunc(kinds, func(k agent.EventKind) bool { return t.rounds[k] != s.stops }) {
		t.fail("script %s: its log has lines and events of %v of %d rounds", s.name, t.rounds, s.stops)
	}
}
