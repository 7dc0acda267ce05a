package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/plugins"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
)

type sendEventRequest struct {
	ID   agent.RunID     `path:"id"`
	Type string          `path:"type" doc:"what the run waits for, escaped: its slashes are %2F"`
	Once store.Once      `once:"-"`
	Body json.RawMessage `body:"json" default:"null"`
}

// sendEvent answers with the run as it was when the event had been kept for it.
func (s *Server) sendEvent(ctx context.Context, q sendEventRequest) (agent.Run, error) {
	return s.rt.SendEvent(ctx, appOf(ctx), q.ID, q.Type, onceName(q.Once), q.Body)
}

// control is something that a person does to several runs at once.
type control func(context.Context, agent.App, ...agent.RunID) ([]agent.Run, error)

func (s *Server) control(ctx context.Context, action string, do control, ids ...agent.RunID) ([]agent.Run, error) {
	out, err := do(ctx, appOf(ctx), ids...)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		err = errors.Join(err, s.audit(ctx, action, string(id), ""))
	}
	return out, err
}

// one and many make the two handlers of a control: of one run, and of an array of them.
func (s *Server) one(action string, do control) func(context.Context, runRequest) (agent.Run, error) {
	return func(ctx context.Context, q runRequest) (agent.Run, error) {
		runs, err := s.control(ctx, action, do, q.ID)
		if err != nil {
			return agent.Run{}, err
		}
		return runs[0], nil
	}
}

func (s *Server) many(action string, do control) func(context.Context, runIDsRequest) (list[agent.Run], error) {
	return func(ctx context.Context, q runIDsRequest) (list[agent.Run], error) {
		runs, err := s.control(ctx, action, do, q.Body.IDs...)
		return listOf(runs, "", err)
	}
}

// restart says from where a run is run again.
type restart struct {
	Step    string `json:"step,omitempty" doc:"name of the step to go on from; the beginning unless given"`
	NewCode bool   `json:"new_code,omitempty" doc:"run what the agent runs now, which has to do the same up to the step; else the code of the run"`
}

type restartRunRequest struct {
	ID   agent.RunID `path:"id"`
	Body restart     `body:"json" default:"{}"`
}

func (s *Server) restartRun(ctx context.Context, q restartRunRequest) (agent.Run, error) {
	r, err := s.rt.RestartRun(ctx, appOf(ctx), q.ID, q.Body.Step, q.Body.NewCode)
	if err == nil {
		err = s.audit(ctx, "run.restart", string(q.ID), fmt.Sprintf("as %s from step %q", r.ID, q.Body.Step))
	}
	return r, err
}

type resolveRunRequest struct {
	ID   agent.RunID      `path:"id"`
	Body agent.Resolution `body:"json"`
}

func (s *Server) resolveRun(ctx context.Context, q resolveRunRequest) (agent.Run, error) {
	r, err := s.rt.ResolveRun(ctx, appOf(ctx), q.ID, q.Body)
	if err == nil {
		err = s.audit(ctx, "run.resolve", string(q.ID), fmt.Sprintf("call %d: %s", q.Body.Call, q.Body.Action))
	}
	return r, err
}

type runJournalRequest struct {
	ID    agent.RunID `path:"id"`
	After int64       `query:"after" doc:"number of the last entry seen; 0 for all"`
	Limit int         `query:"limit" doc:"most entries to return, up to 1000; 50 unless given"`
}

func (s *Server) runJournal(ctx context.Context, q runJournalRequest) (list[agent.JournalEntry], error) {
	if q.Limit > agent.MaxPage {
		return list[agent.JournalEntry]{}, agent.Errorf(agent.Invalid, "limit must be from 1 to %d", agent.MaxPage)
	}
	if q.Limit == 0 {
		q.Limit = agent.DefaultPage
	}
	entries, err := s.rt.Journal(ctx, appOf(ctx), q.ID, q.After, q.Limit)
	next := ""
	if n := len(entries); n == q.Limit {
		next = strconv.FormatInt(entries[n-1].Seq, 10)
	}
	return listOf(entries, next, err)
}

func (s *Server) exportRun(ctx context.Context, q runRequest) (*stream, error) {
	return s.export(ctx, func(ctx context.Context, w io.Writer) error {
		return s.rt.ExportRun(ctx, appOf(ctx), q.ID, w)
	})
}

// newReplay says with what a run is played again.
type newReplay struct {
	Plugin   string            `json:"plugin,omitempty" doc:"name, name@version or digest of a plugin; the run's own code unless given"`
	Code     string            `json:"code,omitempty" doc:"code to use in place of a plugin"`
	Language string            `json:"language,omitempty" doc:"ts, js or python; ts unless given"`
	Files    map[string]string `json:"files,omitempty" doc:"further modules that the code imports, by relative path"`
}

type replayRunRequest struct {
	ID       agent.RunID `path:"id"`
	Filename string      `query:"filename" doc:"name of an uploaded file, whose extension says what it is"`
	Type     string      `header:"Content-Type" doc:"application/json, or what an uploaded plugin may be"`
	Body     []byte      `body:"raw"`
}

// replayRun changes nothing, so it may be repeated, and nobody needs to hear of it.
func (s *Server) replayRun(ctx context.Context, q replayRunRequest) (agent.Replay, error) {
	req, err := q.request()
	if err != nil {
		return agent.Replay{}, err
	}
	return s.rt.ReplayRun(ctx, appOf(ctx), q.ID, req)
}

func (q replayRunRequest) request() (req runtime.ReplayRequest, err error) {
	switch {
	case len(q.Body) == 0:
		return req, nil
	case q.Filename == "" && (q.Type == "" || agent.Payload{Type: q.Type}.IsJSON()):
		var b newReplay
		if err := decodeJSON(q.Body, &b); err != nil {
			return req, err
		}
		if b.Code == "" && b.Language == "" && len(b.Files) == 0 {
			req.Plugin = b.Plugin
			return req, nil
		}
		if b.Plugin != "" {
			return req, agent.Errorf(agent.Invalid, `a run is played again with a plugin or with code, and the body has both`)
		}
		src, err := newCode{Code: b.Code, Language: b.Language, Files: b.Files}.source()
		req.Source = &src
		return req, err
	}
	up, err := joinForm(runtime.Upload{Filename: q.Filename, Type: q.Type, Body: q.Body})
	if err != nil {
		return req, err
	}
	src, _, err := plugins.Open(up.Filename, up.Type, up.Body, nil)
	req.Source = &src
	return req, err
}
