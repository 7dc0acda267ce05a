package store

import (
	"context"
	"errors"
	"strings"

	"github.com/skep-dev/skep/agent"
)

// Verify reads the whole store, blobs that records name included, and returns the first problem it finds: a record that
// is damaged, missing, named by nothing, or at odds with another. It reads one snapshot and holds up nobody; it takes
// about a second for each million small records.
//
// Open runs it after an unclean stop, for at most Options.Check: what it reaches in that time is the collections first,
// then the logs, then the indexes. After a Verify that found something the store counts as not closed, so that the next
// Open looks again.
func (s *Store) Verify(ctx context.Context) error {
	err := s.view(ctx, func(snap snapshot) error {
		v := verifier{s, snap, ctx}
		for _, step := range []func() error{v.meta, v.heads, v.records, v.sealed, v.logs, v.taken, v.states, v.docs, v.modelKeys, v.sandboxes, v.instances, v.indexes, v.onces, v.usage} {
			if err := step(); err != nil {
				return err
			}
		}
		return nil
	})
	if _, bad := errors.AsType[*CorruptError](err); bad {
		s.damaged.Store(true)
	}
	return err
}

type verifier struct {
	s    *Store
	snap snapshot
	ctx  context.Context // of the one Verify that this verifier serves
}

// walk calls fn for every record whose key begins with prefix.
func (v verifier) walk(prefix key, fn func(k key, payload []byte) error) error {
	return v.snap.each(prefix, prefixEnd(prefix), false, func(k key, payload []byte) error {
		if err := v.ctx.Err(); err != nil {
			return err
		}
		return fn(k, payload)
	})
}

func (v verifier) meta() error {
	if err := checkFormat(v.snap); err != nil {
		return err
	}
	_, err := commitNumber(v.snap)
	return err
}

// heads checks that each collection's ordinals are gapless up to its head, and that each names a record.
func (v verifier) heads() error {
	return v.walk(prefixHead, func(k key, payload []byte) error {
		parts := k.parts(prefixHead)
		h, err := parseHead(k, payload)
		if err != nil {
			return err
		}
		if len(parts) != 2 {
			return corrupt(k, "key names no collection")
		}
		sp, app := space(parts[0]), agent.App(parts[1])
		var last, live int64
		err = v.walk(ordPrefix(sp, app), func(k key, id []byte) error {
			last++
			if k != ordKey(sp, app, last) {
				return corrupt(ordKey(sp, app, last), "record is missing")
			}
			if len(id) == 0 {
				return nil
			}
			live++
			r, err := record(v.snap, recKey(sp, app, string(id)), nil)
			if err == nil && r.ord != last {
				err = corrupt(recKey(sp, app, string(id)), "its ordinal is %d, but %s names it", r.ord, k)
			}
			return err
		})
		switch {
		case err != nil:
			return err
		case last < h.last:
			return corrupt(ordKey(sp, app, last+1), "record is missing")
		case last != h.last || live != h.live:
			return corrupt(k, "it counts %d ordinals and %d records, there are %d and %d", h.last, h.live, last, live)
		}
		return nil
	})
}

// records checks each record by itself, and that its ordinal and its index entries name it.
func (v verifier) records() error {
	return v.walk(prefixRec, func(k key, payload []byte) error {
		parts := k.parts(prefixRec)
		if len(parts) != 3 {
			return corrupt(k, "key names no record")
		}
		sp, app, id := space(parts[0]), agent.App(parts[1]), parts[2]
		r, err := parse(k, payload, nil)
		if err != nil {
			return err
		}
		at, err := idAt(v.snap, sp, app, r.ord)
		if err == nil && at != id {
			err = corrupt(k, "%s names %q", ordKey(sp, app, r.ord), at)
		}
		if err == nil {
			_, err = readHead(v.snap, sp, app)
		}
		if err != nil {
			return err
		}
		names, err := v.s.entries(v.snap, sp, app, k, r, payload)
		if err != nil {
			return err
		}
		for _, ix := range names {
			if err := v.names(ix, id); err != nil {
				return err
			}
		}
		if sp == plugins {
			return v.code(k, payload)
		}
		return nil
	})
}

// code checks that a plugin's file is there and whole.
func (v verifier) code(k key, payload []byte) error {
	var p agent.Plugin
	if _, err := parse(k, payload, &p); err != nil {
		return err
	}
	return v.blob(k, p.Digest, "its file")
}

// blob checks that a blob which the record at k names is there and whole. A check that is out of time has found no damage.
func (v verifier) blob(k key, d agent.Digest, what string) error {
	_, err := v.s.Blob(v.ctx, d)
	if over := v.ctx.Err(); err == nil || over != nil && errors.Is(err, over) {
		return err
	}
	if kind := agent.KindOf(err); kind == agent.NotFound || kind == agent.Internal {
		err = corrupt(k, "%s: %v", what, err)
	}
	return err
}

// names checks that the index entry k names id.
func (v verifier) names(k key, id string) error {
	b, found, err := v.snap.get(k)
	switch {
	case err != nil:
		return err
	case !found:
		return corrupt(k, "record is missing")
	case string(b) != id:
		return corrupt(k, "it names %q instead of %q", b, id)
	}
	return nil
}

