package hostile_test

import (
	"bytes"

	"github.com/skep-dev/skep/agent"
	w "github.com/skep-dev/skep/internal/wasmtest"
)

// store is code that writes a number to memory.
func store(at, v int32) []byte { return w.Code(i32s(at, v), i32Store, 2, 0) }

// block64 is code that leaves the offset of a new Extism block with text in it, of at most eight bytes, in a local of type i64.
func block64(text string, local int) []byte {
	var v [8]byte
	copy(v[:], text)
	n := int64(0)
	for i := len(v) - 1; i >= 0; i-- {
		n = n<<8 | int64(v[i])
	}
	return w.Code(i64s(int64(len(text))), call("alloc"), localSet, local, localGet, local, i64s(n), call("store_u64"))
}

func floodAttacks() []attack {
	const log, hostCalls, memory, cpu = agent.LimitLog, agent.LimitHostCalls, agent.LimitMemory, agent.LimitCPU
	slow := agent.Limits{CPU: 500 * 1e6}
	return []attack{
		{name: "console lines", src: js(`for (;;) console.log("x".repeat(1000))`), want: over(log)},
		{name: "console of nothing", src: js(`for (;;) console.log()`), limits: agent.Limits{CPU: 3e9, Log: 10_000}, want: over(log)},
		{name: "one console line of 5 MB", src: js(`console.log("x".repeat(5e6))`), want: gives("null")}, // it is cut
		{name: "a console line that looks like a trace", src: js(`console.log("    at f (skep:agent:1:1)\n".repeat(1e5))`), want: gives("null")},
		{name: "console of a wide object", src: js(`const o: any = {}; for (let i = 0; i < 1e4; i++) o["k" + i] = o; for (;;) console.log(o)`), limits: slow, want: over(log, cpu)},
		{name: "console tables", src: js(`for (;;) console.table(Array.from({ length: 100 }, () => ({ a: 1, b: 2 })))`), limits: slow, want: over(log, cpu)},
		{name: "console with groups", src: js(`for (;;) console.group("x")`), limits: slow, want: over(log, cpu, memory)},
		{name: "unhandled rejections", src: js(`for (;;) { Promise.reject(new Error("x".repeat(1000))); await 0 }`), limits: slow, want: over(log, cpu)},
		{name: "emitted events", src: js(`for (;;) skep.emit("x", "y".repeat(1000))`), limits: agent.Limits{CPU: 3e9, HostCalls: 1000}, want: over(hostCalls)},
		{name: "emitted events without pause, awaited", src: js(`for (;;) await skep.emit("x", 1)`), limits: agent.Limits{CPU: 3e9, HostCalls: 1000}, want: over(hostCalls)},
		{name: "agent calls", src: js(`for (;;) await skep.callAgent("a", "f", 1)`), limits: agent.Limits{CPU: 3e9, HostCalls: 1000}, want: over(hostCalls)},
		{name: "agent calls without waiting", src: js(`for (;;) skep.callAgent("a", "f", 1).catch(() => {})`), limits: slow, want: over(hostCalls, memory, cpu)},
		{name: "agent calls that hold megabytes", src: js(`for (;;) skep.callAgent("a", "f", "x".repeat(1e6)).catch(() => {})`), limits: slow, want: over(memory, hostCalls, cpu)},
		{name: "agent calls in small pieces", src: js(`for (let i = 0; i < 50; i++) await Promise.all(Array.from({ length: 300 }, () => skep.callAgent("a", "f", 1)))`), limits: agent.Limits{CPU: 3e9, HostCalls: 1000}, want: over(hostCalls)},
		{name: "fetches that are refused", src: js(`for (;;) try { await fetch("http://169.254.169.254/") } catch {}`), limits: agent.Limits{CPU: 3e9, HostCalls: 100}, want: over(hostCalls)},
		{name: "a fetch that is refused", src: js(`try { await fetch("http://169.254.169.254/") } catch (e) { return e.message.includes("may not reach") || e.message }`), want: gives("true")},
		{name: "fetches without waiting", src: js(`for (;;) fetch("http://a.b/", { method: "POST", body: "x".repeat(1e5) }).catch(() => {})`), limits: slow, want: over(hostCalls, memory, cpu)},
		{name: "fetches that are aborted at once", src: js(`for (;;) { const c = new AbortController(); fetch("http://a.b/", { signal: c.signal }).catch(() => {}); c.abort(); await 0 }`), limits: slow, want: over(hostCalls, cpu)},
		{name: "fetch of a file", src: js(`try { await fetch("file:///etc/passwd") } catch (e) { return "no" }`), want: gives("no")},
		{name: "an output above the limit", src: js(`return "x".repeat(1e6)`), limits: agent.Limits{Output: 1000}, want: over(agent.LimitOutput)},
		{name: "an output of bytes above the limit", src: js(`return new Uint8Array(1e6)`), limits: agent.Limits{Output: 1000}, want: over(agent.LimitOutput)},
		{name: "an output of JSON above the limit", src: js(`return new Array(1e5).fill(1)`), limits: agent.Limits{Output: 1000}, want: over(agent.LimitOutput)},
		{name: "a response above the limit", src: script(`export default { fetch() { return new Response("x".repeat(1e6)) } }`), fetch: true, limits: agent.Limits{Output: 1000, CPU: 3e9}, want: over(agent.LimitOutput)},
		{name: "a response's stream above the limit", src: script(`export default { fetch() { return new Response(new ReadableStream({ pull(c) { c.enqueue(new Uint8Array(1e6)) } })) } }`), fetch: true, limits: agent.Limits{Output: 1000, CPU: 2 * 1e9}, want: over(agent.LimitOutput, memory)},
		{name: "response headers above the limit", src: script(`export default { fetch() { return new Response("", { headers: { "x-a": "v".repeat(1e5) } }) } }`), fetch: true, limits: agent.Limits{Output: 1000, CPU: 3e9}, want: over(agent.LimitOutput)},
		{name: "a media type above the limit", src: js(`return new Response("", { headers: { "content-type": "v".repeat(1e5) } })`), limits: agent.Limits{Output: 1000, CPU: 3e9}, want: over(agent.LimitOutput)},
		{name: "an input above the limit", src: js(`return 1`), input: `"` + string(bytes.Repeat([]byte("x"), 2000)) + `"`, limits: agent.Limits{Input: 1000}, want: over(agent.LimitInput)},
		{name: "an input that is deep JSON", src: js(`return 1`), input: string(bytes.Repeat([]byte("["), 5000)) + string(bytes.Repeat([]byte("]"), 5000)), want: either(gives("1"), failed(""), over(agent.LimitStack))},
		{name: "errors of megabytes", run: errorsAreShort},

		{name: "wasm output lines", src: wasm(store(0, 16), store(4, 1000), forever(i32s(1, 0, 1, 8), call("fd_write"), drop)), want: over(log)},
		{name: "wasm output of empty lines", src: wasm(store(0, 16), store(4, 1), store(16, '\n'), forever(i32s(1, 0, 1, 8), call("fd_write"), drop)), limits: slow, want: over(log, cpu)},
		{name: "wasm output of nothing", src: wasm(forever(i32s(1, 0, 1, 8), call("fd_write"), drop)), want: over(cpu)},
		{name: "wasm output of a thousand empty pieces", src: wasm(forever(i32s(1, 1024, 1024, 8), call("fd_write"), drop)), want: over(cpu)},
		{name: "wasm output of all memory in each of a thousand pieces", src: wasm(w.I32Const(800), memoryGrow, 0, drop, pieces(1024, 800<<16), i32s(1, 1024, 1024, 8), call("fd_write"), drop), want: over(log)},
		{name: "wasm half lines", src: wasm(store(0, 16), store(4, 1), forever(i32s(2, 0, 1, 8), call("fd_write"), drop)), limits: slow, want: over(log, cpu)},
		{name: "wasm log calls", src: wasm(forever(block64("x", 2), localGet, 2, call("log_info"))), limits: slow, want: over(log, memory, cpu)},
		{name: "wasm calls of an unknown name", src: wasm(forever(block64("nope", 2), block64("{}", 3), localGet, 2, localGet, 3, call("skep_call"), drop)), limits: slow, want: over(hostCalls, memory, cpu)},
		{name: "wasm requests that are not valid", src: wasm(block64("nope", 2), localGet, 2, i64s(0), call("http_request"), drop), want: failed("not valid")},
		{name: "wasm batch that is not valid", src: wasm(block64("nopenope", 2), localGet, 2, call("skep_batch"), drop), want: failed("skep_batch")},
		{name: "wasm clock for ever", src: wasm(forever(w.I32Const(0), i64s(0), w.I32Const(0), call("clock_time_get"), drop)), want: over(cpu)},
		{name: "wasm yields for ever", src: wasm(forever(call("sched_yield"), drop)), want: over(cpu)},
		{name: "wasm randomness for ever", src: wasm(forever(i32s(0, 65536), call("random_get"), drop)), want: over(cpu)},
		{name: "wasm randomness byte by byte", src: wasm(forever(i32s(0, 1), call("random_get"), drop)), want: over(cpu)},
	}
}

// pieces is code that fills a vector at 1024 with n pieces, each of all of the first size bytes.
func pieces(n, size int32) []byte {
	return times(n, 0, // local 0 counts down from n; piece i is at 1024 + 8(i-1)
		localGet, 0, w.I32Const(8), 0x6c, w.I32Const(size), i32Store, 2, w.U(1024-8+4))
}
