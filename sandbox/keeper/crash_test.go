package keeper_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/sandbox"
	"github.com/skep-dev/skep/sandbox/keeper"
	"github.com/skep-dev/skep/store"
)

// TestMain lets more servers live and die at once than there are processors: they wait for most of the time.
func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = f.Value.Set("8")
	}
	os.Exit(m.Run())
}

var errDead = agent.Errorf(agent.Unavailable, "this server has died")

// mortal is one server's hand on the store and the engine. It dies before or after its at-th change of either, and nothing that it does then has any effect.
type mortal struct {
	*store.Store
	*engine
	at    int // 0: it does not die
	after bool

	mu   sync.Mutex
	n    int
	last string
	dead bool
}

func (m *mortal) do(name string, op func() error) error {
	m.mu.Lock()
	if m.dead {
		m.mu.Unlock()
		return errDead
	}
	m.n++
	dies := m.n == m.at
	if dies {
		m.last = name
		if !m.after {
			m.dead = true
			m.mu.Unlock()
			return errDead
		}
	}
	m.mu.Unlock()
	err := op()
	if dies {
		m.mu.Lock()
		m.dead = true
		m.mu.Unlock()
		return errDead
	}
	return err
}

func (m *mortal) died() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dead
}

func (m *mortal) look() error {
	if m.died() {
		return errDead
	}
	return nil
}

func (m *mortal) PutSandbox(ctx context.Context, rec agent.SandboxRecord, most int) error {
	return m.do("put", func() error { return m.Store.PutSandbox(ctx, rec, most) })
}

func (m *mortal) ChangeSandbox(ctx context.Context, id agent.SandboxID, change func(*agent.SandboxRecord) error) (rec agent.SandboxRecord, err error) {
	err = m.do("change", func() (err error) { rec, err = m.Store.ChangeSandbox(ctx, id, change); return err })
	return rec, err
}

func (m *mortal) DropSandbox(ctx context.Context, id agent.SandboxID) error {
	return m.do("drop", func() error { return m.Store.DropSandbox(ctx, id) })
}

func (m *mortal) PutBlobFrom(ctx context.Context, r io.Reader) (d agent.Digest, n int64, err error) {
	err = m.do("put blob", func() (err error) { d, n, err = m.Store.PutBlobFrom(ctx, r); return err })
	return d, n, err
}

func (m *mortal) OpenBlob(ctx context.Context, d agent.Digest) (body io.ReadSeekCloser, err error) {
	err = m.do("open blob", func() (err error) { body, err = m.Store.OpenBlob(ctx, d); return err })
	return body, err
}

func (m *mortal) Sandbox(ctx context.Context, id agent.SandboxID) (agent.SandboxRecord, error) {
	if err := m.look(); err != nil {
		return agent.SandboxRecord{}, err
	}
	return m.Store.Sandbox(ctx, id)
}

func (m *mortal) Create(ctx context.Context, r *sandbox.Request) (h sandbox.Handle, err error) {
	err = m.do("create", func() (err error) { h, err = m.engine.Create(ctx, r); return err })
	return h, err
}

func (m *mortal) Start(ctx context.Context, h sandbox.Handle, boot io.Reader) error {
	return m.do("start", func() error { return m.engine.Start(ctx, h, boot) })
}

func (m *mortal) Warm(ctx context.Context, h sandbox.Handle) error {
	return m.do("warm", func() error { return m.engine.Warm(ctx, h) })
}

func (m *mortal) Stop(ctx context.Context, h sandbox.Handle, grace time.Duration) error {
	return m.do("stop", func() error { return m.engine.Stop(ctx, h, grace) })
}

func (m *mortal) Delete(ctx context.Context, h sandbox.Handle) error {
	return m.do("delete", func() error { return m.engine.Delete(ctx, h) })
}

func (m *mortal) DeleteVolume(ctx context.Context, name string) error {
	return m.do("delete volume", func() error { return m.engine.DeleteVolume(ctx, name) })
}

func (m *mortal) List(ctx context.Context, owner string) ([]sandbox.Observed, error) {
	if err := m.look(); err != nil {
		return nil, err
	}
	return m.engine.List(ctx, owner)
}

func (m *mortal) Close() error { return nil }

