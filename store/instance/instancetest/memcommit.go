package instancetest

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/instance"
)

// Commit makes b on a copy of the instance and puts that in its place.
func (m *Memory) Commit(ctx context.Context, id instance.ID, f instance.Fence, b *instance.Batch) (instance.Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := b.Check(id); err != nil {
		return instance.Result{}, err
	}
	h, err := m.find(id)
	if err != nil {
		return instance.Result{}, err
	}
	now := h.info.Fence
	if h.batch == b.ID && !h.void && now.Epoch == f.Epoch && (now.Head == f.Head || now.Head == f.Head+1) {
		if len(h.result.Events) != len(b.Events) || len(h.result.Journal) != len(b.Journal) || len(h.result.Outbox) != len(b.Outbox) {
			return instance.Result{}, instance.Reused()
		}
		return h.result, nil
	}
	if now != f {
		return instance.Result{}, instance.Fenced(id, f, now)
	}
	c := h.copy()
	c.batch, c.void = b.ID, false
	c.info.Fence.Head++
	c.info.Updated = m.now().UTC().Round(0)
	c.result = instance.Result{Fence: c.info.Fence}
	logs, sends := maps.Clone(m.logs), m.sends
	r := records{m.now().UTC().Round(0), maps.Clone(m.sessions), maps.Clone(m.runs)}
	for _, part := range []func() error{
		func() error { return c.edit(b) },
		func() error { return r.edit(id, b, logs) },
		func() error { return m.append(c, b, r.sessions, logs) },
		func() error { return c.setAlarms(b) },
		func() error { return c.exchange(b, &sends) },
	} {
		if err := part(); err != nil {
			return instance.Result{}, err
		}
	}
	for _, ch := range b.Children {
		if ch.Remove {
			delete(c.children, ch.ID)
		} else {
			c.children[ch.ID] = true
		}
	}
	if b.Snapshot != nil {
		c.info.Snapshot = *b.Snapshot
	}
	told := c.tell()
	c.result.Counts = instance.Counts{LogBytes: told.LogBytes, Alarms: told.Alarms, Outbox: told.Outbox, Children: told.Children}
	m.all[id], m.logs, m.sends, m.sessions, m.runs = c, logs, sends, r.sessions, r.runs
	return c.result, nil
}

func (h *held) copy() *held {
	c := *h
	c.state, c.alarms, c.marks, c.children = maps.Clone(h.state), maps.Clone(h.alarms), maps.Clone(h.marks), maps.Clone(h.children)
	c.logs, c.pairs = map[instance.Log]*kept{}, map[instance.ID]*pair{}
	for l, k := range h.logs {
		c.logs[l] = &kept{k.first, slices.Clip(k.events), slices.Clip(k.entries)}
	}
	for id, p := range h.pairs {
		c.pairs[id] = &pair{p.last, slices.Clip(p.waits)}
	}
	return &c
}

func (h *held) edit(b *instance.Batch) error {
	was := h.tell().State
	for _, e := range b.State {
		if e.If != nil && *e.If != h.state[e.Key].Version {
			return agent.Errorf(agent.Conflict, "state key %.80q has version %d, not %d", e.Key, h.state[e.Key].Version, *e.If)
		}
	}
	for _, e := range b.State {
		switch e.Act {
		case agent.StateSet:
			h.state[e.Key] = agent.StateEntry{Key: e.Key, Version: h.info.Fence.Head, Value: e.Value}
		case agent.StateDelete:
			delete(h.state, e.Key)
		}
	}
	now := h.tell().State
	if b.Bounds.Bytes > 0 && now.Bytes > max(b.Bounds.Bytes, was.Bytes) || b.Bounds.Keys > 0 && now.Keys > max(b.Bounds.Keys, was.Keys) {
		return agent.Exceeded(agent.LimitState, "the state would be larger than what is granted")
	}
	return nil
}

func (m *Memory) append(h *held, b *instance.Batch, sessions map[agent.SessionID]agent.Session, logs map[agent.SessionID][]agent.Event) error {
	own := func(l instance.Log) *kept {
		if h.logs[l] == nil {
			h.logs[l] = &kept{first: 1}
		}
		return h.logs[l]
	}
	for _, a := range b.Events {
		e := a.Event
		if e.Time.IsZero() {
			e.Time = m.now()
		}
		e.Time, e.Data = e.Time.UTC().Round(0), append(json.RawMessage(nil), e.Data...)
		if s := a.Log.Session; s != "" {
			if err := with(sessions, s, h.info.ID); err != nil {
				return err
			}
			e.Seq = int64(len(logs[s]) + 1)
			logs[s] = append(slices.Clip(logs[s]), e)
		} else {
			k := own(a.Log)
			e.Seq = k.last() + 1
			k.events = append(k.events, e)
		}
		h.result.Events = append(h.result.Events, e.Seq)
	}
	for _, e := range b.Journal {
		k := own(instance.Journal(e.Run))
		e.Seq = k.last() + 1
		k.entries = append(k.entries, e)
		h.result.Journal = append(h.result.Journal, e.Seq)
	}
	return nil
}

func (h *held) setAlarms(b *instance.Batch) error {
	for _, e := range b.Alarms {
		was, found := h.alarms[e.Name]
		switch {
		case !e.Clear:
			h.alarms[e.Name] = instance.Alarm{Name: e.Name, At: instance.When(e.At), Gen: h.info.Fence.Head, Data: e.Data}
		case found && (e.Gen == 0 || e.Gen == was.Gen):
			delete(h.alarms, e.Name)
		}
	}
	return nil
}

func (h *held) exchange(b *instance.Batch, sends *int64) error {
	to := func(id instance.ID) *pair {
		if h.pairs[id] == nil {
			h.pairs[id] = &pair{last: h.birth << 32}
		}
		return h.pairs[id]
	}
	for _, s := range b.Outbox {
		p := to(s.To)
		p.last++
		*sends++
		p.waits = append(p.waits, sent{instance.Message{From: h.info.ID, To: s.To, Seq: p.last, Data: s.Data}, *sends})
		h.result.Outbox = append(h.result.Outbox, p.last)
	}
	for _, mk := range b.Sent {
		p := to(mk.Peer)
		if err := mk.Acknowledge(p.last+1-int64(len(p.waits)), p.last); err != nil {
			return err
		}
		p.waits = p.waits[1:]
	}
	for _, mk := range b.Inbox {
		if err := mk.Follow(h.marks[mk.Peer]); err != nil {
			return err
		}
		h.marks[mk.Peer] = mk.Seq
	}
	return nil
}
