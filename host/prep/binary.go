package prep

import (
	"math"
	"unicode/utf8"

	"github.com/skep-dev/skep/agent"
)

// reader reads the binary format. Every method gives up by fail when the bytes are not what they should be.
type reader struct {
	b     []byte
	p     int
	where string // the section, for messages
}

func (r *reader) more() bool { return r.p < len(r.b) }

func (r *reader) byte() byte {
	if r.p >= len(r.b) {
		fail("%s section ends too early", r.where)
	}
	c := r.b[r.p]
	r.p++
	return c
}

func (r *reader) take(n uint32) []byte {
	if uint64(n) > uint64(len(r.b)-r.p) {
		fail("%s section ends too early", r.where)
	}
	v := r.b[r.p : r.p+int(n)]
	r.p += int(n)
	return v
}

// u32 reads an unsigned LEB128 of at most 32 bits (core 2.0, section 5.2.2).
func (r *reader) u32() uint32 {
	var v uint64
	for shift := 0; ; shift += 7 {
		c := r.byte()
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			break
		}
		if shift == 28 {
			fail("%s section: number too long", r.where)
		}
	}
	if v > math.MaxUint32 {
		fail("%s section: number too large", r.where)
	}
	return uint32(v)
}

// signed reads a signed LEB128 of at most bits bits.
func (r *reader) signed(bits int) int64 {
	var v int64
	for shift := 0; ; shift += 7 {
		if shift >= bits+6 {
			fail("%s section: number too long", r.where)
		}
		c := r.byte()
		v |= int64(c&0x7f) << shift
		if c < 0x80 {
			if shift+7 < 64 && c&0x40 != 0 {
				v |= -1 << (shift + 7)
			}
			return v
		}
	}
}

// count reads the length of a vector. Each element takes at least one byte, which bounds it.
func (r *reader) count() int {
	n := r.u32()
	if uint64(n) > uint64(len(r.b)-r.p) {
		fail("%s section: %d entries announced, but it ends before", r.where, n)
	}
	return int(n)
}

func (r *reader) name(most int) string {
	b := r.take(r.u32())
	if len(b) > most {
		over(agent.LimitModule, "bytes of a name in the "+r.where+" section", uint64(len(b)), uint64(most))
	}
	if !utf8.Valid(b) {
		fail("%s section: a name is not UTF-8", r.where)
	}
	return string(b)
}

// end fails unless everything was read.
func (r *reader) end() {
	if r.more() {
		fail("%s section has %d bytes too many", r.where, len(r.b)-r.p)
	}
}

func putU32(w []byte, v uint32) []byte {
	for v >= 0x80 {
		w = append(w, byte(v)|0x80)
		v >>= 7
	}
	return append(w, byte(v))
}

func putS64(w []byte, v int64) []byte {
	for {
		c := byte(v & 0x7f)
		v >>= 7
		if (v == 0 && c&0x40 == 0) || (v == -1 && c&0x40 != 0) {
			return append(w, c)
		}
		w = append(w, c|0x80)
	}
}

func putName(w []byte, s string) []byte {
	return append(putU32(w, uint32(len(s))), s...)
}

func putBytes(w, b []byte) []byte {
	return append(putU32(w, uint32(len(b))), b...)
}
