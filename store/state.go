package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	"github.com/skep-dev/skep/agent"
)

// ownerKind says what owns a state.
type ownerKind uint8

const (
	agentOwner ownerKind = iota + 1
	instanceOwner
)

func (k ownerKind) String() string {
	switch k {
	case agentOwner:
		return "agent"
	case instanceOwner:
		return "instance"
	}
	return "unknown"
}

// Owner names whose key-value state is meant. It is comparable.
type Owner struct {
	kind ownerKind
	app  agent.App
	id   string
}

// AgentState is the state that an agent's cells share. It belongs to the agent's id: an agent that is deleted and made anew
// under its name starts with none.
func AgentState(app agent.App, id agent.AgentID) Owner { return Owner{agentOwner, app, string(id)} }

func (o Owner) String() string { return fmt.Sprintf("state of %s %s/%s", o.kind, o.app, o.id) }

// exists returns a NotFound error unless the owner is there.
func (o Owner) exists(g getter, below snapshot) error {
	if o.kind == instanceOwner {
		id, err := o.instance()
		if err == nil {
			_, err = openInst(g, below, id)
		}
		return err
	}
	if !isPart(string(o.app), o.id) {
		return notFound(o.kind.String(), o.id)
	}
	_, found, err := g.get(byKey(byAgentID, o.app, o.id))
	if err == nil && !found {
		err = notFound(o.kind.String(), o.id)
	}
	return err
}

// stateHead is what is known of a state as a whole. It is there from the first commit on.
type stateHead struct {
	size    agent.StateSize
	version int64 // of the newest commit
}

func (h stateHead) encode() []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(h.version))
	b = binary.BigEndian.AppendUint64(b, uint64(h.size.Keys))
	return binary.BigEndian.AppendUint64(b, uint64(h.size.Bytes))
}

func parseStateHead(k key, b []byte) (stateHead, error) {
	if len(b) != 24 {
		return stateHead{}, corrupt(k, "%v", errShort)
	}
	n := func(at int) int64 { return int64(binary.BigEndian.Uint64(b[at:])) }
	h := stateHead{agent.StateSize{Bytes: n(16), Keys: n(8)}, n(0)}
	if h.version < 1 || h.size.Keys < 0 || h.size.Bytes < h.size.Keys {
		return stateHead{}, corrupt(k, "version %d with %d keys of %d bytes is no state", h.version, h.size.Keys, h.size.Bytes)
	}
	return h, nil
}

// stateOf reads the head of a state: the zero one when nothing was ever put there. below is a snapshot, in which a head that
// was lost still has its entries.
func stateOf(g getter, below snapshot, o Owner) (h stateHead, found bool, err error) {
	k := o.headKey()
	b, found, err := g.get(k)
	switch {
	case err != nil:
		return h, false, err
	case found:
		h, err = parseStateHead(k, b)
		return h, err == nil, err
	}
	if _, found, err = below.get(k); err != nil || found {
		return h, false, err
	}
	err = below.each(o.entryPrefix(), prefixEnd(o.entryPrefix()), false, func(key, []byte) error {
		return corrupt(k, "record is missing")
	})
	return h, false, err
}

// An entry is its version, its media type and its value.
//
//	entry = uvarint version, uvarint length, type, value
func encodeEntry(version int64, v agent.Payload) []byte {
	b := make([]byte, 0, 2*binary.MaxVarintLen64+len(v.Type)+len(v.Body))
	b = appendBytes(binary.AppendUvarint(b, uint64(version)), []byte(v.Type))
	return append(b, v.Body...)
}

// decodeEntry returns an entry that shares no memory with b.
func decodeEntry(b []byte) (version int64, v agent.Payload, err error) {
	n, size := binary.Uvarint(b)
	if size <= 0 || n < 1 || n > 1<<62 {
		return 0, v, errShort
	}
	typ, rest, err := cutBytes(b[size:])
	if err != nil {
		return 0, v, err
	}
	return int64(n), agent.Payload{Type: string(typ), Body: bytes.Clone(rest)}, nil
}

