package store

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/crc32"

	"github.com/skep-dev/skep/agent"
)

// pageScan is how many entries one page of a filtered list looks at before it ends short.
const pageScan = 5000

// errFull is returned by a load that wants the page to end before its entry.
var errFull = errors.New("page is full")

// list is an index whose keys end in an ordinal and whose values are ids.
type list struct {
	prefix  key
	gapless bool // each ordinal has an entry
	oldest  bool // is walked from the oldest entry
}

// pages walks l from the newest entry, or as it says. load reads the record of an entry and reports whether it belongs in the list. A
// page may be short, even empty; next is the cursor of the page after it, "" at the end.
func pages[T any](s snapshot, l list, p agent.Page, load func(ord int64, id string) (T, bool, error)) (out []T, next string, err error) {
	limit, err := pageLimit(p)
	if err != nil {
		return nil, "", err
	}
	from, to, before := l.prefix, prefixEnd(l.prefix), int64(0) // before is the ordinal last seen, 0 at first
	if p.After != "" {
		if before, err = parseCursor(l.prefix, p.After); err != nil {
			return nil, "", err
		}
		if l.oldest {
			from = l.prefix + number(before+1)
		} else {
			to = l.prefix + number(before)
		}
	}
	out = []T{}
	seen := 0
	err = s.each(from, to, !l.oldest, func(k key, payload []byte) error {
		if len(out) == limit || seen == pageScan {
			next = cursor(l.prefix, before)
			return errStop
		}
		ord, ok := k.lastNumber()
		if !ok {
			return corrupt(k, "key does not end in a number")
		}
		if l.gapless && before > 0 && ord != before-1 {
			return corrupt(l.prefix+number(before-1), "record is missing")
		}
		v, keep, err := load(ord, string(payload))
		if err == errFull {
			next = cursor(l.prefix, before)
			return errStop
		}
		before = ord
		seen++
		if err == nil && keep {
			out = append(out, v)
		}
		return err
	})
	if err == nil && l.gapless && next == "" && before > 1 {
		err = corrupt(l.prefix+number(before-1), "record is missing")
	}
	if err != nil {
		return nil, "", err
	}
	return out, next, nil
}

func pageLimit(p agent.Page) (int, error) {
	switch {
	case p.Limit == 0:
		return agent.DefaultPage, nil
	case p.Limit < 0 || p.Limit > agent.MaxPage:
		return 0, agent.Errorf(agent.Invalid, "limit is %d; it must be between 1 and %d", p.Limit, agent.MaxPage)
	}
	return p.Limit, nil
}

// collectionPages walks a whole collection.
func collectionPages[T any](s snapshot, sp space, app agent.App, p agent.Page, load func(ord int64, id string) (T, bool, error)) ([]T, string, error) {
	l := list{prefix: ordPrefix(sp, app), gapless: true}
	h, err := readHead(s, sp, app)
	if err != nil {
		return nil, "", err
	}
	if h.last > 0 {
		if _, err := idAt(s, sp, app, h.last); err != nil { // the walk itself would not miss the newest
			return nil, "", err
		}
	}
	return pages(s, l, p, func(ord int64, id string) (v T, keep bool, err error) {
		if id == "" {
			return v, false, nil
		}
		return load(ord, id)
	})
}

// A cursor is the ordinal last seen, and a check that it is of this list.
func cursor(prefix key, ord int64) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(ord))
	b = binary.BigEndian.AppendUint32(b, checksum([]byte(prefix), b))
	return base64.RawURLEncoding.EncodeToString(b)
}

func parseCursor(prefix key, s string) (int64, error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) != 8+crc32.Size || binary.BigEndian.Uint32(b[8:]) != checksum([]byte(prefix), b[:8]) {
		return 0, badCursor()
	}
	return int64(binary.BigEndian.Uint64(b)), nil
}

func badCursor() error {
	return &agent.Error{
		Kind: agent.Invalid, Msg: "the cursor is not one of this list",
		Hint: "pass on the cursor of the page before as it is, with the same filter; leave it out for the first page",
	}
}

// indexPages walks one entry of an index that names many records.
func indexPages[T any](s snapshot, ix index, app agent.App, what string, p agent.Page, load func(ord int64, id string) (T, bool, error)) ([]T, string, error) {
	if what != "" && !isPart(what) {
		return []T{}, "", nil
	}
	return pages(s, list{prefix: byPrefix(ix, app, what)}, p, load)
}
