package extism

import (
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
	"github.com/skep-dev/skep/host/wasi"
)

// guest is what the host keeps with a cell for one call.
type guest struct {
	heap   heap
	stdio  wasi.State
	config map[string]string
	vars   map[string][]byte // unless they are kept
	kept   bool              // variables outlive the call, see vars.go

	input, output place
	failure       uint64 // offset of the error message, or 0

	status  int // of the last HTTP response
	headers map[string]string
}

// place is where bytes lie in the heap.
type place struct{ at, n uint64 }

// WASI implements wasi.Holder.
func (g *guest) WASI() *wasi.State { return &g.stdio }

// initialising stands in the guest's place while its image is made, when there is no call yet to ask about.
type initialising struct{ stdio wasi.State }

func (i *initialising) WASI() *wasi.State { return &i.stdio }

// errEarly ends an initialiser that asks its host about a call. Each call of such a module initialises its own cell.
var errEarly = &agent.Error{
	Kind: agent.Invalid, Msg: "the module's start function calls its host; only exported functions and _initialize may",
}

// newGuest sets c up for a call. Its heap builds on arena.
func newGuest(c *cell.Cell, arena []byte, call Call) (*guest, error) {
	input := call.Input.Body
	h, ok := newHeap(c.Hold, arena, input)
	if !ok {
		return nil, full(c)
	}
	g := &guest{heap: h, config: call.Config, kept: call.Vars}
	if len(input) > 0 {
		g.input = place{heapStart, uint64(len(input))}
	}
	c.Guest = g
	return g, nil
}

func guestOf(c *cell.Cell) *guest {
	g, ok := c.Guest.(*guest)
	if !ok {
		c.Fail(errEarly)
	}
	return g
}

func full(c *cell.Cell) error {
	return agent.Exceeded(agent.LimitMemory, "the code asked for more memory than its limit of %d bytes", c.Env().Limits.Memory)
}

// alloc makes a block or ends the cell. Clearing one of n bytes takes about as long as n/8 instructions.
func (g *guest) alloc(c *cell.Cell, n uint64) uint64 {
	c.Spend(int64(min(n, maxBlock) / 8))
	at, ok := g.heap.alloc(n)
	if !ok {
		c.Fail(full(c))
	}
	return at
}

// put makes a block that holds b. An empty one is 0.
func (g *guest) put(c *cell.Cell, b []byte) uint64 {
	c.Spend(int64(len(b)))
	at := g.alloc(c, uint64(len(b)))
	copy(g.heap.block(at), b)
	return at
}

// take returns a block as a string and frees it, as Extism hosts do with what they are passed. A block that is not there
// is empty.
func (g *guest) take(c *cell.Cell, at uint64) string {
	s := g.text(c, at)
	g.heap.release(at)
	return s
}

func (g *guest) text(c *cell.Cell, at uint64) string {
	b := g.heap.block(at)
	c.Spend(int64(len(b)))
	return string(b)
}

// message returns the error that the guest has set, or "".
func (g *guest) message() string {
	const most = 16 << 10
	b := g.heap.block(g.failure)
	if len(b) > most {
		return strings.ToValidUTF8(string(b[:most]), "") + "..."
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}
