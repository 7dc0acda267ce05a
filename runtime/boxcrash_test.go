package runtime_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/faultkv"
	"github.com/skep-dev/skep/store/kv"
	"github.com/skep-dev/skep/store/memkv"
	"github.com/skep-dev/skep/tools"
	"github.com/skep-dev/skep/tools/builtin"
)

const boxWindows = `
import { sandbox, emit } from "skep";
export async function run() {
	const box = await sandbox.open();
	await box.exec("echo x >> ran");
	emit("ran");
	const done = await box.work("go");
	return done.text + (await box.read("ran")) + (await box.read("edited"));
}
`

// boxCity is what outlives processes: the database, and the boxes.
type boxCity struct {
	t       *testing.T
	inner   kv.DB
	dir     string
	cells   *host.Host
	yard    *boxYard
	outside time.Duration // how long a run keeps its cell while it waits for its sandbox
	load    func(context.Context, agent.Digest) (agent.Source, error)
	mu      sync.Mutex
}

// newBoxCity returns one with an agent "a", whose code is script and whose CLI does what do says.
func newBoxCity(t *testing.T, script string, outside time.Duration, do func(*cliTurn)) *boxCity {
	t.Helper()
	c := &boxCity{t: t, inner: memkv.New(), dir: t.TempDir(), outside: outside, yard: newYard(t, nil, do)}
	h, err := host.New(t.Context(), &host.Options{Load: func(ctx context.Context, d agent.Digest) (agent.Source, error) {
		c.mu.Lock()
		load := c.load
		c.mu.Unlock()
		return load(ctx, d)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close(context.WithoutCancel(t.Context())) })
	c.cells = h
	p := c.process(never)
	defer p.stop()
	if _, err := p.store.PutDoc(t.Context(), store.Policies, app, "policy", 0, map[string]string{"text": allowEdits}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.store.PutEnvironment(t.Context(), agent.Environment{App: app, Name: "env", Image: "image:1"}); err != nil {
		t.Fatal(err)
	}
	p.push(script)
	p.agent(agent.Agent{Name: "a", Sandbox: &agent.SandboxUse{Environment: "env", CLI: "claude"}})
	return c
}

// boxProcess is a runtime over it that dies where plan says.
type boxProcess struct {
	*world
	dead chan struct{}
	stop func()
}

func (c *boxCity) process(plan func(faultkv.Op) faultkv.Fault) *boxProcess {
	c.t.Helper()
	p := &boxProcess{dead: make(chan struct{})}
	m := &mortal{DB: c.inner, died: sync.OnceFunc(func() { close(p.dead) })}
	db := faultkv.New(m, func(op faultkv.Op) faultkv.Fault {
		f := plan(op)
		if f.Crash && f.Took {
			m.last.Store(true)
		} else if f.Crash {
			m.died()
		}
		return f
	})
	st, err := store.Open(c.t.Context(), db, c.dir, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	catalogue := tools.New(st, &tools.Options{BuiltIns: []string{builtin.CLI}, Openers: tools.Openers{agent.BuiltIn: builtin.Opener(builtin.Options{})}})
	r := runtime.New(st, c.cells, &runtime.Options{Tools: catalogue, Boxes: c.yard, Grace: time.Millisecond, Outside: c.outside})
	c.mu.Lock()
	c.load = r.LoadSource
	c.mu.Unlock()
	c.yard.mu.Lock()
	c.yard.st, c.yard.runtime = st, r
	c.yard.mu.Unlock()
	p.world = &world{rig: &rig{t: c.t, Runtime: r, store: st, db: db}, cells: c.cells, dir: c.dir}
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.t.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = r.Run(ctx) })
	p.stop = sync.OnceFunc(func() {
		c.yard.serve(nil)
		cancel()
		select {
		case <-p.dead:
			m.kill()
		default:
		}
		running.Wait()
		_ = catalogue.Close()
		_ = st.Close()
	})
	c.t.Cleanup(p.stop)
	return p
}

// A server dies at a commit of a run that works in a sandbox, before it or after it, and the next one goes on. The box lives on meanwhile. Whatever the
// window, what is done in the box is done once, told once, and the box goes in the end.
func TestBoxCrashWindows(t *testing.T) {
	c := newBoxCity(t, boxWindows, 20*time.Millisecond, func(turn *cliTurn) {
		turn.say("1", "first ", "words ")
		if why := turn.permit(driver.ActionEdit, map[string]string{"path": "edited"}); why != "" {
			t.Errorf("it is denied: %s", why)
			return
		}
		f, err := os.OpenFile(filepath.Join(turn.s.b.work, "edited"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = f.WriteString("y")
		_ = f.Close()
		turn.say("2", "last words ")
	})
	commits := 0
	count := c.process(func(op faultkv.Op) faultkv.Fault {
		if op.Kind == faultkv.Apply {
			commits++
		}
		return faultkv.Fault{}
	})
	c.check(count, count.begin("run", "null"))
	count.stop()
	t.Logf("%d commits", commits)
	if commits < 8 {
		t.Fatalf("a run has %d commits", commits)
	}
	stride := max(1, commits/10)
	for n := 2; n < commits; n += stride {
		seen := 0
		var run agent.Run
		first := c.process(func(op faultkv.Op) faultkv.Fault {
			if op.Kind != faultkv.Apply {
				return faultkv.Fault{}
			}
			if seen++; seen == n {
				return faultkv.Fault{Crash: true, Took: n/stride%2 == 0}
			}
			return faultkv.Fault{}
		})
		run = first.begin("run", "null")
		select {
		case <-first.dead:
		case <-c.over(first, run):
		case <-time.After(30 * time.Second):
			t.Fatalf("window %d: the process neither dies nor ends", n)
		}
		first.stop()
		next := c.process(never)
		if _, err := next.store.Run(t.Context(), app, run.ID); err == nil {
			c.check(next, run)
		}
		next.stop()
		if t.Failed() {
			t.Fatalf("window %d", n)
		}
	}
}

func (c *boxCity) over(p *boxProcess, run agent.Run) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		_, _ = p.Wait(c.t.Context(), app, run.ID)
		close(done)
	}()
	return done
}

func (c *boxCity) check(p *boxProcess, run agent.Run) {
	c.t.Helper()
	if got := p.output(run); got != "last words x\ny" {
		c.t.Errorf("the run came to %q", got)
	}
	w := &boxWorld{toolWorld: &toolWorld{world: p.world}, yard: c.yard}
	told := strings.Join(w.told(run), ",") + ","
	for what, n := range map[string]int{
		"cli session.started,": 1, "cli turn.started,": 1, "cli permission.asked,": 1, "cli turn.ended,": 1, "message.done,": 2, "tool.called,": 1, "emit,": 1,
	} {
		if got := strings.Count(told, what); got != n {
			c.t.Errorf("%d of %s in %s", got, what, told)
		}
	}
	if got := texts(c.t, p.rig, store.SessionLog(app, run.Session)); got != "first words |last words |" {
		c.t.Errorf("the texts are %q", got)
	}
	// What the dead one has left undone is found by the keeper.
	for id, b := range c.yard.all() {
		if gone, err := p.BoxGone(c.t.Context(), b.Record()); err != nil || !gone {
			c.t.Errorf("sandbox %s is kept: %v", id, err)
		} else if err := c.yard.Release(c.t.Context(), app, b.Record().For); err != nil {
			c.t.Error(err)
		}
	}
	c.yard.none()
}

func (y *boxYard) all() map[agent.SandboxID]*yardBox {
	y.mu.Lock()
	defer y.mu.Unlock()
	out := map[agent.SandboxID]*yardBox{}
	for id, b := range y.boxes {
		out[id] = b
	}
	return out
}
