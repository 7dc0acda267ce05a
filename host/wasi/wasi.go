// Package wasi offers WASI preview 1 to cells, with nothing of the machine behind it: no arguments, no environment, no
// files, no sockets. There is an input that has ended, an output and an error stream whose lines go to the cell's log, and
// the clocks and the randomness of the cell's Env. Every function of preview 1 is there, so that modules link; what would
// reach outside answers with an error number.
//
// The layouts and error numbers are those of
// https://github.com/WebAssembly/WASI/blob/main/legacy/preview1/docs.md.
package wasi

import (
	"context"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
)

// Module is the import module of WASI preview 1.
const Module = "wasi_snapshot_preview1"

// State is what the streams and clocks of one life of a cell remember. The zero State is ready.
type State struct {
	Args   []string // the program's arguments, its name first; none unless set
	Device Device   // what stands in place of the input; nil when nothing does

	out, err line
	last     int64 // the newest monotonic time that was told
}

// Holder is implemented by the state that a guest's family keeps in Cell.Guest. A cell without one has its output cut into
// lines at the end of each write.
type Holder interface{ WASI() *State }

// Flush logs lines that have not ended. Call it when the guest's function has returned, inside Cell.Do.
func (s *State) Flush(c *cell.Cell) {
	s.out.flush(func(l string) { c.Log(agent.LevelInfo, l) })
	s.err.flush(func(l string) { c.Log(agent.LevelWarn, l) })
}

func stateOf(c *cell.Cell) (s *State, kept bool) {
	if h, ok := c.Guest.(Holder); ok {
		return h.WASI(), true
	}
	return &State{}, false
}

// errno is an error number of preview 1.
type errno uint64

const (
	success     errno = 0
	errBadFD    errno = 8
	errInvalid  errno = 28
	errNotSup   errno = 58
	errPipe     errno = 70 // ESPIPE: a stream cannot be positioned
	errNotGiven errno = 76 // ENOTCAPABLE
)

type host struct{ started time.Time }

type function struct {
	name   string
	params string // i is i32, I is i64
	call   func(c *cell.Cell, a []uint64) errno
}

// Funcs returns the functions of the module, for cell.New.
func Funcs() []cell.Func {
	h := &host{started: time.Now()}
	table := []function{
		{"args_get", "ii", argsGet}, {"args_sizes_get", "ii", argsSizesGet},
		{"environ_get", "ii", nothing}, {"environ_sizes_get", "ii", noSizes},
		{"clock_res_get", "ii", clockRes}, {"clock_time_get", "iIi", h.clockTime},
		{"fd_advise", "iIIi", stream(errPipe)}, {"fd_allocate", "iII", stream(errNotSup)},
		{"fd_close", "i", stream(success)}, {"fd_datasync", "i", stream(success)},
		{"fd_fdstat_get", "ii", fdStat}, {"fd_fdstat_set_flags", "ii", stream(success)},
		{"fd_fdstat_set_rights", "iII", stream(errNotGiven)}, {"fd_filestat_get", "ii", fdFileStat},
		{"fd_filestat_set_size", "iI", stream(errNotSup)}, {"fd_filestat_set_times", "iIIi", stream(errNotSup)},
		{"fd_pread", "iiiIi", stream(errPipe)}, {"fd_prestat_dir_name", "iii", badFD}, {"fd_prestat_get", "ii", badFD},
		{"fd_pwrite", "iiiIi", stream(errPipe)}, {"fd_read", "iiii", fdRead}, {"fd_readdir", "iiiIi", stream(errNotSup)},
		{"fd_renumber", "ii", stream(errNotSup)}, {"fd_seek", "iIii", stream(errPipe)}, {"fd_sync", "i", stream(success)},
		{"fd_tell", "ii", stream(errPipe)}, {"fd_write", "iiii", fdWrite},
		{"path_create_directory", "iii", path}, {"path_filestat_get", "iiiii", path},
		{"path_filestat_set_times", "iiiiIIi", path}, {"path_link", "iiiiiii", path}, {"path_open", "iiiiiIIii", path},
		{"path_readlink", "iiiiii", path}, {"path_remove_directory", "iii", path}, {"path_rename", "iiiiii", path},
		{"path_symlink", "iiiii", pathSymlink}, {"path_unlink_file", "iii", path},
		{"poll_oneoff", "iiii", h.poll}, {"proc_exit", "i", procExit}, {"proc_raise", "i", notSup},
		{"random_get", "ii", randomGet}, {"sched_yield", "", nothing},
		{"sock_accept", "iii", stream(errNotSup)}, {"sock_recv", "iiiiii", stream(errNotSup)},
		{"sock_send", "iiiii", stream(errNotSup)}, {"sock_shutdown", "ii", stream(errNotSup)},
	}
	fs := make([]cell.Func, len(table))
	for i, f := range table {
		fs[i] = f.bind()
	}
	return fs
}

func (f function) bind() cell.Func {
	out := cell.Func{Module: Module, Name: f.name, Results: []byte{cell.I32}}
	for _, p := range f.params {
		out.Params = append(out.Params, map[rune]byte{'i': cell.I32, 'I': cell.I64}[p])
	}
	if f.name == "proc_exit" {
		out.Results = nil
	}
	call := f.call
	out.Call = func(_ context.Context, c *cell.Cell, stack []uint64) { stack[0] = uint64(call(c, stack)) }
	return out
}

func nothing(*cell.Cell, []uint64) errno { return success }
func notSup(*cell.Cell, []uint64) errno  { return errNotSup }
func badFD(*cell.Cell, []uint64) errno   { return errBadFD }

func noSizes(c *cell.Cell, a []uint64) errno {
	c.PutU32(uint32(a[0]), 0)
	c.PutU32(uint32(a[1]), 0)
	return success
}

// path answers what begins with a directory: there is none.
func path(_ *cell.Cell, a []uint64) errno { return noDir(a[0]) }

func pathSymlink(_ *cell.Cell, a []uint64) errno { return noDir(a[2]) }

func noDir(fd uint64) errno {
	if isStream(fd) {
		return errNotGiven
	}
	return errBadFD
}

func procExit(c *cell.Cell, a []uint64) errno {
	c.Fail(&cell.Exit{Code: uint32(a[0])})
	return success
}
