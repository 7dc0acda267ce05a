package cell

import (
	"bytes"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

const osPage = 4 << 10

// memories makes backings.
type memories struct {
	copying bool
	scan    *pageScanner
	budget  *budget
}

func newMemories(copying bool, all *budget) *memories {
	return &memories{copying: copying, scan: newPageScanner(), budget: all}
}

func (m *memories) close() { m.scan.close() }

// mapped is the backing whose memories are private, copy-on-write mappings of one sealed memfd. Sealing matters: a file
// that shrank under its mapping would end the process.
type mapped struct {
	fd   int
	size uint64
	full []span // all pages that are not zero lie in these
	view []byte // the file, mapped for reading; nil when that failed
	scan *pageScanner
	all  *budget
}

// backing returns copy-on-write backing that holds b, whose length is a multiple of pageSize. What lies outside of full
// is zero; nil means anything may be anywhere.
func (m *memories) backing(b []byte, full []span) (backing, error) {
	if m.copying {
		return newCopied(b, m.budget), nil
	}
	fd, err := unix.MemfdCreate("skep-image", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return newCopied(b, m.budget), nil //nolint:nilerr // a system without memfd copies
	}
	if full == nil {
		full = []span{{0, uint64(len(b))}}
	}
	back := &mapped{fd: fd, size: uint64(len(b)), scan: m.scan, all: m.budget}
	if err := back.fill(b, full); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("make an image: %w", err)
	}
	if back.size > 0 {
		back.view, _ = unix.Mmap(fd, 0, int(back.size), unix.PROT_READ, unix.MAP_SHARED)
	}
	return back, nil
}

// fill writes what is not zero of b, in runs of pages, and seals the file.
func (m *mapped) fill(b []byte, spans []span) error {
	if err := unix.Ftruncate(m.fd, int64(len(b))); err != nil {
		return err
	}
	zero := make([]byte, osPage)
	write := func(run span) error {
		if run.start == run.end {
			return nil
		}
		m.full = append(m.full, run)
		_, err := unix.Pwrite(m.fd, b[run.start:run.end], int64(run.start))
		return err
	}
	for _, s := range spans {
		run := span{s.start, s.start}
		for at := s.start; at < s.end; at += osPage {
			if !bytes.Equal(b[at:at+osPage], zero) {
				run.end = at + osPage
				continue
			}
			if err := write(run); err != nil {
				return err
			}
			run = span{at + osPage, at + osPage}
		}
		if err := write(run); err != nil {
			return err
		}
	}
	const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE | unix.F_SEAL_SEAL
	_, err := unix.FcntlInt(uintptr(m.fd), unix.F_ADD_SEALS, seals)
	return err
}

func (m *mapped) close() error {
	if m.view != nil {
		_ = unix.Munmap(m.view)
		m.view = nil
	}
	return unix.Close(m.fd)
}

var errNoView = errors.New("the image could not be mapped for reading")

func (m *mapped) content() ([]byte, []span, error) {
	if m.view == nil && m.size > 0 {
		return nil, nil, errNoView
	}
	return m.view, m.full, nil
}

// newMemory reserves address space and maps the image at its start. What lies above is inaccessible until the guest
// grows into it, so that it does not count as memory in use.
func (m *mapped) newMemory(reserve uint64) (memory, error) {
	if !m.all.take(int64(m.size)) {
		return nil, errBudget
	}
	reserve = max(reserve, m.size, osPage)
	const anonymous = unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_NORESERVE
	base, err := unix.MmapPtr(-1, 0, nil, uintptr(reserve), unix.PROT_NONE, anonymous)
	if err != nil {
		m.all.give(int64(m.size))
		return nil, fmt.Errorf("reserve memory for a cell: %w", err)
	}
	mem := &mappedMemory{image: m, base: base, reserve: reserve, size: m.size, most: reserve}
	if m.size > 0 {
		const private = unix.MAP_PRIVATE | unix.MAP_FIXED | unix.MAP_NORESERVE
		if _, err := unix.MmapPtr(m.fd, 0, base, uintptr(m.size), unix.PROT_READ|unix.PROT_WRITE, private); err != nil {
			mem.Free()
			return nil, fmt.Errorf("map an image: %w", err)
		}
	}
	return mem, nil
}

type mappedMemory struct {
	image   *mapped
	base    unsafe.Pointer
	reserve uint64
	size    uint64 // accessible bytes
	most    uint64
	refused bool
	starved bool
	freed   uint64 // bytes from the start, see free
}

func (m *mappedMemory) limit(n uint64) { m.most = min(n, m.reserve) }
func (m *mappedMemory) denied() bool   { return m.refused }
func (m *mappedMemory) short() bool    { return m.starved }

func (m *mappedMemory) bytes(n uint64) []byte { return unsafe.Slice((*byte)(m.base), n)[:n:n] }

func (m *mappedMemory) Reallocate(size uint64) []byte {
	if size > m.size {
		if size > m.most {
			m.refused = true
			return nil
		}
		if !m.image.all.take(int64(size - m.size)) {
			m.refused, m.starved = true, true
			return nil
		}
		more := unsafe.Slice((*byte)(m.base), m.reserve)[m.size:size]
		if err := unix.Mprotect(more, unix.PROT_READ|unix.PROT_WRITE); err != nil {
			m.image.all.give(int64(size - m.size))
			m.refused, m.starved = true, true
			return nil
		}
		m.size = size
	}
	return m.bytes(m.size)
}

func (m *mappedMemory) Free() {
	if m.base == nil {
		return
	}
	_ = unix.MunmapPtr(m.base, uintptr(m.reserve))
	m.image.all.give(int64(m.size))
	m.base = nil
}

func (m *mappedMemory) grown() bool { return m.size > m.image.size+muchGrown }

func (m *mappedMemory) free() bool {
	end := min(m.freed+muchGrown, m.size)
	_ = unix.Madvise(m.bytes(m.size)[m.freed:end], unix.MADV_DONTNEED) // what stays is freed with the rest
	m.freed = end
	return end < m.size
}

func (m *mappedMemory) reset() bool {
	m.refused, m.starved = false, false
	if m.size != m.image.size {
		return false
	}
	return m.size == 0 || m.image.scan.restore(m) || m.drop()
}

// drop gives back every page that was written: the next access sees the image again.
func (m *mappedMemory) drop() bool {
	return unix.Madvise(m.bytes(m.size), unix.MADV_DONTNEED) == nil
}

func (m *mappedMemory) written() []span {
	written, ok := m.image.scan.all(m)
	if ok && written == nil {
		return []span{}
	}
	return written
}

// touched returns the spans that may not be zero: those of the image and those that were written since.
func (m *mappedMemory) touched() []span {
	written, ok := m.image.scan.all(m)
	if !ok {
		return nil
	}
	return union(m.image.full, written)
}
