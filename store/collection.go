package store

import (
	"encoding/binary"

	"github.com/skep-dev/skep/agent"
)

// head is what is known of a collection as a whole.
type head struct {
	last int64 // newest ordinal; ordinals are gapless from 1
	live int64 // records that were not deleted
}

func readHead(g getter, sp space, app agent.App) (head, error) {
	k := headKey(sp, app)
	b, found, err := g.get(k)
	if err != nil {
		return head{}, err
	}
	if !found {
		// An empty collection has no head. One that lost its head still has its first entry.
		if _, found, err = g.get(ordKey(sp, app, 1)); err == nil && found {
			err = corrupt(k, "record is missing")
		}
		return head{}, err
	}
	return parseHead(k, b)
}

func parseHead(k key, b []byte) (head, error) {
	if len(b) != 16 {
		return head{}, corrupt(k, "%v", errShort)
	}
	return head{int64(binary.BigEndian.Uint64(b)), int64(binary.BigEndian.Uint64(b[8:]))}, nil
}

func (t *tx) putHead(sp space, app agent.App, h head) {
	b := binary.BigEndian.AppendUint64(nil, uint64(h.last))
	t.put(headKey(sp, app), binary.BigEndian.AppendUint64(b, uint64(h.live)))
}

// insert gives the record id the next ordinal of its collection. The caller writes the record.
func (t *tx) insert(sp space, app agent.App, id string) (ord int64, err error) {
	h, err := readHead(t, sp, app)
	if err != nil {
		return 0, err
	}
	h.last++
	h.live++
	t.putHead(sp, app, h)
	t.put(ordKey(sp, app, h.last), []byte(id))
	return h.last, nil
}

// remove deletes a record and leaves its ordinal behind, empty.
func (t *tx) remove(sp space, app agent.App, id string, ord int64) error {
	h, err := readHead(t, sp, app)
	if err != nil {
		return err
	}
	if h.live < 1 {
		return corrupt(headKey(sp, app), "it counts no records, but %s is there", id)
	}
	h.live--
	t.putHead(sp, app, h)
	t.put(ordKey(sp, app, ord), nil)
	t.del(recKey(sp, app, id))
	return nil
}

// idAt returns the id of the record with that ordinal, or "" when it was deleted.
func idAt(g getter, sp space, app agent.App, ord int64) (string, error) {
	k := ordKey(sp, app, ord)
	b, found, err := g.get(k)
	if err == nil && !found {
		err = corrupt(k, "record is missing")
	}
	return string(b), err
}

// nearby is how many ordinals on either side absent looks at: more than there are creations under way at once.
const nearby = 300

// absent is asked before a record is said not to be there. It returns an error when an ordinal names the record, which is
// then lost. Sessions and runs are named by ULIDs, which the ordinals follow but for creations at the same moment, so it
// looks where the id would be; of the others it looks at the newest.
func absent(g getter, sp space, app agent.App, id string) error {
	h, err := readHead(g, sp, app)
	if err != nil {
		return err
	}
	from, to := h.last-nearby, h.last
	if sp == sessions || sp == runs {
		low, high := int64(1), h.last+1 // the least ordinal whose id is not below id is in [low, high]
		for low < high {
			mid := (low + high) / 2
			at, err := idAt(g, sp, app, mid)
			if err != nil {
				return err
			}
			if at < id {
				low = mid + 1
			} else {
				high = mid
			}
		}
		from, to = low-nearby, min(low+nearby, h.last)
	}
	for ord := max(from, 1); ord <= to; ord++ {
		at, err := idAt(g, sp, app, ord)
		if err != nil {
			return err
		}
		if at == id {
			return corrupt(recKey(sp, app, id), "record is missing, but %s names it", ordKey(sp, app, ord))
		}
	}
	return nil
}

// find reads the record id into v. It is a NotFound error, which calls it what, when it is not there.
func find(g getter, sp space, app agent.App, id, what string, v any) (row, error) {
	if !isPart(string(app), id) {
		return row{}, notFound(what, id)
	}
	r, found, err := lookup(g, recKey(sp, app, id), v)
	if err != nil || found {
		return r, err
	}
	if err := absent(g, sp, app, id); err != nil {
		return row{}, err
	}
	return row{}, notFound(what, id)
}

func notFound(what, id string) error {
	if len(id) > 160 {
		id = id[:160] + "..."
	}
	return agent.Errorf(agent.NotFound, "there is no %s %q", what, id)
}
