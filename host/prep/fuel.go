package prep

// Fuel accounting. A body is cut into regions of code that run as a whole: a region begins at the function's start, at a
// loop's header, after if, else and end, and after a branch. A region is charged what its instructions cost where it
// begins. Loop headers, and the entries of functions that call, also look whether fuel is left, so that no code runs for
// long without coming by; recursion comes by at entries.
//
// The fuel is a global. A function with a loop keeps it in a local while it runs, and puts it back before it calls and
// returns: a loop that loaded and stored a global each time round would wait for its own store. And a loop without calls
// and inner loops becomes two, of which the outer looks for fuel and the inner turns as long as there is some, so that
// the compiler has no call to arrange its registers around:
//
//	loop A          loop outer  check
//	  ...    =>       loop inner  charge
//	  br A              ...
//	end                 br_if inner (fuel >= 0); br outer
//
// To keep the charges few in small functions, which are called often, a region of a function without loops that costs
// less than smallRegion is charged with the nearest charged region that dominates it, as long as that one has taken less
// than hoistBudget in this way. So no instruction is ever run without having been paid for, most are paid exactly, and
// what is paid too much is bounded for each call.
const (
	smallRegion = 32
	hoistBudget = 32
	callCost    = 10   // of call and call_indirect; functions that cost no more than that in all are free
	growCost    = 100  // of memory.grow
	bulkCost    = 4096 // of the table instructions, whose sizes the caps bound, and of memory.init besides its segment's size
	copyCost    = 8    // of memory.fill and memory.copy up to inlineBytes; see bulk.go
)

// region is a piece of code that runs as a whole.
type region struct {
	code    []byte
	cost    int64
	hoisted int64 // of cost, what was taken over from small regions
	parent  int   // the region that dominates it; -1 for the first
	checked bool  // looks whether fuel is left
	pinned  bool  // pays for itself
	dead    bool  // never runs
}

// block is an open control structure while a body is cut.
type block struct {
	opener int  // the region that its first instruction is in
	dead   bool // the rest of it, up to else or end, never runs
	loop   int  // which loop it is, counted from 1; 0 when it is none
	double bool // it became two loops
}

// loop says whether calls or other loops are in a loop.
type loop struct{ busy, params bool }

// cutter cuts one body into regions.
type cutter struct {
	p       *parser
	r       *reader
	s       scratch
	local   bool   // the fuel is kept in a local
	known   []loop // then, what was found out about the loops before
	regions []region
	blocks  []block
	calls   bool   // there is a call
	bulk    bool   // the scratch operands are used
	loops   []loop // in the order of their beginnings
}

func (c *cutter) cur() *region { return &c.regions[len(c.regions)-1] }

func (c *cutter) cut(parent int, checked bool) {
	dead := len(c.blocks) > 0 && c.blocks[len(c.blocks)-1].dead
	c.regions = append(c.regions, region{parent: parent, checked: checked && !dead, dead: dead})
}

func (c *cutter) here() int { return len(c.regions) - 1 }

// run reads instructions up to the end of the body.
func (c *cutter) run() {
	c.blocks = []block{{opener: -1}}
	c.cut(-1, false)
	for len(c.blocks) > 0 {
		c.step()
	}
	c.r.end()
}

func (c *cutter) step() {
	r, at := c.r, c.r.p
	op := r.byte()
	cur := c.cur()
	switch op {
	case opBlock, opIf:
		c.p.blockType(r)
		cur.code = append(cur.code, r.b[at:r.p]...)
		c.open(block{opener: c.here(), dead: cur.dead})
		if op == opIf {
			cur.cost++
			c.cut(c.here(), false)
		}
	case opLoop:
		c.loop(at)
	case opElse:
		cur.code = append(cur.code, op)
		top := &c.blocks[len(c.blocks)-1]
		if top.opener < 0 {
			fail("code section: else without if")
		}
		top.dead = c.regions[top.opener].dead
		c.cut(top.opener, false)
	case opEnd:
		c.end()
	case opCall:
		c.call()
		cur.cost += callCost
		cur.code = c.back(cur.code)
		cur.code = putU32(append(cur.code, op), c.p.shift(c.p.funcIndex(r.u32())))
		cur.code = c.fetch(cur.code)
	case opRefFunc:
		cur.cost++
		cur.code = putU32(append(cur.code, op), c.p.shift(c.p.funcIndex(r.u32())))
	case opMisc:
		c.misc(at)
	case opBr, opBrIf, opBrTable:
		cur.cost++
		c.branch(op)
	default:
		c.p.immediates(r, op)
		if op == opReturn || op == opCallIndirect {
			cur.code = c.back(cur.code)
		}
		cur.code = append(cur.code, r.b[at:r.p]...)
		cur.cost++
		switch op {
		case opCallIndirect:
			c.call()
			cur.cost += callCost - 1
			cur.code = c.fetch(cur.code)
		case opMemoryGrow:
			cur.cost += growCost
		case opTableSet:
			c.p.uses.tables = true
		case opUnreachable, opReturn:
			c.die()
		}
	}
}

func (c *cutter) open(b block) {
	c.blocks = append(c.blocks, b)
	c.p.caps.check("blocks within blocks", len(c.blocks), c.p.caps.Nesting)
}

