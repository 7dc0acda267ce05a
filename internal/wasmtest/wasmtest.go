// Package wasmtest writes small WebAssembly modules for tests, valid or not, in the binary format (core 2.0, section 5).
package wasmtest

import (
	"encoding/binary"
	"slices"
)

// The value types.
const (
	I32     = 0x7f
	I64     = 0x7e
	F64     = 0x7c
	V128    = 0x7b
	FuncRef = 0x70
)

// Type is a function type.
type Type struct{ Params, Results []byte }

// Func is a defined function, exported when Export is set. Body is its code without the final end.
type Func struct {
	Type   int
	Locals []byte // one type each
	Body   []byte
	Export string
}

// Import is an imported function.
type Import struct {
	Module, Name string
	Type         int
}

// Limits is the size of a memory in pages or of a table in entries. Max of -1 means none.
type Limits struct{ Min, Max int }

// Global is a defined global. Init is a constant expression without its end.
type Global struct {
	Type    byte
	Mutable bool
	Init    []byte
	Export  string
}

// Data is an active data segment, or a passive one when Passive is set.
type Data struct {
	Offset  int
	Bytes   []byte
	Passive bool
}

// Module is a module to be written. Functions are numbered after the imports.
type Module struct {
	Types   []Type
	Imports []Import
	Funcs   []Func
	Table   *Limits
	Memory  *Limits // exported as "memory"
	Globals []Global
	Elems   []int // functions in the table from entry 0
	Data    []Data
	Start   int // function to start with; 0 means none, so it cannot be function 0
	Extra   []Section
}

// Section is a section to append as it is.
type Section struct {
	ID   byte
	Body []byte
}

// U is an unsigned LEB128, S a signed one.
func U(n int) []byte { return binary.AppendUvarint(nil, uint64(n)) }

func S(v int64) []byte {
	var w []byte
	for {
		c := byte(v & 0x7f)
		v >>= 7
		if (v == 0 && c&0x40 == 0) || (v == -1 && c&0x40 != 0) {
			return append(w, c)
		}
		w = append(w, c|0x80)
	}
}

// Code joins opcodes and immediates: a byte or an int below 256 is itself, a []byte is appended.
func Code(parts ...any) []byte {
	var w []byte
	for _, p := range parts {
		switch p := p.(type) {
		case int:
			w = append(w, byte(p))
		case byte:
			w = append(w, p)
		case []byte:
			w = append(w, p...)
		default:
			panic("wasmtest: a part must be a byte, an int or bytes")
		}
	}
	return w
}

// I32Const and I64Const are constants.
func I32Const(v int32) []byte { return Code(0x41, S(int64(v))) }
func I64Const(v int64) []byte { return Code(0x42, S(v)) }

func str(s string) []byte   { return append(U(len(s)), s...) }
func sized(b []byte) []byte { return append(U(len(b)), b...) }

func vec[T any](xs []T, enc func(T) []byte) []byte {
	w := U(len(xs))
	for _, x := range xs {
		w = append(w, enc(x)...)
	}
	return w
}

func (l Limits) bytes() []byte {
	if l.Max < 0 {
		return Code(0, U(l.Min))
	}
	return Code(1, U(l.Min), U(l.Max))
}

// Bytes writes the module.
func (m Module) Bytes() []byte {
	w := []byte{0, 'a', 's', 'm', 1, 0, 0, 0}
	put := func(id byte, body []byte) { w = append(append(w, id), sized(body)...) }
	put(1, vec(m.Types, func(t Type) []byte { return Code(0x60, sized(t.Params), sized(t.Results)) }))
	if len(m.Imports) > 0 {
		put(2, vec(m.Imports, func(i Import) []byte { return slices.Concat(str(i.Module), str(i.Name), []byte{0}, U(i.Type)) }))
	}
	put(3, vec(m.Funcs, func(f Func) []byte { return U(f.Type) }))
	if m.Table != nil {
		put(4, Code(1, FuncRef, m.Table.bytes()))
	}
	if m.Memory != nil {
		put(5, Code(1, m.Memory.bytes()))
	}
	if len(m.Globals) > 0 {
		put(6, vec(m.Globals, func(g Global) []byte {
			mut := 0
			if g.Mutable {
				mut = 1
			}
			return Code(g.Type, mut, g.Init, 0x0b)
		}))
	}
	put(7, m.exports())
	if m.Start != 0 {
		put(8, U(m.Start))
	}
	if len(m.Elems) > 0 {
		put(9, Code(1, 0, I32Const(0), 0x0b, vec(m.Elems, U)))
	}
	if slices.ContainsFunc(m.Data, func(d Data) bool { return d.Passive }) {
		put(12, U(len(m.Data)))
	}
	put(10, vec(m.Funcs, func(f Func) []byte {
		locals := vec(f.Locals, func(t byte) []byte { return Code(1, t) })
		return sized(Code(locals, f.Body, 0x0b))
	}))
	if len(m.Data) > 0 {
		put(11, vec(m.Data, func(d Data) []byte {
			if d.Passive {
				return Code(1, sized(d.Bytes))
			}
			return Code(0, I32Const(int32(d.Offset)), 0x0b, sized(d.Bytes))
		}))
	}
	for _, s := range m.Extra {
		put(s.ID, s.Body)
	}
	return w
}

func (m Module) exports() []byte {
	var es [][]byte
	for i, f := range m.Funcs {
		if f.Export != "" {
			es = append(es, Code(str(f.Export), 0, U(i+len(m.Imports))))
		}
	}
	if m.Memory != nil {
		es = append(es, Code(str("memory"), 2, 0))
	}
	for i, g := range m.Globals {
		if g.Export != "" {
			es = append(es, Code(str(g.Export), 3, U(i)))
		}
	}
	return vec(es, func(b []byte) []byte { return b })
}

// Size returns limits. A max of -1 means none.
func Size(minimum, maximum int) *Limits { return &Limits{Min: minimum, Max: maximum} }
