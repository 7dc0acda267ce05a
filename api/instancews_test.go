package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fasthttp/websocket"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/runtime/runtimetest"
)

// socketRig is a server whose agent "a" has handlers for sockets, as a script's guest would call them.
func socketRig(t testing.TB, o *Options, funcs map[string]runtimetest.Func) *rig {
	t.Helper()
	r := start(t, o)
	for name, f := range funcs {
		r.cells.Funcs[name] = f
	}
	r.agent("a")
	return r
}

// hostCall makes a host call as code would.
func hostCall[Out any](ctx context.Context, c host.Call, name string, in any) (out Out, err error) {
	b, err := json.Marshal(in)
	if err != nil {
		return out, err
	}
	if b, err = c.Calls(ctx, name, b); err == nil && len(b) > 0 {
		err = json.Unmarshal(b, &out)
	}
	return out, err
}

func send(ctx context.Context, c host.Call, in abi.SocketSend) error {
	_, err := hostCall[any](ctx, c, abi.CallSocketSend, in)
	return err
}

func eventOf(c host.Call) (ev abi.SocketEvent) {
	if err := json.Unmarshal(c.Input.Body, &ev); err != nil {
		panic(err)
	}
	return ev
}

func none(err error) (agent.Payload, error) { return agent.JSON([]byte("null")), err }

// chat is code that answers each message to all, with who said it and how many there were.
func chat() map[string]runtimetest.Func {
	there := func(context.Context, host.Call) (agent.Payload, error) { return none(nil) }
	return map[string]runtimetest.Func{
		"onConnect": there, "onSocketMessage": there, "onClose": there,
		abi.FunctionConnect: func(ctx context.Context, c host.Call) (agent.Payload, error) {
			ev := eventOf(c)
			if strings.Contains(ev.Socket.URL, "refuse") {
				return none(errors.New("4321 not you"))
			}
			if strings.Contains(ev.Socket.URL, "throw") {
				return none(errors.New("boom"))
			}
			_, err := hostCall[any](ctx, c, abi.CallSocketAttach, abi.SocketAttach{ID: ev.Socket.ID, Attachment: abi.Raw(`{"n":1}`), Tags: &[]string{"all", "new"}})
			if err == nil {
				err = send(ctx, c, abi.SocketSend{To: []string{ev.Socket.ID}, Text: ptr("welcome " + ev.Socket.URL)})
			}
			return none(err)
		},
		abi.FunctionMessage: func(ctx context.Context, c host.Call) (agent.Payload, error) {
			ev := eventOf(c)
			if ev.Text == nil {
				return none(send(ctx, c, abi.SocketSend{To: []string{ev.Socket.ID}, Base64: ev.Base64}))
			}
			switch *ev.Text {
			case "undo":
				_ = send(ctx, c, abi.SocketSend{Text: ptr("never seen")})
				return none(errors.New("undone"))
			case "bye":
				_, err := hostCall[any](ctx, c, abi.CallSocketClose, abi.SocketClose{ID: ev.Socket.ID, Code: 4001, Reason: "you said so"})
				return none(err)
			case "list":
				list, err := hostCall[abi.Sockets](ctx, c, abi.CallSocketList, abi.SocketList{Tag: "new"})
				if err != nil {
					return none(err)
				}
				b, _ := json.Marshal(list.Sockets)
				return none(send(ctx, c, abi.SocketSend{To: []string{ev.Socket.ID}, Text: ptr(string(b))}))
			case "emit":
				return none(runtimetest.Emit(ctx, c, "said", *ev.Text))
			}
			return none(send(ctx, c, abi.SocketSend{Tag: "all", Text: ptr(fmt.Sprint(len(*ev.Text), " ", (*ev.Text)[:min(10, len(*ev.Text))]))}))
		},
		abi.FunctionClose: func(ctx context.Context, c host.Call) (agent.Payload, error) {
			ev := eventOf(c)
			return none(send(ctx, c, abi.SocketSend{Text: ptr(fmt.Sprint("left ", ev.Code, " ", ev.Reason))}))
		},
		abi.FunctionRPC: func(ctx context.Context, c host.Call) (agent.Payload, error) {
			var in abi.RPC
			if err := json.Unmarshal(c.Input.Body, &in); err != nil {
				return none(err)
			}
			done := abi.Raw("null")
			switch in.Method {
			case "echo":
				done = in.Args[0]
			case "slow": // yields
				for i := range 3 {
					text := fmt.Sprintf(`{"type":"rpc","id":%q,"success":true,"done":false,"result":%d}`, in.ID, i)
					if err := send(ctx, c, abi.SocketSend{To: []string{in.Connection}, Text: &text}); err != nil {
						return none(err)
					}
				}
			case "throw":
				return none(errors.New("boom"))
			case "log":
				state, err := hostCall[abi.Shared](ctx, c, abi.CallSharedGet, nil)
				if err == nil {
					_, err = hostCall[abi.Shared](ctx, c, abi.CallSharedSet, abi.SharedSet{State: in.Args[0], If: &state.Version})
				}
				if err != nil {
					return none(err)
				}
			}
			b, err := json.Marshal(abi.RPCDone{Done: done})
			return agent.JSON(b), err
		},
	}
}

