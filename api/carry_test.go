package api

import (
	"bytes"
	"context"
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

	"github.com/skep-dev/skep/agent"
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
	go func() { done <- streamExec(ctx, l, driver.Exec{ID: "X", Command: []string{"sleep", "1000"}}, w) }()
	buf := make([]byte, 256)
	if n, err := r.Read(buf); err != nil || !strings.Contains(string(buf[:n]), `"id":"X"`) {
		t.Fatalf("%q, %v", buf[:n], err)
	}
	cancel()
	if err := <-done; err == nil {
		t.Error("it ended well")
	}
	for {
		var out driver.Processes
		if err := l.Do(t.Context(), driver.DoProcesses, nil, &out); err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(out.List, func(p driver.Process) bool { return p.ID == "X" && !p.Ended }) {
			return
		}
	}
}
