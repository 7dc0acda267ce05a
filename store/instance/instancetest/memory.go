package instancetest

import (
	"context"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/instance"
)

// Memory is the reference: an instance.Store that is a few maps under one lock. Run holds every other one against it. What it
// holds is lost with the process.
type Memory struct {
	mu       sync.Mutex
	now      func() time.Time
	agents   map[agent.AgentID]agent.App
	sessions map[agent.SessionID]agent.Session
	runs     map[agent.RunID]agent.Run
	logs     map[agent.SessionID][]agent.Event
	floors   map[agent.AgentID]instance.Fence // highest of those that were deleted
	all      map[instance.ID]*held
	sends    int64
}

var _ instance.Store = (*Memory)(nil)

// held is one instance.
type held struct {
	info     instance.Info
	birth    int64
	batch    instance.BatchID
	void     bool
	result   instance.Result
	state    map[string]agent.StateEntry
	logs     map[instance.Log]*kept
	alarms   map[string]instance.Alarm
	pairs    map[instance.ID]*pair
	marks    map[instance.ID]int64
	children map[instance.ID]bool
}

// kept is a log or a journal: what is left of it, and the number of the first that is.
type kept struct {
	first   int64
	events  []agent.Event
	entries []instance.Entry
}

func (k *kept) last() int64 { return k.first + int64(len(k.events)+len(k.entries)) - 1 }

// pair is the messages to one other instance that wait.
type pair struct {
	last  int64
	waits []sent
}

type sent struct {
	instance.Message
	at int64 // among all
}

// NewMemory returns an empty Memory; a nil now means time.Now.
func NewMemory(now func() time.Time) *Memory {
	if now == nil {
		now = time.Now
	}
	return &Memory{
		now: now, agents: map[agent.AgentID]agent.App{}, sessions: map[agent.SessionID]agent.Session{}, runs: map[agent.RunID]agent.Run{},
		logs: map[agent.SessionID][]agent.Event{}, floors: map[agent.AgentID]instance.Fence{}, all: map[instance.ID]*held{},
	}
}

// AddAgent makes an agent, whose name is its id in small letters.
func (m *Memory) AddAgent(app agent.App, id agent.AgentID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.agents[id] = app
}

// RemoveAgent deletes an agent and its instances.
func (m *Memory) RemoveAgent(id agent.AgentID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.agents, id)
	maps.DeleteFunc(m.all, func(i instance.ID, _ *held) bool { return i.Agent == id })
}

// AddSession makes a session with an instance.
func (m *Memory) AddSession(s agent.SessionID, with instance.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sessions[s] = agent.Session{App: with.App, ID: s, Agent: nameOf(with.Agent), Key: with.Key, Created: m.now().UTC().Round(0)}
}

// Session returns a session.
func (m *Memory) Session(id agent.SessionID) (agent.Session, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.sessions[id]
	if !ok {
		return s, agent.Errorf(agent.NotFound, "there is no session %q", id)
	}
	s.LastSeq = int64(len(m.logs[id]))
	return s, nil
}

// Run returns a run.
func (m *Memory) Run(id agent.RunID) (agent.Run, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.runs[id]
	if !ok {
		return r, agent.Errorf(agent.NotFound, "there is no run %q", id)
	}
	return r, nil
}

// nameOf is what an agent is called: its id in small letters.
func nameOf(id agent.AgentID) string { return strings.ToLower(string(id)) }

func (m *Memory) find(id instance.ID) (*held, error) {
	if err := id.Check(); err != nil {
		return nil, err
	}
	if m.agents[id.Agent] != id.App {
		return nil, instance.NoAgent(id.Agent)
	}
	h := m.all[id]
	if h == nil {
		return nil, instance.Gone(id)
	}
	return h, nil
}

// fenced returns the instance when f is its fence.
func (m *Memory) fenced(id instance.ID, f instance.Fence) (*held, error) {
	h, err := m.find(id)
	if err == nil && h.info.Fence != f {
		err = instance.Fenced(id, f, h.info.Fence)
	}
	return h, err
}

