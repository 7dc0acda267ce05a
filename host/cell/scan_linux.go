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

// pageScanner restores the memories of one image.
type pageScanner struct {
	image   []byte // the image, mapped for reading; nil when the kernel cannot scan
	pagemap int
	vecs    sync.Pool
}

// newPageScanner maps the image of size bytes in fd for reading.
func newPageScanner(fd int, size uint64) *pageScanner {
	s := &pageScanner{pagemap: -1, vecs: sync.Pool{New: func() any { return new([scanRegions]pageRegion) }}}
	if size == 0 {
		return s
	}
	pagemap, err := unix.Open("/proc/self/pagemap", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return s
	}
	image, err := unix.Mmap(fd, 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		_ = unix.Close(pagemap)
		return s
	}
	s.pagemap, s.image = pagemap, image
	return s
}

func (s *pageScanner) close() {
	if s.image == nil {
		return
	}
	_ = unix.Close(s.pagemap)
	_ = unix.Munmap(s.image)
	s.image = nil
}

// restore makes m the image again and reports whether it could.
func (s *pageScanner) restore(m *mappedMemory) bool {
	if s.image == nil {
		return m.drop()
	}
	vec := s.vecs.Get().(*[scanRegions]pageRegion)
	defer s.vecs.Put(vec)
	n, ok := s.written(m, vec)
	if !ok {
		return m.drop()
	}
	base := uint64(uintptr(m.base))
	mem := m.bytes(m.size)
	for _, r := range vec[:n] {
		copy(mem[r.start-base:r.end-base], s.image[r.start-base:r.end-base])
	}
	return true
}

// written finds the regions that m's guest wrote. ok is false when there are too many, or the scan failed.
func (s *pageScanner) written(m *mappedMemory, vec *[scanRegions]pageRegion) (n int, ok bool) {
	start := uint64(uintptr(m.base))
	arg := pmScanArg{
		size: scanArgBytes, start: start, end: start + m.size,
		vec: uint64(uintptr(unsafe.Pointer(vec))), vecLen: scanRegions, maxPages: keepPages + 1,
		categoryInverted: pageIsFile, categoryMask: pageIsFile, categoryAny: pageIsThere | pageIsSwap, returnAll: pageIsFile,
	}
	r, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(s.pagemap), pagemapScan, uintptr(unsafe.Pointer(&arg)))
	if e != 0 || arg.walkEnd != arg.end {
		return 0, false
	}
	return int(r), true
}
