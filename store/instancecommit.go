package store

import (
	"context"
	"encoding/json"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/instance"
)

// Commit implements instance.Owner.
func (in *Instances) Commit(ctx context.Context, id instance.ID, f instance.Fence, b *instance.Batch) (res instance.Result, err error) {
	c := turn{s: in.s, id: id, b: b}
	if err := c.prepare(); err != nil {
		return res, err
	}
	err = in.s.updateOf(ctx, id.App, func(t *tx) (err error) {
		res, err = c.run(t, f)
		return err
	})
	if err != nil {
		return instance.Result{}, err
	}
	return res, nil
}

// turn is one batch on its way into a transaction.
type turn struct {
	s       *Store
	id      instance.ID
	b       *instance.Batch
	events  []prepared
	journal []prepared
	bodies  []runBodies // of b.Runs

	with map[agent.SessionID]bool // sessions that are known to be with the instance, in this run of the transaction
}

// prepare does what needs no transaction.
func (c *turn) prepare() (err error) {
	if err := c.b.Check(c.id); err != nil {
		return err
	}
	c.events = make([]prepared, len(c.b.Events))
	for i, e := range c.b.Events {
		if c.events[i], err = c.s.prepareOne(e.Event, instance.MaxInline); err != nil {
			return err
		}
	}
	if err := c.prepareRuns(); err != nil {
		return err
	}
	var blobs []agent.Digest
	if s := c.b.Snapshot; s != nil {
		blobs = append(blobs, s.Blobs...)
	}
	for _, e := range c.b.Journal {
		blobs = append(blobs, e.Blobs...)
		fields := []byte("{}")
		if len(e.Blobs) > 0 {
			if fields, err = json.Marshal(e); err != nil {
				return agent.Wrap(agent.Invalid, err, "an entry of a journal cannot be written as JSON")
			}
		}
		c.journal = append(c.journal, prepared{payload: row{fields: fields, bodies: []body{{here: e.Data}}}.encode()})
	}
	for _, d := range blobs {
		if !c.s.blobs.Has(d) {
			return agent.Errorf(agent.Invalid, "blob %s is not stored: put it before the commit that names it", d)
		}
	}
	return nil
}

func (c *turn) run(t *tx, f instance.Fence) (res instance.Result, err error) {
	c.with = nil
	h, err := openInst(t, t.below.snapshot, c.id)
	if err != nil {
		return res, err
	}
	if h.Batch == c.b.ID && !h.Void && h.Epoch == f.Epoch && (h.Head == f.Head || h.Head == f.Head+1) {
		return c.result(h)
	}
	if h.fence() != f {
		return res, instance.Fenced(c.id, f, h.fence())
	}
	h.Batch, h.Void, h.Ends, h.Updated = c.b.ID, false, ends{}, stamp(c.s.now())
	for _, part := range []func(*tx, *instHead) error{c.state, c.runs, c.logs, c.entries, c.alarms, c.send, c.sent, c.receive, c.children} {
		if err := part(t, &h); err != nil {
			return res, err
		}
	}
	h.Head++
	if c.b.Snapshot != nil {
		more, err := h.more(instKey(c.id))
		if err == nil {
			more.Snapshot = *c.b.Snapshot
			err = h.setMore(more)
		}
		if err != nil {
			return res, err
		}
	}
	t.putInst(c.id, h)
	return c.result(h)
}

// result returns what the batch gave, which led to h.
func (c *turn) result(h instHead) (res instance.Result, err error) {
	res.Fence, res.Counts = h.fence(), instance.Counts{LogBytes: h.LogBytes, Alarms: h.Alarms, Outbox: h.Outbox, Children: h.Children}
	ok := [3]bool{}
	res.Events, ok[0] = numbered(logsOf(c.b.Events), h.Ends.Events)
	res.Journal, ok[1] = numbered(runsOf(c.b.Journal), h.Ends.Journal)
	res.Outbox, ok[2] = numbered(receiversOf(c.b.Outbox), h.Ends.Outbox)
	if ok != [3]bool{true, true, true} {
		return instance.Result{}, instance.Reused()
	}
	return res, nil
}

func logsOf(as []instance.Append) []instance.Log {
	out := make([]instance.Log, len(as))
	for i, a := range as {
		out[i] = a.Log
	}
	return out
}

func runsOf(es []instance.Entry) []instance.Log {
	out := make([]instance.Log, len(es))
	for i, e := range es {
		out[i] = instance.Journal(e.Run)
	}
	return out
}

