package link

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
)

// session is one connection of the driver that was let in.
type session struct {
	l       *Link
	ws      *websocket.Conn
	ctx     context.Context // of the request; lives as long as the connection
	cancel  context.CancelFunc
	batches chan driver.EventsBody // read and not yet stored
	drained chan struct{}          // closed when finish was reached
	told    bool                   // the driver has said that it is ready; of the reader
	ready   bool                   // it takes commands; guarded by Link.mu

	mu     sync.Mutex
	queue  [][]byte // to be written
	ack    int64    // to be written, when it is above sent
	sent   int64
	beat   bool          // a heartbeat is to be answered
	ending bool          // the connection is closed when the queue is written
	wake   chan struct{} // holds one when there is something to write
	stuck  bool          // the reader waits for room in batches
}

// ServeHTTP serves driver.Path and driver.StreamPath.
func (l *Link) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if id, ok := strings.CutPrefix(r.URL.Path, driver.StreamPath); ok {
		l.serveStream(w, r, id)
		return
	}
	if r.URL.Path != driver.Path {
		http.NotFound(w, r)
		return
	}
	select {
	case l.greeting <- struct{}{}:
	default:
		http.Error(w, "too many connections that have not said hello", http.StatusServiceUnavailable)
		return
	}
	s, err := l.greet(w, r)
	<-l.greeting
	if err != nil {
		l.log.Warn("refused a connection to a driver's link", "error", err)
		return
	}
	defer l.sessions.Done()
	s.run()
}

// greet lets a driver in, or says why not. After nil, sessions counts one more.
func (l *Link) greet(w http.ResponseWriter, r *http.Request) (*session, error) {
	ws, err := websocket.Accept(w, r, nil) // a page cannot reach the socket; the origin is checked all the same
	if err != nil {
		return nil, err // it has answered
	}
	ws.SetReadLimit(-1) // receive has it: the library's would leave the connection open
	ctx, cancel := context.WithCancel(r.Context())
	s := &session{l: l, ws: ws, ctx: ctx, cancel: cancel, wake: make(chan struct{}, 1), drained: make(chan struct{}),
		batches: make(chan driver.EventsBody, driver.MaxWindow)}
	if err := s.greet(); err != nil {
		ctx, done := context.WithTimeout(s.ctx, greetWithin)
		defer done()
		if agent.KindOf(err) == agent.Unavailable {
			_ = ws.Close(websocket.StatusTryAgainLater, "") // it may come again
		} else if b, bad := driver.Encode(&driver.Message{Kind: driver.Refused, Fault: driver.FaultOf(err)}); bad == nil {
			_ = ws.Write(ctx, websocket.MessageText, b)
			_ = ws.Close(websocket.StatusPolicyViolation, "refused")
		}
		cancel()
		return nil, err
	}
	return s, nil
}

func (s *session) greet() error {
	ctx, cancel := context.WithTimeout(s.ctx, greetWithin)
	defer cancel()
	b, err := s.receive(ctx)
	if err != nil {
		return agent.Wrap(agent.Unavailable, err, "a connection ended before its hello")
	}
	m, err := driver.Decode(b)
	if err != nil {
		return err
	}
	h, err := driver.DecodeHello(m)
	if err != nil {
		return err
	}
	if err := s.l.admit(h); err != nil {
		return err
	}
	welcome, err := s.l.o.Welcome(ctx)
	if err != nil {
		return agent.Wrap(agent.Unavailable, err, "the welcome of a driver could not be made")
	}
	return s.l.take(s, h, &welcome)
}

// admit says whether who says hello is the driver of this box. Any process in the box can say hello, so that nothing changes by one that is refused.
func (l *Link) admit(h *driver.HelloBody) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.stand == closed:
		return &agent.Error{Kind: agent.NotFound, Msg: "the sandbox is closed", Err: l.why}
	case h.Sandbox != l.o.Sandbox || h.Generation != l.o.Generation:
		return agent.Errorf(agent.Conflict, "sandbox %s of generation %d is not the one here, which is %s of generation %d: it was replaced",
			h.Sandbox, h.Generation, l.o.Sandbox, l.o.Generation)
	}
	if h.Key != "" {
		if subtle.ConstantTimeCompare([]byte(h.Key), []byte(l.o.Key)) != 1 {
			return agent.Errorf(agent.Unauthenticated, "the key of a driver is not known")
		}
	} else if err := l.admitToken(h); err != nil {
		return err
	}
	if h.Version != driver.Version {
		return agent.Errorf(agent.Invalid, "the driver speaks version %d of the protocol, and this server %d", h.Version, driver.Version)
	}
	if h.Seq < l.acked {
		return agent.Errorf(agent.Conflict, "the driver knows events up to %d, and %d are stored: it is not the one that was here", h.Seq, l.acked)
	}
	return nil
}

