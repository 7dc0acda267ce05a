package runtime

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime/durable"
	"github.com/skep-dev/skep/runtime/journal"
)

// Bounds of standing answers.
const (
	maxAllowed    = 1000
	maxAllowedFor = 24 * time.Hour
	runAllowed    = 30 * 24 * time.Hour // of one that holds as long as its run
	maxAnswers    = 256                 // of one request
)

// Approvals lists an app's open questions, oldest first.
func (r *Runtime) Approvals(ctx context.Context, app agent.App, page agent.Page) (list []agent.Approval, next string, err error) {
	runs, next, err := r.store.Asking(ctx, app, page)
	now := time.Now()
	for _, run := range runs {
		for _, ask := range run.Asks {
			if now.Before(ask.Expires) {
				list = append(list, ask)
			}
		}
	}
	return list, next, err
}

// Approval returns an open question. One that was answered, or whose time is up, is a Conflict error that says so; what was never
// asked is a NotFound error.
func (r *Runtime) Approval(ctx context.Context, app agent.App, id agent.ApprovalID) (agent.Approval, error) {
	name, n, err := id.Split()
	if err != nil {
		return agent.Approval{}, err
	}
	run, err := r.store.Run(ctx, app, name)
	if err != nil {
		if agent.KindOf(err) == agent.NotFound {
			err = noApproval(id)
		}
		return agent.Approval{}, err
	}
	for _, ask := range run.Asks {
		if ask.ID == id {
			if !time.Now().Before(ask.Expires) {
				return agent.Approval{}, agent.Errorf(agent.Conflict, "the time to answer %s was up at %s", id, ask.Expires.Format(time.RFC3339))
			}
			return ask, nil
		}
	}
	asked, answered := false, false
	err = r.eachEntryOf(ctx, run, func(e journal.Entry) error {
		asked = asked || e.Kind == journal.Judged && e.Call == n && e.Flag
		answered = answered || e.Kind == journal.Verdict && e.Call == n
		return nil
	})
	switch {
	case err != nil:
		return agent.Approval{}, err
	case answered:
		return agent.Approval{}, agent.Errorf(agent.Conflict, "%s was answered before", id)
	case asked:
		return agent.Approval{}, agent.Errorf(agent.Conflict, "run %s is %s, and waits for no answer to %s", run.ID, run.Status, id)
	}
	return agent.Approval{}, noApproval(id)
}

func noApproval(id agent.ApprovalID) error {
	return &agent.Error{Kind: agent.NotFound, Msg: "there is no approval \"" + string(id) + "\"", Hint: "skep approvals lists those that are open"}
}

// AnswerApprovals answers questions, all or none of one run, and lets their runs go on; by says who answers. It returns the runs, each once. One
// that was answered before is a Conflict error.
func (r *Runtime) AnswerApprovals(ctx context.Context, app agent.App, by string, ids []agent.ApprovalID, a agent.ApprovalAnswer) ([]agent.Run, error) {
	if len(ids) == 0 || len(ids) > maxAnswers {
		return nil, agent.Errorf(agent.Invalid, "name 1 to %d approvals", maxAnswers)
	}
	if err := checkAnswer(a); err != nil {
		return nil, err
	}
	var order []agent.RunID
	of := map[agent.RunID][]agent.Approval{}
	for _, id := range ids {
		ask, err := r.Approval(ctx, app, id)
		if err == nil {
			err = r.fits(ask, a)
		}
		if err != nil {
			return nil, err
		}
		if of[ask.Run] == nil {
			order = append(order, ask.Run)
		}
		if !slices.ContainsFunc(of[ask.Run], func(o agent.Approval) bool { return o.ID == id }) {
			of[ask.Run] = append(of[ask.Run], ask)
		}
	}
	var runs []agent.Run
	for _, run := range order {
		answered, err := r.answerRun(ctx, app, by, run, of[run], a)
		if err != nil {
			return runs, err
		}
		runs = append(runs, answered)
	}
	return runs, nil
}

func checkAnswer(a agent.ApprovalAnswer) error {
	switch {
	case len(a.Reason) > maxMessage:
		return agent.Errorf(agent.Invalid, "the reason has %d bytes, more than %d", len(a.Reason), maxMessage)
	case a.Scope != agent.ScopePattern && (a.Pattern != "" || a.Count != 0 || a.For != 0):
		return agent.Errorf(agent.Invalid, `pattern, count and for belong to the scope "pattern"`)
	case a.Scope != agent.ScopeOnce && !a.Allow:
		return agent.Errorf(agent.Invalid, "a refusal is of the calls that were asked about: it has no scope")
	case a.Scope == agent.ScopePattern && (a.Pattern == "" || a.Count < 1 || a.Count > maxAllowed || a.For <= 0 || a.For > maxAllowedFor):
		return agent.Errorf(agent.Invalid, "a pattern is allowed for 1 to %d calls within up to %s: give pattern, count and for", maxAllowed, maxAllowedFor)
	case len(a.Content) > maxEventData:
		return agent.Errorf(agent.Invalid, "the content has %d bytes, more than %d", len(a.Content), maxEventData)
	}
	return nil
}

