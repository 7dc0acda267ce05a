package keeper_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/sandbox/checkpoint"
	"github.com/skep-dev/skep/sandbox/keeper"
)

// fill gives a pet something that is to outlive it, and something that is not, and see tells of the former.
const (
	fill = `mkdir -p memory/notes sessions/S1 src && head -c 300000 /dev/urandom > sessions/S1/data && echo n > memory/notes/n && ln -s n memory/notes/l && chmod 755 memory/notes/n
echo gone | tee src/main elsewhere > .hidden`
	see = `find memory sessions -type f -exec sha256sum {} + -exec stat -c '%n %a' {} + | sort; readlink memory/notes/l`
)

// openPet returns a pet that was filled, and what see says of it.
func openPet(t *testing.T, k *running, env agent.Environment) (b *keeper.Box, saw string) {
	t.Helper()
	b, err := k.Open(t.Context(), want(env, "agent/1", agent.Pet))
	if err == nil {
		_, err = sh(t.Context(), b, fill)
	}
	if err == nil {
		saw, err = sh(t.Context(), b, see)
	}
	if err != nil || strings.Count(saw, "\n") != 5 {
		t.Fatalf("%q, %v", saw, err)
	}
	return b, saw
}

// wantOutlived looks whether a pet that was made anew has what it is to have, and no more.
func wantOutlived(t *testing.T, k *running, id agent.SandboxID, saw string) *keeper.Box {
	t.Helper()
	b, err := k.Get(t.Context(), agent.DefaultApp, id)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := sh(t.Context(), b, see); err != nil || got != saw {
		t.Errorf("it has %q, %v, and had %q", got, err, saw)
	}
	if got, err := sh(t.Context(), b, "ls -d src elsewhere .hidden 2>/dev/null; true"); err != nil || got != "" {
		t.Errorf("it has %q still, %v", got, err)
	}
	return b
}

