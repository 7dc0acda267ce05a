package keeper_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/sandbox"
	"github.com/skep-dev/skep/sandbox/keeper"
)

// A box that ends by itself is lost: who uses it is told, and the next has another.
func TestLost(t *testing.T) {
	w := newWorld(t)
	env := w.env(nil)
	k := w.start(nil)
	b := open(t, k, want(env, "run/1", agent.Cattle))
	failed := make(chan error, 1)
	go func() { _, err := sh(t.Context(), b, "sleep 60"); failed <- err }()
	wait(t, "it runs", func() bool {
		var ps driver.Processes
		return b.Do(t.Context(), driver.DoProcesses, nil, &ps) == nil && len(ps.List) > 0
	})
	w.engine.kill(w.engine.handles()[0])
	if err := <-failed; err == nil {
		t.Error("what ran in it ended well")
	}
	wait(t, "it is lost", func() bool { return w.records()[0].State == agent.SandboxLost })
	_, err := k.Get(t.Context(), agent.DefaultApp, b.Record().ID)
	if !errors.Is(err, keeper.ErrLost) {
		t.Error(err)
	}
	wait(t, "its box is deleted", func() bool { return len(w.engine.handles()) == 0 && w.records()[0].Handle == "" })
	b = open(t, k, want(env, "run/1", agent.Cattle))
	if sb := b.Record(); sb.Generation != 2 || sb.Error != nil {
		t.Errorf("%+v", sb)
	}
	does(t, b, "echo 2", "2")
}

// Who works in a sandbox and is the first to find its box gone is told so, and what to do when the box was too small. It is not given another, in which nothing is.
func TestGetLost(t *testing.T) {
	w := newWorld(t)
	env := w.env(nil)
	k := w.start(nil)
	id := open(t, k, want(env, "run/1", agent.Cattle)).Record().ID
	k.stop()
	w.engine.set(func(e *engine) { e.oom = true })
	w.engine.kill(w.engine.handles()[0])
	idle, err := keeper.New(w.options()) // one that does not look after boxes
	if err != nil {
		t.Fatal(err)
	}
	_, err = idle.Get(t.Context(), agent.DefaultApp, id)
	wantKind(t, err, agent.Exhausted, "for want of memory")
	if hint := agent.AsError(err).Hint; !strings.Contains(hint, "size.memory") {
		t.Errorf("the hint is %q", hint)
	}
	if sb := w.records()[0]; !errors.Is(err, keeper.ErrLost) || sb.Generation != 1 || sb.State != agent.SandboxLost {
		t.Errorf("%v; it is %s, of generation %d", err, sb.State, sb.Generation)
	}
	if sb := open(t, w.start(nil), want(env, "run/1", agent.Cattle)).Record(); sb.Generation != 2 {
		t.Errorf("%+v", sb)
	}
}

// What is wrong with a sandbox is said with what its box had to say, leaves no box behind, and is said again to who asks again.
func TestFailures(t *testing.T) {
	for _, c := range []struct {
		name string
		env  func(*agent.Environment)
		set  func(*engine)
		kind agent.Kind
		says []string
		kept bool // the sandbox has failed for good
	}{
		{"setup", func(e *agent.Environment) { e.Setup = "echo one\necho no such package >&2\nsleep 0.2\nexit 3" }, nil,
			agent.Failed, []string{"setup script of environment e@1 failed with exit status 3", "one", "no such package"}, true},
		{"long setup", func(e *agent.Environment) { e.Setup = "echo busy; sleep 60" }, nil, agent.Failed, []string{"had not ended after 300ms", "busy"}, true},
		{"no hello", nil, func(e *engine) { e.mute = true }, agent.Unavailable, []string{"did not say hello within 500ms"}, true},
		{"dies", nil, func(e *engine) { e.dies = true }, agent.Failed, []string{"did not say hello", "it has no shell"}, true},
		{"no image", nil, func(e *engine) { e.refuse = agent.Errorf(agent.NotFound, "there is no image image") }, agent.NotFound, []string{"no image"}, true},
		{"busy", nil, func(e *engine) { e.refuse = agent.Errorf(agent.Unavailable, "the engine is busy") }, agent.Unavailable, []string{"busy"}, false},
		{"no wall", nil, func(e *engine) { e.lacks = []string{sandbox.NoNetwork} }, agent.Invalid, []string{agent.SandboxUnavailable, sandbox.NoNetwork}, false},
		{"no ability", func(e *agent.Environment) { e.Requires = []string{sandbox.CanPause} }, func(e *engine) { e.lacks = []string{sandbox.CanPause} },
			agent.Invalid, []string{agent.SandboxUnavailable, sandbox.CanPause}, false},
		{"no such ability", func(e *agent.Environment) { e.Requires = []string{"fly"} }, nil, agent.Invalid, []string{`no capability "fly"`}, false},
		{"no provider", func(e *agent.Environment) { e.Provider = "kubernetes" }, nil, agent.Invalid, []string{`no provider "kubernetes"; it has engine`}, false},
		{"no runtime", func(e *agent.Environment) { e.Runtime = "runsc" }, nil, agent.Invalid, []string{`no runtime "runsc"`}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			k := w.start(func(o *keeper.Options) { o.Hello, o.Setup = 500*time.Millisecond, 300*time.Millisecond })
			if c.set != nil {
				w.engine.set(c.set)
			}
			wanted := want(w.env(c.env), "run/1", agent.Cattle)
			for range 2 {
				_, err := k.Open(t.Context(), wanted)
				for _, says := range c.says {
					wantKind(t, err, c.kind, says)
				}
			}
			if c.kept {
				list := w.records()
				if len(list) != 1 || list[0].State != agent.SandboxFailed || list[0].Error == nil {
					t.Fatalf("%+v", list)
				}
				wait(t, "its box is deleted", func() bool { return len(w.engine.handles()) == 0 })
				w.engine.set(func(e *engine) { e.mute, e.dies, e.refuse = false, false, nil })
				wanted.Run = "R2" // another may try again
				if _, err := k.Open(t.Context(), wanted); (err == nil) != (wanted.Environment.Setup == "") {
					t.Error(err)
				}
			}
			if err := k.Release(t.Context(), agent.DefaultApp, "run/1"); err != nil {
				t.Fatal(err)
			}
			w.empty()
		})
	}
}

