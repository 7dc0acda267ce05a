package extism

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

func TestSizeClass(t *testing.T) {
	last, lastRoom := -1, uint32(0)
	for _, n := range sizes() {
		class, room := sizeClass(n)
		if room < n || room%16 != 0 || n > 256 && room-n > n/4 || class >= classes {
			t.Errorf("%d bytes: class %d of %d bytes", n, class, room)
		}
		if again, same := sizeClass(room); again != class || same != room {
			t.Errorf("%d bytes have class %d of %d, which has %d of %d", n, class, room, again, same)
		}
		if class < last || (class == last) != (room == lastRoom) {
			t.Errorf("%d bytes: class %d of %d after class %d of %d", n, class, room, last, lastRoom)
		}
		last, lastRoom = class, room
	}
	if last != classes-1 {
		t.Errorf("the largest class is %d, want %d", last, classes-1)
	}
}

func sizes() []uint32 {
	var ns []uint32
	for n := uint32(1); n < 5000; n++ {
		ns = append(ns, n)
	}
	for bit := 13; bit <= 30; bit++ {
		ns = append(ns, 1<<bit-1, 1<<bit)
		if bit < 30 {
			ns = append(ns, 1<<bit+1, 3<<(bit-1))
		}
	}
	return ns
}

// model is the heap as its users see it.
type model struct {
	blocks map[uint64][]byte
	order  []uint64 // live blocks, for choosing one
}

func (m *model) drop(i int) {
	delete(m.blocks, m.order[i])
	m.order = append(m.order[:i], m.order[i+1:]...)
}

// TestHeapClearsArena looks for what an earlier call has left behind.
func TestHeapClearsArena(t *testing.T) {
	for n := range 70 {
		input := bytes.Repeat([]byte{1}, n)
		h, ok := newHeap(func(int64) bool { return true }, bytes.Repeat([]byte{0xee}, 4096), input)
		if !ok {
			t.Fatal("refused")
		}
		if !bytes.Equal(h.block(heapStart), input) {
			t.Errorf("input of %d: %x", n, h.block(heapStart))
		}
		if _, ok := h.alloc(100); !ok {
			t.Fatal("refused")
		}
		h.release(heapStart)
		if i := bytes.IndexByte(h.bytes, 0xee); i >= 0 {
			t.Errorf("input of %d: byte %d of an earlier call can be read", n, i)
		}
		h.reset()
		if _, ok := h.alloc(200); !ok {
			t.Fatal("refused")
		}
		if i := bytes.IndexByte(h.bytes, 0xee); i >= 0 {
			t.Errorf("after a reset: byte %d of an earlier call can be read", i)
		}
	}
}

// FuzzHeap reads each three bytes of its input as an operation with two operands.
func FuzzHeap(f *testing.F) {
	f.Add([]byte("\x00\x05\x00\x00\x60\x01\x02\x00\x07\x01\x00\x00\x00\x05\x00\x03\x01\x00\x04\x00\x00"))
	f.Add(bytes.Repeat([]byte{0, 16, 0, 0, 200, 9, 2, 0, 1, 1, 1, 0}, 40))
	f.Fuzz(func(t *testing.T, ops []byte) {
		held := int64(0)
		dirty := bytes.Repeat([]byte{0xee}, 1<<12)
		h, _ := newHeap(func(n int64) bool {
			if held+n > 1<<20 {
				return false
			}
			held += n
			return true
		}, dirty, nil)
		m := &model{blocks: map[uint64][]byte{}}
		for ; len(ops) >= 3; ops = ops[3:] {
			step(t, &h, m, ops[0], ops[1], ops[2])
			if held < 0 {
				t.Fatalf("%d bytes are held", held)
			}
		}
		for at, want := range m.blocks {
			if got := h.block(at); !bytes.Equal(got, want) {
				t.Fatalf("block %d holds %x, want %x", at, got, want)
			}
		}
	})
}

