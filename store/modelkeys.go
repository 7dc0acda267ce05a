package store

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/skep-dev/skep/agent"
)

// modelKeyRecord is a virtual key with the hash that finds it.
type modelKeyRecord struct {
	agent.ModelKey
	Hash string `json:"hash"`
}

func modelKeyKey(hash string) key { return prefixModelKey + key(hash) }

// PutModelKey stores a virtual key under the SHA-256 of its value, which is not kept. Its id and the hash must be new, else it is an Exists
// error. It goes with its app.
func (s *Store) PutModelKey(ctx context.Context, k agent.ModelKey, valueHash [32]byte) error {
	d := docAt{modelKeys, k.App, k.ID}
	if err := d.check(); err != nil {
		return err
	}
	if !isPart(k.ID) {
		return agent.Errorf(agent.Invalid, "model key id %.200q is not valid", k.ID)
	}
	k.Created, k.Expires = s.stampOr(k.Created), stamp(k.Expires)
	rec := modelKeyRecord{k, hex.EncodeToString(valueHash[:])}
	data, err := s.docJSON(modelKeys, rec)
	if err != nil {
		return err
	}
	return s.updateOf(ctx, k.App, func(t *tx) error {
		was, h, err := t.openDoc(d)
		if err == nil {
			err = d.checkRev(was, 0)
		}
		if err != nil {
			return err
		}
		if _, found, err := t.get(modelKeyKey(rec.Hash)); err != nil {
			return err
		} else if found {
			return &agent.Error{
				Kind: agent.Exists, Msg: "a model key with this value is there already", Hint: "delete that key first, or let Skep make the value",
			}
		}
		t.put(modelKeyKey(rec.Hash), []byte(string(k.App)+"/"+k.ID))
		_, err = t.putDoc(d, was, h, data)
		return err
	})
}

// ModelKeyByHash returns the virtual key whose value has that hash. It is an Unauthenticated error when there is none, and when it is
// disabled, has expired, or its run has ended: however the run ended, its key is good for nothing from that commit on. The key's lists must not be
// changed: others have the same.
func (s *Store) ModelKeyByHash(ctx context.Context, valueHash [32]byte) (agent.ModelKey, error) {
	if err := s.commit.dead(); err != nil {
		return agent.ModelKey{}, err
	}
	version := s.keysVersion()
	if k, ok := s.known.get(version, valueHash); ok {
		if why, err := s.modelKeyDead(nil, k); err != nil || why == "" { // it is of no run
			return k, err
		}
	}
	var rec modelKeyRecord
	err := s.view(ctx, func(snap snapshot) error {
		at, found, err := snap.get(modelKeyKey(hex.EncodeToString(valueHash[:])))
		if err != nil {
			return err
		}
		unknown := agent.Errorf(agent.Unauthenticated, "the model key is not known")
		if !found {
			return unknown
		}
		app, id, _ := strings.Cut(string(at), "/")
		if err := appThere(snap, agent.App(app)); agent.KindOf(err) == agent.NotFound {
			return unknown
		} else if err != nil {
			return err
		}
		if _, err = record(snap, docAt{modelKeys, agent.App(app), id}.key(), &rec); err != nil {
			return err
		}
		dead, err := s.modelKeyDead(snap, rec.ModelKey)
		if err == nil && dead != "" {
			err = agent.Errorf(agent.Unauthenticated, "the model key %s", dead)
		}
		return err
	})
	if err != nil {
		return agent.ModelKey{}, err
	}
	if rec.Run == "" { // else it dies with the run, of which nobody counts the commits
		s.known.put(version, valueHash, rec.ModelKey)
	}
	return rec.ModelKey, nil
}

// modelKeyDead says why a key is good for nothing, in words that follow its name; "" when it is good.
func (s *Store) modelKeyDead(g getter, k agent.ModelKey) (why string, err error) {
	switch {
	case k.Disabled:
		return "is disabled", nil
	case !k.Expires.IsZero() && !s.now().Before(k.Expires):
		return "has expired", nil
	case k.Run == "":
		return "", nil
	}
	rk := recKey(runs, k.App, string(k.Run))
	r, found, err := lookup(g, rk, nil)
	if err != nil {
		return "", err
	}
	if found {
		run, err := decodeBareRun(rk, r)
		if err != nil || !run.Status.Terminal() {
			return "", err
		}
	}
	return "was good for a run that has ended", nil
}

// ModelKey returns a virtual key of an app.
func (s *Store) ModelKey(ctx context.Context, app agent.App, id string) (agent.ModelKey, error) {
	var rec modelKeyRecord
	_, err := s.Doc(ctx, modelKeys, app, id, &rec)
	return rec.ModelKey, err
}

