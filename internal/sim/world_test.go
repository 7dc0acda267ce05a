package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing/synctest"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime/durable"
	"github.com/skep-dev/skep/store/instance"
	"github.com/skep-dev/skep/store/instance/instancetest"
)

const (
	agentID = agent.AgentID("01AGENT")
	roots   = 4
	clients = 4
)

func root(n int) instance.ID { return named(fmt.Sprint("k", n)) }
func kid(of instance.ID, n int) instance.ID {
	return named(fmt.Sprint(of.Key, "-", n))
}
func named(key string) instance.ID {
	return instance.ID{App: agent.DefaultApp, Agent: agentID, Key: key}
}

// world is all of one simulation.
type world struct {
	seed   uint64
	memory *instancetest.Memory
	store  *instancetest.Faulty
	calm   bool // nothing fails any more

	mu       sync.Mutex
	shift    time.Duration // of the clock
	most     time.Duration
	draws    map[string]*rand.Rand
	faults   float64
	live     []*process // the last is the one that new calls go to
	ops      []*op
	accepted map[landing]instance.BatchID
	wrong    []string
	trace    []string
	tally    tally
	began    time.Time
}

// landing is where a commit led to.
type landing struct {
	id   instance.ID
	head int64
}

// process is a Keeper that can die: from then on nothing that it does reaches the store.
type process struct {
	*durable.Keeper
	w     *world
	n     int
	dead  bool // guarded by w.mu
	ops   int  // until it dies by itself; below 0 it does not
	ended func()
}

func newWorld(seed uint64) *world {
	w := &world{seed: seed, draws: map[string]*rand.Rand{}, accepted: map[landing]instance.BatchID{}, tally: tally{}, began: time.Now()}
	w.memory = instancetest.NewMemory(w.now)
	w.memory.AddAgent(agent.DefaultApp, agentID)
	w.faults = []float64{0, 0.01, 0.05, 0.2}[seed%4]
	w.store = &instancetest.Faulty{Store: w.memory, Fault: w.fault, Accepted: w.commitMade}
	return w
}

// now is the clock of the machine, which may be set.
func (w *world) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Add(w.shift).Round(0)
}

func (w *world) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tally[what]++
}

func (w *world) tell(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trace = append(w.trace, fmt.Sprintf("%12v ", time.Since(w.began))+fmt.Sprintf(format, args...))
}

