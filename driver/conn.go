package driver

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// Conn is a Stream that is open: bytes both ways, in frames of a length (4 bytes, big-endian, 1 to MaxFrame) and as many bytes. A length of 0 is the end
// of what the sender has. A connection that ends without it was cut, which a socket alone would not tell from an end: a file that was half sent must not
// be taken for whole. One goroutine may read and another write.
type Conn struct {
	conn net.Conn
	r    *bufio.Reader
	left int // of the frame that is being read
	end  error

	mu  sync.Mutex // guards the below, and that frames are not mixed
	buf []byte
	fin bool
}

// MaxFrame bounds a frame of a Conn, and one of an exec.
const MaxFrame = 64 << 10

// ErrCut is what reading returns when the other end went away before its end.
var ErrCut = errors.New("the stream was cut before its end")

// NewConn returns the Conn over c. r has what was read of c already; nil for nothing.
func NewConn(c net.Conn, r *bufio.Reader) *Conn {
	if r == nil {
		r = bufio.NewReaderSize(c, MaxFrame)
	}
	return &Conn{conn: c, r: r}
}

func (c *Conn) Read(p []byte) (int, error) {
	if len(p) == 0 || c.end != nil {
		return 0, c.end
	}
	if c.left == 0 {
		if c.end = c.head(); c.end != nil {
			return 0, c.end
		}
	}
	n, err := c.r.Read(p[:min(len(p), c.left)])
	c.left -= n
	if err != nil && n == 0 {
		c.end = cut(err)
		return 0, c.end
	}
	return n, nil
}

// Gone waits until the connection has ended, for who has read it up to io.EOF: the other end may still listen, and goes by closing.
func (c *Conn) Gone() { _, _ = io.Copy(io.Discard, c.r) }

func (c *Conn) head() error {
	var h [4]byte
	if _, err := io.ReadFull(c.r, h[:]); err != nil {
		return cut(err)
	}
	n := binary.BigEndian.Uint32(h[:])
	if n > MaxFrame {
		return errors.New("a frame of a stream is too long")
	}
	if n == 0 {
		return io.EOF
	}
	c.left = int(n)
	return nil
}

func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrCut
	}
	return fmt.Errorf("%w: %w", ErrCut, err)
}

func (c *Conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	done := 0
	for done < len(p) {
		n := min(len(p)-done, MaxFrame)
		if err := c.frame(p[done : done+n]); err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

func (c *Conn) frame(p []byte) error {
	if c.fin {
		return io.ErrClosedPipe
	}
	c.buf = binary.BigEndian.AppendUint32(c.buf[:0], uint32(len(p)))
	c.buf = append(c.buf, p...)
	_, err := c.conn.Write(c.buf)
	return err
}

// CloseWrite tells the other end that this was all. It may be called again.
func (c *Conn) CloseWrite() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fin {
		return nil
	}
	err := c.frame(nil)
	c.fin = true
	return err
}

// Close closes the connection. Without CloseWrite before, the other end sees that it was cut.
func (c *Conn) Close() error { return c.conn.Close() }
