package worker

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
)

const (
	startLimit = time.Minute // for a process to say that it is ready; engines are compiled the first time
	maxLoads   = 1024        // of one worker, at once
)

// process is a worker as the pool sees it. One goroutine runs it and reads its frames; its calls are run by their callers.
type process struct {
	pool   *Pool
	tenant agent.App
	made   time.Time
	pid    atomic.Int64
	after  time.Time // not to be started before
	link   *link     // its connection comes with the process
	ready  chan struct{}
	ended  chan struct{} // the process is gone and reaped
	idle   *time.Timer

	users int       // calls under way; guarded by Pool.mu
	used  time.Time // guarded by Pool.mu
	rank  rank      // guarded by Pool.mu

	mu      sync.Mutex
	flights map[uint64]*flight
	weight  int // of the app, as the last call said
	next    uint64
	loads   int
	asked   int            // for code, in all
	told    int            // of loadings, in all
	work    sync.WaitGroup // loads
}

func newProcess(p *Pool, tenant agent.App, after time.Time) *process {
	w := &process{
		pool: p, tenant: tenant, made: time.Now(), after: after, link: newLink(&pending{}), ready: make(chan struct{}), ended: make(chan struct{}),
		flights: map[uint64]*flight{},
	}
	w.idle = time.AfterFunc(p.opts.Idle, func() { p.retire(w) })
	w.idle.Stop()
	return w
}

// run starts the process, and returns when it has ended.
func (w *process) run() {
	defer close(w.ended)
	p := w.pool
	defer context.AfterFunc(p.ctx, func() { w.link.fail(errClosing) })()
	err := w.pause()
	if err == nil {
		err = w.live()
	}
	w.link.fail(err)
	p.mu.Lock()
	p.forget(w)
	p.mu.Unlock()
	w.work.Wait()
	if err := w.link.reason(); !errors.Is(err, errRetired) && !errors.Is(err, errClosing) {
		p.log.Error("a worker process ended", "app", w.tenant, "error", err)
	}
}

var errClosing = errors.New("the host is closing")

// pause waits until the process may start.
func (w *process) pause() error {
	wait := time.Until(w.after)
	if wait <= 0 {
		return nil
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-w.link.dead:
		return w.link.reason()
	}
}

// live starts the process and reads what it says, to its end.
func (w *process) live() error {
	c, err := w.pool.launch()
	if err != nil {
		return err
	}
	if !w.link.connect(c.conn) {
		c.end()
		return w.link.reason()
	}
	w.pid.Store(int64(c.pid()))
	var writer sync.WaitGroup
	writer.Go(w.link.write)
	late := time.AfterFunc(startLimit, func() { w.link.fail(errors.New("the worker process did not become ready")) })
	defer late.Stop()
	if err := w.link.post(frameHello, 0, w.pool.hello(roleWorker)); err != nil {
		w.link.fail(err)
	}
	isReady := false
	err = w.link.read(func(f frame) error {
		if isReady {
			return w.handle(f)
		}
		if err := w.pool.readReady(f); err != nil {
			return err
		}
		isReady = true
		late.Stop()
		close(w.ready)
		return nil
	})
	writer.Wait()
	state := c.end()
	if errors.Is(err, io.EOF) {
		err = errors.New(state.String())
	}
	return err
}

// readReady reads the first frame of a process.
func (p *Pool) readReady(f frame) error {
	var r ready
	if f.kind != frameReady || json.Unmarshal(f.body, &r) != nil {
		return errNonsense
	}
	if r.Error != "" {
		return errors.New(r.Error)
	}
	for _, n := range r.Notes {
		p.log.Warn("a worker process is confined less than it could be", "note", n)
	}
	return nil
}

// gone is the error of calls whose worker ended.
func (w *process) gone() error {
	err := w.link.reason()
	if errors.Is(err, errHungry) {
		return &agent.Error{
			Kind: agent.Unavailable, Limit: agent.LimitMemory, Msg: "the app's worker process was ended: it used too much memory",
			Hint: "let fewer calls run at once, or ones that need less memory", Err: err,
		}
	}
	return &agent.Error{Kind: agent.Unavailable, Msg: "the worker process ended", Hint: "try again", Err: err}
}

// handle takes a frame of a worker that is ready. It must not wait. An error ends the worker.
func (w *process) handle(f frame) error {
	switch f.kind {
	case frameResult, frameLine, frameAsk, frameDrop:
		w.mu.Lock()
		fl := w.flights[f.id]
		w.mu.Unlock()
		if fl == nil {
			return nil // the call was given up
		}
		return fl.take(f)
	case frameLoaded:
		m, err := decodeLoaded(f.body)
		if err != nil {
			return err
		}
		return w.loaded(m)
	case frameLoad:
		d, err := decodeLoad(f.body)
		if err != nil {
			return err
		}
		return w.load(f.id, d)
	}
	return errNonsense
}

// loaded passes on what a loading has cost. A worker tells of about as many as it asked for code.
func (w *process) loaded(m *loadedMessage) error {
	w.mu.Lock()
	w.told++
	over := w.told > 2*w.asked+maxLoads
	w.mu.Unlock()
	if over || m.agent != "" && agent.CheckName("agent", m.agent) != nil {
		return errNonsense
	}
	if tell := w.pool.opts.Host.Loaded; tell != nil {
		tell(host.Loaded{Who: host.Who{App: w.tenant, Agent: m.agent}, Usage: m.usage, Err: errorOf(m.err)})
	}
	return nil
}

// load answers a worker that wants code: only that of calls it was given.
func (w *process) load(id uint64, d agent.Digest) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	asked := false
	for _, fl := range w.flights {
		asked = asked || fl.plugin == d
	}
	weight := w.weight
	w.asked++
	if w.loads++; w.loads > maxLoads {
		return errNonsense
	}
	w.work.Go(func() {
		var m sourceMessage
		err := agent.Errorf(agent.NotFound, "no code with digest %s", d)
		ctx, stop := w.link.context()
		defer stop()
		if asked {
			m.source, err = w.pool.source(ctx, host.Who{App: w.tenant, Weight: weight}, d)
		}
		m.err = agent.AsError(err)
		if m.err != nil {
			m.source = agent.Source{}
		}
		w.mu.Lock()
		w.loads--
		w.mu.Unlock()
		if err := w.link.send(ctx, frameSource, id, m.encode); err != nil {
			m = sourceMessage{err: agent.AsError(err)}
			_ = w.link.post(frameSource, id, m.encode)
		}
	})
	return nil
}
