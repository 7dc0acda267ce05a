package store

import (
	"context"
	"strings"

	"github.com/skep-dev/skep/agent"
)

// PutPlugin stores a plugin; its file is put as a blob before. The same name, version and digest again returns the plugin
// that is there, replayed; another digest is an Exists error. A zero Created means now.
func (s *Store) PutPlugin(ctx context.Context, p agent.Plugin, once Once) (_ agent.Plugin, replayed bool, err error) {
	if err := checkApp(p.App); err != nil {
		return agent.Plugin{}, false, err
	}
	if err := agent.CheckName("plugin", p.Name); err != nil {
		return agent.Plugin{}, false, err
	}
	if err := agent.CheckVersion(p.Version); err != nil {
		return agent.Plugin{}, false, err
	}
	if p.Digest.Hex() == "" {
		return agent.Plugin{}, false, agent.Errorf(agent.Invalid, "plugin digest %q is not valid", p.Digest)
	}
	now := s.now()
	p.Created = s.stampOr(p.Created)
	id := p.Name + "@" + p.Version
	out := p
	err = s.updateOf(ctx, p.App, func(t *tx) error {
		out, replayed = p, false
		made, err := t.made(once, plugins, p.App, now)
		if err != nil {
			return err
		}
		if made != "" {
			replayed = true
			_, err = record(t, recKey(plugins, p.App, made), &out)
			return err
		}
		var there agent.Plugin
		r, found, err := lookup(t, recKey(plugins, p.App, id), &there)
		switch {
		case err != nil:
			return err
		case found && there.Digest != p.Digest:
			return &agent.Error{
				Kind: agent.Exists, Msg: "plugin " + id + " is there already, with other code",
				Hint: "versions never change: give the new code a new version",
			}
		case found:
			out, replayed = there, true
			return s.remember(t, once, plugins, p.App, id, r.ord, now)
		}
		if err := absent(t, plugins, p.App, id); err != nil {
			return err
		}
		if err := t.mustHaveApp(p.App); err != nil {
			return err
		}
		ord, err := t.insert(plugins, p.App, id)
		if err != nil {
			return err
		}
		t.put(byKey(byPluginName, p.App, p.Name), []byte(id))
		digest := byKey(byPluginDigest, p.App, p.Digest.Hex())
		if _, found, err := t.get(digest); err != nil {
			return err
		} else if !found {
			t.put(digest, []byte(id))
		}
		if err := t.save(recKey(plugins, p.App, id), ord, p); err != nil {
			return err
		}
		return s.remember(t, once, plugins, p.App, id, ord, now)
	})
	if err != nil {
		return agent.Plugin{}, false, err
	}
	return out, replayed, nil
}

// Plugin returns the plugin that ref names: "name" is the one stored last under that name, "name@version" that one,
// and "sha256:..." the first with that digest.
func (s *Store) Plugin(ctx context.Context, app agent.App, ref string) (agent.Plugin, error) {
	var p agent.Plugin
	err := s.view(ctx, func(snap snapshot) error {
		if !isPart(string(app), ref) {
			return notFound("plugin", ref)
		}
		ix := byKey(byPluginName, app, ref)
		if h := agent.Digest(ref).Hex(); h != "" {
			ix = byKey(byPluginDigest, app, h)
		} else if strings.Contains(ref, "@") {
			_, err := find(snap, plugins, app, ref, "plugin", &p)
			return err
		}
		id, found, err := snap.get(ix)
		if err != nil {
			return err
		}
		if !found {
			return notFound("plugin", ref)
		}
		_, err = record(snap, recKey(plugins, app, string(id)), &p)
		return err
	})
	return p, err
}

// Plugins lists an app's plugins, newest first.
func (s *Store) Plugins(ctx context.Context, app agent.App, page agent.Page) (list []agent.Plugin, next string, err error) {
	err = s.view(ctx, func(snap snapshot) error {
		list, next, err = collectionPages(snap, plugins, app, page, func(_ int64, id string) (p agent.Plugin, _ bool, err error) {
			_, err = record(snap, recKey(plugins, app, id), &p)
			return p, true, err
		})
		return err
	})
	return list, next, err
}

func checkApp(app agent.App) error { return agent.CheckName("app", string(app)) }
