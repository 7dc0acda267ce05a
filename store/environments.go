package store

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/skep-dev/skep/agent"
)

// environmentRecord is the newest revision of an environment. It stays when the environment is deleted, so that no revision is given twice.
type environmentRecord struct {
	agent.Environment
	Deleted bool `json:"deleted,omitempty"`
}

// frozenRecord is the revision of an environment that a session stays with.
type frozenRecord struct {
	Revision int64 `json:"revision"`
}

// revisionDoc is where a revision is kept: for good, as sandboxes and sessions name it.
func revisionDoc(app agent.App, name string, rev int64) docAt {
	return docAt{environmentRevisions, app, name + "@" + string(number(rev))}
}

// PutEnvironment stores env as the next revision of the environment of its name, from 1, and returns it. Its own Revision and Created do not count; when
// all else is as in the newest revision, that one is returned and nothing is stored.
func (s *Store) PutEnvironment(ctx context.Context, env agent.Environment) (agent.Environment, error) {
	if err := checkEnvironment(&env); err != nil {
		return agent.Environment{}, err
	}
	now := stamp(s.now())
	var out agent.Environment
	err := s.updateOf(ctx, env.App, func(t *tx) error {
		d := docAt{environments, env.App, env.Name}
		was, h, err := t.openDoc(d)
		if err != nil {
			return err
		}
		var rec environmentRecord
		if was.ord > 0 {
			if _, err := record(t, d.key(), &rec); err != nil {
				return err
			}
			if out = rec.Environment; !rec.Deleted && sameEnvironment(out, env) {
				return nil
			}
		}
		out = env
		out.Revision, out.Created = rec.Revision+1, now
		if err := s.putEnvironmentRevision(t, out); err != nil {
			return err
		}
		data, err := s.docJSON(environments, environmentRecord{Environment: out})
		if err == nil {
			_, err = t.putDoc(d, was, h, data)
		}
		return err
	})
	if err != nil {
		return agent.Environment{}, err
	}
	return out, nil
}

func (s *Store) putEnvironmentRevision(t *tx, env agent.Environment) error {
	d := revisionDoc(env.App, env.Name, env.Revision)
	data, err := s.docJSON(environmentRevisions, env)
	if err != nil {
		return err
	}
	was, h, err := t.openDoc(d)
	if err == nil && was.ord > 0 {
		err = corrupt(d.key(), "it is there already")
	}
	if err == nil {
		_, err = t.putDoc(d, was, h, data)
	}
	return err
}

// sameEnvironment reports whether a and b differ in nothing but their revision and when they were made.
func sameEnvironment(a, b agent.Environment) bool {
	a.Revision, a.Created = b.Revision, b.Created
	x, errA := plainJSON(a)
	y, errB := plainJSON(b)
	return errA == nil && errB == nil && bytes.Equal(x, y)
}

// Environment returns an environment: NAME for its newest revision, or NAME@REVISION. A revision can be read also when the environment was deleted.
func (s *Store) Environment(ctx context.Context, app agent.App, name string) (env agent.Environment, err error) {
	base, rev, err := agent.SplitEnvironment(name)
	if err != nil {
		return env, err
	}
	if err := (docAt{environments, app, base}).check(); err != nil {
		return env, err
	}
	err = s.view(ctx, func(snap snapshot) error {
		if err := appThere(snap, app); err != nil {
			return err
		}
		env, err = readEnvironment(snap, app, base, rev)
		return err
	})
	return env, err
}

// readEnvironment reads a revision, or the newest one with 0.
func readEnvironment(g getter, app agent.App, name string, rev int64) (agent.Environment, error) {
	var rec environmentRecord
	_, found, err := lookup(g, docAt{environments, app, name}.key(), &rec)
	switch {
	case err != nil:
		return agent.Environment{}, err
	case !found, rev == 0 && rec.Deleted:
		return agent.Environment{}, &agent.Error{
			Kind: agent.NotFound, Msg: fmt.Sprintf("there is no environment %q", name), Hint: "skep environment list shows those that there are",
		}
	case rev > rec.Revision:
		return agent.Environment{}, agent.Errorf(agent.NotFound, "environment %q has no revision %d: its newest is %d", name, rev, rec.Revision)
	case rev == 0 || rev == rec.Revision:
		return rec.Environment, nil
	}
	var env agent.Environment
	_, err = record(g, revisionDoc(app, name, rev).key(), &env)
	return env, err
}