// loop begins a loop whose first byte is at offset at.
func (c *cutter) loop(at int) {
	params := c.p.blockType(c.r)
	c.busy()
	c.loops = append(c.loops, loop{params: params})
	c.p.caps.check("loops of a function", len(c.loops), c.p.caps.Loops)
	n, cur := len(c.loops), c.cur()
	double := c.local && !cur.dead && !c.known[n-1].busy && !c.known[n-1].params
	code := c.r.b[at:c.r.p]
	cur.code = append(cur.code, code...)
	c.open(block{opener: c.here(), dead: cur.dead, loop: n, double: double})
	c.cut(c.here(), true)
	if double {
		c.cur().code = append(c.cur().code, code...)
		c.cut(c.here(), false)
		c.cur().pinned = true
	}
}

// busy notes that the loops around here have a call or a loop in them.
func (c *cutter) busy() {
	for _, b := range c.blocks {
		if b.loop > 0 {
			c.loops[b.loop-1].busy = true
		}
	}
}

func (c *cutter) call() {
	c.calls = true
	c.busy()
}

// die notes that what follows in this block never runs.
func (c *cutter) die() {
	c.blocks[len(c.blocks)-1].dead = true
	c.cut(c.here(), false)
}

// end closes a block, or the function.
func (c *cutter) end() {
	top := c.blocks[len(c.blocks)-1]
	c.blocks = c.blocks[:len(c.blocks)-1]
	cur := c.cur()
	if len(c.blocks) == 0 {
		cur.code = append(c.back(cur.code), opEnd)
		return
	}
	cur.code = append(cur.code, opEnd)
	if top.double {
		cur.code = append(cur.code, opEnd)
	}
	c.cut(top.opener, false)
}

// back appends code that puts the fuel back into the global, and fetch code that gets it from there again.
func (c *cutter) back(w []byte) []byte {
	if !c.local {
		return w
	}
	w = putU32(append(w, opLocalGet), c.s.fuel)
	return putU32(append(w, opGlobalSet), c.p.fuelGlobal())
}

func (c *cutter) fetch(w []byte) []byte {
	if !c.local {
		return w
	}
	w = putU32(append(w, opGlobalGet), c.p.fuelGlobal())
	return putU32(append(w, opLocalSet), c.s.fuel)
}

// settle decides where each region is charged.
func (c *cutter) settle() {
	regs := c.regions
	total := int64(0)
	for i := range regs {
		if !regs[i].dead {
			total += regs[i].cost
		}
	}
	if !c.calls && len(c.loops) == 0 && !c.bulk && total <= callCost {
		for i := range regs {
			regs[i].cost = 0
		}
		return
	}
	regs[0].checked = regs[0].checked || c.calls
	charged := make([]int, len(regs)) // for each region, the one that pays for it
	for i := range regs {
		g := &regs[i]
		charged[i] = i
		if g.pinned {
			g.cost = max(g.cost, 1)
		}
		if len(c.loops) > 0 || g.dead || g.checked || g.pinned || i == 0 || g.cost >= smallRegion {
			continue
		}
		to := &regs[charged[g.parent]]
		if to.dead || to.hoisted+g.cost > hoistBudget {
			continue
		}
		to.cost += g.cost
		to.hoisted += g.cost
		g.cost = 0
		charged[i] = charged[g.parent]
	}
}

// emit appends the regions with their charges.
func (c *cutter) emit(w []byte) []byte {
	m := meter{p: c.p, fuel: c.s.fuel, local: c.local}
	if c.local {
		w = c.fetch(w)
	}
	for i := range c.regions {
		g := &c.regions[i]
		switch {
		case g.dead:
		case g.checked:
			w = m.check(w, max(g.cost, 1))
		case g.cost > 0:
			w = m.charge(w, g.cost)
		}
		w = append(w, g.code...)
	}
	return w
}

// instrument rewrites the body of the i-th defined function.
func (p *parser) instrument(i int, body []byte) []byte {
	r := &reader{b: body, where: "code"}
	locals := uint64(len(p.types[p.funcs[i]].Params))
	groups := r.count()
	at := r.p
	for range groups {
		locals += uint64(r.u32())
		checkValueType(r.byte())
		p.caps.check("locals of a function", int(min(locals, 1<<31-1)), p.caps.Locals)
	}
	declared, code := r.b[at:r.p], r.p
	p.locals = locals
	c := &cutter{p: p, r: r, s: scratchAfter(uint32(locals))}
	c.run()
	if len(c.loops) > 0 {
		r.p = code
		c = &cutter{p: p, r: r, s: c.s, local: true, known: c.loops}
		c.run()
	}
	c.settle()

	w := make([]byte, 0, len(body)+len(body)/2+32)
	if c.bulk {
		w = append(append(putU32(w, uint32(groups)+2), declared...), 1, I64, 3, I32)
	} else {
		w = append(append(putU32(w, uint32(groups)+1), declared...), 1, I64)
	}
	return c.emit(w)
}

// blockType reads the type of a block: empty, one value, or a type index (core 2.0, section 5.4.1). It reports whether the
// block has parameters.
func (p *parser) blockType(r *reader) (params bool) {
	switch t := r.signed(33); {
	case t >= 0:
		return len(p.types[p.typeIndex(uint32(t))].Params) > 0
	case t == -64: // empty
	default:
		checkValueType(byte(t & 0x7f))
	}
	return false
}
