package wasi

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/skep-dev/skep/host/cell"
)

// The layouts of poll_oneoff.
const (
	subscriptionSize = 48
	eventSize        = 32
	maxSubscriptions = 4096
)

// The types of subscriptions and events.
const (
	onClock = iota
	onRead
	onWrite
)

// subscription is one of poll_oneoff's.
type subscription struct {
	userdata uint64
	typ      byte
	wait     time.Duration // until a clock's event
	err      errno
	ended    bool // the stream has come to its end
}

// poll waits for the first of its clocks, unless something is ready at once, as each of the streams is.
func (h *host) poll(c *cell.Cell, a []uint64) errno {
	in, out, n, at := uint32(a[0]), uint32(a[1]), uint32(a[2]), uint32(a[3])
	if n == 0 || n > maxSubscriptions {
		return errInvalid
	}
	c.Read(out, n*eventSize) // or the cell ends before it waits
	c.Spend(int64(n) * subscriptionSize)
	subs := make([]subscription, n)
	first := time.Duration(math.MaxInt64)
	for i := range subs {
		subs[i] = h.subscription(c, c.Read(in+uint32(i)*subscriptionSize, subscriptionSize))
		first = min(first, subs[i].wait)
	}
	if first > 0 {
		sleep(c, first)
	}
	events := uint32(0)
	for _, s := range subs {
		if s.wait <= first {
			c.Write(out+events*eventSize, s.event())
			events++
		}
	}
	c.PutU32(at, events)
	return success
}

func (h *host) subscription(c *cell.Cell, b []byte) subscription {
	s := subscription{userdata: binary.LittleEndian.Uint64(b), typ: b[8]}
	id := binary.LittleEndian.Uint32(b[16:])
	switch s.typ {
	case onClock:
		timeout := binary.LittleEndian.Uint64(b[24:])
		if id >= clocks {
			s.err = errInvalid
			break
		}
		s.wait = time.Duration(min(timeout, math.MaxInt64))
		if absolute := b[40]&1 != 0; absolute {
			s.wait = max(0, s.wait-time.Duration(h.now(c, id)))
		}
	case onRead:
		if id == stdin {
			s.ended = true
		} else {
			s.err = errBadFD
		}
	case onWrite:
		if id != stdout && id != stderr {
			s.err = errBadFD
		}
	default:
		s.err = errInvalid
	}
	return s
}

func (s subscription) event() []byte {
	b := make([]byte, eventSize)
	binary.LittleEndian.PutUint64(b, s.userdata)
	binary.LittleEndian.PutUint16(b[8:], uint16(s.err))
	b[10] = s.typ
	switch {
	case s.ended:
		b[24] = 1 // hangup
	case s.typ == onWrite && s.err == success:
		binary.LittleEndian.PutUint64(b[16:], maxLine)
	}
	return b
}

// sleep waits for d, and ends the cell when its context ends before.
func sleep(c *cell.Cell, d time.Duration) {
	done := c.Wait()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.Context().Done():
	}
	done()
}
