package cell

import "bytes"

// copied is the backing for systems without copy-on-write files: each memory is a copy.
type copied struct{ bytes []byte }

func newCopied(b []byte) *copied { return &copied{bytes.Clone(b)} }

func (c *copied) close() error { return nil }

func (c *copied) newMemory(reserve uint64) (memory, error) {
	m := &copiedMemory{image: c.bytes, most: reserve}
	m.buf = make([]byte, len(c.bytes), max(len(c.bytes), 1))
	copy(m.buf, c.bytes)
	return m, nil
}

type copiedMemory struct {
	image   []byte
	buf     []byte
	most    uint64
	refused bool
}

func (m *copiedMemory) limit(n uint64)  { m.most = n }
func (m *copiedMemory) denied() bool    { return m.refused }
func (m *copiedMemory) Free()           { m.buf = nil }
func (m *copiedMemory) touched() []span { return nil }

func (m *copiedMemory) Reallocate(size uint64) []byte {
	if size <= uint64(len(m.buf)) {
		return m.buf[:max(size, uint64(len(m.buf)))]
	}
	if size > m.most {
		m.refused = true
		return nil
	}
	if size > uint64(cap(m.buf)) {
		grown := make([]byte, len(m.buf), size+size/4)
		copy(grown, m.buf)
		m.buf = grown
	}
	m.buf = m.buf[:size]
	return m.buf
}

func (m *copiedMemory) reset() bool {
	m.refused = false
	if len(m.buf) != len(m.image) {
		return false
	}
	copy(m.buf, m.image)
	return true
}
