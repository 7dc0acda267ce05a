// Package ws speaks the WebSocket protocol (RFC 6455) over connections that wait most of their lives: one that is idle holds no buffer.
package ws

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

// Opcodes of frames (section 5.2).
const (
	opMore   = 0x0
	opText   = 0x1
	opBinary = 0x2
	opClose  = 0x8
	opPing   = 0x9
	opPong   = 0xA
)

// Codes of closes (section 7.4.1, and the registry of IANA).
const (
	Normal       = 1000
	GoingAway    = 1001
	BadProtocol  = 1002
	NoStatus     = 1005 // the peer's close frame had none; never sent
	Abnormal     = 1006 // there was no close frame; never sent
	BadText      = 1007
	Policy       = 1008
	TooBig       = 1009
	Failed       = 1011
	Restart      = 1012
	TryAgain     = 1013
	maxControl   = 125
	maxReason    = maxControl - 2
	firstPiece   = 16 << 10 // of a message whose length was announced
	bufferSize   = 4 << 10
	largestFrame = 1 << 62
)

// CloseError is how a connection ended: what the peer's close frame said, or what the peer did wrong, which Conn.Close tells it.
type CloseError struct {
	Code   int
	Reason string
	Ours   bool // found here; else the peer sent it
}

func (e *CloseError) Error() string {
	return fmt.Sprintf("websocket: closed with code %d: %s", e.Code, e.Reason)
}

func wrong(code int, reason string) error { return &CloseError{Code: code, Reason: reason, Ours: true} }

// Options of a Conn. Zero fields mean the default.
type Options struct {
	Max       int           // bytes of a message; 1 MiB
	Heartbeat time.Duration // of silence, after which a ping is sent; 0 sends none
	Silence   time.Duration // of the peer, after which it is taken for dead; 0 means never
	Stall     time.Duration // for the peer to send the next piece of a message, or to take what was written; 30 s
	Control   func(f Frame) // sends pings and pongs; nil writes them at once
	Linger    time.Duration // for the peer to answer a close; 2 s
}

// Frame is a message, or a ping or pong, to be written. Its bytes are not changed.
type Frame struct {
	op   byte
	Data []byte
}

// Text, Binary return a message as a frame.
func Text(b []byte) Frame   { return Frame{opText, b} }
func Binary(b []byte) Frame { return Frame{opBinary, b} }

// Message is one that came.
type Message struct {
	Binary bool
	Data   []byte
}

// Conn is one end of a connection. One goroutine may read and another write at the same time.
type Conn struct {
	nc     net.Conn
	o      Options
	client bool
	br     *bufio.Reader // while there may be something in it

	end atomic.Int64 // when reading ends, once the close frame was written; Unix nanoseconds

	mu     sync.Mutex // of writes
	closed bool       // the close frame was written
}

var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, bufferSize) }}

// Server returns the server's end of a connection whose handshake is done.
func Server(nc net.Conn, o *Options) *Conn { return newConn(nc, false, o) }

func newConn(nc net.Conn, client bool, o *Options) *Conn {
	c := &Conn{nc: nc, client: client}
	if o != nil {
		c.o = *o
	}
	if c.o.Max == 0 {
		c.o.Max = 1 << 20
	}
	if c.o.Stall == 0 {
		c.o.Stall = 30 * time.Second
	}
	if c.o.Linger == 0 {
		c.o.Linger = 2 * time.Second
	}
	return c
}

// Read returns the next message. Pings are answered meanwhile. An error ends the connection: it is a *CloseError when the peer said
// goodbye or did something wrong, else what the network said.
func (c *Conn) Read() (Message, error) {
	m, err := c.read()
	if err != nil || c.br != nil && c.br.Buffered() == 0 {
		c.freeReader()
	}
	return m, err
}

func (c *Conn) freeReader() {
	if c.br != nil {
		c.br.Reset(nil)
		readers.Put(c.br)
		c.br = nil
	}
}

