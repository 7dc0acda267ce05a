package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/inside"
	"github.com/skep-dev/skep/driver/link"
)

// driven returns the link to a driver in this process.
func driven(t *testing.T) *link.Link {
	t.Helper()
	dir, err := os.MkdirTemp("", "skep") // a socket's path has little room
	if err != nil {
		t.Fatal(err)
	}
	token := link.NewSecret()
	l := link.New(link.Options{
		Sandbox: "S", Generation: 1, Token: token, Key: link.NewSecret(), Log: slog.New(slog.DiscardHandler),
		Welcome: func(context.Context) (driver.WelcomeBody, error) { return driver.WelcomeBody{}, nil },
		Events:  func(context.Context, int64, []driver.Event) error { return nil },
	})
	mux := http.NewServeMux()
	mux.Handle(driver.Path, l)
	mux.Handle(driver.StreamPath, l)
	socket := filepath.Join(dir, "s")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: mux}
	life, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(ln) })
	running.Go(func() {
		_ = inside.Run(life, &inside.Options{
			Boot: driver.Boot{Version: driver.Version, Sandbox: "S", Generation: 1, Socket: socket, Token: token, Relay: "127.0.0.1:0", Workdir: filepath.Join(dir, "work")},
			Home: dir, Log: slog.New(slog.DiscardHandler), Backoff: time.Millisecond, Grace: 200 * time.Millisecond,
		})
	})
	t.Cleanup(func() {
		stop()
		l.Close(errors.New("the test is over"))
		_ = server.Close()
		running.Wait()
		l.Wait()
		_ = os.RemoveAll(dir)
	})
	if err := l.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	return l
}

// TestCarryLeavesNoStream carries more commands, that work and that fail, than a sandbox may have streams open.
func TestCarryLeavesNoStream(t *testing.T) {
	l := driven(t)
	to := func(path string) func(*driver.Stream) any {
		return func(st *driver.Stream) any { return driver.FileArgs{Path: path, Stream: st} }
	}
	for range 300 {
		if err := link.Send(t.Context(), l, driver.DoWrite, to("a"), strings.NewReader("text"), nil); err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := link.Receive(t.Context(), l, driver.DoRead, to("a"), nil, copyTo(&got)); err != nil || got.String() != "text" {
			t.Fatalf("%q, %v", got.String(), err)
		}
		if err := link.Receive(t.Context(), l, driver.DoRead, to("none"), nil, copyTo(io.Discard)); agent.KindOf(err) != agent.NotFound {
			t.Fatal(err)
		}
		if err := link.Send(t.Context(), l, driver.DoWrite, to("a/b"), strings.NewReader("text"), nil); err == nil || agent.KindOf(err) == agent.Exhausted {
			t.Fatal(err)
		}
		if _, err := dialPort(t.Context(), l, 1); agent.KindOf(err) != agent.Unavailable {
			t.Fatal(err)
		}
	}
}

// TestCutUpload sends a body that breaks off: nothing of it is kept.
func TestCutUpload(t *testing.T) {
	l := driven(t)
	args := func(st *driver.Stream) any { return driver.FileArgs{Path: "a", Stream: st} }
	broke := errors.New("it broke off")
	body := io.MultiReader(strings.NewReader("half"), readFunc(func([]byte) (int, error) { return 0, broke }))
	if err := link.Send(t.Context(), l, driver.DoWrite, args, body, nil); !errors.Is(err, broke) {
		t.Error(err)
	}
	if err := link.Receive(t.Context(), l, driver.DoRead, args, nil, copyTo(io.Discard)); agent.KindOf(err) != agent.NotFound {
		t.Error(err)
	}
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// TestStreamExecEndsWithItsContext is about a program that says nothing, and that nobody listens to any more.
func TestStreamExecEndsWithItsContext(t *testing.T) {
	l := driven(t)
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- streamExec(ctx, l, driver.Exec{ID: "X", Command: []string{"sleep", "1000"}}, w, asProblem)
	}()
	buf := make([]byte, 256)
	if n, err := r.Read(buf); err != nil || !strings.Contains(string(buf[:n]), `"id":"X"`) {
		t.Fatalf("%q, %v", buf[:n], err)
	}
	cancel()
	if err := <-done; err == nil {
		t.Error("it ended well")
	}
	until(t, func() bool { _, over := ended(t, l, "X"); return over })
}

