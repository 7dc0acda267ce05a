package runtime

import (
	"context"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime/durable"
	"github.com/skep-dev/skep/store/instance"
)

// questions are those of servers of tools, which wait for an answer in the middle of a call. They end with the process.
type questions struct {
	mu   sync.Mutex
	open map[agent.ApprovalID]chan agent.ApprovalAnswer
}

// add returns where the answer comes, or nil when a question of that id is open.
func (q *questions) add(id agent.ApprovalID) chan agent.ApprovalAnswer {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.open[id] != nil {
		return nil
	}
	if q.open == nil {
		q.open = map[agent.ApprovalID]chan agent.ApprovalAnswer{}
	}
	ch := make(chan agent.ApprovalAnswer, 1)
	q.open[id] = ch
	return ch
}

func (q *questions) remove(id agent.ApprovalID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.open, id)
}

func (q *questions) there(id agent.ApprovalID) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.open[id] != nil
}

// tell gives an answer to who waits for it.
func (q *questions) tell(id agent.ApprovalID, a agent.ApprovalAnswer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if ch := q.open[id]; ch != nil {
		select {
		case ch <- a:
		default:
		}
	}
}

// question asks a person what the server of a tool wants to know, while call number n of a run is under way.
func (r *Runtime) question(ctx context.Context, run agent.Run, n uint64, tool string, q agent.Question) (agent.ApprovalAnswer, error) {
	now := time.Now().UTC().Truncate(time.Millisecond)
	ask := agent.Approval{
		ID: agent.NewApprovalID(run.ID, n), App: run.App, Agent: run.Agent, Session: run.Session, Run: run.ID, Call: n,
		Title: tool, Asks: &q, Created: now, Expires: now.Add(askTimeout),
	}
	answer := r.asking.add(ask.ID)
	if answer == nil {
		return agent.ApprovalAnswer{}, agent.Errorf(agent.Exhausted, "the server of %s asks two things at once", tool)
	}
	defer r.asking.remove(ask.ID)
	err := r.changeAsks(ctx, run, &agent.Event{Kind: agent.EventApprovalRequested, Time: now, Data: encode(ask)}, func(list []agent.Approval) ([]agent.Approval, error) {
		if len(list) >= agent.MaxAsks {
			return nil, agent.Errorf(agent.Exhausted, "the run has %d questions to a person that are open", agent.MaxAsks)
		}
		return append(without(list, []agent.ApprovalID{ask.ID}), ask), nil
	})
	if err != nil {
		return agent.ApprovalAnswer{}, err
	}
	timer := time.NewTimer(time.Until(ask.Expires))
	defer timer.Stop()
	select {
	case a := <-answer:
		return a, nil
	case <-timer.C:
		err = agent.Errorf(agent.Denied, "nobody has answered by %s", ask.Expires.Format(time.RFC3339))
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	_ = r.changeAsks(ctx, run, nil, func(list []agent.Approval) ([]agent.Approval, error) {
		return without(list, []agent.ApprovalID{ask.ID}), nil
	})
	return agent.ApprovalAnswer{}, err
}

// changeAsks changes the open questions of a run that has an execution, in a turn of its instance.
func (r *Runtime) changeAsks(ctx context.Context, run agent.Run, ev *agent.Event, edit func([]agent.Approval) ([]agent.Approval, error)) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	_, err := r.inRun(ctx, run.App, run.ID, func(ctx context.Context, t *durable.Turn, run agent.Run) error {
		next := run
		var err error
		if next.Asks, err = edit(run.Asks); err != nil {
			return err
		}
		if err := t.ChangeRun(ctx, instance.RunEdit{From: run.Status, Run: next}); err != nil {
			return err
		}
		if x := r.executionOf(run.ID); x != nil {
			t.Then(func() {
				x.mu.Lock()
				x.asks = next.Asks
				x.mu.Unlock()
			})
		}
		if ev == nil {
			return nil
		}
		ev.Run = run.ID
		return t.Append(ctx, instance.SessionLog(run.Session), *ev)
	})
	return err
}