func TestRecreate(t *testing.T) {
	w := newWorld(t)
	k := w.start(nil)
	b, saw := openPet(t, k, w.env(nil))
	was := b.Record()
	next := w.env(func(e *agent.Environment) { e.Image = "next" })
	got, err := k.Recreate(t.Context(), agent.DefaultApp, was.ID, next)
	if err != nil {
		t.Fatal(err)
	}
	if got.State != agent.SandboxReady || got.Environment != "e@2" || got.Generation != was.Generation+1 || got.Kept != got.Generation || got.For != was.For {
		t.Errorf("%+v", got)
	}
	wantOutlived(t, k, was.ID, saw)
	if list := w.engine.of(was.ID); len(list) != 2 {
		t.Errorf("there are %q", list)
	}
	if _, err := sh(t.Context(), b, "true"); err == nil {
		t.Error("the old box can be used")
	}

	c := got.Checkpoint
	if c.Pending || c.Environment != "e@1" || c.Created.IsZero() || c.Files != 7 {
		t.Errorf("%+v", c)
	}
	raw, err := w.store.Blob(t.Context(), c.Manifest)
	if err != nil {
		t.Fatal(err)
	}
	var m checkpoint.Manifest
	if err := json.Unmarshal(raw, &m); err != nil {
		t.Fatal(err)
	}
	if m.Sandbox != was.ID || m.Generation != was.Generation || m.Environment != "e@1" || m.Digest != c.Digest || m.Bytes != c.Bytes || !m.Created.Equal(c.Created) {
		t.Errorf("%+v", m)
	}
	for _, f := range m.Files {
		if f.Path == "sessions/S1/data" && (f.Size != 300000 || !strings.Contains(saw, f.Digest)) {
			t.Errorf("%+v", f)
		}
	}

	// Again, of what was put back; with nothing to keep, too.
	if _, err := k.Recreate(t.Context(), agent.DefaultApp, was.ID, next); err != nil {
		t.Fatal(err)
	}
	if _, err := sh(t.Context(), wantOutlived(t, k, was.ID, saw), "rm -r memory sessions"); err != nil {
		t.Fatal(err)
	}
	if got, err = k.Recreate(t.Context(), agent.DefaultApp, was.ID, next); err != nil || got.Checkpoint.Files != 0 || got.Generation != 4 {
		t.Errorf("%+v, %v", got, err)
	}
	if err := w.store.Verify(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestHibernate(t *testing.T) {
	w := newWorld(t)
	k := w.start(nil)
	env := w.env(nil)
	b, saw := openPet(t, k, env)
	id := b.Record().ID
	for range 2 { // the second finds it asleep
		got, err := k.Hibernate(t.Context(), agent.DefaultApp, id)
		if err != nil || got.State != agent.SandboxStopped || !got.Checkpoint.Pending {
			t.Fatalf("%+v, %v", got, err)
		}
		if list := w.engine.of(id); len(list) != 0 {
			t.Errorf("there are %q", list)
		}
	}
	wantOutlived(t, k, id, saw)
	// What cannot be put back for now is not lost.
	if _, err := k.Hibernate(t.Context(), agent.DefaultApp, id); err != nil {
		t.Fatal(err)
	}
	w.engine.set(func(e *engine) { e.dies = true })
	if _, err := k.Get(t.Context(), agent.DefaultApp, id); err == nil {
		t.Fatal("a box without a driver is ready")
	}
	w.engine.set(func(e *engine) { e.dies = false })
	if _, err := k.Open(t.Context(), want(env, "agent/1", agent.Pet)); err != nil {
		t.Fatal(err)
	}
	wantOutlived(t, k, id, saw)
}

func TestReset(t *testing.T) {
	w := newWorld(t)
	k := w.start(nil)
	b, _ := openPet(t, k, w.env(nil))
	id := b.Record().ID
	next := w.env(func(e *agent.Environment) { e.Image = "next" })
	got, err := k.Reset(t.Context(), agent.DefaultApp, id, next)
	if err != nil || got.State != agent.SandboxStopped || got.Environment != "e@2" || got.Checkpoint != (agent.SandboxCheckpoint{}) {
		t.Fatalf("%+v, %v", got, err)
	}
	if list := w.engine.of(id); len(list) != 0 {
		t.Errorf("there are %q", list)
	}
	b, err = k.Get(t.Context(), agent.DefaultApp, id)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := sh(t.Context(), b, "ls -d memory sessions src elsewhere 2>/dev/null; true"); err != nil || out != "" || b.Record().Environment != "e@2" {
		t.Errorf("%q, %v, %+v", out, err, b.Record())
	}
}

// A pet that is refused to be given up is as it was.
func TestGiveUpRefused(t *testing.T) {
	w := newWorld(t)
	inUse := true
	k := w.start(func(o *keeper.Options) {
		o.Checkpoint = 200_000
		o.InUse = func(context.Context, agent.Sandbox) (bool, error) { return inUse, nil }
	})
	env := w.env(nil)
	verbs := map[string]func(id agent.SandboxID) error{
		"recreate":  func(id agent.SandboxID) error { _, err := k.Recreate(t.Context(), env.App, id, env); return err },
		"hibernate": func(id agent.SandboxID) error { _, err := k.Hibernate(t.Context(), env.App, id); return err },
		"reset":     func(id agent.SandboxID) error { _, err := k.Reset(t.Context(), env.App, id, env); return err },
	}
	refused := func(id agent.SandboxID, kind agent.Kind, names ...string) {
		t.Helper()
		for name, do := range verbs {
			if len(names) > 0 && !slices.Contains(names, name) {
				continue
			}
			if err := do(id); agent.KindOf(err) != kind || agent.AsError(err).Hint == "" && kind != agent.NotFound {
				t.Errorf("%s: %v, want %s", name, err, kind)
			}
		}
	}
	one, err := k.Open(t.Context(), want(env, "run/1", agent.Cattle))
	if err != nil {
		t.Fatal(err)
	}
	refused(one.Record().ID, agent.Invalid)
	refused("nobody", agent.NotFound)
	b, saw := openPet(t, k, env)
	was := b.Record()
	refused(was.ID, agent.Conflict)
	inUse = false
	refused(was.ID, agent.Exhausted, "recreate", "hibernate")
	if got, err := sh(t.Context(), b, see+"; cat elsewhere"); err != nil || got != saw+"gone\n" {
		t.Errorf("%q, %v", got, err)
	}
	working := make(chan error, 1)
	go func() { _, err := sh(t.Context(), b, "mkfifo end && touch began && cat end"); working <- err }()
	for {
		if out, err := sh(t.Context(), b, "ls began 2>/dev/null; true"); err != nil || out != "" {
			break
		}
	}
	refused(was.ID, agent.Conflict)
	if _, err := sh(t.Context(), b, "echo > end"); err != nil {
		t.Fatal(err)
	}
	if err := <-working; err != nil {
		t.Fatal(err)
	}
	if now := b.Record(); now.Generation != was.Generation || now.State != agent.SandboxReady || now.Checkpoint != was.Checkpoint {
		t.Errorf("%+v", now)
	}
}
