package client

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/skep-dev/skep/agent"
)

// ApprovalFilter picks questions; empty fields pick all.
type ApprovalFilter struct {
	Run   agent.RunID
	Agent string
}

// Approvals lists what waits for a person, oldest first. A page may be short before the end: only an empty Next ends the list.
func (c *Client) Approvals(ctx context.Context, f ApprovalFilter, p agent.Page) (List[agent.Approval], error) {
	q := pageQuery(p)
	q["run"], q["agent"] = string(f.Run), f.Agent
	return get[List[agent.Approval]](ctx, c, path("approvals")+q.encode())
}

// Approval returns a question that is open. One that is not any more is a Conflict error that says why.
func (c *Client) Approval(ctx context.Context, id agent.ApprovalID) (agent.Approval, error) {
	return get[agent.Approval](ctx, c, path("approvals", string(id)))
}

// ApprovalArguments returns the arguments of a call that is or was asked about, as they are sent; call counts from 1. Of long ones an approval itself
// has only the beginning.
func (c *Client) ApprovalArguments(ctx context.Context, id agent.ApprovalID, call int) (json.RawMessage, error) {
	return get[json.RawMessage](ctx, c, path("approvals", string(id), "arguments")+"?call="+strconv.Itoa(call))
}

// AnswerApprovals answers questions, all or none of one run, and returns the runs that go on, each once.
func (c *Client) AnswerApprovals(ctx context.Context, ids []agent.ApprovalID, a agent.ApprovalAnswer) ([]agent.Run, error) {
	in := struct {
		IDs []agent.ApprovalID `json:"ids"`
		agent.ApprovalAnswer
	}{ids, a}
	var out List[agent.Run]
	err := c.do(ctx, "POST", path("approvals", "answer"), nil, in, &out)
	return out.Items, err
}

// ApprovalLink is a link by which whoever has it can answer one question, once.
type ApprovalLink struct {
	URL     string    `json:"url"`
	Expires time.Time `json:"expires"`
}

// LinkApproval makes a link to a question, for so long; 0 means 15 minutes.
func (c *Client) LinkApproval(ctx context.Context, id agent.ApprovalID, lasts time.Duration) (out ApprovalLink, err error) {
	in := struct {
		For time.Duration `json:"for,omitempty"`
	}{lasts}
	return out, c.do(ctx, "POST", path("approvals", string(id), "link"), nil, in, &out)
}

// ApprovalLog is what is asked and answered, beginning with what is open. Its events have no numbers, and those of questions that are
// still open come again when a connection that broke was opened anew.
func ApprovalLog(f ApprovalFilter) Log {
	return Log{target: path("approvals", "events"), filter: query{"run": string(f.Run), "agent": f.Agent}}
}
