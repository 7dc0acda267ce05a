package worker

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
)

const (
	maxAsks   = 1024             // host calls of one call, at once
	maxQueued = 8192             // frames of a call that its caller has not yet looked at
	patience  = 10 * time.Second // past its limit or its cancelling, after which a call's worker is killed
)

// flight is a call under way in a worker. The reader of frames queues what concerns it; the caller's goroutine does the
// rest, so console output, host calls and the result are taken in the order in which the worker sent them.
type flight struct {
	plugin agent.Digest
	weight int
	calls  host.Calls
	now    func() time.Time
	random io.Reader
	most   int64 // bytes that may be queued
	wake   chan struct{}

	waiting *host.Waiting

	mu    sync.Mutex
	queue []frame
	bytes int64

	asks    sync.WaitGroup
	asksMu  sync.Mutex
	pending map[uint64]context.CancelFunc
}

func newFlight(c *host.Call) *flight {
	return &flight{
		plugin: c.Plugin, weight: c.Weight, calls: c.Calls, wake: make(chan struct{}, 1),
		now: c.Now, random: c.Random, waiting: c.Waiting,
		most: or(c.Limits.Memory, agent.DefaultLimits().Memory) + maxFrame,
	}
}

// take queues a frame.
func (fl *flight) take(f frame) error {
	fl.mu.Lock()
	fl.queue = append(fl.queue, f)
	fl.bytes += int64(len(f.body))
	over := len(fl.queue) > maxQueued || fl.bytes > fl.most
	fl.mu.Unlock()
	if over {
		return errNonsense
	}
	select {
	case fl.wake <- struct{}{}:
	default:
	}
	return nil
}

func (fl *flight) queued() []frame {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	q := fl.queue
	fl.queue, fl.bytes = nil, 0
	return q
}

// do sends a call and sees to it until its result is there or the worker is gone. The result is never nil.
func (w *process) do(ctx context.Context, k kind, m *callMessage) (*resultMessage, error) {
	m.calls, m.waiting = m.call.Calls != nil, waitingOf(&m.call)
	fl := newFlight(&m.call)
	id := w.add(fl)
	defer w.remove(id)
	if err := w.link.send(ctx, k, id, func(e *encoder) { m.encode(e, k) }); err != nil {
		return &resultMessage{}, w.unsent(ctx, err)
	}
	asking, stop := context.WithCancelCause(context.WithoutCancel(ctx)) // ended after the worker is told
	suspended := false
	defer func() {
		if suspended { // what was asked of its host goes on without it, for as long as its caller
			context.AfterFunc(ctx, func() { stop(context.Cause(ctx)) })
			return
		}
		stop(nil)
		fl.asks.Wait()
	}()
	limit := or(m.call.Limits.Wall, agent.DefaultLimits().Wall) + 2*w.pool.opts.Prepare.Wall + patience
	late := time.NewTimer(limit)
	defer late.Stop()
	leaving, overdue := ctx.Done(), false
	var nudge <-chan struct{}
	if fl.waiting != nil {
		nudge = fl.waiting.Nudge
	}
	for {
		select {
		case <-fl.wake:
			for _, f := range fl.queued() {
				res, err := w.step(asking, id, fl, f)
				if err != nil {
					w.link.fail(err)
					return &resultMessage{}, w.gone()
				}
				if res != nil {
					suspended = res.suspended != nil
					return res, resultError(ctx, res.err, overdue)
				}
			}
		case _, open := <-nudge:
			if !open {
				nudge = nil
			}
			_ = w.link.post(frameNudge, id, nil)
		case <-leaving:
			leaving = nil
			_ = w.link.post(frameCancel, id, nil)
			stop(context.Cause(ctx))
			late.Reset(patience)
		case <-late.C:
			if !overdue && leaving != nil {
				overdue = true
				_ = w.link.post(frameCancel, id, nil)
				late.Reset(patience)
				continue
			}
			w.link.fail(agent.Errorf(agent.Unavailable, "a call did not end when it had to"))
			return &resultMessage{}, w.gone()
		case <-w.link.dead:
			return &resultMessage{}, w.gone()
		}
	}
}

// unsent says why a call was not sent.
func (w *process) unsent(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return agent.Wrap(agent.Cancelled, err, "cancelled before the worker process had the call")
	}
	if agent.KindOf(err) == agent.Exhausted {
		return err
	}
	return w.gone()
}

// resultError is a worker's error with the cause for which the call was stopped from here.
func resultError(ctx context.Context, e *agent.Error, overdue bool) error {
	switch {
	case e == nil:
		return nil
	case e.Kind == agent.Cancelled && ctx.Err() != nil:
		e.Err = context.Cause(ctx)
	case e.Kind == agent.Cancelled && overdue:
		return agent.Exceeded(agent.LimitWall, "the call waited for its cell past its limit")
	}
	return e
}

func (w *process) add(fl *flight) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next++
	w.flights[w.next] = fl
	w.weight = fl.weight
	return w.next
}

func (w *process) remove(id uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.flights, id)
}

// step does what one frame of a call asks. It returns the result when the frame is one. An error means that the worker
// does not keep to the protocol.
func (w *process) step(ctx context.Context, id uint64, fl *flight, f frame) (*resultMessage, error) {
	switch f.kind {
	case frameResult:
		res, err := decodeResult(f.body)
		if err == nil && res.suspended != nil && (fl.waiting == nil || fl.waiting.Rest == nil) {
			return nil, errNonsense
		}
		return res, err
	case frameDrop:
		ask, err := decodeDrop(f.body)
		fl.drop(ask)
		return nil, err
	}
	m, err := decodeAsk(f.body)
	if err != nil {
		return nil, err
	}
	if f.kind == frameLine {
		if fl.calls == nil {
			return nil, errNonsense
		}
		_, _ = fl.calls(ctx, m.name, m.in)
		return nil, nil
	}
	return nil, w.ask(ctx, fl, m)
}

// ask has a question answered.
func (w *process) ask(ctx context.Context, fl *flight, m *askMessage) error {
	answer := fl.answerer(m)
	if answer == nil {
		return errNonsense
	}
	ctx, cancel := context.WithCancel(ctx)
	fl.asksMu.Lock()
	if fl.pending == nil {
		fl.pending = map[uint64]context.CancelFunc{}
	}
	_, twice := fl.pending[m.ask]
	over := twice || len(fl.pending) >= maxAsks
	if !over {
		fl.pending[m.ask] = cancel
	}
	fl.asksMu.Unlock()
	if over {
		cancel()
		return errNonsense
	}
	fl.asks.Go(func() {
		defer cancel()
		var a answerMessage
		var err error
		a.out, err = answer(ctx)
		a.err = agent.AsError(err)
		fl.asksMu.Lock()
		delete(fl.pending, m.ask)
		fl.asksMu.Unlock()
		if err := w.link.send(ctx, frameAnswer, m.ask, a.encode); err != nil {
			a = answerMessage{err: agent.AsError(err)}
			_ = w.link.post(frameAnswer, m.ask, a.encode)
		}
	})
	return nil
}

// drop ends a host call whose answer is not wanted any more.
func (fl *flight) drop(ask uint64) {
	fl.asksMu.Lock()
	defer fl.asksMu.Unlock()
	if cancel := fl.pending[ask]; cancel != nil {
		cancel()
	}
}
