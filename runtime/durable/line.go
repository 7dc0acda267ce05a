package durable

import (
	"context"
	"slices"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/instance"
)

// owned is an instance that turns were entered of lately. What is not about the line belongs to who has the turn.
type owned struct {
	id   instance.ID
	have bool // the fence in info is the newest that this process knows of
	info instance.Info
	memo any // what the callers keep between turns; see Turn.Memo

	// Guarded by Keeper.mu.
	busy bool
	line []chan struct{} // who waits, in order; closed to give the turn
	used time.Time
}

// takeTurn waits in the instance's line.
func (k *Keeper) takeTurn(ctx context.Context, id instance.ID) (*owned, error) {
	if err := id.Check(); err != nil {
		return nil, err
	}
	k.mu.Lock()
	o := k.owned[id]
	if o == nil {
		o = &owned{id: id}
		k.owned[id] = o
	}
	if !o.busy {
		o.busy = true
		k.mu.Unlock()
		return o, nil
	}
	if len(o.line) >= k.opts.Waiting {
		n := len(o.line)
		k.mu.Unlock()
		k.stats.refused.Add(1)
		err := agent.Exceeded(agent.LimitConcurrency, "%d calls wait for instance %q already", n, id.Key)
		e := *agent.AsError(err)
		e.After, e.Hint = time.Second, "call again later, or spread the work over more instances"
		return nil, &e
	}
	ticket := make(chan struct{})
	o.line = append(o.line, ticket)
	k.mu.Unlock()
	select {
	case <-ticket:
		return o, nil
	case <-ctx.Done():
	}
	k.mu.Lock()
	at := slices.Index(o.line, ticket)
	if at >= 0 {
		o.line = slices.Delete(o.line, at, at+1)
	}
	k.mu.Unlock()
	if at < 0 { // the turn was given at the same time
		k.release(o)
	}
	return nil, context.Cause(ctx)
}

// release gives the turn to who waits longest.
func (k *Keeper) release(o *owned) {
	k.mu.Lock()
	defer k.mu.Unlock()
	o.used = k.opts.Now()
	if len(o.line) > 0 {
		next := o.line[0]
		o.line = o.line[1:]
		close(next)
		return
	}
	o.busy, o.line = false, nil
	if !o.have {
		delete(k.owned, o.id)
	}
}

// forgetIdle drops instances that nobody has used for a while, until ctx ends. They are acquired again when somebody does.
func (k *Keeper) forgetIdle(ctx context.Context) {
	tick := time.NewTicker(max(k.opts.Idle/4, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			k.forget(k.opts.Now().Add(-k.opts.Idle))
		}
	}
}

func (k *Keeper) forget(since time.Time) {
	var closing []any
	k.mu.Lock()
	for id, o := range k.owned {
		if !o.busy && o.used.Before(since) {
			delete(k.owned, id)
			closing = append(closing, o.memo)
		}
	}
	k.mu.Unlock()
	for _, memo := range closing {
		closeMemo(memo)
	}
}

func closeMemo(memo any) {
	if c, ok := memo.(interface{ Close() error }); ok {
		_ = c.Close() // it holds nothing that is not in the store
	}
}

// Forget drops what is known of idle instances at once, as time would.
func (k *Keeper) Forget() { k.forget(k.opts.Now().Add(time.Hour)) }
