package script

import (
	"bytes"
	"fmt"
	"math"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
)

// scratchSize is the guest memory that strings pass through on their way in; longer ones are allocated.
const scratchSize = 16 << 10

// handles are values of the guest that live in every image: addresses, the same in all cells of an image.
type handles struct {
	entry     uint32 // the prelude's entry function
	undefined uint32
	isTrue    uint32
	isFalse   uint32
	kinds     [kindCount]uint32 // the numbers from 0 on, as entry takes them first
	argv      uint32            // room for the arguments of a call
	scratch   uint32            // scratchSize bytes
	allocated uint32            // bytes that the engine has allocated in the base image
}

// vm is the guest's side of one cell's life: values in, values out, and what the driver waits for. After the first error
// its methods do nothing, and err says why.
type vm struct {
	cell   *cell.Cell
	h      *handles
	err    error
	source *SourceMap

	preparing bool // the base image is being made
	loaded    *loaded
	result    *agent.Payload
	response  *Response
	failure   error  // what the author's code threw
	ended     bool   // the result is there, and nothing runs on after it
	awaited   uint64 // the promise of what the function returns, or 0

	loading  bool // the bundle that runs once is being evaluated
	rejected []rejected
	flight
	rest *rest // nil for a call that is never suspended
}

// call runs a function of the engine and returns its i32 result.
func (v *vm) call(name string, args ...uint64) uint64 {
	return v.call64(name, args...) & math.MaxUint32 // the upper half of an i32 is not defined
}

func (v *vm) call64(name string, args ...uint64) uint64 {
	if v.err != nil {
		return 0
	}
	r, err := v.cell.Call(name, args...)
	if err != nil {
		v.err = err
		return 0
	}
	return r
}

func (v *vm) fail(err error) {
	if v.err == nil {
		v.err = err
	}
}

func (v *vm) outOfMemory() { v.fail(v.memoryExceeded()) }

func (v *vm) memoryExceeded() error {
	return agent.Exceeded(agent.LimitMemory, "the code needed more memory than its limit of %d bytes", v.cell.Env().Limits.Memory)
}

// noMessage is what the engine says in an error when there is no memory for what it would say.
const noMessage = "Invalid error message"

// check returns the handle h, or fails when it stands for an exception.
func (v *vm) check(h uint64) uint64 {
	if v.err == nil && (h == 0 || v.call("qjs_is_exception", h) != 0) {
		v.exception()
	}
	return h
}

// exception fails with what the guest threw outside of any function of an author.
func (v *vm) exception() {
	e := v.call("qjs_get_exception")
	uncatchable := v.call("qjs_is_uncatchable_error", e) != 0
	msg := v.text(e)
	trace := v.property(e, "stack")
	v.call("qjs_free_value", e)
	switch {
	case v.err != nil:
	case uncatchable && strings.Contains(msg, "out of memory"), msg == "InternalError: "+noMessage:
		v.outOfMemory()
	case strings.Contains(msg, stackOverflow):
		v.fail(stackExceeded())
	default:
		trace = clip(trace)
		v.fail(&agent.Error{Kind: agent.Failed, Msg: clip(msg), Pos: topOf(v.source, trace), Stack: tidy(v.source, trace)})
	}
}

const stackOverflow = "Maximum call stack size exceeded"

func stackExceeded() error {
	return agent.Exceeded(agent.LimitStack, "the code recursed too deeply: %s", stackOverflow)
}

// property reads a property of an object as text.
func (v *vm) property(h uint64, name string) string {
	ptr, _ := v.copyIn([]byte(name))
	p := v.call("qjs_get_prop_string", h, ptr)
	v.call("wasm_free", ptr)
	s := ""
	if v.err == nil && v.call("qjs_is_string", p) != 0 {
		s = v.text(p)
	}
	v.call("qjs_free_value", p)
	return s
}

// text returns a value as a string.
func (v *vm) text(h uint64) string {
	p := v.call("qjs_get_string_len", h, uint64(v.h.scratch))
	if v.err != nil {
		return ""
	}
	if p == 0 {
		v.outOfMemory()
		return ""
	}
	s := string(v.read(uint32(p), v.u32(v.h.scratch)))
	v.call("qjs_free_cstring", p)
	return s
}

// view finds the memory of a Uint8Array.
func (v *vm) view(h uint64) (ptr, n uint32) {
	s := v.h.scratch
	buf := v.call("qjs_get_typed_array_buffer", h, uint64(s), uint64(s+4), uint64(s+8))
	if v.check(buf); v.err != nil {
		return 0, 0
	}
	offset, n := v.u32(s), v.u32(s+4)
	at := v.call("qjs_get_array_buffer", buf, uint64(s))
	v.call("qjs_free_value", buf)
	if at == 0 {
		return 0, 0 // an empty or a detached one
	}
	return uint32(at) + offset, n
}

