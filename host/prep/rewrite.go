package prep

import (
	"fmt"
	"slices"
)

// The rewritten module has one more import, refill; two more globals, the fuel and the limit of tables; three more
// functions, the fill and copy helpers and the dispatcher; and the types of these; each after the author's. So the
// author's functions move up by one and nothing else moves.

func (p *parser) refill() uint32 { return uint32(len(p.imports)) }

func (p *parser) shift(f uint32) uint32 {
	if f >= p.refill() {
		return f + 1
	}
	return f
}

func (p *parser) fuelGlobal() uint32 { return uint32(len(p.globals)) }
func (p *parser) fillHelper() uint32 { return uint32(len(p.imports) + 1 + len(p.funcs)) }
func (p *parser) copyHelper() uint32 { return p.fillHelper() + 1 }
func (p *parser) dispatcher() uint32 { return p.fillHelper() + 2 }
func (p *parser) refillType() uint32 { return uint32(len(p.types)) }
func (p *parser) helperType() uint32 { return p.refillType() + 1 }

// growType is the type of the block in a table.grow: a reference -> i32.
func (p *parser) growType(ref byte) uint32 {
	if ref == ExternRef {
		return p.refillType() + 3
	}
	return p.refillType() + 2
}

func (p *parser) dispatchType() uint32 { return p.refillType() + 4 }

// tableGlobal comes after the fuel. It is there always, and exported when the module grows a table.
func (p *parser) tableGlobal() uint32 { return p.fuelGlobal() + 1 }

func (p *parser) rewrite() *Module {
	m := &Module{
		Imports: p.imports, HasMemory: p.hasMem, MinPages: p.memory.min, HasStart: p.start >= 0, Cloneable: true,
	}
	for _, e := range p.exports {
		if e.kind == 0 {
			m.Exports = append(m.Exports, Func{Name: e.name, Signature: p.signature(e.index)})
		}
	}
	m.Dispatch = p.planDispatch()
	code := p.codeSection() // first: it finds out what the module uses
	for _, d := range p.data {
		if d.active {
			m.Data = append(m.Data, Segment{Offset: d.offset, Data: d.bytes})
		}
	}
	for i, g := range p.globals {
		if !g.mutable {
			continue
		}
		switch g.typ {
		case V128, FuncRef, ExternRef:
			m.Cloneable = false
		}
		m.Globals = append(m.Globals, Global{Name: globalName(i), Type: g.typ})
	}
	for _, t := range p.tables {
		m.Table = max(m.Table, t.min)
	}
	m.Grows = p.uses.growth
	m.Cloneable = m.Cloneable && !p.uses.tables
	m.Resettable = m.Cloneable && !p.uses.drops

	w := append([]byte(nil), magic...)
	for _, id := range sectionOrder {
		var body []byte
		switch id {
		case secType:
			body = p.typeSection()
		case secImport:
			body = p.importSection()
		case secFunction:
			body = p.functionSection()
		case secTable:
			body = p.tableSection()
		case secMemory:
			body = p.memorySection()
		case secGlobal:
			body = p.globalSection()
		case secExport:
			body = p.exportSection(m)
		case secStart: // exported instead
		case secElement:
			body = p.elementSection()
		case secDataCount:
			if p.uses.segments {
				body = p.raw[id]
			}
		case secCode:
			body = code
		case secData:
			body = p.dataSection()
		}
		if body != nil {
			w = putBytes(append(w, byte(id)), body)
		}
	}
	m.Code = putBytes(append(w, secCustom), p.nameSection())
	return m
}

func globalName(i int) string { return fmt.Sprintf("%s%d", globalPrefix, i) }

func putTypes(w []byte, s Signature) []byte {
	return putBytes(putBytes(append(w, 0x60), s.Params), s.Results)
}

func (p *parser) typeSection() []byte {
	w := putU32(nil, uint32(len(p.types))+5)
	for _, t := range p.types {
		w = putTypes(w, t)
	}
	w = putTypes(w, Signature{[]ValueType{I64}, []ValueType{I64}})
	w = putTypes(w, Signature{[]ValueType{I32, I32, I32}, nil})
	w = putTypes(w, Signature{[]ValueType{FuncRef}, []ValueType{I32}})
	w = putTypes(w, Signature{[]ValueType{ExternRef}, []ValueType{I32}})
	return putTypes(w, dispatchSignature)
}

func (p *parser) importSection() []byte {
	w := putU32(nil, uint32(len(p.imports))+1)
	if p.raw[secImport] != nil {
		r := p.section(secImport)
		r.u32()
		w = append(w, r.b[r.p:]...)
	}
	w = putName(putName(w, MeterModule), RefillName)
	return putU32(append(w, 0), p.refillType())
}

func (p *parser) functionSection() []byte {
	w := putU32(nil, uint32(len(p.funcs))+3)
	for _, t := range p.funcs {
		w = putU32(w, t)
	}
	w = putU32(putU32(w, p.helperType()), p.helperType())
	return putU32(w, p.dispatchType())
}

