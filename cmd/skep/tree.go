package main

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
)

// node is a line of a run's tree.
type node struct {
	Kind   string          `json:"kind"` // call, wait, step, event, timer, life, commit, snapshot, end, or the journal's word
	Name   string          `json:"name,omitempty"`
	Call   uint64          `json:"call,omitempty"`
	Class  string          `json:"class,omitempty"`
	At     time.Time       `json:"at"`
	Took   time.Duration   `json:"took,omitempty"` // nanoseconds
	Open   bool            `json:"open,omitempty"` // it has not ended
	Bytes  int64           `json:"bytes,omitempty"`
	Input  json.RawMessage `json:"input,omitempty"`
	Output json.RawMessage `json:"output,omitempty"`
	Error  *agent.RunError `json:"error,omitempty"`
	Nodes  []*node         `json:"nodes,omitempty"`
}

// tree makes a tree of a run's journal: steps hold the calls made in them. Where steps run side by side nobody can tell whose a
// call is, and it stands beside them.
type tree struct {
	root  node
	calls map[uint64]*node
	steps []*node // begun and not ended
	life  int
	last  time.Time
}

func newTree() *tree { return &tree{calls: map[uint64]*node{}} }

func (t *tree) add(e agent.JournalEntry) {
	if e.Time.Before(t.last) { // it has no time of its own, or the run's, which stands still while the run sleeps
		e.Time = t.last
	}
	if e.Life > t.life {
		if t.life > 0 {
			t.root.Nodes = append(t.root.Nodes, &node{Kind: "life", Call: uint64(e.Life), At: e.Time, Took: e.Time.Sub(t.last)})
		}
		t.life = e.Life
	}
	t.last = e.Time
	switch kind := e.Kind; {
	case kind == "begin":
		if t.root.At.IsZero() {
			t.root.At = e.Time
		}
	case kind == "life" || kind == "take" || kind == "end" || e.Name == abi.CallStepBegin || e.Name == abi.CallStepEnd: // told by others
	case kind == "step":
		t.step(e)
	case kind == "start":
		t.call(e).Open = true
	case kind == "done" || kind == "deliver" || kind == "answered":
		n := t.calls[e.Call]
		if n == nil { // what leaves nothing behind is written down once it has its answer
			n = t.call(e)
		}
		n.end(e)
	default:
		t.put(&node{Kind: kind, Name: e.Name, Call: e.Call, At: e.Time, Bytes: e.Bytes, Input: e.Input, Output: e.Output, Error: e.Error})
	}
}

// end fills in what became of a call; what its delivery says again is not taken twice.
func (n *node) end(e agent.JournalEntry) {
	n.Took, n.Open = e.Time.Sub(n.At), false
	if e.Output != nil {
		n.Output = e.Output
	}
	if e.Error != nil {
		n.Error = e.Error
	}
	n.Bytes = max(n.Bytes, e.Bytes)
}

func (t *tree) call(e agent.JournalEntry) *node {
	n := &node{Kind: "call", Name: e.Name, Call: e.Call, Class: e.Class, At: e.Time, Bytes: e.Bytes, Input: e.Input}
	switch e.Name {
	case abi.CallSleep, abi.CallWait, abi.CallResult:
		n.Kind = "wait"
	}
	t.calls[e.Call] = n
	t.put(n)
	return n
}

func (t *tree) put(n *node) {
	at := &t.root
	if len(t.steps) == 1 {
		at = t.steps[0]
	}
	at.Nodes = append(at.Nodes, n)
}

// step begins a step, or ends one that is open.
func (t *tree) step(e agent.JournalEntry) {
	m := stepMark(e)
	if n := t.open(m); n != nil {
		n.Took, n.Open = e.Time.Sub(n.At), false
		if n.Error = e.Error; m.Error != "" {
			n.Error = &agent.RunError{Kind: agent.Failed, Msg: m.Error}
		}
		t.steps = slices.DeleteFunc(t.steps, func(s *node) bool { return s == n })
		return
	}
	n := &node{Kind: "step", Name: m.Name, Call: uint64(m.Attempt), At: e.Time, Open: true}
	if m.Rollback {
		n.Kind = "rollback"
	}
	t.root.Nodes = append(t.root.Nodes, n)
	t.steps = append(t.steps, n)
}

// open returns the step of a mark that has not ended.
func (t *tree) open(m abi.StepMark) *node {
	for _, s := range t.steps {
		if s.Name == m.Name && s.Call == uint64(m.Attempt) && (s.Kind == "rollback") == m.Rollback {
			return s
		}
	}
	return nil
}

// stepMark reads what a step's entry says of it: its name alone, or all that its code said.
func stepMark(e agent.JournalEntry) abi.StepMark {
	m := abi.StepMark{Name: e.Name, Attempt: 1}
	_ = json.Unmarshal(e.Input, &m)
	return m
}
