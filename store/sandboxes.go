package store

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/skep-dev/skep/agent"
)

// maxSandboxFor is the most bytes of Sandbox.For.
const maxSandboxFor = 512

func sandboxKey(id agent.SandboxID) key { return prefixSandbox + key(id) }
func sandboxAppKey(app agent.App, id agent.SandboxID) key {
	return join(prefixSandboxApp, string(app), string(id))
}
func sandboxForKey(app agent.App, whose string) key {
	return join(prefixSandboxFor, string(app), escaped(whose))
}
func sandboxHeadKey(app agent.App) key { return prefixSandboxHead + key(app) }

// sandboxHead counts the sandboxes of an app.
type sandboxHead struct {
	all  int64
	held int64 // are somebody's, and not being deleted
}

func (h sandboxHead) encode() []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(h.all)), uint64(h.held))
}

func parseSandboxHead(k key, b []byte) (h sandboxHead, err error) {
	if len(b) != 16 {
		return h, corrupt(k, "%v", errShort)
	}
	h = sandboxHead{int64(binary.BigEndian.Uint64(b)), int64(binary.BigEndian.Uint64(b[8:]))}
	if h.all < 1 || h.held < 0 || h.held > h.all {
		return h, corrupt(k, "%d sandboxes, of which %d are somebody's, cannot be", h.all, h.held)
	}
	return h, nil
}

func readSandboxHead(g getter, app agent.App) (h sandboxHead, err error) {
	k := sandboxHeadKey(app)
	b, found, err := g.get(k)
	if err != nil || !found {
		return h, err
	}
	return parseSandboxHead(k, b)
}

// countSandbox adds to the counts of an app. An app that has none has no head.
func (t *tx) countSandbox(app agent.App, all, held int64) error {
	h, err := readSandboxHead(t, app)
	if err != nil {
		return err
	}
	h.all, h.held = h.all+all, h.held+held
	switch {
	case h.all < 0 || h.held < 0 || h.held > h.all:
		return corrupt(sandboxHeadKey(app), "it counts fewer sandboxes than there are")
	case h.all == 0:
		t.del(sandboxHeadKey(app))
	default:
		t.put(sandboxHeadKey(app), h.encode())
	}
	return nil
}

// sandboxHeld reports whether For finds the sandbox.
func sandboxHeld(sb *agent.Sandbox) bool { return sb.For != "" && sb.State != agent.SandboxDeleting }

// PutSandbox stores a sandbox that is new, of an app that is there. It is an Exists error when there is one with its ID, or one with its For which is not
// being deleted, and an Exhausted one when the app has most of them, whatever their states.
func (s *Store) PutSandbox(ctx context.Context, rec agent.SandboxRecord, most int) error {
	if err := checkApp(rec.App); err != nil {
		return err
	}
	if !isPart(string(rec.ID)) {
		return agent.Errorf(agent.Invalid, "sandbox id %.80q is not valid", string(rec.ID))
	}
	rec.Created = s.stampOr(rec.Created)
	return s.update(ctx, func(t *tx) error {
		if err := t.mustHaveApp(rec.App); err != nil {
			return err
		}
		if _, found, err := t.get(sandboxKey(rec.ID)); err != nil {
			return err
		} else if found {
			return agent.Errorf(agent.Exists, "sandbox %s is there already", rec.ID)
		}
		h, err := readSandboxHead(t, rec.App)
		if err != nil {
			return err
		}
		if h.all >= int64(most) {
			return &agent.Error{
				Kind: agent.Exhausted, Msg: fmt.Sprintf("app %q has %d sandboxes: %d are allowed", rec.App, h.all, most),
				Hint: "wait until one has gone, or delete one: skep sandbox list shows them",
			}
		}
		held := int64(0)
		if sandboxHeld(&rec.Sandbox) {
			held = 1
			if err := t.holdSandbox(&rec.Sandbox); err != nil {
				return err
			}
		}
		t.put(sandboxAppKey(rec.App, rec.ID), nil)
		if err := t.countSandbox(rec.App, 1, held); err != nil {
			return err
		}
		return t.save(sandboxKey(rec.ID), 1, rec)
	})
}

// holdSandbox lets For find a sandbox.
func (t *tx) holdSandbox(sb *agent.Sandbox) error {
	if len(sb.For) > maxSandboxFor {
		return agent.Errorf(agent.Invalid, "what a sandbox is for has %d bytes: %d are allowed", len(sb.For), maxSandboxFor)
	}
	k := sandboxForKey(sb.App, sb.For)
	id, found, err := t.get(k)
	if err == nil && found {
		err = agent.Errorf(agent.Exists, "there is a sandbox for %s already: %s", sb.For, id)
	}
	if err == nil {
		t.put(k, []byte(sb.ID))
	}
	return err
}

