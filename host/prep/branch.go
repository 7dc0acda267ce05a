package prep

// branch reads a br, br_if or br_table and writes it with its labels counted anew: a loop that became two has two labels,
// the inner where the author's was. A branch back to such a loop goes to the inner one while there is fuel. A br_table
// always goes to the outer, which is right too, and rare.
func (c *cutter) branch(op byte) {
	r, cur := c.r, c.cur()
	if op == opBrTable {
		n := r.count()
		c.p.caps.check("targets of a br_table", n, c.p.caps.Targets)
		w := putU32([]byte{op}, uint32(n))
		leaves := false
		for range n + 1 {
			t := c.target(r.u32())
			leaves = leaves || t.function
			if t.double {
				t.depth++
			}
			w = putU32(w, t.depth)
		}
		if leaves {
			cur.code = c.back(cur.code)
		}
		cur.code = append(cur.code, w...)
		c.die()
		return
	}
	t := c.target(r.u32())
	if t.function {
		cur.code = c.back(cur.code)
	}
	w := cur.code
	switch {
	case !t.double:
		w = putU32(append(w, op), t.depth)
	case op == opBr:
		w = c.again(w, t.depth)
	default:
		w = c.again(append(w, opIf, blockEmpty), t.depth+1)
		w = append(w, opEnd)
	}
	cur.code = w
	if op == opBr {
		c.die()
	} else {
		c.cut(c.here(), false)
	}
}

// again appends: br_if inner (fuel >= 0); br outer.
func (c *cutter) again(w []byte, inner uint32) []byte {
	w = putU32(append(w, opLocalGet), c.s.fuel)
	w = putU32(append(w, opI64Const, 0, opI64GeS, opBrIf), inner)
	return putU32(append(w, opBr), inner+1)
}

// target is where a branch goes.
type target struct {
	depth    uint32 // in the rewritten code; of the inner loop when there are two
	double   bool   // to a loop that became two
	function bool   // out of the function
}

func (c *cutter) target(label uint32) target {
	if uint64(label) >= uint64(len(c.blocks)) {
		fail("code section: label %d is not there", label)
	}
	at := len(c.blocks) - 1 - int(label)
	t := target{depth: label, double: c.blocks[at].double, function: at == 0}
	for _, b := range c.blocks[at+1:] {
		if b.double {
			t.depth++
		}
	}
	return t
}