// Who gives up leaves what the next one goes on with; a deletion meanwhile is final.
func TestGivenUp(t *testing.T) {
	w := newWorld(t)
	k := w.start(nil)
	env := w.env(nil)
	w.engine.set(func(e *engine) { e.mute = true })
	give := func(whose string, boxes int, meanwhile func()) error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		failed := make(chan error, 1)
		go func() { _, err := k.Open(ctx, want(env, whose, agent.Cattle)); failed <- err }()
		wait(t, "it was started", func() bool {
			n := 0
			for _, h := range w.engine.handles() {
				if st, _ := w.engine.Inspect(ctx, h); st.Phase == sandbox.Running {
					n++
				}
			}
			return n == boxes
		})
		if meanwhile == nil {
			cancel()
		} else {
			meanwhile()
		}
		return <-failed
	}
	wantKind(t, give("run/1", 1, nil), agent.Cancelled, "cancelled")
	wantKind(t, give("run/1", 1, nil), agent.Cancelled, "cancelled")
	err := give("run/2", 2, func() {
		if err := k.Release(t.Context(), agent.DefaultApp, "run/2"); err != nil {
			t.Error(err)
		}
	})
	if !errors.Is(err, keeper.ErrLost) {
		t.Error(err)
	}
	if err := k.Release(t.Context(), agent.DefaultApp, "run/1"); err != nil {
		t.Error(err)
	}
	w.empty()
}

// A deletion while a box is being made is not overtaken by it.
func TestDeletedWhileMade(t *testing.T) {
	w := newWorld(t)
	k := w.start(nil)
	entered, hold := make(chan struct{}), make(chan struct{})
	w.engine.set(func(e *engine) { e.entered, e.hold = entered, hold })
	failed := make(chan error, 1)
	env := w.env(nil)
	go func() { _, err := k.Open(t.Context(), want(env, "run/1", agent.Cattle)); failed <- err }()
	<-entered
	if err := k.Release(t.Context(), agent.DefaultApp, "run/1"); err != nil {
		t.Fatal(err)
	}
	close(hold)
	if err := <-failed; !errors.Is(err, keeper.ErrLost) || !strings.Contains(err.Error(), "is being deleted") {
		t.Error(err)
	}
	w.empty()
}

// No more boxes start at once than may, and who waits for its turn can stop to.
func TestStartsAtOnce(t *testing.T) {
	w := newWorld(t)
	k := w.start(func(o *keeper.Options) { o.Starts = 1 })
	entered, hold := make(chan struct{}), make(chan struct{})
	w.engine.set(func(e *engine) { e.entered, e.hold = entered, hold })
	env := w.env(nil)
	first := make(chan error, 1)
	go func() { _, err := k.Open(t.Context(), want(env, "run/1", agent.Cattle)); first <- err }()
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	second := make(chan error, 1)
	go func() { _, err := k.Open(ctx, want(env, "run/2", agent.Cattle)); second <- err }()
	wait(t, "the second is wanted", func() bool { return len(w.records()) == 2 })
	select {
	case <-entered:
		t.Error("two boxes are made at once")
	case err := <-second:
		t.Error(err)
	default:
	}
	cancel()
	wantKind(t, <-second, agent.Cancelled, "waiting for")
	close(hold)
	if err := <-first; err != nil {
		t.Error(err)
	}
}
