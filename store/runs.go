package store

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/skep-dev/skep/agent"
)

// NewRun is a run to be created. Session is the run's session when that is to be created too; else it must be there.
// Events are the first of the run's, for the session's log. One commit carries it all.
type NewRun struct {
	Run     agent.Run
	Session *agent.Session
	Events  []agent.Event
}

// CreateRun stores a run and returns it with its events as they were numbered. The id of a new session, and zero ids and
// times are filled in, and the events are made the run's. A replay returns the run as it is now, and no events.
func (s *Store) CreateRun(ctx context.Context, n NewRun, once Once) (_ agent.Run, events []agent.Event, replayed bool, err error) {
	now := s.now()
	run := n.Run
	if err := checkApp(run.App); err != nil {
		return agent.Run{}, nil, false, err
	}
	var session agent.Session
	if n.Session != nil {
		session = *n.Session
		if session.ID == "" {
			session.ID = run.Session
		}
		if err := s.fillSession(&session, now); err != nil {
			return agent.Run{}, nil, false, err
		}
		if session.App != run.App {
			return agent.Run{}, nil, false, agent.Errorf(agent.Invalid, "the run and its session are of different apps")
		}
		run.Session = session.ID
	}
	if run.ID == "" {
		run.ID = agent.NewRunID(now)
	}
	if run.Status == agent.UnknownStatus {
		run.Status = agent.Queued
	}
	if !isPart(string(run.ID)) || run.Status.Terminal() {
		return agent.Run{}, nil, false, agent.Errorf(agent.Invalid, "a run with id %q and status %s cannot be created", run.ID, run.Status)
	}
	run.Created = s.stampOr(run.Created)
	input, err := s.stow(run.Input.Body, maxBody)
	if err != nil {
		return agent.Run{}, nil, false, err
	}
	var asks body
	if run.Asks, asks, err = s.stowAsks(run); err != nil {
		return agent.Run{}, nil, false, err
	}
	ps, err := s.prepare(ofRun(n.Events, run.ID))
	if err != nil {
		return agent.Run{}, nil, false, err
	}
	out := run
	err = s.updateOf(ctx, run.App, func(t *tx) error {
		out, events, replayed = run, nil, false
		made, err := t.made(once, runs, run.App, now)
		if err != nil {
			return err
		}
		if made != "" {
			replayed = true
			_, out, err = s.readRun(t, run.App, made)
			return err
		}
		if n.Session != nil {
			if _, err := t.newSession(session); err != nil {
				return err
			}
		}
		log := SessionLog(run.App, run.Session)
		x, err := openLog(t, log)
		if err != nil {
			return err
		}
		if events, err = s.append(t, log, x, ps); err != nil {
			return err
		}
		if len(events) > 0 {
			out.FirstSeq = events[0].Seq
		}
		ord, err := t.newRun(out, input, asks)
		if err != nil {
			return err
		}
		return s.remember(t, once, runs, run.App, string(run.ID), ord, now)
	})
	if err != nil {
		return agent.Run{}, nil, false, err
	}
	return out, events, replayed, nil
}

// newRun makes the record of a run and the index entries that name it.
func (t *tx) newRun(run agent.Run, input, asks body) (ord int64, err error) {
	if _, found, err := lookup(t, recKey(runs, run.App, string(run.ID)), nil); err != nil {
		return 0, err
	} else if found {
		return 0, agent.Errorf(agent.Exists, "run %s is there already", run.ID)
	}
	if _, err := find(t, agents, run.App, run.Agent, "agent", nil); err != nil {
		return 0, err
	}
	ord, err = t.insert(runs, run.App, string(run.ID))
	if err != nil {
		return 0, err
	}
	id := []byte(run.ID)
	t.put(byOrdKey(byRunAgent, run.App, run.Agent, ord), id)
	t.put(byOrdKey(byRunSession, run.App, string(run.Session), ord), id)
	t.put(byOrdKey(byStatus(run.Status), run.App, "", ord), id)
	if !asks.empty() {
		t.put(byOrdKey(byRunAsking, run.App, "", ord), id)
	}
	return ord, t.saveRun(run, ord, input, body{}, asks)
}

// byStatus is the index that names runs of a status: "" for those that have ended.
func byStatus(s agent.RunStatus) index {
	switch {
	case s.Terminal():
		return ""
	case s.Active():
		return byRunLive
	}
	return byRunParked
}

