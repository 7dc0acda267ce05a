package worker

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
)

// sourceKey names code by its content.
type sourceKey [sha256.Size]byte

func keyOf(src agent.Source) sourceKey {
	var e encoder
	putSource(&e, src)
	return sha256.Sum256(e)
}

const (
	maxPrepared  = 10_000 // preparations that went well are remembered
	maxPreparing = 256    // may wait
)

// preparing is what an app wants to be prepared.
type preparing struct {
	app agent.App
	key sourceKey
}

// preparation is one that is under way.
type preparation struct {
	stop    context.CancelFunc // when nobody waits any more
	waiting int                // callers; guarded by Pool.mu
	done    chan struct{}      // closed when res and err are set
	res     host.Prepared
	err     error
}

// Prepare checks and compiles code in a process of its own, and runs its initialisers once. What it compiled is kept in
// the directory for compiled code, where workers find it. progress may be nil. Beside host.Host's errors, code that costs
// more than Options.Prepare allows gets an Exhausted one, and code that ends the process an Invalid one. Callers of one
// app with the same code share one process, which goes on when one of them leaves and is ended when all have left; the first
// one's progress is told.
func (p *Pool) Prepare(ctx context.Context, who host.Who, src agent.Source, progress func(host.Progress)) (host.Prepared, error) {
	k := preparing{who.App, keyOf(src)}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return host.Prepared{}, errClosed()
	}
	if res, ok := p.prepared[k.key]; ok {
		p.mu.Unlock()
		return res, nil
	}
	prep := p.underWay[k]
	if prep == nil {
		ctx, stop := context.WithCancel(p.ctx)
		prep = &preparation{stop: stop, done: make(chan struct{})}
		p.underWay[k] = prep
		p.all.Go(func() { p.fill(ctx, k, who, prep, src, progress) })
	}
	prep.waiting++
	p.mu.Unlock()
	defer p.leave(k, prep)
	select {
	case <-prep.done:
		return prep.res, prep.err
	case <-ctx.Done():
		return host.Prepared{}, agent.Wrap(agent.Cancelled, context.Cause(ctx), "cancelled while the code was being prepared")
	}
}

// leave is called by each that has waited. What nobody waits for any more keeps no place in the queue, and no processor.
func (p *Pool) leave(k preparing, prep *preparation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if prep.waiting--; prep.waiting > 0 {
		return
	}
	prep.stop()
	if p.underWay[k] == prep {
		delete(p.underWay, k)
	}
}

func errClosed() error { return agent.Errorf(agent.Unavailable, "the host is closing") }

// fill prepares code when the app has its turn. Another app may have had the same prepared by then.
func (p *Pool) fill(ctx context.Context, k preparing, who host.Who, prep *preparation, src agent.Source, progress func(host.Progress)) {
	leave, err := p.children.Enter(ctx, who)
	isThere := false
	if err == nil {
		p.mu.Lock()
		prep.res, isThere = p.prepared[k.key]
		p.mu.Unlock()
		if !isThere {
			var cost agent.Usage
			prep.res, cost, err = p.inChild(ctx, src, progress)
			if p.opts.Host.Loaded != nil {
				p.opts.Host.Loaded(host.Loaded{Who: who, Usage: cost, Err: err})
			}
		}
		leave()
	} else if p.ctx.Err() != nil {
		err = errClosed()
	}
	prep.err = err
	p.mu.Lock()
	if p.underWay[k] == prep {
		delete(p.underWay, k)
	}
	if err == nil {
		p.remember(k.key, prep.res)
	}
	p.mu.Unlock()
	close(prep.done)
}

// remember keeps what is known of some code, and forgets any other when that is too much. The caller holds the lock.
func (p *Pool) remember(k sourceKey, res host.Prepared) {
	for old := range p.prepared {
		if len(p.prepared) < maxPrepared {
			break
		}
		delete(p.prepared, old)
	}
	p.prepared[k] = res
}

// source loads code for a worker. What has to be compiled was compiled by a process that this pool watched.
func (p *Pool) source(ctx context.Context, who host.Who, d agent.Digest) (agent.Source, error) {
	if p.opts.Host.Load == nil {
		return agent.Source{}, agent.Errorf(agent.NotFound, "no code with digest %s", d)
	}
	src, err := p.opts.Host.Load(ctx, d)
	if err == nil && src.Kind != agent.Script {
		_, err = p.Prepare(ctx, who, src, nil)
	}
	return src, err
}

