package prep_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/skep-dev/skep/host/prep"
	. "github.com/skep-dev/skep/internal/wasmtest"
)

// FuzzInjector builds a valid module from the fuzzer's bytes, runs it plain and prepared, and wants the same of both:
// results or traps, memory, globals. Every loop and every function counts down a global of its own, so that both end.
func FuzzInjector(f *testing.F) {
	f.Add([]byte{})
	for n := range 24 {
		seed := make([]byte, 400)
		for i := range seed {
			seed[i] = byte((i*i*7 + i*n*31 + n*n*13) >> (n % 5))
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed []byte) {
		m := generate(seed)
		plain := m.Bytes()
		p, err := prep.Prepare(plain, noFuncs, nil)
		if err != nil {
			t.Fatalf("refused: %v", err)
		}
		engine := engineOf(seed)
		want := runPlain(t, engine, plain)
		got := runPrepared(t, engine, p)
		for i := range want {
			if !want[i].equal(got[i]) {
				t.Fatalf("call %d: %+v, prepared %+v", i, want[i].brief(), got[i].brief())
			}
		}
	})
}

// engineOf returns the interpreter but for each eighth seed. What is compared is modules, not the compiler, and under the
// fuzzer's coverage that takes a thousand times as long.
func engineOf(seed []byte) wazero.RuntimeConfig {
	if len(seed)%8 == 1 {
		return wazero.NewRuntimeConfigCompiler().WithMemoryLimitPages(64)
	}
	return wazero.NewRuntimeConfigInterpreter().WithMemoryLimitPages(64)
}

// outcome is what one call left.
type outcome struct {
	trapped bool
	result  uint64
	globals [3]uint64
	pages   uint32
	memory  []byte
}

// equal leaves out the memory of a trap: a fill out of bounds may have written a part, which no one can see.
func (o outcome) equal(x outcome) bool {
	if o.trapped || x.trapped {
		return o.trapped == x.trapped
	}
	return o.result == x.result && o.globals == x.globals && o.pages == x.pages && bytes.Equal(o.memory, x.memory)
}

func (o outcome) brief() outcome { o.memory = o.memory[:min(len(o.memory), 64)]; return o }

// calls is how often f is called, with other arguments each time.
const calls = 3

func outcomes(t *testing.T, m api.Module, call func(a, b uint64) ([]uint64, error)) (all []outcome) {
	for i := range uint64(calls) {
		if err := setGlobal(m, "budget", 2000); err != nil {
			t.Fatal(err)
		}
		r, err := call(i*0x9e3779b9&0xffffffff, i*0x9e3779b97f4a7c15)
		o := outcome{trapped: err != nil}
		if err == nil {
			o.result = r[0]
			mem := m.Memory()
			o.pages = mem.Size() >> 16
			b, _ := mem.Read(0, mem.Size())
			o.memory = bytes.Clone(b)
			for g, name := range []string{"g0", "g1", "budget"} {
				o.globals[g] = m.ExportedGlobal(name).Get()
			}
		}
		all = append(all, o)
		if err != nil {
			for len(all) < calls {
				all = append(all, o)
			}
			return all
		}
	}
	return all
}

func setGlobal(m api.Module, name string, v uint64) error {
	m.ExportedGlobal(name).(api.MutableGlobal).Set(v)
	return nil
}

func runPlain(t *testing.T, engine wazero.RuntimeConfig, wasm []byte) []outcome {
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, engine)
	defer func() { _ = r.Close(ctx) }()
	m, err := r.Instantiate(ctx, wasm)
	if err != nil {
		t.Fatalf("the generator made a module that is not valid: %v", err)
	}
	return outcomes(t, m, func(a, b uint64) ([]uint64, error) { return m.ExportedFunction("f").Call(ctx, a, b) })
}

func runPrepared(t *testing.T, engine wazero.RuntimeConfig, p *prep.Module) []outcome {
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, engine)
	defer func() { _ = r.Close(ctx) }()
	refill := api.GoModuleFunc(func(_ context.Context, _ api.Module, s []uint64) { s[0] = uint64(int64(s[0]) + 100) })
	h := r.NewHostModuleBuilder(prep.MeterModule)
	h.NewFunctionBuilder().WithGoModuleFunction(refill, []api.ValueType{I64}, []api.ValueType{I64}).Export(prep.RefillName)
	if _, err := h.Instantiate(ctx); err != nil {
		t.Fatal(err)
	}
	m, err := r.Instantiate(ctx, p.Code)
	if err != nil {
		t.Fatalf("the prepared module is not valid: %v", err)
	}
	for _, s := range p.Data {
		m.Memory().Write(s.Offset, s.Data)
	}
	if p.Grows {
		m.ExportedGlobal(prep.TableGlobal).(api.MutableGlobal).Set(1 << 32)
	}
	index := p.Dispatch["f"]
	return outcomes(t, m, func(a, b uint64) ([]uint64, error) {
		return m.ExportedFunction(prep.DispatchName).Call(ctx, uint64(index), a, b, 0, 0, 0, 0)
	})
}
