package store

import (
	"context"

	"github.com/skep-dev/skep/agent"
)

// What one commit of DropStates removes at most.
const (
	dropKeys  = 1000
	dropBytes = 512 << 10 // of keys
)

// disown marks a state, if there is one, whose owner is deleted in the same commit.
func (t *tx) disown(o Owner) error {
	_, found, err := stateOf(t, t.below.snapshot, o)
	if err == nil && found {
		t.put(o.goneKey(), nil)
	}
	return err
}

// DropStates removes the states whose owners were deleted, in commits of bounded size, and returns when there are none left.
// When it is stopped, the next call goes on. Nobody can reach those states meanwhile.
func (s *Store) DropStates(ctx context.Context) error {
	for {
		var o Owner
		var names []string
		err := s.view(ctx, func(snap snapshot) (err error) {
			o, names, err = nextDrop(snap)
			return err
		})
		if err != nil || o == (Owner{}) {
			return err
		}
		if err := s.update(ctx, func(t *tx) error { return t.drop(o, names) }); err != nil {
			return err
		}
	}
}

// nextDrop finds some entries of a state that has no owner.
func nextDrop(snap snapshot) (o Owner, names []string, err error) {
	err = snap.each(prefixStateGone, prefixEnd(prefixStateGone), false, func(k key, _ []byte) error {
		if o, err = parseGone(k); err != nil {
			return err
		}
		return errStop
	})
	if err != nil || o == (Owner{}) {
		return o, nil, err
	}
	names, err = dropNames(snap, o)
	return o, names, err
}

// dropNames returns keys of a state, as many as one commit removes.
func dropNames(snap snapshot, o Owner) (names []string, err error) {
	bytes := 0
	err = snap.each(o.entryPrefix(), prefixEnd(o.entryPrefix()), false, func(k key, payload []byte) error {
		if len(names) == dropKeys || bytes > dropBytes {
			return errStop
		}
		e, err := o.parseEntry(k, payload)
		if err != nil {
			return err
		}
		names, bytes = append(names, e.Key), bytes+len(k)
		return nil
	})
	return names, err
}

// drop removes entries of a state that has no owner, and the rest of it when there are none.
func (t *tx) drop(o Owner, names []string) error {
	if _, found, err := t.get(o.goneKey()); err != nil || !found {
		return err
	}
	if len(names) == 0 {
		t.del(o.goneKey())
	}
	return t.dropEntries(o, names)
}

// dropEntries removes entries of a state, and its head when there are none.
func (t *tx) dropEntries(o Owner, names []string) error {
	h, found, err := stateOf(t, t.below.snapshot, o)
	if err == nil && !found {
		err = corrupt(o.headKey(), "record is missing")
	}
	if err != nil {
		return err
	}
	if len(names) == 0 {
		t.del(o.headKey())
		return nil
	}
	for _, name := range names {
		e, found, err := o.entry(t, name)
		if err != nil {
			return err
		}
		if !found { // another DropStates was quicker
			continue
		}
		t.del(o.entryKey(name))
		h.size.Keys--
		h.size.Bytes -= entrySize(name, e.Value)
	}
	if h.size.Keys < 0 || h.size.Bytes < h.size.Keys {
		return corrupt(o.headKey(), "it counts fewer keys than there are")
	}
	t.put(o.headKey(), h.encode())
	return nil
}

// parseGone returns the owner whose state k marks.
func parseGone(k key) (Owner, error) {
	parts := k.parts(prefixStateGone)
	if len(parts) != 3 || parts[0] != agentOwner.String() {
		return Owner{}, corrupt(k, "key names no owner")
	}
	return AgentState(agent.App(parts[1]), agent.AgentID(parts[2])), nil
}
