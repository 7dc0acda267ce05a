package main

import (
	"context"
	"encoding/json"
	"time"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

// notes is what a run's events tell of entries of its journal that the journal, which is for machines, leaves out: when something
// came to be that has no part in the run's own time, and in which words.
type notes struct {
	waits           map[uint64]agent.RunWait // by call
	woken, received []time.Time
	steps           []abi.StepMark
}

func readNotes(ctx context.Context, cl *client.Client, id agent.RunID) (*notes, error) {
	n := &notes{waits: map[uint64]agent.RunWait{}}
	for e, err := range cl.Events(ctx, client.RunLog(id), 0, false) {
		if err != nil {
			return nil, err
		}
		n.add(e)
	}
	return n, nil
}

func (n *notes) add(e agent.Event) {
	switch e.Kind {
	case agent.EventRunWaiting:
		var w agent.RunWait
		if json.Unmarshal(e.Data, &w) == nil && w.Call > 0 {
			n.waits[w.Call] = w
		}
	case agent.EventRunResumed:
		n.woken = append(n.woken, e.Time)
	case agent.EventReceived:
		n.received = append(n.received, e.Time)
	case agent.EventStepStarted, agent.EventStepEnded:
		var s agent.Step
		_ = json.Unmarshal(e.Data, &s)
		n.steps = append(n.steps, abi.StepMark{Name: e.Name, Attempt: s.Attempt, Error: s.Error, Rollback: s.Rollback})
	}
}

// explain adds to an entry what the notes have of it. Entries come in their order.
func (n *notes) explain(e *agent.JournalEntry) {
	switch e.Kind {
	case "life":
		if e.Life > 1 {
			next(&n.woken, &e.Time)
		}
	case "event":
		next(&n.received, &e.Time)
	case "step":
		var m abi.StepMark
		if next(&n.steps, &m); m.Name == e.Name {
			e.Input, _ = json.Marshal(m) // has a JSON form
		}
	case "start":
		if w, ok := n.waits[e.Call]; ok && e.Input == nil {
			e.Input, _ = json.Marshal(wordsOf(w))
		}
	}
}

// next takes the first of a list, when there is one.
func next[T any](list *[]T, to *T) {
	if len(*list) > 0 {
		*to, *list = (*list)[0], (*list)[1:]
	}
}

// wordsOf says what a wait is for: a sleep by its end.
func wordsOf(w agent.RunWait) string {
	if w.For == "sleep" {
		return when(w.Until)
	}
	w.Until = time.Time{}
	return waitText(w)
}
