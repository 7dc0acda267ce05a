package worker

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
)

// waitingMessage is what of a call crosses that may be suspended, or has a clock and a randomness of its own: which of its
// functions there are, for a worker asks the pool to call them.
type waitingMessage struct {
	now, random                     bool
	waiting                         bool // the rest means nothing without
	rest, delivered, nudge, resumed bool
	export, diverged                bool
	resume, image                   []byte
	deliver                         []host.Delivery
}

func waitingOf(c *host.Call) waitingMessage {
	m := waitingMessage{now: c.Now != nil, random: c.Random != nil, waiting: c.Waiting != nil}
	if w := c.Waiting; w != nil {
		m.rest, m.delivered, m.nudge, m.resumed = w.Rest != nil, w.Delivered != nil, w.Nudge != nil, w.Resume != nil
		m.diverged = w.Diverged != nil
		m.export, m.resume, m.image, m.deliver = w.Export, w.Resume, w.Image, w.Deliver
	}
	return m
}

func (m *waitingMessage) encode(e *encoder) {
	for _, b := range []bool{m.now, m.random, m.waiting} {
		e.bool(b)
	}
	if !m.waiting {
		return
	}
	for _, b := range []bool{m.rest, m.delivered, m.nudge, m.resumed, m.export, m.diverged} {
		e.bool(b)
	}
	e.bytes(m.resume)
	e.bytes(m.image)
	e.uint(uint64(len(m.deliver)))
	for _, d := range m.deliver {
		putDelivery(e, d)
	}
}

func (m *waitingMessage) decode(d *decoder) {
	m.now, m.random, m.waiting = d.bool(), d.bool(), d.bool()
	if !m.waiting {
		return
	}
	m.rest, m.delivered, m.nudge, m.resumed = d.bool(), d.bool(), d.bool(), d.bool()
	m.export, m.diverged, m.resume, m.image = d.bool(), d.bool(), d.Bytes(), d.Bytes()
	for range d.count() {
		if d.Bad {
			return
		}
		m.deliver = append(m.deliver, getDelivery(d))
	}
}

func putDelivery(e *encoder, d host.Delivery) {
	e.uint(d.ID)
	e.text(d.Name)
	e.bytes(d.Out)
	putError(e, agent.AsError(d.Err))
	*e = append(*e, d.Sum[:]...)
}

func getDelivery(d *decoder) host.Delivery {
	v := host.Delivery{ID: d.Uint(), Name: d.text(), Out: d.Bytes(), Err: errorOf(getError(d))}
	if len(d.B) < sha256.Size {
		d.Fail()
		return v
	}
	v.Sum, d.B = [sha256.Size]byte(d.B), d.B[sha256.Size:]
	return v
}

func putPending(e *encoder, p host.Pending) {
	e.bool(!p.Alarm.IsZero())
	if !p.Alarm.IsZero() {
		e.int(p.Alarm.UnixNano())
	}
	e.uint(uint64(len(p.Calls)))
	for _, c := range p.Calls {
		e.uint(c.ID)
		e.text(c.Name)
		e.bytes(c.Input)
	}
}

func getPending(d *decoder) (p host.Pending) {
	if d.bool() {
		p.Alarm = time.Unix(0, d.Int())
	}
	for range d.count() {
		if d.Bad {
			return p
		}
		p.Calls = append(p.Calls, host.PendingCall{ID: d.Uint(), Name: d.text(), Input: d.Bytes()})
	}
	return p
}

func putSuspension(e *encoder, s *host.Suspension) {
	e.bool(s != nil)
	if s != nil {
		e.bytes(s.Snapshot)
		putPending(e, s.Pending)
		e.text(string(s.Image))
		e.bytes(s.Exported)
	}
}

func getSuspension(d *decoder) *host.Suspension {
	if !d.bool() {
		return nil
	}
	return &host.Suspension{Snapshot: d.Bytes(), Pending: getPending(d), Image: agent.Digest(d.text()), Exported: d.Bytes()}
}

// question is what a worker asks of the pool.
type question byte

