package keeper_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
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
	"github.com/skep-dev/skep/sandbox"
	"github.com/skep-dev/skep/sandbox/keeper"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/memkv"
)

// engine is a provider whose boxes are drivers in this process: all that a container is but its walls.
type engine struct {
	t    *testing.T
	name string

	mu      sync.Mutex
	boxes   map[sandbox.Handle]*box
	volumes map[string]string // folder of each
	gave    int               // boxes that were made, ever
	probed  int
	warmed  int      // boxes that were
	lacks   []string // capabilities
	mute    bool     // drivers say nothing
	dies    bool     // drivers end at once
	oom     bool     // for want of memory, as does all that ends
	refuse  error    // of Create

	entered chan struct{} // the first Create sends to it, and waits for hold to be closed
	hold    chan struct{}
}

type box struct {
	req   sandbox.Request
	phase sandbox.Phase
	work  string
	stop  context.CancelFunc
	done  chan struct{}
	log   bytes.Buffer
	waits bool // it was warmed
}

func newEngine(t *testing.T) *engine {
	e := &engine{t: t, name: "engine", boxes: map[sandbox.Handle]*box{}, volumes: map[string]string{}}
	t.Cleanup(func() {
		for _, h := range e.handles() {
			e.kill(h)
		}
	})
	return e
}

func (e *engine) Name() string { return e.name }
func (e *engine) Close() error { return nil }

func (e *engine) Probe(context.Context) agent.SandboxProvider {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.probed++
	p := agent.SandboxProvider{Name: e.name, Ready: true, Runtimes: []string{"runc"}}
	for _, name := range sandbox.Capabilities() {
		if !slices.Contains(e.lacks, name) {
			p.Capabilities = append(p.Capabilities, agent.Capability{Name: name, Level: agent.CapabilityEnforced})
		}
	}
	return p
}

func (e *engine) Create(_ context.Context, r *sandbox.Request) (sandbox.Handle, error) {
	e.mu.Lock()
	entered, hold := e.entered, e.hold
	e.mu.Unlock()
	if hold != nil {
		select {
		case entered <- struct{}{}:
		case <-hold:
		}
		<-hold
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.refuse != nil {
		return "", e.refuse
	}
	h := sandbox.Handle(fmt.Sprintf("%s-%d", r.ID, r.Generation))
	if e.boxes[h] != nil {
		return h, nil
	}
	for other, b := range e.boxes {
		if b.req.ID == r.ID {
			e.t.Errorf("%s is made while there is %s", h, other)
		}
	}
	if st, err := os.Stat(r.Sockets); err != nil || st.Mode().Perm() != 0o755 {
		e.t.Errorf("the folder of the socket: %v %v", st, err)
	}
	e.gave++
	b := &box{req: *r, phase: sandbox.Created, work: e.t.TempDir(), done: make(chan struct{})}
	if r.Volume != "" {
		if e.volumes[r.Volume] == "" {
			e.volumes[r.Volume] = b.work
		}
		b.work = e.volumes[r.Volume]
	}
	e.boxes[h] = b
	return h, nil
}

func (e *engine) Start(_ context.Context, h sandbox.Handle, boot io.Reader) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	b := e.boxes[h]
	if b == nil || b.phase != sandbox.Created && !b.waits {
		return agent.Errorf(agent.Conflict, "box %s cannot be started", h)
	}
	b.waits = false
	var in driver.Boot
	if err := json.NewDecoder(boot).Decode(&in); err != nil {
		return err
	}
	if in.Socket != sandbox.SocketDir+"/"+sandbox.Socket {
		e.t.Errorf("the socket is %s", in.Socket)
	}
	in.Socket, in.Relay, in.Workdir = filepath.Join(b.req.Sockets, sandbox.Socket), "127.0.0.1:0", b.work
	ctx, stop := context.WithCancel(context.Background())
	b.phase, b.stop = sandbox.Running, stop
	mute, dies := e.mute, e.dies
	go func() {
		defer close(b.done)
		var err error
		switch {
		case dies:
			b.log.WriteString("it has no shell")
		case mute:
			<-ctx.Done()
		default:
			err = inside.Run(ctx, &inside.Options{Boot: in, Version: "test", Home: b.work, Log: slog.New(slog.DiscardHandler), Grace: 100 * time.Millisecond})
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		b.phase = sandbox.Exited
		if err != nil {
			fmt.Fprintln(&b.log, err)
		}
	}()
	return nil
}

// Warm has a box run, and wait.
func (e *engine) Warm(_ context.Context, h sandbox.Handle) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	b := e.boxes[h]
	switch {
	case b == nil:
		return agent.Errorf(agent.NotFound, "there is no box %s", h)
	case b.waits:
		return nil
	case b.phase != sandbox.Created:
		return agent.Errorf(agent.Conflict, "box %s cannot be started", h)
	}
	b.phase, b.waits = sandbox.Running, true
	e.warmed++
	return nil
}

// chill ends the boxes that wait, as the end of a server does.
func (e *engine) chill() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, b := range e.boxes {
		if b.waits {
			b.phase, b.waits = sandbox.Exited, false
		}
	}
}

// kill ends what runs in a box, and leaves the box.
func (e *engine) kill(h sandbox.Handle) {
	e.mu.Lock()
	b := e.boxes[h]
	var stop context.CancelFunc
	if b != nil {
		stop = b.stop
	}
	e.mu.Unlock()
	if stop != nil {
		stop()
		<-b.done
	}
}

func (e *engine) Inspect(_ context.Context, h sandbox.Handle) (sandbox.State, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if b := e.boxes[h]; b != nil {
		return sandbox.State{Phase: b.phase, OOM: e.oom && b.phase == sandbox.Exited}, nil
	}
	return sandbox.State{}, nil
}