// Environments lists the newest revision of each environment of an app, by name. A page may be short.
func (s *Store) Environments(ctx context.Context, app agent.App, page agent.Page) (list []agent.Environment, next string, err error) {
	list = []agent.Environment{}
	next, err = s.Docs(ctx, environments, app, "", page, func(name string, _ int64, data []byte) error {
		var rec environmentRecord
		if err := json.Unmarshal(data, &rec); err != nil {
			return corrupt(docAt{environments, app, name}.key(), "%v", err)
		}
		if !rec.Deleted {
			list = append(list, rec.Environment)
		}
		return nil
	})
	return list, next, err
}

// EnvironmentRevisions lists the revisions of an environment, the oldest first, also of one that was deleted.
func (s *Store) EnvironmentRevisions(ctx context.Context, app agent.App, name string, page agent.Page) (list []agent.Environment, next string, err error) {
	if err := agent.CheckName("environment", name); err != nil {
		return nil, "", err
	}
	list = []agent.Environment{}
	next, err = s.Docs(ctx, environmentRevisions, app, name+"@", page, func(at string, _ int64, data []byte) error {
		var env agent.Environment
		if err := json.Unmarshal(data, &env); err != nil {
			return corrupt(docAt{environmentRevisions, app, at}.key(), "%v", err)
		}
		list = append(list, env)
		return nil
	})
	return list, next, err
}

// DeleteEnvironment deletes an environment. Its revisions can still be read by their numbers, and one that is made of that name goes on counting.
func (s *Store) DeleteEnvironment(ctx context.Context, app agent.App, name string) error {
	if err := agent.CheckName("environment", name); err != nil {
		return err
	}
	d := docAt{environments, app, name}
	if err := d.check(); err != nil {
		return err
	}
	return s.updateOf(ctx, app, func(t *tx) error {
		was, h, err := t.openDoc(d)
		if err != nil {
			return err
		}
		var rec environmentRecord
		if rec.Environment, err = readEnvironment(t, app, name, 0); err != nil {
			return err
		}
		rec.Deleted = true
		data, err := s.docJSON(environments, rec)
		if err == nil {
			_, err = t.putDoc(d, was, h, data)
		}
		return err
	})
}

// FreezeEnvironment returns the revision of an environment that a session stays with: the newest one when the session asks for the first time, and the
// same ever after, whatever becomes of the environment. A revision that is named is returned as it is.
func (s *Store) FreezeEnvironment(ctx context.Context, app agent.App, session agent.SessionID, name string) (env agent.Environment, err error) {
	base, rev, err := agent.SplitEnvironment(name)
	if err != nil || rev > 0 {
		if err == nil {
			env, err = s.Environment(ctx, app, name)
		}
		return env, err
	}
	d := docAt{frozenEnvironments, app, string(session) + "/" + base}
	if err := d.check(); err != nil {
		return env, err
	}
	err = s.updateOf(ctx, app, func(t *tx) error {
		if _, err := find(t, sessions, app, string(session), "session", nil); err != nil {
			return err
		}
		was, h, err := t.openDoc(d)
		if err != nil {
			return err
		}
		if was.ord > 0 {
			var rec frozenRecord
			if _, err = record(t, d.key(), &rec); err == nil {
				env, err = readEnvironment(t, app, base, rec.Revision)
			}
			return err
		}
		if env, err = readEnvironment(t, app, base, 0); err != nil {
			return err
		}
		data, err := s.docJSON(frozenEnvironments, frozenRecord{env.Revision})
		if err == nil {
			_, err = t.putDoc(d, was, h, data)
		}
		return err
	})
	if err != nil {
		return agent.Environment{}, err
	}
	return env, nil
}
