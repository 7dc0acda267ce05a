package script

import (
	"context"
	"encoding/json"
	"io"
	"math"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
	"github.com/skep-dev/skep/host/prep"
)

// hostModule is the import module of the engine's own calls. Its WASI calls are those of any guest.
const hostModule = "env"

// Funcs returns the host functions that the script guest imports. They belong among those that the cell engine is made with.
func Funcs() []cell.Func {
	i32 := func(n int) []prep.ValueType {
		t := make([]prep.ValueType, n)
		for i := range t {
			t[i] = cell.I32
		}
		return t
	}
	f := func(name string, params, results int, call func(v *vm, stack []uint64)) cell.Func {
		return cell.Func{Module: hostModule, Name: name, Params: i32(params), Results: i32(results),
			Call: func(_ context.Context, c *cell.Cell, stack []uint64) {
				v, ok := c.Guest.(*vm)
				if !ok {
					c.Fail(agent.Errorf(agent.Internal, "a script's function was called outside of a script"))
				}
				call(v, stack)
				if v.err != nil {
					c.Fail(v.err)
				}
			}}
	}
	return []cell.Func{
		f("host_call", 5, 1, (*vm).hostCall),                                      // (name, length, this, argc, argv) -> value
		f("host_interrupt", 0, 1, func(_ *vm, s []uint64) { s[0] = 0 }),           // fuel is what interrupts
		f("host_promise_rejection", 3, 0, (*vm).rejection),                        // (promise, reason, handled)
		f("host_module_normalize", 2, 1, (*vm).normalize),                         // (base, name) -> name
		f("host_module_load", 2, 1, (*vm).load),                                   // (name, length*) -> source
		f("host_get_timezone_offset", 2, 1, func(_ *vm, s []uint64) { s[0] = 0 }), // UTC
	}
}

// The functions that the prelude's boot takes, in its order.
var bridge = []string{
	"cancel", "open", "write", "head", "read", "close", "reply", "piece", "state", "agent", "emit", "log", "alarm", "random", "crypto",
	"encode", "decode", "result", "response", "fail", "loaded", "end", "call", "ask",
}

// callState is what the names of package abi's calls about state begin with.
const callState = "state."

// args are the arguments of one call from the prelude, as handles.
type args struct {
	v    *vm
	n    uint32
	argv uint32
}

func (a args) handle(i uint32) uint64 {
	if i >= a.n {
		return uint64(a.v.h.undefined)
	}
	return uint64(a.v.cell.U32(a.argv + 4*i))
}
func (a args) text(i uint32) string  { return a.v.text(a.handle(i)) }
func (a args) bytes(i uint32) []byte { return a.v.bytes(a.handle(i)) }
func (a args) id(i uint32) uint32    { return uint32(min(max(a.number(i), 0), math.MaxUint32)) }
func (a args) length(i uint32) int64 { _, n := a.v.view(a.handle(i)); return int64(n) }
func (a args) truth(i uint32) bool   { return i < a.n && a.v.call("qjs_get_bool", a.handle(i)) != 0 }

// given reports whether there is an argument that is not undefined.
func (a args) given(i uint32) bool { return i < a.n && a.v.call("qjs_is_undefined", a.handle(i)) == 0 }

// someText is empty when the argument is undefined, as one is that an older prelude does not give.
func (a args) someText(i uint32) string {
	if !a.given(i) {
		return ""
	}
	return a.text(i)
}

// someBytes are none when the argument is undefined.
func (a args) someBytes(i uint32) []byte {
	if !a.given(i) {
		return nil
	}
	return a.bytes(i)
}

// request takes five arguments: method, URL, headers as JSON or nothing, redirect mode, and the length of a body that follows:
// below 0 when it is not known, undefined when none follows.
func (a args) request(i uint32) abi.HTTPOpen {
	r := abi.HTTPOpen{Method: a.text(i), URL: a.text(i + 1), Redirect: a.text(i + 3)}
	if header := a.text(i + 2); header != "" {
		if err := json.Unmarshal([]byte(header), &r.Header); err != nil {
			a.v.fail(agent.Wrap(agent.Internal, err, "a request's headers cannot be read"))
		}
	}
	if a.given(i + 4) {
		r.Stream = true
		if n := int64(a.number(i + 4)); n >= 0 {
			r.Length = &n
		}
	}
	return r
}

// body takes two arguments: a form, and the text or bytes.
func (a args) body(i uint32) (form, []byte) {
	f := form(min(max(a.number(i), 0), float64(formOther)))
	if f >= formBytes {
		return f, a.bytes(i + 1)
	}
	return f, []byte(a.text(i + 1))
}

