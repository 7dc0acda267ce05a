package store

import (
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/instance"
)

// runBodies is the large parts of a run as its record keeps them.
type runBodies struct{ input, output, asks body }

func (c *turn) prepareRuns() error {
	c.bodies = make([]runBodies, len(c.b.Runs))
	for i, e := range c.b.Runs {
		var err error
		if e.From == agent.UnknownStatus {
			if c.bodies[i].input, err = c.s.stow(e.Run.Input.Body, maxBody); err != nil {
				return err
			}
		}
		if e.Run.Output != nil {
			if c.bodies[i].output, err = c.s.stow(e.Run.Output.Body, maxBody); err != nil {
				return err
			}
		}
		if _, c.bodies[i].asks, err = c.s.stowAsks(e.Run); err != nil {
			return err
		}
	}
	return nil
}

// runs makes and changes records of runs and sessions.
func (c *turn) runs(t *tx, _ *instHead) error {
	for i, e := range c.b.Runs {
		if e.Session != nil {
			if err := c.newSession(t, *e.Session); err != nil {
				return err
			}
		}
		edit := c.changeRun
		if e.From == agent.UnknownStatus {
			edit = c.newRun
		}
		if err := edit(t, e, c.bodies[i]); err != nil {
			return err
		}
	}
	return nil
}

func (c *turn) newSession(t *tx, se agent.Session) error {
	if err := c.ours(t, &se.Agent, "session "+string(se.ID)); err != nil {
		return err
	}
	if err := c.s.fillSession(&se, c.s.now()); err != nil {
		return err
	}
	_, err := t.newSession(se)
	return err
}

func (c *turn) newRun(t *tx, e instance.RunEdit, b runBodies) error {
	run := e.Run
	if err := c.ours(t, &run.Agent, "run "+string(run.ID)); err != nil {
		return err
	}
	x, err := c.session(t, run.Session)
	if err != nil {
		return err
	}
	if run.Status == agent.UnknownStatus {
		run.Status = agent.Queued
	}
	run.Created = c.s.stampOr(run.Created)
	run.Started, run.Ended = stamp(run.Started), stamp(run.Ended)
	seq, log := x.last, instance.SessionLog(run.Session)
	for _, a := range c.b.Events {
		if a.Log == log {
			if seq++; a.Event.Run == run.ID {
				run.FirstSeq = seq
				break
			}
		}
	}
	_, err = t.newRun(run, b.input, b.asks)
	return err
}

// ours makes an empty name of an agent that of the instance's, and refuses another one.
func (c *turn) ours(t *tx, name *string, what string) error {
	mine, err := mustGet(t, byKey(byAgentID, c.id.App, string(c.id.Agent)))
	switch {
	case err != nil:
		return err
	case *name == "":
		*name = string(mine)
	case *name != string(mine):
		return agent.Errorf(agent.Conflict, "%s is of agent %q, and the instance of %q", what, *name, mine)
	}
	return nil
}

func (c *turn) changeRun(t *tx, e instance.RunEdit, b runBodies) error {
	k := recKey(runs, c.id.App, string(e.Run.ID))
	r, err := find(t, runs, c.id.App, string(e.Run.ID), "run", nil)
	if err != nil {
		return err
	}
	was, err := decodeBareRun(k, r)
	if err != nil {
		return err
	}
	if _, err := c.session(t, was.Session); err != nil {
		return err
	}
	if was.Status != e.From {
		return agent.Errorf(agent.Conflict, "run %s is %s, and not %s", was.ID, was.Status, e.From)
	}
	_, err = t.changeRun(r, was, e.Run, b.output, b.asks)
	return err
}

// session returns where the log of a session ends, which must be with the instance.
func (c *turn) session(t *tx, id agent.SessionID) (extent, error) {
	x, err := openLog(t, SessionLog(c.id.App, id))
	if err != nil || c.with[id] {
		return x, err
	}
	var se agent.Session
	if _, err := find(t, sessions, c.id.App, string(id), "session", &se); err != nil {
		return x, err
	}
	name, _, err := t.get(byKey(byAgentID, c.id.App, string(c.id.Agent)))
	if err == nil && (se.Agent != string(name) || se.Key != c.id.Key) {
		err = agent.Errorf(agent.Conflict, "session %s is with %s %q, not with instance %q", id, se.Agent, se.Key, c.id.Key)
	}
	if err == nil {
		if c.with == nil {
			c.with = map[agent.SessionID]bool{}
		}
		c.with[id] = true
	}
	return x, err
}