// execServer serves sandboxes whose driver is l, whatever their ids, with programs named X.
func execServer(t *testing.T, l *link.Link) (url, token string) {
	t.Helper()
	r := start(t, nil)
	s := New(r.s.rt, r.s.st, &Options{Heartbeat: 5 * time.Millisecond})
	i := slices.IndexFunc(s.routes, func(r route) bool { return r.id == "execSandbox" })
	s.routes[i].endpoint = handle(func(ctx context.Context, q execSandboxRequest) (any, error) {
		x := driver.Exec{ID: "X", Command: q.Body.Command}
		if q.Accept == typeNDJSON {
			return s.streamedExec(ctx, l, x)
		}
		return awaitedExec(ctx, l, x)
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	life, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Run(life, ln) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return "http://" + ln.Addr().String(), r.token
}

// TestExecClientGone is about a client that closes its connection while a program says nothing: the heartbeats find out, and the program is ended.
func TestExecClientGone(t *testing.T) {
	l := driven(t)
	url, token := execServer(t, l)
	req, err := http.NewRequest("POST", url+"/v1/sandboxes/B/exec", strings.NewReader(`{"command":["sleep","1000"]}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Authorization": {"Bearer " + token}, "Accept": {typeNDJSON}, "Content-Type": {typeJSON}}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"id":"X"}` + "\n\n\n\n" // three heartbeats
	got := make([]byte, len(want))
	if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	if begun, over := ended(t, l, "X"); !begun || over {
		t.Error("the program has ended while somebody listened")
	}
	_ = res.Body.Close() // and with it the connection, as there is more to come
	until(t, func() bool { _, over := ended(t, l, "X"); return over })
}

// TestExecWaiterGone is the same for a client that waits for the end of a program.
func TestExecWaiterGone(t *testing.T) {
	l := driven(t)
	url, token := execServer(t, l)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := client.New(url, token, nil).Exec(ctx, "B", client.Exec{Command: []string{"sleep", "1000"}})
		done <- err
	}()
	until(t, func() bool { begun, _ := ended(t, l, "X"); return begun })
	cancel()
	if err := <-done; agent.KindOf(err) != agent.Cancelled {
		t.Error(err)
	}
	until(t, func() bool { _, over := ended(t, l, "X"); return over })
}

// TestExecStreamSkipsHeartbeats has the client for Go listen to a program that says nothing for a while.
func TestExecStreamSkipsHeartbeats(t *testing.T) {
	l := driven(t)
	url, token := execServer(t, l)
	said, ends := "", 0
	for out, err := range client.New(url, token, nil).ExecStream(t.Context(), "B", client.Exec{Command: []string{"sleep 0.1; echo out; sleep 0.1; exit 3"}}) {
		if err != nil {
			t.Fatal(err)
		}
		said += out.Stdout
		if out.Exit != nil && out.Exit.Code == 3 {
			ends++
		}
	}
	if said != "out\n" || ends != 1 {
		t.Errorf("it said %q, and ended %d times", said, ends)
	}
}

// ended reports whether a program has begun, and whether it has ended.
func ended(t *testing.T, l *link.Link, id string) (begun, over bool) {
	t.Helper()
	var out driver.Processes
	if err := l.Do(t.Context(), driver.DoProcesses, nil, &out); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(out.List, func(p driver.Process) bool { return p.ID == id })
	return i >= 0, i >= 0 && out.List[i].Ended
}

// TestUncut cuts texts everywhere: pieces end with whole characters, and nothing is lost.
func TestUncut(t *testing.T) {
	for _, text := range []string{"", "a", "aéあ🐝z🐝", "\xf0\x9f", "é\xff\xc3", "\x80\x80\x80\x80"} {
		for i := range len(text) + 1 {
			for j := i; j <= len(text); j++ {
				var u uncut
				got := ""
				for _, piece := range []string{text[:i], text[i:j], text[j:]} {
					whole := u.take([]byte(piece))
					if utf8.ValidString(text) && !utf8.ValidString(whole) {
						t.Errorf("%q, cut at %d and %d: a piece is %q", text, i, j, whole)
					}
					got += whole
				}
				if got += string(u.rest); got != text {
					t.Errorf("%q, cut at %d and %d, is %q", text, i, j, got)
				}
			}
		}
	}
}

func asProblem(err error) problem { return problemOf(err, "R") }

// TestStreamExecSaysWhatFailed is about a program that cannot begin: the error is the answer, or the last line of a stream that has begun.
func TestStreamExecSaysWhatFailed(t *testing.T) {
	l := driven(t)
	for _, x := range []struct {
		exec driver.Exec
		kind agent.Kind
		text string
	}{
		{driver.Exec{ID: "A", Command: []string{"true"}, Dir: "/none"}, agent.NotFound, "there is no folder /none"},
		{driver.Exec{ID: "B", Command: []string{"true"}, Dir: "/dev/null"}, agent.Invalid, "/dev/null is no folder"},
		{driver.Exec{ID: "C", Command: []string{"no-such-program", "-x"}}, agent.NotFound, "no-such-program"},
	} {
		var got bytes.Buffer
		var last execLine
		if err := streamExec(t.Context(), l, x.exec, &got, asProblem); err != nil { // before the stream was there
			p := asProblem(err)
			last.Error = &p
		}
		for line := range bytes.Lines(got.Bytes()) {
			last = execLine{}
			if err := json.Unmarshal(line, &last); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
		}
		if last.Error == nil || last.Error.Kind != x.kind || !strings.Contains(last.Error.Detail, x.text) {
			t.Errorf("the stream is %s, want %s: ...%s...", &got, x.kind, x.text)
		}
	}
}
