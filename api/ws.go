package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/gofiber/contrib/websocket"
	"github.com/gofiber/fiber/v2"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
)

type sessionSocketRequest struct {
	ID      agent.SessionID `path:"id"`
	After   int64           `query:"after" doc:"number of the last event seen; 0 for all"`
	Upgrade string          `header:"Upgrade" doc:"websocket"`
	Origin  string          `header:"Origin"`
	Host    string          `meta:"host"`
	Token   agent.TokenID   `meta:"token"`
}

// socket is a result that turns the connection into a WebSocket.
type socket struct {
	app     agent.App
	session agent.SessionID
	token   agent.TokenID
	sub     *runtime.Subscription
}

// socketIn is a frame from the client, socketOut one to it that is not an event.
type (
	socketIn struct {
		Type    string          `json:"type"` // "message"
		Role    string          `json:"role,omitempty"`
		Content json.RawMessage `json:"content"`
		Key     string          `json:"key,omitempty"` // as an Idempotency-Key
	}
	socketOut struct {
		Type  string     `json:"type"` // "accepted" or "error"
		Run   *agent.Run `json:"run,omitempty"`
		Error *problem   `json:"error,omitempty"`
	}
)

func (s *Server) sessionSocket(ctx context.Context, q sessionSocketRequest) (*socket, error) {
	if err := s.mayUpgrade(q.Upgrade, q.Origin, q.Host); err != nil {
		return nil, err
	}
	if _, err := s.st.Session(ctx, appOf(ctx), q.ID); err != nil {
		return nil, err
	}
	sub, err := s.rt.Subscribe(ctx, store.SessionLog(appOf(ctx), q.ID), q.After)
	if err != nil {
		return nil, err
	}
	return &socket{app: appOf(ctx), session: q.ID, token: q.Token, sub: sub}, nil
}

func (s *Server) upgrade(l life, c *fiber.Ctx, req *request, k *socket) error {
	own := c.Context().Conn().(*conn) // Run's listener makes no others
	over := func() {
		s.sockets.Done()
		k.sub.Close()
	}
	s.sockets.Add(1)
	own.ifUnused(over)
	err := websocket.New(func(conn *websocket.Conn) {
		if !own.use() {
			return
		}
		defer over()
		s.talk(l, conn, req.id, k)
	}, websocket.Config{RecoverHandler: func(*websocket.Conn) {
		if v := recover(); v != nil {
			s.o.Log.Error("api: panic in a WebSocket", "request", req.id, "panic", v, "stack", string(debug.Stack()))
		}
	}})(c)
	if err != nil {
		if own.use() {
			over()
		}
		return invalidAs(http.StatusUpgradeRequired, "the WebSocket handshake is not valid", "see RFC 6455, section 4.1")
	}
	return nil
}

// talk serves one WebSocket until either side ends it. One goroutine writes events, this one reads messages.
func (s *Server) talk(l life, conn *websocket.Conn, id string, k *socket) {
	ctx, stop := context.WithCancel(l.soft)
	w := &socketWriter{conn: conn}
	var events sync.WaitGroup
	events.Go(func() {
		code, why := s.sendEvents(ctx, w, k.sub)
		w.close(code, why)
	})
	s.readMessages(l.hard, conn, w, id, k)
	stop()
	events.Wait()
}

// sendEvents returns how the connection is to be closed.
func (s *Server) sendEvents(ctx context.Context, w *socketWriter, sub *runtime.Subscription) (code int, why string) {
	for {
		wait, cancel := context.WithTimeout(ctx, s.o.Heartbeat)
		frames, err := sub.Next(wait)
		cancel()
		switch {
		case err == nil:
			for _, f := range frames {
				if w.write(websocket.TextMessage, f.JSON) != nil {
					return websocket.CloseNormalClosure, ""
				}
			}
		case ctx.Err() != nil:
			return websocket.CloseGoingAway, "the server stops"
		case errors.Is(err, context.DeadlineExceeded):
			if w.write(websocket.PingMessage, nil) != nil {
				return websocket.CloseNormalClosure, ""
			}
		case errors.Is(err, io.EOF):
			return websocket.CloseNormalClosure, "the log has ended"
		default:
			s.o.Log.Error("api: events for a WebSocket", "err", err)
			return websocket.CloseInternalServerErr, "internal error"
		}
	}
}

func (s *Server) readMessages(ctx context.Context, conn *websocket.Conn, w *socketWriter, id string, k *socket) {
	alive := func(string) error { return conn.SetReadDeadline(time.Now().Add(s.o.Silence)) }
	conn.SetReadLimit(maxMessage)
	conn.SetPongHandler(alive)
	for alive("") == nil {
		_, b, err := conn.ReadMessage()
		if err != nil {
			return
		}
		out := socketOut{Type: "accepted"}
		run, err := s.accept(ctx, b, k)
		if err != nil {
			p := problemOf(err, id)
			if p.Kind == agent.Internal {
				s.o.Log.Error("api: message on a WebSocket", "request", id, "err", err)
			}
			out = socketOut{Type: "error", Error: &p}
		} else {
			out.Run = &run
		}
		if b, err = json.Marshal(out); err != nil || w.write(websocket.TextMessage, b) != nil {
			return
		}
	}
}

func (s *Server) accept(ctx context.Context, b []byte, k *socket) (agent.Run, error) {
	var in socketIn
	if err := decodeJSON(b, &in); err != nil {
		return agent.Run{}, err
	}
	if in.Type != "message" {
		return agent.Run{}, &agent.Error{
			Kind: agent.Invalid, Msg: "a frame of type " + quoted(in.Type) + " is not known", Hint: `send {"type":"message","content":...}`,
		}
	}
	if in.Content == nil {
		return agent.Run{}, agent.Errorf(agent.Invalid, "field %q is missing", "content")
	}
	var once store.Once
	if in.Key != "" {
		if len(in.Key) > maxKey {
			return agent.Run{}, agent.Errorf(agent.Invalid, "field %q must have at most %d bytes", "key", maxKey)
		}
		once = store.Once{Scope: string(k.token), Key: in.Key, Request: agent.DigestOf(append([]byte("ws "+k.session+"\n"), b...))}
	}
	run, _, err := s.rt.Send(ctx, k.app, k.session, newMessage{in.Role, in.Content}.message(), once)
	return run, err
}

// socketWriter lets two goroutines write to one connection.
type socketWriter struct {
	mu   sync.Mutex
	conn *websocket.Conn
}

func (w *socketWriter) write(kind int, b []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.conn.SetWriteDeadline(time.Now().Add(stallTimeout)); err != nil {
		return err
	}
	return w.conn.WriteMessage(kind, b)
}

// close says goodbye, and gives the other side a moment to say it too.
func (w *socketWriter) close(code int, why string) {
	if w.write(websocket.CloseMessage, websocket.FormatCloseMessage(code, why)) != nil {
		w.conn.Close()
		return
	}
	w.conn.SetReadDeadline(time.Now().Add(lingerTime))
}
