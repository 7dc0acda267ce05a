package store

import (
	"bytes"
	"context"
	"math"
	"time"

	"github.com/skep-dev/skep/store/instance"
)

// alarmFields is the record of an alarm; its data is body 0.
type alarmFields struct {
	At  int64 `json:"at"` // Unix milliseconds
	Gen int64 `json:"gen"`
}

func parseAlarm(k key, payload []byte, name string) (a instance.Alarm, err error) {
	var f alarmFields
	r, err := parse(k, payload, &f)
	if err == nil && len(r.bodies) != 1 {
		err = corrupt(k, "%v", errShort)
	}
	if err != nil {
		return a, err
	}
	return instance.Alarm{Name: name, At: time.UnixMilli(f.At).UTC(), Gen: f.Gen, Data: r.bodies[0].here}, nil
}

func findAlarm(g getter, id instance.ID, name string) (a instance.Alarm, found bool, err error) {
	k := alarmKey(id, name)
	b, found, err := g.get(k)
	if err != nil || !found {
		return a, false, err
	}
	a, err = parseAlarm(k, b, name)
	return a, err == nil, err
}

func (c *turn) alarms(t *tx, h *instHead) error {
	for _, e := range c.b.Alarms {
		was, found, err := findAlarm(t, c.id, e.Name)
		switch {
		case err != nil:
			return err
		case e.Clear && (!found || e.Gen != 0 && e.Gen != was.Gen):
			continue
		}
		if found {
			t.del(dueKey(was.At, c.id, e.Name))
			h.Alarms--
		}
		if e.Clear {
			t.del(alarmKey(c.id, e.Name))
			continue
		}
		at := instance.When(e.At)
		h.Alarms++
		t.put(dueKey(at, c.id, e.Name), nil)
		if err := t.save(alarmKey(c.id, e.Name), 0, alarmFields{at.UnixMilli(), h.Head + 1}, body{here: e.Data}); err != nil {
			return err
		}
		if err := t.lowerDue(at.UnixMilli()); err != nil {
			return err
		}
	}
	return nil
}

// lowerDue keeps the mark at or below every alarm.
func (t *tx) lowerDue(ms int64) error {
	var low int64
	found, err := getNumbers(t, keyInstDue, &low)
	if err == nil && (!found || ms < low) {
		t.put(keyInstDue, encodeNumbers(ms))
	}
	return err
}

// lag is by how much the mark may be behind the first alarm before a walk moves it up. What was cleared in between costs the
// database time to skip.
const lag = time.Minute

// Due implements instance.Store.
func (in *Instances) Due(ctx context.Context, now time.Time, after instance.Cursor, limit int) (page instance.DuePage, err error) {
	if limit, err = instance.CheckLimit(limit); err != nil {
		return page, err
	}
	var low int64
	first := int64(math.MaxInt64) // time of the first alarm, in a walk from the beginning
	err = in.s.view(ctx, func(snap snapshot) error {
		marked, err := getNumbers(snap, keyInstDue, &low)
		if err != nil {
			return err
		}
		from := max(dueFrom(time.UnixMilli(low)), prefixInstDue+key(after)+"\x00")
		if after == "" {
			from = dueFrom(time.UnixMilli(low))
		}
		bytes := 0
		page.Last = after
		gone := goneCache{snap: snap, known: map[key]bool{}}
		return snap.each(from, prefixEnd(prefixInstDue), false, func(k key, _ []byte) error {
			if !marked {
				return corrupt(keyInstDue, "record is missing")
			}
			at, id, name, err := parseDue(k)
			if err != nil {
				return err
			}
			first = min(first, at.UnixMilli())
			if ended, err := gone.is(id); err != nil || ended {
				return err
			}
			if at.After(now) {
				page.Wake = at
				return errStop
			}
			if len(page.Alarms) == limit || bytes > maxReadBytes {
				page.Next = page.Last
				return errStop
			}
			a, found, err := findAlarm(snap, id, name)
			switch {
			case err != nil:
				return err
			case !found:
				return corrupt(alarmKey(id, name), "record is missing")
			case !a.At.Equal(at):
				return corrupt(k, "the alarm is set for %s", a.At)
			}
			bytes += len(a.Data)
			page.Last = instance.Cursor(k[len(prefixInstDue):])
			page.Alarms = append(page.Alarms, instance.Due{ID: id, Alarm: a})
			return ctx.Err()
		})
	})
	if err != nil {
		return instance.DuePage{}, err
	}
	if first = min(first, now.UnixMilli()); after == "" && first-low > lag.Milliseconds() {
		_ = in.s.raiseDue(ctx, low) // a mark that stays behind costs time only, also on a full disk
	}
	return page, nil
}

// goneCache answers whether instances are being removed.
type goneCache struct {
	snap  snapshot
	known map[key]bool // by the key of a mark
}

func (c goneCache) is(id instance.ID) (bool, error) {
	for _, k := range []key{instAgentGoneKey(id.App, id.Agent), instGone(id)} {
		gone, ok := c.known[k]
		if !ok {
			var err error
			if _, gone, err = c.snap.get(k); err != nil {
				return false, err
			}
			c.known[k] = gone
		}
		if gone {
			return true, nil
		}
	}
	return false, nil
}

// raiseDue moves the mark from low to the first alarm that there is.
func (s *Store) raiseDue(ctx context.Context, low int64) error {
	return s.update(ctx, func(t *tx) error {
		var now int64
		if found, err := getNumbers(t, keyInstDue, &now); err != nil || !found || now != low {
			return err
		}
		first := key("")
		err := t.below.each(dueFrom(time.UnixMilli(low)), prefixEnd(prefixInstDue), false, func(k key, _ []byte) error {
			if t.below.writes[k].gone {
				return nil
			}
			first = k
			return errStop
		})
		if err != nil {
			return err
		}
		for k, w := range t.below.writes { // those set in this very batch
			if !w.gone && bytes.HasPrefix([]byte(k), []byte(prefixInstDue)) && (first == "" || k < first) {
				first = k
			}
		}
		if first == "" { // none at all: the next one sets the mark
			t.del(keyInstDue)
			return nil
		}
		at, _, _, err := parseDue(first)
		if err == nil {
			t.put(keyInstDue, encodeNumbers(at.UnixMilli()))
		}
		return err
	})
}
