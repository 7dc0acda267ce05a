package instancetest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/instance"
)

func (m *Memory) Info(ctx context.Context, id instance.ID) (instance.Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h, err := m.find(id)
	if err != nil {
		return instance.Info{}, err
	}
	return h.tell(), nil
}

func (m *Memory) Load(ctx context.Context, id instance.ID, keys ...string) (out []agent.StateEntry, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h, err := m.find(id)
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		if e, ok := h.state[k]; ok {
			out = append(out, e)
		}
	}
	return out, nil
}

func (m *Memory) Scan(ctx context.Context, id instance.ID, r agent.StateRange) (out []agent.StateEntry, next string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h, err := m.find(id)
	if err != nil {
		return nil, "", err
	}
	keys := slices.Sorted(maps.Keys(h.state))
	if r.Reverse {
		slices.Reverse(keys)
	}
	limit := r.Limit
	if limit == 0 {
		limit = agent.DefaultPage
	}
	out = []agent.StateEntry{}
	for _, k := range keys {
		behind := r.After == "" || !r.Reverse && k > r.After || r.Reverse && k < r.After
		if !behind || !strings.HasPrefix(k, r.Prefix) || k < r.Start || r.End != "" && k >= r.End {
			continue
		}
		if len(out) == limit {
			return out, out[limit-1].Key, nil
		}
		out = append(out, h.state[k])
	}
	return out, "", nil
}

func (m *Memory) ReadLog(ctx context.Context, id instance.ID, log instance.Log, after int64, limit int) ([]agent.Event, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h, err := m.find(id)
	if err == nil {
		err = checkRead(log, after)
	}
	if err != nil {
		return nil, err
	}
	if log.Session != "" {
		return page(m.logs[log.Session], func(e agent.Event) bool { return e.Seq > after }, limit)
	}
	k := h.logs[log]
	if k == nil {
		k = &kept{}
	}
	return page(k.events, func(e agent.Event) bool { return e.Seq > after }, limit)
}

func (m *Memory) ReadJournal(ctx context.Context, id instance.ID, run agent.RunID, after int64, limit int) ([]instance.Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h, err := m.find(id)
	if err == nil {
		err = checkRead(instance.Journal(run), after)
	}
	if err != nil {
		return nil, err
	}
	k := h.logs[instance.Journal(run)]
	if k == nil {
		k = &kept{}
	}
	return page(k.entries, func(e instance.Entry) bool { return e.Seq > after }, limit)
}

func (m *Memory) Journals(ctx context.Context, id instance.ID, after agent.RunID, limit int) ([]agent.RunID, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h, err := m.find(id)
	if err != nil {
		return nil, err
	}
	var list []agent.RunID
	for l := range h.logs {
		if l.Run != "" {
			list = append(list, l.Run)
		}
	}
	slices.Sort(list)
	return page(list, func(run agent.RunID) bool { return run > after }, limit)
}

func checkRead(log instance.Log, after int64) error {
	if after < 0 {
		return agent.Errorf(agent.Invalid, "number %d is negative", after)
	}
	return log.Check()
}

// page returns the elements of a list for which in holds, at most limit of them.
func page[T any](list []T, in func(T) bool, limit int) (out []T, err error) {
	if limit, err = instance.CheckLimit(limit); err != nil {
		return nil, err
	}
	for _, v := range list {
		if in(v) && len(out) < limit {
			out = append(out, v)
		}
	}
	return out, nil
}

func (m *Memory) Alarms(ctx context.Context, id instance.ID, after string, limit int) ([]instance.Alarm, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h, err := m.find(id)
	if err != nil {
		return nil, err
	}
	list := slices.SortedFunc(maps.Values(h.alarms), func(a, b instance.Alarm) int { return cmp.Compare(a.Name, b.Name) })
	return page(list, func(a instance.Alarm) bool { return a.Name > after }, limit)
}

func (m *Memory) Alarm(ctx context.Context, id instance.ID, name string) (instance.Alarm, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h, err := m.find(id)
	if err != nil {
		return instance.Alarm{}, false, err
	}
	a, there := h.alarms[name]
	return a, there, nil
}

func compareIDs(a, b instance.ID) int {
	return cmp.Or(cmp.Compare(a.App, b.App), cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.Key, b.Key))
}

func (m *Memory) Children(ctx context.Context, id, after instance.ID, limit int) ([]instance.ID, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h, err := m.find(id)
	if err != nil {
		return nil, err
	}
	return page(slices.SortedFunc(maps.Keys(h.children), compareIDs), func(c instance.ID) bool { return compareIDs(c, after) > 0 }, limit)
}

func (m *Memory) Received(ctx context.Context, id, from instance.ID) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h, err := m.find(id)
	if err != nil {
		return 0, err
	}
	return h.marks[from], nil
}

func (m *Memory) List(ctx context.Context, app agent.App, id agent.AgentID, p agent.Page) (out []instance.Info, next string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.agents[id] != app {
		return nil, "", instance.NoAgent(id)
	}
	limit := p.Limit
	if limit == 0 {
		limit = agent.DefaultPage
	}
	out = []instance.Info{}
	for _, i := range slices.SortedFunc(maps.Keys(m.all), compareIDs) {
		if i.Agent != id || i.Key <= p.After {
			continue
		}
		if len(out) == limit {
			return out, out[limit-1].ID.Key, nil
		}
		out = append(out, m.all[i].tell())
	}
	return out, "", nil
}

func (m *Memory) Due(ctx context.Context, now time.Time, after instance.Cursor, limit int) (p instance.DuePage, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if limit, err = instance.CheckLimit(limit); err != nil {
		return p, err
	}
	type at struct {
		cursor string
		instance.Due
	}
	var list []at
	for id, h := range m.all {
		for _, a := range h.alarms {
			list = append(list, at{fmt.Sprintf("%016x\x00%s\x00%s\x00%s\x00%s", a.At.UnixMilli(), id.App, id.Agent, id.Key, a.Name), instance.Due{ID: id, Alarm: a}})
		}
	}
	slices.SortFunc(list, func(a, b at) int { return strings.Compare(a.cursor, b.cursor) })
	p.Last = after
	for _, a := range list {
		switch {
		case a.cursor <= string(after):
			continue
		case a.At.After(now):
			p.Wake = a.At
			return p, nil
		case len(p.Alarms) == limit:
			p.Next = p.Last
			return p, nil
		}
		p.Alarms, p.Last = append(p.Alarms, a.Due), instance.Cursor(a.cursor)
	}
	return p, nil
}

func (m *Memory) Outgoing(ctx context.Context, after instance.Cursor, limit int) (out []instance.Message, next instance.Cursor, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if limit, err = instance.CheckLimit(limit); err != nil {
		return nil, "", err
	}
	var list []sent
	for _, h := range m.all {
		for _, p := range h.pairs {
			for i, w := range p.waits {
				w.Oldest = i == 0
				w.Data = bytes.Clone(w.Data)
				list = append(list, w)
			}
		}
	}
	slices.SortFunc(list, func(a, b sent) int { return cmp.Compare(a.at, b.at) })
	for _, w := range list {
		if c := instance.Cursor(fmt.Sprintf("%016x", w.at)); c <= after {
			continue
		} else if len(out) == limit {
			return out, next, nil
		} else {
			out, next = append(out, w.Message), c
		}
	}
	return out, "", nil
}
