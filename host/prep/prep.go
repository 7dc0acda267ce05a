// Package prep turns a stranger's WebAssembly module into one that is safe to compile and cheap to clone.
//
// It checks the module against caps and an import list, and rewrites it: fuel is charged per region of code, so that a
// host function can stop or pause the guest anywhere; large memory.fill and memory.copy work in chunks; mutable globals
// are exported, and active data segments and the start function are taken out, so that a host can take an image of an
// initialised instance and make others from it without running anything.
//
// It reads the binary format of WebAssembly core 2.0 (https://www.w3.org/TR/wasm-core-2/, section 5). Full type checking
// is left to the engine that compiles the result; what is checked here is whatever the rewriting relies on.
package prep

import (
	"fmt"

	"github.com/skep-dev/skep/agent"
)

// Version changes whenever the same input would be rewritten to different output. It is part of every cache key.
const Version = 4

// The names that prepared modules import and export. Authors may not export names with this prefix.
const (
	reserved     = "skep:"
	MeterModule  = "skep:meter"  // import module of the refill function
	RefillName   = "refill"      // refill(left i64) -> i64: called when fuel is below zero; returns the new fuel
	FuelGlobal   = "skep:fuel"   // exported mutable i64 global
	TableGlobal  = "skep:table"  // exported mutable i64 global: entries a table may grow to; 0 once growth was refused
	StartName    = "skep:start"  // the module's start function, when it has one
	DispatchName = "skep:call"   // (index i32, six arguments as i64) -> i64: calls an exported function, see Module.Dispatch
	globalPrefix = "skep:global" // exported mutable globals: skep:global0, ...
)

// ValueType is a value type of the binary format.
type ValueType = byte

// The value types (core 2.0, section 5.3).
const (
	I32       ValueType = 0x7f
	I64       ValueType = 0x7e
	F32       ValueType = 0x7d
	F64       ValueType = 0x7c
	V128      ValueType = 0x7b
	FuncRef   ValueType = 0x70
	ExternRef ValueType = 0x6f
)

// Signature is the type of a function.
type Signature struct{ Params, Results []ValueType }

// Func is a function that crosses the module's border.
type Func struct {
	Module string // for imports
	Name   string
	Signature
}

// Segment is an active data segment: bytes that the host writes to memory before anything runs.
type Segment struct {
	Offset uint32
	Data   []byte
}

// Global is a mutable global, exported under Name.
type Global struct {
	Name string
	Type ValueType
}

// Module is a prepared module.
type Module struct {
	Code      []byte // the rewritten module
	Imports   []Func // without the meter
	Exports   []Func // the author's exported functions, in their order
	Data      []Segment
	Globals   []Global // all mutable globals but the fuel
	HasMemory bool
	MinPages  uint32 // pages of 64 KiB that the memory starts with
	HasStart  bool   // StartName is exported

	// Dispatch gives the index by which DispatchName calls an exported function, StartName included. The engine keeps a
	// native stack for each function that a host calls; through this one export, a cell needs just one. Functions of more
	// than six parameters or one result, or with vectors or references, are not there.
	Dispatch map[string]uint32

	Table uint32 // entries that the largest table starts with
	Grows bool   // a table may grow: TableGlobal is exported

	// Cloneable says that memory and globals are all the state there is. A module that changes its tables, or keeps a
	// reference or a vector in a mutable global, is instantiated and initialised anew for each cell.
	Cloneable bool
	// Resettable says that, besides, a used instance can be made new again in place: no segment is ever dropped.
	Resettable bool
}

// Allow reports whether a function may be imported, by returning its signature.
type Allow func(module, name string) (Signature, bool)

// Prepare checks and rewrites wasm. Errors are of kind Invalid, or Exhausted with LimitModule, LimitMemory or LimitTable
// when a cap is passed; they say which. nil caps are DefaultCaps.
func Prepare(wasm []byte, allow Allow, caps *Caps) (m *Module, err error) {
	if caps == nil {
		d := DefaultCaps()
		caps = &d
	}
	defer catch(&err)
	p := &parser{caps: *caps, allow: allow}
	p.split(wasm)
	p.readAll()
	return p.rewrite(), nil
}

// fault is how the readers of this package give up; catch turns it into an error.
type fault struct{ err error }

func catch(err *error) {
	switch f := recover().(type) {
	case nil:
	case fault:
		*err = f.err
	default:
		panic(f)
	}
}

func fail(format string, args ...any) {
	panic(fault{agent.Errorf(agent.Invalid, "module refused: "+format, args...)})
}

func over(limit agent.Limit, what string, got, most uint64) {
	panic(fault{&agent.Error{
		Kind: agent.Exhausted, Limit: limit,
		Msg: fmt.Sprintf("module refused: %s: %d, at most %d allowed", what, got, most),
	}})
}