func (c *Conn) read() (Message, error) {
	var m Message
	began := false
	for {
		first, err := c.wait()
		if err != nil {
			return m, err
		}
		fin, op := first&0x80 != 0, first&0x0f
		size, mask, err := c.header(first)
		if err != nil {
			return m, err
		}
		if op >= opClose {
			if err := c.control(op, size, mask); err != nil {
				return m, err
			}
			continue
		}
		switch {
		case op == opMore && !began, op != opMore && began, op > opBinary:
			return m, wrong(BadProtocol, "a frame is out of place")
		case op != opMore:
			m.Binary, began = op == opBinary, true
		}
		if size > int64(c.o.Max-len(m.Data)) {
			return m, wrong(TooBig, fmt.Sprintf("a message may have %d bytes", c.o.Max))
		}
		if m.Data, err = c.payload(m.Data, int(size), mask); err != nil {
			return m, err
		}
		if fin {
			if !m.Binary && !utf8.Valid(m.Data) {
				return m, wrong(BadText, "the text is not valid UTF-8")
			}
			return m, nil
		}
	}
}

// wait returns the first byte of the next frame. All the time a connection is idle it is here, without a buffer.
func (c *Conn) wait() (byte, error) {
	began := time.Now() // a reader that had other things to do has not heard either
	for {
		if c.br != nil && c.br.Buffered() == 0 {
			c.freeReader()
		}
		if c.br != nil {
			return c.br.ReadByte()
		}
		if err := c.nc.SetReadDeadline(c.next()); err != nil {
			return 0, err
		}
		var b [1]byte
		n, err := c.nc.Read(b[:])
		if n == 1 {
			c.br = readers.Get().(*bufio.Reader)
			c.br.Reset(c.nc)
			return b[0], c.nc.SetReadDeadline(time.Now().Add(c.o.Stall))
		}
		if err == nil { // a reader may return nothing
			continue
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return 0, err
		}
		if end := c.end.Load(); end != 0 && time.Now().UnixNano() >= end {
			return 0, errClosed
		}
		if c.o.Silence > 0 && time.Since(began) >= c.o.Silence {
			return 0, fmt.Errorf("websocket: nothing came for %s: %w", c.o.Silence, err)
		}
		if err := c.sendControl(opPing, nil); err != nil {
			return 0, err
		}
	}
}

// next returns when a reader that waits looks up.
func (c *Conn) next() time.Time {
	if end := c.end.Load(); end != 0 {
		return time.Unix(0, end)
	}
	if c.o.Heartbeat == 0 {
		return time.Time{}
	}
	return time.Now().Add(c.o.Heartbeat)
}

func (c *Conn) header(first byte) (size int64, mask [4]byte, err error) {
	if first&0x70 != 0 {
		return 0, mask, wrong(BadProtocol, "reserved bits are set")
	}
	second, err := c.br.ReadByte()
	if err != nil {
		return 0, mask, err
	}
	control := first&0x08 != 0
	size = int64(second & 0x7f)
	switch {
	case control && (first&0x80 == 0 || size > maxControl):
		return 0, mask, wrong(BadProtocol, "a control frame is fragmented or too long")
	case second&0x80 == 0 != c.client:
		return 0, mask, wrong(BadProtocol, "a frame of a client must be masked, and one of a server not")
	}
	var b [8]byte
	switch size {
	case 126:
		if _, err = io.ReadFull(c.br, b[:2]); err == nil {
			size = int64(binary.BigEndian.Uint16(b[:2]))
		}
	case 127:
		if _, err = io.ReadFull(c.br, b[:8]); err == nil {
			n := binary.BigEndian.Uint64(b[:8])
			if n >= largestFrame {
				return 0, mask, wrong(TooBig, "a frame is larger than any message may be")
			}
			size = int64(n)
		}
	}
	if err == nil && !c.client {
		_, err = io.ReadFull(c.br, mask[:])
	}
	return size, mask, err
}

// payload reads size bytes behind to. It takes memory as they come, not as they are announced.
func (c *Conn) payload(to []byte, size int, mask [4]byte) ([]byte, error) {
	key := 0
	for size > 0 {
		n := min(size, max(firstPiece, len(to)))
		at := len(to)
		if cap(to)-at < n {
			grown := make([]byte, at, at+n)
			copy(grown, to)
			to = grown
		}
		to = to[:at+n]
		if err := c.nc.SetReadDeadline(time.Now().Add(c.o.Stall)); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(c.br, to[at:]); err != nil {
			return nil, err
		}
		if !c.client {
			key = unmask(to[at:], mask, key)
		}
		size -= n
	}
	return to, nil
}

func unmask(b []byte, mask [4]byte, at int) int {
	for i := range b {
		b[i] ^= mask[(at+i)&3]
	}
	return (at + len(b)) & 3
}