// ModelKeys lists the virtual keys of an app, dead ones too, by their ids, which is in the order in which they were made.
func (s *Store) ModelKeys(ctx context.Context, app agent.App, page agent.Page) (list []agent.ModelKey, next string, err error) {
	next, err = s.Docs(ctx, modelKeys, app, "", page, func(name string, _ int64, data []byte) error {
		var rec modelKeyRecord
		if err := json.Unmarshal(data, &rec); err != nil {
			return corrupt(docAt{modelKeys, app, name}.key(), "%v", err)
		}
		list = append(list, rec.ModelKey)
		return nil
	})
	return list, next, err
}

// ChangeModelKey applies change to a virtual key, whose id, app, run and Created stay as they are. change may run more than once.
func (s *Store) ChangeModelKey(ctx context.Context, app agent.App, id string, change func(*agent.ModelKey) error) (agent.ModelKey, error) {
	d := docAt{modelKeys, app, id}
	if err := d.check(); err != nil {
		return agent.ModelKey{}, err
	}
	var out agent.ModelKey
	err := s.updateOf(ctx, app, func(t *tx) error {
		was, h, rec, err := t.openModelKey(d)
		if err != nil {
			return err
		}
		now := rec.ModelKey
		if err := change(&now); err != nil {
			return err
		}
		now.ID, now.App, now.Run, now.Created, now.Expires = rec.ID, rec.App, rec.Run, rec.Created, stamp(now.Expires)
		data, err := s.docJSON(modelKeys, modelKeyRecord{now, rec.Hash})
		if err != nil {
			return err
		}
		out = now
		_, err = t.putDoc(d, was, h, data)
		return err
	})
	if err != nil {
		return agent.ModelKey{}, err
	}
	return out, nil
}

func (t *tx) openModelKey(d docAt) (was row, h docHead, rec modelKeyRecord, err error) {
	was, h, err = t.openDoc(d)
	if err == nil && was.ord == 0 {
		err = d.notFound()
	}
	if err == nil {
		_, err = record(t, d.key(), &rec)
	}
	return was, h, rec, err
}

// DeleteModelKeys deletes virtual keys, all or none, and returns them.
func (s *Store) DeleteModelKeys(ctx context.Context, app agent.App, ids ...string) (gone []agent.ModelKey, err error) {
	for _, id := range ids {
		if err := (docAt{modelKeys, app, id}).check(); err != nil {
			return nil, err
		}
	}
	err = s.updateOf(ctx, app, func(t *tx) error {
		gone = nil
		seen := map[string]bool{}
		for _, id := range ids {
			if seen[id] {
				continue
			}
			seen[id] = true
			k, err := t.deleteModelKey(docAt{modelKeys, app, id})
			if err != nil {
				return err
			}
			gone = append(gone, k)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return gone, nil
}

func (t *tx) deleteModelKey(d docAt) (agent.ModelKey, error) {
	was, h, rec, err := t.openModelKey(d)
	if err != nil {
		return agent.ModelKey{}, err
	}
	t.del(modelKeyKey(rec.Hash))
	return rec.ModelKey, t.deleteDoc(d, was, h)
}

// SweepModelKeys deletes the keys of an app whose run has ended. They are good for nothing anyway; this makes room.
func (s *Store) SweepModelKeys(ctx context.Context, app agent.App) error {
	for page := (agent.Page{Limit: agent.MaxPage}); ; {
		list, next, err := s.ModelKeys(ctx, app, page)
		if err != nil {
			return err
		}
		for _, k := range list {
			if k.Run == "" {
				continue
			}
			err := s.update(ctx, func(t *tx) error {
				d := docAt{modelKeys, app, k.ID}
				_, found, err := t.get(d.key())
				if err != nil || !found {
					return err
				}
				why, err := s.modelKeyDead(t, agent.ModelKey{App: app, Run: k.Run})
				if err != nil || why == "" {
					return err
				}
				_, err = t.deleteModelKey(d)
				return err
			})
			if err != nil {
				return err
			}
		}
		if page.After = next; next == "" {
			return nil
		}
	}
}

// modelKey checks that what finds a key finds it.
func (v verifier) modelKey(k key, at docAt, r row) error {
	var rec modelKeyRecord
	if err := json.Unmarshal(r.fields, &rec); err != nil {
		return corrupt(k, "%v", err)
	}
	b, err := mustGet(v.snap, modelKeyKey(rec.Hash))
	if err == nil && string(b) != string(at.app)+"/"+at.name {
		err = corrupt(k, "its hash finds %q", b)
	}
	return err
}

// modelKeys checks that each hash finds a key.
func (v verifier) modelKeys() error {
	return v.walk(prefixModelKey, func(k key, payload []byte) error {
		app, id, _ := strings.Cut(string(payload), "/")
		d := docAt{modelKeys, agent.App(app), id}
		if err := d.check(); err != nil {
			return corrupt(k, "%v", err)
		}
		var rec modelKeyRecord
		_, err := record(v.snap, d.key(), &rec)
		if err == nil && modelKeyKey(rec.Hash) != k {
			err = corrupt(k, "it finds %s of app %s, whose hash is another", id, app)
		}
		return err
	})
}