func (m *Memory) Acquire(ctx context.Context, id, parent instance.ID) (instance.Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := id.Check(); err != nil {
		return instance.Info{}, err
	}
	if m.agents[id.Agent] != id.App {
		return instance.Info{}, instance.NoAgent(id.Agent)
	}
	h := m.all[id]
	if h == nil {
		if parent != (instance.ID{}) {
			p, err := m.find(parent)
			if err != nil {
				return instance.Info{}, err
			}
			if !p.children[id] {
				return instance.Info{}, instance.NotChild(id, parent)
			}
		}
		f := m.floors[id.Agent]
		h = &held{
			info:  instance.Info{ID: id, Fence: f, Parent: parent, Created: m.now().UTC().Round(0)},
			birth: f.Epoch + 1, state: map[string]agent.StateEntry{}, logs: map[instance.Log]*kept{}, alarms: map[string]instance.Alarm{},
			pairs: map[instance.ID]*pair{}, marks: map[instance.ID]int64{}, children: map[instance.ID]bool{},
		}
		m.all[id] = h
	} else if parent != (instance.ID{}) && h.info.Parent != parent {
		return instance.Info{}, instance.NotChild(id, parent)
	}
	h.info.Fence.Epoch++
	h.info.Updated = m.now().UTC().Round(0)
	return h.tell(), nil
}

func (m *Memory) Resolve(ctx context.Context, id instance.ID, f instance.Fence, batch instance.BatchID) (instance.Outcome, instance.Fence, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h, err := m.find(id)
	if err != nil {
		return instance.UnknownOutcome, instance.Fence{}, err
	}
	now := h.info.Fence
	mine := h.batch == batch && now.Epoch == f.Epoch && (now.Head == f.Head || now.Head == f.Head+1)
	switch {
	case mine && !h.void:
		return instance.Landed, now, nil
	case mine:
		return instance.NotLanded, now, nil
	case now == f:
		h.info.Fence.Head++
		h.batch, h.void = batch, true
		return instance.NotLanded, h.info.Fence, nil
	}
	return instance.UnknownOutcome, instance.Fence{}, instance.Fenced(id, f, now)
}

func (m *Memory) Trim(ctx context.Context, id instance.ID, f instance.Fence, log instance.Log, before int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := log.Check(); err != nil {
		return err
	}
	if log.Session != "" {
		return agent.Errorf(agent.Invalid, "the log of a session is kept whole")
	}
	h, err := m.fenced(id, f)
	if err != nil {
		return err
	}
	k := h.logs[log]
	if k == nil || before <= k.first {
		return nil
	}
	n := min(before, k.last()+1) - k.first
	k.first += n
	k.events, k.entries = k.events[min(n, int64(len(k.events))):], k.entries[min(n, int64(len(k.entries))):]
	if log.Run != "" && len(k.entries) == 0 {
		delete(h.logs, log)
	}
	return nil
}

func (m *Memory) Delete(ctx context.Context, id instance.ID, f instance.Fence) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	h, err := m.fenced(id, f)
	if err == nil && len(h.children) > 0 {
		err = instance.HasChildren(id, int64(len(h.children)))
	}
	if err == nil {
		was := m.floors[id.Agent]
		m.floors[id.Agent] = instance.Fence{Epoch: max(was.Epoch, f.Epoch), Head: max(was.Head, f.Head)}
		delete(m.all, id)
	}
	return err
}

// tell returns what is known of an instance.
func (h *held) tell() instance.Info {
	info := h.info
	info.State = agent.StateSize{Keys: int64(len(h.state))}
	for k, e := range h.state {
		info.State.Bytes += int64(len(k) + len(e.Value.Body))
	}
	info.Alarms, info.Children = int64(len(h.alarms)), int64(len(h.children))
	for _, p := range h.pairs {
		info.Outbox += int64(len(p.waits))
	}
	for _, k := range h.logs {
		for _, e := range k.events {
			info.LogBytes += int64(len(e.Data))
		}
		for _, e := range k.entries {
			info.LogBytes += int64(len(e.Data))
		}
	}
	return info
}
