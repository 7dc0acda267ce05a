package instancetest

import (
	"bytes"
	"cmp"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/instance"
)

// records is the sessions and runs that a commit begins with, and changes.
type records struct {
	now      time.Time
	sessions map[agent.SessionID]agent.Session
	runs     map[agent.RunID]agent.Run
}

// with checks that a session is with an instance.
func with(sessions map[agent.SessionID]agent.Session, s agent.SessionID, id instance.ID) error {
	se, ok := sessions[s]
	switch {
	case !ok:
		return agent.Errorf(agent.NotFound, "there is no session %q", s)
	case se.App != id.App || se.Agent != nameOf(id.Agent) || se.Key != id.Key:
		return agent.Errorf(agent.Conflict, "session %s is with another instance", s)
	}
	return nil
}

// edit makes and changes what b says. logs is the sessions' logs before the batch.
func (r records) edit(id instance.ID, b *instance.Batch, logs map[agent.SessionID][]agent.Event) error {
	for _, e := range b.Runs {
		edit := r.change
		if e.From == agent.UnknownStatus {
			edit = r.make
		}
		if err := edit(id, b, e, logs); err != nil {
			return err
		}
	}
	return nil
}

func (r records) make(id instance.ID, b *instance.Batch, e instance.RunEdit, logs map[agent.SessionID][]agent.Event) error {
	if e.Session != nil {
		s := *e.Session
		if err := ours(&s.Agent, id); err != nil {
			return err
		}
		if _, ok := r.sessions[s.ID]; ok {
			return agent.Errorf(agent.Exists, "session %s is there already", s.ID)
		}
		if s.LastSeq = 0; s.Created.IsZero() {
			s.Created = r.now
		}
		r.sessions[s.ID] = s
	}
	run := e.Run
	if err := ours(&run.Agent, id); err != nil {
		return err
	}
	if err := with(r.sessions, run.Session, id); err != nil {
		return err
	}
	if _, ok := r.runs[run.ID]; ok {
		return agent.Errorf(agent.Exists, "run %s is there already", run.ID)
	}
	if run.Status == agent.UnknownStatus {
		run.Status = agent.Queued
	}
	if run.Created.IsZero() {
		run.Created = r.now
	}
	run.Input.Body = bytes.Clone(run.Input.Body)
	seq := int64(len(logs[run.Session]))
	for _, a := range b.Events {
		if a.Log != instance.SessionLog(run.Session) {
			continue
		}
		if seq++; a.Event.Run == run.ID {
			run.FirstSeq = seq
			break
		}
	}
	r.runs[run.ID] = run
	return nil
}

func (r records) change(id instance.ID, _ *instance.Batch, e instance.RunEdit, _ map[agent.SessionID][]agent.Event) error {
	was, ok := r.runs[e.Run.ID]
	if !ok {
		return agent.Errorf(agent.NotFound, "there is no run %q", e.Run.ID)
	}
	if err := with(r.sessions, was.Session, id); err != nil {
		return err
	}
	if was.Status != e.From {
		return agent.Errorf(agent.Conflict, "run %s is %s, and not %s", was.ID, was.Status, e.From)
	}
	run := e.Run
	run.App, run.ID, run.Session, run.Agent, run.Plugin = was.App, was.ID, was.Session, was.Agent, was.Plugin
	run.Function, run.Input, run.Created, run.FirstSeq = was.Function, was.Input, was.Created, cmp.Or(was.FirstSeq, run.FirstSeq)
	if run.Status.Terminal() {
		run.Asks = nil
	}
	r.runs[run.ID] = run
	return nil
}

// ours makes an empty name of an agent that of the instance's, and refuses another one.
func ours(name *string, id instance.ID) error {
	if *name = cmp.Or(*name, nameOf(id.Agent)); *name != nameOf(id.Agent) {
		return agent.Errorf(agent.Conflict, "agent %q is not the instance's", *name)
	}
	return nil
}
