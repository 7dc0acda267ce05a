package cell

import "github.com/tetratelabs/wazero/experimental"

// memory is the linear memory of one cell. It holds the image's bytes at the start and never moves.
type memory interface {
	experimental.LinearMemory
	// limit sets how far the guest may grow it, in bytes.
	limit(bytes uint64)
	// denied reports whether growth was refused since the last reset.
	denied() bool
	// reset makes it the image again, if it still has the image's size; else it reports false.
	reset() bool
}

// backing is the image's side: the bytes that memories begin with. It is safe for concurrent use.
type backing interface {
	newMemory(reserve uint64) (memory, error)
	close() error
}

// pageSize is a page of WebAssembly memory.
const pageSize = 64 << 10
