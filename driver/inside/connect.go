package inside

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
)

// errBye says that one of the two has said goodbye.
var errBye = errors.New("goodbye")

// errOver is in the chain of an error after which no connection is to be tried again.
var errOver = errors.New("no connection is to be tried again")

// connect keeps a connection to the control plane until one of them says goodbye, ctx ends, or none could be had for the lease.
func (b *box) connect(ctx context.Context) error {
	heard, wait := time.Now(), b.o.Backoff
	for {
		welcomed, err := b.connection(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errBye), errors.Is(err, errOver):
			return err
		}
		if welcomed {
			heard, wait = time.Now(), b.o.Backoff
		}
		if time.Since(heard) > b.o.Lease {
			return &agent.Error{Kind: agent.Unavailable, Msg: fmt.Sprintf("the control plane was gone for %s", b.o.Lease), Err: err}
		}
		b.log.Debug("no connection to the control plane", "error", err, "again", wait)
		select {
		case <-time.After(wait/2 + rand.N(wait)):
		case <-ctx.Done():
			return ctx.Err()
		}
		wait = min(wait*2, 100*b.o.Backoff)
	}
}

// session is one connection.
type session struct {
	b     *box
	ws    *websocket.Conn
	sent  int64         // number of the newest event that was sent over it
	wake  chan struct{} // holds one when queue has something
	mu    sync.Mutex
	queue [][]byte
	acked []int64 // last numbers of the batches that are under way
	heard time.Time
}

// connection makes one connection and serves it until it ends. welcomed says that the control plane has let it in.
func (b *box) connection(ctx context.Context) (welcomed bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := b.dial(ctx)
	if err != nil {
		return false, err
	}
	defer s.ws.CloseNow()
	if err := s.hello(ctx); err != nil {
		return false, err
	}
	var wg sync.WaitGroup
	written := make(chan error, 1)
	wg.Go(func() {
		defer cancel()
		written <- s.write(ctx)
	})
	err = s.read(ctx)
	cancel()
	wg.Wait()
	b.works.detach(s)
	if w := <-written; errors.Is(w, errBye) {
		err = w
	}
	return true, err
}

func (b *box) dial(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, b.o.LostAfter)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DialContext: b.dialSocket, DisableKeepAlives: true}}
	ws, _, err := websocket.Dial(ctx, "ws://skep"+driver.Path, &websocket.DialOptions{HTTPClient: client})
	if err != nil {
		return nil, err
	}
	ws.SetReadLimit(-1) // receive has it: the library's would leave the connection open
	return &session{b: b, ws: ws, wake: make(chan struct{}, 1), heard: time.Now()}, nil
}

func (b *box) dialSocket(ctx context.Context, _, _ string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", b.o.Boot.Socket)
}

// hello says who the driver is, and takes what it is told.
func (s *session) hello(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.b.o.LostAfter)
	defer cancel()
	h := driver.HelloBody{
		Version: driver.Version, Sandbox: s.b.o.Boot.Sandbox, Generation: s.b.o.Boot.Generation, Driver: s.b.o.Version, CLIs: s.b.inventory(), Seq: s.b.ring.newest(),
		Facts: facts(),
	}
	if w := s.b.welcome.Load(); w != nil {
		h.Key = w.Key
	} else {
		h.Token, h.Nonce = s.b.o.Boot.Token, s.b.nonce
	}
	if err := s.send(ctx, &driver.Message{Kind: driver.Hello, Body: driver.Body(h), Trace: s.b.o.Boot.TraceID}); err != nil {
		return err
	}
	m, err := s.receive(ctx)
	if err != nil {
		return err
	}
	if m.Kind == driver.Refused || m.Kind == driver.Bye {
		return fmt.Errorf("%w: %w", errOver, reason(m, "the control plane refused the driver"))
	}
	w := &driver.WelcomeBody{}
	if m.Kind != driver.Welcome {
		return agent.Errorf(agent.Invalid, "the answer to hello is %q", m.Kind)
	}
	if err := m.Read(w); err != nil {
		return err
	}
	return s.welcome(ctx, w)
}

func reason(m *driver.Message, otherwise string) error {
	if m.Fault != nil {
		return m.Fault.Err()
	}
	return agent.Errorf(agent.Denied, "%s", otherwise)
}

