package prep_test

import (
	. "github.com/skep-dev/skep/internal/wasmtest"
)

// generator writes random functions: what it draws from seed decides everything, and zeros come after its end.
//
// Function i may call those after it, f is the first. Locals 0 and 2 are i32, 1 and 3 are i64, 4 is f64.
type generator struct {
	seed  []byte
	index int // of the function that is written
	depth int
	loops []int // for each block that is open, 1 for a loop
	left  int   // statements that may still be written
}

const (
	generated = 5 // functions
	budget    = 2 // the global that counts down
	tableSize = 8
)

func generate(seed []byte) Module {
	g := &generator{seed: seed, left: 400}
	binary := Type{Params: []byte{I32, I64}, Results: []byte{I64}}
	block := Type{Params: []byte{I32}, Results: []byte{I32}}
	m := Module{
		Types:  []Type{binary, block},
		Memory: Size(1, 8),
		Table:  Size(tableSize, 64),
		Globals: []Global{
			{Type: I32, Mutable: true, Init: I32Const(3), Export: "g0"}, {Type: I64, Mutable: true, Init: I64Const(5), Export: "g1"},
			{Type: I32, Mutable: true, Init: I32Const(0), Export: "budget"},
		},
		Data: []Data{{Offset: 100, Bytes: []byte("hello, world")}, {Passive: true, Bytes: []byte("passive data, of which pieces are taken")}},
	}
	for i := range generated {
		g.index = i
		fn := Func{Type: 0, Locals: []byte{I32, I64, F64}, Body: g.function()}
		if i == 0 {
			fn.Export = "f"
		}
		m.Funcs = append(m.Funcs, fn)
		m.Elems = append(m.Elems, generated-1) // the last one calls nobody
	}
	return m
}

func (g *generator) draw(n int) int {
	if len(g.seed) == 0 {
		return 0
	}
	v := int(g.seed[0])
	g.seed = g.seed[1:]
	return v % n
}

func (g *generator) function() []byte {
	g.loops = nil
	return Code(spend(), g.statements(), g.i64(3))
}

// spend counts the budget down, and traps at its end.
func spend() []byte {
	return Code(0x23, budget, I32Const(1), 0x6b, 0x24, budget, 0x23, budget, I32Const(0), 0x48, 0x04, 0x40, 0x00, 0x0b)
}

func (g *generator) statements() []byte {
	var b []byte
	for n := g.draw(7); n >= 0 && g.left > 0; n-- {
		g.left--
		b = append(b, g.statement()...)
	}
	return b
}

// within writes statements inside a block.
func (g *generator) within(loop int) []byte {
	g.depth++
	g.loops = append(g.loops, loop)
	defer func() { g.depth--; g.loops = g.loops[:len(g.loops)-1] }()
	if g.depth > 6 {
		return nil
	}
	return g.statements()
}

func (g *generator) statement() []byte {
	switch g.draw(22) {
	case 0:
		return Code(g.i32(3), 0x21, 2*g.draw(2))
	case 1:
		return Code(g.i64(3), 0x21, 1+2*g.draw(2))
	case 2:
		return Code(g.f64(), 0x21, 4)
	case 3:
		return Code(g.i32(2), 0x24, 0)
	case 4:
		return Code(g.i64(2), 0x24, 1)
	case 5:
		return Code(g.address(), g.i32(2), 0x36, 2, U(g.draw(64)))
	case 6:
		return Code(g.address(), g.i64(2), 0x37, 3, U(g.draw(64)))
	case 7:
		return Code(0x02, 0x40, g.within(0), 0x0b)
	case 8:
		return Code(0x03, 0x40, spend(), g.within(1), 0x0b)
	case 9: // a loop that goes round
		return Code(0x03, 0x40, spend(), g.within(1), g.i32(1), I32Const(3), 0x71, 0x0d, 0, 0x0b)
	case 10:
		return Code(g.i32(2), 0x04, 0x40, g.within(0), 0x0b)
	case 11:
		return Code(g.i32(2), 0x04, 0x40, g.within(0), 0x05, g.within(0), 0x0b)
	case 12:
		return g.branch()
	case 13:
		return g.table()
	case 14:
		return Code(g.address(), g.i32(1), I32Const([]int32{1, 10, 2048, 2049, 5000, 70_000}[g.draw(6)]), 0xfc, 11, 0)
	case 15:
		return Code(g.address(), g.address(), I32Const([]int32{0, 7, 2048, 2049, 30_000, 70_000}[g.draw(6)]), 0xfc, 10, 0, 0)
	case 16:
		return Code(I32Const(int32(g.draw(2))), 0x40, 0, 0x24, 0)
	case 17:
		return Code(g.address(), I32Const(int32(g.draw(20))), I32Const(int32(g.draw(20))), 0xfc, 8, 1, 0)
	case 18:
		return Code(0xd0, FuncRef, I32Const(int32(g.draw(40))), 0xfc, 15, 0, 0x24, 0)
	case 19: // a block with a parameter, and a loop with one
		return Code(g.i32(2), 0x02, 1, I32Const(1), 0x6a, 0x0b, 0x03, 1, spend(), I32Const(1), 0x76, 0x22, 2, 0x20, 2, 0x0d, 0, 0x0b, 0x24, 0)
	case 20:
		return Code(g.i32(1), 0x04, 0x40, g.i64(1), 0x0f, 0x0b)
	}
	return Code(g.i32(1), I32Const(63), 0x71, 0x45, 0x04, 0x40, 0x00, 0x0b)
}

