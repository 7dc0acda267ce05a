// Package wire reads the values of Skep's own binary forms: numbers as varints, and bytes after their length.
package wire

import (
	"encoding/binary"
	"math"
)

// Reader reads values from B, of which bytes are parts. After the first value that is not there, all are zero, and Bad tells.
type Reader struct {
	B   []byte
	Bad bool
}

// Fail ends the reading.
func (r *Reader) Fail() { r.Bad, r.B = true, nil }

// Done reports whether what was read was there, and nothing else.
func (r *Reader) Done() bool { return !r.Bad && len(r.B) == 0 }

// Uint reads a number.
func (r *Reader) Uint() uint64 { return r.Number(math.MaxUint64) }

// Number reads a number up to most.
func (r *Reader) Number(most uint64) uint64 {
	n, size := binary.Uvarint(r.B)
	if size <= 0 || n > most || r.Bad {
		r.Fail()
		return 0
	}
	r.B = r.B[size:]
	return n
}

// Int reads a number that may be negative.
func (r *Reader) Int() int64 {
	n, size := binary.Varint(r.B)
	if size <= 0 || r.Bad {
		r.Fail()
		return 0
	}
	r.B = r.B[size:]
	return n
}

// Fixed reads eight bytes, the lowest first.
func (r *Reader) Fixed() uint64 {
	if len(r.B) < 8 {
		r.Fail()
		return 0
	}
	n := binary.LittleEndian.Uint64(r.B)
	r.B = r.B[8:]
	return n
}

// Bytes reads bytes; nil when there are none.
func (r *Reader) Bytes() []byte {
	n := r.Number(uint64(len(r.B)))
	if n > uint64(len(r.B)) {
		r.Fail()
	}
	if n == 0 || r.Bad {
		return nil
	}
	b := r.B[:n:n]
	r.B = r.B[n:]
	return b
}
