package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
)

// How a stream of questions looks for changes: the open ones are listed anew this often, once for all listeners of an app.
const (
	askEvery  = time.Second
	maxAsking = 10_000 // questions of an app that a stream knows
	maxBoards = 1000   // apps whose questions are remembered
	lastRead  = 512    // events of a session that are searched for an answer, from its end
)

// boards has the open questions of apps that somebody follows, at most askEvery old.
type boards struct {
	mu   sync.Mutex
	apps map[agent.App]*board
}

type board struct {
	mu   sync.Mutex
	at   time.Time
	open []agent.Approval
}

func (b *boards) of(app agent.App) *board {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.apps == nil || len(b.apps) > maxBoards {
		b.apps = map[agent.App]*board{}
	}
	if b.apps[app] == nil {
		b.apps[app] = &board{}
	}
	return b.apps[app]
}

func (s *Server) openQuestions(ctx context.Context, app agent.App) ([]agent.Approval, error) {
	b := s.boards.of(app)
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Since(b.at) < askEvery {
		return b.open, nil
	}
	var all []agent.Approval
	for page := (agent.Page{Limit: agent.MaxPage}); len(all) < maxAsking; {
		some, next, err := s.rt.Approvals(ctx, app, page)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
		if page.After = next; next == "" {
			break
		}
	}
	inOrder(all)
	b.at, b.open = time.Now(), all
	return all, nil
}

type approvalEventsRequest struct {
	approvalFilter
	Accept string `header:"Accept" doc:"application/json, text/event-stream or application/x-ndjson"`
}

// approvalEvents streams the questions of an app: first those that are open, then each as it comes, and each that is open no more. In JSON it has
// those that are open. The events have no numbers: whoever connects again gets those that are open again.
func (s *Server) approvalEvents(ctx context.Context, q approvalEventsRequest) (any, error) {
	form, err := negotiate(q.Accept, typeJSON, typeSSE, typeNDJSON)
	if err != nil {
		return nil, err
	}
	app := appOf(ctx)
	known := map[agent.ApprovalID]agent.Approval{}
	if form == typeJSON {
		open, err := s.openQuestions(ctx, app)
		return listOf(s.news(ctx, known, open, q.has), "", err)
	}
	out, encode := eventStream(form)
	out.next = func(ctx context.Context) ([]byte, error) {
		for {
			open, err := s.openQuestions(ctx, app)
			if err != nil {
				return nil, err
			}
			var buf []byte
			for _, e := range s.news(ctx, known, open, q.has) {
				b, err := encodeJSON(e)
				if err != nil {
					return nil, err
				}
				buf = encode(buf, runtime.Frame{Event: e, JSON: b})
			}
			if len(buf) > 0 {
				return buf, nil
			}
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(askEvery):
			}
		}
	}
	return out, nil
}

// news brings known up to what is open, and returns the events that tell the difference.
func (s *Server) news(ctx context.Context, known map[agent.ApprovalID]agent.Approval, open []agent.Approval, mine func(agent.Approval) bool) (out []agent.Event) {
	now := map[agent.ApprovalID]bool{}
	for _, a := range open {
		if !mine(a) {
			continue
		}
		now[a.ID] = true
		if _, old := known[a.ID]; !old {
			known[a.ID] = a
			if b, err := encodeJSON(a); err == nil {
				out = append(out, agent.Event{Time: a.Created, Kind: agent.EventApprovalRequested, Run: a.Run, Data: b})
			}
		}
	}
	asked := len(out)
	for id, a := range known {
		if !now[id] {
			delete(known, id)
			out = append(out, s.answerTo(ctx, a))
		}
	}
	slices.SortFunc(out[asked:], func(a, b agent.Event) int { return cmp.Or(a.Time.Compare(b.Time), bytes.Compare(a.Data, b.Data)) })
	return out
}

// answerTo finds what became of a question in the log of its session. A run that has ended answers none: then only the id is told.
func (s *Server) answerTo(ctx context.Context, a agent.Approval) agent.Event {
	e := agent.Event{Time: s.o.Now().UTC(), Kind: agent.EventApprovalAnswered, Run: a.Run}
	e.Data, _ = json.Marshal(map[string]any{"id": a.ID})
	log := store.SessionLog(a.App, a.Session)
	_, end, err := s.st.Bounds(ctx, log)
	if err != nil {
		return e
	}
	events, err := s.st.Read(ctx, log, max(end-lastRead, 0), lastRead)
	if err != nil {
		return e
	}
	for _, was := range events {
		var said agent.ApprovalAnswered
		if was.Kind == agent.EventApprovalAnswered && json.Unmarshal(was.Data, &said) == nil && said.ID == a.ID {
			was.Seq = 0 // a number of another log
			return was
		}
	}
	return e
}
