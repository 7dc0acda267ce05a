package wasi

import (
	"io"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
)

// The clocks. The two that count CPU time run with the monotonic one, so that a guest's run can be repeated exactly.
const (
	realtime = iota
	monotonic
	processCPU
	threadCPU
	clocks
)

func clockRes(c *cell.Cell, a []uint64) errno {
	switch uint32(a[0]) {
	case realtime:
		c.PutU64(uint32(a[1]), uint64(time.Microsecond))
	case monotonic, processCPU, threadCPU:
		c.PutU64(uint32(a[1]), uint64(time.Nanosecond))
	default:
		return errInvalid
	}
	return success
}

func (h *host) clockTime(c *cell.Cell, a []uint64) errno {
	if uint32(a[0]) >= clocks {
		return errInvalid
	}
	c.PutU64(uint32(a[2]), uint64(h.now(c, uint32(a[0]))))
	return success
}

// now reads a clock in nanoseconds. Both count from 1970 when the host starts, so that cells of one image, and the image
// itself, see one time; from there the monotonic one never steps back, whatever becomes of the other.
func (h *host) now(c *cell.Cell, clock uint32) int64 {
	now := c.Env().Now()
	if clock == realtime {
		return now.UnixNano()
	}
	s, _ := stateOf(c)
	s.last = max(s.last, h.started.UnixNano()+int64(now.Sub(h.started)))
	return s.last
}

// randomGet fills in pieces, between which the cell can be stopped.
func randomGet(c *cell.Cell, a []uint64) errno {
	const piece = 64 << 10
	b := c.Read(uint32(a[0]), uint32(a[1]))
	c.Spend(int64(len(b)))
	for len(b) > 0 && c.Context().Err() == nil {
		n := min(piece, len(b))
		if _, err := io.ReadFull(c.Env().Random, b[:n]); err != nil {
			c.Fail(agent.Wrap(agent.Internal, err, "the host has no randomness for the code"))
		}
		b = b[n:]
	}
	return success
}