// Sandbox returns a sandbox, of whatever app.
func (s *Store) Sandbox(ctx context.Context, id agent.SandboxID) (rec agent.SandboxRecord, err error) {
	err = s.view(ctx, func(snap snapshot) error {
		_, err := findSandbox(snap, id, &rec)
		return err
	})
	return rec, err
}

func findSandbox(g getter, id agent.SandboxID, rec *agent.SandboxRecord) (row, error) {
	if !isPart(string(id)) {
		return row{}, notFound("sandbox", string(id))
	}
	r, found, err := lookup(g, sandboxKey(id), rec)
	if err == nil && !found {
		err = notFound("sandbox", string(id))
	}
	return r, err
}

// SandboxFor returns the sandbox that is whose's and is not being deleted.
func (s *Store) SandboxFor(ctx context.Context, app agent.App, whose string) (rec agent.SandboxRecord, err error) {
	if err := checkApp(app); err != nil {
		return rec, err
	}
	err = s.view(ctx, func(snap snapshot) error {
		id, found, err := snap.get(sandboxForKey(app, whose))
		if err == nil && !found {
			err = agent.Errorf(agent.NotFound, "there is no sandbox for %.200q", whose)
		}
		if err != nil {
			return err
		}
		_, err = record(snap, sandboxKey(agent.SandboxID(id)), &rec)
		return err
	})
	return rec, err
}

// ChangeSandbox applies change to a sandbox and returns it. change may run more than once and must not call the store; its error changes nothing. What it
// does to ID, App and Created is undone. Whom a sandbox is for can be set once, and one that is being deleted stays so: another change is a Conflict error.
func (s *Store) ChangeSandbox(ctx context.Context, id agent.SandboxID, change func(*agent.SandboxRecord) error) (out agent.SandboxRecord, err error) {
	err = s.update(ctx, func(t *tx) error {
		var rec agent.SandboxRecord
		r, err := findSandbox(t, id, &rec)
		if err != nil {
			return err
		}
		was := rec
		if err := change(&rec); err != nil {
			return err
		}
		rec.ID, rec.App, rec.Created = was.ID, was.App, was.Created
		switch {
		case was.State == agent.SandboxDeleting && rec.State != agent.SandboxDeleting:
			return agent.Errorf(agent.Conflict, "sandbox %s is being deleted", id)
		case was.For != "" && rec.For != was.For:
			return agent.Errorf(agent.Conflict, "sandbox %s is for %s, and cannot be for another", id, was.For)
		}
		if err := t.moveSandbox(&was.Sandbox, &rec.Sandbox); err != nil {
			return err
		}
		if rec.Generation != was.Generation {
			if err := t.forgetSource(&was.Sandbox); err != nil {
				return err
			}
		}
		out = rec
		return t.save(sandboxKey(id), r.ord+1, rec)
	})
	if err != nil {
		return agent.SandboxRecord{}, err
	}
	return out, nil
}

// moveSandbox keeps what finds a sandbox in step with a change of it.
func (t *tx) moveSandbox(was, now *agent.Sandbox) error {
	before, after := sandboxHeld(was), sandboxHeld(now)
	switch {
	case before && !after:
		t.del(sandboxForKey(was.App, was.For))
		return t.countSandbox(was.App, 0, -1)
	case after && !before:
		if err := t.mustHaveApp(now.App); err != nil {
			return err
		}
		if err := t.holdSandbox(now); err != nil {
			return err
		}
		return t.countSandbox(now.App, 0, 1)
	}
	return nil
}

// DropSandbox forgets a sandbox that is being deleted, else it is a Conflict error. One that is not there is forgotten.
func (s *Store) DropSandbox(ctx context.Context, id agent.SandboxID) error {
	return s.update(ctx, func(t *tx) error {
		var rec agent.SandboxRecord
		switch _, err := findSandbox(t, id, &rec); {
		case agent.KindOf(err) == agent.NotFound:
			return nil
		case err != nil:
			return err
		case rec.State != agent.SandboxDeleting:
			return agent.Errorf(agent.Conflict, "sandbox %s is %s, and was not deleted", id, rec.State)
		}
		t.del(sandboxKey(id))
		t.del(sandboxAppKey(rec.App, id))
		if err := t.forgetSource(&rec.Sandbox); err != nil {
			return err
		}
		return t.countSandbox(rec.App, -1, 0)
	})
}

