package api

import (
	"context"
	"fmt"
	"strconv"

	"github.com/skep-dev/skep/agent"
)

// stateQuery asks for one page of a state.
type stateQuery struct {
	pageQuery
	Prefix  string `query:"prefix" doc:"what the keys begin with"`
	Start   string `query:"start" doc:"the first key"`
	End     string `query:"end" doc:"the key before which the list ends"`
	Reverse bool   `query:"reverse" doc:"from the last key to the first"`
}

func (q stateQuery) state() agent.StateRange {
	return agent.StateRange{Prefix: q.Prefix, Start: q.Start, End: q.End, Reverse: q.Reverse, After: q.After, Limit: q.Limit}
}

type listStateRequest struct {
	Name string `path:"name"`
	stateQuery
}

// stateList is one page of a state. Its cursor is the last key of the page.
type stateList struct {
	Items []agent.StateEntry `json:"items"`
	Next  string             `json:"next,omitempty" doc:"cursor of the next page; absent on the last"`
	Size  agent.StateSize    `json:"size" doc:"of the whole state"`
}

func (s *Server) listState(ctx context.Context, q listStateRequest) (stateList, error) {
	items, next, size, err := s.rt.ListState(ctx, appOf(ctx), q.Name, q.state())
	return stateList{items, next, size}, err
}

type stateRequest struct {
	Name string `path:"name"`
	Key  string `path:"key" doc:"escaped: its slashes are %2F"`
}

// getState answers with the value as it is.
func (s *Server) getState(ctx context.Context, q stateRequest) (raw, error) {
	e, err := s.rt.State(ctx, appOf(ctx), q.Name, q.Key)
	if err != nil {
		return raw{}, err
	}
	return rawState(e), nil
}

func rawState(e agent.StateEntry) raw {
	return raw{contentType: e.Value.Type, header: [][2]string{{"Skep-Version", strconv.FormatInt(e.Version, 10)}}, body: e.Value.Body}
}

// ifVersion makes an edit depend on the version of its key.
type ifVersion struct {
	If string `query:"if_version" doc:"the version that the key must have, 0 for a key that must not be there"`
}

func (q ifVersion) put(e *agent.StateEdit) error {
	if q.If == "" {
		return nil
	}
	n, err := strconv.ParseInt(q.If, 10, 64)
	if err != nil || n < 0 {
		return agent.Errorf(agent.Invalid, `query parameter "if_version" must be a whole number from 0 up, not %.80q`, q.If)
	}
	e.If = &n
	return nil
}

// stateValue is a value to set.
type stateValue struct {
	ifVersion
	Type string `header:"Content-Type" doc:"of the value; a script gets JSON as a value, text as a string, else bytes"`
	Body []byte `body:"raw"`
}

func (q stateValue) edit(key string) (agent.StateEdit, error) {
	if q.Type == "" {
		q.Type = agent.TypeBytes
	}
	e := agent.StateEdit{Act: agent.StateSet, Key: key, Value: agent.Payload{Type: q.Type, Body: q.Body}}
	return e, q.put(&e)
}

type putStateRequest struct {
	stateRequest
	stateValue
}

// stateVersion is the version that a key has now.
type stateVersion struct {
	Version int64 `json:"version"`
}

func (s *Server) putState(ctx context.Context, q putStateRequest) (stateVersion, error) {
	e, err := q.edit(q.Key)
	if err != nil {
		return stateVersion{}, err
	}
	version, err := s.editState(ctx, q.Name, e)
	return stateVersion{version}, err
}

type deleteStateRequest struct {
	stateRequest
	ifVersion
}

// deleteState is content when the key is not there, so that it can be repeated.
func (s *Server) deleteState(ctx context.Context, q deleteStateRequest) (nothing, error) {
	e := agent.StateEdit{Act: agent.StateDelete, Key: q.Key}
	if err := q.put(&e); err != nil {
		return nothing{}, err
	}
	_, err := s.editState(ctx, q.Name, e)
	return nothing{}, err
}

func (s *Server) editState(ctx context.Context, name string, e agent.StateEdit) (int64, error) {
	version, err := s.rt.EditState(ctx, appOf(ctx), name, e)
	if err == nil {
		err = s.audit(ctx, "state."+e.Act.String(), name, fmt.Sprintf("%q", e.Key))
	}
	return version, err
}
