package store

import (
	"context"

	"github.com/skep-dev/skep/agent"
)

// CreateAgent stores an agent whose name is free in its app, else it is an Exists error. A zero ID and zero times are
// filled in.
func (s *Store) CreateAgent(ctx context.Context, a agent.Agent, once Once) (_ agent.Agent, replayed bool, err error) {
	if err := checkApp(a.App); err != nil {
		return agent.Agent{}, false, err
	}
	if err := agent.CheckName("agent", a.Name); err != nil {
		return agent.Agent{}, false, err
	}
	now := s.now()
	if a.ID == "" {
		a.ID = agent.NewAgentID(now)
	}
	if !isPart(string(a.ID)) {
		return agent.Agent{}, false, agent.Errorf(agent.Invalid, "agent id %q is not valid", a.ID)
	}
	a.Created = s.stampOr(a.Created)
	a.Updated = a.Created
	out := a
	err = s.updateOf(ctx, a.App, func(t *tx) error {
		out, replayed = a, false
		made, err := t.made(once, agents, a.App, now)
		if err != nil {
			return err
		}
		if made != "" {
			replayed = true
			_, err = record(t, recKey(agents, a.App, made), &out)
			return err
		}
		_, err = find(t, agents, a.App, a.Name, "agent", nil)
		if err == nil {
			return agent.Errorf(agent.Exists, "agent %q is there already", a.Name)
		}
		if agent.KindOf(err) != agent.NotFound {
			return err
		}
		if err := t.mustHaveApp(a.App); err != nil {
			return err
		}
		ord, err := t.insert(agents, a.App, a.Name)
		if err != nil {
			return err
		}
		t.put(byKey(byAgentID, a.App, string(a.ID)), []byte(a.Name))
		if err := t.newLog(AgentLog(a.App, a.ID)); err != nil {
			return err
		}
		if err := t.save(recKey(agents, a.App, a.Name), ord, a); err != nil {
			return err
		}
		return s.remember(t, once, agents, a.App, a.Name, ord, now)
	})
	if err != nil {
		return agent.Agent{}, false, err
	}
	return out, replayed, nil
}

// Agent returns the agent of that name.
func (s *Store) Agent(ctx context.Context, app agent.App, name string) (a agent.Agent, err error) {
	err = s.view(ctx, func(snap snapshot) error {
		_, err := find(snap, agents, app, name, "agent", &a)
		return err
	})
	return a, err
}

// Agents lists an app's agents, newest first.
func (s *Store) Agents(ctx context.Context, app agent.App, page agent.Page) (list []agent.Agent, next string, err error) {
	err = s.view(ctx, func(snap snapshot) error {
		list, next, err = collectionPages(snap, agents, app, page, func(_ int64, name string) (a agent.Agent, _ bool, err error) {
			_, err = record(snap, recKey(agents, app, name), &a)
			return a, true, err
		})
		return err
	})
	return list, next, err
}

// UpdateAgent applies change to an agent, sets its Updated and returns it. change may run more than once and must not call
// the store. What it does to the agent's app, id, name and Created is undone; an error of change changes nothing.
func (s *Store) UpdateAgent(ctx context.Context, app agent.App, name string, change func(*agent.Agent) error) (out agent.Agent, err error) {
	now := stamp(s.now())
	err = s.updateOf(ctx, app, func(t *tx) error {
		var a agent.Agent
		r, err := find(t, agents, app, name, "agent", &a)
		if err != nil {
			return err
		}
		was := a
		if err := change(&a); err != nil {
			return err
		}
		a.App, a.ID, a.Name, a.Created, a.Updated = was.App, was.ID, was.Name, was.Created, now
		out = a
		return t.save(recKey(agents, app, name), r.ord, a)
	})
	if err != nil {
		return agent.Agent{}, err
	}
	return out, nil
}

// DeleteAgents deletes agents, all or none. Their sessions and runs stay, and their logs can still be read. Their states and
// instances are out of reach at once; DropStates and DropInstances remove them.
func (s *Store) DeleteAgents(ctx context.Context, app agent.App, names ...string) error {
	return s.updateOf(ctx, app, func(t *tx) error {
		seen := map[string]bool{}
		for _, name := range names {
			if seen[name] {
				continue
			}
			seen[name] = true
			var a agent.Agent
			r, err := find(t, agents, app, name, "agent", &a)
			if err != nil {
				return err
			}
			t.del(byKey(byAgentID, app, string(a.ID)))
			log := AgentLog(app, a.ID)
			if x, err := bounds(t, log); err != nil {
				return err
			} else if x.last == 0 {
				t.del(log.headKey())
			}
			if err := t.disown(AgentState(app, a.ID)); err != nil {
				return err
			}
			if err := t.abandon(app, a.ID); err != nil {
				return err
			}
			if err := t.remove(agents, app, name, r.ord); err != nil {
				return err
			}
		}
		return nil
	})
}
