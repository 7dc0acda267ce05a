package api

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// conns is a listener that can cut the connections it has accepted, and that closes them gently on request.
type conns struct {
	net.Listener
	mu   sync.Mutex
	open map[*conn]struct{}
	cut  bool
}

func newConns(ln net.Listener) *conns { return &conns{Listener: ln, open: map[*conn]struct{}{}} }

func (l *conns) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: nc, from: l}
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
}

// conn is one accepted connection.
type conn struct {
	net.Conn
	from   *conns
	linger atomic.Bool
	once   sync.Once
	err    error
}

const (
	lingerTime  = 2 * time.Second
	lingerBytes = 128 << 20
)

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
	})
	return c.err
}
