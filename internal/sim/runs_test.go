package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/runtime/runtimetest"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/faultkv"
	"github.com/skep-dev/skep/store/kv"
	"github.com/skep-dev/skep/store/memkv"
)

const (
	jobs     = 6 // runs of a seed
	keys     = 2 // instances that they are of
	ends     = 8 // of processes
	longTime = time.Hour
)

// town is a world of runs: a database, on which one machine after the other works, and a bank outside of it.
type town struct {
	t    *testing.T
	seed uint64
	db   kv.DB
	dir  string

	mu      sync.Mutex
	machine *machine // that works now
	calm    bool     // nobody dies any more
	paid    map[string]int
	jobs    []*job
	wrong   []string
	tally   tally
}

// machine is a store, and the processes over it: the last one works, and those before do not know yet that it has taken over.
type machine struct {
	*town
	store     *store.Store
	processes []*runner
	died      chan struct{} // closed when it does, by itself or not
	once      sync.Once
}

func (m *machine) die() { m.once.Do(func() { close(m.died) }) }

func (m *machine) isDead() bool {
	select {
	case <-m.died:
		return true
	default:
		return false
	}
}

func (m *machine) chance(of string) float64 { return draw(m.seed, of).Float64() }

// runner is a process that executes runs.
type runner struct {
	*runtime.Runtime
	stop func()
}

func (w *town) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tally[what]++
}

func (w *town) fail(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

func TestRunSeeds(t *testing.T) {
	if *seed != 0 {
		runTown(t, *seed, tally{})
		return
	}
	total := tally{}
	n := max(1, *seeds/20) // such a world takes longer than the others
	for s := *first; s < *first+n && !t.Failed(); s++ {
		runTown(t, s, total)
	}
	t.Logf("%v", total)
	if n < 30 {
		return
	}
	for _, what := range []string{
		"crash", "died inside a commit", "takeover", "stop", "uncertain: retry", "uncertain: answer", "completed", "thrown", "lost twice", "asked again", "child",
	} {
		if total[what] == 0 {
			t.Errorf("of %q there was none in %d seeds: %v", what, n, total)
		}
	}
}

func runTown(t *testing.T, seed uint64, total tally) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := &town{t: t, seed: seed, db: memkv.New(), dir: dir, paid: map[string]int{}, tally: tally{}}
		w.run()
		for _, what := range w.wrong {
			t.Errorf("seed %d: %s", seed, what)
		}
		if len(w.wrong) > 0 {
			t.Errorf("reproduce with: make sim SEED=%d", seed)
		}
		total.add(w.tally)
	})
}

// run has runs begin while processes and machines come and go, and checks what is there when all have ended.
func (w *town) run() {
	w.boot(0)
	r := w.now()
	if _, _, err := r.PutPlugin(w.t.Context(), agent.DefaultApp, runtime.Upload{Name: "code", Filename: "a.ts", Body: []byte("export {}")}, store.Once{}, nil); err != nil {
		w.t.Fatal(err)
	}
	for _, a := range []agent.Agent{{Name: "bank"}, {Name: "worker", Grants: agent.AgentGrants("bank")}} {
		a.App, a.Plugin = agent.DefaultApp, "code"
		if _, _, err := r.CreateAgent(w.t.Context(), a, store.Once{}); err != nil {
			w.t.Fatal(err)
		}
	}
	for i := range jobs {
		w.jobs = append(w.jobs, newJob(w.seed, i))
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), longTime)
	defer cancel()
	var all, fate sync.WaitGroup
	for _, j := range w.jobs {
		all.Go(func() { w.follow(ctx, j) })
	}
	fate.Go(w.fate)
	all.Wait()
	fate.Wait()
	w.check(w.t.Context())
	w.shut(false)
}