// changeRun brings the record r of a run up to date, which read as was, and returns the run as it is then.
func (t *tx) changeRun(r row, was, run agent.Run, output, asks body) (agent.Run, error) {
	run.App, run.ID, run.Session, run.Agent, run.Plugin = was.App, was.ID, was.Session, was.Agent, was.Plugin
	run.Function, run.Input, run.Created = was.Function, was.Input, was.Created
	run.FirstSeq = cmp.Or(was.FirstSeq, run.FirstSeq)
	run.Started, run.Ended = stamp(run.Started), stamp(run.Ended)
	if from, to := byStatus(was.Status), byStatus(run.Status); from != to {
		t.del(byOrdKey(from, run.App, "", r.ord))
		if to != "" {
			t.put(byOrdKey(to, run.App, "", r.ord), []byte(run.ID))
		}
	}
	switch k := byOrdKey(byRunAsking, run.App, "", r.ord); {
	case asking(r) && asks.empty():
		t.del(k)
	case !asking(r) && !asks.empty():
		t.put(k, []byte(run.ID))
	}
	return run, t.saveRun(run, r.ord, r.bodies[0], output, asks)
}

// ofRun returns events with their Run set.
func ofRun(events []agent.Event, id agent.RunID) []agent.Event {
	out := append([]agent.Event(nil), events...)
	for i := range out {
		out[i].Run = id
	}
	return out
}

// runFields is a run without the bytes of its input and output and without its questions, which are the record's three bodies.
type runFields struct {
	agent.Run
	Input  payloadFields  `json:"input"`
	Output *payloadFields `json:"output,omitempty"`
	Asks   struct{}       `json:"asks,omitzero"`
}

type payloadFields struct {
	Type string `json:"type,omitempty"`
}

func (t *tx) saveRun(run agent.Run, ord int64, input, output, asks body) error {
	f := runFields{Run: run, Input: payloadFields{run.Input.Type}}
	if run.Output != nil {
		f.Output = &payloadFields{run.Output.Type}
	}
	return t.save(recKey(runs, run.App, string(run.ID)), ord, f, input, output, asks)
}

// readRun reads a run that something names.
func (s *Store) readRun(g getter, app agent.App, id string) (row, agent.Run, error) {
	k := recKey(runs, app, id)
	r, err := record(g, k, nil)
	if err != nil {
		return row{}, agent.Run{}, err
	}
	run, err := s.decodeRun(k, r)
	return r, run, err
}

func (s *Store) decodeRun(k key, r row) (agent.Run, error) {
	run, err := decodeBareRun(k, r)
	if err != nil {
		return agent.Run{}, err
	}
	if run.Input.Body, err = s.fetch(k, r, 0); err != nil {
		return agent.Run{}, err
	}
	if run.Output != nil {
		if run.Output.Body, err = s.fetch(k, r, 1); err != nil {
			return agent.Run{}, err
		}
	}
	run.Asks, err = s.fetchAsks(k, r)
	return run, err
}

// decodeBareRun returns a run without the bytes of its input and output, and without its questions.
func decodeBareRun(k key, r row) (agent.Run, error) {
	var f runFields
	err := json.Unmarshal(r.fields, &f)
	if err == nil && len(r.bodies) != 2 && len(r.bodies) != 3 {
		err = errShort
	}
	if err != nil {
		return agent.Run{}, corrupt(k, "%v", err)
	}
	run := f.Run
	run.Asks = nil
	run.Input = agent.Payload{Type: f.Input.Type}
	if f.Output != nil {
		run.Output = &agent.Payload{Type: f.Output.Type}
	}
	return run, nil
}

// UpdateRun applies change to a run and adds events to its session's log, in one commit. A run that has ended is a
// Conflict. change may run more than once and must not call the store. What it does to the run's ids, FirstSeq, app, agent,
// plugin, function, input and Created is undone; an error of change changes nothing. A run that ends has no questions any more.
func (s *Store) UpdateRun(ctx context.Context, app agent.App, id agent.RunID, events []agent.Event, change func(*agent.Run) error) (_ agent.Run, stored []agent.Event, err error) {
	ps, err := s.prepare(ofRun(events, id))
	if err != nil {
		return agent.Run{}, nil, err
	}
	var out agent.Run
	err = s.updateOf(ctx, app, func(t *tx) error {
		r, err := find(t, runs, app, string(id), "run", nil)
		if err != nil {
			return err
		}
		run, err := s.decodeRun(recKey(runs, app, string(id)), r)
		if err != nil {
			return err
		}
		if run.Status.Terminal() {
			return agent.Errorf(agent.Conflict, "run %s has ended: it is %s", id, run.Status)
		}
		was := run
		if err := change(&run); err != nil {
			return err
		}
		var output body
		if run.Output != nil {
			if output, err = s.stow(run.Output.Body, maxBody); err != nil {
				return err
			}
		}
		var asks body
		if run.Asks, asks, err = s.stowAsks(run); err != nil {
			return err
		}
		log := SessionLog(app, was.Session)
		x, err := bounds(t, log)
		if err != nil {
			return err
		}
		if stored, err = s.append(t, log, x, ps); err != nil {
			return err
		}
		out, err = t.changeRun(r, was, run, output, asks)
		return err
	})
	if err != nil {
		return agent.Run{}, nil, err
	}
	return out, stored, nil
}
