package prep

// inlineBytes is how much memory.fill and memory.copy do where they stand. More goes to a helper function that works in
// pieces of chunkBytes and charges each by its length, so that filling a gigabyte can be stopped like anything else. The
// helper may have written a part when it traps on a range out of bounds; no one can see that, since a trap ends the cell.
const (
	inlineBytes = 2 << 10
	chunkBytes  = 1 << 20
	costShift   = 6 // log2 of the bytes that one unit of fuel pays for
)

// scratch names the locals that rewriting adds to a function: the fuel, then the operands of fill and copy.
type scratch struct{ fuel, dst, src, n uint32 }

func scratchAfter(locals uint32) scratch {
	return scratch{locals, locals + 1, locals + 2, locals + 3}
}

// misc reads one instruction with the prefix 0xfc, which begins at offset at.
func (c *cutter) misc(at int) {
	r := c.r
	op := r.u32()
	switch {
	case op <= 7: // saturating truncation
	case op == miscMemoryCopy:
		c.p.needMemory()
		r.byte()
		r.byte()
		c.large(op, []byte{0, 0}, c.p.copyHelper())
		return
	case op == miscMemoryFill:
		c.p.needMemory()
		r.byte()
		c.large(op, []byte{0}, c.p.fillHelper())
		return
	case op == miscMemoryInit:
		c.p.needMemory()
		c.p.uses.segments = true
		segment := r.u32()
		r.byte()
		c.stop()
		if uint64(segment) < uint64(len(c.p.data)) {
			c.cur().cost += int64(len(c.p.data[segment].bytes)) >> costShift
		}
	case op == miscDataDrop:
		c.p.uses.segments, c.p.uses.drops = true, true
		r.u32()
	case op == miscElemDrop:
		c.p.uses.drops = true
		r.u32()
	case op == miscTableInit, op == miscTableCopy:
		c.p.uses.tables = true
		r.u32()
		r.u32()
		c.stop()
	case op == miscTableFill:
		c.p.uses.tables = true
		r.u32()
		c.stop()
	case op == miscTableGrow:
		c.growTable(r.u32())
		return
	case op == miscTableSize:
		r.u32()
	default:
		fail("code section: instruction 0xfc %d is not supported", op)
	}
	cur := c.cur()
	cur.cost++
	cur.code = append(cur.code, r.b[at:r.p]...)
}

// stop begins a region that looks for fuel, for an instruction that may take long.
func (c *cutter) stop() {
	c.busy()
	c.cut(c.here(), true)
	c.cur().cost += bulkCost
}

// large writes memory.fill or memory.copy, whose operands are on the stack.
func (c *cutter) large(op uint32, immediates []byte, helper uint32) {
	c.bulk = true
	c.busy()
	cur, s := c.cur(), c.s
	cur.cost += copyCost
	w := cur.code
	w = putU32(append(w, opLocalSet), s.n)
	w = putU32(append(w, opLocalSet), s.src)
	w = putU32(append(w, opLocalSet), s.dst)
	w = putU32(append(w, opLocalGet), s.n)
	w = putS64(append(w, opI32Const), inlineBytes)
	w = append(w, opI32LeU, opIf, blockEmpty)
	w = append(putU32(append(operands(w, s), opMisc), op), immediates...)
	w = append(w, opElse)
	w = putU32(append(operands(c.back(w), s), opCall), helper)
	cur.code = append(c.fetch(w), opEnd)
}

func operands(w []byte, s scratch) []byte {
	for _, l := range []uint32{s.dst, s.src, s.n} {
		w = putU32(append(w, opLocalGet), l)
	}
	return w
}

// helper is the body of the function that fills or copies in pieces: (dst, src or value, n i32) -> ().
type helper struct {
	p  *parser
	w  []byte
	op []byte // the instruction
}

func (p *parser) fillBody() []byte {
	h := &helper{p: p, op: []byte{opMisc, miscMemoryFill, 0}, w: []byte{1, 1, I64}}
	h.upward(false)
	return append(h.w, opEnd)
}

// copyBody copies upward, or downward when the destination lies above the source, so that overlapping ranges come out as
// memory.copy has them.
func (p *parser) copyBody() []byte {
	h := &helper{p: p, op: []byte{opMisc, miscMemoryCopy, 0, 0}, w: []byte{1, 1, I64}}
	h.get(0).get(1)
	h.w = append(h.w, opI32LeU, opIf, blockEmpty)
	h.upward(true)
	h.w = append(h.w, opElse)
	h.downward()
	return append(h.w, opEnd, opEnd)
}

func (h *helper) get(l byte) *helper { h.w = append(h.w, opLocalGet, l); return h }
func (h *helper) set(l byte) *helper { h.w = append(h.w, opLocalSet, l); return h }
func (h *helper) chunk() *helper     { h.w = putS64(append(h.w, opI32Const), chunkBytes); return h }
func (h *helper) op1(op byte)        { h.w = append(h.w, op) }

// begin opens the loop, charges for one piece, and does the last piece.
func (h *helper) begin() {
	h.w = append(h.w, opLoop, blockEmpty)
	h.w = putU32(append(h.w, opGlobalGet), h.p.fuelGlobal())
	h.get(2).chunk().get(2).chunk()
	h.w = append(h.w, opI32LeU, opSelect, opI32Const, costShift, opI32ShrU, opI64ExtendU)
	h.w = append(h.w, opI64Const, 16, opI64Add)
	h.w = meter{p: h.p, fuel: 3}.checkRest(h.w)
	h.get(2).chunk()
	h.w = append(h.w, opI32LeU, opIf, blockEmpty)
	h.get(0).get(1).get(2)
	h.w = append(append(h.w, h.op...), opReturn, opEnd)
}

func (h *helper) upward(moveSource bool) {
	h.begin()
	h.get(0).get(1).chunk()
	h.w = append(h.w, h.op...)
	h.get(0).chunk().op1(opI32Add)
	h.set(0)
	if moveSource {
		h.get(1).chunk().op1(opI32Add)
		h.set(1)
	}
	h.get(2).chunk().op1(opI32Sub)
	h.set(2)
	h.w = append(h.w, opBr, 0, opEnd)
}

func (h *helper) downward() {
	h.begin()
	h.get(2).chunk().op1(opI32Sub)
	h.set(2)
	h.get(0).get(2).op1(opI32Add)
	h.get(1).get(2).op1(opI32Add)
	h.chunk()
	h.w = append(h.w, h.op...)
	h.w = append(h.w, opBr, 0, opEnd)
}
