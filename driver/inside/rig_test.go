package inside_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/backend"
	"github.com/skep-dev/skep/driver/inside"
	"github.com/skep-dev/skep/driver/link"
)

// rig is a control plane with one box, whose driver runs in this process.
type rig struct {
	t      *testing.T
	dir    string // short: a socket's path has little room
	socket string // that the driver dials
	server string // that the control plane listens at; the same unless something is between
	work   string
	home   string
	token  string
	key    string
	opts   inside.Options
	link   *link.Link
	http   *http.Server
	stop   context.CancelFunc
	done   chan struct{}
	err    error // of the driver

	mu     sync.Mutex
	events []driver.Event
	states []string
	before func(first int64, list []driver.Event) error // called ahead of storing
	notify chan struct{}
}

const (
	box        = agent.SandboxID("01BOX")
	generation = 3
	patience   = 30 * time.Second
)

func newRig(t *testing.T) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "skep")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &rig{t: t, dir: dir, token: link.NewSecret(), key: link.DeriveKey([]byte(strings.Repeat("s", 32)), box, generation), notify: make(chan struct{})}
	r.socket, r.work, r.home = filepath.Join(dir, "skep.sock"), filepath.Join(dir, "work"), filepath.Join(dir, "home")
	r.server = r.socket
	if err := os.Mkdir(r.home, 0o755); err != nil {
		t.Fatal(err)
	}
	r.opts = inside.Options{
		Boot: driver.Boot{
			Version: driver.Version, Sandbox: box, Generation: generation, Socket: r.socket, Token: r.token, Relay: "127.0.0.1:0", Workdir: r.work,
			TraceID: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		},
		Version: "test", Home: r.home, Log: quiet(), Backends: []backend.Backend{fake{}}, Backoff: time.Millisecond, Grace: 100 * time.Millisecond,
	}
	return r
}

