package keeper_test

import (
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/sandbox/keeper"
)

// ready returns the box of a pool that waits.
func ready(t *testing.T, w *world) (id agent.SandboxID) {
	t.Helper()
	wait(t, "the pool is full", func() bool {
		for _, rec := range w.records() {
			if rec.Pool && rec.Handle != "" {
				id = rec.ID
			}
		}
		return id != ""
	})
	return id
}

// A box of a pool runs before anybody has it. One that has ended there is made anew for who takes it.
func TestWarm(t *testing.T) {
	w := newWorld(t)
	env := w.env(nil)
	k := w.start(func(o *keeper.Options) { o.Pool = 1 })
	open(t, k, want(env, "run/1", agent.Cattle))
	pooled := ready(t, w)
	if n := w.engine.warmed; n != 1 {
		t.Errorf("%d boxes were warmed", n)
	}
	b := open(t, k, want(env, "run/2", agent.Cattle))
	if sb := b.Record(); sb.ID != pooled || sb.Generation != 1 {
		t.Errorf("%+v, and the pool had %s", sb, pooled)
	}
	does(t, b, "echo 1", "1")

	pooled = ready(t, w)
	w.engine.chill()
	b = open(t, k, want(env, "run/3", agent.Cattle))
	if sb := b.Record(); sb.ID != pooled || sb.Generation != 2 {
		t.Errorf("%+v, and the pool had %s", sb, pooled)
	}
	does(t, b, "echo 1", "1")
}

// A sweep finds boxes of a pool that wait no longer, as after the death of a server.
func TestWarmEnded(t *testing.T) {
	w := newWorld(t)
	env := w.env(nil)
	k := w.start(func(o *keeper.Options) { o.Pool = 1 })
	open(t, k, want(env, "run/1", agent.Cattle))
	pooled := ready(t, w)
	k.stop()
	w.engine.chill()
	k = w.start(func(o *keeper.Options) { o.Pool, o.Every = 1, 10*time.Millisecond })
	wait(t, "it is gone", func() bool {
		_, err := w.store.Sandbox(t.Context(), pooled)
		return agent.KindOf(err) == agent.NotFound
	})
	for range 2 { // the second time within the life of one server
		next := ready(t, w) // though nobody has asked
		if next == pooled {
			t.Error("it is in the pool")
		}
		w.engine.chill()
		wait(t, "another is made", func() bool {
			_, err := w.store.Sandbox(t.Context(), next)
			return agent.KindOf(err) == agent.NotFound && ready(t, w) != next
		})
		pooled = next
	}
	does(t, open(t, k, want(env, "run/2", agent.Cattle)), "echo 1", "1")
}
