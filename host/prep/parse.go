package prep

import (
	"bytes"
	"strings"

	"github.com/skep-dev/skep/agent"
)

// The sections of a module (core 2.0, section 5.5.2).
const (
	secCustom = iota
	secType
	secImport
	secFunction
	secTable
	secMemory
	secGlobal
	secExport
	secStart
	secElement
	secCode
	secData
	secDataCount
)

var sectionNames = [...]string{
	"custom", "type", "import", "function", "table", "memory", "global", "export", "start", "element", "code", "data",
	"data count",
}

// sectionOrder is the order in which sections stand in a module: data count comes before code.
var sectionOrder = [...]int{
	secType, secImport, secFunction, secTable, secMemory, secGlobal, secExport, secStart, secElement, secDataCount, secCode,
	secData,
}

// parser holds what is known of the module while it is read and rewritten.
type parser struct {
	caps  Caps
	allow Allow

	raw   [13][]byte // by section; nil when absent
	names []byte     // the name section, when there is one

	types   []Signature
	imports []Func
	funcs   []uint32 // type of each defined function
	tables  []table
	memory  limits
	hasMem  bool
	globals []global
	exports []export
	start   int // function index, or -1
	code    [][]byte
	data    []data

	uses   opUse
	locals uint64 // of the function that is being read, parameters included

	dispatched []uint32 // functions that the dispatcher calls, by its index
}

type limits struct {
	min, max uint32
	hasMax   bool
}

type table struct {
	typ byte
	limits
}

type global struct {
	typ     byte
	mutable bool
	init    []byte // constant expression, function indices as they were
}

type export struct {
	name  string
	kind  byte
	index uint32
}

type data struct {
	active bool
	offset uint32
	bytes  []byte
}

var magic = []byte{0, 'a', 's', 'm', 1, 0, 0, 0}

// split cuts the module into sections and checks their order.
func (p *parser) split(wasm []byte) {
	p.caps.check("module size in bytes", len(wasm), p.caps.Size)
	switch {
	case len(wasm) < 8 || !bytes.Equal(wasm[:4], magic[:4]):
		fail("it does not begin with the WebAssembly magic number")
	case bytes.Equal(wasm[4:8], []byte{0x0d, 0, 1, 0}):
		fail("it is a WebAssembly component; upload a core module (an Extism or WASI preview 1 reactor)")
	case !bytes.Equal(wasm[:8], magic):
		fail("it has binary format version %d, not 1", wasm[4])
	}
	r := &reader{b: wasm, p: 8, where: "module"}
	last := -1
	for r.more() {
		id := r.byte()
		body := r.take(r.u32())
		if int(id) >= len(p.raw) {
			fail("unknown section %d (exception handling and other proposals are not supported)", id)
		}
		if id == secCustom {
			p.custom(body)
			continue
		}
		at := bytes.IndexByte(orderIndex(), id)
		if at <= last {
			fail("the %s section is out of order or there twice", sectionNames[id])
		}
		last = at
		p.raw[id] = body
	}
}

func orderIndex() []byte {
	b := make([]byte, len(sectionOrder))
	for i, id := range sectionOrder {
		b[i] = byte(id)
	}
	return b
}

// custom keeps the name section, for stack traces; everything else that is custom is dropped.
func (p *parser) custom(body []byte) {
	r := &reader{b: body, where: "custom"}
	if r.name(1<<20) == "name" {
		p.names = r.b[r.p:]
	}
}

func (p *parser) section(id int) *reader {
	return &reader{b: p.raw[id], where: sectionNames[id]}
}

// each calls fn for each entry of a section that is a vector.
func (p *parser) each(id int, most int, fn func(r *reader, i int)) {
	if p.raw[id] == nil {
		return
	}
	r := p.section(id)
	n := r.count()
	p.caps.check("entries of the "+sectionNames[id]+" section", n, most)
	for i := range n {
		fn(r, i)
	}
	r.end()
}