// bytes copies a Uint8Array.
func (v *vm) bytes(h uint64) []byte {
	ptr, n := v.view(h)
	return bytes.Clone(v.read(ptr, n))
}

func (v *vm) number(h uint64) float64 {
	return math.Float64frombits(v.call64("qjs_get_float64", h))
}

// newText makes a string. What is not UTF-8 in it is replaced.
func (v *vm) newText(s string) uint64 {
	if !validUTF8([]byte(s)) {
		s = string(replaceUTF8([]byte(s)))
	}
	return v.pass([]byte(s), "qjs_new_string")
}

// form is how a value crosses, as api.js numbers them.
type form uint8

const (
	formJSON  form = iota // a text to parse
	formText              // a text
	formBytes             // a Uint8Array
	formOther             // a Uint8Array, of a type that is said
)

// formOf says in which form a payload goes in.
func formOf(p agent.Payload) form {
	switch {
	case p.Type == agent.TypeJSON || p.IsJSON(): // the first of which is quicker
		return formJSON
	case strings.HasPrefix(p.Type, "text/"):
		return formText
	}
	return formBytes
}

func (v *vm) newBody(f form, b []byte) uint64 {
	if f >= formBytes {
		return v.newBytes(b)
	}
	return v.newText(string(b))
}

// smallNumber returns a number that every image has already.
func (v *vm) smallNumber(n float64) (h uint64, there bool) {
	i := int(n)
	if n < 0 || n >= kindCount || float64(i) != n {
		return 0, false
	}
	return uint64(v.h.kinds[i]), true
}

func (v *vm) newNumber(n float64) uint64 { return v.call("qjs_new_number", number(n)) }

func (v *vm) newBytes(b []byte) uint64 { return v.pass(b, "qjs_new_uint8_array") }

// pass copies b into the guest for a function that copies it once more.
func (v *vm) pass(b []byte, to string) uint64 {
	if len(b) <= scratchSize {
		v.write(v.h.scratch, b)
		return v.check(v.call(to, uint64(v.h.scratch), uint64(len(b))))
	}
	ptr, n := v.copyIn(b)
	h := v.check(v.call(to, ptr, uint64(n)))
	v.call("wasm_free", ptr)
	return h
}

// copyIn allocates a copy of b, with a zero after it.
func (v *vm) copyIn(b []byte) (ptr uint64, n uint32) {
	if ptr = v.call("wasm_malloc", uint64(len(b)+1)); ptr == 0 {
		v.outOfMemory()
		return 0, 0
	}
	v.write(uint32(ptr), b)
	v.write(uint32(ptr)+uint32(len(b)), []byte{0})
	return ptr, uint32(len(b))
}

// read, write and u32 reach the guest's memory. A place outside of it is an error of ours or a guest gone wrong.
func (v *vm) read(ptr, n uint32) []byte {
	if v.err != nil {
		return nil
	}
	m := v.cell.Memory()
	if uint64(ptr)+uint64(n) > uint64(len(m)) {
		v.fail(agent.Errorf(agent.Failed, "the engine named %d bytes at %d, outside of its memory", n, ptr))
		return nil
	}
	return m[ptr : ptr+n]
}

func (v *vm) write(ptr uint32, b []byte) { copy(v.read(ptr, uint32(len(b))), b) }

func (v *vm) u32(ptr uint32) uint32 {
	b := v.read(ptr, 4)
	if b == nil {
		return 0
	}
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}

func (v *vm) putU32(ptr, n uint32) {
	v.write(ptr, []byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)})
}

// cString reads a zero-terminated string of at most 4 KiB.
func (v *vm) cString(ptr uint32) string {
	m := v.cell.Memory()
	if uint64(ptr) >= uint64(len(m)) {
		return ""
	}
	m = m[ptr:min(uint64(ptr)+4096, uint64(len(m)))]
	if i := bytes.IndexByte(m, 0); i >= 0 {
		m = m[:i]
	}
	return string(m)
}

// duplicate allocates a copy of a zero-terminated string.
func (v *vm) duplicate(ptr uint32) uint64 {
	p, _ := v.copyIn([]byte(v.cString(ptr)))
	return p
}

// throw makes the guest's code throw an Error, once the host function returns.
func (v *vm) throw(msg string) {
	e := v.call("qjs_new_error")
	name, _ := v.copyIn([]byte("message"))
	text := v.newText(msg)
	v.call("qjs_set_prop_string", e, name, text)
	v.call("wasm_free", name)
	v.call("qjs_free_value", text)
	v.call("qjs_free_value", v.call("qjs_throw", e))
	v.call("qjs_free_value", e)
}

func quote(s string) string { return fmt.Sprintf("%.80q", s) }
