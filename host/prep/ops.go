package prep

// opUse records what kinds of state a module's code can change.
type opUse struct {
	tables   bool // table.set, grow, fill, copy or init
	growth   bool // table.grow
	segments bool // memory.init or data.drop: the data section must stay
	drops    bool // data.drop or elem.drop
}

// The opcodes that the rewriting looks at (core 2.0, section 5.4).
const (
	opUnreachable  = 0x00
	opBlock        = 0x02
	opLoop         = 0x03
	opIf           = 0x04
	opElse         = 0x05
	opEnd          = 0x0b
	opBr           = 0x0c
	opBrIf         = 0x0d
	opBrTable      = 0x0e
	opReturn       = 0x0f
	opCall         = 0x10
	opCallIndirect = 0x11
	opSelect       = 0x1b
	opLocalGet     = 0x20
	opLocalSet     = 0x21
	opLocalTee     = 0x22
	opGlobalGet    = 0x23
	opGlobalSet    = 0x24
	opTableSet     = 0x26
	opMemoryGrow   = 0x40
	opI32Const     = 0x41
	opI64Const     = 0x42
	opI32LeU       = 0x4d
	opI64LtS       = 0x53
	opI64GeS       = 0x59
	opI32Add       = 0x6a
	opI32Sub       = 0x6b
	opI32ShrU      = 0x76
	opI64Add       = 0x7c
	opI64Sub       = 0x7d
	opI64GtU       = 0x56
	opDrop         = 0x1a
	opI32Wrap      = 0xa7
	opI64ExtendU   = 0xad
	opF32Bits      = 0xbc
	opF64Bits      = 0xbd
	opF32FromBits  = 0xbe
	opF64FromBits  = 0xbf
	opRefFunc      = 0xd2
	opMisc         = 0xfc
	opVector       = 0xfd

	miscMemoryInit = 8
	miscDataDrop   = 9
	miscMemoryCopy = 10
	miscMemoryFill = 11
	miscTableInit  = 12
	miscElemDrop   = 13
	miscTableCopy  = 14
	miscTableGrow  = 15
	miscTableSize  = 16
	miscTableFill  = 17

	blockEmpty = 0x40
)

// immediates reads past the immediate arguments of an opcode that the rewriting copies as it is. It fails on opcodes that
// are not in core 2.0, and checks the indices under which the rewriting adds something of its own: locals, globals, types,
// and the memory. What is not checked here, the author's code could reach.
func (p *parser) immediates(r *reader, op byte) {
	switch {
	case op <= 0x01, op == opElse, op == opReturn, op == 0x1a, op == 0x1b: // unreachable, nop, drop, select
	case op == opCallIndirect:
		p.typeIndex(r.u32())
		r.u32()
	case op == 0x1c: // select with types
		for range r.count() {
			r.byte()
		}
	case op >= opLocalGet && op <= opLocalTee:
		if i := r.u32(); uint64(i) >= p.locals {
			fail("code section: local %d is not there", i)
		}
	case op == 0x25, op == opTableSet:
		r.u32()
	case op == opGlobalGet, op == opGlobalSet:
		if i := r.u32(); uint64(i) >= uint64(len(p.globals)) {
			fail("code section: global %d is not there", i)
		}
	case op >= 0x28 && op <= 0x3e: // loads and stores
		p.memarg(r)
	case op == 0x3f, op == 0x40: // memory.size, memory.grow
		p.needMemory()
		r.byte()
	case op == opI32Const:
		r.signed(32)
	case op == opI64Const:
		r.signed(64)
	case op == 0x43:
		r.take(4)
	case op == 0x44:
		r.take(8)
	case op >= 0x45 && op <= 0xc4, op == 0xd1: // numeric, ref.is_null
	case op == 0xd0: // ref.null
		r.byte()
	case op == opVector:
		p.vector(r)
	default:
		fail("code section: instruction %#x is not supported (%s)", op, proposal(op))
	}
}

func proposal(op byte) string {
	switch {
	case op == 0x12 || op == 0x13:
		return "tail calls"
	case op >= 0x06 && op <= 0x0a, op == 0x18, op == 0x19, op == 0x1f:
		return "exception handling"
	case op == 0x14 || op == 0x15, op == 0xfb, op == 0xd3, op == 0xd4, op == 0xd5, op == 0xd6:
		return "typed references and garbage collection"
	case op == 0xfe:
		return "threads"
	}
	return "not in WebAssembly 2.0"
}

func (p *parser) needMemory() {
	if !p.hasMem {
		fail("code section: an instruction uses memory, and there is none")
	}
}

func (p *parser) memarg(r *reader) {
	p.needMemory()
	if align := r.u32(); align >= 32 {
		fail("code section: alignment 2^%d", align)
	}
	r.u32()
}

func (p *parser) vector(r *reader) {
	switch op := r.u32(); {
	case op <= 11, op == 92, op == 93: // loads, stores
		p.memarg(r)
	case op == 12, op == 13: // v128.const, shuffle
		r.take(16)
	case op >= 21 && op <= 34: // lanes
		r.byte()
	case op >= 84 && op <= 91: // lane loads, stores
		p.memarg(r)
		r.byte()
	case op <= 255:
	default:
		fail("code section: vector instruction %d is not supported (relaxed SIMD)", op)
	}
}
