package worker

import (
	"bufio"
	"context"
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/skep-dev/skep/agent"
)

const (
	pendingSoft = 16 << 20         // bytes not yet written, past which senders wait
	pendingHard = 2 * maxFrame     // past which the other side is taken for dead
	pendingKeep = 1 << 20          // of buffer kept for the next frames
	writeLimit  = 30 * time.Second // for the other side to take what is written
	readBuffer  = 64 << 10         // of a connection
)

// link is a connection that frames are sent on from many goroutines. Who puts a frame in line while nothing else is there
// writes it at once, as far as the connection takes it without waiting. Else the link's writer sends in a single write
// whatever has come together since the last.
type link struct {
	conn io.ReadWriteCloser
	raw  syscall.RawConn // nil when conn has none
	wake chan struct{}
	dead chan struct{} // closed by fail

	mu      sync.Mutex
	pending []byte
	spare   []byte
	writing bool          // someone writes, and looks after pending when done
	space   chan struct{} // closed at the next write, for senders who wait; nil when there is none
	err     error
}

func newLink(conn io.ReadWriteCloser) *link {
	return &link{conn: conn, raw: rawOf(conn), wake: make(chan struct{}, 1), dead: make(chan struct{})}
}

func rawOf(conn io.ReadWriteCloser) syscall.RawConn {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// pending stands for a connection that is not there yet.
type pending struct{ io.ReadWriteCloser }

func (*pending) Close() error { return nil }

// connect gives the link its connection, before anything is written or read. It reports false, and closes conn, when the
// link has ended before.
func (l *link) connect(conn io.ReadWriteCloser) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		_ = conn.Close()
		return false
	}
	l.conn, l.raw = conn, rawOf(conn)
	return true
}

// context returns one that ends with the link.
func (l *link) context() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan struct{})
	go func() {
		select {
		case <-l.dead:
			cancel(l.reason())
		case <-done:
		}
	}()
	return ctx, func() { cancel(nil); close(done) }
}

// fail ends the connection. The first reason stays.
func (l *link) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
		close(l.dead)
		_ = l.conn.Close()
	}
}

func (l *link) isDead() bool {
	select {
	case <-l.dead:
		return true
	default:
		return false
	}
}

// reason returns why the connection ended.
func (l *link) reason() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// send puts a frame in line, after waiting while much is in line already. It returns ctx's error, the link's, or an
// Exhausted one for a frame that is too large.
func (l *link) send(ctx context.Context, k kind, id uint64, body func(*encoder)) error {
	l.mu.Lock()
	for len(l.pending) > pendingSoft && l.err == nil {
		if l.space == nil {
			l.space = make(chan struct{})
		}
		space := l.space
		l.mu.Unlock()
		select {
		case <-space:
		case <-l.dead:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		l.mu.Lock()
	}
	return l.put(k, id, body)
}

// post puts a small frame in line without waiting.
func (l *link) post(k kind, id uint64, body func(*encoder)) error {
	l.mu.Lock()
	if len(l.pending) > pendingHard {
		l.mu.Unlock()
		l.fail(errDeaf)
		return errDeaf
	}
	return l.put(k, id, body)
}

var errDeaf = agent.Errorf(agent.Unavailable, "the other side takes nothing")

// put appends a frame and unlocks.
func (l *link) put(k kind, id uint64, body func(*encoder)) error {
	if l.err != nil {
		defer l.mu.Unlock()
		return l.err
	}
	before := len(l.pending)
	l.pending = appendFrame(l.pending, k, id, body)
	size := len(l.pending) - before
	if size == 0 {
		l.mu.Unlock()
		return agent.Exceeded(agent.LimitInput, "a message of more than %d bytes cannot cross to another process", maxFrame)
	}
	idle := before == 0 && !l.writing
	if idle && size <= atOnce && l.raw != nil {
		l.writeNow()
	}
	left := idle && len(l.pending) > 0
	l.mu.Unlock()
	if left {
		l.wakeWriter()
	}
	return nil
}

// atOnce is the largest frame that its sender may write.
const atOnce = 32 << 10

// writeNow writes what is pending as far as that goes without waiting. The caller holds the lock, which is not held
// meanwhile.
func (l *link) writeNow() {
	b := l.take()
	l.mu.Unlock()
	n := writeRaw(l.raw, b)
	l.mu.Lock()
	l.writing = false
	if n < len(b) {
		l.pending = append(b[n:], l.pending...)
	} else {
		l.keep(b)
	}
}

// take returns what is pending. The caller holds the lock, and writes it.
func (l *link) take() []byte {
	b := l.pending
	l.pending, l.spare, l.writing = l.spare[:0], nil, true
	if l.space != nil {
		close(l.space)
		l.space = nil
	}
	return b
}

// keep keeps a buffer for the next frames. The caller holds the lock.
func (l *link) keep(b []byte) {
	if l.spare == nil && cap(b) <= pendingKeep {
		l.spare = b[:0]
	}
}

func (l *link) wakeWriter() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// write sends what is put in line until the connection ends.
func (l *link) write() {
	for {
		select {
		case <-l.wake:
		case <-l.dead:
			return
		}
		l.mu.Lock()
		for !l.writing && len(l.pending) > 0 {
			b := l.take()
			l.mu.Unlock()
			if timed, ok := l.conn.(interface{ SetWriteDeadline(time.Time) error }); ok {
				_ = timed.SetWriteDeadline(time.Now().Add(writeLimit))
			}
			if _, err := l.conn.Write(b); err != nil {
				l.fail(err)
				return
			}
			l.mu.Lock()
			l.writing = false
			l.keep(b)
		}
		l.mu.Unlock()
	}
}

// read gives each frame to handle, from this goroutine, until the connection ends or handle returns an error. It returns
// why.
func (l *link) read(handle func(frame) error) error {
	r := bufio.NewReaderSize(l.conn, readBuffer)
	for {
		f, err := readFrame(r)
		if err == nil {
			err = handle(f)
		}
		if err != nil {
			l.fail(err)
			return l.reason()
		}
	}
}
