package api

import (
	"context"
	"encoding/json"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
)

// newSession is what a caller says of a session to open.
type newSession struct {
	Agent string `json:"agent"`
	Key   string `json:"key,omitempty" doc:"instance of the agent; default unless given"`
	Title string `json:"title,omitempty"`
}

type createSessionRequest struct {
	Once store.Once `once:"-"`
	Body newSession `body:"json"`
}

func (s *Server) createSession(ctx context.Context, q createSessionRequest) (made[agent.Session], error) {
	v, replayed, err := s.st.CreateSession(ctx, agent.Session{
		App: appOf(ctx), Agent: q.Body.Agent, Key: q.Body.Key, Title: q.Body.Title,
	}, q.Once)
	v.LastSeq = 0 // as it was when it was made, should this be a replay
	return made[agent.Session]{v, replayed}, err
}

type listSessionsRequest struct {
	pageQuery
	Agent string `query:"agent" doc:"only sessions with this agent"`
}

func (s *Server) listSessions(ctx context.Context, q listSessionsRequest) (list[agent.Session], error) {
	return listOf(s.st.Sessions(ctx, appOf(ctx), q.Agent, q.page()))
}

type sessionRequest struct {
	ID agent.SessionID `path:"id"`
}

func (s *Server) getSession(ctx context.Context, q sessionRequest) (agent.Session, error) {
	return s.st.Session(ctx, appOf(ctx), q.ID)
}

// newMessage is a message to an agent.
type newMessage struct {
	Role    string          `json:"role,omitempty" doc:"user unless given"`
	Content json.RawMessage `json:"content" doc:"any JSON value"`
}

func (m newMessage) message() agent.Message {
	if m.Role == "" {
		m.Role = "user"
	}
	return agent.Message{Role: m.Role, Content: m.Content}
}

type sendMessageRequest struct {
	ID   agent.SessionID `path:"id"`
	Once store.Once      `once:"-"`
	Body newMessage      `body:"json"`
}

func (s *Server) sendMessage(ctx context.Context, q sendMessageRequest) (made[agent.Run], error) {
	r, replayed, err := s.rt.Send(ctx, appOf(ctx), q.ID, q.Body.message(), q.Once)
	return made[agent.Run]{queued(r), replayed}, err
}
