package api

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/tools/link"
)

// approvalFilter picks questions.
type approvalFilter struct {
	Run   agent.RunID `query:"run" doc:"only questions of this run"`
	Agent string      `query:"agent" doc:"only questions of this agent's runs"`
}

func (f approvalFilter) has(a agent.Approval) bool {
	return (f.Run == "" || a.Run == f.Run) && (f.Agent == "" || a.Agent == f.Agent)
}

type listApprovalsRequest struct {
	pageQuery
	approvalFilter
}

// listApprovals may return a short page before the end: only the absence of next ends the list.
func (s *Server) listApprovals(ctx context.Context, q listApprovalsRequest) (list[agent.Approval], error) {
	page := q.page()
	for range 20 {
		all, next, err := s.rt.Approvals(ctx, appOf(ctx), page)
		if err != nil {
			return list[agent.Approval]{}, err
		}
		var some []agent.Approval
		for _, a := range all {
			if q.has(a) {
				some = append(some, a)
			}
		}
		if len(some) > 0 || next == "" {
			inOrder(some)
			return listOf(some, next, nil)
		}
		page.After = next
	}
	return listOf([]agent.Approval(nil), page.After, nil)
}

// inOrder sorts the questions of each run by the order in which its calls were made.
func inOrder(all []agent.Approval) {
	for from := 0; from < len(all); {
		to := from + 1
		for to < len(all) && all[to].Run == all[from].Run {
			to++
		}
		slices.SortFunc(all[from:to], func(a, b agent.Approval) int { return cmp.Compare(a.Call, b.Call) })
		from = to
	}
}

type approvalRequest struct {
	ID agent.ApprovalID `path:"id" doc:"RUN-CALL"`
}

func (s *Server) getApproval(ctx context.Context, q approvalRequest) (agent.Approval, error) {
	return s.rt.Approval(ctx, appOf(ctx), q.ID)
}

type argumentsRequest struct {
	approvalRequest
	Call int `query:"call" doc:"which of its calls, from 1, as calls has them; the first unless given"`
}

// approvalArguments answers with the bytes that would be sent, of which args_digest is.
func (s *Server) approvalArguments(ctx context.Context, q argumentsRequest) (raw, error) {
	args, err := s.rt.Arguments(ctx, appOf(ctx), q.ID, cmp.Or(q.Call, 1))
	return raw{contentType: typeJSON, body: args}, err
}

// newAnswer is a person's answer.
type newAnswer struct {
	Allow   *bool               `json:"allow"`
	Reason  string              `json:"reason,omitempty" doc:"that the code is told when it is refused"`
	Scope   agent.ApprovalScope `json:"scope,omitempty" doc:"what it covers; once, the calls that were asked about, unless given. pattern needs an owner's token"`
	Pattern string              `json:"pattern,omitempty" doc:"of the scope pattern: as in a rule of the policy, such as fs.write_file(path=/tmp/**)"`
	Count   int                 `json:"count,omitempty" doc:"of the scope pattern: for how many calls, 1 to 1000"`
	For     time.Duration       `json:"for,omitempty" doc:"of the scope pattern: for how long, up to a day; nanoseconds"`
	Content json.RawMessage     `json:"content,omitempty" doc:"to a question of a tool's server: the object that it asks for"`
}

func (n newAnswer) answer(t agent.Token) (agent.ApprovalAnswer, error) {
	if n.Allow == nil {
		return agent.ApprovalAnswer{}, &agent.Error{Kind: agent.Invalid, Msg: `field "allow" is missing`, Hint: "say true or false"}
	}
	if n.Scope == agent.ScopePattern && t.Role != agent.Owner {
		return agent.ApprovalAnswer{}, &agent.Error{
			Kind: agent.Denied, Msg: "a developer's token may not allow what a pattern matches", Hint: "allow it once, or for the run; or ask an owner",
		}
	}
	return agent.ApprovalAnswer{Allow: *n.Allow, Reason: n.Reason, Scope: n.Scope, Pattern: n.Pattern, Count: n.Count, For: n.For, Content: n.Content}, nil
}

// newAnswers is one answer to several questions.
type newAnswers struct {
	IDs []agent.ApprovalID `json:"ids" doc:"up to 256; all of one run are answered, or none of them"`
	newAnswer
}

