package prep

// growTable writes a table.grow that heeds the limit in TableGlobal. Its operands, a reference and a number of entries,
// are on the stack:
//
//	n = pop
//	if size + n > limit { drop; -1; limit = 0 } else { table.grow n }
//
// so that growth to just the limit succeeds, and a guest that was refused once is refused from then on.
func (c *cutter) growTable(table uint32) {
	p := c.p
	if uint64(table) >= uint64(len(p.tables)) {
		fail("code section: table %d is not there", table)
	}
	p.uses.tables, p.uses.growth = true, true
	c.bulk = true
	c.stop()
	cur, n := c.cur(), c.s.n
	w := putU32(append(cur.code, opLocalSet), n)
	w = append(w, opMisc, miscTableSize)
	w = append(putU32(w, table), opI64ExtendU)
	w = append(putU32(append(w, opLocalGet), n), opI64ExtendU, opI64Add)
	w = putU32(append(w, opGlobalGet), p.tableGlobal())
	w = append(w, opI64GtU, opIf)
	w = putS64(w, int64(p.growType(p.tables[table].typ)))
	w = append(w, opDrop)
	w = putU32(append(w, opI64Const, 0, opGlobalSet), p.tableGlobal())
	w = append(putS64(append(w, opI32Const), -1), opElse)
	w = putU32(append(w, opLocalGet), n)
	w = putU32(append(w, opMisc, miscTableGrow), table)
	cur.code = append(w, opEnd)
	cur.cost++
}
