package runtime_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/tools"
	"github.com/skep-dev/skep/tools/builtin"
)

// boxYard has sandboxes whose drivers run in this process, each with a folder for its workspace and the scripted CLI of the test. It outlives runtimes, as
// boxes do.
type boxYard struct {
	t  testing.TB
	st *store.Store
	do func(*cliTurn)

	mu       sync.Mutex
	boxes    map[agent.SandboxID]*yardBox
	runtime  *runtime.Runtime // that events go to; nil while there is none
	commands map[string]int
	released []string
	fail     func(name string) error // asked before each command; may be nil
}

type yardBox struct {
	y    *boxYard
	id   agent.SandboxID
	link *link.Link
	work string
	stop func()
}

func newYard(t testing.TB, st *store.Store, do func(*cliTurn)) *boxYard {
	return &boxYard{t: t, st: st, do: do, boxes: map[agent.SandboxID]*yardBox{}, commands: map[string]int{}}
}

// serve has events go to a runtime; nil to none.
func (y *boxYard) serve(r *runtime.Runtime) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.runtime = r
}

func (y *boxYard) did(name string) int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.commands[name]
}

func (y *boxYard) Open(ctx context.Context, w runtime.BoxWant) (runtime.Box, error) {
	st := y.records()
	rec, err := st.SandboxFor(ctx, w.App, w.For)
	if agent.KindOf(err) == agent.NotFound && err != nil {
		rec.Sandbox = agent.Sandbox{
			ID: agent.NewSandboxID(time.Now()), App: w.App, Agent: w.Agent, For: w.For, Session: w.Session, Run: w.Run, Environment: w.Environment.Ref(),
			Provider: "yard", Keep: w.Keep, Generation: 1, State: agent.SandboxReady,
		}
		err = st.PutSandbox(ctx, rec, 100)
	} else if err == nil {
		rec, err = st.ChangeSandbox(ctx, rec.ID, func(r *agent.SandboxRecord) error {
			r.Run, r.Session, r.State, r.Error = w.Run, w.Session, agent.SandboxReady, nil
			return nil
		})
	}
	if err != nil {
		return nil, err
	}
	if b, err := y.Get(ctx, w.App, rec.ID); err == nil {
		return b, nil
	}
	return y.make(ctx, rec.Sandbox)
}

func (y *boxYard) records() *store.Store {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.st
}

func (y *boxYard) make(ctx context.Context, sb agent.Sandbox) (runtime.Box, error) {
	dir, err := os.MkdirTemp("", "skep") // a socket's path has little room
	if err != nil {
		return nil, err
	}
	b := &yardBox{y: y, id: sb.ID, work: filepath.Join(dir, "work")}
	token := link.NewSecret()
	b.link = link.New(link.Options{
		Sandbox: sb.ID, Generation: 1, Token: token, Key: link.NewSecret(), Log: slog.New(slog.DiscardHandler),
		Welcome: func(context.Context) (driver.WelcomeBody, error) { return driver.WelcomeBody{}, nil },
		Events: func(ctx context.Context, first int64, list []driver.Event) error {
			return y.store(ctx, sb.ID, first, list)
		},
	})
	mux := http.NewServeMux()
	mux.Handle(driver.Path, b.link)
	mux.Handle(driver.StreamPath, b.link)
	socket := filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: mux}
	life, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(l) })
	running.Go(func() {
		_ = inside.Run(life, &inside.Options{
			Boot: driver.Boot{Version: driver.Version, Sandbox: sb.ID, Generation: 1, Socket: socket, Token: token, Relay: "127.0.0.1:0", Workdir: b.work},
			Home: dir, Log: slog.New(slog.DiscardHandler), Backends: []backend.Backend{scriptedCLI{b}}, Backoff: time.Millisecond, Grace: 200 * time.Millisecond,
		})
	})
	b.stop = sync.OnceFunc(func() {
		cancel()
		b.link.Close(errors.New("the box is deleted"))
		_ = server.Close()
		running.Wait()
		b.link.Wait()
		_ = os.RemoveAll(dir)
	})
	y.t.Cleanup(b.stop)
	y.mu.Lock()
	y.boxes[sb.ID] = b
	y.mu.Unlock()
	if err := b.link.Ready(ctx); err != nil {
		return nil, err
	}
	return b, nil
}

