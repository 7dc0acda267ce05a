package store

import (
	"context"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/instance"
)

// CreateSession stores a session of an agent that is there, and its empty log. A zero ID, Key and Created are filled in.
func (s *Store) CreateSession(ctx context.Context, se agent.Session, once Once) (_ agent.Session, replayed bool, err error) {
	now := s.now()
	if err := s.fillSession(&se, now); err != nil {
		return agent.Session{}, false, err
	}
	out := se
	err = s.updateOf(ctx, se.App, func(t *tx) error {
		out, replayed = se, false
		made, err := t.made(once, sessions, se.App, now)
		if err != nil {
			return err
		}
		if made != "" {
			replayed = true
			_, err = readSession(t, se.App, made, &out)
			return err
		}
		ord, err := t.newSession(se)
		if err != nil {
			return err
		}
		return s.remember(t, once, sessions, se.App, string(se.ID), ord, now)
	})
	if err != nil {
		return agent.Session{}, false, err
	}
	return out, replayed, nil
}

func (s *Store) fillSession(se *agent.Session, now time.Time) error {
	if err := checkApp(se.App); err != nil {
		return err
	}
	if se.ID == "" {
		se.ID = agent.NewSessionID(now)
	}
	if se.Key == "" {
		se.Key = "default"
	}
	if err := instance.CheckKey(se.Key); err != nil {
		return err
	}
	if !isPart(string(se.ID)) {
		return agent.Errorf(agent.Invalid, "session id %q is not valid", se.ID)
	}
	se.Created = s.stampOr(se.Created)
	se.LastSeq = 0
	return nil
}

func (t *tx) newSession(se agent.Session) (ord int64, err error) {
	if _, err := find(t, agents, se.App, se.Agent, "agent", nil); err != nil {
		return 0, err
	}
	if _, found, err := lookup(t, recKey(sessions, se.App, string(se.ID)), nil); err != nil {
		return 0, err
	} else if found {
		return 0, agent.Errorf(agent.Exists, "session %s is there already", se.ID)
	}
	if ord, err = t.insert(sessions, se.App, string(se.ID)); err != nil {
		return 0, err
	}
	t.put(byOrdKey(bySessionAgent, se.App, se.Agent, ord), []byte(se.ID))
	if err := t.newLog(SessionLog(se.App, se.ID)); err != nil {
		return 0, err
	}
	return ord, t.save(recKey(sessions, se.App, string(se.ID)), ord, se)
}

// readSession reads a session that something names, with its LastSeq.
func readSession(g getter, app agent.App, id string, se *agent.Session) (row, error) {
	r, err := record(g, recKey(sessions, app, id), se)
	if err != nil {
		return r, err
	}
	l, err := bounds(g, SessionLog(app, agent.SessionID(id)))
	se.LastSeq = l.last
	return r, err
}

// Session returns the session with that id.
func (s *Store) Session(ctx context.Context, app agent.App, id agent.SessionID) (se agent.Session, err error) {
	err = s.view(ctx, func(snap snapshot) error {
		if _, err := find(snap, sessions, app, string(id), "session", &se); err != nil {
			return err
		}
		l, err := bounds(snap, SessionLog(app, id))
		se.LastSeq = l.last
		return err
	})
	return se, err
}

// Sessions lists an app's sessions, newest first; with agentName only those of that agent.
func (s *Store) Sessions(ctx context.Context, app agent.App, agentName string, page agent.Page) (list []agent.Session, next string, err error) {
	err = s.view(ctx, func(snap snapshot) error {
		load := func(_ int64, id string) (se agent.Session, _ bool, err error) {
			_, err = readSession(snap, app, id, &se)
			return se, true, err
		}
		if agentName == "" {
			list, next, err = collectionPages(snap, sessions, app, page, load)
		} else {
			list, next, err = indexPages(snap, bySessionAgent, app, agentName, page, load)
		}
		return err
	})
	return list, next, err
}
