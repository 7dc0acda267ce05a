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

// takeTurn waits in the instance's line, for a turn of by unless that is zero.
func (k *Keeper) takeTurn(ctx context.Context, id, by instance.ID) (*owned, error) {
	if err := id.Check(); err != nil {
		return nil, err
	}
	k.mu.Lock()
	if by != (instance.ID{}) {
		if k.leadsTo(id, by, 0) {
			k.mu.Unlock()
			return nil, &agent.Error{
				Kind: agent.Conflict, Msg: "instance \"" + id.Key + "\" waits for the turn that this call is made in",
				Hint: "send it a message instead, which is delivered when its turn has ended",
			}
		}
		k.wait(by, id, 1)
	}
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
		k.wait(by, id, -1)
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
		k.wait(by, id, -1)
	}
	k.mu.Unlock()
	if at < 0 { // the turn was given at the same time
		k.release(o, by)
	}
	return nil, context.Cause(ctx)
}

// Await says that a turn of by, unless that is zero, waits for work of id also while that work has no turn of its own, until done is called.
func (k *Keeper) Await(by, id instance.ID) (done func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.wait(by, id, 1)
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.wait(by, id, -1)
	}
}

// wait counts turns of one instance that wait for turns of another. The caller holds mu.
func (k *Keeper) wait(by, id instance.ID, n int) {
	if by == (instance.ID{}) {
		return
	}
	of := k.waits[by]
	if of == nil {
		of = map[instance.ID]int{}
		k.waits[by] = of
	}
	if of[id] += n; of[id] == 0 {
		delete(of, id)
	}
	if len(of) == 0 {
		delete(k.waits, by)
	}
}

// maxChain is how far chains of instances that wait for each other are followed; calls do not go deeper.
const maxChain = 64

// leadsTo reports whether from is to, or waits for it through others.
func (k *Keeper) leadsTo(from, to instance.ID, depth int) bool {
	if from == to || depth > maxChain {
		return true
	}
	for next := range k.waits[from] {
		if k.leadsTo(next, to, depth+1) {
			return true
		}
	}
	return false
}

// release gives the turn to who waits longest.
func (k *Keeper) release(o *owned, by instance.ID) {
	var lost any
	defer func() { closeMemo(lost) }()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.wait(by, o.id, -1)
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
		lost = o.memo
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
