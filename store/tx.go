package store

import (
	"bytes"
	"errors"

	"github.com/skep-dev/skep/store/kv"
)

// getter reads records: the snapshot of a read, or a transaction with what it has written.
type getter interface {
	// get returns the payload stored at k.
	get(k key) (payload []byte, found bool, err error)
}

// snapshot is one view of the database.
type snapshot struct{ kv.Reader }

func (s snapshot) get(k key) ([]byte, bool, error) {
	b := []byte(k)
	v, found, err := s.Get(b)
	if err != nil || !found {
		return nil, false, err
	}
	payload, err := unsealAt(b, v)
	return payload, err == nil, err
}

// errStop ends a scan early; each returns nil for it.
var errStop = errors.New("stop")

// each calls fn for the records in [from, to), whose payloads are valid only during the call.
func (s snapshot) each(from, to key, reverse bool, fn func(k key, payload []byte) error) error {
	var end []byte
	if to != "" {
		end = []byte(to)
	}
	err := s.Scan([]byte(from), end, reverse, func(k, v []byte) error {
		payload, err := unsealAt(k, v)
		if err != nil {
			return err
		}
		return fn(key(k), payload)
	})
	if errors.Is(err, errStop) {
		return nil
	}
	return err
}

func prefixEnd(prefix key) key { return key(kv.PrefixEnd([]byte(prefix))) }

// write is a pending change of one key.
type write struct {
	payload []byte
	gone    bool
}

// batch is what the transactions of one commit have written so far, above the snapshot they all read.
type batch struct {
	snapshot
	recent *recent       // of the snapshot: sooner found here
	reads  map[key]write // small records that were read: many transactions look at the same ones
	writes map[key]write
	order  []key // in the order of first writing
	bytes  int
	tx     *tx // the one that runs
}

// smallRecord is the most bytes of a record that a batch keeps for whoever reads it next.
const smallRecord = 64

func newBatch(r kv.Reader, recent *recent) *batch {
	return &batch{snapshot: snapshot{r}, recent: recent, reads: map[key]write{}, writes: map[key]write{}}
}

func (b *batch) get(k key) ([]byte, bool, error) {
	if w, ok := b.reads[k]; ok {
		return w.payload, !w.gone, nil
	}
	if w, ok := b.recent.find(k); ok {
		return bytes.Clone(w.payload), !w.gone, nil // it outlives the batch, and what is read is the reader's to keep
	}
	payload, found, err := b.snapshot.get(k)
	if err == nil && len(payload) <= smallRecord {
		b.reads[k] = write{payload, !found}
	}
	return payload, found, err
}

// tx is one transaction. Its writes join the batch only when its function succeeds.
type tx struct {
	below  *batch
	writes map[key]write
	order  []key
	bytes  int
}

// begin returns an empty transaction, which ends the one before.
func (b *batch) begin() *tx {
	if b.tx == nil || len(b.tx.order) > 1000 { // a map that was large is slow to clear
		b.tx = &tx{below: b, writes: map[key]write{}}
	}
	clear(b.tx.writes)
	b.tx.order, b.tx.bytes = b.tx.order[:0], 0
	return b.tx
}

func (t *tx) get(k key) ([]byte, bool, error) {
	w, ok := t.writes[k]
	if !ok {
		w, ok = t.below.writes[k]
	}
	if ok {
		return w.payload, !w.gone, nil
	}
	return t.below.get(k)
}

func (t *tx) put(k key, payload []byte) { t.set(k, write{payload: payload}) }
func (t *tx) del(k key)                 { t.set(k, write{gone: true}) }

func (t *tx) set(k key, w write) {
	old, ok := t.writes[k]
	if ok {
		t.bytes -= size(k, old)
	} else {
		t.order = append(t.order, k)
	}
	t.writes[k] = w
	t.bytes += size(k, w)
}

func size(k key, w write) int { return len(k) + recordHeader + len(w.payload) }

func (b *batch) merge(t *tx) {
	for _, k := range t.order {
		if old, ok := b.writes[k]; ok {
			b.bytes -= size(k, old)
		} else {
			b.order = append(b.order, k)
		}
		b.writes[k] = t.writes[k]
		b.bytes += size(k, t.writes[k])
	}
}

// changes returns the batch as the database takes it, in one piece of memory. Payloads are in there from now on, and no longer in
// what a transaction's function has made.
func (b *batch) changes() []kv.Change {
	cs := make([]kv.Change, 0, len(b.order))
	buf := make([]byte, 0, b.bytes)
	for _, k := range b.order {
		from := len(buf)
		buf = append(buf, k...)
		c := kv.Change{Key: buf[from:len(buf):len(buf)]}
		if w := b.writes[k]; w.gone {
			c.Delete = true
		} else {
			from = len(buf)
			buf = appendSealed(buf, c.Key, w.payload)
			c.Value = buf[from:len(buf):len(buf)]
			b.writes[k] = write{payload: c.Value[recordHeader:]}
		}
		cs = append(cs, c)
	}
	return cs
}
