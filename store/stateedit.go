package store

import (
	"context"

	"github.com/skep-dev/skep/agent"
)

// EditState makes all edits in one commit, or none, and returns the version that the keys it set have now. Each edit's If is
// held against the state as it was before the commit; one that does not hold is a Conflict error with the key and its version.
// Of two edits of one key the later counts. An owner that is not there is a NotFound error. Past bounds, whose fields must be
// set, the error is Exhausted, unless the commit makes the state no larger than it was.
func (s *Store) EditState(ctx context.Context, o Owner, bounds agent.StateGrant, edits ...agent.StateEdit) (version int64, err error) {
	if err := checkEdits(edits); err != nil {
		return 0, err
	}
	err = s.updateOf(ctx, o.app, func(t *tx) error {
		if err := o.exists(t, t.below.snapshot); err != nil {
			return err
		}
		was, _, err := stateOf(t, t.below.snapshot, o)
		if err != nil {
			return err
		}
		now, err := t.edit(o, was, edits)
		version = now.version
		if err != nil || now == was {
			return err
		}
		if now.size.Keys < 0 || now.size.Bytes < now.size.Keys {
			return corrupt(o.headKey(), "it counts %d keys of %d bytes, which are fewer than there are", was.size.Keys, was.size.Bytes)
		}
		t.put(o.headKey(), now.encode())
		return bounds.Within(was.size, now.size)
	})
	if err != nil {
		return 0, err
	}
	return version, nil
}

func checkEdits(edits []agent.StateEdit) error {
	if len(edits) > agent.MaxStateEdits {
		return agent.Errorf(agent.Invalid, "%d edits are too many for one commit: %d are allowed", len(edits), agent.MaxStateEdits)
	}
	bytes := 0
	for _, e := range edits {
		if err := e.Check(); err != nil {
			return err
		}
		bytes += len(e.Key) + len(e.Value.Body)
	}
	if bytes > agent.MaxStateEditsBytes {
		return agent.Errorf(agent.Invalid, "edits of %d bytes are too many for one commit: %d are allowed", bytes, agent.MaxStateEditsBytes)
	}
	return nil
}

// edit makes edits above h and returns the head that they lead to. It puts entries only.
func (t *tx) edit(o Owner, h stateHead, edits []agent.StateEdit) (stateHead, error) {
	sizes := make(map[string]int64, len(edits)) // of entries as they are now; 0 for none
	for _, e := range edits {
		old, found, err := o.entry(t, e.Key)
		if err != nil {
			return h, err
		}
		if err := e.Conflict(old.Version); err != nil {
			return h, err
		}
		sizes[e.Key] = 0
		if found {
			sizes[e.Key] = entrySize(e.Key, old.Value)
		}
	}
	version, changed := h.version+1, false
	for _, e := range edits {
		old := sizes[e.Key]
		switch {
		case e.Act == agent.StateSet:
			t.put(o.entryKey(e.Key), encodeEntry(version, e.Value))
			sizes[e.Key] = entrySize(e.Key, e.Value)
		case e.Act == agent.StateDelete && old > 0:
			t.del(o.entryKey(e.Key))
			sizes[e.Key] = 0
		default:
			continue
		}
		changed = true
		h.size.Bytes += sizes[e.Key] - old
		if old == 0 {
			h.size.Keys++
		}
		if sizes[e.Key] == 0 {
			h.size.Keys--
		}
	}
	if changed {
		h.version = version
	}
	return h, nil
}

// entrySize is what an entry counts for. It is above 0, as keys are not empty.
func entrySize(name string, v agent.Payload) int64 { return int64(len(name) + len(v.Body)) }
