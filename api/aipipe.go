package api

import (
	"errors"
	"io"
	"iter"
	"net"
	"net/http"
	"strconv"
	"time"
)

// aiPipe is the gateway.Sink of a request. An answer that says its length is kept until it is whole. Any other is a stream, for which the gateway runs as a
// coroutine of the connection's goroutine, which writes each piece before the gateway goes on. So no piece waits for another goroutine, and none is copied.
type aiPipe struct {
	conn   net.Conn // nil for an answer that is whole
	resume func() ([]byte, bool)
	stop   func()
	yield  func([]byte) bool // to the connection's goroutine; nil when there is none

	streams bool
	wrote   bool
	flows   bool // the first piece of the stream has come, before which no head was sent
	last    bool // no piece comes after the next
	left    bool // nobody reads any more
	status  int
	header  http.Header
	err     error // why the answer is not whole
	buf     []byte

	first []byte    // the piece that came first, until it is sent
	until time.Time // the connection's deadline
}

// newAIPipe returns a pipe whose gateway is serve, which runs until the first piece of a stream with begin, and goes on with WriteTo. Close ends it. Without
// streams the answer is kept until it is whole, and there is no coroutine.
func newAIPipe(conn net.Conn, streams bool, serve func(*aiPipe) error) *aiPipe {
	p := &aiPipe{conn: conn}
	if !streams {
		p.resume = func() ([]byte, bool) {
			_, p.err = guarded(func() (any, error) { return nil, serve(p) })
			return nil, false
		}
		return p
	}
	p.resume, p.stop = iter.Pull(func(yield func([]byte) bool) {
		growStack()
		p.yield = yield
		_, p.err = guarded(func() (any, error) { return nil, serve(p) })
	})
	return p
}

// growStack makes a new coroutine's stack as large as a call of a model needs, while there is little on it: otherwise it is copied several times on the
// way down.
//
//go:noinline
func growStack() {
	var room [12 << 10]byte
	use(room[:])
}

//go:noinline
func use([]byte) {}

// begin runs the gateway until the answer is whole, or a stream has its first piece. It reports whether it is a stream.
func (p *aiPipe) begin() bool {
	p.first, _ = p.resume()
	return p.streams
}

// Begin is gateway.Sink's.
func (p *aiPipe) Begin(status int, header http.Header) error {
	p.status, p.header, p.wrote = status, header, true
	p.streams = p.yield != nil && status == http.StatusOK && header["Content-Length"] == nil && header["Content-Type"] != nil
	return nil
}

// Write is gateway.Sink's.
func (p *aiPipe) Write(b []byte) (int, error) {
	switch {
	case p.left:
		return 0, io.ErrClosedPipe
	case !p.streams:
		p.buf = append(p.buf, b...)
		return len(b), nil
	}
	p.flows = true
	if !p.yield(b) {
		p.left = true
		return 0, io.ErrClosedPipe
	}
	return len(b), nil
}

// Last is gateway.Ender's.
func (p *aiPipe) Last() { p.last = true }

// Beat is gateway.Beater's: it writes a piece from another goroutine. The connection's own waits in the gateway then, and has sent all that it had.
func (p *aiPipe) Beat(b []byte) error {
	if !p.flows || len(b) == 0 {
		return nil
	}
	piece := strconv.AppendInt(make([]byte, 0, len(b)+16), int64(len(b)), 16)
	piece = append(piece, "\r\n"...)
	piece = append(piece, b...)
	piece = append(piece, "\r\n"...)
	if err := p.conn.SetWriteDeadline(time.Now().Add(stallTimeout)); err != nil {
		return err
	}
	_, err := p.conn.Write(piece)
	return err
}

// errCut ends a response short, which its reader notices.
var errCut = errors.New("the answer of the model broke off")

// cutAfter lets a client read the frame that says why, before its connection ends: some drop what they have not read when that happens.
const cutAfter = 100 * time.Millisecond

// WriteTo sends the stream. fasthttp makes a chunk of each piece, which is sent at once; the last one with what ends the stream.
func (p *aiPipe) WriteTo(w io.Writer) (n int64, err error) {
	c, _ := p.conn.(*conn)
	for b, ok := p.first, true; ; b, ok = p.resume() {
		if !ok {
			if p.err != nil {
				time.Sleep(cutAfter)
				return n, errCut
			}
			return n, nil
		}
		if err := p.stall(); err != nil {
			return n, err
		}
		if c != nil && len(b) < maxKept {
			c.gather()
		}
		m, err := w.Write(b)
		if n += int64(m); err != nil {
			return n, err
		}
		switch {
		case c == nil:
		case p.last:
			c.flushWithNext()
		default:
			err = c.flush()
		}
		if err != nil {
			return n, err
		}
	}
}

// stall gives the client time to take what it is sent.
func (p *aiPipe) stall() error {
	now := time.Now()
	if p.until.Sub(now) > stallTimeout-time.Second {
		return nil
	}
	p.until = now.Add(stallTimeout)
	return p.conn.SetWriteDeadline(p.until)
}

// SupportsBodyWriteTo is fasthttp.BodyWriterTo's.
func (p *aiPipe) SupportsBodyWriteTo() bool { return true }

// Read is for what wants no WriteTo.
func (p *aiPipe) Read(b []byte) (int, error) {
	for len(p.first) == 0 {
		piece, ok := p.resume()
		switch {
		case ok:
			p.first = piece
		case p.err != nil:
			time.Sleep(cutAfter)
			return 0, errCut
		default:
			return 0, io.EOF
		}
	}
	if err := p.stall(); err != nil {
		return 0, err
	}
	n := copy(b, p.first)
	p.first = p.first[n:]
	return n, nil
}

func (p *aiPipe) whole() raw {
	return raw{status: p.status, contentType: p.header.Get("Content-Type"), header: headerList(p.header), body: p.buf}
}

func headerList(h http.Header) [][2]string {
	list := make([][2]string, 0, len(h))
	for name, vs := range h {
		switch name {
		case "Content-Type", "Content-Length", "Connection", "Transfer-Encoding":
			continue
		}
		for _, v := range vs {
			if one := [2]string{name, v}; validHeader(one) {
				list = append(list, one)
			}
		}
	}
	return list
}
