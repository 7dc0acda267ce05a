package cell

import (
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A used cell could be made new by dropping every page it wrote (MADV_DONTNEED). Each such page then costs its next life
// a fault, some microseconds under a hypervisor, and a call touches dozens. So the pages that were written are found with
// the kernel's page scan and filled again from the image where they are: the working set stays mapped and costs a copy.
// A page of a private mapping that was ever written is anonymous, and one that was not is the file's; the kernel decides
// this, not the guest, so nothing can be missed. Cells that wrote a lot are dropped after all, to give memory back.
const (
	scanRegions  = 256
	keepPages    = 512 // at most this many written pages are kept mapped, 2 MiB
	pagemapScan  = 0xc0606610
	pageIsFile   = 1 << 2
	pageIsThere  = 1 << 3
	pageIsSwap   = 1 << 4
	scanArgBytes = 96
)

// pmScanArg is struct pm_scan_arg of the kernel's include/uapi/linux/fs.h (Linux 6.7 and newer).
type pmScanArg struct {
	size, flags                                            uint64
	start, end, walkEnd                                    uint64
	vec, vecLen, maxPages                                  uint64
	categoryInverted, categoryMask, categoryAny, returnAll uint64
}

// pageRegion is struct page_region of the same file.
type pageRegion struct{ start, end, categories uint64 }

// pageScanner finds the pages that guests wrote.
type pageScanner struct {
	pagemap int // -1 when the kernel cannot scan
	vecs    sync.Pool
}

func newPageScanner() *pageScanner {
	s := &pageScanner{pagemap: -1, vecs: sync.Pool{New: func() any { return new([scanRegions]pageRegion) }}}
	if fd, err := unix.Open("/proc/self/pagemap", unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
		s.pagemap = fd
		page := make([]byte, 2*osPage)
		start := (uint64(uintptr(unsafe.Pointer(&page[0]))) + osPage - 1) &^ (osPage - 1)
		if _, _, ok := s.find(start, start+osPage, 1, new([scanRegions]pageRegion)); !ok {
			s.close()
		}
	}
	return s
}

func (s *pageScanner) works() bool { return s.pagemap >= 0 }

func (s *pageScanner) close() {
	if s.works() {
		_ = unix.Close(s.pagemap)
		s.pagemap = -1
	}
}

// restore makes m the image again by copying what was written. It reports false when it did nothing, because the kernel
// cannot tell or too much was written.
func (s *pageScanner) restore(m *mappedMemory) bool {
	if m.image.view == nil {
		return false
	}
	vec := s.vecs.Get().(*[scanRegions]pageRegion)
	defer s.vecs.Put(vec)
	start := uint64(uintptr(m.base))
	n, reached, ok := s.find(start, start+m.size, keepPages+1, vec)
	if !ok || reached != start+m.size {
		return false
	}
	mem := m.bytes(m.size)
	for _, r := range vec[:n] {
		copy(mem[r.start-start:r.end-start], m.image.view[r.start-start:r.end-start])
	}
	return true
}

// all returns every span of m that was written, in order.
func (s *pageScanner) all(m *mappedMemory) (spans []span, ok bool) {
	if !s.works() {
		return nil, false
	}
	vec := s.vecs.Get().(*[scanRegions]pageRegion)
	defer s.vecs.Put(vec)
	start := uint64(uintptr(m.base))
	for at, end := start, start+m.size; at < end; {
		n, reached, ok := s.find(at, end, 0, vec)
		if !ok || reached <= at {
			return nil, false
		}
		for _, r := range vec[:n] {
			spans = append(spans, span{r.start - start, r.end - start})
		}
		at = reached
	}
	return spans, true
}

// find fills vec with the regions between two addresses that were written, up to a number of pages (0 means any), and
// returns how many there are and how far it came.
func (s *pageScanner) find(start, end, pages uint64, vec *[scanRegions]pageRegion) (n int, reached uint64, ok bool) {
	arg := pmScanArg{
		size: scanArgBytes, start: start, end: end,
		vec: uint64(uintptr(unsafe.Pointer(vec))), vecLen: scanRegions, maxPages: pages,
		categoryInverted: pageIsFile, categoryMask: pageIsFile, categoryAny: pageIsThere | pageIsSwap, returnAll: pageIsFile,
	}
	r, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(s.pagemap), pagemapScan, uintptr(unsafe.Pointer(&arg)))
	return int(r), arg.walkEnd, e == 0
}
