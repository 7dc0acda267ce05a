package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/internal/ws"
)

// SocketOptions tune a Socket. The handlers are called one after the other by the goroutine that reads, and must not wait for the
// socket themselves.
type SocketOptions struct {
	Resume Position // where an earlier socket of the same instance ended

	OnState   func(state json.RawMessage, version int64) // what clients share, whenever it is another
	OnEvent   func(agent.Event)                          // what the instance emits; nil asks for none
	OnMessage func(data []byte, binary bool)             // frames that the instance's code sends
}

// Position is how far a Socket has got: a later one goes on from there, so that no event is missed and none comes twice.
type Position struct {
	Life   int64 `json:"life"` // which instance of that key it is
	State  int64 `json:"state"`
	Events int64 `json:"events"`
}

// SocketClosed is how a connection ended (RFC 6455, section 7.4; 1006 when nobody said why).
type SocketClosed struct {
	Code   int
	Reason string
}

func (e *SocketClosed) Error() string {
	return fmt.Sprintf("the connection was closed with code %d: %s", e.Code, e.Reason)
}

// maxFrame is the most bytes of a frame from a server: a state, or a result, of 1 MiB with what is around it.
const maxFrame = 4 << 20

// Socket is a connection with an instance. It is safe for concurrent use. It is not opened anew when it ends: the caller does, with its
// Position, when it wants to.
type Socket struct {
	conn *ws.Conn
	o    SocketOptions
	done chan struct{} // closed when it has ended

	mu      sync.Mutex
	pos     Position
	state   json.RawMessage
	next    int
	waiting map[string]*asked // by the id of what was asked
	ready   chan struct{}     // closed once the server has answered the hello; then nil
	err     error             // why it ended
}

type socketFrame struct {
	Type    string          `json:"type"`
	ID      string          `json:"id"`
	Life    int64           `json:"life"`
	Events  int64           `json:"events"`
	State   json.RawMessage `json:"state"`
	Version int64           `json:"version"`
	Base    int64           `json:"base"`
	Patch   json.RawMessage `json:"patch"`
	Event   *agent.Event    `json:"event"`
	Success bool            `json:"success"`
	Done    bool            `json:"done"`
	Result  json.RawMessage `json:"result"`
	Kind    agent.Kind      `json:"kind"`
	Error   string          `json:"error"`
	Hint    string          `json:"hint"`
}

func (f *socketFrame) err() error {
	if f.Error == "" {
		return nil
	}
	return &agent.Error{Kind: f.Kind, Msg: f.Error, Hint: f.Hint}
}

// asked is what waits for an answer.
type asked struct {
	frames chan socketFrame
	state  json.RawMessage // of a change of the state
}

// Connect opens a connection with an instance, which is made when it is not there. It returns once the shared state is known.
func (c *Client) Connect(ctx context.Context, agentName, key string, o *SocketOptions) (*Socket, error) {
	h := http.Header{}
	if c.token != "" {
		h.Set("Authorization", "Bearer "+c.token)
	}
	if c.o.App != "" {
		h.Set("Skep-App", string(c.o.App))
	}
	conn, err := ws.Dial(ctx, c.base+path("agents", agentName, "instances", key, "ws")+"?hello=true", h, &ws.Options{Max: maxFrame, Silence: c.o.Silence, Heartbeat: c.o.Silence / 3})
	if err != nil {
		if refused, ok := errors.AsType[*ws.Refused](err); ok {
			return nil, errorOf(refused.Response)
		}
		return nil, c.unreachable(ctx, err)
	}
	s := &Socket{conn: conn, done: make(chan struct{}), waiting: map[string]*asked{}, ready: make(chan struct{})}
	if o != nil {
		s.o = *o
	}
	s.pos = s.o.Resume
	ready := s.ready
	go s.read() // ends with the connection, which Close waits for
	if err := s.write(map[string]any{"type": "skep_hello", "events": s.o.OnEvent != nil, "resume": s.resume()}); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	select {
	case <-ready:
		return s, nil
	case <-s.done:
		err = s.Err()
	case <-ctx.Done():
		err = errors.Join(c.unreachable(ctx, ctx.Err()), s.Close())
	}
	select {
	case <-ready: // then events may have been told, and only its Position says which
		return s, nil
	default:
		return nil, err
	}
}