// branch leaves some block that is open, or goes to a loop's beginning, which counts.
func (g *generator) branch() []byte {
	if len(g.loops) == 0 {
		return nil
	}
	to := g.draw(len(g.loops))
	switch g.draw(3) {
	case 0:
		return Code(0x0c, U(to), g.statements()) // what follows never runs
	case 1:
		return Code(g.i32(2), 0x0d, U(to))
	}
	other := g.draw(len(g.loops))
	return Code(g.i32(2), 0x0e, 2, U(to), U(other), U(to))
}

// table reads and writes the function table, and calls through it.
func (g *generator) table() []byte {
	at := I32Const(int32(g.draw(tableSize + 1)))
	switch g.draw(5) {
	case 0:
		return Code(at, 0xd0, FuncRef, 0x26, 0)
	case 1:
		return Code(at, 0xd2, generated-1, 0x26, 0)
	case 2:
		return Code(at, 0x25, 0, 0xd1, 0x24, 0)
	case 3:
		return Code(at, 0xd2, generated-1, I32Const(int32(g.draw(3))), 0xfc, 17, 0)
	}
	if g.index == generated-1 {
		return nil
	}
	return Code(g.i32(1), g.i64(1), at, 0x11, 0, 0, 0x24, 1)
}

// address is a number below 32768, aligned.
func (g *generator) address() []byte { return Code(g.i32(1), I32Const(0x7ff8), 0x71) }

func (g *generator) i32(depth int) []byte {
	if depth == 0 {
		return Code(0x20, 2*g.draw(2))
	}
	d := depth - 1
	switch g.draw(12) {
	case 0:
		return I32Const(int32(g.draw(256)) << (g.draw(4) * 8))
	case 1:
		return Code(0x23, 0)
	case 2:
		return Code(g.i32(d), g.i32(d), []int{0x6a, 0x6b, 0x6c, 0x71, 0x72, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78}[g.draw(11)])
	case 3:
		return Code(g.i32(d), g.i32(d), []int{0x6d, 0x6e, 0x6f, 0x70}[g.draw(4)]) // may trap
	case 4:
		return Code(g.i64(d), 0xa7)
	case 5:
		return Code(g.address(), 0x28, 2, U(g.draw(64)))
	case 6:
		return Code(g.i32(d), g.i32(d), g.i32(d), 0x1b)
	case 7:
		return Code(g.i32(d), 0x04, I32, g.i32(d), 0x05, g.i32(d), 0x0b)
	case 8:
		return Code(g.i64(d), g.i64(d), []int{0x51, 0x52, 0x53, 0x54, 0x57}[g.draw(5)])
	case 9:
		return Code(0x3f, 0)
	case 10:
		return Code(0xfc, 16, 0)
	}
	return Code(0x20, 2*g.draw(2))
}

func (g *generator) i64(depth int) []byte {
	if depth == 0 {
		return Code(0x20, 1+2*g.draw(2))
	}
	d := depth - 1
	switch g.draw(10) {
	case 0:
		return I64Const(int64(g.draw(256)) << (g.draw(8) * 8))
	case 1:
		return Code(0x23, 1)
	case 2:
		return Code(g.i64(d), g.i64(d), []int{0x7c, 0x7d, 0x7e, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89}[g.draw(10)])
	case 3:
		return Code(g.i32(d), 0xac+g.draw(2))
	case 4:
		return Code(g.address(), 0x29, 3, U(g.draw(64)))
	case 5:
		return Code(g.f64(), 0xfc, 6) // saturates
	case 6:
		if g.index == generated-1 {
			return Code(0x20, 1)
		}
		return Code(g.i32(d), g.i64(d), 0x10, g.index+1+g.draw(generated-1-g.index))
	case 7:
		return Code(0x02, I64, g.i64(d), g.i32(d), 0x0d, 0, 0x0b)
	case 8:
		return Code(0x20, 4, 0xbd) // the bits of the f64
	}
	return Code(0x20, 1+2*g.draw(2))
}

// f64 is never a NaN: its bits are not the same everywhere.
func (g *generator) f64() []byte {
	switch g.draw(3) {
	case 0:
		return Code(g.i32(1), 0xb7)
	case 1:
		return Code(g.i32(1), 0xb7, g.i32(1), 0xb7, 0xa2)
	}
	return Code(0x20, 4, g.i32(1), 0xb7, 0xa4) // the smaller of both
}
