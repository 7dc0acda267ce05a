package cell

import (
	"cmp"
	"slices"

	"github.com/tetratelabs/wazero/experimental"
)

// memory is the linear memory of one cell. It holds the image's bytes at the start and never moves.
type memory interface {
	experimental.LinearMemory
	// limit sets how far the guest may grow it, in bytes.
	limit(bytes uint64)
	// denied reports whether growth was refused since the last reset; and short, because of the budget.
	denied() bool
	short() bool
	// reset makes it the image again, if it still has the image's size; else it reports false.
	reset() bool
	// grown reports whether it is larger than the image by more than muchGrown.
	grown() bool
	// free gives back the pages of a piece, whose bytes are lost, and reports whether there is more. Only Free may follow the last.
	free() bool
	// touched returns all spans that may not be zero, or nil when it cannot tell.
	touched() []span
	// written returns all spans that may differ from the image, or nil when it cannot tell.
	written() []span
}

// backing is the image's side: the bytes that memories begin with. It is safe for concurrent use.
type backing interface {
	newMemory(reserve uint64) (memory, error)
	// content returns the image's bytes, which the caller must not change, and the spans outside of which they are zero; nil
	// spans mean anywhere.
	content() ([]byte, []span, error)
	close() error
}

// pageSize is a page of WebAssembly memory.
const pageSize = 64 << 10

// muchGrown is how many bytes of fresh pages take a part of a slice to touch, and to free.
const muchGrown = 2 << 20

// span is a range of a memory, in whole pages of the system.
type span struct{ start, end uint64 }

// union joins two lists of spans, each in order and without overlap.
func union(a, b []span) []span {
	all := slices.Concat(a, b)
	slices.SortFunc(all, func(x, y span) int { return cmp.Compare(x.start, y.start) })
	out := []span{}
	for _, s := range all {
		if n := len(out); n > 0 && s.start <= out[n-1].end {
			out[n-1].end = max(out[n-1].end, s.end)
			continue
		}
		out = append(out, s)
	}
	return out
}
