package keeper_test

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/sandbox"
	"github.com/skep-dev/skep/sandbox/docker"
	"github.com/skep-dev/skep/sandbox/dockertest"
	"github.com/skep-dev/skep/sandbox/image/imagetest"
	"github.com/skep-dev/skep/sandbox/keeper"
)

// dockerWorld is a world whose boxes are containers, with the driver as it is shipped.
func dockerWorld(t *testing.T) (w *world, p *docker.Provider, change func(*keeper.Options), env func(func(*agent.Environment)) agent.Environment) {
	p, err := docker.New(&docker.Options{Host: dockertest.Host(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	file := dockertest.Static(t, "github.com/skep-dev/skep/cmd/skep-driver")
	name := imagetest.Tools(t)
	owner := "f-keeper-" + strings.ToLower(rand.Text()[:8])
	w = newWorld(t)
	change = func(o *keeper.Options) {
		o.Providers, o.Driver, o.Owner, o.Every = []sandbox.Provider{p}, file, owner, 200*time.Millisecond
	}
	env = func(change func(*agent.Environment)) agent.Environment {
		return w.env(func(e *agent.Environment) {
			e.Image, e.Size = name, agent.SandboxSize{Memory: 256 << 20}
			if change != nil {
				change(e)
			}
		})
	}
	t.Cleanup(func() { // whatever became of the test
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		list, _ := p.List(ctx, owner)
		for _, o := range list {
			_ = p.Delete(ctx, o.Handle)
		}
		names, _ := p.ListVolumes(ctx, owner)
		for _, name := range names {
			_ = p.DeleteVolume(ctx, name)
		}
	})
	return w, p, change, env
}

// nothing waits until the engine has nothing of a keeper.
func nothing(t *testing.T, w *world, p *docker.Provider, change func(*keeper.Options)) {
	t.Helper()
	o := &keeper.Options{}
	change(o)
	wait(t, "nothing is left", func() bool {
		list, err := p.List(t.Context(), o.Owner)
		names, verr := p.ListVolumes(t.Context(), o.Owner)
		return len(w.records()) == 0 && err == nil && len(list) == 0 && verr == nil && len(names) == 0
	})
}

func TestDockerCattle(t *testing.T) {
	w, p, change, env := dockerWorld(t)
	e := env(func(e *agent.Environment) {
		e.Setup, e.Variables = "echo once >> log; id -u", map[string]string{"COLOUR": "blue"}
	})
	k := w.start(change)
	b := open(t, k, want(e, "run/1", agent.Cattle))
	does(t, b, "cat log; echo $COLOUR; id -u; pwd", "once\nblue\n1000\n/workspace")

	k.stop() // the server starts again, and the driver comes back
	k = w.start(change)
	b = open(t, k, want(e, "run/1", agent.Cattle))
	if sb := b.Record(); sb.Generation != 1 {
		t.Errorf("%+v", sb)
	}
	does(t, b, "cat log", "once")

	// The container is deleted from outside while something runs in it.
	rec, err := w.store.Sandbox(t.Context(), b.Record().ID)
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() { _, err := sh(t.Context(), b, "sleep 60"); failed <- err }()
	began := time.Now()
	if err := p.Delete(t.Context(), sandbox.Handle(rec.Handle)); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; !errors.Is(err, keeper.ErrLost) {
		t.Error(err)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %s to find out", took)
	}
	b = open(t, k, want(e, "run/1", agent.Cattle))
	if sb := b.Record(); sb.Generation != 2 {
		t.Errorf("%+v", sb)
	}
	does(t, b, "cat log", "once")
	if err := k.Release(t.Context(), agent.DefaultApp, "run/1"); err != nil {
		t.Fatal(err)
	}
	nothing(t, w, p, change)
}

func TestDockerPet(t *testing.T) {
	w, p, change, env := dockerWorld(t)
	clock := &clock{now: time.Now()}
	w.now = clock.get
	k := w.start(change)
	b := open(t, k, want(env(func(e *agent.Environment) { e.Idle = time.Hour }), "agent/1", agent.Pet))
	id := b.Record().ID
	does(t, b, "echo kept > file; echo mine > ~/note; touch /tmp/gone", "")
	clock.add(time.Hour)
	wait(t, "it has stopped", func() bool {
		rec, err := w.store.Sandbox(t.Context(), id)
		return err == nil && rec.State == agent.SandboxStopped && rec.Handle == ""
	})
	b, err := k.Get(t.Context(), agent.DefaultApp, id)
	if err != nil {
		t.Fatal(err)
	}
	does(t, b, "cat file ~/note; ls /tmp; mkdir memory && echo learnt > memory/m", "kept\nmine")
	if _, err := k.Hibernate(t.Context(), agent.DefaultApp, id); err != nil {
		t.Fatal(err)
	}
	o := &keeper.Options{}
	change(o)
	list, err := p.List(t.Context(), o.Owner)
	names, verr := p.ListVolumes(t.Context(), o.Owner)
	if len(list)+len(names) > 0 || err != nil || verr != nil {
		t.Errorf("it hibernates, and there are %v and %v: %v, %v", list, names, err, verr)
	}
	if b, err = k.Get(t.Context(), agent.DefaultApp, id); err != nil {
		t.Fatal(err)
	}
	does(t, b, "cat memory/m; ls; ls ~", "learnt\nmemory")
	if err := k.Delete(t.Context(), agent.DefaultApp, id); err != nil {
		t.Fatal(err)
	}
	nothing(t, w, p, change)
}

func TestDockerPool(t *testing.T) {
	w, p, change, env := dockerWorld(t)
	e := env(nil)
	k := w.start(func(o *keeper.Options) { change(o); o.Pool = 1 })
	open(t, k, want(e, "run/1", agent.Cattle))
	var pooled agent.SandboxID
	wait(t, "the pool is full", func() bool {
		for _, rec := range w.records() {
			if rec.Pool && rec.Handle != "" {
				pooled = rec.ID
			}
		}
		return pooled != ""
	})
	b := open(t, k, want(e, "run/2", agent.Cattle))
	if sb := b.Record(); sb.ID != pooled || sb.For != "run/2" {
		t.Errorf("%+v, and the pool had %s", sb, pooled)
	}
	does(t, b, "echo 1", "1")
	for _, whose := range []string{"run/1", "run/2"} {
		if err := k.Release(t.Context(), agent.DefaultApp, whose); err != nil {
			t.Error(err)
		}
	}
	env(func(e *agent.Environment) { e.Description = "next" })
	if _, err := k.Open(t.Context(), want(e, "run/3", agent.Cattle)); err != nil {
		t.Error(err)
	}
	if err := k.Release(t.Context(), agent.DefaultApp, "run/3"); err != nil {
		t.Error(err)
	}
	nothing(t, w, p, change)
}

func TestDockerNoImage(t *testing.T) {
	w, p, change, env := dockerWorld(t)
	k := w.start(change)
	_, err := k.Open(t.Context(), want(env(func(e *agent.Environment) { e.Image = "f-none/none:1" }), "run/1", agent.Cattle))
	wantKind(t, err, agent.NotFound, "f-none/none:1")
	if err := k.Release(t.Context(), agent.DefaultApp, "run/1"); err != nil {
		t.Error(err)
	}
	nothing(t, w, p, change)
}