func (w *world) fail(format string, args ...any) {
	w.tell("WRONG: "+format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

// chance draws for one thing; the same things draw the same whatever others do meanwhile.
func (w *world) chance(of string) float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.draws[of]
	if r == nil {
		r = draw(w.seed, of)
		w.draws[of] = r
	}
	return r.Float64()
}

var errAway = agent.Errorf(agent.Unavailable, "the store is away")

// fault is what goes wrong with an operation on the way to the store and back.
func (w *world) fault(op instancetest.Op) (f instancetest.Fault) {
	if w.calm {
		return f
	}
	c := w.chance(op.Name + op.ID.Key)
	f.Delay = time.Duration(w.chance("delay"+op.Name+op.ID.Key) * 3 * float64(time.Millisecond))
	if c > 0.99 {
		f.Delay *= 100
	}
	if c >= w.faults {
		return f
	}
	switch part := c / w.faults; {
	case op.Name != "Commit" || part < 0.4:
		f.Err = errAway
		w.note("fault")
	case part < 0.6:
		f.Unknown = instancetest.Made
		w.note("unknown, made")
	case part < 0.8:
		f.Unknown = instancetest.NotMade
		w.note("unknown, not made")
	default:
		f.Unknown, f.Late = instancetest.MadeLate, time.Duration(part*100)*time.Millisecond
		w.note("unknown, made late")
	}
	return f
}

// commitMade checks that no two commits were made at one place.
func (w *world) commitMade(id instance.ID, _ instance.Fence, b *instance.Batch, r instance.Result) {
	w.mu.Lock()
	was, there := w.accepted[landing{id, r.Fence.Head}]
	w.accepted[landing{id, r.Fence.Head}] = b.ID
	w.mu.Unlock()
	if there && was != b.ID {
		w.fail("two commits led instance %s to %d", id.Key, r.Fence.Head)
	}
}

// start starts the next process, which takes over from those before.
func (w *world) start(n, ops int) *process {
	p := &process{w: w, n: n, ops: ops}
	rng := draw(w.seed, fmt.Sprint("process", n))
	p.Keeper = durable.New(&mortal{w.store, p}, &durable.Options{
		Now: w.now, Idle: time.Duration(100+rng.IntN(10_000)) * time.Millisecond, Workers: 1 + rng.IntN(8), Waiting: 2 + rng.IntN(20),
		Alarm: p.alarm, Receive: p.receive,
	})
	ctx, cancel := context.WithCancel(context.Background())
	var loops sync.WaitGroup
	loops.Go(func() { p.Run(ctx) })
	p.ended = func() { cancel(); loops.Wait() }
	w.mu.Lock()
	w.live = append(w.live, p)
	w.mu.Unlock()
	w.tell("process %d starts", n)
	return p
}

// kill ends a process at once.
func (p *process) kill(how string) {
	p.w.mu.Lock()
	was := p.dead
	p.dead = true
	p.w.mu.Unlock()
	if !was {
		p.w.note(how)
		p.w.tell("process %d: %s", p.n, how)
	}
	p.ended()
}

func (p *process) isDead() bool {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return p.dead
}

var errDead = errors.New("the process is dead")

// mortal is the store as a process reaches it while it lives.
type mortal struct {
	*instancetest.Faulty
	p *process
}

// breathe counts an operation, with which the process may die: before it is made, or after.
func (m *mortal) breathe() (last bool, err error) {
	m.p.w.mu.Lock()
	defer m.p.w.mu.Unlock()
	if m.p.dead {
		return false, errDead
	}
	m.p.ops--
	return m.p.ops == 0, nil
}

func (m *mortal) die() { m.p.w.mu.Lock(); m.p.dead = true; m.p.w.mu.Unlock() }

func (m *mortal) Acquire(ctx context.Context, id, parent instance.ID) (instance.Info, error) {
	if _, err := m.breathe(); err != nil {
		return instance.Info{}, err
	}
	i, err := m.Faulty.Acquire(ctx, id, parent)
	return i, m.after(err)
}

func (m *mortal) Commit(ctx context.Context, id instance.ID, f instance.Fence, b *instance.Batch) (instance.Result, error) {
	last, err := m.breathe()
	if err != nil {
		return instance.Result{}, err
	}
	if last {
		m.p.w.note("died inside a commit")
		m.p.w.tell("process %d dies inside a commit of %s", m.p.n, id.Key)
		m.die()
		if m.p.n%2 == 0 {
			return instance.Result{}, errDead
		}
	}
	r, err := m.Faulty.Commit(ctx, id, f, b)
	return r, m.after(err)
}

// after is what a process learns of an operation that it may not have survived.
func (m *mortal) after(err error) error {
	if m.p.isDead() {
		return errDead
	}
	return err
}

func (m *mortal) Resolve(ctx context.Context, id instance.ID, f instance.Fence, batch instance.BatchID) (instance.Outcome, instance.Fence, error) {
	if m.p.isDead() {
		return instance.UnknownOutcome, f, instance.Gone(id) // so that it does not ask again
	}
	return m.Faulty.Resolve(ctx, id, f, batch)
}

func (m *mortal) Delete(ctx context.Context, id instance.ID, f instance.Fence) error {
	if _, err := m.breathe(); err != nil {
		return err
	}
	return m.after(m.Faulty.Delete(ctx, id, f))
}

func (m *mortal) Due(ctx context.Context, now time.Time, after instance.Cursor, limit int) (instance.DuePage, error) {
	if m.p.isDead() {
		return instance.DuePage{}, errDead
	}
	return m.Faulty.Due(ctx, now, after, limit)
}

// run has clients work while processes come and go, then lets all that is under way come to its end.
func (w *world) run() {
	var all sync.WaitGroup
	stop := make(chan struct{})
	w.start(0, w.lifetime(0))
	for c := range clients {
		all.Go(func() { w.client(c) })
	}
	var fate sync.WaitGroup
	fate.Go(func() { w.fate(stop) })
	all.Wait()
	close(stop)
	fate.Wait()
	w.store.Wait()

	w.mu.Lock()
	w.calm, w.shift = true, w.most+2*time.Hour // all that is set is due, whatever the clock said when it was
	old := w.live
	w.mu.Unlock()
	for _, p := range old {
		p.kill("crash")
	}
	last := w.start(99, -1)
	pass(3 * time.Minute)
	synctest.Wait()
	last.kill("stop")
	w.store.Wait()
}

// lifetime is after how many operations a process dies by itself.
func (w *world) lifetime(n int) int {
	rng := draw(w.seed, fmt.Sprint("life", n))
	if rng.IntN(2) == 0 {
		return -1
	}
	return 1 + rng.IntN(150)
}

// fate has processes end and others take over, and sets the clock.
func (w *world) fate(stop chan struct{}) {
	rng := draw(w.seed, "fate")
	var zombies sync.WaitGroup
	defer zombies.Wait()
	for n := 1; ; n++ {
		timer := time.NewTimer(time.Duration(50+rng.IntN(2000)) * time.Millisecond)
		select {
		case <-timer.C:
		case <-stop:
			timer.Stop()
			return
		}
		if rng.IntN(3) == 0 {
			w.jump(time.Duration(rng.IntN(3)-1) * time.Hour)
		}
		w.mu.Lock()
		p := w.live[len(w.live)-1]
		w.mu.Unlock()
		switch how := rng.IntN(3); {
		case how == 0 && !p.isDead(): // it goes on for a while, and does not know that it was taken over
			linger := time.Duration(rng.IntN(3000)) * time.Millisecond
			zombies.Go(func() { pass(linger); p.kill("zombie") })
		case how == 1 && !p.isDead():
			p.ended()
			p.kill("stop")
		default:
			p.kill("crash")
		}
		w.start(n, w.lifetime(n))
	}
}

func (w *world) jump(d time.Duration) {
	w.mu.Lock()
	w.shift += d
	w.most = max(w.most, w.shift)
	w.mu.Unlock()
	w.note("clock jump")
	w.tell("the clock is set by %v", d)
}