const (
	askCalls     question = iota // a host call
	askRest                      // Waiting.Rest, of a Pending; the answer is one byte
	askDelivered                 // Waiting.Delivered, of a Delivery
	askDiverged                  // Waiting.Diverged, of a Delivery and a Pending
	askNow                       // the call's clock; the answer is in nanoseconds since 1970
	askRandom                    // the call's randomness, of a number of bytes
	questions
)

// maxRandom is how many bytes of randomness are asked for at once.
const maxRandom = 64 << 10

// answerer returns what answers a question about a call, or nil when it is none that may be asked.
func (fl *flight) answerer(m *askMessage) func(context.Context) ([]byte, error) {
	w := fl.waiting
	d := newDecoder(m.in)
	switch m.what {
	case askCalls:
		if fl.calls == nil {
			return nil
		}
		return func(ctx context.Context) ([]byte, error) {
			if m.number != 0 {
				ctx = host.WithNumber(ctx, m.number)
			}
			return fl.calls(ctx, m.name, m.in)
		}
	case askRest:
		p := getPending(d)
		if w == nil || w.Rest == nil || d.done() != nil {
			return nil
		}
		return func(ctx context.Context) ([]byte, error) {
			if w.Rest(ctx, p) {
				return []byte{1}, nil
			}
			return []byte{0}, nil
		}
	case askDelivered:
		v := getDelivery(d)
		if w == nil || w.Delivered == nil || d.done() != nil {
			return nil
		}
		return func(context.Context) ([]byte, error) {
			w.Delivered(v)
			return nil, nil
		}
	case askDiverged:
		v, p := getDelivery(d), getPending(d)
		if w == nil || w.Diverged == nil || d.done() != nil {
			return nil
		}
		return func(context.Context) ([]byte, error) {
			w.Diverged(v, p)
			return nil, nil
		}
	case askNow:
		if fl.now == nil {
			return nil
		}
		return func(context.Context) ([]byte, error) {
			return binary.LittleEndian.AppendUint64(nil, uint64(fl.now().UnixNano())), nil
		}
	case askRandom:
		n := d.Uint()
		if fl.random == nil || n > maxRandom || d.done() != nil {
			return nil
		}
		return func(context.Context) ([]byte, error) {
			b := make([]byte, n)
			_, err := io.ReadFull(fl.random, b)
			return b, err
		}
	}
	return nil
}

// remote gives a call in a worker the functions that the caller's has.
func (s *server) remote(ctx context.Context, id uint64, c *host.Call, m *waitingMessage, nudge <-chan struct{}) {
	if m.now {
		c.Now = func() time.Time {
			b, err := s.ask(ctx, id, &askMessage{what: askNow})
			if err != nil || len(b) != 8 {
				return time.Time{} // the call is ending
			}
			return time.Unix(0, int64(binary.LittleEndian.Uint64(b)))
		}
	}
	if m.random {
		c.Random = remoteRandom(func(n int) ([]byte, error) {
			var e encoder
			e.uint(uint64(n))
			return s.ask(ctx, id, &askMessage{what: askRandom, in: e})
		})
	}
	if !m.waiting {
		return
	}
	w := &host.Waiting{Deliver: m.deliver, Image: m.image, Export: m.export}
	c.Waiting = w
	if m.resumed {
		w.Resume = append([]byte{}, m.resume...)
	}
	if m.nudge {
		w.Nudge = nudge
	}
	if m.rest {
		w.Rest = func(ctx context.Context, p host.Pending) bool {
			var e encoder
			putPending(&e, p)
			b, err := s.ask(ctx, id, &askMessage{what: askRest, in: e})
			return err == nil && len(b) == 1 && b[0] == 1
		}
	}
	if m.delivered {
		w.Delivered = func(d host.Delivery) {
			var e encoder
			putDelivery(&e, d)
			_, _ = s.ask(ctx, id, &askMessage{what: askDelivered, in: e}) // an error means that the call is ending
		}
	}
	if m.diverged {
		w.Diverged = func(d host.Delivery, p host.Pending) {
			var e encoder
			putDelivery(&e, d)
			putPending(&e, p)
			_, _ = s.ask(ctx, id, &askMessage{what: askDiverged, in: e})
		}
	}
}

type remoteRandom func(n int) ([]byte, error)

func (r remoteRandom) Read(b []byte) (int, error) {
	got, err := r(min(len(b), maxRandom))
	return copy(b, got), err
}
