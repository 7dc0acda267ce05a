package api

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/store"
)

// A stop ends the streams and lets a call finish.
func TestSoftStop(t *testing.T) {
	r := start(t, nil)
	s := r.session("a")
	events := r.open("/v1/sessions/"+string(s.ID)+"/events", typeSSE)
	called := make(chan error, 1)
	go func() {
		out, _, err := client.New(r.url, r.token, nil).Call(context.Background(), "a", "gate", agent.Payload{}, 0)
		if err == nil && string(out.Body) != "open" {
			err = fmt.Errorf("output %q", out.Body)
		}
		called <- err
	}()
	until(t, func() bool { return r.s.rt.Stats().Live == 1 })
	stopped := make(chan error, 1)
	go func() { stopped <- r.stop() }()
	if b, err := io.ReadAll(events.Body); err != nil || string(b) != "retry: 1000\n\n" {
		t.Errorf("the stream: %q %v", b, err)
	}
	select {
	case err := <-stopped:
		t.Fatal("it stopped during a call:", err)
	default:
	}
	close(r.gate)
	if err := <-called; err != nil {
		t.Error("the call:", err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	wantKind(t, r.c.Ready(context.Background()), agent.Unavailable)
}

// A stop ends what is followed, and not what is listed: that goes on to its end, or ends so that its reader notices.
func TestStopOfListings(t *testing.T) {
	r := start(t, nil)
	log := part{log: store.SessionLog(agent.DefaultApp, r.session("a").ID)}
	for _, follows := range []bool{true, false} {
		out, err := r.s.events(t.Context(), eventQuery{Accept: typeNDJSON, Follow: follows}, log)
		if err != nil {
			t.Fatal(err)
		}
		st := out.(*stream)
		soft, stop := context.WithCancel(t.Context())
		hard, cut := context.WithCancel(t.Context())
		stop()
		here, there := net.Pipe()
		defer here.Close()
		defer there.Close()
		body := r.s.newStreamBody(life{soft: soft, hard: hard}, st, here)
		defer body.Close()
		left := 2
		st.first, st.next = nil, func(ctx context.Context) ([]byte, error) {
			if left--; ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if left < 0 {
				cut()
				return nil, context.Canceled
			}
			return []byte("x"), nil
		}
		got, err := io.ReadAll(body)
		if follows && (len(got) != 0 || err != nil) {
			t.Errorf("what is followed: %q %v", got, err)
		}
		if !follows && (string(got) != "xx" || err == nil) {
			t.Errorf("what is listed: %q %v", got, err)
		}
	}
}

// A stop that comes before the server has begun to accept ends it all the same.
func TestStopAtOnce(t *testing.T) {
	r := start(t, nil)
	for n := range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		ln, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		if n%2 == 0 {
			cancel()
		}
		go func() { ended <- New(r.s.rt, r.s.st, nil).Run(ctx, ln) }()
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("it does not stop")
		}
	}
}

// What is not done after the drain time is cut.
func TestHardStop(t *testing.T) {
	r := start(t, &Options{Drain: 10 * time.Millisecond})
	r.agent("a")
	called := make(chan error, 1)
	go func() {
		_, _, err := client.New(r.url, r.token, nil).Call(context.Background(), "a", "slow", agent.Payload{}, 0)
		called <- err
	}()
	until(t, func() bool { return r.s.rt.Stats().Live == 1 })
	began := time.Now()
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the stop took %v", took)
	}
	if err := <-called; err == nil {
		t.Error("the call came back whole")
	}
}

// Fiber's strings live in buffers that the next request reuses: none may be seen after its own request.
func TestBuffersAreNotShared(t *testing.T) {
	r := start(t, nil)
	r.agent("a")
	hc := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	defer hc.CloseIdleConnections()
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			c := client.New(r.url, r.token, &client.Options{HTTP: hc})
			for i := range 40 {
				name := fmt.Sprintf("w%d-%02d-%s", w, i, strings.Repeat("x", 1+i%20))
				a, err := c.CreateAgent(context.Background(), client.NewAgent{Name: name, Plugin: "code", Description: "of " + name})
				if err != nil || a.Name != name {
					t.Errorf("%q %v", a.Name, err)
					return
				}
				in := agent.Payload{Type: "text/x-" + name, Body: []byte(strings.Repeat(name, 1+i*7))}
				out, _, err := c.Call(context.Background(), name, "echo", in, 0)
				if err != nil || out.Type != in.Type || !bytes.Equal(in.Body, out.Body) {
					t.Errorf("%s: %v", name, err)
					return
				}
			}
		})
	}
	wg.Wait()
	seen := map[string]bool{}
	for a, err := range client.All(context.Background(), r.c.Agents) {
		if err != nil {
			t.Fatal(err)
		}
		if a.Name != "a" && a.Description != "of "+a.Name {
			t.Errorf("%q is described as %q", a.Name, a.Description)
		}
		seen[a.Name] = true
	}
	if len(seen) != 8*40+1 {
		t.Errorf("%d agents", len(seen))
	}
}

