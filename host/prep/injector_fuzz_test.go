package prep_test

import (
	"bytes"
	"context"
	"flag"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/skep-dev/skep/host/prep"
	. "github.com/skep-dev/skep/internal/wasmtest"
)

// FuzzInjector builds a valid module from the fuzzer's bytes, runs it plain and prepared, and wants the same of both:
// results or traps, memory, globals. Every loop and every function counts down a global of its own, so that both end, and
// so that it is known how much has to be paid at least. What is paid does not depend on how much there is at a time, but
// for one unit at each refill, where a loop without calls comes by.
func FuzzInjector(f *testing.F) {
	f.Add([]byte{})
	for n := range 24 {
		seed := make([]byte, 400)
		for i := range seed {
			seed[i] = byte((i*i*7 + i*n*31 + n*n*13) >> (n % 5))
		}
		f.Add(seed)
	}
	arenas := []*arena{newArena(f, wazero.NewRuntimeConfigInterpreter())}
	if flag.Lookup("test.fuzz").Value.String() == "" { // under the fuzzer's coverage, compiling takes a thousand times as long
		arenas = append(arenas, newArena(f, wazero.NewRuntimeConfigCompiler()))
	}
	f.Fuzz(func(t *testing.T, seed []byte) {
		m := generate(seed)
		plain := m.Bytes()
		p, err := prep.Prepare(plain, noFuncs, nil)
		if err != nil {
			t.Fatalf("refused: %v", err)
		}
		for _, a := range arenas {
			a.compare(t, plain, p)
		}
	})
}

// arena is an engine in which modules are compared, one after the other.
type arena struct {
	r     wazero.Runtime
	purse *purse // of the one that runs
}

// purse is where fuel comes from, step at a time.
type purse struct{ step, granted, refills int64 }

// runner is an instance, with its function f.
type runner struct {
	m    api.Module
	f    api.Function
	head []uint64 // arguments before those of f
	tail []uint64 // and after them
	purse
}

func newArena(f *testing.F, config wazero.RuntimeConfig) *arena {
	ctx := context.Background()
	a := &arena{r: wazero.NewRuntimeWithConfig(ctx, config.WithMemoryLimitPages(64))}
	f.Cleanup(func() { _ = a.r.Close(ctx) })
	refill := api.GoModuleFunc(func(_ context.Context, _ api.Module, s []uint64) {
		a.purse.refills++
		a.purse.granted += a.purse.step
		s[0] = uint64(int64(s[0]) + a.purse.step)
	})
	h := a.r.NewHostModuleBuilder(prep.MeterModule)
	h.NewFunctionBuilder().WithGoModuleFunction(refill, []api.ValueType{I64}, []api.ValueType{I64}).Export(prep.RefillName)
	if _, err := h.Instantiate(ctx); err != nil {
		f.Fatal(err)
	}
	return a
}

// compile returns a module that is closed with the test.
func (a *arena) compile(t *testing.T, wasm []byte) wazero.CompiledModule {
	ctx := context.Background()
	c, err := a.r.CompileModule(ctx, wasm)
	if err != nil {
		t.Fatalf("the module is not valid: %v", err)
	}
	t.Cleanup(func() { _ = c.Close(ctx) })
	return c
}

// instance returns one that is closed with the test.
func (a *arena) instance(t *testing.T, c wazero.CompiledModule) api.Module {
	ctx := context.Background()
	m, err := a.r.InstantiateModule(ctx, c, wazero.NewModuleConfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close(ctx) })
	return m
}

// prepared returns an instance of what Prepare made of a module.
func (a *arena) prepared(t *testing.T, c wazero.CompiledModule, p *prep.Module, step int64) *runner {
	m := a.instance(t, c)
	for _, s := range p.Data {
		m.Memory().Write(s.Offset, s.Data)
	}
	if p.Grows {
		m.ExportedGlobal(prep.TableGlobal).(api.MutableGlobal).Set(1 << 32)
	}
	return &runner{
		m: m, f: m.ExportedFunction(prep.DispatchName), head: []uint64{uint64(p.Dispatch["f"])}, tail: make([]uint64, 4), purse: purse{step: step},
	}
}

// most is how often the functions and loops of a module may begin in one call, and least what each time costs at least, but
// for called: a function that costs no more is paid for by who calls it, and the host pays nothing.
const most, least, called = 2000, 8, 10

// compare calls the modules a few times, as long as there is no trap.
func (a *arena) compare(t *testing.T, plain []byte, p *prep.Module) {
	m := a.instance(t, a.compile(t, plain))
	model := &runner{m: m, f: m.ExportedFunction("f")}
	code := a.compile(t, p.Code)
	few, much := a.prepared(t, code, p, 100), a.prepared(t, code, p, 1<<40)
	for i := range uint64(3) {
		x, y := i*0x9e3779b9&0xffffffff, i*0x9e3779b97f4a7c15
		want, one, two := a.call(model, x, y), a.call(few, x, y), a.call(much, x, y)
		if !want.equal(one) || !want.equal(two) {
			t.Fatalf("call %d: %+v, prepared %+v, and %+v with much fuel", i, want.brief(), one.brief(), two.brief())
		}
		if want.trapped {
			return
		}
		if owed := least*int64(most-int32(uint32(want.globals[2]))) - called; two.paid < owed {
			t.Fatalf("call %d: %d units were paid, of %d at least", i, two.paid, owed)
		}
		if more := one.paid - two.paid; more < 0 || more > one.refills {
			t.Fatalf("call %d: %d units were paid with %d refills, %d with %d", i, one.paid, one.refills, two.paid, two.refills)
		}
	}
}

// outcome is what one call left, and what it paid. Memory is the module's own.
type outcome struct {
	trapped       bool
	result        uint64
	globals       [3]uint64
	memory        []byte
	paid, refills int64
}

// call calls f. Fuel goes on from what the calls before have left.
func (a *arena) call(r *runner, x, y uint64) (o outcome) {
	a.purse = &r.purse
	r.m.ExportedGlobal("budget").(api.MutableGlobal).Set(most)
	was := r.purse
	before := r.fuel()
	res, err := r.f.Call(context.Background(), append(append(append([]uint64{}, r.head...), x, y), r.tail...)...)
	if err != nil {
		return outcome{trapped: true}
	}
	o.result = res[0]
	o.memory, _ = r.m.Memory().Read(0, r.m.Memory().Size())
	for g, name := range []string{"g0", "g1", "budget"} {
		o.globals[g] = r.m.ExportedGlobal(name).Get()
	}
	o.refills = r.purse.refills - was.refills
	o.paid = r.purse.granted - was.granted - (r.fuel() - before)
	return o
}

// fuel is what is left; a plain module has none.
func (r *runner) fuel() int64 {
	if g := r.m.ExportedGlobal(prep.FuelGlobal); g != nil {
		return int64(g.Get())
	}
	return 0
}

// equal leaves out the memory of a trap: a fill out of bounds may have written a part, which no one can see.
func (o outcome) equal(x outcome) bool {
	if o.trapped || x.trapped {
		return o.trapped == x.trapped
	}
	return o.result == x.result && o.globals == x.globals && bytes.Equal(o.memory, x.memory)
}

func (o outcome) brief() outcome { o.memory = o.memory[:min(len(o.memory), 64)]; return o }