func (s *session) welcome(ctx context.Context, w *driver.WelcomeBody) error {
	if !s.b.ring.ack(w.Acked) || w.Acked+1 < s.b.ring.oldest() {
		return fmt.Errorf("%w: %w", errOver, agent.Errorf(agent.Conflict, "the control plane has events up to %d, and the driver has %d to %d",
			w.Acked, s.b.ring.oldest(), s.b.ring.newest()))
	}
	s.b.welcome.Store(w)
	s.sent = w.Acked
	s.b.works.attach(s)
	return s.send(ctx, &driver.Message{Kind: driver.Ready})
}

func (s *session) send(ctx context.Context, m *driver.Message) error {
	b, err := driver.Encode(m)
	if err != nil {
		return err
	}
	return s.put(ctx, b)
}

func (s *session) put(ctx context.Context, b []byte) error {
	ctx, cancel := context.WithTimeout(ctx, s.b.o.LostAfter)
	defer cancel()
	return s.ws.Write(ctx, websocket.MessageText, b)
}

func (s *session) receive(ctx context.Context) (*driver.Message, error) {
	_, r, err := s.ws.Reader(ctx)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(r, driver.MaxMessage+1)) // Decode refuses what is longer
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.heard = time.Now()
	s.mu.Unlock()
	return driver.Decode(b)
}

// read takes what the control plane says.
func (s *session) read(ctx context.Context) error {
	for {
		m, err := s.receive(ctx)
		if err != nil {
			return err
		}
		switch m.Kind {
		case driver.Ack:
			if err := s.ack(m.Seq); err != nil {
				return err
			}
		case driver.Command:
			s.b.works.begin(s, m)
		case driver.Bye:
			return fmt.Errorf("%w: %w", errOver, reason(m, "the control plane said goodbye"))
		case driver.Heartbeat:
		default: // of a later version: nothing that has to be understood
		}
	}
}

func (s *session) ack(seq int64) error {
	if !s.b.ring.ack(seq) {
		return agent.Errorf(agent.Invalid, "the control plane acknowledges event %d, which there never was", seq)
	}
	s.mu.Lock()
	for len(s.acked) > 0 && s.acked[0] <= seq {
		s.acked = s.acked[1:]
	}
	s.mu.Unlock()
	s.poke()
	return nil
}

func (s *session) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// push queues a message that is encoded.
func (s *session) push(b []byte) {
	s.mu.Lock()
	s.queue = append(s.queue, b)
	s.mu.Unlock()
	s.poke()
}

// write writes what is queued, events and heartbeats; and, when the driver leaves and nothing is left, goodbye.
func (s *session) write(ctx context.Context) error {
	beat := time.NewTicker(s.b.o.Heartbeat)
	defer beat.Stop()
	leave := s.b.leave
	for {
		if err := s.flush(ctx); err != nil {
			return err
		}
		if leave == nil && s.b.ring.empty() && s.idle() {
			if err := s.send(ctx, &driver.Message{Kind: driver.Bye, Fault: s.b.fault.Load()}); err != nil {
				return err
			}
			_ = s.ws.Close(websocket.StatusNormalClosure, "")
			return errBye
		}
		select {
		case <-s.wake:
		case <-s.b.ring.wake:
		case <-leave:
			leave = nil
		case <-beat.C:
			if err := s.beat(ctx); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *session) beat(ctx context.Context) error {
	s.mu.Lock()
	silent := time.Since(s.heard)
	s.mu.Unlock()
	if silent > s.b.o.LostAfter {
		return agent.Errorf(agent.Unavailable, "the control plane said nothing for %s", silent)
	}
	return s.send(ctx, &driver.Message{Kind: driver.Heartbeat})
}

func (s *session) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue) == 0
}

func (s *session) flush(ctx context.Context) error {
	s.mu.Lock()
	list := s.queue
	s.queue = nil
	s.mu.Unlock()
	for _, b := range list {
		if err := s.put(ctx, b); err != nil {
			return err
		}
	}
	for s.window() {
		first, events := s.b.ring.after(s.sent)
		if events == nil {
			return nil
		}
		last := first + int64(len(events)) - 1
		s.mu.Lock()
		s.acked = append(s.acked, last)
		s.mu.Unlock()
		s.sent = last
		if err := s.send(ctx, &driver.Message{Kind: driver.Events, Body: driver.Body(driver.EventsBody{First: first, List: events})}); err != nil {
			return err
		}
	}
	return nil
}

// window reports whether one more batch may be under way.
func (s *session) window() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.acked) < driver.MaxWindow
}
