package extism

import (
	"context"
	"encoding/binary"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
)

// envModule is the import module of the Extism ABI (https://extism.org/docs/concepts/pdk, and the kernel of EIP-007).
const envModule = "extism:host/env"

type function struct {
	name            string
	params, results string // i is i32, I is i64
	call            func(c *cell.Cell, g *guest, a []uint64)
}

func env() []function {
	return []function{
		{"alloc", "I", "I", alloc},
		{"free", "I", "", free},
		{"length", "I", "I", length}, {"length_unsafe", "I", "I", length},
		{"load_u8", "I", "i", loadU8}, {"load_u64", "I", "I", loadU64},
		{"store_u8", "Ii", "", storeU8}, {"store_u64", "II", "", storeU64},
		{"input_set", "II", "", inputSet},
		{"input_offset", "", "I", func(_ *cell.Cell, g *guest, a []uint64) { a[0] = g.input.at }},
		{"input_length", "", "I", func(_ *cell.Cell, g *guest, a []uint64) { a[0] = g.input.n }},
		{"input_load_u8", "I", "i", inputLoadU8}, {"input_load_u64", "I", "I", inputLoadU64},
		{"output_set", "II", "", outputSet},
		{"output_offset", "", "I", func(_ *cell.Cell, g *guest, a []uint64) { a[0] = g.output.at }},
		{"output_length", "", "I", func(_ *cell.Cell, g *guest, a []uint64) { a[0] = g.output.n }},
		{"error_set", "I", "", errorSet},
		{"error_get", "", "I", func(_ *cell.Cell, g *guest, a []uint64) { a[0] = g.failure }},
		{"reset", "", "", reset},
		{"memory_bytes", "", "I", func(_ *cell.Cell, g *guest, a []uint64) { a[0] = uint64(len(g.heap.bytes)) }},
		{"config_get", "I", "I", configGet}, {"var_get", "I", "I", varGet}, {"var_set", "II", "", varSet},
		{"http_request", "II", "I", httpRequest},
		{"http_status_code", "", "i", func(_ *cell.Cell, g *guest, a []uint64) { a[0] = uint64(uint32(g.status)) }},
		{"http_headers", "", "I", httpHeaders},
		{"get_log_level", "", "i", func(_ *cell.Cell, _ *guest, a []uint64) { a[0] = uint64(agent.LevelTrace) }},
		{"log_trace", "I", "", logAt(agent.LevelTrace)}, {"log_debug", "I", "", logAt(agent.LevelDebug)},
		{"log_info", "I", "", logAt(agent.LevelInfo)}, {"log_warn", "I", "", logAt(agent.LevelWarn)},
		{"log_error", "I", "", logAt(agent.LevelError)},
	}
}

func (f function) bind(module string) cell.Func {
	call := f.call
	return cell.Func{
		Module: module, Name: f.name, Params: types(f.params), Results: types(f.results),
		Call: func(_ context.Context, c *cell.Cell, stack []uint64) { call(c, guestOf(c), stack) },
	}
}

func types(s string) []byte {
	var ts []byte
	for _, t := range s {
		ts = append(ts, map[rune]byte{'i': cell.I32, 'I': cell.I64}[t])
	}
	return ts
}

func alloc(c *cell.Cell, g *guest, a []uint64) { a[0] = g.alloc(c, a[0]) }

// free forgets the input with its block.
func free(_ *cell.Cell, g *guest, a []uint64) {
	g.heap.release(a[0])
	if a[0] != 0 && a[0] == g.input.at {
		g.input.n = 0
	}
}

func length(_ *cell.Cell, g *guest, a []uint64) { a[0] = uint64(len(g.heap.block(a[0]))) }

func loadU8(c *cell.Cell, g *guest, a []uint64) { a[0] = uint64(g.must(c, "loaded", a[0], 1)[0]) }

func storeU8(c *cell.Cell, g *guest, a []uint64) { g.must(c, "stored", a[0], 1)[0] = byte(a[1]) }

func loadU64(c *cell.Cell, g *guest, a []uint64) {
	v, ok := g.heap.load(a[0])
	if !ok {
		g.outside(c, "loaded", a[0], 8)
	}
	a[0] = v
}

func storeU64(c *cell.Cell, g *guest, a []uint64) {
	if !g.heap.store(a[0], a[1]) {
		g.outside(c, "stored", a[0], 8)
	}
}

// must returns n bytes of the heap or ends the cell.
func (g *guest) must(c *cell.Cell, did string, at, n uint64) []byte {
	b, ok := g.heap.span(at, n)
	if !ok {
		g.outside(c, did, at, n)
	}
	return b
}

func (g *guest) outside(c *cell.Cell, did string, at, n uint64) {
	c.Fail(agent.Errorf(agent.Failed, "the code %s %d bytes at offset %d, outside of the %d bytes of its Extism memory",
		did, n, at, len(g.heap.bytes)))
}

func inputSet(c *cell.Cell, g *guest, a []uint64) { g.input = g.place(c, "set as its input", a) }

func outputSet(c *cell.Cell, g *guest, a []uint64) { g.output = g.place(c, "set as its output", a) }

func (g *guest) place(c *cell.Cell, did string, a []uint64) place {
	if a[1] == 0 {
		return place{}
	}
	g.must(c, did, a[0], a[1])
	return place{a[0], a[1]}
}

// inputBytes returns the input from an offset into it, or nothing past its end.
func (g *guest) inputBytes(from uint64) []byte {
	if from >= g.input.n {
		return nil
	}
	return g.heap.bytes[g.input.at+from : g.input.at+g.input.n]
}

func inputLoadU8(_ *cell.Cell, g *guest, a []uint64) {
	b := g.inputBytes(a[0])
	a[0] = 0
	if len(b) > 0 {
		a[0] = uint64(b[0])
	}
}

// inputLoadU64 reads zeros past the end of the input.
func inputLoadU64(_ *cell.Cell, g *guest, a []uint64) {
	b := g.inputBytes(a[0])
	if len(b) < 8 {
		b = append(make([]byte, 0, 8), b...)[:8]
	}
	a[0] = binary.LittleEndian.Uint64(b)
}

func errorSet(c *cell.Cell, g *guest, a []uint64) {
	if _, ok := g.heap.find(a[0]); a[0] != 0 && !ok {
		c.Fail(agent.Errorf(agent.Failed, "the code set an error at offset %d, where no block begins", a[0]))
	}
	g.failure = a[0]
}

func reset(c *cell.Cell, g *guest, _ []uint64) {
	c.Spend(2 * int64(len(g.heap.blocks)))
	g.heap.reset()
	g.input, g.output, g.failure = place{}, place{}, 0
}

func logAt(level agent.LogLevel) func(*cell.Cell, *guest, []uint64) {
	return func(c *cell.Cell, g *guest, a []uint64) {
		c.Log(level, strings.ToValidUTF8(g.take(c, a[0]), "\uFFFD"))
	}
}

func configGet(c *cell.Cell, g *guest, a []uint64) {
	a[0] = g.put(c, []byte(g.config[g.text(c, a[0])]))
}
