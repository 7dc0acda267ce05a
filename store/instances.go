package store

import (
	"context"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/instance"
)

// Instances is the store's instance.Store: each method that writes is one transaction, or several where it says so.
type Instances struct{ s *Store }

var _ instance.Store = (*Instances)(nil)

// Instances returns the store's instances.
func (s *Store) Instances() *Instances { return &Instances{s} }

// peer names another instance of the same app.
type peer struct {
	Agent agent.AgentID `json:"agent"`
	Key   string        `json:"key"`
}

func findInst(g getter, id instance.ID) (h instHead, found bool, err error) {
	k := instKey(id)
	b, found, err := g.get(k)
	if err != nil || !found {
		return h, false, err
	}
	h, err = parseInstHead(k, b)
	return h, err == nil, err
}

func (t *tx) putInst(id instance.ID, h instHead) { t.put(instKey(id), h.encode()) }

// openInst reads the head of an instance that a caller names. below is a snapshot, in which one that lost its head still has parts.
func openInst(g getter, below snapshot, id instance.ID) (h instHead, err error) {
	if err := id.Check(); err != nil {
		return h, err
	}
	if err := hasAgent(g, id); err != nil {
		return h, err
	}
	h, found, err := findInst(g, id)
	switch {
	case err != nil:
		return h, err
	case !found:
		if err := noParts(below, id); err != nil {
			return h, err
		}
		return h, instance.Gone(id)
	case h.Gone:
		return h, instance.Gone(id)
	}
	return h, nil
}

// noParts checks that an instance that is not there has left nothing.
func noParts(snap snapshot, id instance.ID) error {
	k := instKey(id)
	if _, found, err := snap.get(k); err != nil || found {
		return err // it is being made or removed in this very batch
	}
	for _, prefix := range []key{
		instPart(id, ""), logsPrefix(instanceLog, id), logsPrefix(journalLog, id), instanceState(id).entryPrefix(), instanceState(id).headKey(),
	} {
		err := snap.each(prefix, prefixEnd(prefix), false, func(key, []byte) error { return corrupt(k, "record is missing") })
		if err != nil {
			return err
		}
	}
	return nil
}

// Acquire implements instance.Owner. An instance whose deletion was stopped is removed first.
func (in *Instances) Acquire(ctx context.Context, id, parent instance.ID) (info instance.Info, err error) {
	if err := id.Check(); err != nil {
		return info, err
	}
	for {
		half := false
		err = in.s.updateOf(ctx, id.App, func(t *tx) (err error) {
			if _, half, err = t.get(instGone(id)); err == nil && !half {
				info, err = t.acquire(id, parent, stamp(in.s.now()))
			}
			return err
		})
		if err != nil || !half {
			return info, err
		}
		if err := in.s.dropInstance(ctx, id); err != nil {
			return info, err
		}
	}
}

func (t *tx) acquire(id, parent instance.ID, now time.Time) (info instance.Info, err error) {
	if err := hasAgent(t, id); err != nil {
		return info, err
	}
	h, found, err := findInst(t, id)
	if err == nil && !found {
		if h, err = t.makeInst(id, parent, now); err == nil {
			err = noParts(t.below.snapshot, id)
		}
	}
	if err != nil {
		return info, err
	}
	more, err := h.more(instKey(id))
	if err != nil {
		return info, err
	}
	if parent != (instance.ID{}) && (more.Parent == nil || *more.Parent != peer{parent.Agent, parent.Key}) {
		return info, instance.NotChild(id, parent)
	}
	h.Epoch, h.Updated = h.Epoch+1, now
	t.putInst(id, h)
	return infoOf(t, id, h)
}

// makeInst returns the head of a new instance, whose first epoch is the next one.
func (t *tx) makeInst(id, parent instance.ID, now time.Time) (h instHead, err error) {
	more := instMore{Created: now}
	if parent != (instance.ID{}) {
		if parent.App != id.App {
			return h, instance.NotChild(id, parent)
		}
		if _, err := openInst(t, t.below.snapshot, parent); err != nil {
			return h, err
		}
		if _, found, err := t.get(childKey(parent, id)); err != nil {
			return h, err
		} else if !found {
			return h, instance.NotChild(id, parent)
		}
		more.Parent = &peer{parent.Agent, parent.Key}
	}
	a, _, err := instAgentOf(t, t.below.snapshot, id.App, id.Agent)
	if err != nil {
		return h, err
	}
	h.Epoch, h.Head, h.Birth = a.epoch, a.head, a.epoch+1
	a.count++
	t.putInstAgent(id.App, id.Agent, a)
	return h, h.setMore(more)
}

// hasAgent returns ErrGone unless the agent of an instance is there.
func hasAgent(g getter, id instance.ID) error {
	_, found, err := g.get(byKey(byAgentID, id.App, string(id.Agent)))
	if err == nil && !found {
		err = instance.NoAgent(id.Agent)
	}
	return err
}

// instAgent is what is known of all instances of an agent. It is there from the first of them on.
type instAgent struct {
	count       int64
	epoch, head int64 // the highest of an instance that was deleted
}

func instAgentOf(g getter, below snapshot, app agent.App, id agent.AgentID) (a instAgent, found bool, err error) {
	k := instAgentKey(app, id)
	if found, err = getNumbers(g, k, &a.count, &a.epoch, &a.head); err != nil || found {
		return a, found, err
	}
	if _, found, err = below.get(k); err != nil || found {
		return a, false, err
	}
	prefix := instsKey(app, id)
	return a, false, below.each(prefix, prefixEnd(prefix), false, func(key, []byte) error { return corrupt(k, "record is missing") })
}

func (t *tx) putInstAgent(app agent.App, id agent.AgentID, a instAgent) {
	t.put(instAgentKey(app, id), encodeNumbers(a.count, a.epoch, a.head))
}

func infoOf(g getter, id instance.ID, h instHead) (instance.Info, error) {
	more, err := h.more(instKey(id))
	if err != nil {
		return instance.Info{}, err
	}
	info := instance.Info{
		ID: id, Fence: h.fence(), Created: more.Created, Updated: h.Updated, LogBytes: h.LogBytes,
		Alarms: h.Alarms, Outbox: h.Outbox, Children: h.Children, Snapshot: more.Snapshot,
	}
	if more.Parent != nil {
		info.Parent = instance.ID{App: id.App, Agent: more.Parent.Agent, Key: more.Parent.Key}
	}
	k := instanceState(id).headKey()
	b, found, err := g.get(k)
	if err == nil && found {
		var s stateHead
		s, err = parseStateHead(k, b)
		info.State = s.size
	}
	return info, err
}

// Resolve implements instance.Owner.
func (in *Instances) Resolve(ctx context.Context, id instance.ID, f instance.Fence, batch instance.BatchID) (o instance.Outcome, now instance.Fence, err error) {
	err = in.s.updateOf(ctx, id.App, func(t *tx) error {
		o, now = instance.UnknownOutcome, instance.Fence{}
		h, err := openInst(t, t.below.snapshot, id)
		if err != nil {
			return err
		}
		mine := h.Batch == batch && h.Epoch == f.Epoch && (h.Head == f.Head || h.Head == f.Head+1)
		switch {
		case mine && !h.Void:
			o = instance.Landed
		case mine:
			o = instance.NotLanded
		case h.fence() == f: // what is still on its way meets another fence
			o = instance.NotLanded
			h.Head, h.Batch, h.Void, h.Ends = h.Head+1, batch, true, ends{}
			t.putInst(id, h)
		default:
			return instance.Fenced(id, f, h.fence())
		}
		now = h.fence()
		return nil
	})
	return o, now, err
}