// Requests that come in one packet are told apart, also behind one whose body nobody read.
func TestPipelining(t *testing.T) {
	r := start(t, nil)
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1/agents HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nGET /"+
		"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	br := bufio.NewReader(conn)
	for _, want := range []int{401, 200, 404} {
		res, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != want {
			t.Errorf("%s %v, want %d", res.Status, err, want)
		}
	}
}

func TestExpectContinue(t *testing.T) {
	r := start(t, nil)
	res := r.do("POST", "/v1/plugins?name=x", strings.Repeat("// x\n", 1<<18), "Expect", "100-continue", "Content-Type", "text/javascript")
	if res.StatusCode != 201 {
		t.Errorf("%s %s", res.Status, res.body)
	}
}

func TestTraceparent(t *testing.T) {
	var log logBuffer
	r := start(t, &Options{Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	for _, target := range []string{"/healthz", "/v1/agents/nobody"} {
		res := r.do("GET", target, "", "Traceparent", "00-"+id+"-00f067aa0ba902b7-01")
		got := res.Header.Get("Traceparent")
		if got != "00-"+id+"-00f067aa0ba902b7-01" { // passed on as it came, for no span is recorded
			t.Errorf("%s: %q", target, got)
		}
		if req := res.Header.Get("Request-Id"); req == "" || !strings.Contains(log.String(), "request="+req+" trace="+id) {
			t.Errorf("%s: request %q is not in the log with its trace:\n%s", target, req, log.String())
		}
	}
	if got := r.do("GET", "/healthz", "").Header.Get("Traceparent"); got != "" {
		t.Errorf("out of nothing: %q", got)
	}
}

func TestCrossOrigin(t *testing.T) {
	const good = "https://good.example"
	r := start(t, &Options{Origins: []string{good}})
	res := r.do("OPTIONS", "/v1/agents", "", "Origin", good, "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization")
	if res.StatusCode != 204 || res.Header.Get("Access-Control-Allow-Origin") != good || res.Header.Get("Access-Control-Allow-Headers") != "authorization" {
		t.Errorf("%s %v", res.Status, res.Header)
	}
	if res = r.do("GET", "/v1/agents", "", "Origin", good); res.Header.Get("Access-Control-Allow-Origin") != good || res.Header.Get("Vary") != "Origin" {
		t.Errorf("%v", res.Header)
	}
	for _, origin := range []string{"https://evil.example", "null"} {
		if res = r.do("GET", "/v1/agents", "", "Origin", origin); res.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %v", origin, res.Header)
		}
	}
	off := start(t, nil)
	if res = off.do("OPTIONS", "/v1/agents", "", "Origin", good, "Access-Control-Request-Method", "POST"); res.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("by default: %v", res.Header)
	}
}

func TestHostNames(t *testing.T) {
	s := New(nil, nil, &Options{Hosts: []string{"skep.lan"}})
	for host, want := range map[string]bool{
		"127.0.0.1:4747": true, "127.9.9.9": true, "localhost:1": true, "LOCALHOST": true, "a.localhost": true, "[::1]:80": true, "[::1]": true,
		"skep.lan:80": true, "evil.example": false, "localhost.evil.example": false, "192.168.0.1": false, "": false, "127.0.0.1.evil.example": false,
	} {
		if got := s.hostAllowed(host); got != want {
			t.Errorf("%q = %v", host, got)
		}
	}
	for addr, want := range map[string]bool{"127.0.0.1:1": true, "[::1]:1": true, "0.0.0.0:1": false, "192.168.0.1:1": false} {
		a, err := net.ResolveTCPAddr("tcp", addr)
		if err != nil || isLoopback(a) != want {
			t.Errorf("%s: %v", addr, err)
		}
	}
}

// An upload whose client goes away is given up, and does not keep the server from stopping.
func TestUploadGivenUp(t *testing.T) {
	s := New(nil, nil, nil)
	began := make(chan struct{})
	st := s.progress(&request{Context: context.Background(), id: "R"}, func(ctx context.Context, progress func(host.Progress)) (any, error) {
		for range 100 { // more than anyone listens to
			progress(host.Progress{Stage: "compile"})
		}
		close(began)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	<-began
	if b, err := st.next(context.Background()); err != nil || string(b) != "{\"stage\":\"compile\"}\n" {
		t.Errorf("%q %v", b, err)
	}
	st.close()
	s.sockets.Wait()
}

func TestUploadPanics(t *testing.T) {
	s := New(nil, nil, nil)
	st := s.progress(&request{Context: context.Background(), id: "R"}, func(context.Context, func(host.Progress)) (any, error) { panic("secret") })
	b, err := st.next(context.Background())
	if err != nil || !strings.Contains(string(b), `"internal"`) || strings.Contains(string(b), "secret") {
		t.Errorf("%s %v", b, err)
	}
	if _, err := st.next(context.Background()); err != io.EOF {
		t.Errorf("%v", err)
	}
}
