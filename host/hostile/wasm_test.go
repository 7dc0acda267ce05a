package hostile_test

import (
	"slices"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
	"github.com/skep-dev/skep/host/extism"
	"github.com/skep-dev/skep/host/wasi"
	w "github.com/skep-dev/skep/internal/wasmtest"
)

// Opcodes.
const (
	unreachable = 0x00
	block       = 0x02
	loop        = 0x03
	if_         = 0x04
	else_       = 0x05
	end_        = 0x0b
	br          = 0x0c
	brIf        = 0x0d
	brTable     = 0x0e
	callOp      = 0x10
	indirect    = 0x11
	drop        = 0x1a
	localGet    = 0x20
	localSet    = 0x21
	localTee    = 0x22
	globalGet   = 0x23
	globalSet   = 0x24
	i32Load     = 0x28
	i64Load     = 0x29
	i32Store    = 0x36
	memorySize  = 0x3f
	memoryGrow  = 0x40
	eq          = 0x46
	i32Add      = 0x6a
	i32Sub      = 0x6b
	i64Add      = 0x7c
	refNull     = 0xd0
	misc        = 0xfc
	empty       = 0x40 // type of a block
)

// lib lists all functions that a module may import: each module here imports each of them.
var lib = slices.Concat(wasi.Funcs(), extism.Funcs())

// types are the function types of every module: void, then () -> i32, then those of lib.
func types() []w.Type {
	ts := []w.Type{{}, {Results: []byte{w.I32}}, {Params: []byte{w.I32}}, {Params: []byte{w.I32}, Results: []byte{w.I32}}}
	for _, f := range lib {
		ts = append(ts, w.Type{Params: f.Params, Results: f.Results})
	}
	return ts
}

const (
	void   = 0 // () -> ()
	toI32  = 1 // () -> i32
	takes  = 2 // i32 -> ()
	i32I32 = 3 // i32 -> i32
	own    = 4 // how many there are before those of lib
)

func imports() []w.Import {
	var is []w.Import
	for i, f := range lib {
		is = append(is, w.Import{Module: f.Module, Name: f.Name, Type: own + i})
	}
	return is
}

// call is a call of a host's function, and self one of the module's i-th own.
func call(name string) []byte {
	i := slices.IndexFunc(lib, func(f cell.Func) bool { return f.Name == name })
	if i < 0 {
		panic("no function " + name)
	}
	return w.Code(callOp, w.U(i))
}

func self(i int) []byte { return w.Code(callOp, w.U(len(lib)+i)) }

// forever repeats code without end.
func forever(parts ...any) []byte { return w.Code(loop, empty, w.Code(parts...), br, 0, end_) }

// times repeats code n times; local counts down.
func times(n int32, local int, parts ...any) []byte {
	return w.Code(w.I32Const(n), localSet, local,
		loop, empty, w.Code(parts...), localGet, local, w.I32Const(1), i32Sub, localTee, local, brIf, 0, end_)
}

// i32s is n constants.
func i32s(vs ...int32) []byte {
	var b []byte
	for _, v := range vs {
		b = append(b, w.I32Const(v)...)
	}
	return b
}

func i64s(vs ...int64) []byte {
	var b []byte
	for _, v := range vs {
		b = append(b, w.I64Const(v)...)
	}
	return b
}

// nothing is f without a result; own functions come after it.
func f(body []byte, locals ...byte) w.Func {
	return w.Func{Type: void, Body: body, Export: "f", Locals: locals}
}

// module is a module that imports all of lib.
func module(m w.Module) agent.Source {
	m.Types, m.Imports = append(types(), m.Types...), imports()
	return binary(m.Bytes())
}

func binary(b []byte) agent.Source {
	return agent.Source{Kind: agent.Wasm, Main: "agent.wasm", Files: map[string][]byte{"agent.wasm": b}}
}

// wasm is a module with a function f and a memory of a page, that has locals i32, i32, i64, i64.
func wasm(parts ...any) agent.Source {
	return module(w.Module{
		Memory: w.Size(1, -1), Funcs: []w.Func{f(w.Code(parts...), w.I32, w.I32, w.I64, w.I64)},
	})
}

// section is a section of a module as it is, and sections a module of them.
type section struct {
	id   byte
	body []byte
}

func sections(ss ...section) agent.Source {
	b := []byte{0, 'a', 's', 'm', 1, 0, 0, 0}
	for _, s := range ss {
		b = append(append(append(b, s.id), w.U(len(s.body))...), s.body...)
	}
	return binary(b)
}
