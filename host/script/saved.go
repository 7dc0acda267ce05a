package script

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"slices"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/internal/wire"
)

// saved is a suspended call: what its driver knew, and the snapshot of its cell. Its form:
//
//	"skepcall", version     8 bytes and 1
//	flags                   1: its module was loading; 2: a timer is due; 4: calls have places
//	awaited                 the promise of what the function returns, or 0; numbers are varints
//	issued, exchanges       numbers taken
//	due                     of the first timer, in nanoseconds since 1970
//	calls                   how many, then for each its number, the prelude's, its name, its input and its place after their lengths
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
	savedPlaces  = 4
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
	if slices.ContainsFunc(s.calls, func(r request) bool { return r.at != "" }) {
		flags |= savedPlaces
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
		if flags&savedPlaces != 0 {
			b = append(binary.AppendUvarint(b, uint64(len(c.at))), c.at...)
		}
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
	r := wire.Reader{B: body[head:], Bad: flags&^(savedLoading|savedArmed|savedPlaces) != 0}
	s := &saved{loading: flags&savedLoading != 0, armed: flags&savedArmed != 0}
	s.awaited = uint32(r.Number(math.MaxUint32))
	s.issued = r.Uint()
	s.exchanges = uint32(r.Number(math.MaxUint32))
	s.due = r.Int()
	last := uint64(0)
	for range r.Number(uint64(len(r.B))) {
		c := request{number: r.Number(s.issued), id: float64(r.Number(1 << 53)), name: string(r.Bytes()), body: r.Bytes()}
		if flags&savedPlaces != 0 {
			c.at = string(r.Bytes())
		}
		if c.number <= last {
			r.Bad = true
		}
		if r.Bad {
			break
		}
		last = c.number
		s.calls = append(s.calls, c)
	}
	s.memory = r.Bytes()
	if !r.Done() {
		return nil, damaged("it cannot be read")
	}
	return s, nil
}

func damaged(why string) error {
	return &agent.Error{Kind: agent.Invalid, Msg: "the snapshot is damaged: " + why}
}
