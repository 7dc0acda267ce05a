package api

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skep-dev/skep/internal/nonblock"
)

// conns is a listener that can cut the connections it has accepted, and that closes them gently on request.
type conns struct {
	net.Listener
	mu   sync.Mutex
	open map[*conn]struct{}
	cut  bool

	detached map[*detached]struct{}
}

func newConns(ln net.Listener) *conns {
	return &conns{Listener: ln, open: map[*conn]struct{}{}, detached: map[*detached]struct{}{}}
}

func (l *conns) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: nonblock.Of(nc), from: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		nc.Close()
		return nil, net.ErrClosed
	}
	l.open[c] = struct{}{}
	return c, nil
}

func (l *conns) closeAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
	for c := range l.open {
		c.Conn.Close()
	}
	for d := range l.detached {
		d.Conn.Close()
	}
}

// conn is one accepted connection.
type conn struct {
	net.Conn
	from   *conns
	linger atomic.Bool
	once   sync.Once
	err    error
	unused atomic.Pointer[func()] // see ifUnused

	// Of the goroutine that writes.
	gathers gathering
	kept    *[]byte
}

// gathering says what becomes of what is written.
type gathering uint8

const (
	atOnce   gathering = iota // it goes out
	gathered                  // it is kept, until flush
	withNext                  // what was kept goes out with what is written next
)

// gather keeps what is written from now on, until flush or after flushWithNext: fasthttp writes a piece of a stream by parts, each of which is a call of the
// system and wakes the client.
func (c *conn) gather() {
	if c.kept == nil {
		c.kept = keptParts.Get().(*[]byte)
	}
	c.gathers = gathered
}

// flush writes what was kept.
func (c *conn) flush() error {
	if c.kept == nil {
		return nil
	}
	p := c.kept
	c.gathers, c.kept = atOnce, nil
	_, err := c.Conn.Write(*p)
	if cap(*p) <= maxKept {
		*p = (*p)[:0]
		keptParts.Put(p)
	}
	return err
}

// flushWithNext lets what was kept go out with the next write.
func (c *conn) flushWithNext() { c.gathers = withNext }

// Write is net.Conn's.
func (c *conn) Write(p []byte) (int, error) {
	if c.gathers == atOnce {
		return c.Conn.Write(p)
	}
	*c.kept = append(*c.kept, p...)
	if c.gathers == withNext {
		if err := c.flush(); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// maxKept is how large a buffer may be that is used again.
const maxKept = 64 << 10

var keptParts = sync.Pool{New: func() any { b := make([]byte, 0, 16<<10); return &b }}

const (
	lingerTime  = 2 * time.Second
	lingerBytes = 128 << 20
)

// detach takes the connection out of the hands of who holds c: closing c does nothing any more. It is cut with the others still.
func (c *conn) detach() (net.Conn, error) {
	err := net.ErrClosed
	raw := &detached{Conn: c.Conn, from: c.from}
	c.once.Do(func() {
		c.from.mu.Lock()
		defer c.from.mu.Unlock()
		delete(c.from.open, c)
		if c.from.cut {
			c.err = c.Conn.Close()
			return
		}
		c.from.detached[raw] = struct{}{}
		err = nil
	})
	return raw, err
}

// detached is a connection that the HTTP server no longer knows.
type detached struct {
	net.Conn
	from *conns
}

func (d *detached) Close() error {
	d.from.mu.Lock()
	delete(d.from.detached, d)
	d.from.mu.Unlock()
	return d.Conn.Close()
}

func (d *detached) CloseWrite() error {
	if half, ok := d.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// ifUnused has f called when the connection is closed before use. It is for handshakes: after one that could not be answered, or was while the server
// shuts down, fasthttp closes the connection and never calls who was to have it.
func (c *conn) ifUnused(f func()) { c.unused.Store(&f) }

// use reports whether the connection was not closed yet; f is not called then.
func (c *conn) use() bool { return c.unused.Swap(nil) != nil }

// lingerOnClose makes Close wait for the client to stop sending. A connection closed with unread bytes is reset, and the
// client may then lose the response that told it to stop.
func (c *conn) lingerOnClose() { c.linger.Store(true) }

func (c *conn) Close() error {
	c.once.Do(func() {
		if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && c.linger.Load() && half.CloseWrite() == nil {
			if c.Conn.SetReadDeadline(time.Now().Add(lingerTime)) == nil {
				io.CopyN(io.Discard, c.Conn, lingerBytes)
			}
		}
		c.err = c.Conn.Close()
		c.from.mu.Lock()
		delete(c.from.open, c)
		c.from.mu.Unlock()
		if f := c.unused.Swap(nil); f != nil {
			(*f)()
		}
	})
	return c.err
}