// entries returns the index entries that name one record, and checks what else the record names.
func (s *Store) entries(g getter, sp space, app agent.App, k key, r row, payload []byte) ([]key, error) {
	switch sp {
	case plugins:
		var p agent.Plugin
		_, err := parse(k, payload, &p)
		for _, ix := range []key{byKey(byPluginName, app, p.Name), byKey(byPluginDigest, app, p.Digest.Hex())} {
			if err == nil { // these may name another plugin of the same name or digest
				_, err = mustGet(g, ix)
			}
		}
		return nil, err
	case agents:
		var a agent.Agent
		if _, err := parse(k, payload, &a); err != nil {
			return nil, err
		}
		_, err := bounds(g, AgentLog(app, a.ID))
		return []key{byKey(byAgentID, app, string(a.ID))}, err
	case sessions:
		var se agent.Session
		if _, err := parse(k, payload, &se); err != nil {
			return nil, err
		}
		_, err := bounds(g, SessionLog(app, se.ID))
		return []key{byOrdKey(bySessionAgent, app, se.Agent, r.ord)}, err
	case runs:
		run, err := s.decodeRun(k, r)
		if err != nil {
			return nil, err
		}
		ks := []key{byOrdKey(byRunAgent, app, run.Agent, r.ord), byOrdKey(byRunSession, app, string(run.Session), r.ord)}
		if ix := byStatus(run.Status); ix != "" {
			ks = append(ks, byOrdKey(ix, app, "", r.ord))
		}
		if asking(r) {
			ks = append(ks, byOrdKey(byRunAsking, app, "", r.ord))
		}
		_, err = record(g, recKey(sessions, app, string(run.Session)), nil)
		return ks, err
	case tokens:
		var t tokenRecord
		_, err := parse(k, payload, &t)
		return []key{byKey(byTokenHash, app, t.Hash)}, err
	case secrets:
		return nil, s.checkSecret(g, k, payload)
	case apps:
		var a agent.AppInfo
		_, err := parse(k, payload, &a)
		return nil, err
	}
	return nil, corrupt(k, "there is no collection %q", sp)
}

func mustGet(g getter, k key) ([]byte, error) {
	b, found, err := g.get(k)
	if err == nil && !found {
		err = corrupt(k, "record is missing")
	}
	return b, err
}

// indexes checks that each index entry names a record that agrees with it.
func (v verifier) indexes() error {
	of := map[index]space{
		byPluginName: plugins, byPluginDigest: plugins, byAgentID: agents, bySessionAgent: sessions,
		byRunAgent: runs, byRunSession: runs, byRunLive: runs, byRunParked: runs, byRunAsking: runs, byTokenHash: tokens,
	}
	return v.walk(prefixBy, func(k key, payload []byte) error {
		parts := k.parts(prefixBy)
		sp, ok := of[index(parts[0])]
		if !ok || len(parts) < 3 {
			return corrupt(k, "there is no such index")
		}
		app, id := agent.App(parts[1]), string(payload)
		rk := recKey(sp, app, id)
		b, err := mustGet(v.snap, rk)
		if err != nil {
			return err
		}
		switch index(parts[0]) {
		case byPluginName:
			if !strings.HasPrefix(id, parts[2]+"@") {
				err = corrupt(k, "it names %q", id)
			}
			return err
		case byPluginDigest:
			var p agent.Plugin
			if _, err = parse(rk, b, &p); err == nil && p.Digest.Hex() != parts[2] {
				err = corrupt(k, "it names %q, whose digest is %s", id, p.Digest)
			}
			return err
		}
		r, err := parse(rk, b, nil)
		if err != nil {
			return err
		}
		names, err := v.s.entries(v.snap, sp, app, rk, r, b)
		if err != nil {
			return err
		}
		for _, name := range names {
			if name == k {
				return nil
			}
		}
		return corrupt(k, "it names %q, which is not so", id)
	})
}

// logs checks that each log's events are those its head tells of.
func (v verifier) logs() error {
	var events key // prefix of the events seen last
	var first, last int64
	err := v.walk(prefixLog, func(k key, payload []byte) error {
		if base, ok := strings.CutSuffix(string(k), "/head"); ok { // sorts behind the log's events
			x, err := parseExtent(k, payload)
			if err != nil {
				return err
			}
			mine := key(base + "/event/")
			switch {
			case events != mine && x.last >= x.first:
				return corrupt(mine+number(x.first), "record is missing")
			case events == mine && (first != x.first || last != x.last):
				return corrupt(k, "it tells of events %d to %d, there are %d to %d", x.first, x.last, first, last)
			}
			events = ""
			return nil
		}
		seq, ok := k.lastNumber()
		if !ok {
			return corrupt(k, "key does not end in a number")
		}
		switch mine := k[:len(k)-16]; {
		case events == "":
			events, first = mine, seq
		case events != mine:
			return corrupt(events, "the head of this log is missing")
		case seq != last+1:
			return corrupt(mine+number(last+1), "record is missing")
		}
		last = seq
		if strings.HasPrefix(string(k), prefixLog+journalLog.String()+"/") {
			return v.entry(k, payload)
		}
		_, err := v.s.decodeEvent(k, seq, payload)
		return err
	})
	if err == nil && events != "" {
		err = corrupt(events, "the head of this log is missing")
	}
	return err
}

// onces checks that what idempotency keys name was there once, and that each will be forgotten.
func (v verifier) onces() error {
	err := v.walk(prefixOnce, func(k key, payload []byte) error {
		var rec onceRecord
		if _, err := parse(k, payload, &rec); err != nil {
			return err
		}
		if _, err := mustGet(v.snap, prefixOnceUntil+number(rec.Until)+"/"+k[len(prefixOnce):]); err != nil {
			return err
		}
		_, err := idAt(v.snap, rec.Space, rec.App, rec.Ordinal)
		return err
	})
	if err != nil {
		return err
	}
	return v.walk(prefixOnceUntil, func(k key, _ []byte) error {
		_, err := mustGet(v.snap, prefixOnce+k[max(0, len(k)-64):])
		return err
	})
}
