package inside

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/backend"
)

const (
	startWithin = 3 * time.Minute // a CLI has to be ready
	keptTurns   = 1024            // that are remembered, so that none begins twice
)

// turns runs the CLI of the box: one at a time, one turn at a time.
type turns struct {
	b        *box
	backends map[string]backend.Backend

	starting sync.Mutex // held while a prompt starts or ends a CLI

	mu    sync.Mutex
	known map[string]*turn
	order []string
	cli   *cli // that runs, or ran last
	now   *turn
	over  bool
}

// turn is one turn, from its prompt to its end.
type turn struct {
	id          string
	ctx         context.Context // for its trace
	stop        context.CancelFunc
	begun       chan struct{} // closed when Prompt was answered
	err         error         // of its start
	done        chan struct{} // closed after TurnEnded
	started     bool
	ended       bool
	interrupted bool
	oom         int64 // oomKills at its start
}

func newTurns(b *box) *turns {
	t := &turns{b: b, backends: map[string]backend.Backend{}, known: map[string]*turn{}}
	for _, be := range b.o.Backends {
		t.backends[be.Spec().Name] = be
	}
	return t
}

func (t *turns) doPrompt(ctx context.Context, p *driver.Prompt) (any, error) {
	if p.Turn == "" || len(p.Turn) > 128 {
		return nil, agent.Errorf(agent.Invalid, "a prompt has to name its turn, in at most 128 bytes")
	}
	be := t.backends[p.CLI]
	if be == nil {
		return nil, &agent.Error{Kind: agent.Invalid, Msg: fmt.Sprintf("the driver has no backend %q", p.CLI), Hint: "there are " + strings.Join(t.names(), ", ")}
	}
	own := *p
	if own.Dir = t.b.path(p.Dir); own.Permissions == "" {
		own.Permissions = "policy"
	}
	now, first, err := t.begin(ctx, own.Turn)
	if err != nil {
		return nil, err
	}
	if first {
		now.err = t.run(now, be, &own)
		close(now.begun)
		if now.err != nil {
			t.forget(now)
		}
	}
	select {
	case <-now.begun:
		return nil, now.err
	case <-ctx.Done():
		return nil, ending()
	}
}

func (t *turns) names() []string {
	var out []string
	for _, b := range t.b.o.Backends {
		out = append(out, b.Spec().Name)
	}
	return out
}

func ending() error { return agent.Errorf(agent.Unavailable, "the driver ends") }

// begin returns the turn of that name; first says that it is new.
func (t *turns) begin(ctx context.Context, id string) (now *turn, first bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch now = t.known[id]; {
	case now != nil:
		return now, false, nil
	case t.over:
		return nil, false, ending()
	case t.now != nil:
		return nil, false, agent.Errorf(agent.Conflict, "the turn %s is under way", t.now.id)
	}
	now = &turn{id: id, begun: make(chan struct{}), done: make(chan struct{}), oom: oomKills()}
	now.ctx, now.stop = context.WithCancel(ctx)
	t.known[id], t.now = now, now
	t.order = append(t.order, id)
	if len(t.order) > keptTurns {
		delete(t.known, t.order[0])
		t.order = t.order[1:]
	}
	return now, true, nil
}

// forget drops a turn that never started, so that it can be tried again.
func (t *turns) forget(now *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.known, now.id)
	t.order = slices.DeleteFunc(t.order, func(id string) bool { return id == now.id })
	if t.now == now {
		t.now = nil
	}
	now.stop()
}

// run starts the turn, and the CLI before it unless the right one runs. After an error there is no turn, and no event of it.
func (t *turns) run(now *turn, be backend.Backend, p *driver.Prompt) error {
	t.starting.Lock()
	defer t.starting.Unlock()
	c, err := t.ready(now, be, p)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(now.ctx, startWithin)
	defer cancel()
	if err = c.prompt(ctx, now, p); err == nil {
		return nil
	}
	if c.began(now) { // the CLI may be at it, and nobody knows how far
		t.b.log.Warn("a command-line agent failed to begin a turn", "error", err)
		c.close(t.b.works.ctx, t.b.o.Grace)
		return nil
	}
	c.begin(nil)
	return t.why(now, err)
}

// prompt begins a turn.
func (c *cli) prompt(ctx context.Context, now *turn, p *driver.Prompt) error {
	c.asking.Lock() // until an interruption of the turn before is through
	c.begin(now)
	c.asking.Unlock()
	return c.running().Prompt(ctx, p)
}