func putLimits(w []byte, l limits, most uint32) []byte {
	if !l.hasMax || l.max > most {
		l.max = most
	}
	return putU32(putU32(append(w, 1), l.min), l.max)
}

func (p *parser) tableSection() []byte {
	if len(p.tables) == 0 {
		return nil
	}
	w := putU32(nil, uint32(len(p.tables)))
	for _, t := range p.tables {
		w = putLimits(append(w, t.typ), t.limits, p.caps.TableEntries)
	}
	return w
}

// memorySection always writes a memory: the helpers need one to validate.
func (p *parser) memorySection() []byte {
	if !p.hasMem {
		return putLimits([]byte{1}, limits{}, 0)
	}
	return putLimits([]byte{1}, p.memory, p.caps.Pages)
}

func (p *parser) globalSection() []byte {
	w := putU32(nil, uint32(len(p.globals))+2)
	for _, g := range p.globals {
		mut := byte(0)
		if g.mutable {
			mut = 1
		}
		w = append(w, g.typ, mut)
		p.constExpr(&reader{b: g.init, where: "global"}, &w)
	}
	return append(w, I64, 1, opI64Const, 0, opEnd, I64, 1, opI64Const, 0, opEnd)
}

func (p *parser) exportSection(m *Module) []byte {
	n := len(p.exports) + len(m.Globals) + 2
	if m.HasStart {
		n++
	}
	if m.Grows {
		n++
	}
	w := putU32(nil, uint32(n))
	for _, e := range p.exports {
		i := e.index
		if e.kind == 0 {
			i = p.shift(i)
		}
		w = putU32(append(putName(w, e.name), e.kind), i)
	}
	for i, g := range p.globals {
		if g.mutable {
			w = putU32(append(putName(w, globalName(i)), 3), uint32(i))
		}
	}
	w = putU32(append(putName(w, FuelGlobal), 3), p.fuelGlobal())
	w = putU32(append(putName(w, DispatchName), 0), p.dispatcher())
	if m.Grows {
		w = putU32(append(putName(w, TableGlobal), 3), p.tableGlobal())
	}
	if m.HasStart {
		w = putU32(append(putName(w, StartName), 0), p.shift(uint32(p.start)))
	}
	return w
}

// elementSection shifts the function indices of the element segments (core 2.0, section 5.5.12).
func (p *parser) elementSection() []byte {
	if p.raw[secElement] == nil {
		return nil
	}
	r := p.section(secElement)
	n := r.count()
	p.caps.check("element segments", n, p.caps.Elements)
	w := putU32(nil, uint32(n))
	for range n {
		flag := r.u32()
		if flag > 7 {
			fail("element section: flag %d", flag)
		}
		w = putU32(w, flag)
		if flag&1 == 0 { // active
			if flag&2 != 0 {
				w = putU32(w, r.u32())
			}
			p.constExpr(r, &w)
		}
		if flag&3 != 0 {
			w = append(w, r.byte())
		}
		k := r.count()
		w = putU32(w, uint32(k))
		for range k {
			if flag&4 != 0 {
				p.constExpr(r, &w)
			} else {
				w = putU32(w, p.shift(p.funcIndex(r.u32())))
			}
		}
	}
	r.end()
	return w
}

func (p *parser) codeSection() []byte {
	w := putU32(nil, uint32(len(p.code))+3)
	w = slices.Grow(w, len(p.raw[secCode])*3/2)
	for i, body := range p.code {
		w = putBytes(w, p.instrument(i, body))
	}
	w = putBytes(w, p.fillBody())
	w = putBytes(w, p.copyBody())
	return putBytes(w, p.dispatchBody())
}

// dataSection keeps the segments only for a module that names them: then the active ones become empty.
func (p *parser) dataSection() []byte {
	if !p.uses.segments || p.raw[secData] == nil {
		return nil
	}
	w := putU32(nil, uint32(len(p.data)))
	for _, d := range p.data {
		w = append(w, 1)
		if d.active {
			w = append(w, 0)
		} else {
			w = putBytes(w, d.bytes)
		}
	}
	return w
}

// nameSection shifts the function names (core 2.0, section 7.4.1), adds the dispatcher's and drops the rest. Names are for
// stack traces only, so those of a section that does not read well are dropped, too.
func (p *parser) nameSection() []byte {
	names, n, err := p.shiftNames()
	if err != nil {
		names, n = nil, 0
	}
	sub := append(putU32(nil, n+1), names...)
	sub = putName(putU32(sub, p.dispatcher()), DispatchName)
	return putBytes(append(putName(nil, "name"), 1), sub)
}

func (p *parser) shiftNames() (w []byte, n uint32, err error) {
	defer catch(&err)
	r := &reader{b: p.names, where: "name"}
	for r.more() {
		id := r.byte()
		body := r.take(r.u32())
		if id != 1 || w != nil {
			continue
		}
		s := &reader{b: body, where: "name"}
		n = uint32(s.count())
		for range n {
			w = putU32(w, p.shift(p.funcIndex(s.u32())))
			w = putName(w, s.name(1<<16))
		}
	}
	return w, n, nil
}