func (y *boxYard) store(ctx context.Context, id agent.SandboxID, first int64, list []driver.Event) error {
	y.mu.Lock()
	r := y.runtime
	y.mu.Unlock()
	if r == nil {
		return agent.Errorf(agent.Unavailable, "the server is away")
	}
	rec, err := y.records().Sandbox(ctx, id)
	if err != nil {
		if agent.KindOf(err) == agent.NotFound {
			return nil // it is deleted
		}
		return err
	}
	return r.BoxEvents(ctx, rec.Sandbox, first, list)
}

func (y *boxYard) Get(_ context.Context, _ agent.App, id agent.SandboxID) (runtime.Box, error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if b := y.boxes[id]; b != nil {
		return b, nil
	}
	return nil, agent.Errorf(agent.NotFound, "there is no sandbox %s", id)
}

func (y *boxYard) Release(ctx context.Context, app agent.App, whose string) error {
	y.mu.Lock()
	y.released = append(y.released, whose)
	y.mu.Unlock()
	st := y.records()
	rec, err := st.SandboxFor(ctx, app, whose)
	if err != nil {
		return nil
	}
	if _, err := st.ChangeSandbox(ctx, rec.ID, func(r *agent.SandboxRecord) error { r.State = agent.SandboxDeleting; return nil }); err != nil {
		return err
	}
	y.mu.Lock()
	b := y.boxes[rec.ID]
	delete(y.boxes, rec.ID)
	y.mu.Unlock()
	if b != nil {
		b.stop()
	}
	return st.DropSandbox(ctx, rec.ID)
}

// only returns the one box that there is.
func (y *boxYard) only() *yardBox {
	y.t.Helper()
	y.mu.Lock()
	defer y.mu.Unlock()
	if len(y.boxes) != 1 {
		y.t.Fatalf("there are %d boxes", len(y.boxes))
	}
	for _, b := range y.boxes {
		return b
	}
	return nil
}

