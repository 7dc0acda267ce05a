package cell

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math/bits"
	"slices"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/internal/wire"
)

// The form of a snapshot. Numbers are varints unless they say otherwise.
//
//	"skepsnap", version     8 bytes and 1
//	image                   32 bytes: the digest of the image
//	size                    of memory, in pages of WebAssembly
//	globals                 how many, then 8 bytes each, little-endian
//	pages                   how many of 4 KiB, then for each, in order, how far its number is from the one before and, in the
//	                        lowest bit, whether it holds the bitwise difference to the image's page or the page itself
//	content                 the pages, one after the other, in chunks of 256; for each chunk its length, and a frame of Zstandard
//	checksum                32 bytes: SHA-256 of all before
//
// Most pages that a cell has written differ from the image's in a few bytes, so the difference is nearly all zeros.
const (
	snapshotMagic   = "skepsnap"
	snapshotVersion = 1
	maxMemoryPages  = 1 << 16 // of WebAssembly
	chunkPages      = 256     // so that no more than a megabyte is unpacked at once
)

// snapshot is one taken apart.
type snapshot struct {
	image   [sha256.Size]byte
	size    uint32 // of memory, in pages of WebAssembly
	globals []uint64
	pages   []page
	chunks  []byte // what the pages hold, compressed
}

// page says what became of a page of memory.
type page struct {
	number int
	delta  bool // its content is the difference to the image
}

// collect takes the pages in which memory differs from the image. All of these lie in spans, or anywhere when they are nil.
func (s *snapshot) collect(z *packer, memory, image []byte, spans []span) {
	zero := make([]byte, snapPage)
	chunk := make([]byte, 0, chunkPages*snapPage/4)
	for n := range pagesOf(spans, len(memory)) {
		at := n * snapPage
		now, was := memory[at:at+snapPage], zero
		if at < len(image) {
			was = image[at : at+snapPage]
		}
		if bytes.Equal(now, was) {
			continue
		}
		start := len(chunk)
		chunk = append(chunk, now...)
		p := page{number: n, delta: nearer(now, was)}
		if p.delta {
			xor(chunk[start:], was)
		}
		s.pages = append(s.pages, p)
		if len(chunk) == chunkPages*snapPage {
			s.put(z, chunk)
			chunk = chunk[:0]
		}
	}
	if len(chunk) > 0 {
		s.put(z, chunk)
	}
}

func (s *snapshot) put(z *packer, chunk []byte) {
	frame := z.encoder().EncodeAll(chunk, nil)
	s.chunks = append(binary.AppendUvarint(s.chunks, uint64(len(frame))), frame...)
}

// nearer reports whether fewer bytes of a page differ from what it was than from zero.
func nearer(now, was []byte) bool {
	set, changed := 0, 0
	for i := 0; i < snapPage; i += 8 {
		a, b := binary.LittleEndian.Uint64(now[i:]), binary.LittleEndian.Uint64(was[i:])
		set += bits.OnesCount64(a)
		changed += bits.OnesCount64(a ^ b)
	}
	return changed < set
}

func xor(b, with []byte) {
	for i := 0; i < snapPage; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], binary.LittleEndian.Uint64(b[i:])^binary.LittleEndian.Uint64(with[i:]))
	}
}

func isZero(b []byte) bool {
	for i := 0; i < len(b); i += 8 {
		if binary.LittleEndian.Uint64(b[i:]) != 0 {
			return false
		}
	}
	return true
}

