package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/skep-dev/skep/agent"
)

// defaultApp is what the default app is before anybody changes it. It has no record until then.
func defaultApp() agent.AppInfo {
	return agent.AppInfo{Name: agent.DefaultApp, Weight: agent.MinWeight}
}

// CreateApp stores an app whose name is free, else it is an Exists error. Zero times are filled in.
func (s *Store) CreateApp(ctx context.Context, a agent.AppInfo, once Once) (_ agent.AppInfo, replayed bool, err error) {
	if err := a.Check(); err != nil {
		return agent.AppInfo{}, false, err
	}
	if a.Outbound != "" {
		return agent.AppInfo{}, false, &agent.Error{
			Kind: agent.NotFound, Msg: fmt.Sprintf("there is no agent %.80q in an app that is new", a.Outbound),
			Hint: "create the app, then the agent in it, then name it with PATCH",
		}
	}
	if err := s.dropDocs(ctx, a.Name); err != nil { // of an app of that name that was deleted
		return agent.AppInfo{}, false, err
	}
	now := s.now()
	a.Created = s.stampOr(a.Created)
	a.Updated = a.Created
	out := a
	err = s.update(ctx, func(t *tx) error {
		out, replayed = a, false
		made, err := t.made(once, apps, noApp, now)
		if err != nil {
			return err
		}
		if made != "" {
			replayed = true
			_, err = record(t, recKey(apps, noApp, made), &out)
			return err
		}
		if _, err = findApp(t, a.Name, nil); err == nil {
			return agent.Errorf(agent.Exists, "app %q is there already", a.Name)
		}
		if agent.KindOf(err) != agent.NotFound {
			return err
		}
		if err := t.noDocsGone(a.Name); err != nil {
			return err
		}
		ord, err := t.insert(apps, noApp, string(a.Name))
		if err != nil {
			return err
		}
		if err := t.save(recKey(apps, noApp, string(a.Name)), ord, a); err != nil {
			return err
		}
		return s.remember(t, once, apps, noApp, string(a.Name), ord, now)
	})
	if err != nil {
		return agent.AppInfo{}, false, err
	}
	return out, replayed, nil
}

// findApp reads an app. The default app is there even without a record; the row's ordinal is then 0.
func findApp(g getter, name agent.App, a *agent.AppInfo) (row, error) {
	var there agent.AppInfo
	r, err := find(g, apps, noApp, string(name), "app", &there)
	if err != nil && agent.KindOf(err) == agent.NotFound && name == agent.DefaultApp {
		there, err = defaultApp(), nil
	}
	if err == nil && a != nil {
		*a = there
	}
	return r, err
}

// App returns the app of that name.
func (s *Store) App(ctx context.Context, name agent.App) (a agent.AppInfo, err error) {
	err = s.view(ctx, func(snap snapshot) error {
		_, err := findApp(snap, name, &a)
		return err
	})
	return a, err
}

// Apps lists all apps, newest first. The default app comes last for as long as nobody has changed it.
func (s *Store) Apps(ctx context.Context, page agent.Page) (list []agent.AppInfo, next string, err error) {
	err = s.view(ctx, func(snap snapshot) error {
		list, next, err = collectionPages(snap, apps, noApp, page, func(_ int64, name string) (a agent.AppInfo, _ bool, err error) {
			_, err = record(snap, recKey(apps, noApp, name), &a)
			return a, true, err
		})
		if err != nil || next != "" {
			return err
		}
		var d agent.AppInfo
		r, err := findApp(snap, agent.DefaultApp, &d)
		if err == nil && r.ord == 0 {
			list = append(list, d)
		}
		return err
	})
	return list, next, err
}

// UpdateApp applies change to an app, sets its Updated and returns it. change may run more than once and must not call the store.
// What it does to the app's name and Created is undone; an error of change changes nothing.
func (s *Store) UpdateApp(ctx context.Context, name agent.App, change func(*agent.AppInfo) error) (out agent.AppInfo, err error) {
	now := stamp(s.now())
	err = s.update(ctx, func(t *tx) error {
		var a agent.AppInfo
		r, err := findApp(t, name, &a)
		if err != nil {
			return err
		}
		was := a
		if err := change(&a); err != nil {
			return err
		}
		a.Name, a.Created, a.Updated = was.Name, was.Created, now
		if err := a.Check(); err != nil {
			return err
		}
		if a.Outbound != "" && a.Outbound != was.Outbound {
			if _, err := find(t, agents, name, a.Outbound, "agent", nil); err != nil {
				return err
			}
		}
		if r.ord == 0 {
			a.Created = now
			if r.ord, err = t.insert(apps, noApp, string(name)); err != nil {
				return err
			}
		}
		out = a
		return t.save(recKey(apps, noApp, string(name)), r.ord, a)
	})
	if err != nil {
		return agent.AppInfo{}, err
	}
	return out, nil
}

// DeleteApp deletes an app in which nothing is left, else it is a Conflict error that says what is. Its audit log stays, and goes on
// should an app of that name be made again. Its documents, such as tool servers, policies and virtual keys, go with it, and so do secrets that the
// server keeps for itself (OwnSecret). The default app is never deleted.
func (s *Store) DeleteApp(ctx context.Context, name agent.App) error {
	if name == agent.DefaultApp {
		return agent.Errorf(agent.Conflict, "the default app cannot be deleted")
	}
	err := s.update(ctx, func(t *tx) error {
		r, err := find(t, apps, noApp, string(name), "app", nil)
		if err != nil {
			return err
		}
		var left, kept []string
		for _, sp := range owned() {
			h, err := readHead(t, sp, name)
			if err != nil {
				return err
			}
			if sp == secrets {
				own, err := t.ownSecrets(name, h)
				if err != nil {
					return err
				}
				kept = own
				h.live -= int64(len(own))
			}
			if h.live > 0 {
				left = append(left, fmt.Sprintf("%d %s", h.live, sp))
			}
		}
		n, err := t.boundTo(name)
		if err != nil {
			return err
		}
		if n > 0 {
			left = append(left, fmt.Sprintf("%d tokens", n))
		}
		boxes, err := readSandboxHead(t, name)
		if err != nil {
			return err
		}
		if boxes.held > 0 {
			left = append(left, fmt.Sprintf("%d sandboxes", boxes.held))
		}
		if len(left) > 0 {
			return &agent.Error{
				Kind: agent.Conflict, Msg: fmt.Sprintf("app %q is not empty: it has %s", name, strings.Join(left, ", ")),
				Hint: "code, sessions and runs are kept for good, so an app that has any stays",
			}
		}
		for _, secret := range kept {
			if err := t.deleteSecret(name, secret); err != nil {
				return err
			}
		}
		t.put(docGoneKey(name), nil)
		return t.remove(apps, noApp, string(name), r.ord)
	})
	if err != nil {
		return err
	}
	if err := s.dropDocs(ctx, name); err != nil {
		s.log.WarnContext(ctx, "documents of a deleted app were not removed and will be later", "app", name, "error", err)
	}
	return nil
}

// owned lists the collections that belong to an app.
func owned() []space { return []space{plugins, agents, secrets, sessions, runs} }

// mustHaveApp refuses to put something in an app that is not there.
func (t *tx) mustHaveApp(name agent.App) error {
	if name == agent.DefaultApp {
		return nil
	}
	_, err := findApp(t, name, nil)
	return err
}
