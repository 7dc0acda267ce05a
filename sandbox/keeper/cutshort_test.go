package keeper_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/sandbox"
	"github.com/skep-dev/skep/sandbox/keeper"
)

// watched counts how often its boxes are looked at.
type watched struct {
	*engine
	looks atomic.Int32
}

func (e *watched) Inspect(ctx context.Context, h sandbox.Handle) (sandbox.State, error) {
	e.looks.Add(1)
	return e.engine.Inspect(ctx, h)
}

// A box that ends because the server that started it died before it had its boot payload is made again, also when the next server already waits for its hello.
func TestStartCutShort(t *testing.T) {
	w := newWorld(t)
	env := w.env(nil)
	w.engine.set(func(e *engine) { e.mute = true })
	k := w.start(nil)
	first := make(chan error, 1)
	go func() { _, err := k.Open(t.Context(), want(env, "run/1", agent.Cattle)); first <- err }()
	var h sandbox.Handle
	wait(t, "it was started", func() bool {
		for _, h = range w.engine.handles() {
			st, err := w.engine.Inspect(t.Context(), h)
			return err == nil && st.Phase == sandbox.Running
		}
		return false
	})
	k.stop()
	if err := <-first; err == nil {
		t.Fatal("a server that has stopped opens a sandbox")
	}
	w.engine.set(func(e *engine) { e.mute = false })
	e := &watched{engine: w.engine}
	o := w.options()
	o.Providers = []sandbox.Provider{e}
	next, err := keeper.New(o) // one that does not look after boxes
	if err != nil {
		t.Fatal(err)
	}
	type opened struct {
		b   *keeper.Box
		err error
	}
	second := make(chan opened, 1)
	go func() {
		b, err := next.Open(t.Context(), want(env, "run/1", agent.Cattle))
		second <- opened{b, err}
	}()
	wait(t, "the next waits for its hello", func() bool { return e.looks.Load() > 1 })
	w.engine.kill(h)
	got := <-second
	if got.err != nil {
		t.Fatal(got.err)
	}
	if sb := got.b.Record(); sb.Generation != 2 || sb.State != agent.SandboxReady {
		t.Errorf("%+v", sb)
	}
	does(t, got.b, "echo 2", "2")
}

// late says of its boxes that they run when it is first asked.
type late struct {
	*engine
	asked atomic.Bool
}

func (e *late) Inspect(ctx context.Context, h sandbox.Handle) (sandbox.State, error) {
	if !e.asked.Swap(true) {
		return sandbox.State{Phase: sandbox.Running}, nil
	}
	return e.engine.Inspect(ctx, h)
}

// A box that ends after a server has started and looked at it, and before its driver has connected to that, is found lost long before the next sweep.
func TestEndsBeforeItComesBack(t *testing.T) {
	w := newWorld(t)
	env := w.env(nil)
	k := w.start(nil)
	open(t, k, want(env, "run/1", agent.Cattle))
	k.stop()
	w.engine.kill(w.engine.handles()[0])
	e := &late{engine: w.engine}
	w.start(func(o *keeper.Options) { o.Providers = []sandbox.Provider{e} })
	wait(t, "it is lost", func() bool { return w.records()[0].State == agent.SandboxLost })
	if !e.asked.Load() {
		t.Error("the server has not looked at its start")
	}
}