type answerApprovalsRequest struct {
	Body newAnswers `body:"json"`
}

// answerApprovals returns the runs that go on, each once.
func (s *Server) answerApprovals(ctx context.Context, q answerApprovalsRequest) (list[agent.Run], error) {
	t := requestOf(ctx).token
	a, err := q.Body.answer(t)
	if err != nil {
		return list[agent.Run]{}, err
	}
	runs, err := s.answerAll(ctx, appOf(ctx), answerer(t), q.Body.IDs, a)
	return listOf(runs, "", err)
}

type answerApprovalRequest struct {
	approvalRequest
	Body newAnswer `body:"json"`
}

func (s *Server) answerApproval(ctx context.Context, q answerApprovalRequest) (agent.Run, error) {
	t := requestOf(ctx).token
	a, err := q.Body.answer(t)
	if err != nil {
		return agent.Run{}, err
	}
	runs, err := s.answerAll(ctx, appOf(ctx), answerer(t), []agent.ApprovalID{q.ID}, a)
	if err != nil {
		return agent.Run{}, err
	}
	return runs[0], nil
}

// answerer names who answers.
func answerer(t agent.Token) string { return strings.TrimSpace(string(t.ID) + " " + t.Name) }

func (s *Server) answerAll(ctx context.Context, app agent.App, by string, ids []agent.ApprovalID, a agent.ApprovalAnswer) ([]agent.Run, error) {
	runs, err := s.rt.AnswerApprovals(ctx, app, by, ids, a)
	answered := map[agent.RunID]bool{} // an error may have come after the answers to some runs
	for _, r := range runs {
		answered[r.ID] = true
	}
	for _, id := range ids {
		if run, _, bad := id.Split(); bad == nil && answered[run] {
			if bad := s.auditOf(ctx, app, "approval.answer", string(id), answerWords(a)+" by "+by); bad != nil {
				return runs, bad
			}
		}
	}
	return runs, err
}

// answerWords says an answer in a few words. What was entered as content is not for a log.
func answerWords(a agent.ApprovalAnswer) string {
	out := "refused"
	if a.Allow {
		out = "allowed " + a.Scope.String()
	}
	if a.Scope == agent.ScopePattern {
		out += fmt.Sprintf(" %s, %d calls within %s,", a.Pattern, a.Count, a.For)
	}
	if a.Reason != "" {
		out += fmt.Sprintf(" (%.200q)", a.Reason)
	}
	return out
}

// newLink asks for a link to a question.
type newLink struct {
	For time.Duration `json:"for,omitempty" doc:"how long it lasts, up to a day and no longer than the question; nanoseconds; 15 minutes unless given"`
}

// approvalLink is a link by which whoever has it can answer one question, once.
type approvalLink struct {
	URL     string    `json:"url"`
	Expires time.Time `json:"expires"`
}

type linkApprovalRequest struct {
	approvalRequest
	Host string  `meta:"host"`
	Body newLink `body:"json" default:"{}"`
}

func (s *Server) linkApproval(ctx context.Context, q linkApprovalRequest) (approvalLink, error) {
	req := requestOf(ctx)
	return s.makeLink(ctx, appOf(ctx), q.ID, q.Body.For, s.baseURL(q.Host), agent.Change{Token: req.token.ID, Request: req.id})
}

// makeLink makes a link to a question that lasts so long; 0 means as long as links do. by says who wants it, for the audit log.
func (s *Server) makeLink(ctx context.Context, app agent.App, id agent.ApprovalID, lasts time.Duration, base string, by agent.Change) (approvalLink, error) {
	a, err := s.rt.Approval(ctx, app, id)
	if err != nil {
		return approvalLink{}, err
	}
	l, text, err := link.Make(s.o.LinkKey, a, lasts, s.o.Now())
	if err != nil {
		return approvalLink{}, err
	}
	by.Action, by.Name, by.Detail = "approval.link", string(id), fmt.Sprintf("link %s, until %s", l.Name, l.Expires.Format(time.RFC3339))
	return approvalLink{URL: base + approvePath + text, Expires: l.Expires}, s.auditChange(ctx, app, by)
}

// baseURL is what links to the server begin with, which a request has called host.
func (s *Server) baseURL(host string) string {
	if s.o.URL != "" {
		return strings.TrimRight(s.o.URL, "/")
	}
	return "http://" + host
}
