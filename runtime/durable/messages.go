package durable

import (
	"context"
	"errors"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/instance"
)

const (
	outPage = 256
	outWalk = 5 * time.Second // how often all that waits is walked again, for what failed
)

type pair struct{ from, to instance.ID }

// deliverAll brings messages to their receivers: those of one pair in order, each until the commit of its receiver has marked it. Then
// the sender's next turn lets go of it. A crash in between brings it again, and the mark tells.
func (k *Keeper) deliverAll(ctx context.Context) {
	var (
		crew = newCrew(k.opts.Workers, func() { poke(k.sent) })
		busy = newBusy[pair]()
	)
	defer crew.wait()
	for ctx.Err() == nil {
		began := time.Now()
		busy.prune()
		full := map[agent.App]bool{}
		for after, more := instance.Cursor(""), true; more && ctx.Err() == nil; {
			page, next, err := k.store.Outgoing(ctx, after, outPage)
			if err != nil {
				if ctx.Err() == nil {
					k.opts.Log.ErrorContext(ctx, "messages cannot be read and are read again", "error", err)
				}
				break
			}
			for _, list := range byPair(page) {
				p := pair{list[0].From, list[0].To}
				if !busy.begin(p) {
					continue
				}
				if !list[0].Oldest {
					busy.end(p)
					if !full[p.from.App] { // those before it were under way when this page was read, and have arrived
						poke(k.sent)
					}
					continue
				}
				bytes := 0
				for _, m := range list {
					bytes += len(m.Data)
				}
				given := crew.give(p.from.App, bytes, func() {
					if err := k.deliver(ctx, list); err != nil && ctx.Err() == nil {
						k.opts.Log.WarnContext(ctx, "a message was not delivered and will be later", "from", p.from.Key, "to", p.to.Key, "error", err)
						busy.fail(p)
						return
					}
					if busy.end(p) {
						poke(k.sent) // more have come for the pair meanwhile
					}
				})
				if !given {
					busy.end(p)
					full[p.from.App] = true
				}
			}
			after, more = next, next != ""
		}
		if took := time.Since(began); took > longWalk {
			rest(ctx, took)
		}
		k.sleep(ctx, outWalk, k.sent)
	}
}

// byPair sorts a page into messages of one pair each, in their order.
func byPair(page []instance.Message) [][]instance.Message {
	return grouped(page, func(m instance.Message) pair { return pair{m.From, m.To} })
}

// deliver brings messages of one pair, the oldest of it first, and has the sender let go of those that were received.
func (k *Keeper) deliver(ctx context.Context, list []instance.Message) error {
	var got []instance.Mark
	var failed error
	for i, m := range list {
		m.Oldest = i == 0
		if failed = k.receive(ctx, m); failed != nil {
			break
		}
		got = append(got, instance.Mark{Peer: m.To, Seq: m.Seq})
	}
	if len(got) > 0 {
		t, err := k.Enter(ctx, list[0].From, Entry{Exists: true})
		if err != nil {
			return errors.Join(failed, err)
		}
		t.mu.Lock()
		t.batch.Sent = append(t.batch.Sent, got...)
		t.mu.Unlock()
		switch err := t.Leave(ctx); {
		case errors.Is(err, instance.ErrOrder):
			return failed // the list was read before the sender let go of the first of them
		case err != nil:
			return errors.Join(failed, err)
		}
		k.stats.messages.Add(int64(len(got)))
	}
	if !errors.Is(failed, instance.ErrGone) {
		return failed
	}
	return k.refuse(ctx, list[len(got)], failed)
}

// receive brings one message. It returns nil also when it took effect before.
func (k *Keeper) receive(ctx context.Context, m instance.Message) error {
	t, err := k.Enter(ctx, m.To, Entry{})
	if err != nil {
		return err
	}
	defer t.Abandon()
	last, err := k.store.Received(ctx, m.To, m.From)
	if err != nil {
		return err
	}
	mark := instance.Mark{Peer: m.From, Seq: m.Seq, Oldest: m.Oldest}
	if err := mark.Follow(last); errors.Is(err, instance.ErrSeen) {
		return nil
	} else if err != nil {
		return err
	}
	if err := k.opts.Receive(ctx, t, m); err != nil {
		return err
	}
	t.mu.Lock()
	t.batch.Inbox = append(t.batch.Inbox, mark)
	t.mu.Unlock()
	err = t.Leave(ctx)
	if errors.Is(err, instance.ErrSeen) {
		return nil
	}
	return err
}

// refuse tells the sender of a message whose receiver is gone, and lets go of it.
func (k *Keeper) refuse(ctx context.Context, m instance.Message, why error) error {
	t, err := k.Enter(ctx, m.From, Entry{Exists: true})
	if err != nil {
		return err
	}
	defer t.Abandon()
	if k.opts.Refused != nil {
		if err := k.opts.Refused(ctx, t, m, why); err != nil {
			return err
		}
	}
	t.mu.Lock()
	t.batch.Sent = append(t.batch.Sent, instance.Mark{Peer: m.To, Seq: m.Seq})
	t.mu.Unlock()
	return t.Leave(ctx)
}