func (s *Socket) resume() any {
	if s.pos.Life == 0 {
		return nil
	}
	return map[string]any{"life": s.pos.Life, "events": s.pos.Events} // the state itself was not kept
}

func (s *Socket) write(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return agent.Wrap(agent.Invalid, err, "the value has no JSON form")
	}
	return s.send(ws.Text(b))
}

func (s *Socket) send(f ws.Frame) error {
	if err := s.conn.Write(f); err != nil {
		select {
		case <-s.done:
			return s.Err()
		default:
			return agent.Wrap(agent.Unavailable, err, "the connection has ended")
		}
	}
	return nil
}

// SendText and SendBinary send a message to the code's onSocketMessage.
func (s *Socket) SendText(text string) error { return s.send(ws.Text([]byte(text))) }
func (s *Socket) SendBinary(b []byte) error  { return s.send(ws.Binary(b)) }

// State returns the shared state and its version, which is 0 when it was never set.
func (s *Socket) State() (json.RawMessage, int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state, s.pos.State
}

// Position returns how far it has got.
func (s *Socket) Position() Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pos
}

// SetState sets the whole shared state, if it has the version that version names; nil means any. It returns the new version.
func (s *Socket) SetState(ctx context.Context, state any, version *int64) (int64, error) {
	b, err := json.Marshal(state)
	if err != nil {
		return 0, agent.Wrap(agent.Invalid, err, "the state has no JSON form")
	}
	frames, id, err := s.expect(b)
	if err != nil {
		return 0, err
	}
	defer s.forget(id)
	q := map[string]any{"type": "cf_agent_state", "id": id, "state": json.RawMessage(b)}
	if version != nil {
		q["version"] = *version
	}
	if err := s.write(q); err != nil {
		return 0, err
	}
	f, err := s.wait(ctx, frames)
	if err != nil {
		return 0, err
	}
	return f.Version, f.err()
}

// Call calls a method of the instance and returns its result. A call that was under way when the connection ended fails, and may have
// taken effect or not.
func (s *Socket) Call(ctx context.Context, method string, args ...any) (json.RawMessage, error) {
	var last json.RawMessage
	for v, err := range s.stream(ctx, true, method, args) {
		if err != nil {
			return nil, err
		}
		last = v
	}
	return last, nil
}

// Stream calls a method that yields, and returns what it yields as it comes.
func (s *Socket) Stream(ctx context.Context, method string, args ...any) iter.Seq2[json.RawMessage, error] {
	return s.stream(ctx, false, method, args)
}

func (s *Socket) stream(ctx context.Context, result bool, method string, args []any) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		frames, id, err := s.expect(nil)
		if err != nil {
			yield(nil, err)
			return
		}
		defer s.forget(id)
		if args == nil {
			args = []any{}
		}
		if err := s.write(map[string]any{"type": "rpc", "id": id, "method": method, "args": args}); err != nil {
			yield(nil, err)
			return
		}
		for {
			f, err := s.wait(ctx, frames)
			if err == nil && !f.Success {
				err = f.err()
			}
			switch {
			case err != nil:
				yield(nil, err)
				return
			case f.Done && !result:
				return
			case f.Done:
				yield(f.Result, nil)
				return
			case !result && !yield(f.Result, nil):
				return
			}
		}
	}
}

func (s *Socket) expect(state json.RawMessage) (chan socketFrame, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, "", s.err
	}
	s.next++
	id := strconv.Itoa(s.next)
	frames := make(chan socketFrame, 16)
	s.waiting[id] = &asked{frames, state}
	return frames, id, nil
}

func (s *Socket) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, id)
}

func (s *Socket) wait(ctx context.Context, frames chan socketFrame) (socketFrame, error) {
	select {
	case f := <-frames:
		return f, nil
	case <-ctx.Done():
		return socketFrame{}, agent.Wrap(agent.Cancelled, ctx.Err(), "the call was given up")
	case <-s.done:
	}
	select { // it may have come right before the end
	case f := <-frames:
		return f, nil
	default:
		return socketFrame{}, &agent.Error{Kind: agent.Unavailable, Err: s.Err(), Msg: "the connection ended before the answer came", Hint: "it may have taken effect: look before you call again"}
	}
}