// life is what happens to sandboxes, from the first to the last. What was done before, by a server that died, is done again.
type life struct {
	w        *world
	env      agent.Environment
	clock    *clock
	released []string // whose deletion was promised
	wrote    bool     // the pet has what is to outlive its boxes
}

func (l *life) live(k *running) error {
	ctx, cancel := context.WithTimeout(l.w.t.Context(), 30*time.Second)
	defer cancel()
	open := func(whose string, keep agent.SandboxKeep) (*keeper.Box, error) {
		return k.Open(ctx, want(l.env, whose, keep))
	}
	one, err := open("run/1", agent.Cattle)
	if err != nil {
		return err
	}
	pet, err := open("agent/1", agent.Pet)
	if err != nil {
		return err
	}
	if _, err := sh(ctx, pet, "echo x >> file"); err != nil {
		return err
	}
	if _, err := sh(ctx, one, "cat log"); err != nil {
		return err
	}
	if err := l.release(ctx, k, "run/1"); err != nil {
		return err
	}
	l.clock.add(time.Hour) // the pet sleeps
	id := pet.Record().ID
	err = until(ctx, k, func() bool {
		rec, _ := l.w.store.Sandbox(ctx, id)
		return rec.State == agent.SandboxStopped && rec.Handle == ""
	})
	if err != nil {
		return err
	}
	if pet, err = k.Get(ctx, l.env.App, id); err != nil {
		return err
	}
	if out, err := sh(ctx, pet, "cat file"); err != nil || !strings.HasPrefix(out, "x") {
		return fmt.Errorf("%q %w", out, err)
	}
	if err := k.Delete(ctx, l.env.App, id); err != nil {
		return err
	}
	l.released = append(l.released, "agent/1")
	return until(ctx, k, func() bool {
		_, err := l.w.store.Sandbox(ctx, id)
		return agent.KindOf(err) == agent.NotFound
	})
}

// pets is a life of a pet that is made anew, hibernates and is reset.
func (l *life) pets(k *running) error {
	ctx, cancel := context.WithTimeout(l.w.t.Context(), 30*time.Second)
	defer cancel()
	pet, err := k.Open(ctx, want(l.env, "agent/2", agent.Pet))
	if err != nil {
		return err
	}
	id := pet.Record().ID
	has := func(b *keeper.Box, want string) error {
		out, err := sh(ctx, b, "cat memory/m sessions/S/s elsewhere 2>/dev/null; true")
		if err == nil && out != want {
			err = fmt.Errorf("the pet has %q, and not %q", out, want)
		}
		return err
	}
	if l.wrote { // it may have lost the rest
		if out, err := sh(ctx, pet, "cat memory/m sessions/S/s"); err != nil || out != "mine\nmine\n" {
			return fmt.Errorf("the pet has %q after a death: %w", out, err)
		}
	}
	if _, err := sh(ctx, pet, "mkdir -p memory sessions/S && echo mine | tee memory/m > sessions/S/s && echo mine > elsewhere"); err != nil {
		return err
	}
	l.wrote = true
	if _, err := k.Recreate(ctx, l.env.App, id, l.env); err != nil {
		return err
	}
	if pet, err = k.Get(ctx, l.env.App, id); err != nil {
		return err
	}
	if err := has(pet, "mine\nmine\n"); err != nil {
		return err
	}
	if _, err := k.Hibernate(ctx, l.env.App, id); err != nil {
		return err
	}
	if err := until(ctx, k, func() bool { return len(l.w.engine.of(id)) == 0 }); err != nil {
		return err
	}
	if pet, err = k.Get(ctx, l.env.App, id); err != nil {
		return err
	}
	if err := has(pet, "mine\nmine\n"); err != nil {
		return err
	}
	l.wrote = false
	if _, err := k.Reset(ctx, l.env.App, id, l.env); err != nil {
		return err
	}
	if pet, err = k.Get(ctx, l.env.App, id); err != nil {
		return err
	}
	if err := has(pet, ""); err != nil {
		return err
	}
	if err := k.Delete(ctx, l.env.App, id); err != nil {
		return err
	}
	l.released = append(l.released, "agent/2")
	return until(ctx, k, func() bool {
		_, err := l.w.store.Sandbox(ctx, id)
		return agent.KindOf(err) == agent.NotFound
	})
}