func step(t *testing.T, h *heap, m *model, op, x, y byte) {
	choose := func() int { return int(y) % len(m.order) }
	switch op % 6 {
	case 0:
		n := uint64(x) * (uint64(y) + 1)
		at, ok := h.alloc(n)
		switch {
		case n == 0:
			if at != 0 || !ok {
				t.Fatalf("an empty block at %d", at)
			}
		case ok:
			if _, twice := m.blocks[at]; twice || at == 0 || at%16 != 0 {
				t.Fatalf("a new block at %d", at)
			}
			m.blocks[at] = bytes.Clone(h.block(at))
			m.order = append(m.order, at)
			if uint64(len(m.blocks[at])) != n {
				t.Fatalf("%d bytes of %d", len(m.blocks[at]), n)
			}
		}
	case 1:
		if len(m.order) > 0 {
			i := choose()
			h.release(m.order[i])
			h.release(m.order[i]) // twice is once
			m.drop(i)
		}
	case 2, 3:
		if len(m.order) == 0 {
			return
		}
		at := m.order[choose()]
		b := m.blocks[at]
		if len(b) < 8 {
			return
		}
		i := uint64(int(x) % (len(b) - 7))
		if op%6 == 2 {
			v := uint64(x)*0x0101010101010101 + uint64(y)
			binary.LittleEndian.PutUint64(b[i:], v)
			if !h.store(at+i, v) {
				t.Fatalf("store at %d of a block of %d", i, len(b))
			}
		} else if v, ok := h.load(at + i); !ok || v != binary.LittleEndian.Uint64(b[i:]) {
			t.Fatalf("loaded %x, want %x", v, b[i:])
		}
	case 4:
		at := uint64(x)<<8 | uint64(y)
		if got, want := len(h.block(at)), len(m.blocks[at]); got != want {
			t.Fatalf("block %d has %d bytes, want %d", at, got, want)
		}
		for _, far := range []uint64{^uint64(0) - at, uint64(len(h.bytes)) + at, uint64(len(h.bytes)) - 7, at % heapStart} {
			if _, ok := h.load(far); ok {
				t.Fatalf("loaded at %d of %d", far, len(h.bytes))
			}
			if h.store(far, 0) {
				t.Fatalf("stored at %d of %d", far, len(h.bytes))
			}
			if _, ok := h.span(far, ^uint64(0)-at); ok {
				t.Fatalf("span at %d of %d", far, len(h.bytes))
			}
			h.release(far)
		}
	case 5:
		if x == 7 {
			h.reset()
			*m = model{blocks: map[uint64][]byte{}}
		}
	}
}

// TestHeapLikeKernel gives the same orders to the heap and to the kernel that Extism's own hosts use, and compares what
// both say of each block.
func TestHeapLikeKernel(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/extism/go-sdk").Output()
	if err != nil {
		t.Fatal(err)
	}
	wasm, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), "extism-runtime.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	r := wazero.NewRuntime(ctx)
	defer func() { _ = r.Close(ctx) }()
	kernel, err := r.Instantiate(ctx, wasm)
	if err != nil {
		t.Fatal(err)
	}
	k := func(name string, args ...uint64) uint64 { return kernelCall(t, kernel, name, args...) }
	h, _ := newHeap(func(int64) bool { return true }, nil, nil)

	type pair struct{ ours, theirs uint64 }
	var live, freed []pair
	next := uint64(1)
	random := func(n uint64) uint64 {
		next = next*6364136223846793005 + 1442695040888963407
		return next >> 33 % n
	}
	for i := range 5000 {
		switch op := random(5); {
		case op < 2 || len(live) == 0:
			n := random(700)
			at, ok := h.alloc(n)
			p := pair{at, k("alloc", n)}
			if !ok || (p.ours == 0) != (p.theirs == 0) {
				t.Fatalf("%d: alloc(%d) = %d, the kernel has %d", i, n, p.ours, p.theirs)
			}
			if at != 0 {
				live = append(live, p)
			}
		case op == 2:
			j := random(uint64(len(live)))
			h.release(live[j].ours)
			k("free", live[j].theirs)
			freed = append(freed, live[j])
			live = append(live[:j], live[j+1:]...)
		default:
			p := live[random(uint64(len(live)))]
			n := uint64(len(h.block(p.ours)))
			if want := k("length", p.theirs); n != want {
				t.Fatalf("%d: length %d, the kernel has %d", i, n, want)
			}
			at, v := random(n), random(256)
			h.bytes[p.ours+at] = byte(v)
			k("store_u8", p.theirs+at, v)
			for j := range n / 8 {
				ours, ok := h.load(p.ours + 8*j)
				if theirs := k("load_u64", p.theirs+8*j); j == at/8 && (!ok || byte(ours>>(8*(at%8))) != byte(theirs>>(8*(at%8)))) {
					t.Fatalf("%d: loaded %x, the kernel has %x", i, ours, theirs)
				}
			}
		}
	}
	for _, p := range live {
		if got, want := uint64(len(h.block(p.ours+1))), k("length", p.theirs+1); got != want {
			t.Errorf("length within a block is %d, the kernel has %d", got, want)
		}
	}
}

func kernelCall(t *testing.T, kernel api.Module, name string, args ...uint64) uint64 {
	t.Helper()
	res, err := kernel.ExportedFunction(name).Call(context.Background(), args...)
	if err != nil {
		t.Fatalf("kernel %s: %v", name, err)
	}
	if len(res) == 0 {
		return 0
	}
	return res[0]
}
