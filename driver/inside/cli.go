package inside

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"maps"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/backend"
)

const keptAsks = 1024 // questions that are remembered with their answers

// cli is one process of a command-line agent, or more, which a backend speaks to.
type cli struct {
	t    *turns
	key  string
	dead chan struct{} // closed when the session is done and its turn has ended

	asking  sync.Mutex // held while the session is asked to end a turn
	telling sync.Mutex // held while an event is told, so that they keep their order; before mu

	mu      sync.Mutex
	session backend.Session // nil until serve
	id      string          // of the CLI's session, by which it can be resumed
	procs   []*proc
	now     *turn
	asks    map[string]*ask // by the id that the control plane knows
}

// ask is something that the CLI has asked.
type ask struct {
	inner  string // the backend's id
	answer *driver.Answer
	gone   bool // withdrawn, or its turn has ended
}

func newCLI(t *turns, key string) *cli {
	return &cli{t: t, key: key, dead: make(chan struct{}), asks: map[string]*ask{}}
}

// env returns what the backend has of the box.
func (c *cli) env(ctx context.Context) *backend.Env {
	b := c.t.b
	e := &backend.Env{Home: b.o.Home, Relay: "http://" + b.relay, Models: "http://" + b.relay + driver.ModelPath, Vars: b.vars()}
	if w := b.welcome.Load(); w != nil {
		e.Key = w.ModelKey
	}
	e.Spawn = func(_ context.Context, s *backend.Command) (backend.Process, error) {
		p, err := b.procs.start(ctx, start{
			name: "cli", command: append([]string{s.Path}, s.Args...), dir: b.path(s.Dir), env: b.vars(e.Vars, s.Env), tell: true,
		})
		if err != nil {
			return nil, err
		}
		c.mu.Lock()
		c.procs = append(c.procs, p)
		c.mu.Unlock()
		return p, nil
	}
	return e
}

// serve waits for the end of the session, and ends a turn that it leaves open.
func (c *cli) serve(s backend.Session) {
	c.mu.Lock()
	c.session = s
	c.mu.Unlock()
	go func() { // ends with the CLI, which close and kill end
		<-s.Done()
		c.signal(syscall.SIGKILL) // whatever more it had started
		for _, p := range c.processes() {
			<-p.done
		}
		c.mu.Lock()
		now := c.now
		c.mu.Unlock()
		if now != nil {
			c.endTurn(now, driver.TurnFailed, c.death())
		}
		close(c.dead)
	}()
}

// running returns the session, or nil before the CLI was ready.
func (c *cli) running() backend.Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

func (c *cli) processes() []*proc {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.procs
}

// death says why the CLI is dead.
func (c *cli) death() *driver.Fault {
	f := &driver.Fault{Kind: agent.Failed, Message: "the command-line agent ended before its turn did"}
	if list := c.processes(); len(list) > 0 {
		r := list[len(list)-1].result
		if r.Signal != "" {
			f.Message += ", by the signal " + r.Signal
		} else {
			f.Message += ", with status " + strconv.Itoa(r.Code)
		}
		if r.Tail != "" {
			f.Message += ": " + driver.CutTail(r.Tail, 1024)
		}
	}
	return f
}