func readText(t testing.TB, conn *websocket.Conn) string {
	t.Helper()
	_, b, err := conn.ReadMessage()
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func wantText(t testing.TB, conn *websocket.Conn, want ...string) {
	t.Helper()
	for _, w := range want {
		if got := readText(t, conn); !strings.Contains(got, w) {
			t.Fatalf("got %.300s, want %s", got, w)
		}
	}
}

func write(t testing.TB, conn *websocket.Conn, text string) {
	t.Helper()
	if err := conn.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) socket(target string) *websocket.Conn {
	r.t.Helper()
	conn, res, err := r.dial(target, nil)
	if err != nil {
		r.t.Fatal(err, res)
	}
	return conn
}

const roomPath = "/v1/agents/a/instances/room/ws"

func TestInstanceSocket(t *testing.T) {
	r := socketRig(t, nil, chat())
	one := r.socket(roomPath + "?x=1&token=secret")
	wantText(t, one, `{"type":"cf_agent_identity","name":"room","agent":"a"}`, "welcome "+r.url+roomPath+"?x=1")
	two := r.socket("/agents/a/room")
	wantText(t, two, "cf_agent_identity", "welcome "+r.url+"/agents/a/room")

	write(t, one, "hi")
	wantText(t, one, "2 hi")
	wantText(t, two, "2 hi")
	write(t, one, `{"type":"ping"}`)
	wantText(t, one, `{"type":"pong"}`)
	write(t, one, "undo") // what it sent before it threw is not sent
	write(t, one, "list")
	var list []abi.Socket
	if err := json.Unmarshal([]byte(readText(t, one)), &list); err != nil || len(list) != 2 || string(list[0].Attachment) != `{"n":1}` ||
		!slices.Equal(list[1].Tags, []string{"all", "new"}) {
		t.Errorf("%v %+v", err, list)
	}
	if err := one.WriteMessage(websocket.BinaryMessage, []byte{0, 255, 1}); err != nil {
		t.Fatal(err)
	}
	if kind, b, err := one.ReadMessage(); err != nil || kind != websocket.BinaryMessage || !bytes.Equal(b, []byte{0, 255, 1}) {
		t.Errorf("%v %v %v", kind, b, err)
	}
	write(t, one, "bye")
	if _, _, err := one.ReadMessage(); !websocket.IsCloseError(err, 4001) || !strings.Contains(err.Error(), "you said so") {
		t.Errorf("%v", err)
	}
	wantText(t, two, "left 4001 you said so")
	info, err := r.c.Instance(t.Context(), "a", "room")
	if err != nil || info.Sockets != 1 {
		t.Errorf("%+v %v", info, err)
	}
	if err := r.c.DeleteInstances(t.Context(), "a", "room"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := two.ReadMessage(); !websocket.IsCloseError(err, 4404) {
		t.Errorf("%v", err)
	}
}

func TestInstanceSocketRefused(t *testing.T) {
	r := socketRig(t, &Options{Origins: []string{"https://good.example"}}, chat())
	ctx := t.Context()
	if _, err := r.c.CreateApp(ctx, client.NewApp{Name: "other"}); err != nil {
		t.Fatal(err)
	}
	foreign, err := r.c.CreateToken(ctx, client.NewToken{Name: "x", App: "other"})
	if err != nil {
		t.Fatal(err)
	}
	short, err := r.c.CreateToken(ctx, client.NewToken{Name: "short", Expires: time.Now().Add(time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		target, header, value string
		status                int
	}{
		{roomPath, "Authorization", "Bearer nobody", 401}, {roomPath, "Authorization", "none", 401}, {roomPath + "?token=" + r.token, "Authorization", "none", 401},
		{roomPath + "?token=" + short.Secret, "Authorization", "none", 101}, {roomPath, "Sec-WebSocket-Protocol", "skep, skep.token." + r.token, 101},
		{roomPath, "Authorization", "Bearer " + foreign.Secret, 404}, {"/v1/agents/nobody/instances/k/ws", "X", "1", 404},
		{"/agents/nobody/k", "X", "1", 404}, {roomPath, "Origin", "https://evil.example", 403}, {roomPath, "Origin", "https://good.example", 101},
		{"/v1/agents/a/instances/" + strings.Repeat("k", 2000) + "/ws", "X", "1", 400},
	} {
		h := http.Header{tt.header: {tt.value}}
		if tt.header == "Sec-WebSocket-Protocol" {
			h.Set("Authorization", "")
		}
		if tt.value == "none" || tt.header == "Sec-WebSocket-Protocol" {
			conn, res, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(r.url, "http")+tt.target, without(h, "Authorization"))
			if err == nil {
				conn.Close()
			}
			if res == nil || res.StatusCode != tt.status {
				t.Errorf("%+v: %v %v", tt, res, err)
			}
			if tt.header == "Sec-WebSocket-Protocol" && res.Header.Get(tt.header) != "skep" {
				t.Errorf("%v", res.Header)
			}
			continue
		}
		_, res, err := r.dial(tt.target, h)
		if res == nil || res.StatusCode != tt.status {
			t.Errorf("%+v: %v %v", tt, res, err)
		}
	}
	if res := r.do("GET", roomPath, "", "Upgrade", "websocket"); res.StatusCode != 426 {
		t.Errorf("half a handshake: %s %s", res.Status, res.body)
	}
	for target, want := range map[string]int{"refuse": 4321, "throw": 1011} {
		conn := r.socket(roomPath + "?" + target)
		if _, _, err := conn.ReadMessage(); !websocket.IsCloseError(err, want) {
			t.Errorf("%s: %v", target, err)
		}
	}
	mine, err := r.c.CreateToken(ctx, client.NewToken{Name: "mine"})
	if err != nil {
		t.Fatal(err)
	}
	const ownRoom = "/v1/agents/a/instances/own/ws" // where nobody leaves meanwhile, which would be told
	conn, _, err := r.dial(ownRoom, http.Header{"Authorization": {"Bearer " + mine.Secret}})
	if err != nil {
		t.Fatal(err)
	}
	wantText(t, conn, "identity", "welcome")
	if err := r.c.DeleteTokens(ctx, mine.ID); err != nil {
		t.Fatal(err)
	}
	if _, _, err := conn.ReadMessage(); !websocket.IsCloseError(err, websocket.ClosePolicyViolation) {
		t.Errorf("%v", err)
	}
}

// A handshake whose connection ends before it is a WebSocket leaves nothing that a stop would wait for: in HTTP/1.0 it is closed after the answer, as it is while
// the server shuts down.
func TestHandshakeThatEnds(t *testing.T) {
	r := socketRig(t, nil, chat())
	session := r.session("b")
	for _, target := range []string{roomPath, "/v1/sessions/" + string(session.ID) + "/ws"} {
		nc, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		fmt.Fprintf(nc, "GET %s HTTP/1.0\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"+
			"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAuthorization: Bearer %s\r\n\r\n", target, r.token)
		b, err := io.ReadAll(nc)
		if err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 101 ") {
			t.Errorf("%s: %q %v", target, b, err)
		}
	}
	stopped := make(chan error, 1)
	go func() { stopped <- r.stop() }()
	select {
	case err := <-stopped:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the server waits for sockets that there are not")
	}
}

func without(h http.Header, name string) http.Header {
	h.Del(name)
	return h
}

func TestInstanceSocketSizes(t *testing.T) {
	r := socketRig(t, nil, chat())
	conn := r.socket(roomPath)
	wantText(t, conn, "identity", "welcome")
	write(t, conn, strings.Repeat("x", 1<<20))
	wantText(t, conn, "1048576 xxxxxxxxxx")
	if err := conn.WriteMessage(websocket.TextMessage, []byte("a\xff")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := conn.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseInvalidFramePayloadData) {
		t.Errorf("%v", err)
	}
	conn = r.socket(roomPath)
	wantText(t, conn, "identity", "welcome")
	write(t, conn, strings.Repeat("x", 1<<20+1))
	if _, _, err := conn.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseMessageTooBig) {
		t.Errorf("%v", err)
	}
}

// A client that does not read is closed once too much waits for it; the instance and others go on meanwhile.
func TestInstanceSocketSlowReader(t *testing.T) {
	big, code := strings.Repeat("y", 1<<20-100), chat()
	code["flood"] = func(ctx context.Context, c host.Call) (agent.Payload, error) {
		return none(send(ctx, c, abi.SocketSend{Tag: "all", Text: &big}))
	}
	r := socketRig(t, nil, code)
	mute, busy := r.socket(roomPath), r.socket(roomPath)
	wantText(t, busy, "identity", "welcome")
	for range 24 { // what the kernel and the server hold together is less
		if _, _, err := r.c.CallInstance(t.Context(), "a", "room", "flood", agent.Text(""), 0); err != nil {
			t.Fatal(err)
		}
		wantText(t, busy, "yyy")
	}
	var err error
	for err == nil {
		_, _, err = mute.ReadMessage()
	}
	if !websocket.IsCloseError(err, websocket.CloseTryAgainLater) {
		t.Errorf("%v", err)
	}
}

func TestInstanceSocketState(t *testing.T) {
	r := socketRig(t, nil, chat())
	plain := r.socket(roomPath)
	wantText(t, plain, "identity", "welcome")
	states := make(chan string, 100)
	events := make(chan agent.Event, 10)
	connect := func(from client.Position) *client.Socket {
		t.Helper()
		s, err := r.c.Connect(t.Context(), "a", "room", &client.SocketOptions{
			Resume: from, OnState: func(b json.RawMessage, v int64) { states <- fmt.Sprint(v, " ", string(b)) }, OnEvent: func(ev agent.Event) { events <- ev },
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	one, two := connect(client.Position{}), connect(client.Position{})
	v, err := one.SetState(t.Context(), map[string]any{"a": 1, "list": make([]int, 100)}, nil)
	if err != nil || v != 1 {
		t.Fatal(v, err)
	}
	wantText(t, plain, `"cf_agent_state","state":{"a":1,`)
	if s := []string{<-states, <-states}; !strings.HasPrefix(s[0], "1 {") || !strings.HasPrefix(s[1], "1 {") {
		t.Error(s)
	}
	if _, err := two.Call(t.Context(), "log", map[string]any{"b": 2, "list": make([]int, 100)}); err != nil {
		t.Fatal(err)
	}
	wantText(t, plain, `"version":2`)
	for range 2 { // by a patch
		if s := <-states; !strings.HasPrefix(s, `2 {"b":2,"list":[0,`) {
			t.Error(s)
		}
	}
	_, err = one.SetState(t.Context(), 5, ptr(int64(1)))
	wantKind(t, err, agent.Conflict)
	if state, v := one.State(); v != 2 || !strings.HasPrefix(string(state), `{"b":2`) {
		t.Errorf("%d %s", v, state)
	}
	_, err = one.SetState(t.Context(), strings.Repeat("x", 1<<20-1), nil) // one byte more than there may be
	wantKind(t, err, agent.Exhausted)
	large := strings.Repeat("z", 1<<20-1000)
	if v, err := one.SetState(t.Context(), large, ptr(int64(2))); err != nil || v != 3 {
		t.Fatal(v, err)
	}
	wantText(t, plain, "zzz")
	<-states
	<-states
	if state, _ := two.State(); len(state) != len(large)+2 {
		t.Errorf("%d bytes", len(state))
	}
	late := connect(client.Position{})
	if state, v := late.State(); v != 3 || len(state) != len(large)+2 {
		t.Errorf("%d bytes, version %d", len(state), v)
	}

	// A plain client's change, and one that is refused.
	write(t, plain, `{"type":"cf_agent_state","state":{"c":null}}`)
	for len(states) < 1 {
		<-states
	}
	write(t, plain, `{"type":"cf_agent_state","state":1,"version":1}`)
	wantText(t, plain, `"cf_agent_state_error","error":"the shared state has version 4, not 1"`, `{"c":null}`)

	// Events resume where a connection ended.
	if err := one.SendText("emit"); err != nil {
		t.Fatal(err)
	}
	first := <-events
	for range 2 {
		if again := <-events; again.Seq != first.Seq {
			t.Errorf("%+v %+v", first, again)
		}
	}
	at := one.Position()
	if err := errors.Join(one.Close(), two.Close(), late.Close()); err != nil {
		t.Fatal(err)
	}
	write(t, plain, "emit")
	next := connect(at)
	if state, v := next.State(); v != at.State || string(state) != `{"c":null}` { // although that version was seen before
		t.Errorf("%d %s", v, state)
	}
	if ev := <-events; ev.Seq <= first.Seq || ev.Name != "said" {
		t.Errorf("%+v", ev)
	}
	if err := next.Close(); err != nil || len(events) != 0 {
		t.Errorf("%v, %d more events", err, len(events))
	}
	if info, err := r.c.Instance(t.Context(), "a", "room"); err != nil || string(info.Shared) != `{"c":null}` {
		t.Errorf("%v %.100s", err, info.Shared)
	}
}

func TestInstanceSocketCalls(t *testing.T) {
	r := socketRig(t, nil, chat())
	s, err := r.c.Connect(t.Context(), "a", "room", nil)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := s.Call(t.Context(), "echo", map[string]int{"x": 1}); err != nil || string(out) != `{"x":1}` {
		t.Errorf("%s %v", out, err)
	}
	var got []string
	for v, err := range s.Stream(t.Context(), "slow") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(v))
	}
	if !slices.Equal(got, []string{"0", "1", "2"}) {
		t.Error(got)
	}
	_, err = s.Call(t.Context(), "throw")
	if e := wantKind(t, err, agent.Failed); !strings.Contains(e.Msg, "boom") {
		t.Error(e)
	}
	for _, name := range []string{"onConnect", "skep:connect", "nothing"} {
		_, err = s.Call(t.Context(), name)
		wantKind(t, err, agent.NotFound)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Call(t.Context(), "echo", 1); err == nil {
		t.Error("a call on a closed socket")
	}
}

// Two upgrades at the same instant, many times over: each connection is taken once, and each message is heard by all.
func TestInstanceSocketTogether(t *testing.T) {
	r := socketRig(t, nil, chat())
	const n = 20
	conns := make([]*websocket.Conn, n)
	var both sync.WaitGroup
	for i := range n {
		both.Go(func() {
			conn, _, err := r.dial(roomPath, nil)
			if err != nil {
				t.Error(err)
				return
			}
			conns[i] = conn
			wantText(t, conn, "identity", "welcome")
		})
	}
	both.Wait()
	write(t, conns[0], "all of you")
	for _, conn := range conns {
		wantText(t, conn, "10 all of you")
	}
}

func TestInstanceSocketEndsWithTheServer(t *testing.T) {
	r := socketRig(t, nil, chat())
	conn := r.socket(roomPath)
	wantText(t, conn, "identity", "welcome")
	stopped := make(chan error, 1)
	go func() { stopped <- r.stop() }()
	if _, _, err := conn.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseGoingAway) {
		t.Errorf("%v", err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}
