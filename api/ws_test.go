package api

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fasthttp/websocket"

	"github.com/skep-dev/skep/agent"
)

func (r *rig) dial(target string, h http.Header) (*websocket.Conn, *http.Response, error) {
	if h == nil {
		h = http.Header{}
	}
	if h.Get("Authorization") == "" {
		h.Set("Authorization", "Bearer "+r.token)
	}
	conn, res, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(r.url, "http")+target, h)
	if err == nil {
		conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		r.t.Cleanup(func() { conn.Close() })
	}
	return conn, res, err
}

// frame is anything a WebSocket sends.
type frame struct {
	agent.Event
	Type  string     `json:"type"`
	Run   *agent.Run `json:"-"`
	Error *problem   `json:"error"`
}

func readFrame(t *testing.T, conn *websocket.Conn) (f frame) {
	t.Helper()
	_, b, err := conn.ReadMessage()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(b), `"accepted"`) {
		var a struct{ Run agent.Run }
		if err := json.Unmarshal(b, &a); err != nil {
			t.Fatalf("%v: %s", err, b)
		}
		return frame{Type: "accepted", Run: &a.Run}
	}
	if err := json.Unmarshal(b, &f); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	return f
}

func TestWebSocket(t *testing.T) {
	r := start(t, nil)
	s := r.session("a")
	target := "/v1/sessions/" + string(s.ID) + "/ws"
	conn, _, err := r.dial(target, nil)
	if err != nil {
		t.Fatal(err)
	}
	send := func(s string) {
		t.Helper()
		if err := conn.WriteMessage(websocket.TextMessage, []byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	send(`{"type":"message","content":{"text":"hi"},"key":"1"}`)
	var accepted agent.RunID
	seqs, last := int64(0), agent.UnknownEvent
	for accepted == "" || last != agent.EventRunCompleted {
		f := readFrame(t, conn)
		switch f.Type {
		case "accepted":
			accepted = f.Run.ID
		case "":
			if f.Seq != seqs+1 {
				t.Errorf("event %d follows %d", f.Seq, seqs)
			}
			seqs, last = f.Seq, f.Kind
		default:
			t.Errorf("%+v", f)
		}
	}
	send(`{"type":"message","content":{"text":"hi"},"key":"1"}`) // again
	if f := readFrame(t, conn); f.Type != "accepted" || f.Run.ID != accepted {
		t.Errorf("%+v", f)
	}
	for _, tt := range []struct{ in, want string }{
		{`{"type":"message","content":1,"key":"1"}`, "another request"}, {`{"type":"shout"}`, "shout"}, {`{"type":"message"}`, "content"},
		{`{"type":"message","content":1,"mood":1}`, "mood"}, {`nonsense`, "JSON"}, {`{"type":"message","content":1,"role":"king"}`, "king"},
	} {
		send(tt.in)
		if f := readFrame(t, conn); f.Type != "error" || !strings.Contains(f.Error.Detail, tt.want) {
			t.Errorf("%s: %+v", tt.in, f)
		}
	}

	late, _, err := r.dial(target+"?after=4", nil)
	if err != nil {
		t.Fatal(err)
	}
	if f := readFrame(t, late); f.Seq != 5 {
		t.Errorf("%+v", f)
	}
}

func TestWebSocketRefused(t *testing.T) {
	r := start(t, &Options{Origins: []string{"https://good.example"}})
	s := r.session("a")
	target := "/v1/sessions/" + string(s.ID) + "/ws"
	for _, tt := range []struct {
		target, header, value string
		status                int
	}{
		{target, "Authorization", "Bearer nobody", 401}, {"/v1/sessions/nobody/ws", "X", "1", 404},
		{target + "?after=7", "X", "1", 400}, {target, "Origin", "https://evil.example", 403}, {target, "Origin", "https://good.example", 101},
		{target, "Origin", r.url, 101},
	} {
		_, res, err := r.dial(tt.target, http.Header{tt.header: {tt.value}})
		if res == nil || res.StatusCode != tt.status {
			t.Errorf("%+v: %v %v", tt, res, err)
		}
	}
	if res := r.do("GET", target, "", "Upgrade", "websocket"); res.StatusCode != 426 {
		t.Errorf("half a handshake: %s %s", res.Status, res.body)
	}
	until(t, func() bool { return r.s.rt.Stats().Listeners == 2 })
}

func TestWebSocketEndsWithTheServer(t *testing.T) {
	r := start(t, nil)
	s := r.session("a")
	conn, _, err := r.dial("/v1/sessions/"+string(s.ID)+"/ws", nil)
	if err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- r.stop() }()
	if _, _, err := conn.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseGoingAway) {
		t.Errorf("%v", err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestWebSocketPings(t *testing.T) {
	r := start(t, &Options{Heartbeat: 5 * time.Millisecond, Silence: time.Minute})
	s := r.session("a")
	conn, _, err := r.dial("/v1/sessions/"+string(s.ID)+"/ws", nil)
	if err != nil {
		t.Fatal(err)
	}
	pings := 0
	conn.SetPingHandler(func(string) error {
		pings++
		if pings == 3 {
			r.say(s.ID, "end")
		}
		return conn.WriteControl(websocket.PongMessage, nil, time.Now().Add(time.Minute))
	})
	if f := readFrame(t, conn); f.Seq != 1 || pings < 3 {
		t.Errorf("%+v after %d pings", f, pings)
	}
}

// One that never answers a ping is cut.
func TestWebSocketSilence(t *testing.T) {
	r := start(t, &Options{Heartbeat: 5 * time.Millisecond, Silence: 20 * time.Millisecond})
	mute, _, err := r.dial("/v1/sessions/"+string(r.session("a").ID)+"/ws", nil)
	if err != nil {
		t.Fatal(err)
	}
	mute.SetPingHandler(func(string) error { return nil })
	for err == nil {
		_, _, err = mute.ReadMessage()
	}
	if !strings.Contains(err.Error(), "EOF") && !websocket.IsUnexpectedCloseError(err) {
		t.Errorf("%v", err)
	}
}
