package api

import (
	"errors"
	"io"
	"net"
	"slices"
	"testing"
)

// spoken is a connection that notes what goes out by one write.
type spoken struct {
	net.Conn
	writes []string
	fails  error
}

func (s *spoken) Write(p []byte) (int, error) {
	if s.fails != nil {
		return 0, s.fails
	}
	s.writes = append(s.writes, string(p))
	return len(p), nil
}

// The parts of a piece go out together, and the last piece with what fasthttp writes after it.
func TestConnGathersPieces(t *testing.T) {
	out := &spoken{}
	c := &conn{Conn: out}
	say := func(parts ...string) {
		t.Helper()
		for _, p := range parts {
			if n, err := io.WriteString(c, p); n != len(p) || err != nil {
				t.Fatal(n, err)
			}
		}
	}
	say("a")
	c.gather()
	say("head ", "1\r\n", "b")
	if err := c.flush(); err != nil {
		t.Fatal(err)
	}
	if err := c.flush(); err != nil { // nothing is left
		t.Fatal(err)
	}
	say("beat")
	c.gather()
	say("2\r\n", "c")
	c.flushWithNext()
	say("0\r\n\r\n", "next")
	if want := []string{"a", "head 1\r\nb", "beat", "2\r\nc0\r\n\r\n", "next"}; !slices.Equal(out.writes, want) {
		t.Errorf("%q", out.writes)
	}
	out.fails = errors.New("gone")
	c.gather()
	say("x")
	c.flushWithNext()
	if _, err := io.WriteString(c, "y"); !errors.Is(err, out.fails) {
		t.Error(err)
	}
}