func (a args) number(i uint32) float64 {
	return a.v.number(a.handle(i))
}

// hostCall is where the prelude's calls arrive. What it leaves in stack[0] is a new handle.
func (v *vm) hostCall(stack []uint64) {
	name := v.cell.Read(uint32(stack[0]), uint32(stack[1]))
	a := args{v, uint32(stack[3]), uint32(stack[4])}
	var out uint64
	switch string(name) {
	case "cancel":
		v.abandon(a.number(0))
	case "open":
		v.cell.CountCall()
		v.start(a.number(0), abi.CallHTTPOpen, abi.AppendHTTPFrame(nil, v.marshal(a.request(1)), a.someBytes(6)))
	case "write":
		v.cell.CountCall()
		v.start(a.number(0), abi.CallHTTPWrite, abi.AppendHTTPWrite(nil, a.id(1), a.truth(2), a.someBytes(3)))
	case "head":
		v.cell.CountCall()
		v.start(a.number(0), abi.CallHTTPHead, abi.AppendHTTPID(nil, a.id(1)))
	case "read":
		v.cell.CountCall()
		v.start(a.number(0), abi.CallHTTPRead, abi.AppendHTTPID(nil, a.id(1)))
	case "reply":
		v.cell.CountCall()
		head := a.text(1)
		v.out(len(head))
		v.start(a.number(0), abi.CallReply, []byte(head))
	case "piece":
		v.cell.CountCall()
		piece := a.bytes(1)
		v.out(len(piece))
		v.start(a.number(0), abi.CallReplyWrite, piece)
	case "close":
		v.closeExchange(a.id(0)) // a request that nobody wants any more
	case "state":
		v.cell.CountCall()
		v.start(a.number(0), callState+a.text(1), []byte(a.text(2)))
	case "agent":
		v.cell.CountCall()
		f, body := a.body(3)
		v.start(a.number(0), abi.CallAgent, v.marshal(abi.AgentCall{
			Agent: a.text(1), Function: a.text(2), Type: f.mediaType(), Input: body,
			Key: a.someText(5), Child: a.truth(6), Send: a.truth(7),
		}))
	case "emit":
		if _, err := v.ask(abi.CallEmit, v.marshal(abi.Emit{Name: a.text(0), Data: abi.Raw(a.text(1))})); err != nil {
			out = v.newText(string(errorBody(err)))
		}
	case "log":
		v.cell.Log(agent.LogLevel(min(max(a.number(0), 0), float64(agent.LevelError))), mapText(v.source, a.text(1)))
	case "alarm":
		v.setAlarm(a.number(0))
	case "random":
		ptr, n := v.view(a.handle(0))
		v.cell.Spend(int64(n))
		if _, err := io.ReadFull(v.cell.Env().Random, v.cell.Read(ptr, n)); err != nil {
			v.fail(agent.Wrap(agent.Unavailable, err, "no randomness"))
		}
	case "crypto":
		v.cell.Spend(cryptoFuel(a.length(1) + a.length(2)))
		b, err := doCrypto([]byte(a.text(0)), a.bytes(1), a.bytes(2), v.cell.Env().Random)
		if err != nil {
			out = v.newText(err.Error())
		} else {
			out = v.newBytes(b)
		}
	case "encode":
		out = v.encode(a.handle(0))
	case "decode":
		out = v.decode(a.handle(0), int(a.number(1)))
	case "result":
		v.setResult(a)
		v.ended = !a.truth(2)
	case "response":
		v.setResponse(a)
		v.ended = !a.truth(2)
	case "fail":
		v.setFailure([]byte(a.text(0)))
		v.ended = !a.truth(1)
	case "loaded":
		v.setLoaded([]byte(a.text(0)))
	case "end":
		v.ended = true
	case "call":
		v.cell.CountCall()
		v.startCalled(a.number(0), a.text(1), []byte(a.text(2)), a.someText(3))
	case "ask":
		out = v.askText(a.text(0), []byte(a.text(1)))
	default:
		v.fail(agent.Errorf(agent.Internal, "the prelude called an unknown function %q", name))
	}
	if out == 0 {
		out = v.call("qjs_get_undefined")
	}
	stack[0] = out
}

// cryptoFuel is what an operation on n bytes is charged: a signature, and the slowest of the hashes.
func cryptoFuel(n int64) int64 { return 50_000 + 4*n }