// fate has processes end and others take over.
func (w *town) fate() {
	rng := draw(w.seed, "fate of runs")
	for n := 1; n <= ends; n++ {
		timer := time.NewTimer(time.Duration(rng.Float64()*rng.Float64()*4000) * time.Millisecond)
		m := w.current()
		select {
		case <-timer.C:
		case <-m.died:
			timer.Stop()
			w.note("died inside a commit")
			w.shut(true)
			w.boot(n)
			continue
		}
		switch rng.IntN(4) {
		case 0:
			w.note("stop")
			w.shut(false)
			w.boot(n)
		case 1:
			w.note("takeover")
			next := m.process()
			w.mu.Lock()
			m.processes = append(m.processes, next)
			w.mu.Unlock()
		default:
			w.note("crash")
			w.shut(true)
			w.boot(n)
		}
	}
	w.mu.Lock()
	w.calm = true
	w.mu.Unlock()
	w.shut(true) // what a process that was taken over has queued is found by the next one
	w.boot(ends + 1)
}

func (w *town) current() *machine {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.machine
}

// now is the process that works now.
func (w *town) now() *runner {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.machine.processes[len(w.machine.processes)-1]
}

// boot starts a machine, with a process. Half of them die by themselves, after some commits, in the middle of one.
func (w *town) boot(n int) {
	rng := draw(w.seed, fmt.Sprint("machine", n))
	left, took := -1, rng.IntN(2) == 0
	if n > 0 && n <= ends && rng.IntN(2) == 0 {
		left = 5 + rng.IntN(60)
	}
	m := &machine{town: w, died: make(chan struct{})}
	db := faultkv.New(w.db, func(o faultkv.Op) (f faultkv.Fault) {
		if o.Kind != faultkv.Apply {
			return f
		}
		m.mu.Lock()
		left--
		last := left == 0 && !m.calm
		if last {
			m.die()
		}
		m.mu.Unlock()
		if last {
			return faultkv.Fault{Err: faultkv.ErrCrashed, Took: took, Crash: true}
		}
		return f
	})
	st, err := store.Open(context.Background(), &mortalDB{db, m}, w.dir, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	m.store = st
	m.processes = []*runner{m.process()}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.machine = m
}

// mortalDB is a database that is away once its machine is dead. Closing it leaves it for the next one.
type mortalDB struct {
	*faultkv.DB
	m *machine
}

func (d *mortalDB) View(ctx context.Context, fn func(kv.Reader) error) error {
	if d.m.isDead() {
		return faultkv.ErrCrashed
	}
	return d.DB.View(ctx, fn)
}

func (d *mortalDB) Apply(ctx context.Context, changes []kv.Change) error {
	if d.m.isDead() {
		return faultkv.ErrCrashed
	}
	return d.DB.Apply(ctx, changes)
}

func (d *mortalDB) Close() error { return nil }

// process starts a process over the machine's store.
func (m *machine) process() *runner {
	cells := runtimetest.New(map[string]runtimetest.Func{"work": m.work, "child": m.child, "pay": m.pay})
	r := &runner{Runtime: runtime.New(m.store, cells, &runtime.Options{Grace: time.Nanosecond})}
	ctx, cancel := context.WithCancel(context.Background())
	var loop sync.WaitGroup
	loop.Go(func() { _ = r.Run(ctx) })
	r.stop = func() { cancel(); loop.Wait() }
	return r
}

// shut ends all processes of the machine: at once, so that nothing they still do is kept, or as an operator does.
func (w *town) shut(byForce bool) {
	m := w.current()
	witness := filepath.Join(w.dir, "commit")
	var was []byte
	var err error
	if byForce {
		m.die()
		if was, err = os.ReadFile(witness); err != nil {
			w.t.Fatal(err)
		}
	}
	w.mu.Lock()
	processes := m.processes
	w.mu.Unlock()
	for _, p := range processes {
		p.stop()
	}
	err = m.store.Close()
	if byForce {
		err = os.WriteFile(witness, was, 0o600) // that it was closed is undone
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// follow begins a run, sends it its events, and says what became of its call when it is uncertain, until it has ended.
func (w *town) follow(ctx context.Context, j *job) {
	rng := draw(w.seed, "follow "+j.Name)
	wait := func(most time.Duration) { pass(time.Duration(rng.Float64() * float64(most))) }
	input, err := json.Marshal(j)
	if err != nil {
		w.t.Error(err)
		return
	}
	wait(5 * time.Second)
	once := store.Once{Scope: "sim", Key: j.Name, Request: agent.DigestOf(input)}
	w.until(ctx, "start "+j.Name, func() error {
		run, _, err := w.now().StartRun(ctx, agent.DefaultApp, runtime.RunRequest{Agent: "worker", Function: "work", Key: j.key, Input: agent.JSON(input)}, once)
		j.run = run
		return err
	})
	for n := 1; n <= j.events; n++ {
		wait(5 * time.Second)
		w.until(ctx, "an event for "+j.Name, func() error {
			_, err := w.now().SendEvent(ctx, agent.DefaultApp, j.run.ID, "go", fmt.Sprint("event ", n), fmt.Append(nil, n))
			if agent.KindOf(err) == agent.Conflict {
				return nil // it has ended
			}
			return err
		})
	}
	for !j.run.Status.Terminal() {
		wait(time.Second)
		w.until(ctx, "look at "+j.Name, func() error {
			r := w.now()
			run, err := r.Wait(briefly(ctx), agent.DefaultApp, j.run.ID)
			if run.ID != "" {
				j.run = run
			}
			if errors.Is(err, context.DeadlineExceeded) || agent.KindOf(err) == agent.Cancelled {
				err = nil
			}
			if err == nil && run.Status == agent.Uncertain {
				err = w.resolve(ctx, r, j)
			}
			return err
		})
		if ctx.Err() != nil {
			w.fail("run %s of %s does not end: it is %s and waits for %+v", j.run.ID, j.Name, j.run.Status, j.run.Wait)
			return
		}
	}
}

func briefly(ctx context.Context) context.Context {
	ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	context.AfterFunc(ctx, cancel)
	return ctx
}

// until does something until it succeeds: the process that it asks may be dead.
func (w *town) until(ctx context.Context, what string, do func() error) {
	for {
		err := do()
		if err == nil {
			return
		}
		w.note("asked again")
		if ctx.Err() != nil {
			w.fail("%s: %v", what, err)
			return
		}
		pass(50 * time.Millisecond)
	}
}

// resolve says of a call of the bank whether it was made, as a person would who has looked there.
func (w *town) resolve(ctx context.Context, r *runner, j *job) error {
	name, err := w.uncertainOf(ctx, r, j)
	if err != nil {
		return err
	}
	pass(longestPay) // who made it may have been taken over, and not be dead: then it is still under way
	say := agent.Resolution{Call: j.run.Wait.Call, Action: "retry"}
	if w.paidSoFar(name) > 0 {
		say.Action, say.Output = "answer", json.RawMessage(fmt.Sprintf("%q", "paid "+name))
	}
	_, err = r.ResolveRun(ctx, agent.DefaultApp, j.run.ID, say)
	if err == nil {
		w.note("uncertain: " + say.Action)
	}
	if agent.KindOf(err) == agent.Conflict {
		return nil
	}
	return err
}

// uncertainOf finds out which call of the bank a run is uncertain about: its journal has the start of each.
func (w *town) uncertainOf(ctx context.Context, r *runner, j *job) (string, error) {
	entries, err := r.Journal(ctx, agent.DefaultApp, j.run.ID, 0, 1000)
	if err != nil {
		return "", err
	}
	calls := map[uint64]bool{}
	for _, e := range entries {
		if e.Kind == "start" && e.Class == "once" && e.Call <= j.run.Wait.Call {
			calls[e.Call] = true
		}
	}
	names := j.payments()
	if len(calls) == 0 || len(calls) > len(names) || !calls[j.run.Wait.Call] {
		w.fail("%s is uncertain about call %d; its journal has %v, and it is to make %v", j.Name, j.run.Wait.Call, calls, names)
		return "", errors.New("that call cannot be uncertain")
	}
	return names[len(calls)-1], nil
}

func (w *town) paidSoFar(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.paid[name]
}