func (p *parser) readAll() {
	p.each(secType, p.caps.Types, func(r *reader, _ int) { p.readType(r) })
	p.each(secImport, p.caps.Imports, func(r *reader, _ int) { p.readImport(r) })
	p.each(secFunction, p.caps.Functions, func(r *reader, _ int) {
		p.funcs = append(p.funcs, p.typeIndex(r.u32()))
	})
	p.each(secTable, p.caps.Tables, func(r *reader, _ int) { p.readTable(r) })
	p.each(secMemory, 1, func(r *reader, _ int) { p.readMemory(r) })
	p.each(secGlobal, p.caps.Globals, func(r *reader, _ int) { p.readGlobal(r) })
	p.each(secExport, p.caps.Exports, func(r *reader, _ int) { p.readExport(r) })
	p.start = -1
	if p.raw[secStart] != nil {
		r := p.section(secStart)
		p.start = int(p.funcIndex(r.u32()))
		r.end()
		if s := p.signature(uint32(p.start)); len(s.Params)+len(s.Results) > 0 {
			fail("the start function is %s; it must be () -> ()", s)
		}
	}
	p.each(secCode, p.caps.Functions, func(r *reader, _ int) {
		body := r.take(r.u32())
		p.caps.check("size of a function in bytes", len(body), p.caps.Body)
		p.code = append(p.code, body)
	})
	if len(p.code) != len(p.funcs) {
		fail("%d functions are declared, %d have code", len(p.funcs), len(p.code))
	}
	p.each(secData, p.caps.Segments, func(r *reader, _ int) { p.readData(r) })
	if p.raw[secDataCount] != nil {
		r := p.section(secDataCount)
		if n := r.u32(); uint64(n) != uint64(len(p.data)) {
			fail("%d data segments are announced, %d are there", n, len(p.data))
		}
		r.end()
	}
}

func (p *parser) readType(r *reader) {
	if form := r.byte(); form != 0x60 {
		fail("type section: form %#x is not a function type", form)
	}
	p.types = append(p.types, Signature{Params: p.valueTypes(r), Results: p.valueTypes(r)})
}

func (p *parser) valueTypes(r *reader) []ValueType {
	n := r.count()
	p.caps.check("parameters or results of a function", n, p.caps.Params)
	b := r.take(uint32(n))
	for _, t := range b {
		checkValueType(t)
	}
	return b
}

func checkValueType(t byte) {
	switch t {
	case I32, I64, F32, F64, V128, FuncRef, ExternRef:
	default:
		fail("value type %#x is not supported", t)
	}
}

func (p *parser) readImport(r *reader) {
	module, name := r.name(p.caps.Name), r.name(p.caps.Name)
	kind := r.byte()
	if kind != 0 {
		fail("it imports the %s %q.%q; only functions may be imported", kindName(kind), module, name)
	}
	sig := p.types[p.typeIndex(r.u32())]
	want, ok := p.allow(module, name)
	if !ok {
		fail("it imports the function %q.%q, which is not there", module, name)
	}
	if !bytes.Equal(sig.Params, want.Params) || !bytes.Equal(sig.Results, want.Results) {
		fail("it imports the function %q.%q as %s; it is %s", module, name, sig, want)
	}
	p.imports = append(p.imports, Func{Module: module, Name: name, Signature: sig})
}

func kindName(k byte) string {
	return map[byte]string{0: "function", 1: "table", 2: "memory", 3: "global", 4: "tag"}[k]
}

func (p *parser) readLimits(r *reader, what string) limits {
	flag := r.byte()
	if flag > 1 {
		fail("%s flag %#x: shared and 64-bit memories are not supported", what, flag)
	}
	l := limits{min: r.u32(), hasMax: flag == 1}
	if l.hasMax {
		l.max = r.u32()
		if l.max < l.min {
			fail("%s: maximum %d is below the minimum %d", what, l.max, l.min)
		}
	}
	return l
}

func (p *parser) readTable(r *reader) {
	t := table{typ: r.byte()}
	if t.typ != FuncRef && t.typ != ExternRef {
		fail("table section: element type %#x is not supported", t.typ)
	}
	t.limits = p.readLimits(r, "table")
	if t.min > p.caps.TableEntries {
		over(agent.LimitTable, "entries of a table", uint64(t.min), uint64(p.caps.TableEntries))
	}
	p.tables = append(p.tables, t)
}

func (p *parser) readMemory(r *reader) {
	const most = 1 << 16 // pages that an address can reach
	p.memory = p.readLimits(r, "memory")
	p.hasMem = true
	if p.memory.max > most {
		fail("memory: maximum of %d pages is above %d", p.memory.max, most)
	}
	if p.memory.min > p.caps.Pages {
		over(agent.LimitMemory, "bytes of memory at the start", uint64(p.memory.min)<<16, uint64(p.caps.Pages)<<16)
	}
}

func (p *parser) readGlobal(r *reader) {
	g := global{typ: r.byte()}
	checkValueType(g.typ)
	mut := r.byte()
	if mut > 1 {
		fail("global section: mutability %#x", mut)
	}
	g.mutable = mut == 1
	at := r.p
	p.constExpr(r, nil)
	g.init = r.b[at:r.p]
	p.globals = append(p.globals, g)
}

