// Package durable keeps instances: who may write, one turn after the other; what a turn changes until it is committed; alarms
// that wake instances, and messages between them. It runs no code: what happens in a turn is its caller's business, so the
// package is tested and simulated without cells.
package durable

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skep-dev/skep/store/instance"
)

// Options of a Keeper. Zero fields mean the default.
type Options struct {
	Now     func() time.Time
	Log     *slog.Logger
	Waiting int           // turns that may wait for one instance; 256
	Idle    time.Duration // after which an instance that nobody uses is forgotten; 30 s
	Workers int           // alarms, and messages, that are dealt with at once, shared by the apps that have some; 64

	// Committed is told of each commit before anybody else learns of it, in the order of one instance's commits.
	Committed func(id instance.ID, b *instance.Batch, r instance.Result)

	// Alarm does what an alarm is for, in turns that it enters itself, and clears or moves the alarm in one of them. After an error
	// it is called again, later.
	Alarm func(ctx context.Context, d instance.Due) error

	// Receive does what a message is for, in the turn of its receiver, whose commit marks it as received. After an error the turn is
	// undone and the message comes again, later.
	Receive func(ctx context.Context, t *Turn, m instance.Message) error

	// Refused is told, in a turn of its sender, of a message whose receiver is gone. The message leaves with that turn.
	Refused func(ctx context.Context, t *Turn, m instance.Message, why error) error
}

// Keeper owns instances. It is safe for concurrent use.
type Keeper struct {
	store instance.Store
	opts  Options

	alarmSet chan struct{} // has one when an alarm may be earlier than those the loop knows
	sent     chan struct{} // has one when messages wait
	early    earliest
	agenda   atomic.Pointer[agenda] // while alarms are watched
	stats    counters

	hasten sync.Once
	hasty  chan struct{} // closed by Hasten

	mu    sync.Mutex
	owned map[instance.ID]*owned
	waits map[instance.ID]map[instance.ID]int // how many turns of the one wait for turns of the other
}

// New returns a Keeper over a store. It starts nothing; see Run.
func New(st instance.Store, o *Options) *Keeper {
	k := &Keeper{hasty: make(chan struct{}), store: st, owned: map[instance.ID]*owned{}, waits: map[instance.ID]map[instance.ID]int{}, alarmSet: make(chan struct{}, 1), sent: make(chan struct{}, 1)}
	if o != nil {
		k.opts = *o
	}
	if k.opts.Now == nil {
		k.opts.Now = time.Now
	}
	if k.opts.Log == nil {
		k.opts.Log = slog.New(slog.DiscardHandler)
	}
	k.opts.Waiting = cmp.Or(k.opts.Waiting, 256)
	k.opts.Idle = cmp.Or(k.opts.Idle, 30*time.Second)
	k.opts.Workers = cmp.Or(k.opts.Workers, 64)
	return k
}

// Run deals with alarms and messages, and forgets instances that nobody uses, until ctx ends. What it has begun has ended when
// it returns.
func (k *Keeper) Run(ctx context.Context) {
	var loops sync.WaitGroup
	if k.opts.Alarm != nil {
		loops.Go(func() { k.watchAlarms(ctx) })
	}
	if k.opts.Receive != nil {
		loops.Go(func() { k.deliverAll(ctx) })
	}
	loops.Go(func() { k.forgetIdle(ctx) })
	loops.Wait()
}

// Hasten is called when the process is to stop: a commit whose outcome is not known is asked about once more, for two seconds at most,
// and then given up. It may be called twice. What became of such a commit is found by the next owner.
func (k *Keeper) Hasten() { k.hasten.Do(func() { close(k.hasty) }) }

// Store returns what the instances are kept in, for reads that need no turn.
func (k *Keeper) Store() instance.Reader { return k.store }

// Entry says how a turn is entered.
type Entry struct {
	Parent instance.ID // of an instance that is made by this; see instance.Owner.Acquire
	Exists bool        // an instance that is not there is a NotFound error, and is not made
}

// Enter waits until the caller has the instance alone, and makes the instance when it is not there. Turns come in the order of
// their calls. The turn must be left or abandoned. When too many wait already the error is Exhausted; when the instance waits,
// maybe through others, for the turn that is Holding ctx, it is a Conflict.
func (k *Keeper) Enter(ctx context.Context, id instance.ID, e Entry) (*Turn, error) {
	by := Holder(ctx)
	o, err := k.takeTurn(ctx, id, by)
	if err != nil {
		return nil, err
	}
	t := &Turn{k: k, o: o, by: by, began: k.opts.Now()}
	if err := k.own(ctx, o, e); err != nil {
		k.release(o, by)
		return nil, err
	}
	t.size = o.info.State
	return t, nil
}

// own makes sure that o holds the newest fence.
func (k *Keeper) own(ctx context.Context, o *owned, e Entry) error {
	switch {
	case o.have && e.Parent != (instance.ID{}) && e.Parent != o.info.Parent:
		return instance.NotChild(o.id, e.Parent)
	case o.have:
		return nil
	}
	closeMemo(o.memo) // of an owner that lost the instance: another may have changed it meanwhile
	o.memo = nil
	if e.Exists {
		was, err := k.store.Info(ctx, o.id)
		if err != nil {
			return err
		}
		e.Parent = was.Parent // so that a child which another owner deletes at this moment is not made anew as nobody's
	}
	info, err := k.store.Acquire(ctx, o.id, e.Parent)
	if err != nil {
		if e.Exists {
			if _, gone := k.store.Info(ctx, o.id); isGone(gone) {
				return gone
			}
		}
		return err
	}
	k.stats.acquired.Add(1)
	o.info, o.have = info, true
	return nil
}

type holderKey struct{}

// Holding returns a context for what a turn of id waits for.
func Holding(ctx context.Context, id instance.ID) context.Context {
	return context.WithValue(ctx, holderKey{}, id)
}

// Holder returns whose turn waits for what ctx is for; zero when none does.
func Holder(ctx context.Context) instance.ID {
	id, _ := ctx.Value(holderKey{}).(instance.ID)
	return id
}