// read takes what the server sends until the connection ends.
func (s *Socket) read() {
	for {
		m, err := s.conn.Read()
		if err != nil {
			s.end(err)
			return
		}
		var f socketFrame
		if m.Binary || json.Unmarshal(m.Data, &f) != nil || !s.take(&f) {
			if s.o.OnMessage != nil {
				s.o.OnMessage(m.Data, m.Binary)
			}
		}
	}
}

func (s *Socket) end(err error) {
	out := &SocketClosed{Code: ws.Abnormal}
	if e, ok := errors.AsType[*ws.CloseError](err); ok {
		out.Code, out.Reason = e.Code, e.Reason
		_ = s.conn.Close(e.Code, "")
	}
	_ = s.conn.Shut()
	s.mu.Lock()
	s.err = out
	s.mu.Unlock()
	close(s.done)
}

// take deals with a frame of the protocol; it returns false for another one.
func (s *Socket) take(f *socketFrame) bool {
	switch f.Type {
	case "cf_agent_identity":
	case "skep_ready":
		s.mu.Lock()
		if s.pos.Life != f.Life { // of another instance nothing was seen, of a new one nothing is to be
			if s.pos.Life == 0 {
				s.pos.Events = f.Events
			} else {
				s.pos.Events = 0
			}
			s.pos.Life, s.pos.State = f.Life, 0
		}
		s.mu.Unlock()
		if f.Version == 0 { // else the state follows
			s.isReady()
		}
	case "cf_agent_state":
		s.change(f.State, f.Version)
		s.isReady()
	case "skep_state_patch":
		if state, version := s.State(); version == f.Base {
			s.change(merge(state, f.Patch), f.Version)
		} else if version < f.Version { // say hello again: the answer is the whole state
			_ = s.write(map[string]any{"type": "skep_hello", "resume": map[string]any{"life": s.Position().Life}})
		}
	case "skep_event":
		s.mu.Lock()
		fresh := f.Event != nil && f.Event.Seq > s.pos.Events
		if fresh {
			s.pos.Events = f.Event.Seq
		}
		s.mu.Unlock()
		if fresh && s.o.OnEvent != nil {
			s.o.OnEvent(*f.Event)
		}
	case "skep_state_refused", "skep_state_set", "rpc":
		s.mu.Lock()
		waiting := s.waiting[f.ID]
		s.mu.Unlock()
		switch {
		case f.Type == "skep_state_refused" && f.Version > 0:
			s.change(f.State, f.Version)
		case f.Type == "skep_state_set" && waiting != nil:
			s.change(waiting.state, f.Version)
		}
		if waiting != nil {
			select {
			case waiting.frames <- *f:
			case <-time.After(time.Minute): // who called does not take what it asked for
			}
		}
	case "skep_error":
	default:
		return false
	}
	return true
}

func (s *Socket) isReady() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready != nil {
		close(s.ready)
		s.ready = nil
	}
}

func (s *Socket) change(state json.RawMessage, version int64) {
	s.mu.Lock()
	fresh := version > s.pos.State
	if fresh || version == s.pos.State && s.state == nil { // an earlier socket has seen it, and this one has not
		s.state, s.pos.State = state, version
	}
	s.mu.Unlock()
	if fresh && s.o.OnState != nil {
		s.o.OnState(state, version)
	}
}

// merge applies a JSON merge patch (RFC 7396).
func merge(state, patch json.RawMessage) json.RawMessage {
	var p, old map[string]json.RawMessage
	if json.Unmarshal(patch, &p) != nil || p == nil {
		return patch
	}
	if json.Unmarshal(state, &old) != nil || old == nil {
		old = map[string]json.RawMessage{}
	}
	for k, v := range p {
		if string(v) == "null" {
			delete(old, k)
		} else {
			old[k] = merge(old[k], v)
		}
	}
	out, _ := json.Marshal(old) // of JSON values, so it cannot fail
	return out
}

// Done is closed when the connection has ended; Err then says how, with a *SocketClosed.
func (s *Socket) Done() <-chan struct{} { return s.done }

func (s *Socket) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close says goodbye and returns when the connection has ended. It may be called twice.
func (s *Socket) Close() error {
	_ = s.conn.Close(ws.Normal, "") // an error is the end, too
	<-s.done
	return nil
}
