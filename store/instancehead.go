package store

import (
	"encoding/binary"
	"encoding/json"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/instance"
)

// instHead is what is known of an instance as a whole. Every commit reads it and writes it anew, so what changes is numbers. Its record
// has instMore as JSON and two bodies: the newest batch's id, and the numbers as uvarints in the order of numbers. Of one body all is
// JSON, which is how it was written first.
type instHead struct {
	Epoch   int64     `json:"epoch"`
	Head    int64     `json:"head"`
	Birth   int64     `json:"birth"` // epoch in which it was made
	Updated time.Time `json:"updated"`
	Gone    bool      `json:"gone,omitempty"`

	Batch instance.BatchID `json:"-"` // the newest: body 0
	Void  bool             `json:"void,omitempty"`
	Ends  ends             `json:"ends,omitzero"`

	Logs     int64 `json:"logs,omitempty"` // own logs and journals
	LogBytes int64 `json:"log_bytes,omitempty"`
	Alarms   int64 `json:"alarms,omitempty"`
	Outbox   int64 `json:"outbox,omitempty"`
	Children int64 `json:"children,omitempty"`
	Marks    int64 `json:"marks,omitempty"` // senders and receivers that it knows

	fields []byte // JSON of instMore
}

// instMore is what few commits look at.
type instMore struct {
	Parent   *peer             `json:"parent,omitempty"`
	Created  time.Time         `json:"created"`
	Snapshot instance.Snapshot `json:"snapshot,omitzero"`
}

// ends is where the newest batch left each log, journal and pair that it added to, in the order in which it names them.
type ends struct {
	Events  []int64 `json:"e,omitempty"`
	Journal []int64 `json:"j,omitempty"`
	Outbox  []int64 `json:"o,omitempty"`
}

func (h instHead) fence() instance.Fence { return instance.Fence{Epoch: h.Epoch, Head: h.Head} }

func (h instHead) more(k key) (m instMore, err error) {
	if err := json.Unmarshal(h.fields, &m); err != nil {
		return m, corrupt(k, "%v", err)
	}
	return m, nil
}

func (h *instHead) setMore(m instMore) (err error) {
	if h.fields, err = json.Marshal(m); err != nil {
		return agent.Wrap(agent.Invalid, err, "the record of an instance cannot be written as JSON")
	}
	return nil
}

func (h *instHead) numbers() [9]*int64 {
	return [...]*int64{&h.Epoch, &h.Head, &h.Birth, &h.Logs, &h.LogBytes, &h.Alarms, &h.Outbox, &h.Children, &h.Marks}
}

func (e *ends) lists() [3]*[]int64 { return [...]*[]int64{&e.Events, &e.Journal, &e.Outbox} }

const (
	headGone = 1 << iota
	headVoid
)

// encode returns the record. Behind numbers stand flags, the time of Updated in Unix nanoseconds, and each list of Ends with its length.
func (h instHead) encode() []byte {
	b := make([]byte, 0, 96)
	for _, n := range h.numbers() {
		b = binary.AppendUvarint(b, uint64(*n))
	}
	flags := byte(0)
	if h.Gone {
		flags |= headGone
	}
	if h.Void {
		flags |= headVoid
	}
	b = binary.AppendVarint(append(b, flags), h.Updated.UnixNano())
	for _, l := range h.Ends.lists() {
		b = binary.AppendUvarint(b, uint64(len(*l)))
		for _, n := range *l {
			b = binary.AppendUvarint(b, uint64(n))
		}
	}
	return row{fields: h.fields, bodies: []body{{here: h.Batch[:]}, {here: b}}}.encode()
}

func parseInstHead(k key, payload []byte) (h instHead, err error) {
	r, err := parse(k, payload, nil)
	if err == nil && (len(r.bodies) < 1 || len(r.bodies) > 2 || len(r.bodies[0].here) != len(h.Batch)) {
		err = corrupt(k, "%v", errShort)
	}
	if err != nil {
		return h, err
	}
	copy(h.Batch[:], r.bodies[0].here)
	if h.fields = r.fields; len(r.bodies) == 2 {
		err = h.decode(r.bodies[1].here)
	} else {
		err = h.decodeFirst(r.fields)
	}
	if err != nil {
		return h, corrupt(k, "%v", err)
	}
	if h.Epoch < h.Birth || h.Birth < 1 || h.Head < 0 || min(h.Logs, h.LogBytes, h.Alarms, h.Outbox, h.Children, h.Marks) < 0 {
		return h, corrupt(k, "epoch %d of %d with %d commits is no instance", h.Epoch, h.Birth, h.Head)
	}
	return h, nil
}

// decodeFirst reads a head that is all JSON, which its next commit writes as encode does.
func (h *instHead) decodeFirst(fields []byte) error {
	var more instMore
	if err := json.Unmarshal(fields, h); err != nil {
		return err
	}
	if err := json.Unmarshal(fields, &more); err != nil {
		return err
	}
	return h.setMore(more)
}

func (h *instHead) decode(b []byte) error {
	number := func(into *int64) bool {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > 1<<62 {
			return false
		}
		*into, b = int64(n), b[size:]
		return true
	}
	for _, into := range h.numbers() {
		if !number(into) {
			return errShort
		}
	}
	if len(b) == 0 || b[0] > headGone|headVoid {
		return errShort
	}
	h.Gone, h.Void = b[0]&headGone > 0, b[0]&headVoid > 0
	nanos, size := binary.Varint(b[1:])
	if size <= 0 {
		return errShort
	}
	h.Updated, b = time.Unix(0, nanos).UTC(), b[1+size:]
	for _, l := range h.Ends.lists() {
		var n int64
		if !number(&n) || n > instance.MaxOps {
			return errShort
		}
		if n > 0 {
			*l = make([]int64, n)
		}
		for i := range *l {
			if !number(&(*l)[i]) {
				return errShort
			}
		}
	}
	if len(b) > 0 {
		return errShort
	}
	return nil
}