func (e *engine) Stop(_ context.Context, h sandbox.Handle, _ time.Duration) error {
	e.kill(h)
	return nil
}

func (e *engine) Delete(_ context.Context, h sandbox.Handle) error {
	e.kill(h)
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.boxes, h)
	return nil
}

func (e *engine) List(_ context.Context, owner string) (out []sandbox.Observed, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for h, b := range e.boxes {
		if b.req.Owner == owner {
			out = append(out, sandbox.Observed{Handle: h, ID: b.req.ID, Generation: b.req.Generation, State: sandbox.State{Phase: b.phase}})
		}
	}
	return out, nil
}

func (e *engine) Log(_ context.Context, h sandbox.Handle, _ int64) ([]byte, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if b := e.boxes[h]; b != nil {
		return bytes.Clone(b.log.Bytes()), nil
	}
	return nil, errors.New("no such box")
}

func (e *engine) DeleteVolume(_ context.Context, name string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for h, b := range e.boxes {
		if b.req.Volume == name {
			return agent.Errorf(agent.Conflict, "box %s has the volume %s", h, name)
		}
	}
	delete(e.volumes, name)
	return nil
}

// of returns the boxes and the volumes of a sandbox.
func (e *engine) of(id agent.SandboxID) (list []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for h, b := range e.boxes {
		if b.req.ID == id {
			list = append(list, string(h))
		}
	}
	for name := range e.volumes {
		if strings.HasPrefix(name, "skep-"+strings.ToLower(string(id))) {
			list = append(list, name)
		}
	}
	return list
}

func (e *engine) ListVolumes(context.Context, string) (names []string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for name := range e.volumes {
		names = append(names, name)
	}
	return names, nil
}

func (e *engine) handles() (out []sandbox.Handle) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for h := range e.boxes {
		out = append(out, h)
	}
	slices.Sort(out)
	return out
}

// made returns how many boxes were made, ever.
func (e *engine) made() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.gave
}

// set changes how the engine behaves.
func (e *engine) set(change func(*engine)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(e)
}

// world is a store, an engine and a folder, which outlive keepers.
type world struct {
	t       *testing.T
	store   *store.Store
	engine  *engine
	dir     string
	now     func() time.Time
	session agent.SessionID
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "kp") // a short path, for the sake of the sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s, err := store.Open(t.Context(), memkv.New(), t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return &world{t: t, store: s, engine: newEngine(t), dir: dir, now: time.Now}
}

// env stores an environment.
func (w *world) env(change func(*agent.Environment)) agent.Environment {
	w.t.Helper()
	env := agent.Environment{App: agent.DefaultApp, Name: "e", Image: "image"}
	if change != nil {
		change(&env)
	}
	env, err := w.store.PutEnvironment(w.t.Context(), env)
	if err != nil {
		w.t.Fatal(err)
	}
	return env
}

func (w *world) options() *keeper.Options {
	return &keeper.Options{
		Providers: []sandbox.Provider{w.engine}, Records: w.store, Dir: w.dir, Driver: "/driver", Owner: "me", Now: w.now, Every: time.Hour,
		Hello: 20 * time.Second,
		Events: func(ctx context.Context, sb agent.Sandbox, first int64, list []driver.Event) error {
			events := make([]agent.Event, len(list))
			for i, e := range list {
				events[i] = agent.Event{Kind: agent.EventEmit, Name: e.Type, Data: e.Data, Run: agent.RunID(sb.Source())}
			}
			_, err := w.store.AppendOnce(ctx, store.AuditLog(sb.App), sb.Source(), first, events)
			return err
		},
	}
}

// running is a keeper that runs until stop.
type running struct {
	*keeper.Keeper
	stop  func()
	alive func() error
}

func (w *world) start(change func(*keeper.Options)) *running {
	w.t.Helper()
	o := w.options()
	if change != nil {
		change(o)
	}
	k, err := keeper.New(o)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = k.Run(ctx) }()
	r := &running{k, func() { cancel(); <-done }, func() error { return nil }}
	w.t.Cleanup(r.stop)
	return r
}

func want(env agent.Environment, whose string, keep agent.SandboxKeep) keeper.Want {
	return keeper.Want{App: env.App, Agent: "a", For: whose, Run: agent.RunID("R-" + whose), Keep: keep, Environment: env}
}

// wait waits until ok, and fails the test when that takes too long.
func wait(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("waited too long until %s", what)
		}
	}
}

func (w *world) records() (all []agent.SandboxRecord) {
	w.t.Helper()
	all, _, err := w.store.AllSandboxes(w.t.Context(), agent.Page{Limit: agent.MaxPage})
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// empty waits until nothing is left of any sandbox.
func (w *world) empty() {
	w.t.Helper()
	wait(w.t, "nothing is left", func() bool {
		names, _ := w.engine.ListVolumes(w.t.Context(), "me")
		return len(w.records()) == 0 && len(w.engine.handles()) == 0 && len(names) == 0
	})
	left, err := filepath.Glob(filepath.Join(w.dir, "*.*"))
	if err != nil || len(left) > 0 {
		w.t.Error(left, err)
	}
	if err := w.store.Verify(w.t.Context()); err != nil {
		w.t.Error(err)
	}
}

// sh runs a line in a box and returns what it says.
func sh(ctx context.Context, b *keeper.Box, line string) (string, error) {
	var res driver.ExecResult
	err := b.Do(ctx, driver.DoExec, &driver.Exec{ID: string(agent.NewSandboxID(time.Now())), Command: []string{line}}, &res)
	if err == nil && res.Code != 0 {
		err = fmt.Errorf("exit status %d: %s", res.Code, res.Stderr)
	}
	return res.Stdout, err
}
