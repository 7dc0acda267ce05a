package cell

import "bytes"

// copied is the backing for systems without copy-on-write files: each memory is a copy.
type copied struct {
	bytes  []byte
	budget *budget
}

func newCopied(b []byte, all *budget) *copied { return &copied{bytes.Clone(b), all} }

func (c *copied) close() error { return nil }

func (c *copied) content() ([]byte, []span, error) { return c.bytes, nil, nil }

func (c *copied) newMemory(reserve uint64) (memory, error) {
	if !c.budget.take(int64(len(c.bytes))) {
		return nil, errBudget
	}
	m := &copiedMemory{image: c.bytes, most: reserve, budget: c.budget}
	m.buf = make([]byte, len(c.bytes), max(len(c.bytes), 1))
	copy(m.buf, c.bytes)
	return m, nil
}

type copiedMemory struct {
	image   []byte
	buf     []byte
	most    uint64
	budget  *budget
	refused bool
	starved bool
}

func (m *copiedMemory) limit(n uint64)  { m.most = n }
func (m *copiedMemory) denied() bool    { return m.refused }
func (m *copiedMemory) short() bool     { return m.starved }
func (m *copiedMemory) touched() []span { return nil }
func (m *copiedMemory) written() []span { return nil }
func (m *copiedMemory) grown() bool     { return len(m.buf) > len(m.image)+muchGrown }
func (m *copiedMemory) free() bool      { return false } // the garbage collector does

func (m *copiedMemory) Free() {
	m.budget.give(int64(len(m.buf)))
	m.buf = nil
}

func (m *copiedMemory) Reallocate(size uint64) []byte {
	if size <= uint64(len(m.buf)) {
		return m.buf[:max(size, uint64(len(m.buf)))]
	}
	if size > m.most {
		m.refused = true
		return nil
	}
	if !m.budget.take(int64(size) - int64(len(m.buf))) {
		m.refused, m.starved = true, true
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
	m.refused, m.starved = false, false
	if len(m.buf) != len(m.image) {
		return false
	}
	copy(m.buf, m.image)
	return true
}