// until waits until ok, for as long as the server lives.
func until(ctx context.Context, k *running, ok func() bool) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if err := k.alive(); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (l *life) release(ctx context.Context, k *running, whose string) error {
	err := k.Release(ctx, l.env.App, whose)
	if err == nil {
		l.released = append(l.released, whose)
	}
	return err
}

// A server that dies at any change of the store or the engine, before it or after, leaves no box that is not found, makes none twice, and forgets no deletion.
func TestCrashAnywhere(t *testing.T) { crashAnywhere(t, (*life).live) }

// The same of a pet that is made anew, hibernates and is reset: what is to outlive its boxes does, wherever the server dies.
func TestCrashAnywhereOfPets(t *testing.T) { crashAnywhere(t, (*life).pets) }

// crashAnywhere has servers die before and after changes in turn: after one and before the next the same is stored.
func crashAnywhere(t *testing.T, live func(*life, *running) error) {
	const atOnce = 16
	for at := 1; ; at += atOnce {
		var over atomic.Bool
		t.Run(fmt.Sprint("from ", at), func(t *testing.T) {
			for n := at; n < at+atOnce; n++ {
				after := n%2 == 0
				t.Run(fmt.Sprintf("at %d, after it %v", n, after), func(t *testing.T) {
					t.Parallel()
					if crashAt(t, live, n, after) {
						over.Store(true)
					}
				})
			}
		})
		if over.Load() || t.Failed() {
			return
		}
	}
}

// crashAt lives with a server that dies at a change, and then with another. It returns true when there were not so many changes.
func crashAt(t *testing.T, live func(*life, *running) error, at int, after bool) (over bool) {
	w := newWorld(t)
	l := &life{w: w, clock: &clock{now: time.Now()}}
	w.now = l.clock.get
	l.env = w.env(func(e *agent.Environment) { e.Setup, e.Idle = "echo once >> log", 30*time.Minute })
	start := func(m *mortal) *running {
		k := w.start(func(o *keeper.Options) {
			o.Records, o.Providers, o.Every, o.Pool = m, []sandbox.Provider{m}, 10*time.Millisecond, 1
			events := o.Events
			o.Events = func(ctx context.Context, sb agent.Sandbox, first int64, list []driver.Event) error {
				return m.do("events", func() error { return events(ctx, sb, first, list) })
			}
		})
		k.alive = m.look
		return k
	}
	m := &mortal{Store: w.store, engine: w.engine, at: at, after: after}
	k := start(m)
	err := live(l, k)
	if err != nil && !m.died() {
		t.Fatalf("%v, and it has not died", err)
	}
	over = err == nil && !m.died()
	k.stop()
	w.engine.chill() // what waited for the server's word

	promised := map[agent.SandboxID]bool{}
	for _, rec := range w.records() {
		if rec.State == agent.SandboxDeleting {
			promised[rec.ID] = true
		}
		for _, whose := range l.released {
			if rec.For == whose && rec.State != agent.SandboxDeleting {
				t.Errorf("%s was released: %+v", whose, rec)
			}
		}
	}
	k = start(&mortal{Store: w.store, engine: w.engine})
	wait(t, "deletions are done", func() bool {
		for _, rec := range w.records() {
			if promised[rec.ID] {
				return false
			}
		}
		return true
	})
	wait(t, "each box and each volume has a sandbox, and each sandbox one box at most", func() bool {
		recs, seen := map[agent.SandboxID]agent.SandboxRecord{}, map[agent.SandboxID]bool{}
		list, _ := w.engine.List(t.Context(), "me") // before the records
		for _, rec := range w.records() {
			recs[rec.ID] = rec
		}
		for _, o := range list {
			rec, ok := recs[o.ID]
			if !ok || rec.Generation != o.Generation || seen[o.ID] {
				return false
			}
			seen[o.ID] = true
		}
		kept := map[string]bool{}
		names, _ := w.engine.ListVolumes(t.Context(), "me")
		for _, rec := range recs {
			kept[rec.Volume] = true
		}
		return !slices.ContainsFunc(names, func(name string) bool { return !kept[name] })
	})
	if err := live(l, k); err != nil {
		t.Errorf("after a death at %s: %v", m.last, err)
	}
	w.env(func(e *agent.Environment) { e.Name = "e"; e.Image = "next" }) // the pool goes
	l.clock.add(2 * time.Hour)
	w.empty()
	if n := w.store.Verify(t.Context()); n != nil {
		t.Error(n)
	}
	return over
}
