package api

import (
	"context"
	"errors"
	"io"
	"net"
	"time"
)

// stream is a result that is sent as it comes to be.
type stream struct {
	status      int // 0 means 200
	contentType string
	header      [][2]string
	first       []byte // sent at once
	beat        []byte // sent when nothing else was for the heartbeat time
	finish      bool   // whether it goes on to its end after the server was told to stop

	// body is what is sent, in place of first, beat and next. The header goes with what it writes first.
	body bodyWriter

	// next blocks until there is more, and returns io.EOF after the last. Its result is valid until it is called again.
	next  func(context.Context) ([]byte, error)
	close func() // called once, by the connection's goroutine
}

// streamBody is what fasthttp reads a stream's bytes from, on the connection's own goroutine: a listener costs no more
// than that one. fasthttp cannot see that a client has gone; the heartbeats find out, as writes that fail.
type streamBody struct {
	*stream
	ctx       context.Context
	heartbeat time.Duration
	conn      net.Conn
	pending   []byte
}

// ownBody is a body with a stream's Close.
type ownBody struct {
	bodyWriter
	close func()
}

type bodyWriter interface {
	io.Reader
	io.WriterTo
	SupportsBodyWriteTo() bool
}

func (b *ownBody) Close() error {
	b.close()
	return nil
}

func (s *Server) newStreamBody(l life, st *stream, conn net.Conn) io.ReadCloser {
	if st.body != nil {
		return &ownBody{st.body, st.close}
	}
	ctx := l.soft
	if st.finish {
		ctx = l.hard
	}
	return &streamBody{stream: st, ctx: ctx, heartbeat: s.o.Heartbeat, conn: conn, pending: st.first}
}

func (b *streamBody) Read(p []byte) (int, error) {
	for len(b.pending) == 0 {
		ctx, cancel := context.WithTimeout(b.ctx, b.heartbeat)
		out, err := b.next(ctx)
		cancel()
		switch {
		case err == nil:
			b.pending = out
		case errors.Is(err, io.EOF) || b.ctx.Err() != nil && !b.finish:
			return 0, io.EOF
		case ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded):
			b.pending = b.beat
		default:
			return 0, err // ends the response short, which its reader notices
		}
	}
	if err := b.conn.SetWriteDeadline(time.Now().Add(stallTimeout)); err != nil {
		return 0, err
	}
	n := copy(p, b.pending)
	b.pending = b.pending[n:]
	return n, nil
}

func (b *streamBody) Close() error {
	b.stream.close()
	return nil
}
