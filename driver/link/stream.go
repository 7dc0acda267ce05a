package link

import (
	"bufio"
	"context"
	"crypto/subtle"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
)

// Conn is a stream that the driver has opened. Read returns io.EOF only at the end that the driver has told; driver.ErrCut when it went away before.
type Conn interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// Stream is a connection that the driver is to open, as a command tells it to.
type Stream struct {
	l    *Link
	args driver.Stream
	open chan struct{} // closed when conn or err is there

	mu   sync.Mutex
	conn *driver.Conn
	err  error
	set  bool
}

// Stream makes a stream. Close has to be called when it is of no more use, which Conn.Close does too.
func (l *Link) Stream() (*Stream, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stand == lost || l.stand == closed {
		return nil, l.why
	}
	if len(l.streams) >= maxStreams {
		return nil, agent.Errorf(agent.Exhausted, "%d streams of this sandbox are open already", maxStreams)
	}
	st := &Stream{l: l, args: driver.Stream{ID: NewSecret(), Key: NewSecret()}, open: make(chan struct{})}
	l.streams[st.args.ID] = st
	return st, nil
}

// Args goes into the command.
func (st *Stream) Args() *driver.Stream { return &st.args }

// Conn waits until the driver has opened the stream. It is to be called by one goroutine.
func (st *Stream) Conn(ctx context.Context) (Conn, error) {
	select {
	case <-st.open:
	case <-ctx.Done():
		return nil, ended(ctx, "by opening a stream")
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.err != nil {
		return nil, st.err
	}
	return &closing{st.conn, st}, nil
}

// closing is a Conn that forgets its Stream when it is closed.
type closing struct {
	*driver.Conn
	st *Stream
}

func (c *closing) Close() error { return c.st.Close() }

// Close ends the stream, whether the driver has opened it or not. It may be called again.
func (st *Stream) Close() error {
	st.l.mu.Lock()
	delete(st.l.streams, st.args.ID)
	st.l.mu.Unlock()
	st.abort(agent.Errorf(agent.Cancelled, "the stream was closed"))
	return nil
}

func (st *Stream) abort(why error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.err = why
	if st.conn != nil {
		_ = st.conn.Close()
	}
	if !st.set {
		st.set = true
		close(st.open)
	}
}

// take gives the stream its connection, once.
func (st *Stream) take(c *driver.Conn) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.set {
		return false
	}
	st.conn, st.set = c, true
	close(st.open)
	return true
}

// serveStream turns the request of a driver into the stream that it names. Of who does not know the key, it says nothing about which streams there are.
func (l *Link) serveStream(w http.ResponseWriter, r *http.Request, id string) {
	l.mu.Lock()
	st := l.streams[id]
	l.mu.Unlock()
	key, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if st == nil || !ok || subtle.ConstantTimeCompare([]byte(key), []byte(st.args.Key)) != 1 {
		l.log.Warn("refused a stream")
		http.Error(w, "no such stream", http.StatusNotFound)
		return
	}
	if r.Method != http.MethodPost || r.Header.Get("Upgrade") != driver.StreamProtocol {
		http.Error(w, "a stream is a POST with Upgrade: "+driver.StreamProtocol, http.StatusUpgradeRequired)
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, "no stream can be made here", http.StatusInternalServerError)
		return
	}
	_ = conn.SetDeadline(time.Time{})
	c := driver.NewConn(conn, bufio.NewReaderSize(buffered.Reader, driver.MaxFrame))
	_, err = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+driver.StreamProtocol+"\r\n\r\n")
	if err != nil || !st.take(c) {
		_ = conn.Close()
		l.log.Warn("refused a stream that was opened before", "error", errors.Join(err))
	}
}