// fits reports whether the CLI can take a prompt of that key: one that goes on with its session. One that does not is not to know what was said in it.
func (c *cli) fits(key, resume string) bool {
	select {
	case <-c.dead:
		return false
	default:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session != nil && c.key == key && resume != "" && resume == c.id
}

// begin makes now the turn that events are of.
func (c *cli) begin(now *turn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = now
}

// began reports whether the turn has an event.
func (c *cli) began(now *turn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return now.started
}

// sink takes an event of the backend.
func (c *cli) sink(e driver.Event) {
	c.telling.Lock()
	defer c.telling.Unlock()
	c.mu.Lock()
	now := c.now
	c.mu.Unlock()
	ctx := context.Background()
	if now != nil {
		ctx = now.ctx
		if e.Turn == "" {
			e.Turn = now.id
		}
		if !now.started && e.Turn == now.id && e.Type != driver.SessionStarted && e.Type != driver.TurnEnded {
			c.mu.Lock()
			now.started = true
			c.mu.Unlock()
			if e.Type != driver.TurnStarted {
				c.t.b.emit(ctx, driver.NewEvent(now.id, driver.TurnStarted, nil))
			}
		}
	}
	switch e.Type {
	case driver.SessionStarted:
		var d driver.SessionData
		if e.Read(&d) == nil {
			c.mu.Lock()
			c.id = d.ID
			c.mu.Unlock()
		}
	case driver.PermissionAsked, driver.QuestionAsked:
		c.ask(&e)
	case driver.PermissionWithdrawn:
		if !c.withdraw(&e) {
			return
		}
	case driver.TurnEnded:
		if now == nil || e.Turn != now.id {
			c.t.b.log.Warn("a backend has ended a turn that is not under way", "turn", e.Turn)
			return
		}
		c.tellEnd(now, e)
		return
	}
	c.t.b.emit(ctx, e)
}

// ask gives what is asked an id of the driver's. A CLI counts its requests from 0 each time that it starts; the answer to an old one must not fit a new one.
func (c *cli) ask(e *driver.Event) {
	var d map[string]json.RawMessage
	var inner string
	if e.Read(&d) != nil || json.Unmarshal(d["id"], &inner) != nil {
		return
	}
	outer := rand.Text()
	c.mu.Lock()
	if len(c.asks) >= keptAsks {
		maps.DeleteFunc(c.asks, func(_ string, a *ask) bool { return a.gone || a.answer != nil })
	}
	c.asks[outer] = &ask{inner: inner}
	c.mu.Unlock()
	d["id"] = json.RawMessage(`"` + outer + `"`)
	e.Data = driver.Body(d)
}

// withdraw notes that an answer is of no use any more. It reports false when one was given, or nothing was asked.
func (c *cli) withdraw(e *driver.Event) bool {
	var d driver.PermissionData
	if e.Read(&d) != nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for outer, a := range c.asks {
		if a.inner == d.ID && !a.gone && a.answer == nil {
			a.gone = true
			e.Data = driver.Body(driver.PermissionData{ID: outer})
			return true
		}
	}
	return false
}

// answer answers what was asked, once. The same answer again is fine: who gives it may not have learned that it had come.
func (c *cli) answer(ctx context.Context, a *driver.Answer) error {
	s := c.running()
	if s == nil {
		return agent.Errorf(agent.Unavailable, "the command-line agent is not ready for an answer")
	}
	c.mu.Lock()
	q := c.asks[a.ID]
	switch {
	case q == nil:
		c.mu.Unlock()
		return agent.Errorf(agent.NotFound, "nothing was asked under %s", a.ID)
	case q.answer != nil:
		c.mu.Unlock()
		if *q.answer != *a {
			return agent.Errorf(agent.Conflict, "%s was answered, and otherwise", a.ID)
		}
		return nil
	case q.gone:
		c.mu.Unlock()
		return agent.Errorf(agent.NotFound, "%s was withdrawn", a.ID)
	}
	own := *a
	q.answer = &own
	c.mu.Unlock()
	to := *a
	to.ID = q.inner
	err := s.Answer(ctx, &to)
	if err != nil { // it was not given
		c.mu.Lock()
		q.answer = nil
		c.mu.Unlock()
	}
	return err
}

// endTurn ends a turn that the backend has left open.
func (c *cli) endTurn(now *turn, status string, fault *driver.Fault) {
	c.telling.Lock()
	defer c.telling.Unlock()
	c.tellEnd(now, driver.NewEvent(now.id, driver.TurnEnded, driver.TurnEnd{Status: status, Fault: fault}))
}

// What is said of a turn that has failed while the kernel ended processes of the box.
const (
	noMemory   = "the box had no memory left, and a process of the turn was ended"
	moreMemory = "give the environment more: size.memory"
)

// tellEnd tells of the end of a turn, once, after everything that it had asked is withdrawn; telling is held. What failed after it was interrupted was
// interrupted, and what failed when the box had no memory left says so.
func (c *cli) tellEnd(now *turn, e driver.Event) {
	c.mu.Lock()
	ended := now.ended
	now.ended = true
	if c.now == now {
		c.now = nil
	}
	var open []string
	for outer, a := range c.asks {
		if !a.gone && a.answer == nil {
			a.gone = true
			open = append(open, outer)
		}
	}
	c.mu.Unlock()
	if ended {
		return
	}
	b := c.t.b
	if !now.started {
		c.mu.Lock()
		now.started = true
		c.mu.Unlock()
		b.emit(now.ctx, driver.NewEvent(now.id, driver.TurnStarted, nil))
	}
	for _, id := range open {
		b.emit(now.ctx, driver.NewEvent(now.id, driver.PermissionWithdrawn, driver.PermissionData{ID: id}))
	}
	var end driver.TurnEnd
	if e.Read(&end) == nil && end.Status == driver.TurnFailed {
		b.procs.checkOOM()
		switch {
		case c.t.wasInterrupted(now):
			end.Status, end.Fault = driver.TurnInterrupted, nil
		case oomKills() > now.oom:
			end.Fault = &driver.Fault{Kind: agent.Exhausted, Message: noMemory, Hint: moreMemory}
		}
		e.Data = driver.Body(end)
	}
	b.emit(now.ctx, e)
	c.t.finished(now)
}

// signal sends a signal to all that the CLI has started: INT to the processes alone, others to their groups.
func (c *cli) signal(sig syscall.Signal) {
	for _, p := range c.processes() {
		_ = p.kill(sig, sig != syscall.SIGINT)
	}
}

// close ends the CLI politely, then by force, and returns when it is dead.
func (c *cli) close(ctx context.Context, grace time.Duration) {
	s := c.running()
	if s == nil {
		c.kill()
		return
	}
	c.mu.Lock()
	now := c.now
	c.mu.Unlock()
	if now != nil {
		c.interrupt(ctx, now, grace)
	}
	asked, cancel := context.WithTimeout(ctx, grace)
	_ = s.Close(asked)
	cancel()
	for _, sig := range []syscall.Signal{0, syscall.SIGTERM, syscall.SIGKILL} {
		wait := grace
		if sig != 0 {
			c.signal(sig)
		}
		if sig == syscall.SIGKILL { // what is large takes a while to go
			wait = grace + 2*lateRead
		}
		select {
		case <-c.dead:
			return
		case <-time.After(wait):
		}
	}
	c.t.b.log.Error("a command-line agent does not end, though it was killed")
}

// kill ends what a CLI that never got ready has started.
func (c *cli) kill() {
	c.signal(syscall.SIGKILL)
	for _, p := range c.processes() {
		<-p.done
	}
}
