package script

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"math"

	"github.com/skep-dev/skep/agent"
)

// saved is a suspended call: what its driver knew, and the snapshot of its cell. Its form:
//
//	"skepcall", version     8 bytes and 1
//	flags                   1: its module was loading; 2: a timer is due
//	awaited                 the promise of what the function returns, or 0; numbers are varints
//	issued, exchanges       numbers taken
//	due                     of the first timer, in nanoseconds since 1970
//	calls                   how many, then for each its number, the prelude's, its name and its input after their lengths
//	memory                  the snapshot, after its length
//	checksum                32 bytes: SHA-256 of all before
type saved struct {
	loading   bool
	armed     bool
	awaited   uint32
	issued    uint64
	exchanges uint32
	due       int64
	calls     []request
	memory    []byte
}

const (
	savedMagic   = "skepcall"
	savedVersion = 1
	savedLoading = 1
	savedArmed   = 2
)

func (s *saved) encode() []byte {
	b := append(make([]byte, 0, len(s.memory)+256), savedMagic...)
	flags := byte(0)
	if s.loading {
		flags |= savedLoading
	}
	if s.armed {
		flags |= savedArmed
	}
	b = append(b, savedVersion, flags)
	b = binary.AppendUvarint(b, uint64(s.awaited))
	b = binary.AppendUvarint(b, s.issued)
	b = binary.AppendUvarint(b, uint64(s.exchanges))
	b = binary.AppendVarint(b, s.due)
	b = binary.AppendUvarint(b, uint64(len(s.calls)))
	for _, c := range s.calls {
		b = binary.AppendUvarint(b, c.number)
		b = binary.AppendUvarint(b, uint64(c.id))
		b = append(binary.AppendUvarint(b, uint64(len(c.name))), c.name...)
		b = append(binary.AppendUvarint(b, uint64(len(c.body))), c.body...)
	}
	b = append(binary.AppendUvarint(b, uint64(len(s.memory))), s.memory...)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

// readSaved takes a suspended call apart. The parts share b. What it takes of memory is bounded by the length of b.
func readSaved(b []byte) (*saved, error) {
	const head = len(savedMagic) + 2
	switch {
	case len(b) < head+sha256.Size || string(b[:len(savedMagic)]) != savedMagic:
		return nil, damaged("it is none")
	case b[len(savedMagic)] != savedVersion:
		return nil, agent.Errorf(agent.Conflict, "the snapshot has form %d, and this version of Skep reads form %d", b[len(savedMagic)], savedVersion)
	}
	body, sum := b[:len(b)-sha256.Size], b[len(b)-sha256.Size:]
	if got := sha256.Sum256(body); !bytes.Equal(got[:], sum) {
		return nil, damaged("its checksum is wrong")
	}
	flags := b[head-1]
	r := savedReader{b: body[head:], bad: flags&^(savedLoading|savedArmed) != 0}
	s := &saved{loading: flags&savedLoading != 0, armed: flags&savedArmed != 0}
	s.awaited = uint32(r.number(math.MaxUint32))
	s.issued = r.number(math.MaxUint64)
	s.exchanges = uint32(r.number(math.MaxUint32))
	s.due = r.signed()
	last := uint64(0)
	for range r.number(uint64(len(r.b))) {
		c := request{number: r.number(s.issued), id: float64(r.number(1 << 53)), name: string(r.bytes()), body: r.bytes()}
		if c.number <= last {
			r.bad = true
		}
		if r.bad {
			break
		}
		last = c.number
		s.calls = append(s.calls, c)
	}
	s.memory = r.bytes()
	if r.bad || len(r.b) > 0 {
		return nil, damaged("it cannot be read")
	}
	return s, nil
}

func damaged(why string) error {
	return &agent.Error{Kind: agent.Invalid, Msg: "the snapshot is damaged: " + why}
}

// savedReader reads numbers and bytes. After the first that is not there, all are zero, and bad tells.
type savedReader struct {
	b   []byte
	bad bool
}

func (r *savedReader) number(most uint64) uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 || n > most || r.bad {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[size:]
	return n
}

func (r *savedReader) signed() int64 {
	n, size := binary.Varint(r.b)
	if size <= 0 || r.bad {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[size:]
	return n
}

func (r *savedReader) bytes() []byte {
	n := r.number(uint64(len(r.b)))
	if n > uint64(len(r.b)) {
		r.bad, n = true, 0
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}
