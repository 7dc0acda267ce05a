package wasi

import (
	"encoding/binary"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
)

// The file descriptors that are there.
const (
	stdin  = 0
	stdout = 1
	stderr = 2
)

// maxVectors bounds the pieces of one read or write, as IOV_MAX does. vectorFuel is what each costs besides its bytes.
const (
	maxVectors = 1024
	vectorFuel = 16
)

func isStream(fd uint64) bool { return uint32(fd) <= stderr }

// stream returns a function that answers e for the three streams.
func stream(e errno) func(*cell.Cell, []uint64) errno {
	return func(_ *cell.Cell, a []uint64) errno {
		if !isStream(a[0]) {
			return errBadFD
		}
		return e
	}
}

const characterDevice = 2

// fdStat tells that a stream is a terminal-like device with the right to read or to write.
func fdStat(c *cell.Cell, a []uint64) errno {
	const readRight, writeRight, pollRight = 1 << 1, 1 << 6, 1 << 27
	if !isStream(a[0]) {
		return errBadFD
	}
	var b [24]byte
	b[0] = characterDevice
	rights := uint64(writeRight | pollRight)
	if a[0] == stdin {
		rights = readRight | pollRight
	}
	binary.LittleEndian.PutUint64(b[8:], rights)
	c.Write(uint32(a[1]), b[:])
	return success
}

func fdFileStat(c *cell.Cell, a []uint64) errno {
	if !isStream(a[0]) {
		return errBadFD
	}
	var b [64]byte
	b[16] = characterDevice
	c.Write(uint32(a[1]), b[:])
	return success
}

// fdRead tells the end of the input.
func fdRead(c *cell.Cell, a []uint64) errno {
	if d := deviceOf(c, a[0]); d != nil {
		return readDevice(c, d, a)
	}
	if uint32(a[0]) != stdin {
		return errBadFD
	}
	c.PutU32(uint32(a[3]), 0)
	return success
}

func fdWrite(c *cell.Cell, a []uint64) errno {
	if d := deviceOf(c, a[0]); d != nil {
		return writeDevice(c, d, a)
	}
	fd, vectors, n, at := uint32(a[0]), uint32(a[1]), uint32(a[2]), uint32(a[3])
	if fd != stdout && fd != stderr {
		return errBadFD
	}
	if n > maxVectors {
		return errInvalid
	}
	s, kept := stateOf(c)
	l, level := &s.out, agent.LevelInfo
	if fd == stderr {
		l, level = &s.err, agent.LevelWarn
	}
	emit := func(text string) { c.Log(level, text) }
	total := uint32(0)
	for i := range n {
		b := c.Read(c.U32(vectors+8*i), c.U32(vectors+8*i+4))
		c.Spend(vectorFuel + int64(len(b)))
		l.write(b, emit)
		total += uint32(len(b))
	}
	if !kept {
		l.flush(emit)
	}
	c.PutU32(at, total)
	return success
}
