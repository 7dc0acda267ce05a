//go:build linux

package bare

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"unsafe"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"golang.org/x/sys/unix"

	"github.com/skep-dev/skep/host/prep"
)

// reserve is the address space of an instance from an image.
const reserve = 64 << 20

// Image is a prepared module's memory and globals after its initialisers ran.
type Image struct {
	engine  *Engine
	code    wazero.CompiledModule
	module  *prep.Module
	fd      int
	size    uint64
	globals []uint64
}

// Image runs init in an instance of m and keeps what it then is. Close frees it.
func (e *Engine) Image(ctx context.Context, m *prep.Module, init func(*Instance) error) (*Image, error) {
	code, err := e.runtime.CompileModule(ctx, m.Code)
	if err != nil {
		return nil, err
	}
	blank := &Image{engine: e, code: code, module: m, size: uint64(m.MinPages) << 16}
	if blank.fd, err = memfd(make([]byte, blank.size)); err != nil {
		return nil, err
	}
	defer func() { _ = blank.Close() }()
	first, err := blank.Fresh(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = first.Close() }()
	for _, s := range m.Data {
		copy(first.Memory()[s.Offset:], s.Data)
	}
	if m.HasStart {
		if _, err := first.Call(prep.StartName); err != nil {
			return nil, err
		}
	}
	if err := init(first); err != nil {
		return nil, err
	}
	img := &Image{engine: e, code: code, module: m, size: uint64(len(first.Memory()))}
	for _, g := range first.globals {
		img.globals = append(img.globals, g.Get())
	}
	img.fd, err = memfd(first.Memory())
	return img, err
}

// Close frees the image when its instances are closed.
func (i *Image) Close() error { return unix.Close(i.fd) }

// Fresh returns an instance that begins as the image, in a mapping of its own.
func (i *Image) Fresh(ctx context.Context) (*Instance, error) {
	var mem *mapping
	var failed error
	alloc := experimental.MemoryAllocatorFunc(func(_, _ uint64) experimental.LinearMemory {
		if mem, failed = i.mmap(); failed != nil {
			panic(failed)
		}
		return mem
	})
	ctx = experimental.WithMemoryAllocator(ctx, alloc)
	m, err := i.engine.runtime.InstantiateModule(ctx, i.code, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		return nil, err
	}
	x := newInstance(m, i)
	x.mem = mem
	for _, g := range i.module.Globals {
		x.globals = append(x.globals, m.ExportedGlobal(g.Name).(api.MutableGlobal))
	}
	m.ExportedGlobal(prep.FuelGlobal).(api.MutableGlobal).Set(math.MaxInt64)
	x.setGlobals()
	return x, nil
}

func (x *Instance) setGlobals() {
	for n, v := range x.image.globals {
		x.globals[n].Set(v)
	}
}

// Reset makes an instance that came from Fresh, and whose memory has not grown, the image again, where it is.
func (x *Instance) Reset() error {
	x.setGlobals()
	return unix.Madvise(x.mem.bytes(x.image.size), unix.MADV_DONTNEED)
}

func memfd(b []byte) (int, error) {
	fd, err := unix.MemfdCreate("bare-image", unix.MFD_CLOEXEC)
	if err != nil {
		return -1, err
	}
	if err := unix.Ftruncate(fd, int64(len(b))); err != nil {
		return -1, err
	}
	zero := make([]byte, 4<<10)
	for at := 0; at < len(b); at += len(zero) {
		page := b[at : at+len(zero)]
		if bytes.Equal(page, zero) {
			continue
		}
		if _, err := unix.Pwrite(fd, page, int64(at)); err != nil {
			return -1, err
		}
	}
	return fd, nil
}

// mapping is the memory of one instance: the image, then nothing.
type mapping struct {
	base  unsafe.Pointer
	image uint64 // bytes that it begins with, which may be more than the module's own minimum
}

func (i *Image) mmap() (*mapping, error) {
	const rw = unix.PROT_READ | unix.PROT_WRITE
	base, err := unix.MmapPtr(-1, 0, nil, reserve, rw, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("reserve: %w", err)
	}
	if _, err := unix.MmapPtr(i.fd, 0, base, uintptr(i.size), rw, unix.MAP_PRIVATE|unix.MAP_FIXED|unix.MAP_NORESERVE); err != nil {
		return nil, fmt.Errorf("map: %w", err)
	}
	return &mapping{base, i.size}, nil
}

func (m *mapping) bytes(n uint64) []byte { return unsafe.Slice((*byte)(m.base), n)[:n:n] }

func (m *mapping) Reallocate(size uint64) []byte {
	if size > reserve {
		return nil
	}
	return m.bytes(max(size, m.image))
}

func (m *mapping) Free() { _ = unix.MunmapPtr(m.base, reserve) }
