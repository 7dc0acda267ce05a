package inside

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
)

const openWithin = 30 * time.Second

// open opens the stream that a command names. It is closed when ctx has ended, and by its Close.
func (b *box) open(ctx context.Context, s *driver.Stream) (*stream, error) {
	if s == nil {
		return nil, agent.Errorf(agent.Invalid, "the command has no stream")
	}
	conn, err := b.dialSocket(ctx, "", "")
	if err != nil {
		return nil, agent.Wrap(agent.Unavailable, err, "the stream cannot be opened")
	}
	c, err := upgrade(conn, s)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	st := &stream{Conn: c}
	st.stop = context.AfterFunc(ctx, func() { _ = c.Close() })
	return st, nil
}

type stream struct {
	*driver.Conn
	stop func() bool
}

func (s *stream) Close() error {
	s.stop()
	return s.Conn.Close()
}

// upgrade asks for the stream, as RFC 9110 section 7.8 has it.
func upgrade(conn net.Conn, s *driver.Stream) (*driver.Conn, error) {
	_ = conn.SetDeadline(time.Now().Add(openWithin))
	_, err := io.WriteString(conn, "POST "+driver.StreamPath+s.ID+" HTTP/1.1\r\nHost: skep\r\nAuthorization: Bearer "+s.Key+
		"\r\nConnection: Upgrade\r\nUpgrade: "+driver.StreamProtocol+"\r\nContent-Length: 0\r\n\r\n")
	if err != nil {
		return nil, agent.Wrap(agent.Unavailable, err, "the stream cannot be opened")
	}
	r := bufio.NewReaderSize(conn, driver.MaxFrame)
	answer, err := http.ReadResponse(r, nil)
	if err != nil {
		return nil, agent.Wrap(agent.Unavailable, err, "the stream cannot be opened")
	}
	if answer.StatusCode != http.StatusSwitchingProtocols {
		return nil, agent.Errorf(agent.Unavailable, "the stream cannot be opened: the control plane answers %s", answer.Status)
	}
	_ = conn.SetDeadline(time.Time{})
	return driver.NewConn(conn, r), nil
}
