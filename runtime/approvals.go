package runtime

import (
	"context"

	"github.com/skep-dev/skep/agent"
)

// Approvals lists an app's open questions, oldest first.
func (r *Runtime) Approvals(ctx context.Context, app agent.App, page agent.Page) (list []agent.Approval, next string, err error) {
	return nil, "", nil
}

// Approval returns an open question. One that was answered, or whose time is up, is a Conflict error that says so; a run that was never
// asked about is a NotFound error.
func (r *Runtime) Approval(ctx context.Context, app agent.App, id agent.ApprovalID) (agent.Approval, error) {
	return agent.Approval{}, agent.Errorf(agent.NotFound, "there is no approval %q", id)
}

// AnswerApprovals answers questions, all or none of one run, and lets their runs go on; by says who answers. It returns the runs, each once. One
// that was answered before is a Conflict error.
func (r *Runtime) AnswerApprovals(ctx context.Context, app agent.App, by string, ids []agent.ApprovalID, a agent.ApprovalAnswer) ([]agent.Run, error) {
	return nil, agent.Errorf(agent.NotFound, "there is no such approval")
}
