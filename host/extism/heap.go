package extism

import (
	"encoding/binary"
	"math/bits"
)

// heap holds the memory blocks through which a module and its host pass bytes, as the Extism kernel does. An offset is an
// index into one run of bytes, so that loads and stores anywhere in it are cheap; what the blocks are is kept beside it,
// out of the guest's reach.
//
// Blocks come in classes of size and are reused within their class, so that allocating and freeing take the same short
// time whatever the guest does.
type heap struct {
	hold   func(n int64) bool // accounts for n more bytes; false when the limit is reached
	bytes  []byte
	blocks []block // by rising offset
	free   [classes][]uint32
}

type block struct {
	at, room, used uint32
	live           bool
}

const (
	heapStart = 16 // offsets below are never given out: 0 means no block
	blockCost = 32 // bytes that the host keeps for each block
	maxBlock  = 1 << 30
	fine      = 8 // classes of 16, 32, ... 128 bytes; above, four for each doubling
	classes   = fine + 4*(30-7)
)

// newHeap returns a heap whose first block holds input, unless that is empty. It builds on arena, whatever that holds. It
// reports false when memory is at its limit.
func newHeap(hold func(n int64) bool, arena, input []byte) (heap, bool) {
	h := heap{hold: hold, bytes: append(arena[:0], make([]byte, heapStart)...)}
	if len(input) == 0 {
		return h, true
	}
	room := (len(input) + 15) &^ 15
	if len(input) > maxBlock || !hold(int64(room)+blockCost) {
		return h, false
	}
	h.bytes = append(append(h.bytes, input...), make([]byte, room-len(input))...)
	h.blocks = []block{{at: heapStart, room: uint32(room), used: uint32(len(input)), live: true}}
	return h, true
}

// sizeClass returns the class for n bytes, and how many its blocks have.
func sizeClass(n uint32) (class int, room uint32) {
	if n <= 16*fine {
		room = (n + 15) &^ 15
		return int(room/16) - 1, room
	}
	double := bits.Len32(n - 1) // n is in (2^(double-1), 2^double]
	half := uint32(1) << (double - 1)
	step := half / 4
	room = (n + step - 1) / step * step
	return fine + 4*(double-8) + int((room-half)/step) - 1, room
}

// alloc returns the offset of a new block of n bytes, which are not cleared, or 0 when n is 0. It reports false when
// memory is at its limit.
func (h *heap) alloc(n uint64) (at uint64, ok bool) {
	if n == 0 {
		return 0, true
	}
	if n > maxBlock {
		return 0, false
	}
	class, room := sizeClass(uint32(n))
	if list := h.free[class]; len(list) > 0 {
		b := &h.blocks[list[len(list)-1]]
		h.free[class] = list[:len(list)-1]
		b.used, b.live = uint32(n), true
		return uint64(b.at), true
	}
	if !h.hold(int64(room) + blockCost) {
		return 0, false
	}
	b := block{at: uint32(len(h.bytes)), room: room, used: uint32(n), live: true}
	h.bytes = append(h.bytes, make([]byte, room)...)
	h.blocks = append(h.blocks, b)
	return uint64(b.at), true
}

// find returns the index of the live block that begins at the offset.
func (h *heap) find(at uint64) (int, bool) {
	low, high := 0, len(h.blocks)
	for low < high {
		mid := int(uint(low+high) / 2)
		if uint64(h.blocks[mid].at) < at {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low, low < len(h.blocks) && uint64(h.blocks[low].at) == at && h.blocks[low].live
}

// release frees the block that begins at the offset. Where there is none, nothing happens.
func (h *heap) release(at uint64) {
	i, ok := h.find(at)
	if !ok {
		return
	}
	b := &h.blocks[i]
	b.live = false
	if class, room := sizeClass(b.room); room == b.room { // it need not be for the input
		h.free[class] = append(h.free[class], uint32(i))
	}
}

// block returns the bytes of the block that begins at the offset, or nil. They are valid until the next alloc.
func (h *heap) block(at uint64) []byte {
	i, ok := h.find(at)
	if !ok {
		return nil
	}
	b := h.blocks[i]
	return h.bytes[b.at:][:b.used:b.used]
}

// span returns n bytes from an offset on, which may lie anywhere in the heap.
func (h *heap) span(at, n uint64) ([]byte, bool) {
	if at < heapStart || at > uint64(len(h.bytes)) || n > uint64(len(h.bytes))-at {
		return nil, false
	}
	return h.bytes[at:][:n:n], true
}

func (h *heap) load(at uint64) (uint64, bool) {
	if at < heapStart || at > uint64(len(h.bytes)-8) {
		return 0, false
	}
	return binary.LittleEndian.Uint64(h.bytes[at:]), true
}

func (h *heap) store(at, v uint64) bool {
	if at < heapStart || at > uint64(len(h.bytes)-8) {
		return false
	}
	binary.LittleEndian.PutUint64(h.bytes[at:], v)
	return true
}

// reset frees every block.
func (h *heap) reset() {
	for _, b := range h.blocks {
		h.hold(-int64(b.room) - blockCost)
	}
	*h = heap{hold: h.hold, bytes: h.bytes[:heapStart]}
}
