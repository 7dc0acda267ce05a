package store

import (
	"context"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/instance"
)

// pair counts the messages from one instance to another: those up to got were received.
type pair struct{ last, got int64 }

func (t *tx) pair(from, to instance.ID, birth int64) (p pair, found bool, err error) {
	p = pair{birth << 32, birth << 32} // numbers rise also from one life of the sender to the next
	found, err = getNumbers(t, pairKey(from, to), &p.last, &p.got)
	return p, found, err
}

func (t *tx) putPair(from, to instance.ID, p pair) {
	t.put(pairKey(from, to), encodeNumbers(p.last, p.got))
}

// outMark says that no message waits below low, and which number the next one gets among all.
type outMark struct{ low, next int64 }

// messageFields is the record of a message; its bodies are the keys of the two instances and the data.
type messageFields struct {
	App  agent.App     `json:"app"`
	From agent.AgentID `json:"from"`
	To   agent.AgentID `json:"to"`
	Seq  int64         `json:"seq"`
}

func (c *turn) send(t *tx, h *instHead) error {
	if len(c.b.Outbox) == 0 {
		return nil
	}
	all := outMark{1, 1}
	if _, err := getNumbers(t, keyInstOut, &all.low, &all.next); err != nil {
		return err
	}
	ends := map[instance.ID]int{}
	for _, m := range c.b.Outbox {
		p, found, err := t.pair(c.id, m.To, h.Birth)
		if err != nil {
			return err
		}
		if !found {
			h.Marks++
		}
		p.last++
		f := messageFields{c.id.App, c.id.Agent, m.To.Agent, p.last}
		if err := t.save(outKey(all.next), 0, f, body{here: []byte(c.id.Key)}, body{here: []byte(m.To.Key)}, body{here: m.Data}); err != nil {
			return err
		}
		t.put(messageKey(c.id, m.To, p.last), encodeNumbers(all.next))
		t.putPair(c.id, m.To, p)
		all.next++
		h.Outbox++
		if i, ok := ends[m.To]; ok {
			h.Ends.Outbox[i] = p.last
		} else {
			ends[m.To] = len(h.Ends.Outbox)
			h.Ends.Outbox = append(h.Ends.Outbox, p.last)
		}
	}
	t.put(keyInstOut, encodeNumbers(all.low, all.next))
	return nil
}

func (c *turn) sent(t *tx, h *instHead) error {
	for _, m := range c.b.Sent {
		p, _, err := t.pair(c.id, m.Peer, h.Birth)
		if err != nil {
			return err
		}
		if err := m.Acknowledge(p.got+1, p.last); err != nil {
			return err
		}
		if err := t.delMessage(c.id, m.Peer, m.Seq); err != nil {
			return err
		}
		p.got++
		h.Outbox--
		t.putPair(c.id, m.Peer, p)
	}
	return nil
}

// delMessage removes a message that waits.
func (t *tx) delMessage(from, to instance.ID, seq int64) error {
	var n int64
	k := messageKey(from, to, seq)
	found, err := getNumbers(t, k, &n)
	if err == nil && !found {
		err = corrupt(k, "record is missing")
	}
	if err != nil {
		return err
	}
	t.del(k)
	t.del(outKey(n))
	return nil
}

func (c *turn) receive(t *tx, h *instHead) error {
	for _, m := range c.b.Inbox {
		var last int64
		k := fromKey(c.id, m.Peer)
		found, err := getNumbers(t, k, &last)
		if err != nil {
			return err
		}
		if !found {
			h.Marks++
		}
		if err := m.Follow(last); err != nil {
			return err
		}
		t.put(k, encodeNumbers(m.Seq))
	}
	return nil
}

// Received implements instance.Reader.
func (in *Instances) Received(ctx context.Context, id, from instance.ID) (seq int64, err error) {
	err = in.s.view(ctx, func(snap snapshot) error {
		if _, err := openInst(snap, snap, id); err != nil {
			return err
		}
		_, err := getNumbers(snap, fromKey(id, from), &seq)
		return err
	})
	return seq, err
}

// behind is how many numbers the mark may be behind the first message before a walk moves it up.
const behind = 1000

// Outgoing implements instance.Store. A cursor is the number of a message among all.
func (in *Instances) Outgoing(ctx context.Context, after instance.Cursor, limit int) (out []instance.Message, next instance.Cursor, err error) {
	if limit, err = instance.CheckLimit(limit); err != nil {
		return nil, "", err
	}
	var all outMark
	first := int64(0)
	err = in.s.view(ctx, func(snap snapshot) error {
		marked, err := getNumbers(snap, keyInstOut, &all.low, &all.next)
		if err != nil {
			return err
		}
		from := outKey(all.low)
		if after != "" {
			from = max(from, prefixInstOut+key(after)+"\x00")
		}
		bytes, seen := 0, key("")
		gone := goneCache{snap: snap, known: map[key]bool{}}
		return snap.each(from, prefixEnd(prefixInstOut), false, func(k key, payload []byte) error {
			if !marked {
				return corrupt(keyInstOut, "record is missing")
			}
			if n, ok := k.lastNumber(); first == 0 && ok {
				first = n
			}
			m, err := parseMessage(k, payload)
			if err != nil {
				return err
			}
			if ended, err := gone.is(m.From); err != nil || ended {
				return err
			}
			if len(out) == limit || bytes > maxReadBytes {
				next = instance.Cursor(seen[len(prefixInstOut):])
				return errStop
			}
			var p pair
			found, err := getNumbers(snap, pairKey(m.From, m.To), &p.last, &p.got)
			if err == nil && !found {
				err = corrupt(pairKey(m.From, m.To), "record is missing")
			}
			m.Oldest = m.Seq == p.got+1
			seen, bytes = k, bytes+len(m.Data)
			out = append(out, m)
			if err == nil {
				err = ctx.Err()
			}
			return err
		})
	})
	if err != nil {
		return nil, "", err
	}
	if first == 0 {
		first = all.next
	}
	if after == "" && first-all.low > behind {
		_ = in.s.raiseOut(ctx, first) // as with alarms
	}
	return out, next, nil
}

func parseMessage(k key, payload []byte) (m instance.Message, err error) {
	var f messageFields
	r, err := parse(k, payload, &f)
	if err == nil && len(r.bodies) != 3 {
		err = corrupt(k, "%v", errShort)
	}
	if err != nil {
		return m, err
	}
	return instance.Message{
		From: instance.ID{App: f.App, Agent: f.From, Key: string(r.bodies[0].here)},
		To:   instance.ID{App: f.App, Agent: f.To, Key: string(r.bodies[1].here)},
		Seq:  f.Seq, Data: r.bodies[2].here,
	}, nil
}

// raiseOut moves the mark up to low. Numbers only rise, so nothing comes to wait below it.
func (s *Store) raiseOut(ctx context.Context, low int64) error {
	return s.update(ctx, func(t *tx) error {
		var all outMark
		found, err := getNumbers(t, keyInstOut, &all.low, &all.next)
		if err == nil && found && all.low < low {
			t.put(keyInstOut, encodeNumbers(low, all.next))
		}
		return err
	})
}
