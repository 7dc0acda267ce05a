package runtime

import (
	"context"
	"errors"
	"time"

	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/runtime/journal"
)

// outside makes a call of what is outside of the instance. Unless it only reads, all that came before it is durable when it leaves.
func (x *execution) outside(ctx context.Context, door host.Calls, n uint64, a *asked, in []byte) ([]byte, error) {
	x.mu.Lock()
	f := x.flights[n]
	first := f == nil
	if first {
		f = &flight{done: make(chan struct{})}
		x.flights[n], a.ours = f, true
	}
	x.opening++
	x.flying.Add(1)
	x.mu.Unlock()
	x.r.flying.Add(1)
	defer x.r.flying.Done()
	defer x.flying.Done()
	if !first { // it is under way since an earlier life
		select {
		case <-f.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		return x.landed(ctx, n, a, f)
	}
	f.err = x.departs(ctx, n, a)
	if f.err == nil {
		f.out, f.err = x.fly(ctx, door, n, a, in)
		x.track(a.name, in, f)
	}
	if errors.Is(f.err, errGoneAway) { // it only waited, and the process stops
		x.abandoned(n, f)
		return nil, f.err
	}
	return x.landed(ctx, n, a, f)
}

// abandoned forgets a call that the next life makes again.
func (x *execution) abandoned(n uint64, f *flight) {
	x.mu.Lock()
	x.opening--
	delete(x.flights, n)
	x.mu.Unlock()
	close(f.done)
}

// fly makes a call, until the run is to end where it is.
func (x *execution) fly(ctx context.Context, door host.Calls, n uint64, a *asked, in []byte) ([]byte, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	x.mu.Lock()
	a.cancel = cancel
	x.mu.Unlock()
	out, err := door(ctx, a.name, in)
	if err != nil && x.refuses(n, a) {
		err = errTerminated()
	}
	return out, err
}

// departs lets a call leave.
func (x *execution) departs(ctx context.Context, n uint64, a *asked) error {
	if !x.script.Load() {
		x.gate.Lock()
		defer x.gate.Unlock()
		if a.class == journal.Read {
			return x.leaveTurn(ctx)
		}
		x.started(n, a)
		if err := x.commit(ctx); err != nil {
			return err
		}
		x.drop()
		return nil
	}
	if a.class == journal.Read {
		return nil
	}
	// A commit in the middle of a slice would let others have the instance, after a crash, between what it has read and what it writes. So a
	// call leaves when the code has come to rest, which is soon; when it does not, as when it has its result and works on, that is how it is.
	slow := time.NewTimer(slowRest)
	defer slow.Stop()
	for anyway := false; ; anyway = true {
		if done, err := x.letLeave(ctx, n, a, anyway); done {
			return err
		}
		select {
		case <-a.opened: // by the commit that the rest of the code has made
			return nil
		case <-slow.C:
		case <-x.gone:
			select {
			case <-a.opened: // before: the run counts on what comes of it
				return nil
			default:
				return errGoneAway
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// letLeave commits all that came before a call, unless a slice is under way or the code's rest does so already.
func (x *execution) letLeave(ctx context.Context, n uint64, a *asked, anyway bool) (done bool, err error) {
	x.gate.Lock()
	defer x.gate.Unlock()
	if x.turn != nil && !anyway {
		return false, nil
	}
	x.mu.Lock()
	leaves, gone := a.leaves, x.parked != nil
	a.leaves = leaves || !gone
	x.mu.Unlock()
	switch {
	case leaves:
		return false, nil
	case gone:
		return true, errGoneAway
	}
	x.started(n, a)
	err = x.commit(ctx)
	close(a.opened)
	return true, err
}

// slowRest is how long a call that may change the world waits for the rest of the code that has made it.
const slowRest = 500 * time.Millisecond

// started notes that a call leaves.
func (x *execution) started(n uint64, a *asked) {
	if a.class == journal.Once || a.class == journal.Wait {
		x.append(a.entry(journal.Start, n))
	}
}

// landed takes what a call outside came to.
func (x *execution) landed(ctx context.Context, n uint64, a *asked, f *flight) ([]byte, error) {
	x.mu.Lock()
	x.opening--
	if x.flights[n] == f {
		delete(x.flights, n)
	}
	detached := x.detached
	known := x.view.Calls[n] != nil && x.view.Calls[n].Known
	stopped := x.ctx.Err() != nil
	once := a.class == journal.Once && !known && x.script.Load()
	told := f.told
	if f.told = nil; !stopped && !detached && !once {
		x.tellLocked(told)
		told = nil
	}
	if !detached && a.class != journal.Once && x.script.Load() {
		a.returned = true
	}
	x.mu.Unlock()
	select {
	case <-f.done:
	default:
		defer close(f.done)
	}
	x.poke()
	if !stopped {
		x.flushSoon()
	}
	switch {
	case stopped: // nobody knows what became of it, unless it says so
		return nil, context.Cause(x.ctx)
	case detached:
		x.bringHome(n, a, f, told)
		return nil, errGoneAway
	case once:
		e, err := x.result(ctx, x.telling(journal.Done, n, a), f.out, f.err)
		if err != nil {
			x.fail(err)
			return nil, err
		}
		x.gate.Lock()
		if x.isParked() {
			x.gate.Unlock()
			x.bringHome(n, a, f, told)
			return nil, errGoneAway
		}
		x.mu.Lock()
		x.appendLocked(e)
		x.addLocked(told...)
		x.mu.Unlock()
		if x.turn == nil {
			err = x.commit(x.ctx)
		} else { // in the middle of a slice, whose end commits it
			x.mu.Lock()
			x.urgent = true
			x.mu.Unlock()
		}
		x.gate.Unlock()
		if err != nil {
			return nil, err
		}
	}
	out, err := x.handed(ctx, n, a, f.out, f.err)
	if errors.Is(err, errGoneAway) && x.script.Load() { // it was suspended meanwhile
		x.bringHome(n, a, f, nil)
		return nil, err
	}
	if a.class == journal.Once && !x.script.Load() {
		x.gate.Lock()
		failed := x.commit(x.ctx)
		x.gate.Unlock()
		if failed != nil {
			return nil, failed
		}
	}
	return out, err
}

func (x *execution) isParked() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.parked != nil
}