// entry reads one key of a state.
func (o Owner) entry(g getter, name string) (e agent.StateEntry, found bool, err error) {
	k := o.entryKey(name)
	b, found, err := g.get(k)
	if err != nil || !found {
		return e, false, err
	}
	e.Key = name
	if e.Version, e.Value, err = decodeEntry(b); err != nil {
		return e, false, corrupt(k, "%v", err)
	}
	return e, true, nil
}

// State returns the entries of those keys that are there, in the order of names, of one moment. An owner that is not there
// is a NotFound error.
func (s *Store) State(ctx context.Context, o Owner, names ...string) (out []agent.StateEntry, err error) {
	if len(names) > agent.MaxStateEdits {
		return nil, agent.Errorf(agent.Invalid, "%d state keys are too many to read at once: %d are allowed", len(names), agent.MaxStateEdits)
	}
	for _, name := range names {
		if err := agent.CheckStateKey(name); err != nil {
			return nil, err
		}
	}
	err = s.viewRecent(ctx, func(g getter, below snapshot) error {
		out = nil
		if err := o.exists(g, below); err != nil {
			return err
		}
		for _, name := range names {
			e, found, err := o.entry(g, name)
			switch {
			case err != nil:
				return err
			case found:
				out = append(out, e)
			default:
				if _, _, err := stateOf(g, below, o); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// StateSize returns how much a state holds.
func (s *Store) StateSize(ctx context.Context, o Owner) (size agent.StateSize, err error) {
	err = s.view(ctx, func(snap snapshot) error {
		if err := o.exists(snap, snap); err != nil {
			return err
		}
		h, _, err := stateOf(snap, snap, o)
		size = h.size
		return err
	})
	return size, err
}

// maxStatePage is how many bytes of values one page gathers before it ends short.
const maxStatePage = 1 << 20

// ListState returns one page of a state in the order of keys' bytes. next is the After of the page that follows, "" at the end;
// a page may be short. Pages are of different moments: a key that is set or deleted between two is seen or not, all others
// once.
func (s *Store) ListState(ctx context.Context, o Owner, r agent.StateRange) (out []agent.StateEntry, next string, err error) {
	limit := r.Limit
	switch {
	case limit == 0:
		limit = agent.DefaultPage
	case limit < 0 || limit > agent.MaxPage:
		return nil, "", agent.Errorf(agent.Invalid, "limit is %d; it must be between 1 and %d", limit, agent.MaxPage)
	}
	for _, b := range []string{r.Prefix, r.Start, r.End, r.After} {
		if len(b) > agent.MaxStateKey {
			return nil, "", agent.Errorf(agent.Invalid, "a bound of %d bytes is longer than a state key may be: %d", len(b), agent.MaxStateKey)
		}
	}
	from, to := o.span(r)
	out = []agent.StateEntry{}
	size := 0
	err = s.view(ctx, func(snap snapshot) error {
		if err := o.exists(snap, snap); err != nil {
			return err
		}
		if _, _, err := stateOf(snap, snap, o); err != nil || from >= to {
			return err
		}
		return snap.each(from, to, r.Reverse, func(k key, payload []byte) error {
			if len(out) == limit || size >= maxStatePage {
				next = out[len(out)-1].Key
				return errStop
			}
			e, err := o.parseEntry(k, payload)
			if err != nil {
				return err
			}
			size += len(e.Key) + len(e.Value.Body)
			out = append(out, e)
			return ctx.Err()
		})
	})
	if err != nil {
		return nil, "", err
	}
	return out, next, nil
}

// span returns the records that a range is of.
func (o Owner) span(r agent.StateRange) (from, to key) {
	from, to = o.entryKey(r.Prefix), prefixEnd(o.entryKey(r.Prefix))
	from = max(from, o.entryKey(r.Start))
	if r.End != "" {
		to = min(to, o.entryKey(r.End))
	}
	switch {
	case r.After != "" && r.Reverse:
		to = min(to, o.entryKey(r.After))
	case r.After != "":
		from = max(from, o.entryKey(r.After+"\x00"))
	}
	return from, to
}

func (o Owner) parseEntry(k key, payload []byte) (e agent.StateEntry, err error) {
	if e.Key, err = unescaped(string(k[len(o.entryPrefix()):])); err == nil {
		e.Version, e.Value, err = decodeEntry(payload)
	}
	if err != nil {
		return e, corrupt(k, "%v", err)
	}
	return e, nil
}