// Sandboxes lists the sandboxes of an app, newest first; with agentName only those of that agent. A page may be short.
func (s *Store) Sandboxes(ctx context.Context, app agent.App, agentName string, page agent.Page) (list []agent.Sandbox, next string, err error) {
	if err := checkApp(app); err != nil {
		return nil, "", err
	}
	list = []agent.Sandbox{}
	next, err = s.eachSandbox(ctx, join(prefixSandboxApp, string(app), ""), true, page, func(rec *agent.SandboxRecord) {
		if agentName == "" || rec.Agent == agentName {
			list = append(list, rec.Sandbox)
		}
	})
	return list, next, err
}

// AllSandboxes lists the sandboxes of all apps, also of those that were deleted, oldest first.
func (s *Store) AllSandboxes(ctx context.Context, page agent.Page) (list []agent.SandboxRecord, next string, err error) {
	list = []agent.SandboxRecord{}
	next, err = s.eachSandbox(ctx, prefixSandbox, false, page, func(rec *agent.SandboxRecord) { list = append(list, *rec) })
	return list, next, err
}

// eachSandbox walks keys that end in the ids of sandboxes.
func (s *Store) eachSandbox(ctx context.Context, prefix key, newest bool, page agent.Page, each func(*agent.SandboxRecord)) (next string, err error) {
	limit, err := pageLimit(page)
	if err != nil {
		return "", err
	}
	from, to, last := prefix, prefixEnd(prefix), ""
	if page.After != "" {
		if last, err = parseNameCursor(prefix, page.After); err != nil {
			return "", err
		}
		if newest {
			to = prefix + key(last)
		} else {
			from = prefix + key(last) + "\x00"
		}
	}
	seen := 0
	err = s.view(ctx, func(snap snapshot) error {
		return snap.each(from, to, newest, func(k key, _ []byte) error {
			if seen == limit {
				next = nameCursor(prefix, last)
				return errStop
			}
			last = string(k[len(prefix):])
			seen++
			var rec agent.SandboxRecord
			if _, err := record(snap, sandboxKey(agent.SandboxID(last)), &rec); err != nil {
				return err
			}
			each(&rec)
			return ctx.Err()
		})
	})
	if err != nil {
		return "", err
	}
	return next, nil
}

// sandboxes checks that what finds sandboxes finds them, and that apps' counts are right.
func (v verifier) sandboxes() error {
	counts := map[agent.App]sandboxHead{}
	err := v.walk(prefixSandbox, func(k key, payload []byte) error {
		var rec agent.SandboxRecord
		if _, err := parse(k, payload, &rec); err != nil {
			return err
		}
		if sandboxKey(rec.ID) != k {
			return corrupt(k, "it is of sandbox %q", rec.ID)
		}
		if _, err := mustGet(v.snap, sandboxAppKey(rec.App, rec.ID)); err != nil {
			return err
		}
		if err := v.blobs(k, rec.Checkpoint.Blobs()); err != nil {
			return err
		}
		h := counts[rec.App]
		h.all++
		if sandboxHeld(&rec.Sandbox) {
			h.held++
			if err := v.names(sandboxForKey(rec.App, rec.For), string(rec.ID)); err != nil {
				return err
			}
		}
		counts[rec.App] = h
		return nil
	})
	if err != nil {
		return err
	}
	for app, want := range counts {
		h, err := readSandboxHead(v.snap, app)
		if err == nil && h != want {
			err = corrupt(sandboxHeadKey(app), "it counts %d sandboxes, of which %d are somebody's; there are %d and %d", h.all, h.held, want.all, want.held)
		}
		if err != nil {
			return err
		}
	}
	return v.sandboxIndexes(counts)
}

// sandboxIndexes checks that no key is left that finds or counts a sandbox which is not there.
func (v verifier) sandboxIndexes(counts map[agent.App]sandboxHead) error {
	err := v.walk(prefixSandboxHead, func(k key, _ []byte) error {
		if counts[agent.App(k[len(prefixSandboxHead):])].all == 0 {
			return corrupt(k, "it counts sandboxes, there are none")
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = v.walk(prefixSandboxApp, func(k key, _ []byte) error {
		_, id, _ := strings.Cut(string(k[len(prefixSandboxApp):]), "/")
		var rec agent.SandboxRecord
		_, err := record(v.snap, sandboxKey(agent.SandboxID(id)), &rec)
		if err == nil && sandboxAppKey(rec.App, rec.ID) != k {
			err = corrupt(k, "sandbox %s is of app %q", rec.ID, rec.App)
		}
		return err
	})
	if err != nil {
		return err
	}
	return v.walk(prefixSandboxFor, func(k key, payload []byte) error {
		var rec agent.SandboxRecord
		_, err := record(v.snap, sandboxKey(agent.SandboxID(payload)), &rec)
		if err == nil && (!sandboxHeld(&rec.Sandbox) || sandboxForKey(rec.App, rec.For) != k) {
			err = corrupt(k, "it names %q, which is for another", payload)
		}
		return err
	})
}