// admitToken uses the token up. The driver that has used it may come once more with the same nonce, since its welcome may have been lost on the way.
func (l *Link) admitToken(h *driver.HelloBody) error {
	switch {
	case l.o.Token == "" || subtle.ConstantTimeCompare([]byte(h.Token), []byte(l.o.Token)) != 1:
		return agent.Errorf(agent.Unauthenticated, "the boot token is not known")
	case l.spent, l.nonce != "" && subtle.ConstantTimeCompare([]byte(h.Nonce), []byte(l.nonce)) != 1:
		return agent.Errorf(agent.Denied, "the boot token was used before")
	case time.Since(l.made) > l.o.TokenLife:
		return agent.Errorf(agent.Denied, "the boot token is older than %s", l.o.TokenLife)
	case h.Nonce == "":
		return agent.Errorf(agent.Invalid, "a hello with a boot token has no nonce")
	}
	l.nonce = h.Nonce
	return nil
}

// take makes s the connection, and the one before it none.
func (l *Link) take(s *session, h *driver.HelloBody, w *driver.WelcomeBody) error {
	l.mu.Lock()
	if l.stand == closed {
		defer l.mu.Unlock()
		return &agent.Error{Kind: agent.NotFound, Msg: "the sandbox is closed", Err: l.why}
	}
	w.Key, w.Acked = l.o.Key, l.acked
	b, err := driver.Encode(&driver.Message{Kind: driver.Welcome, Body: driver.Body(w)})
	if err != nil {
		l.mu.Unlock()
		return err
	}
	before := l.current
	s.sent = l.acked
	s.push(b)
	l.current, l.hello, l.heard = s, h, time.Now()
	if h.Key != "" {
		l.spent = true
	}
	l.timer.Reset(l.o.LostAfter)
	l.sessions.Add(1)
	l.mu.Unlock()
	if before != nil {
		before.cancel()
	}
	return nil
}

// run serves the connection until it ends.
func (s *session) run() {
	var wg sync.WaitGroup
	wg.Go(func() { s.fail(s.write()) })
	wg.Go(func() { s.fail(s.store()) })
	s.fail(s.read())
	s.cancel()
	wg.Wait()
	_ = s.ws.CloseNow()
	s.l.mu.Lock()
	if s.l.current == s {
		s.l.current = nil
	}
	s.l.mu.Unlock()
}

var errBye = errors.New("the driver said goodbye")

// errBroken is in the chain of the error of a driver that does not keep to the protocol.
var errBroken = errors.New("the protocol was broken")

func broken(format string, args ...any) error {
	return fmt.Errorf("%w: %w", errBroken, agent.Errorf(agent.Invalid, format, args...))
}

// fail ends the connection for a reason, the first time. A driver that breaks the protocol again and again is lost.
func (s *session) fail(err error) {
	if err == nil || s.ctx.Err() != nil {
		return
	}
	s.cancel()
	if !errors.Is(err, errBroken) {
		s.l.log.Debug("the connection of a driver ended", "error", err)
		return
	}
	s.l.log.Warn("a driver broke the protocol", "error", err)
	s.l.mu.Lock()
	s.l.strikes++
	out := s.l.strikes >= maxStrikes
	s.l.mu.Unlock()
	if out {
		s.l.lose(agent.Errorf(agent.Invalid, "the driver broke the protocol %d times; the last: %s", maxStrikes, err))
	}
}