func quiet() *slog.Logger {
	if testing.Verbose() {
		return slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	return slog.New(slog.DiscardHandler)
}

// serve starts a control plane that knows what the one before it has stored.
func (r *rig) serve(token string) {
	r.t.Helper()
	r.mu.Lock()
	acked := int64(len(r.events))
	r.mu.Unlock()
	r.link = link.New(link.Options{
		Sandbox: box, Generation: generation, Token: token, Key: r.key, Acked: acked, Log: quiet(),
		Welcome: func(context.Context) (driver.WelcomeBody, error) {
			return driver.WelcomeBody{Env: map[string]string{"GREETING": "hello"}, ModelKey: "model-key"}, nil
		},
		Events: r.store,
		State: func(up bool, why error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.states = append(r.states, fmt.Sprint(up, " ", why))
		},
	})
	mux := http.NewServeMux()
	mux.Handle(driver.Path, r.link)
	mux.Handle(driver.StreamPath, r.link)
	mux.HandleFunc("/ai/", func(w http.ResponseWriter, q *http.Request) { fmt.Fprint(w, "model says ", q.URL.Path) })
	l, err := net.Listen("unix", r.server)
	if err != nil {
		r.t.Fatal(err)
	}
	r.http = &http.Server{Handler: mux}
	go r.http.Serve(l)
}

// crash ends the control plane as a crash would: without a word.
func (r *rig) crash() {
	r.http.Close()
	r.link.Detach()
	os.Remove(r.server)
}

func (r *rig) store(_ context.Context, first int64, list []driver.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if first != int64(len(r.events))+1 {
		r.t.Errorf("events from number %d are stored after %d", first, len(r.events))
	}
	if r.before != nil {
		if err := r.before(first, list); err != nil {
			return err
		}
	}
	r.events = append(r.events, list...)
	close(r.notify)
	r.notify = make(chan struct{})
	return nil
}

// drive starts the driver. Everything ends with the test.
func (r *rig) drive() {
	ctx, cancel := context.WithCancel(context.Background())
	r.stop, r.done = cancel, make(chan struct{})
	go func() {
		defer close(r.done)
		r.err = inside.Run(ctx, &r.opts)
	}()
	r.t.Cleanup(func() {
		r.stop()
		r.ended()
		r.link.Close(nil)
		r.http.Close()
		r.link.Wait()
	})
}

// ended waits until the driver has ended.
func (r *rig) ended() error {
	select {
	case <-r.done:
	case <-time.After(patience):
		r.t.Fatal("the driver does not end")
	}
	return r.err
}

func start(t *testing.T) *rig {
	t.Helper()
	r := newRig(t)
	r.serve(r.token)
	r.drive()
	r.ready()
	return r
}

func (r *rig) ready() {
	r.t.Helper()
	if err := r.link.Ready(r.ctx()); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	r.t.Cleanup(cancel)
	return ctx
}

func do[T any](r *rig, name string, in any) T {
	r.t.Helper()
	var out T
	if err := r.link.Do(r.ctx(), name, in, &out); err != nil {
		r.t.Fatalf("%s: %v", name, err)
	}
	return out
}

// fails does a command that has to fail with an error of a kind that mentions what.
func (r *rig) fails(kind agent.Kind, what, name string, in any) {
	r.t.Helper()
	err := r.link.Do(r.ctx(), name, in, nil)
	if err == nil || agent.KindOf(err) != kind || !strings.Contains(err.Error(), what) {
		r.t.Fatalf("%s: error %v (%s), want one of the kind %s about %q", name, err, agent.KindOf(err), kind, what)
	}
}

// await waits for an event that ok likes, and returns it and all before it.
func (r *rig) await(ok func(driver.Event) bool) (driver.Event, []driver.Event) {
	r.t.Helper()
	deadline := time.After(patience)
	for {
		r.mu.Lock()
		notify := r.notify
		for i, e := range r.events {
			if ok(e) {
				list := append([]driver.Event(nil), r.events[:i+1]...)
				r.mu.Unlock()
				return e, list
			}
		}
		r.mu.Unlock()
		select {
		case <-notify:
		case <-deadline:
			r.t.Fatalf("an event does not come; there are %s", show(r.events))
		}
	}
}

func show(list []driver.Event) string {
	var b strings.Builder
	for _, e := range list {
		fmt.Fprintf(&b, "\n  %s %s %s", e.Turn, e.Type, e.Data)
	}
	return b.String()
}

// turnEnd waits for the end of a turn.
func (r *rig) turnEnd(turn string) (driver.TurnEnd, []driver.Event) {
	r.t.Helper()
	e, list := r.await(func(e driver.Event) bool { return e.Turn == turn && e.Type == driver.TurnEnded })
	var end driver.TurnEnd
	if err := e.Read(&end); err != nil {
		r.t.Fatal(err)
	}
	return end, list
}

// get does a command whose bytes come over a stream.
func (r *rig) get(name string, in any, set func(*driver.Stream), out any) []byte {
	r.t.Helper()
	b, err := r.tryGet(name, in, set, out)
	if err != nil {
		r.t.Fatalf("%s: %v", name, err)
	}
	return b
}

func (r *rig) tryGet(name string, in any, set func(*driver.Stream), out any) ([]byte, error) {
	st, err := r.link.Stream()
	if err != nil {
		return nil, err
	}
	defer st.Close()
	set(st.Args())
	ctx, cancel := context.WithCancel(r.ctx())
	failed := make(chan error, 1)
	go func() {
		err := r.link.Do(ctx, name, in, out)
		if err != nil {
			cancel()
		}
		failed <- err
	}()
	c, err := st.Conn(ctx)
	var b []byte
	if err == nil {
		b, err = io.ReadAll(c)
	}
	return b, errors.Join(<-failed, err)
}

// put does a command whose bytes go over a stream.
func (r *rig) put(name string, in any, set func(*driver.Stream), out any, write func(c link.Conn)) error {
	st, err := r.link.Stream()
	if err != nil {
		return err
	}
	defer st.Close()
	set(st.Args())
	ctx, cancel := context.WithCancel(r.ctx())
	failed := make(chan error, 1)
	go func() {
		failed <- r.link.Do(ctx, name, in, out)
		cancel()
	}()
	if c, err := st.Conn(ctx); err == nil {
		write(c)
	}
	return <-failed
}

func whole(b []byte) func(link.Conn) {
	return func(c link.Conn) {
		_, _ = c.Write(b)
		_ = c.CloseWrite()
	}
}

// fake is a backend whose CLI is this test's binary: see fakeCLI.
type fake struct{}

func (fake) Spec() backend.Spec { return backend.Spec{Name: "fake", Title: "Fake", Protocol: "lines"} }

func (fake) Start(ctx context.Context, p *driver.Prompt, env *backend.Env, sink func(driver.Event)) (backend.Session, error) {
	if p.Model == "none" {
		return nil, agent.Errorf(agent.NotFound, "no model none")
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	proc, err := env.Spawn(ctx, &backend.Command{Path: self, Dir: p.Dir, Env: map[string]string{"SKEP_FAKE_CLI": p.Model, "MODEL_KEY": env.Key, "MODELS": env.Models}})
	if err != nil {
		return nil, err
	}
	s := &fakeSession{proc: proc, sink: sink}
	lines := bufio.NewReader(proc)
	if _, err := lines.ReadString('\n'); err != nil { // its word that it is ready
		proc.Wait()
		return nil, agent.Errorf(agent.Failed, "the fake is not ready")
	}
	sink(driver.NewEvent("", driver.SessionStarted, driver.SessionData{ID: "session-1", CLI: "fake", Resumed: p.Resume != ""}))
	go func() {
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			var e driver.Event
			if json.Unmarshal(line, &e) != nil {
				e = driver.NewEvent("", driver.Unparsed, driver.UnparsedData{Raw: string(line)})
			}
			e.Time = time.Now()
			sink(e)
		}
	}()
	return s, nil
}

type fakeSession struct {
	proc backend.Process
	sink func(driver.Event)
}

func (s *fakeSession) say(v any) error {
	b, _ := json.Marshal(v)
	_, err := s.proc.Write(append(b, '\n'))
	return err
}

func (s *fakeSession) Prompt(_ context.Context, p *driver.Prompt) error {
	s.sink(driver.NewEvent(p.Turn, driver.TurnStarted, nil))
	return s.say(map[string]string{"prompt": p.Text})
}

func (s *fakeSession) Answer(_ context.Context, a *driver.Answer) error {
	return s.say(map[string]any{"answer": a.ID, "allow": a.Allow})
}
func (s *fakeSession) Interrupt(context.Context) error {
	return s.say(map[string]string{"interrupt": "yes"})
}
func (s *fakeSession) Close(ctx context.Context) error {
	_ = s.proc.CloseInput()
	select {
	case <-s.proc.Done():
	case <-ctx.Done():
	}
	return nil
}
func (s *fakeSession) Done() <-chan struct{} { return s.proc.Done() }