// why is the error of a turn that did not start.
func (t *turns) why(now *turn, err error) error {
	if t.wasInterrupted(now) {
		return agent.Errorf(agent.Cancelled, "the turn was interrupted before it began")
	}
	if oomKills() > now.oom {
		return &agent.Error{Kind: agent.Exhausted, Msg: "the command-line agent did not start: " + noMemory, Err: err, Hint: moreMemory}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &agent.Error{Kind: agent.Unavailable, Msg: fmt.Sprintf("the command-line agent was not ready within %s", startWithin), Err: err}
	}
	return err
}

func (t *turns) wasInterrupted(now *turn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return now.interrupted
}

// ready returns a CLI that can take the prompt.
func (t *turns) ready(now *turn, be backend.Backend, p *driver.Prompt) (*cli, error) {
	t.mu.Lock()
	c := t.cli
	t.mu.Unlock()
	key := t.keyOf(p)
	if c != nil {
		if c.fits(key, p.Resume) {
			return c, nil
		}
		c.close(t.b.works.ctx, t.b.o.Grace)
	}
	c = newCLI(t, key)
	t.mu.Lock()
	t.cli = c
	t.mu.Unlock()
	ctx, cancel := context.WithTimeout(now.ctx, startWithin)
	defer cancel()
	session, err := be.Start(ctx, p, c.env(now.ctx), c.sink)
	if err != nil {
		c.kill()
		return nil, t.why(now, err)
	}
	c.serve(session)
	return c, nil
}

// keyOf says which prompts the same CLI process can take. Each run has a key of its own for models, which a CLI is given once: one that was started for a run
// before is of no use to the next.
func (t *turns) keyOf(p *driver.Prompt) string {
	models := ""
	if w := t.b.welcome.Load(); w != nil {
		models = w.ModelKey
	}
	return strings.Join([]string{p.CLI, p.Model, p.Permissions, p.Dir, models, strings.Join(p.Command, "\x00")}, "\x01")
}

// doInterrupt ends a turn: as the CLI's protocol has it, then by signals, each step after grace.
func (t *turns) doInterrupt(ctx context.Context, a *driver.InterruptArgs) (any, error) {
	t.mu.Lock()
	now := t.known[a.Turn]
	if now != nil {
		now.interrupted = true
	}
	t.mu.Unlock()
	if now == nil {
		return nil, agent.Errorf(agent.NotFound, "there is no turn %s", a.Turn)
	}
	select {
	case <-now.begun:
	default:
		now.stop() // while the CLI starts
		select {
		case <-now.begun:
		case <-ctx.Done():
			return nil, ending()
		}
	}
	if now.err != nil {
		return nil, nil
	}
	t.mu.Lock()
	c := t.cli // not before: until the turn has begun it is that of a turn before, or none
	t.mu.Unlock()
	c.interrupt(ctx, now, t.b.o.Grace)
	select {
	case <-now.done:
		return nil, nil
	case <-ctx.Done():
		return nil, ending()
	}
}

// interrupt ends a turn, and returns when it has ended or the CLI is dead.
func (c *cli) interrupt(ctx context.Context, now *turn, grace time.Duration) {
	wait := func() bool {
		select {
		case <-now.done:
			return true
		case <-c.dead:
			return true
		case <-time.After(grace):
			return false
		}
	}
	if err := c.askToStop(ctx, now, grace); err != nil {
		c.t.b.log.Warn("a command-line agent could not be interrupted by its protocol", "error", err)
	}
	for _, sig := range []syscall.Signal{0, syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
		if sig != 0 {
			c.signal(sig)
		}
		if wait() {
			return
		}
	}
}

// askToStop asks the CLI to end a turn, unless that has ended: the next one, which waits, must not hear of it.
func (c *cli) askToStop(ctx context.Context, now *turn, grace time.Duration) error {
	c.asking.Lock()
	defer c.asking.Unlock()
	select {
	case <-now.done:
		return nil
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	return c.running().Interrupt(ctx)
}

func (t *turns) doAnswer(ctx context.Context, a *driver.Answer) (any, error) {
	t.mu.Lock()
	c := t.cli
	t.mu.Unlock()
	if c == nil {
		return nil, agent.Errorf(agent.NotFound, "nothing was asked under %s", a.ID)
	}
	return nil, c.answer(ctx, a)
}

// end ends the CLI for good.
func (t *turns) end(ctx context.Context) {
	t.mu.Lock()
	t.over = true
	now := t.now
	if now != nil {
		now.interrupted = true
		now.stop()
	}
	t.mu.Unlock()
	t.starting.Lock()
	defer t.starting.Unlock()
	t.mu.Lock()
	c := t.cli
	t.mu.Unlock()
	if c != nil {
		c.close(ctx, t.b.o.Grace/5) // who ends the box does not wait for long
	}
}

// finished notes that a turn has ended.
func (t *turns) finished(now *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now == now {
		t.now = nil
	}
	now.stop()
	close(now.done)
}
