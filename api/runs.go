package api

import (
	"context"
	"encoding/json"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
)

// newRun is what a caller says of a run to start.
type newRun struct {
	Agent    string          `json:"agent,omitempty" doc:"may be left out when a session is given"`
	Function string          `json:"function,omitempty" doc:"run, else default, unless given"`
	Session  agent.SessionID `json:"session,omitempty" doc:"a session of that agent; a new one unless given"`
	Key      string          `json:"key,omitempty" doc:"instance key of a new session; default unless given"`
	Input    json.RawMessage `json:"input,omitempty" doc:"any JSON value"`
}

type startRunRequest struct {
	Once store.Once `once:"-"`
	Body newRun     `body:"json"`
}

func (s *Server) startRun(ctx context.Context, q startRunRequest) (made[agent.Run], error) {
	b := q.Body
	r, replayed, err := s.rt.StartRun(ctx, appOf(ctx), runtime.RunRequest{
		Agent: b.Agent, Function: b.Function, Session: b.Session, Key: b.Key, Input: jsonInput(b.Input),
	}, q.Once)
	return made[agent.Run]{queued(r), replayed}, err
}

// queued returns a run as it was when it was made, which is what a replay answers with.
func queued(r agent.Run) agent.Run {
	r.Status, r.Output, r.Error, r.Usage, r.Started, r.Ended = agent.Queued, nil, nil, agent.Usage{}, time.Time{}, time.Time{}
	r.Wait, r.Asks, r.Lives, r.Lost = nil, nil, 0, 0
	return r
}

// jsonInput is an input given as a JSON value. An absent one is null.
func jsonInput(v json.RawMessage) agent.Payload {
	if v == nil {
		v = json.RawMessage("null")
	}
	return agent.JSON(v)
}

type listRunsRequest struct {
	pageQuery
	Agent   string          `query:"agent" doc:"only runs of this agent"`
	Session agent.SessionID `query:"session" doc:"only runs of this session"`
	Status  agent.RunStatus `query:"status" doc:"only runs that stand so; a waiting one holds no cell, and wait says for what"`
}

func (s *Server) listRuns(ctx context.Context, q listRunsRequest) (list[agent.Run], error) {
	return listOf(s.st.Runs(ctx, appOf(ctx), store.RunFilter{Agent: q.Agent, Session: q.Session, Status: q.Status}, q.page()))
}

type runRequest struct {
	ID agent.RunID `path:"id"`
}

func (s *Server) getRun(ctx context.Context, q runRequest) (agent.Run, error) {
	return s.st.Run(ctx, appOf(ctx), q.ID)
}

func (s *Server) cancelRun(ctx context.Context, q runRequest) (agent.Run, error) {
	runs, err := s.rt.Cancel(ctx, appOf(ctx), q.ID)
	if err != nil {
		return agent.Run{}, err
	}
	return runs[0], nil
}

type runIDs struct {
	IDs []agent.RunID `json:"ids"`
}

type runIDsRequest struct {
	Body runIDs `body:"json"`
}

func (s *Server) cancelRuns(ctx context.Context, q runIDsRequest) (list[agent.Run], error) {
	runs, err := s.rt.Cancel(ctx, appOf(ctx), q.Body.IDs...)
	return listOf(runs, "", err)
}
