package keeper

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"sync"
	"time"
)

// socket is a Unix socket all of whose connections can be cut, also those that were taken over from the HTTP server.
type socket struct {
	net.Listener

	mu    sync.Mutex
	conns map[*socketConn]bool
	over  bool
}

type socketConn struct {
	net.Conn
	s *socket
}

// listen listens at a path, where a server that died may have left a socket.
func listen(path string) (*socket, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o666); err != nil { // the user of a box may be any on the host; nobody else comes into the folder above
		_ = l.Close()
		return nil, err
	}
	return &socket{Listener: l, conns: map[*socketConn]bool{}}, nil
}

// Bounds of a box: what is more would cost the host files and memory.
const (
	maxConns  = 1024            // connections at once; more are closed
	maxHeader = 64 << 10        // bytes of a request's header, which is what a door asks for
	idleConn  = 2 * time.Minute // of a connection between two requests: most clients drop one after 90 s, and do not meet one that is being closed
)

func (s *socket) Accept() (net.Conn, error) {
	for {
		c, err := s.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if sc := s.take(c); sc != nil {
			return sc, nil
		}
		_ = c.Close()
	}
}

// take returns nil when there are too many.
func (s *socket) take(c net.Conn) *socketConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || len(s.conns) >= maxConns {
		return nil
	}
	sc := &socketConn{c, s}
	s.conns[sc] = true
	return sc
}

func (c *socketConn) Close() error {
	c.s.mu.Lock()
	delete(c.s.conns, c)
	c.s.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite is what a tunnel looks for.
func (c *socketConn) CloseWrite() error { return c.Conn.(*net.UnixConn).CloseWrite() }

// cut closes the socket and all its connections.
func (s *socket) cut() {
	_ = s.Close()
	s.mu.Lock()
	s.over = true
	conns := s.conns
	s.conns = map[*socketConn]bool{}
	s.mu.Unlock()
	for c := range conns {
		_ = c.Conn.Close()
	}
}