// errDone ends the reading of a process that has said all.
var errDone = errors.New("done")

// inChild prepares code in a new process, and tells what all of that has cost.
func (p *Pool) inChild(ctx context.Context, src agent.Source, progress func(host.Progress)) (_ host.Prepared, cost agent.Usage, err error) {
	start := time.Now()
	defer func() { cost.Wall = time.Since(start) }()
	for _, b := range src.Files {
		cost.In += int64(len(b))
	}
	limits := p.opts.Prepare
	ctx, stop := context.WithTimeout(ctx, limits.Wall)
	defer stop()
	c, err := p.launch()
	if err != nil {
		return host.Prepared{}, cost, agent.Wrap(agent.Unavailable, err, "a process to prepare the code in could not be started")
	}
	l := newLink(c.conn)
	defer context.AfterFunc(ctx, func() { l.fail(ctx.Err()) })()
	var writer sync.WaitGroup
	writer.Go(l.write)
	err = l.post(frameHello, 0, p.hello(rolePrepare))
	if err == nil {
		err = l.post(framePrepare, 1, func(e *encoder) { putSource(e, src) })
	}
	if err != nil {
		l.fail(err)
	}
	var res *resultMessage
	isReady := false
	err = l.read(func(f frame) (err error) {
		switch {
		case !isReady:
			isReady = true
			return p.readReady(f)
		case f.kind == frameProgress:
			var pr host.Progress
			if pr, err = decodeProgress(f.body); err == nil && progress != nil {
				progress(pr)
			}
			return err
		case f.kind == frameResult:
			if res, err = decodeResult(f.body); err == nil {
				return errDone
			}
			return err
		}
		return errNonsense
	})
	writer.Wait()
	state := c.end()
	cost.CPU = state.SystemTime() + state.UserTime()
	cost.Memory = peakMemory(state)
	if errors.Is(err, errDone) {
		if e := res.err; e != nil && e.Kind == agent.Invalid && saysNoMemory(e.Msg) { // the engine got none for the code
			return host.Prepared{}, cost, tooMuchMemory(limits)
		}
		return res.prepared, cost, errorOf(res.err)
	}
	switch {
	case p.ctx.Err() != nil:
		return host.Prepared{}, cost, errClosed()
	case errors.Is(err, context.Canceled):
		return host.Prepared{}, cost, agent.Wrap(agent.Cancelled, err, "nobody waits for the code any more")
	case errors.Is(err, context.DeadlineExceeded):
		return host.Prepared{}, cost, &agent.Error{
			Kind: agent.Exhausted, Limit: agent.LimitModule, Msg: fmt.Sprintf("preparing the code took more than %v", limits.Wall),
			Hint: fmt.Sprintf("it had %v of processor time so far: make it smaller, or try again when the machine has less to do", cost.CPU.Round(100*time.Millisecond)),
		}
	case !isReady:
		return host.Prepared{}, cost, agent.Wrap(agent.Unavailable, err, "the process to prepare the code in did not start")
	}
	if errors.Is(err, io.EOF) {
		err = errors.New(state.String())
	}
	p.log.Warn("preparing code ended its process", "error", err, "cpu", state.SystemTime()+state.UserTime())
	return host.Prepared{}, cost, refusal(limits, state, c.stderr.ranOut(), err)
}

// refusal explains the end of a process that was preparing code.
func refusal(limits PrepareLimits, state *os.ProcessState, noMemory bool, cause error) error {
	ws, _ := state.Sys().(syscall.WaitStatus)
	switch {
	case noMemory:
		return tooMuchMemory(limits)
	case ws.Signaled() && state.UserTime()+state.SystemTime() > limits.CPU-limits.CPU/8-time.Second/2:
		return agent.Exceeded(agent.LimitModule, "preparing the code took more than %v of CPU", limits.CPU)
	}
	return agent.Wrap(agent.Invalid, cause, "the code is refused: preparing it ended the process that did so")
}

func tooMuchMemory(l PrepareLimits) error {
	return agent.Exceeded(agent.LimitModule, "preparing the code takes more than %d MiB of memory", l.Memory>>20)
}