func (p *parser) readExport(r *reader) {
	e := export{name: r.name(p.caps.Name), kind: r.byte(), index: r.u32()}
	if strings.HasPrefix(e.name, reserved) {
		fail("it exports %q; names beginning with %q are reserved", e.name, reserved)
	}
	n := 0
	switch e.kind {
	case 0:
		p.funcIndex(e.index)
		n = 1 << 31
	case 1:
		n = len(p.tables)
	case 2:
		if p.hasMem {
			n = 1
		}
	case 3:
		n = len(p.globals)
	}
	if uint64(e.index) >= uint64(n) {
		fail("export %q: there is no %s %d", e.name, kindName(e.kind), e.index)
	}
	p.exports = append(p.exports, e)
}

func (p *parser) readData(r *reader) {
	flag := r.u32()
	d := data{active: flag != 1}
	switch flag {
	case 0:
	case 1:
	case 2:
		if r.u32() != 0 {
			fail("data section: a segment for a second memory")
		}
	default:
		fail("data section: flag %d", flag)
	}
	if d.active {
		if !p.hasMem {
			fail("a data segment lies outside its memory: there is none")
		}
		d.offset = constI32(p, r)
	}
	d.bytes = r.take(r.u32())
	if d.active && uint64(d.offset)+uint64(len(d.bytes)) > uint64(p.memory.min)<<16 {
		fail("a data segment of %d bytes at %d lies outside its memory", len(d.bytes), d.offset)
	}
	p.data = append(p.data, d)
}

// constI32 reads a constant expression that must be a plain i32.const: no global can be imported, so nothing else is
// known at this point.
func constI32(p *parser, r *reader) uint32 {
	at := r.p
	p.constExpr(r, nil)
	e := &reader{b: r.b[at:r.p], where: r.where}
	if e.byte() != 0x41 {
		fail("%s section: an offset that is not a constant", r.where)
	}
	v := uint32(e.signed(32))
	if e.byte() != opEnd {
		fail("%s section: an offset of more than one constant", r.where)
	}
	return v
}

// constExpr reads a constant expression (core 2.0, section 3.3.10) and, when w is not nil, appends it with function
// indices shifted.
func (p *parser) constExpr(r *reader, w *[]byte) {
	for {
		at := r.p
		op := r.byte()
		switch op {
		case 0x0b:
		case 0x41:
			r.signed(32)
		case 0x42:
			r.signed(64)
		case 0x43:
			r.take(4)
		case 0x44:
			r.take(8)
		case 0x23:
			if i := r.u32(); int(i) >= len(p.globals) {
				fail("%s section: a constant uses global %d, which is not before it", r.where, i)
			}
		case 0xd0:
			r.byte()
		case 0xd2:
			f := p.funcIndex(r.u32())
			if w != nil {
				*w = putU32(append(*w, op), p.shift(f))
			}
			continue
		case 0xfd:
			if r.u32() != 12 {
				fail("%s section: not a constant expression", r.where)
			}
			r.take(16)
		default:
			fail("%s section: %#x is not allowed in a constant", r.where, op)
		}
		if w != nil {
			*w = append(*w, r.b[at:r.p]...)
		}
		if op == 0x0b {
			return
		}
	}
}

func (p *parser) typeIndex(i uint32) uint32 {
	if uint64(i) >= uint64(len(p.types)) {
		fail("type %d is not there", i)
	}
	return i
}

func (p *parser) funcIndex(i uint32) uint32 {
	if uint64(i) >= uint64(len(p.imports)+len(p.funcs)) {
		fail("function %d is not there", i)
	}
	return i
}

// signature returns the type of a function of the original module.
func (p *parser) signature(i uint32) Signature {
	if int(i) < len(p.imports) {
		return p.imports[i].Signature
	}
	return p.types[p.funcs[int(i)-len(p.imports)]]
}

func (s Signature) String() string {
	return "(" + typeNames(s.Params) + ") -> (" + typeNames(s.Results) + ")"
}

func typeNames(ts []ValueType) string {
	names := map[ValueType]string{
		I32: "i32", I64: "i64", F32: "f32", F64: "f64", V128: "v128", FuncRef: "funcref", ExternRef: "externref",
	}
	out := make([]string, len(ts))
	for i, t := range ts {
		out[i] = names[t]
	}
	return strings.Join(out, ", ")
}
