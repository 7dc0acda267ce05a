package cell

import (
	"context"
	"crypto/sha256"
	"encoding/binary"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/prep"
)

// A snapshot is what a cell at rest differs in from its image: the pages of memory that are not the image's, how large memory
// is, and the globals. The fuel and the limit of tables belong to a life, not to a cell, and are not in it; tables cannot have
// changed, else there were no image. Its form is in snapshot_codec.go.

// Snapshot returns what Image.Restore makes the same cell of again, in this process or another. Nothing may be under way in the
// cell. Cells of one image with the same memory and globals have equal snapshots. Errors are Invalid for code that has no
// image.
func (c *Cell) Snapshot() ([]byte, error) {
	switch {
	case len(c.running) > 0:
		return nil, agent.Errorf(agent.Internal, "a snapshot of a cell that is running")
	case c.Err() != nil:
		return nil, c.Err()
	case c.broken:
		return nil, agent.Errorf(agent.Internal, "a snapshot of a cell that has failed")
	}
	image, full, err := c.image.content()
	if err != nil {
		return nil, err
	}
	s := snapshot{image: c.image.digest(image, full), size: uint32(len(c.Memory()) / pageSize)}
	for _, g := range c.globals {
		s.globals = append(s.globals, g.Get())
	}
	if c.memory != nil {
		s.collect(c.image.code.engine.packer, c.Memory(), image, c.memory.written())
	}
	return s.encode(snapshotMagic), nil
}

// Restore returns a cell that is as the one was that the snapshot was made of. Its life begins here, as with Cell. A snapshot of
// another image is a Conflict that names both; one that is damaged is Invalid; one that needs more memory than env's limit
// is Exhausted.
func (i *Image) Restore(ctx context.Context, env Env, b []byte) (*Cell, error) {
	image, full, err := i.content()
	if err != nil {
		return nil, err
	}
	s, err := readSnapshot(snapshotMagic, b)
	if err != nil {
		return nil, err
	}
	if want := i.digest(image, full); s.image != want {
		return nil, &agent.Error{
			Kind: agent.Conflict, Msg: "the snapshot is of the image sha256:" + hexOf(s.image) + ", and the code's is sha256:" + hexOf(want),
			Hint: "a snapshot goes on only with the code, and the version of Skep's script engine, that it was made with",
		}
	}
	if len(s.globals) != len(i.globals) || uint64(s.size)*pageSize < i.size {
		return nil, damaged("its parts do not fit its image")
	}
	if most := env.Limits.Or(agent.DefaultLimits()).Memory; int64(s.size)*pageSize > most {
		return nil, agent.Exceeded(agent.LimitMemory, "the suspended code holds %d bytes of memory, the limit is %d", int64(s.size)*pageSize, most)
	}
	c, err := i.Cell(ctx, env)
	if err != nil {
		return nil, err
	}
	err = s.restore(c)
	if err != nil {
		c.broken = true
		c.Close()
		return nil, err
	}
	return c, nil
}

// restore makes a fresh cell what the snapshot holds.
func (s *snapshot) restore(c *Cell) error {
	if !c.grow(s.size) {
		return agent.Exceeded(agent.LimitMemory, "there is no room for the %d bytes of memory that the suspended code holds", int64(s.size)*pageSize)
	}
	if err := s.apply(c.image.code.engine.packer, c.Memory()); err != nil {
		return err
	}
	for n, v := range s.globals {
		c.globals[n].Set(v)
	}
	return nil
}

// grow makes memory a number of pages large.
func (c *Cell) grow(pages uint32) bool {
	if c.memory == nil {
		return pages == 0
	}
	m := c.module.Memory()
	have := m.Size() / pageSize
	if pages <= have {
		return pages == have
	}
	_, ok := m.Grow(pages - have)
	return ok
}

// digest names an image by its code, its memory and its globals: two with one digest are the same byte for byte, wherever they
// were made. It is found out once, when somebody asks.
func (i *Image) digest(b []byte, full []span) [sha256.Size]byte {
	i.digestOnce.Do(func() {
		h := sha256.New()
		code := i.code.digest()
		h.Write(code[:])
		var n [8]byte
		put := func(v uint64) {
			binary.LittleEndian.PutUint64(n[:], v)
			h.Write(n[:])
		}
		put(i.size)
		put(uint64(len(i.globals)))
		for _, g := range i.globals {
			put(g)
		}
		for page := range pagesOf(full, len(b)) {
			if at := page * snapPage; !isZero(b[at : at+snapPage]) {
				put(uint64(page))
				h.Write(b[at : at+snapPage])
			}
		}
		i.digestSum = [sha256.Size]byte(h.Sum(nil))
	})
	return i.digestSum
}

// digest names prepared code.
func (c *Code) digest() [sha256.Size]byte {
	c.digestOnce.Do(func() {
		h := sha256.New()
		h.Write([]byte{prep.Version})
		h.Write(c.module.Code)
		c.digestSum = [sha256.Size]byte(h.Sum(nil))
	})
	return c.digestSum
}

// snapPage is the page of snapshots, whatever the system's is.
const snapPage = 4 << 10

// pagesOf yields the numbers of the pages that spans of a memory of size bytes lie in, in order; nil spans mean all.
func pagesOf(spans []span, size int) func(yield func(int) bool) {
	if spans == nil {
		spans = []span{{0, uint64(size)}}
	}
	return func(yield func(int) bool) {
		next := 0
		for _, s := range spans {
			last := int(min(s.end, uint64(size))+snapPage-1) / snapPage
			for next = max(next, int(min(s.start, uint64(size)))/snapPage); next < last; next++ {
				if !yield(next) {
					return
				}
			}
		}
	}
}
