package client

import (
	"crypto/sha1"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/internal/ws"
)

// greet takes a handshake and a hello, answers with frames, and ends the connection without a word.
func greet(t *testing.T, frames ...string) *Client {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		nc, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) // RFC 6455, section 4.2.2
		fmt.Fprintf(nc, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
			base64.StdEncoding.EncodeToString(sum[:]))
		conn := ws.Server(nc, nil)
		defer conn.Shut()
		if _, err := conn.Read(); err != nil {
			t.Error(err)
		}
		for _, f := range frames {
			if err := conn.Write(ws.Text([]byte(f))); err != nil {
				t.Error(err)
			}
		}
	}))
	t.Cleanup(srv.Close)
	return New(srv.URL, "", nil)
}

// A connection that ends as soon as it is ready is one all the same: what was told on it is in its position, and nowhere else.
func TestSocketEndsAtOnce(t *testing.T) {
	c := greet(t, `{"type":"skep_ready","life":1,"version":0,"events":6}`, `{"type":"skep_event","event":{"seq":7,"kind":"emit"}}`)
	for range 100 {
		told := 0
		s, err := c.Connect(t.Context(), "a", "k", &SocketOptions{OnEvent: func(agent.Event) { told++ }})
		if err != nil {
			t.Fatal(err)
		}
		<-s.Done()
		if p := s.Position(); told != 1 || p.Events != 7 {
			t.Fatalf("%d events were told; the position is %+v", told, p)
		}
	}
}

// A connection that goes on where another one was begins with the state, although its version was seen before: patches are made of it.
func TestSocketResumedState(t *testing.T) {
	c := greet(t, `{"type":"skep_ready","life":1,"version":3,"events":0}`, `{"type":"cf_agent_state","state":{"a":1,"b":2},"version":3}`,
		`{"type":"skep_state_patch","version":4,"base":3,"patch":{"b":5}}`)
	var shown []int64
	s, err := c.Connect(t.Context(), "a", "k", &SocketOptions{
		Resume: Position{Life: 1, State: 3}, OnState: func(_ json.RawMessage, version int64) { shown = append(shown, version) },
	})
	if err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	if state, n := s.State(); string(state) != `{"a":1,"b":5}` || n != 4 || len(shown) != 1 || shown[0] != 4 {
		t.Errorf("version %d is %s, shown were %v", n, state, shown)
	}
}
