package store

import (
	"strings"

	"github.com/skep-dev/skep/agent"
)

// states checks that each state's entries are those its head counts, and that it has an owner or is being removed.
func (v verifier) states() error {
	var of key // prefix of the entries seen last
	var size agent.StateSize
	var newest int64
	err := v.walk(prefixState, func(k key, payload []byte) error {
		o, err := parseOwner(k)
		if err != nil {
			return err
		}
		mine := o.entryPrefix()
		if of != "" && of != mine {
			return corrupt(of, "the head of this state is missing")
		}
		if k == o.headKey() { // sorts behind the state's entries
			h, err := parseStateHead(k, payload)
			if err != nil {
				return err
			}
			if h.size != size || newest > h.version {
				return corrupt(k, "it counts %d keys of %d bytes up to version %d, there are %d of %d up to %d",
					h.size.Keys, h.size.Bytes, h.version, size.Keys, size.Bytes, newest)
			}
			of, size, newest = "", agent.StateSize{}, 0
			return v.owned(k, o)
		}
		if !strings.HasPrefix(string(k), string(mine)) {
			return corrupt(k, "key names no part of a state")
		}
		e, err := o.parseEntry(k, payload)
		if err != nil {
			return err
		}
		of, newest = mine, max(newest, e.Version)
		size.Keys++
		size.Bytes += entrySize(e.Key, e.Value)
		return nil
	})
	if err == nil && of != "" {
		err = corrupt(of, "the head of this state is missing")
	}
	if err != nil {
		return err
	}
	return v.walk(prefixStateGone, func(k key, _ []byte) error {
		o, err := parseGone(k)
		if err == nil {
			_, err = mustGet(v.snap, o.headKey())
		}
		return err
	})
}

// owned checks that the state whose head is at k has an owner, or else a mark that it has none any more.
func (v verifier) owned(k key, o Owner) error {
	if o.kind == instanceOwner { // an instance that is being removed has its head until the end
		id, err := o.instance()
		if err == nil {
			_, err = mustGet(v.snap, instKey(id))
		}
		return err
	}
	missing := o.exists(v.snap, v.snap)
	if missing != nil && agent.KindOf(missing) != agent.NotFound {
		return missing
	}
	_, gone, err := v.snap.get(o.goneKey())
	switch {
	case err != nil:
		return err
	case missing == nil && gone:
		return corrupt(o.goneKey(), "its owner is there")
	case missing != nil && !gone:
		return corrupt(k, "it belongs to nobody: %v", missing)
	}
	return nil
}

func parseOwner(k key) (Owner, error) {
	parts := k.parts(prefixState)
	switch {
	case len(parts) >= 4 && parts[0] == agentOwner.String():
		return AgentState(agent.App(parts[1]), agent.AgentID(parts[2])), nil
	case len(parts) >= 5 && parts[0] == instanceOwner.String():
		id, _, err := parseInst(k, prefixState+instanceOwner.String()+"/")
		return instanceState(id), err
	}
	return Owner{}, corrupt(k, "key names no owner")
}
