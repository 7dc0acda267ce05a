package ws

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fasthttp/websocket"
)

// pair returns the two ends of a connection.
func pair(t testing.TB, o *Options) (server *Conn, client net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	client, err = net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	nc, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close(); client.Close() })
	return Server(nc, o), client
}

func ends(t *testing.T, c *Conn, code int) {
	t.Helper()
	for {
		_, err := c.Read()
		if err == nil {
			continue
		}
		if e, ok := errors.AsType[*CloseError](err); !ok || e.Code != code {
			t.Errorf("%v, want code %d", err, code)
		}
		return
	}
}

// masked returns a client's frame with a mask of zeros.
func masked(first byte, payload string) string {
	return string([]byte{first, 0x80 | byte(len(payload)), 0, 0, 0, 0}) + payload
}

// What section 5 forbids ends the connection with the code of section 7.4.1.
func TestWrongFrames(t *testing.T) {
	for name, tt := range map[string]struct {
		bytes string
		code  int
	}{
		"not masked":              {"\x81\x01a", BadProtocol},
		"reserved bit":            {masked(0xC1, "a"), BadProtocol},
		"reserved opcode":         {masked(0x83, "a"), BadProtocol},
		"reserved control":        {masked(0x8B, "a"), BadProtocol},
		"fragmented ping":         {masked(0x09, "a"), BadProtocol},
		"long ping":               {"\x89\xfe\x00\x7e", BadProtocol},
		"continuation alone":      {masked(0x80, "a"), BadProtocol},
		"text within a text":      {masked(0x01, "a") + masked(0x81, "b"), BadProtocol},
		"half a code":             {masked(0x88, "\x03"), BadProtocol},
		"code that is never sent": {masked(0x88, "\x03\xed"), BadProtocol},
		"reason not UTF-8":        {masked(0x88, "\x03\xe8\xff"), BadText},
		"text not UTF-8":          {masked(0x81, "\xff"), BadText},
		"announced too much":      {"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00", TooBig},
		"too much in parts":       {masked(0x02, strings.Repeat("x", 60)) + masked(0x80, strings.Repeat("x", 60)), TooBig},
		"close":                   {masked(0x88, "\x0f\xa0bye"), 4000},
		"close without a code":    {masked(0x88, ""), NoStatus},
	} {
		t.Run(name, func(t *testing.T) {
			c, peer := pair(t, &Options{Max: 100})
			if _, err := io.WriteString(peer, tt.bytes); err != nil {
				t.Fatal(err)
			}
			ends(t, c, tt.code)
		})
	}
}

func TestFragmentsAndPings(t *testing.T) {
	c, peer := pair(t, nil)
	frames := masked(0x01, "a\xe2") + masked(0x89, "?") + masked(0x00, "\x82") + masked(0x80, "\xacb") + masked(0x82, "\x00\xff") + masked(0x81, "")
	for _, b := range []byte(frames) { // a byte at a time
		if _, err := peer.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []Message{{false, []byte("a€b")}, {true, []byte{0, 255}}, {false, nil}} {
		m, err := c.Read()
		if err != nil || m.Binary != want.Binary || !bytes.Equal(m.Data, want.Data) {
			t.Errorf("%+v %v, want %+v", m, err, want)
		}
	}
	pong := make([]byte, 3)
	if _, err := io.ReadFull(peer, pong); err != nil || string(pong) != "\x8a\x01?" {
		t.Errorf("%q %v", pong, err)
	}
	if c.br != nil {
		t.Error("an idle connection holds a buffer")
	}
}

// A peer that answers no ping is given up; one that answers is not.
func TestSilence(t *testing.T) {
	c, peer := pair(t, &Options{Heartbeat: time.Millisecond, Silence: 20 * time.Millisecond})
	go io.Copy(io.Discard, peer)
	if _, err := c.Read(); err == nil || !strings.Contains(err.Error(), "nothing came") {
		t.Error(err)
	}
}

// Both ends against the library that others use.
func TestOthers(t *testing.T) {
	up := websocket.Upgrader{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no" {
			http.Error(w, "not here", http.StatusTeapot)
			return
		}
		conn, err := up.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer conn.Close()
		for {
			kind, b, err := conn.ReadMessage()
			if err != nil {
				return
			}
			if string(b) == "close" {
				_ = conn.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(4002, "as you like"))
				return
			}
			if conn.WriteMessage(kind, b) != nil {
				return
			}
		}
	}))
	defer srv.Close()
	c, err := Dial(t.Context(), srv.URL+"/yes", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Shut()
	for _, n := range []int{0, 1, 125, 126, 1024, 1025, 65535, 65536, 1 << 20} {
		want := bytes.Repeat([]byte{'n'}, n)
		for _, f := range []Frame{Text(want), Binary(want)} {
			if err := c.Write(f); err != nil {
				t.Fatal(err)
			}
			if m, err := c.Read(); err != nil || !bytes.Equal(m.Data, want) || m.Binary != (f.op == opBinary) {
				t.Fatalf("%d bytes: %d, %v", n, len(m.Data), err)
			}
		}
	}
	if err := c.Write(Text([]byte("close"))); err != nil {
		t.Fatal(err)
	}
	ends(t, c, 4002)
	_, err = Dial(t.Context(), srv.URL+"/no", nil, nil)
	if e, ok := errors.AsType[*Refused](err); !ok || e.Response.StatusCode != http.StatusTeapot {
		t.Error(err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(masked(0x81, "a")))
	f.Add([]byte(masked(0x01, "a\xe2") + masked(0x89, "?") + masked(0x80, "\x82\xac")))
	f.Add([]byte("\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		ours, peer := net.Pipe()
		defer ours.Close()
		go func() {
			defer peer.Close()
			_, _ = peer.Write(b)
		}()
		c := Server(ours, &Options{Max: 1 << 10, Control: func(Frame) {}})
		for range len(b) + 1 {
			m, err := c.Read()
			if err != nil {
				return
			}
			if len(m.Data) > 1<<10 {
				t.Fatalf("a message of %d bytes", len(m.Data))
			}
		}
		t.Fatal("more messages than bytes")
	})
}
