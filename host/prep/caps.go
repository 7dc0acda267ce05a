package prep

import "github.com/skep-dev/skep/agent"

// Caps bounds what a module may ask of the compiler and of memory. Compiling is CPU that a stranger spends for us: about
// 0.7 s a megabyte for ordinary code, far more for code made to be slow.
type Caps struct {
	Size         int    // bytes of the module
	Types        int    // function types
	Imports      int    // imported functions
	Functions    int    // functions defined
	Exports      int    // exports
	Globals      int    // globals
	Tables       int    // tables
	TableEntries uint32 // entries of a table, at the start and after growth
	Pages        uint32 // pages of 64 KiB of memory, at the start and after growth
	Segments     int    // data segments
	Elements     int    // element segments
	Locals       int    // locals of one function
	Body         int    // bytes of one function
	Nesting      int    // blocks within blocks
	Loops        int    // loops of one function: compiling takes longer than their number squared
	Targets      int    // targets of one br_table
	Params       int    // parameters or results of one function type
	Name         int    // bytes of a name
}

// DefaultCaps leaves room for the largest real guests known (CPython, Go programs of 20 MB).
func DefaultCaps() Caps {
	return Caps{
		Size: 64 << 20, Types: 10_000, Imports: 1_000, Functions: 200_000, Exports: 20_000, Globals: 10_000, Tables: 8,
		TableEntries: 1_000_000, Pages: 16_384, Segments: 1_000_000, Elements: 10_000, Locals: 5_000, Body: 4 << 20,
		Nesting: 20_000, Loops: 1_000, Targets: 65_520, Params: 128, Name: 4_096,
	}
}

func (c Caps) check(what string, got, most int) {
	if got > most {
		over(agent.LimitModule, what, uint64(got), uint64(most))
	}
}
