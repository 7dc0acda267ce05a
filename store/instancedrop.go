package store

import (
	"context"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/instance"
)

// trimEntries is how many entries of a log one commit removes at most.
const trimEntries = 250

// Trim implements instance.Owner.
func (in *Instances) Trim(ctx context.Context, id instance.ID, f instance.Fence, log instance.Log, before int64) error {
	if err := log.Check(); err != nil {
		return err
	}
	if log.Session != "" {
		return agent.Errorf(agent.Invalid, "the log of a session is kept whole")
	}
	l := instanceLogOf(id, log)
	for more := true; more; {
		err := in.s.updateOf(ctx, id.App, func(t *tx) error {
			more = false
			h, err := openInst(t, t.below.snapshot, id)
			if err == nil && h.fence() != f {
				err = instance.Fenced(id, f, h.fence())
			}
			if err != nil {
				return err
			}
			x, found, err := findInstLog(t, t.below.snapshot, l)
			if err != nil || !found || before <= x.first && x.first <= x.last {
				return err
			}
			to := min(before, x.last+1)
			more = to > x.first+trimEntries
			bytes, err := t.trim(l, x, min(to, x.first+trimEntries))
			if err != nil {
				return err
			}
			h.LogBytes -= bytes
			if log.Run != "" && before > x.last && !more { // a journal that is trimmed to its end is gone
				t.del(l.headKey())
				h.Logs--
			}
			t.putInst(id, h)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// trim removes the entries below to and returns how many bytes they had.
func (t *tx) trim(l Log, x extent, to int64) (bytes int64, err error) {
	for ; x.first < to; x.first++ {
		k := l.eventKey(x.first)
		b, found, err := t.get(k)
		if err == nil && !found {
			err = corrupt(k, "record is missing")
		}
		if err != nil {
			return 0, err
		}
		t.del(k)
		bytes += int64(len(b))
	}
	t.putExtent(l, x)
	return bytes, nil
}

// Delete implements instance.Owner.
func (in *Instances) Delete(ctx context.Context, id instance.ID, f instance.Fence) error {
	err := in.s.updateOf(ctx, id.App, func(t *tx) error {
		h, err := openInst(t, t.below.snapshot, id)
		switch {
		case err != nil:
			return err
		case h.fence() != f:
			return instance.Fenced(id, f, h.fence())
		case h.Children > 0:
			return instance.HasChildren(id, h.Children)
		}
		h.Gone = true
		t.put(instGone(id), nil)
		t.putInst(id, h)
		return nil
	})
	if err != nil {
		return err
	}
	return in.s.dropInstance(ctx, id)
}

// abandon marks the instances, if there are any, of an agent that is deleted in the same commit.
func (t *tx) abandon(app agent.App, id agent.AgentID) error {
	a, found, err := instAgentOf(t, t.below.snapshot, app, id)
	switch {
	case err != nil || !found:
		return err
	case a.count > 0:
		t.put(instAgentGoneKey(app, id), nil)
	default:
		t.del(instAgentKey(app, id))
	}
	return nil
}

// DropInstances removes the instances that were deleted or whose agents were, in commits of bounded size, and returns when there are
// none left. When it is stopped, the next call goes on. Nobody can reach those instances meanwhile.
func (s *Store) DropInstances(ctx context.Context) error {
	for {
		var id instance.ID
		mark := key("")
		err := s.view(ctx, func(snap snapshot) (err error) {
			id, mark, err = nextGone(snap)
			return err
		})
		switch {
		case err != nil || mark == "":
			return err
		case id.Key != "":
			err = s.dropInstance(ctx, id)
		default:
			err = s.update(ctx, func(t *tx) error {
				t.del(mark)
				t.del(instAgentKey(id.App, id.Agent))
				return nil
			})
		}
		if err != nil {
			return err
		}
	}
}

// nextGone finds an instance to remove, one without a key when only the mark of its agent is left.
func nextGone(snap snapshot) (id instance.ID, mark key, err error) {
	err = snap.each(prefixInstGone, prefixEnd(prefixInstGone), false, func(k key, _ []byte) error {
		mark = k
		parts := k.parts(prefixInstGone)
		if len(parts) == 3 {
			if id, _, err = parseInst(k, prefixInstGone); err != nil {
				return err
			}
			return errStop
		}
		if len(parts) != 2 {
			return corrupt(k, "key names no agent")
		}
		id = instance.ID{App: agent.App(parts[0]), Agent: agent.AgentID(parts[1])}
		prefix := instsKey(id.App, id.Agent)
		err := snap.each(prefix, prefixEnd(prefix), false, func(k key, _ []byte) error {
			if id, _, err = parseInst(k, prefixInst); err != nil {
				return err
			}
			return errStop
		})
		if err != nil {
			return err
		}
		return errStop
	})
	return id, mark, err
}

// dropStep is what one commit of a removal does.
type dropStep struct {
	parts []key
	log   *Log
	state []string
	last  bool
}

func (s *Store) dropInstance(ctx context.Context, id instance.ID) error {
	for {
		var step dropStep
		err := s.view(ctx, func(snap snapshot) (err error) {
			step, err = nextDropStep(snap, id)
			return err
		})
		if err == nil {
			err = s.update(ctx, func(t *tx) error { return t.dropPart(id, step) })
		}
		if err != nil || step.last {
			return err
		}
	}
}

func nextDropStep(snap snapshot, id instance.ID) (step dropStep, err error) {
	bytes := 0
	prefix := instPart(id, "")
	err = snap.each(prefix, prefixEnd(prefix), false, func(k key, _ []byte) error {
		if len(step.parts) == dropKeys || bytes > dropBytes/2 {
			return errStop
		}
		step.parts, bytes = append(step.parts, k), bytes+2*len(k)
		return nil
	})
	if err != nil || len(step.parts) > 0 {
		return step, err
	}
	for _, kind := range []logKind{instanceLog, journalLog} {
		prefix := logsPrefix(kind, id)
		err = snap.each(prefix, prefixEnd(prefix), false, func(k key, _ []byte) error {
			name, _, _ := strings.Cut(string(k[len(prefix):]), "/")
			step.log = &Log{kind, id.App, instTail(id) + "/" + name}
			return errStop
		})
		if err != nil || step.log != nil {
			return step, err
		}
	}
	o := instanceState(id)
	step.state, err = dropNames(snap, o)
	if err != nil || len(step.state) > 0 {
		return step, err
	}
	_, found, err := snap.get(o.headKey())
	step.last = !found
	return step, err
}

// dropPart removes parts of an instance that is gone. Another one that does the same may have been quicker.
func (t *tx) dropPart(id instance.ID, step dropStep) error {
	h, found, err := findInst(t, id)
	if err != nil || !found {
		return err
	}
	if gone, err := t.isGone(id, h); err != nil || !gone {
		return err
	}
	for _, k := range step.parts {
		if err := t.dropInstPart(id, &h, k); err != nil {
			return err
		}
	}
	if step.log != nil {
		x, found, err := findLog(t, *step.log)
		if err != nil || !found {
			return err
		}
		to := min(x.last+1, x.first+trimEntries)
		bytes, err := t.trim(*step.log, x, to)
		if err != nil {
			return err
		}
		if h.LogBytes -= bytes; to > x.last {
			t.del(step.log.headKey())
			h.Logs--
		}
	}
	if len(step.parts) > 0 || step.log != nil {
		t.putInst(id, h)
		return nil
	}
	if !step.last {
		return t.dropEntries(instanceState(id), step.state)
	}
	a, _, err := instAgentOf(t, t.below.snapshot, id.App, id.Agent)
	if err != nil {
		return err
	}
	a.count, a.epoch, a.head = a.count-1, max(a.epoch, h.Epoch), max(a.head, h.Head)
	t.putInstAgent(id.App, id.Agent, a)
	t.del(instKey(id))
	t.del(instGone(id))
	return nil
}

// isGone reports whether an instance or its agent was deleted.
func (t *tx) isGone(id instance.ID, h instHead) (bool, error) {
	if h.Gone {
		return true, nil
	}
	_, found, err := t.get(instAgentGoneKey(id.App, id.Agent))
	return found, err
}

// dropInstPart removes a part of an instance, and what names it from elsewhere.
func (t *tx) dropInstPart(id instance.ID, h *instHead, k key) error {
	payload, found, err := t.get(k)
	if err != nil || !found {
		return err
	}
	parts := k.parts(string(instPart(id, "")))
	switch {
	case parts[0] == "alarm" && len(parts) == 2:
		name, err := unescaped(parts[1])
		if err != nil {
			return corrupt(k, "%v", err)
		}
		a, err := parseAlarm(k, payload, name)
		if err != nil {
			return err
		}
		t.del(dueKey(a.At, id, name))
		h.Alarms--
	case parts[0] == "child":
		h.Children--
	case parts[0] == "from", parts[0] == "to" && len(parts) == 4:
		h.Marks--
	case parts[0] == "to" && len(parts) == 5:
		to, err := parsePeer(k, id.App, parts[1:])
		if err != nil {
			return err
		}
		p, _, err := t.pair(id, to, h.Birth)
		if err == nil {
			err = t.delMessage(id, to, p.got+1)
		}
		if err != nil {
			return err
		}
		p.got++
		h.Outbox--
		t.putPair(id, to, p)
	}
	t.del(k)
	return nil
}