func receiversOf(ms []instance.Send) []instance.ID {
	out := make([]instance.ID, len(ms))
	for i, m := range ms {
		out[i] = m.To
	}
	return out
}

// numbered returns the number of each element of a list that has one numbering for each name, of which ends has the last in
// the order of first naming.
func numbered[K comparable](names []K, ends []int64) ([]int64, bool) {
	if len(names) == 0 {
		return nil, len(ends) == 0
	}
	last, next := map[K]int64{}, 0
	for _, name := range names {
		if _, ok := last[name]; !ok {
			if next == len(ends) {
				return nil, false
			}
			last[name] = ends[next]
			next++
		}
	}
	out := make([]int64, len(names))
	for i := len(names) - 1; i >= 0; i-- {
		out[i] = last[names[i]]
		last[names[i]]--
	}
	return out, next == len(ends)
}

func (c *turn) state(t *tx, h *instHead) error {
	if len(c.b.State) == 0 {
		return nil
	}
	o := instanceState(c.id)
	was, _, err := stateOf(t, t.below.snapshot, o)
	if err != nil {
		return err
	}
	base := was
	base.version = h.Head // so that the next version is the head that this commit leads to
	now, err := t.edit(o, base, c.b.State)
	if err != nil || now == base {
		return err
	}
	if now.size.Keys < 0 || now.size.Bytes < now.size.Keys {
		return corrupt(o.headKey(), "it counts %d keys of %d bytes, which are fewer than there are", was.size.Keys, was.size.Bytes)
	}
	t.put(o.headKey(), now.encode())
	bounds := c.b.Bounds
	if bounds.Bytes == 0 {
		bounds.Bytes = agent.MaxStateBytes
	}
	if bounds.Keys == 0 {
		bounds.Keys = agent.MaxStateKeys
	}
	return bounds.Within(was.size, now.size)
}

func (c *turn) logs(t *tx, h *instHead) (err error) {
	h.Ends.Events, err = c.append(t, h, logsOf(c.b.Events), c.events)
	return err
}

func (c *turn) entries(t *tx, h *instHead) (err error) {
	h.Ends.Journal, err = c.append(t, h, runsOf(c.b.Journal), c.journal)
	return err
}

// append adds ps to the logs that names has for each, and returns where it left each log.
func (c *turn) append(t *tx, h *instHead, names []instance.Log, ps []prepared) (ends []int64, err error) {
	of := map[instance.Log][]prepared{}
	var order []instance.Log
	for i, name := range names {
		if of[name] == nil {
			order = append(order, name)
		}
		of[name] = append(of[name], ps[i])
	}
	for _, name := range order {
		l := instanceLogOf(c.id, name)
		x, err := c.openLog(t, h, name, l)
		if err != nil {
			return nil, err
		}
		if _, err := c.s.append(t, l, x, of[name]); err != nil {
			return nil, err
		}
		if name.Session == "" {
			for _, p := range of[name] {
				h.LogBytes += int64(len(p.payload))
			}
		}
		ends = append(ends, x.last+int64(len(of[name])))
	}
	return ends, nil
}

// openLog returns where a log ends, and makes one of the instance's own that is not there.
func (c *turn) openLog(t *tx, h *instHead, name instance.Log, l Log) (extent, error) {
	if name.Session != "" {
		return c.session(t, name.Session)
	}
	x, found, err := findInstLog(t, t.below.snapshot, l)
	if err == nil && !found {
		h.Logs++
	}
	return x, err
}

// findInstLog returns where an instance's own log ends. below is a snapshot, in which one that lost its head still has events.
func findInstLog(g getter, below snapshot, l Log) (extent, bool, error) {
	x, found, err := findLog(g, l)
	if err != nil || found {
		return x, found, err
	}
	if _, found, err = below.get(l.headKey()); err != nil || found {
		return extent{1, 0}, false, err
	}
	err = below.each(l.eventPrefix(), prefixEnd(l.eventPrefix()), false, func(key, []byte) error {
		return corrupt(l.headKey(), "record is missing")
	})
	return extent{1, 0}, false, err
}

func (c *turn) children(t *tx, h *instHead) error {
	for _, ch := range c.b.Children {
		k := childKey(c.id, ch.ID)
		_, found, err := t.get(k)
		switch {
		case err != nil:
			return err
		case ch.Remove && found:
			t.del(k)
			h.Children--
		case !ch.Remove && !found:
			t.put(k, nil)
			h.Children++
		}
	}
	return nil
}