// none waits until there is no box.
func (y *boxYard) none() {
	y.t.Helper()
	eventually(y.t, "boxes are left", func() bool {
		y.mu.Lock()
		defer y.mu.Unlock()
		return len(y.boxes) == 0
	})
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

func (b *yardBox) Record() agent.Sandbox {
	rec, _ := b.y.records().Sandbox(context.Background(), b.id)
	return rec.Sandbox
}

func (b *yardBox) Do(ctx context.Context, name string, in, out any) error {
	b.y.mu.Lock()
	b.y.commands[name]++
	fail := b.y.fail
	b.y.mu.Unlock()
	if fail != nil {
		if err := fail(name); err != nil {
			return err
		}
	}
	return b.link.Do(ctx, name, in, out)
}

func (b *yardBox) Stream() (*link.Stream, error) { return b.link.Stream() }

// scriptedCLI is the backend claude of a box: what it does in a turn is for the test to say.
type scriptedCLI struct{ b *yardBox }

func (c scriptedCLI) Spec() backend.Spec {
	return backend.Spec{Name: "claude", Abilities: []string{backend.Asks, backend.Interrupts, backend.Resumes}}
}

func (c scriptedCLI) Start(_ context.Context, p *driver.Prompt, _ *backend.Env, sink func(driver.Event)) (backend.Session, error) {
	s := &cliSession{b: c.b, sink: sink, id: "native-1", done: make(chan struct{}), asked: map[string]chan driver.Answer{}}
	if p.Resume != "" {
		s.id = p.Resume
	}
	sink(driver.NewEvent("", driver.SessionStarted, driver.SessionData{ID: s.id, CLI: "claude", Resumed: p.Resume != ""}))
	return s, nil
}

type cliSession struct {
	b    *yardBox
	sink func(driver.Event)
	id   string
	done chan struct{}

	mu    sync.Mutex
	stop  context.CancelFunc
	count int
	asked map[string]chan driver.Answer
}

// cliTurn is a turn of the scripted CLI.
type cliTurn struct {
	s      *cliSession
	ctx    context.Context // ends when the turn is interrupted
	prompt *driver.Prompt
	end    driver.TurnEnd // as it will end
}

func (s *cliSession) Prompt(_ context.Context, p *driver.Prompt) error {
	ctx, stop := context.WithCancel(context.Background())
	s.mu.Lock()
	s.stop = stop
	s.mu.Unlock()
	s.sink(driver.NewEvent(p.Turn, driver.TurnStarted, nil))
	go func() {
		c := &cliTurn{s: s, ctx: ctx, prompt: p, end: driver.TurnEnd{Status: driver.TurnCompleted}}
		s.b.y.do(c)
		if ctx.Err() != nil {
			c.end = driver.TurnEnd{Status: driver.TurnInterrupted}
		}
		s.sink(driver.NewEvent(p.Turn, driver.TurnEnded, c.end))
	}()
	return nil
}

func (s *cliSession) Answer(_ context.Context, a *driver.Answer) error {
	s.mu.Lock()
	ch := s.asked[a.ID]
	delete(s.asked, a.ID)
	s.mu.Unlock()
	if ch == nil {
		return agent.Errorf(agent.NotFound, "nothing was asked under %s", a.ID)
	}
	ch <- *a
	return nil
}

func (s *cliSession) Interrupt(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop()
	return nil
}

func (s *cliSession) Close(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop != nil {
		s.stop()
	}
	select {
	case <-s.done:
	default:
		close(s.done)
	}
	return nil
}

func (s *cliSession) Done() <-chan struct{} { return s.done }

func (c *cliTurn) tell(kind string, data any) { c.s.sink(driver.NewEvent(c.prompt.Turn, kind, data)) }

// say tells a text in pieces.
func (c *cliTurn) say(item string, pieces ...string) {
	for _, p := range pieces {
		c.tell(driver.TextDelta, driver.TextData{Item: item, Text: p})
	}
	c.end.Text = strings.Join(pieces, "")
	c.tell(driver.TextDone, driver.TextData{Item: item, Text: c.end.Text})
}

func (c *cliTurn) ask(kind string, data func(id string) any) (driver.Answer, bool) {
	ch := make(chan driver.Answer, 1)
	c.s.mu.Lock()
	c.s.count++
	id := fmt.Sprintf("q%d", c.s.count)
	c.s.asked[id] = ch
	c.s.mu.Unlock()
	c.tell(kind, data(id))
	select {
	case a := <-ch:
		return a, true
	case <-c.ctx.Done():
		return driver.Answer{}, false
	}
}

// withdraw takes back all that is asked.
func (c *cliTurn) withdraw() {
	c.s.mu.Lock()
	ids := make([]string, 0, len(c.s.asked))
	for id := range c.s.asked {
		ids = append(ids, id)
	}
	clear(c.s.asked)
	c.s.mu.Unlock()
	for _, id := range ids {
		c.tell(driver.PermissionWithdrawn, driver.PermissionData{ID: id})
	}
}

// permit asks to be allowed something, and returns why it is not, or "".
func (c *cliTurn) permit(action string, args any) string {
	raw, _ := json.Marshal(args)
	a, ok := c.ask(driver.PermissionAsked, func(id string) any {
		return driver.PermissionData{ID: id, Tool: "Native", Action: action, Args: raw}
	})
	switch {
	case !ok:
		return "interrupted"
	case a.Allow:
		return ""
	}
	return a.Message
}

// write writes a file of the workspace if that is allowed.
func (c *cliTurn) write(path, text string) string {
	why := c.permit(driver.ActionEdit, map[string]string{"path": path})
	if why == "" {
		if err := os.WriteFile(filepath.Join(c.s.b.work, path), []byte(text), 0o644); err != nil {
			return err.Error()
		}
		c.tell(driver.FileChanged, driver.FileData{Path: path, Op: "change"})
	}
	return why
}

// boxWorld is a world with an agent "coder", whose work the scripted CLI does.
type boxWorld struct {
	*toolWorld
	yard *boxYard
	opts runtime.Options
}

func newBoxWorld(t testing.TB, policy, script string, keep agent.SandboxKeep, do func(*cliTurn)) *boxWorld {
	t.Helper()
	if script == "" {
		script = "export {}"
	}
	w := &boxWorld{toolWorld: &toolWorld{world: newWorld(t, script, nil), shelf: &shelf{}}}
	w.yard = newYard(t, w.store, do)
	ctx := t.Context()
	if policy != "" {
		if _, err := w.store.PutDoc(ctx, store.Policies, app, "policy", 0, map[string]string{"text": policy}); err != nil {
			t.Fatal(err)
		}
	}
	w.tools = tools.New(w.store, &tools.Options{BuiltIns: builtin.Names(), Openers: tools.Openers{agent.BuiltIn: builtin.Opener(builtin.Options{
		Agents: func(context.Context, agent.App) ([]builtin.Agent, error) { return nil, nil },
	})}})
	t.Cleanup(func() { _ = w.tools.Close() })
	if _, err := w.store.PutEnvironment(ctx, agent.Environment{App: app, Name: "env", Image: "image:1"}); err != nil {
		t.Fatal(err)
	}
	w.opts = runtime.Options{Tools: w.tools, Boxes: w.yard, Grace: time.Second, Outside: 50 * time.Millisecond}
	w.Runtime = runtime.New(w.store, w.cells, &w.opts)
	w.yard.serve(w.Runtime)
	if _, _, err := w.CreateAgent(ctx, agent.Agent{App: app, Name: "coder", Sandbox: &agent.SandboxUse{Environment: "env", CLI: "claude", Keep: keep}}, store.Once{}); err != nil {
		t.Fatal(err)
	}
	return w
}

// again is the world after its process has died.
func (w *boxWorld) again() *boxWorld {
	o := w.opts
	n := &boxWorld{toolWorld: &toolWorld{world: w.next(&o), shelf: w.shelf, tools: w.tools}, yard: w.yard, opts: w.opts}
	w.yard.serve(n.Runtime)
	return n
}

func (w *boxWorld) task(input string, session agent.SessionID) agent.Run {
	w.t.Helper()
	run, _, err := w.StartRun(w.t.Context(), app, runtime.RunRequest{Agent: "coder", Input: agent.JSON([]byte(input)), Session: session}, store.Once{})
	if err != nil {
		w.t.Fatal(err)
	}
	return run
}

// outcome is what a run of a CLI returns.
type outcome struct {
	Text, Status, Turn, Patch, Bundle, List, Commit, Used string
	Usage                                                 map[string]int64
	Changed                                               []struct{ Path, Op string }
}

func (w *boxWorld) outcome(run agent.Run) (out outcome) {
	w.t.Helper()
	text := w.output(run)
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		w.t.Fatalf("the run came to %s: %q", text, w.told(run))
	}
	return out
}

// told is what a run's session tells, with the names of what came from the sandbox.
func (w *boxWorld) told(run agent.Run) (out []string) {
	w.t.Helper()
	events, err := w.store.Read(w.t.Context(), store.SessionLog(app, run.Session), 0, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, ev := range events {
		if text := ev.Kind.String(); ev.Kind == agent.EventCLI {
			out = append(out, text+" "+ev.Name)
		} else {
			out = append(out, text)
		}
	}
	return out
}

func (w *boxWorld) file(run agent.Run, name string) string {
	w.t.Helper()
	_, body, err := w.store.ReadFile(w.t.Context(), app, run.Session, name, 0, store.MaxFileRead)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(body)
}