// read takes what the driver says. It stops reading while events wait to be stored, so that a flood waits in the box.
func (s *session) read() error {
	for {
		b, err := s.receive(s.ctx)
		if err != nil {
			return err
		}
		m, err := driver.Decode(b)
		if err != nil {
			return broken("%s", err)
		}
		s.l.word()
		if err := s.take(m); err != nil {
			return err
		}
	}
}

// receive reads the bytes of one message.
func (s *session) receive(ctx context.Context) ([]byte, error) {
	_, r, err := s.ws.Reader(ctx)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(r, driver.MaxMessage+1))
	if err == nil && len(b) > driver.MaxMessage {
		err = broken("a message is above %d bytes", driver.MaxMessage)
	}
	return b, err
}

func (s *session) take(m *driver.Message) error {
	switch m.Kind {
	case driver.Ready:
		if s.told {
			return broken("the driver was ready before")
		}
		s.told = true
		s.l.isReady(s)
	case driver.Heartbeat:
		s.note(func() { s.beat = true })
		return s.pause()
	case driver.Events:
		return s.events(m)
	case driver.Reply:
		if !s.l.reply(m) {
			return s.pause()
		}
	case driver.Bye:
		reason := m.Fault.Err()
		if reason == nil {
			reason = agent.Errorf(agent.Unavailable, "the driver has ended")
		}
		s.finish() // what it sent before is stored first
		s.l.lose(reason)
		return errBye
	default:
		return broken("a driver does not send messages of the kind %q", m.Kind)
	}
	return nil
}

// pause waits a moment after what costs a driver nothing to send, and us something to read.
func (s *session) pause() error {
	select {
	case <-time.After(10 * time.Millisecond):
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

func (s *session) events(m *driver.Message) error {
	b, err := driver.DecodeEvents(m)
	if err != nil {
		return broken("%s", err)
	}
	select {
	case s.batches <- *b:
		return nil
	default:
	}
	s.setStuck(true)
	defer s.setStuck(false)
	defer s.l.word()
	select {
	case s.batches <- *b:
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

func (s *session) setStuck(v bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stuck = v
}

func (s *session) stalled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stuck
}

// store stores what was read, in order, and acknowledges it.
func (s *session) store() error {
	for {
		select {
		case <-s.ctx.Done():
			return nil
		case b := <-s.batches:
			if b.List == nil { // the mark of finish
				close(s.drained)
				return nil
			}
			if err := s.storeBatch(&b); err != nil {
				return err
			}
		}
	}
}

// finish waits until everything that was read is stored, or the connection has ended. Nothing may be read after it.
func (s *session) finish() {
	select {
	case s.batches <- driver.EventsBody{}:
	case <-s.ctx.Done():
		return
	}
	select {
	case <-s.drained:
	case <-s.ctx.Done():
	}
}

// storeBatch stores what of b is new. Another connection may be storing the same, so that what is new is known only while storing is held.
func (s *session) storeBatch(b *driver.EventsBody) error {
	l := s.l
	l.storing.Lock()
	defer l.storing.Unlock()
	if s.ctx.Err() != nil {
		return s.ctx.Err()
	}
	acked := l.Acked()
	if b.First > acked+1 {
		return broken("events %d to %d are missing", acked+1, b.First-1)
	}
	last := b.First + int64(len(b.List)) - 1
	if last > acked {
		list := b.List[acked+1-b.First:]
		if err := l.o.Events(s.ctx, acked+1, list); err != nil {
			if errors.Is(err, ErrTooMuch) {
				l.lose(err)
			}
			return fmt.Errorf("store the events of a driver: %w", err)
		}
		l.mu.Lock()
		l.acked = last
		l.mu.Unlock()
	}
	s.note(func() { s.ack = max(s.ack, last) })
	return nil
}

// isReady makes the Link ready, and sends what waits.
func (l *Link) isReady(s *session) {
	l.mu.Lock()
	if l.current != s || l.stand == closed {
		l.mu.Unlock()
		return
	}
	l.spent = true
	for _, c := range l.order {
		s.push(c.message)
	}
	s.ready = true
	if l.stand == waiting {
		l.log.Info("a driver is ready", "driver", l.hello.Driver, "clis", l.hello.CLIs, "box", l.hello.Facts)
	}
	l.move(up, nil)
	l.sessions.Go(l.tell)
	l.mu.Unlock()
}
