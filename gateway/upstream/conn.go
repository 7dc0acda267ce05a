package upstream

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/skep-dev/skep/internal/nonblock"
)

const (
	readBytes  = 16 << 10
	writeBytes = 8 << 10
	// apart is from how many bytes on a request's body is written by a goroutine of its own, as a provider may answer before it has read all of it.
	apart = 256 << 10
	// mostInterim is how many interim answers (1xx) may come before the answer.
	mostInterim = 5
)

// conn is one connection, which makes one exchange at a time.
type conn struct {
	net.Conn
	t     *Transport
	to    place
	raw   syscall.RawConn // nil where the socket cannot be asked
	r     *bufio.Reader
	w     *bufio.Writer
	since time.Time // when it became idle; zero in its first exchange
	wrote int64     // of the request
	cut   error     // by which a write failed
	left  int64     // bytes that the head of the response may still have; below zero, it has been read
}

func newConn(t *Transport, to place, nc net.Conn) *conn {
	c := &conn{Conn: nonblock.Of(nc), t: t, to: to}
	c.r, c.w = bufio.NewReaderSize(c, readBytes), bufio.NewWriterSize(c, writeBytes)
	under := nc
	if secure, ok := nc.(*tls.Conn); ok {
		under = secure.NetConn()
	}
	if s, ok := under.(syscall.Conn); ok {
		c.raw, _ = s.SyscallConn()
	}
	return c
}

// Read is net.Conn's, within the bound of a head.
func (c *conn) Read(p []byte) (int, error) {
	switch {
	case c.left == 0:
		return 0, fmt.Errorf("upstream: the head of the response has more than %d bytes", c.t.head)
	case c.left > 0 && int64(len(p)) > c.left:
		p = p[:c.left]
	}
	n, err := c.Conn.Read(p)
	if c.left > 0 {
		c.left -= int64(n)
	}
	return n, err
}

// Write is net.Conn's.
func (c *conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.wrote += int64(n)
	c.cut = err
	return n, err
}

// exchange sends a request and reads the head of its response, whose body goes on with the connection. After an error the connection is closed.
func (c *conn) exchange(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	e := &exchange{c: c, stop: context.AfterFunc(ctx, func() { _ = c.Conn.Close() })}
	c.wrote = 0
	var unsent error
	if r.ContentLength > apart {
		e.sent = make(chan error, 1)
		go func() { e.sent <- c.send(r) }()
	} else if unsent = c.send(r); unsent != nil && (c.wrote == 0 || !refusedToRead(unsent)) {
		e.end(false)
		return nil, cause(ctx, unsent)
	}
	res, err := c.answer(r)
	if err != nil {
		e.end(false)
		if unsent != nil {
			err = unsent
		}
		return nil, cause(ctx, err)
	}
	e.keep = unsent == nil && !res.Close && !r.Close
	e.from, res.Body = res.Body, e
	if e.from == http.NoBody {
		e.end(true)
		res.Body = http.NoBody
	}
	return res, nil
}

// cause is the reason of an error: why the request was given up, if it was.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// refusedToRead reports whether a write failed as the other side does not read any more: it may have answered.
func refusedToRead(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// send writes a request.
func (c *conn) send(r *http.Request) error {
	c.w.Reset(c)
	var err error
	if plain(r) {
		err = write(c.w, r)
	} else {
		err = r.Write(c.w)
	}
	if err == nil {
		err = c.w.Flush()
	}
	if c.cut != nil { // net/http makes one of the body's of it, which does not tell what it was
		return c.cut
	}
	return err
}

// answer reads the head of a response.
func (c *conn) answer(r *http.Request) (*http.Response, error) {
	for n := 0; ; n++ {
		c.left = c.t.head
		res, err := c.head(r)
		c.left = -1
		switch {
		case errors.Is(err, io.ErrUnexpectedEOF):
			return nil, errors.New("upstream: the connection was closed before the response")
		case err != nil:
			return nil, err
		case res.StatusCode == http.StatusSwitchingProtocols:
			return nil, errors.New("upstream: the protocol was switched unasked")
		case res.StatusCode >= 200:
			return res, nil
		case n == mostInterim:
			return nil, errors.New("upstream: there were too many interim responses")
		}
	}
}

// head reads one head of a response.
func (c *conn) head(r *http.Request) (*http.Response, error) {
	if res := readUsual(c.r, r); res != nil {
		return res, nil
	}
	return http.ReadResponse(c.r, r)
}

// exchange is the body of a response.
type exchange struct {
	c    *conn
	from io.ReadCloser
	stop func() bool // ends the watch over the request's context
	sent chan error  // how writing ended, where it has a goroutine of its own
	keep bool        // the connection may be used again after the body
	over error       // what a read returns once it has ended
}

// Read is io.Reader's.
func (e *exchange) Read(p []byte) (int, error) {
	if e.over != nil {
		return 0, e.over
	}
	n, err := e.from.Read(p)
	if err != nil {
		e.over = err
		e.end(err == io.EOF)
	}
	return n, err
}

// Close gives the connection up, unless the body was read to its end.
func (e *exchange) Close() error {
	if e.over == nil {
		e.over = http.ErrBodyReadAfterClose
		e.end(false)
	}
	return nil
}

// end keeps the connection after a response that was read whole, or closes it. Once it returns, nothing of the exchange goes on.
func (e *exchange) end(whole bool) {
	watched := e.stop()
	keep := whole && watched && e.keep && e.c.r.Buffered() == 0
	if e.sent != nil {
		if keep {
			select {
			case err := <-e.sent:
				e.sent, keep = nil, err == nil
			default: // it answered before it had read the request
				keep = false
			}
		}
	}
	if keep {
		e.c.t.put(e.c)
		return
	}
	_ = e.c.Conn.Close()
	if e.sent != nil {
		<-e.sent
	}
}