// fits checks an answer against what was asked.
func (r *Runtime) fits(ask agent.Approval, a agent.ApprovalAnswer) error {
	switch {
	case ask.Asks != nil && a.Scope != agent.ScopeOnce:
		return agent.Errorf(agent.Invalid, "%s is a question of a tool's server: its answer has no scope", ask.ID)
	case ask.Asks == nil && len(a.Content) > 0:
		return agent.Errorf(agent.Invalid, "%s asks for no content, only whether calls may be made", ask.ID)
	case ask.Asks != nil && a.Allow && r.opts.Tools != nil:
		return r.opts.Tools.CheckAnswer(*ask.Asks, a.Content)
	case a.Scope == agent.ScopePattern && r.opts.Tools != nil:
		for _, c := range ask.Calls {
			if c.Undo { // it is allowed with what it undoes, and in no other way
				continue
			}
			if err := r.opts.Tools.Covers(a.Pattern, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// answerRun answers questions of one run in one commit.
func (r *Runtime) answerRun(ctx context.Context, app agent.App, by string, id agent.RunID, asks []agent.Approval, a agent.ApprovalAnswer) (agent.Run, error) {
	run, err := r.inRun(ctx, app, id, func(ctx context.Context, t *durable.Turn, run agent.Run) error {
		var entries []journal.Entry
		var events []agent.Event
		var ids []agent.ApprovalID
		now := time.Now().UTC()
		for _, ask := range asks {
			if !slices.ContainsFunc(run.Asks, func(o agent.Approval) bool { return o.ID == ask.ID }) {
				return agent.Errorf(agent.Conflict, "%s was answered before", ask.ID)
			}
			if !now.Before(ask.Expires) {
				return agent.Errorf(agent.Conflict, "the time to answer %s was up at %s", ask.ID, ask.Expires.Format(time.RFC3339))
			}
			said := encode(agent.ApprovalAnswered{ApprovalAnswer: a, ID: ask.ID, By: by})
			entries = append(entries, journal.Entry{Kind: journal.Verdict, Call: ask.Call, Flag: a.Allow, Out: said})
			events = append(events, agent.Event{Kind: agent.EventApprovalAnswered, Time: now, Data: said})
			ids = append(ids, ask.ID)
			if ask.Asks != nil {
				t.Then(func() { r.asking.tell(ask.ID, a) })
			}
		}
		return r.tellRun(ctx, t, app, id, entries, events, ids...)
	})
	if err != nil || !a.Allow || r.opts.Tools == nil {
		return run, err
	}
	for _, ask := range asks {
		if err := r.allow(ctx, by, ask, a); err != nil {
			r.log.WarnContext(ctx, "a standing answer could not be kept: it will be asked again", "approval", ask.ID, "error", err)
		}
	}
	return run, nil
}

// allow keeps what an answer allows beyond the calls that were asked about.
func (r *Runtime) allow(ctx context.Context, by string, ask agent.Approval, a agent.ApprovalAnswer) error {
	now := time.Now().UTC()
	keep := agent.Allowance{App: ask.App, Agent: ask.Agent, By: by, From: ask.ID, Created: now}
	if a.Scope == agent.ScopePattern {
		keep.Pattern, keep.Left, keep.Until = a.Pattern, a.Count, now.Add(a.For)
		for _, c := range ask.Calls {
			keep.Budget = cmp.Or(keep.Budget, c.Decision.Budget)
		}
		_, err := r.opts.Tools.Allow(ctx, keep)
		return err
	}
	for _, c := range ask.Calls {
		if c.Undo {
			continue
		}
		one := keep
		one.Pattern, one.Budget = c.Tool, c.Decision.Budget
		switch {
		case a.Scope == agent.ScopeRun:
			one.Run, one.Until = ask.Run, now.Add(runAllowed)
		case c.Decision.Hold > 0 || c.Decision.Count > 0:
			one.Rule, one.Until, one.Left = c.Decision.Rule, now.Add(maxAllowedFor), max(c.Decision.Count-1, 0)
			if c.Decision.Hold > 0 {
				one.Until = now.Add(c.Decision.Hold)
			}
			if c.Decision.Count == 1 {
				continue
			}
		default:
			continue
		}
		if _, err := r.opts.Tools.Allow(ctx, one); err != nil {
			return err
		}
	}
	return nil
}