// encode makes the bytes of a string, inside the guest's memory.
func (v *vm) encode(h uint64) uint64 {
	p := v.call("qjs_get_string_len", h, uint64(v.h.scratch))
	if p == 0 {
		v.outOfMemory()
	}
	b := v.call("qjs_new_uint8_array", p, uint64(v.cell.U32(v.h.scratch)))
	v.call("qjs_free_cstring", p)
	return b
}

// The flags of decode.
const (
	decodeFatal   = 1
	decodeKeepBOM = 2
)

// decode makes the string of UTF-8 bytes. It returns 0, for undefined, when they are not valid and flags ask for that.
func (v *vm) decode(h uint64, flags int) uint64 {
	ptr, n := v.view(h)
	b := v.cell.Read(ptr, n)
	v.cell.Spend(int64(n) / 4)
	if flags&decodeKeepBOM == 0 && len(b) >= 3 && b[0] == 0xef && b[1] == 0xbb && b[2] == 0xbf {
		ptr, n, b = ptr+3, n-3, b[3:]
	}
	if validUTF8(b) {
		return v.check(v.call("qjs_new_string", uint64(ptr), uint64(n)))
	}
	if flags&decodeFatal != 0 {
		return 0
	}
	return v.newText(string(replaceUTF8(b)))
}

// marshal writes a body of package abi.
func (v *vm) marshal(body any) []byte {
	b, err := json.Marshal(body)
	if err != nil {
		v.fail(agent.Wrap(agent.Internal, err, "a call to the host cannot be written"))
	}
	return b
}

// mediaType is the type of what an author's value became.
func (f form) mediaType() string {
	switch f {
	case formJSON:
		return agent.TypeJSON
	case formText:
		return agent.TypeText
	}
	return "application/octet-stream"
}

// setResult takes a function's value: (form, text or bytes, whether the cell goes on, the type of another form).
func (v *vm) setResult(a args) {
	f, body := a.body(0)
	p := agent.Payload{Type: f.mediaType(), Body: body}
	if f == formOther {
		p.Type = a.text(3)
	}
	const longest = 1 << 10
	if len(p.Type) > longest {
		v.failure = agent.Exceeded(agent.LimitOutput, "the value's content type is longer than %d bytes", longest)
		return
	}
	if err := v.cell.Out(len(p.Body)); err != nil {
		v.failure = err
		return
	}
	v.result = &p
}

// out counts bytes that leave the cell before its result does.
func (v *vm) out(n int) {
	if err := v.cell.Out(n); err != nil {
		v.fail(err)
	}
}

// setResponse takes what a fetch handler answered: (head, body).
func (v *vm) setResponse(a args) {
	var r Response
	if err := json.Unmarshal([]byte(a.text(0)), &r); err != nil {
		v.failure = agent.Wrap(agent.Failed, err, "the response's head is not valid")
		return
	}
	r.Body = a.bytes(1)
	size := len(r.Body)
	for _, h := range r.Header {
		size += len(h[0]) + len(h[1])
	}
	if err := v.cell.Out(size); err != nil {
		v.failure = err
		return
	}
	v.response = &r
}

func (v *vm) setLoaded(b []byte) {
	var l loaded
	if err := json.Unmarshal(b, &l); err != nil {
		v.failure = agent.Wrap(agent.Internal, err, "the module's exports cannot be read")
		return
	}
	v.loaded = &l
}

// normalize answers every import: a bundled module has none left but "skep".
func (v *vm) normalize(stack []uint64) { stack[0] = v.duplicate(uint32(stack[1])) }

// load gives the module "skep" while the base image is made; later it is known to the engine. Nothing else is there.
func (v *vm) load(stack []uint64) {
	name, out := v.cString(uint32(stack[0])), uint32(stack[1])
	if name == "skep" && v.preparing {
		ptr, n := v.copyIn(skepModule)
		v.cell.PutU32(out, n)
		stack[0] = ptr
		return
	}
	v.throw("a running agent cannot import " + quote(name) + ": imports are resolved when the code is uploaded, so their names must be literal")
	stack[0] = 0
}

// skepModule is what authors import from "skep"; the prelude leaves it in a global, which this takes away.
var skepModule = []byte(`const s = globalThis.__skep; delete globalThis.__skep;
export const {
	Agent, ChatAgent, NonRetryableError, SkepError, ToolError, agent, broadcast, callAgent, cancelSchedule, child, config, connections, deleteAlarm,
	deleteChild, emit, files, getAlarm, getSchedule, kv, listSchedules, log, model, outside, run, sandbox, schedule, scheduleEvery, secret, setAlarm, skills,
	sleep, sleepUntil, sql, step, storage, tools, waitForEvent,
} = s;
export default s;
`)
