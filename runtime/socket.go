package runtime

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/grant"
	"github.com/skep-dev/skep/host/grant/shared"
	"github.com/skep-dev/skep/host/grant/socket"
	"github.com/skep-dev/skep/internal/ws"
	"github.com/skep-dev/skep/runtime/durable"
	"github.com/skep-dev/skep/runtime/sockets"
	"github.com/skep-dev/skep/store/instance"
	"github.com/skep-dev/skep/vault/scrub"
)

// maxFrames is how many bytes of frames one turn may send before a commit lets them go.
const maxFrames = 16 << 20

// socketWork is what a client asked for by a connection, in the turn that does it.
type socketWork struct {
	conn string
	call string                      // id of the call that it is, else empty
	sets bool                        // whether it is a change of the shared state
	each func(json.RawMessage) error // gets the items of a call that came by no connection; else nil
}

// addSockets gives a cell's door the connections of its instance, and the state that they see.
func (r *Runtime) addSockets(handlers map[string]grant.Handler, j *job) {
	socket.Add(handlers, &placeSockets{r: r, p: j.place, secrets: j.secrets})
	shared.Add(handlers, placeState{r, j.place, j.secrets})
}

// placeSockets are the connections of an instance as a cell reaches them.
type placeSockets struct {
	r       *Runtime
	p       *place
	secrets *scrub.Set

	mu       sync.Mutex
	attached []abi.SocketAttach // that wait for the commit
	bytes    int                // of frames that do
}

func (s *placeSockets) Send(ctx context.Context, in abi.SocketSend) error {
	t, err := s.p.turn(ctx)
	if err != nil {
		return err
	}
	f := ws.Binary(s.secrets.Bytes(in.Base64))
	if in.Text != nil {
		f = ws.Text(s.secrets.Bytes([]byte(*in.Text)))
	}
	work := s.p.socket
	item := work != nil && in.Text != nil && slices.Equal(in.To, []string{work.conn}) && sockets.IsItem(*in.Text, work.call)
	switch {
	case item && work.each != nil:
		return yieldItem(ctx, t, f, work.each)
	case item && s.r.sockets.Find(t.ID(), work.conn) == nil:
		return agent.Errorf(agent.Cancelled, "the connection that asked for it has ended")
	}
	if err := s.take(len(f.Data)); err != nil {
		return err
	}
	t.Then(func() {
		s.give(len(f.Data))
		s.r.sockets.Send(t.ID(), in.To, in.Tag, in.Except, f)
	})
	if !item {
		return nil
	}
	return t.Commit(ctx) // what a call yields is read as it comes, so it leaves now, with all that was before it
}

func (s *placeSockets) take(n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bytes+n > maxFrames {
		return agent.Exceeded(agent.LimitOutput, "one turn sends at most %d bytes of frames", maxFrames)
	}
	s.bytes += n
	return nil
}

func (s *placeSockets) give(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes -= n
}

func (s *placeSockets) Close(ctx context.Context, in abi.SocketClose) error {
	t, err := s.p.turn(ctx)
	if err != nil {
		return err
	}
	t.Then(func() {
		if c := s.r.sockets.Find(t.ID(), in.ID); c != nil {
			c.Close(in.Code, string(s.secrets.Bytes([]byte(in.Reason))))
		}
	})
	return nil
}

func (s *placeSockets) Attach(ctx context.Context, in abi.SocketAttach) error {
	t, err := s.p.turn(ctx)
	if err != nil {
		return err
	}
	if err := sockets.CheckAttach(in); err != nil {
		return err
	}
	s.mu.Lock()
	s.attached = append(s.attached, in)
	s.mu.Unlock()
	t.Then(func() {
		s.mu.Lock()
		s.attached = s.attached[1:]
		s.mu.Unlock()
		if c := s.r.sockets.Find(t.ID(), in.ID); c != nil {
			c.Attach(in)
		}
	})
	return nil
}

func (s *placeSockets) List(ctx context.Context, tag string) ([]abi.Socket, error) {
	t, err := s.p.turn(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []abi.Socket
	for _, c := range s.r.sockets.Of(t.ID()) {
		if c.Closing() != nil {
			continue
		}
		k := c.Socket()
		for _, a := range s.attached {
			if a.ID == k.ID {
				k = sockets.Attached(k, a)
			}
		}
		if tag == "" || slices.Contains(k.Tags, tag) {
			out = append(out, k)
		}
	}
	return out, nil
}

// closeSockets closes the connections of an instance that was deleted.
func (r *Runtime) closeSockets(id instance.ID) {
	r.sockets.Close(func(c *sockets.Conn) bool { return c.Instance == id }, closeDeleted, "the instance was deleted")
}

// closeAgentSockets closes those of all instances of agents that were deleted.
func (r *Runtime) closeAgentSockets(app agent.App, ids []agent.AgentID) {
	r.sockets.Close(func(c *sockets.Conn) bool { return c.Instance.App == app && slices.Contains(ids, c.Instance.Agent) },
		closeDeleted, "the agent was deleted")
}

// CloseSockets closes the connections that were opened with a token.
func (r *Runtime) CloseSockets(tokens ...agent.TokenID) {
	r.sockets.Close(func(c *sockets.Conn) bool { return slices.Contains(tokens, c.Token) }, ws.Policy, "the token was deleted")
}

// withTurn does something in a turn of an instance without a cell, and commits it.
func (r *Runtime) withTurn(ctx context.Context, id instance.ID, limits agent.Limits, f func(context.Context, *durable.Turn) error) error {
	t, err := r.enter(ctx, id, durable.Entry{}, limits)
	if err != nil {
		return err
	}
	defer t.Abandon()
	if err := f(ctx, t); err != nil {
		return err
	}
	return r.leave(ctx, t)
}