func (s *snapshot) encode(magic string) []byte {
	b := append(make([]byte, 0, len(s.chunks)+len(s.pages)+256), magic...)
	b = append(b, snapshotVersion)
	b = append(b, s.image[:]...)
	b = binary.AppendUvarint(b, uint64(s.size))
	b = binary.AppendUvarint(b, uint64(len(s.globals)))
	for _, g := range s.globals {
		b = binary.LittleEndian.AppendUint64(b, g)
	}
	b = binary.AppendUvarint(b, uint64(len(s.pages)))
	before := 0
	for _, p := range s.pages {
		step := uint64(p.number-before) << 1
		if p.delta {
			step |= 1
		}
		b = binary.AppendUvarint(b, step)
		before = p.number
	}
	b = append(b, s.chunks...)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

// readSnapshot checks a snapshot and takes it apart, but for its content. What it takes of memory is bounded by the length of b.
func readSnapshot(magic string, b []byte) (*snapshot, error) {
	const head = len(snapshotMagic) + 1 + sha256.Size
	switch {
	case len(b) < head+sha256.Size || string(b[:len(magic)]) != magic:
		return nil, damaged("it is none")
	case b[len(snapshotMagic)] != snapshotVersion:
		return nil, agent.Errorf(agent.Conflict, "the snapshot has form %d, and this version of Skep reads form %d", b[len(snapshotMagic)], snapshotVersion)
	}
	body, sum := b[:len(b)-sha256.Size], b[len(b)-sha256.Size:]
	if got := sha256.Sum256(body); !bytes.Equal(got[:], sum) {
		return nil, damaged("its checksum is wrong")
	}
	s := &snapshot{image: [sha256.Size]byte(b[len(snapshotMagic)+1:])}
	r := wire.Reader{B: body[head:]}
	s.size = uint32(r.Number(maxMemoryPages))
	for range r.Number(uint64(len(r.B) / 8)) {
		s.globals = append(s.globals, r.Fixed())
	}
	last := int(s.size)*(pageSize/snapPage) - 1
	at, first := 0, true
	for range r.Number(uint64(len(r.B))) {
		step := r.Number(2*maxMemoryPages*(pageSize/snapPage) + 1)
		at += int(step >> 1)
		if at > last || step < 2 && !first {
			r.Bad = true
		}
		if r.Bad {
			break
		}
		s.pages = append(s.pages, page{at, step&1 != 0})
		first = false
	}
	if r.Bad {
		return nil, damaged("it cannot be read")
	}
	s.chunks = r.B
	return s, nil
}

// apply brings a memory that is the image's to where the snapshot was made. Pages of which the image has none are zero.
func (s *snapshot) apply(z *packer, memory []byte) error {
	r := wire.Reader{B: s.chunks}
	room := make([]byte, 0, min(len(s.pages), chunkPages)*snapPage)
	for pages := range slices.Chunk(s.pages, chunkPages) {
		frame := r.Bytes()
		want := len(pages) * snapPage
		chunk, err := z.decoder().DecodeAll(frame, room[:0:want])
		if err != nil || len(chunk) != want {
			return damaged("its pages cannot be read")
		}
		for i, p := range pages {
			to, from := memory[p.number*snapPage:][:snapPage], chunk[i*snapPage:][:snapPage]
			if p.delta {
				xor(to, from)
			} else {
				copy(to, from)
			}
		}
	}
	if !r.Done() {
		return damaged("there is more in it than its pages")
	}
	return nil
}

func damaged(why string) error {
	return &agent.Error{Kind: agent.Invalid, Msg: "the snapshot is damaged: " + why}
}

func hexOf(d [sha256.Size]byte) string { return hex.EncodeToString(d[:]) }

// packer compresses and unpacks. Its coders are made when the first snapshot is. It is safe for concurrent use.
type packer struct {
	encoder func() *zstd.Encoder
	decoder func() *zstd.Decoder
}

// newPacker makes coders that check nothing, for the snapshot's checksum does, and that unpack no more than there is room for.
func newPacker() *packer {
	return &packer{
		encoder: sync.OnceValue(func() *zstd.Encoder {
			return must(zstd.NewWriter(nil, zstd.WithEncoderCRC(false), zstd.WithEncoderConcurrency(2), zstd.WithLowerEncoderMem(true),
				zstd.WithWindowSize(chunkPages*snapPage), zstd.WithEncoderLevel(zstd.SpeedFastest)))
		}),
		decoder: sync.OnceValue(func() *zstd.Decoder {
			return must(zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecodeAllCapLimit(true)))
		}),
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err) // the options are wrong
	}
	return v
}