// control deals with a ping, a pong or a close.
func (c *Conn) control(op byte, size int64, mask [4]byte) error {
	b, err := c.payload(nil, int(size), mask)
	if err != nil {
		return err
	}
	switch op {
	case opPing:
		return c.sendControl(opPong, b)
	case opPong:
		return nil
	case opClose:
		return closeError(b)
	}
	return wrong(BadProtocol, "the opcode is not known")
}

func closeError(b []byte) error {
	if len(b) == 0 {
		return &CloseError{Code: NoStatus}
	}
	if len(b) == 1 {
		return wrong(BadProtocol, "a close frame has half a code")
	}
	code := int(binary.BigEndian.Uint16(b))
	switch {
	case !MayClose(code) && code != GoingAway && code != Restart:
		return wrong(BadProtocol, "the code of a close is not valid")
	case !utf8.Valid(b[2:]):
		return wrong(BadText, "the reason of a close is not valid UTF-8")
	}
	return &CloseError{Code: code, Reason: string(b[2:])}
}

// MayClose reports whether code may stand in a close frame: those that the protocol or its registry define for that, and 3000 to 4999.
func MayClose(code int) bool {
	return code >= 1000 && code <= 1003 || code >= 1007 && code <= 1014 || code >= 3000 && code <= 4999
}

func (c *Conn) sendControl(op byte, b []byte) error {
	if c.o.Control != nil {
		c.o.Control(Frame{op, b})
		return nil
	}
	return c.Write(Frame{op, b})
}

var errClosed = errors.New("websocket: the close frame was sent")

// Write writes frames. After an error the connection is of no use any more.
func (c *Conn) Write(frames ...Frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range frames {
		if c.closed {
			return errClosed
		}
		if err := c.writeFrame(f); err != nil {
			return err
		}
	}
	return nil
}

func (c *Conn) writeFrame(f Frame) error {
	if err := c.nc.SetWriteDeadline(time.Now().Add(c.o.Stall)); err != nil {
		return err
	}
	head := make([]byte, 0, 14)
	head = append(head, 0x80|f.op)
	switch n := len(f.Data); {
	case n < 126:
		head = append(head, byte(n))
	case n < 1<<16:
		head = binary.BigEndian.AppendUint16(append(head, 126), uint16(n))
	default:
		head = binary.BigEndian.AppendUint64(append(head, 127), uint64(n))
	}
	data := f.Data
	if c.client {
		mask := newMask()
		head[1] |= 0x80
		head = append(head, mask[:]...)
		data = append([]byte(nil), data...)
		unmask(data, mask, 0)
	}
	if len(data) <= 1<<10 { // one packet, one call
		_, err := c.nc.Write(append(head, data...))
		return err
	}
	bufs := net.Buffers{head, data}
	_, err := bufs.WriteTo(c.nc)
	return err
}

// Deadline bounds what a Write under way may still take.
func (c *Conn) Deadline(d time.Duration) error { return c.nc.SetWriteDeadline(time.Now().Add(d)) }

// Close writes a close frame, once. The reader goes on until the peer's close comes, the connection ends or the peer has had its time.
// A reason that is too long is cut.
func (c *Conn) Close(code int, reason string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	var b []byte
	if code != NoStatus {
		b = append(binary.BigEndian.AppendUint16(nil, uint16(code)), Clip(reason)...)
	}
	err := c.writeFrame(Frame{opClose, b})
	c.closed = true
	end := time.Now().Add(c.o.Linger)
	c.end.Store(end.UnixNano())
	return errors.Join(err, c.nc.SetReadDeadline(end))
}

// Clip cuts a reason to what a close frame can hold.
func Clip(s string) string {
	if len(s) <= maxReason {
		return s
	}
	s = s[:maxReason]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s
}

// Shut ends the connection at once.
func (c *Conn) Shut() error { return c.nc.Close() }

// Finish ends the connection after the close frame was written: it waits for the peer to have read it, which a connection that is closed
// with unread bytes would keep it from.
func (c *Conn) Finish() error {
	if half, ok := c.nc.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil && c.nc.SetReadDeadline(time.Now().Add(c.o.Linger)) == nil {
		_, _ = io.CopyN(io.Discard, c.nc, 64<<20)
	}
	return c.nc.Close()
}
