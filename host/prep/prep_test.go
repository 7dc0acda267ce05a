package prep_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/prep"
	. "github.com/skep-dev/skep/internal/wasmtest"
)

var (
	none    = Type{}
	toI32   = Type{Results: []byte{I32}}
	i32ToI  = Type{Params: []byte{I32}, Results: []byte{I32}}
	threeI  = Type{Params: []byte{I32, I32, I32}}
	noFuncs = func(string, string) (prep.Signature, bool) { return prep.Signature{}, false }
)

func prepare(t *testing.T, m Module) *prep.Module {
	t.Helper()
	p, err := prep.Prepare(m.Bytes(), noFuncs, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// guest is a prepared module that runs, with as much fuel as it asks for.
type guest struct {
	t       *testing.T
	module  api.Module
	refills int
	most    int // refills before the guest is stopped; 0 means any number
	used    int64
}

var errStopped = errors.New("stopped")

const grant = 1000

func run(t *testing.T, p *prep.Module) *guest {
	t.Helper()
	ctx := context.Background()
	g := &guest{t: t}
	r := wazero.NewRuntime(ctx)
	t.Cleanup(func() { _ = r.Close(ctx) })
	refill := api.GoModuleFunc(func(_ context.Context, _ api.Module, s []uint64) {
		if g.refills++; g.most > 0 && g.refills > g.most {
			panic(errStopped)
		}
		g.used += grant
		s[0] = uint64(int64(s[0]) + grant)
	})
	b := r.NewHostModuleBuilder(prep.MeterModule)
	b.NewFunctionBuilder().WithGoModuleFunction(refill, []api.ValueType{I64}, []api.ValueType{I64}).Export(prep.RefillName)
	if _, err := b.Instantiate(ctx); err != nil {
		t.Fatal(err)
	}
	m, err := r.Instantiate(ctx, p.Code)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range p.Data {
		m.Memory().Write(s.Offset, s.Data)
	}
	g.module = m
	return g
}

func (g *guest) call(name string, args ...uint64) ([]uint64, error) {
	return g.module.ExportedFunction(name).Call(context.Background(), args...)
}

// fuel is what was used since the guest was made.
func (g *guest) fuel() int64 {
	return g.used - int64(g.module.ExportedGlobal(prep.FuelGlobal).Get())
}

func TestEveryLoopAndRecursionIsStopped(t *testing.T) {
	skipBranch := Code(I32Const(1), 0x0d, 0) // br_if 0, taken
	cheapBlocks := bytes.Repeat(Code(0x02, 0x40, skipBranch, 0x0b), 200)
	deadCode := bytes.Repeat(Code(0x02, 0x40, 0x0c, 0, I32Const(1), 0x1a, 0x0b), 200)
	unevenIf := bytes.Repeat(Code(I32Const(1), 0x04, 0x40, bytes.Repeat([]byte{0x01}, 9), 0x05, 0x01, 0x0b), 200)
	for name, f := range map[string]Func{
		"empty loop":            {Body: Code(0x03, 0x40, 0x0c, 0, 0x0b)},
		"loop by br_if":         {Body: Code(0x03, 0x40, I32Const(1), 0x0d, 0, 0x0b)},
		"loop by br_table":      {Body: Code(0x03, 0x40, I32Const(0), 0x0e, 0, 0, 0x0b)},
		"branches in a loop":    {Body: Code(0x03, 0x40, cheapBlocks, 0x0c, 0, 0x0b)},
		"dead code in a loop":   {Body: Code(0x03, 0x40, deadCode, 0x0c, 0, 0x0b)},
		"uneven ifs in a loop":  {Body: Code(0x03, 0x40, unevenIf, 0x0c, 0, 0x0b)},
		"recursion":             {Body: Code(0x10, 0)},
		"double recursion":      {Body: Code(0x10, 0, 0x10, 0)},
		"recursion by table":    {Body: Code(I32Const(0), 0x11, 0, 0)},
		"fill in a loop":        {Body: Code(0x03, 0x40, I32Const(0), I32Const(1), I32Const(65536), 0xfc, 11, 0, 0x0c, 0, 0x0b)},
		"copy in a loop":        {Body: Code(0x03, 0x40, I32Const(0), I32Const(8), I32Const(60000), 0xfc, 10, 0, 0, 0x0c, 0, 0x0b)},
		"memory.grow in a loop": {Body: Code(0x03, 0x40, I32Const(0), 0x40, 0, 0x1a, 0x0c, 0, 0x0b)},
		"table.grow in a loop":  {Body: Code(0x03, 0x40, 0xd0, FuncRef, I32Const(0), 0xfc, 15, 0, 0x1a, 0x0c, 0, 0x0b)},
	} {
		t.Run(name, func(t *testing.T) {
			f.Export = "f"
			g := run(t, prepare(t, Module{
				Types: []Type{none}, Funcs: []Func{f}, Memory: Size(1, 1), Table: Size(1, 1), Elems: []int{0},
			}))
			g.most = 5
			if _, err := g.call("f"); !errors.Is(err, errStopped) {
				t.Errorf("got %v, want it stopped by its fuel", err)
			}
		})
	}
}

// Fuel never lags behind what ran: each of these bodies runs n instructions, whichever way it branches.
func TestFuelCoversWhatRan(t *testing.T) {
	nops := func(n int) []byte { return bytes.Repeat(Code(I32Const(7), 0x1a), n/2) }
	for name, tc := range map[string]struct {
		body []byte
		ran  int64
	}{
		"straight":          {nops(1000), 1000},
		"taken branches":    {bytes.Repeat(Code(0x02, 0x40, nops(8), I32Const(1), 0x0d, 0, nops(40), 0x0b), 100), 1000},
		"then arms":         {bytes.Repeat(Code(I32Const(1), 0x04, 0x40, nops(8), 0x05, nops(2), 0x0b), 100), 1000},
		"else arms":         {bytes.Repeat(Code(I32Const(0), 0x04, 0x40, nops(2), 0x05, nops(8), 0x0b), 100), 1000},
		"before dead code":  {bytes.Repeat(Code(0x02, 0x40, nops(8), 0x0c, 0, nops(40), 0x0b), 100), 900},
		"after nested dead": {bytes.Repeat(Code(0x02, 0x40, 0x02, 0x40, 0x0c, 1, nops(40), 0x0b, nops(40), 0x0b, nops(8)), 100), 900},
		"large fill":        {Code(I32Const(0), I32Const(1), I32Const(4<<20), 0xfc, 11, 0), 4 << 20 / 64},
		"large copy":        {Code(I32Const(1), I32Const(0), I32Const(4<<20), 0xfc, 10, 0, 0), 4 << 20 / 64},
	} {
		t.Run(name, func(t *testing.T) {
			g := run(t, prepare(t, Module{
				Types: []Type{none}, Funcs: []Func{{Body: tc.body, Export: "f"}}, Memory: Size(65, 65),
			}))
			if _, err := g.call("f"); err != nil {
				t.Fatal(err)
			}
			if got := g.fuel(); got < tc.ran || got > 2*tc.ran+100 {
				t.Errorf("charged %d for %d instructions", got, tc.ran)
			}
		})
	}
}

func TestLargeFillAndCopyWorkAsOne(t *testing.T) {
	const size = 5 << 20
	op := func(code ...any) Func {
		return Func{Type: 0, Body: Code(0x20, 0, 0x20, 1, 0x20, 2, Code(code...))}
	}
	fill, copyF := op(0xfc, 11, 0), op(0xfc, 10, 0, 0)
	fill.Export, copyF.Export = "fill", "copy"
	p := prepare(t, Module{Types: []Type{threeI}, Funcs: []Func{fill, copyF}, Memory: Size(size>>16, size>>16)})
	g := run(t, p)
	want := make([]byte, size)
	for i := range want {
		want[i] = byte(i * 7 >> 3)
	}
	g.module.Memory().Write(0, want)
	same := func(what string) {
		t.Helper()
		if got, _ := g.module.Memory().Read(0, size); !bytes.Equal(got, want) {
			t.Errorf("%s: memory differs", what)
		}
	}
	for _, c := range []struct{ dst, src, n uint64 }{
		{0, 0, 0}, {10, 20, 2 << 10}, {10, 20, 2<<10 + 1}, {1 << 10, 0, 1<<20 + 1}, {0, 1 << 10, 3 << 20}, {1<<20 + 5, 3, 3 << 20}, {7, 0, size - 7},
	} {
		if _, err := g.call("copy", c.dst, c.src, c.n); err != nil {
			t.Fatal(err)
		}
		copy(want[c.dst:c.dst+c.n], want[c.src:c.src+c.n])
		same("copy")
	}
	for _, c := range []struct{ dst, v, n uint64 }{{3, 1, 2 << 10}, {3, 2, 2<<10 + 1}, {1, 3, 3<<20 + 1}, {0, 0x1ff, size}} {
		if _, err := g.call("fill", c.dst, c.v, c.n); err != nil {
			t.Fatal(err)
		}
		copy(want[c.dst:c.dst+c.n], bytes.Repeat([]byte{byte(c.v)}, int(c.n)))
		same("fill")
	}
	for _, name := range []string{"fill", "copy"} {
		for _, n := range []uint64{1 << 11, 1 << 20, 4 << 20} {
			if _, err := g.call(name, size-100, 0, n); err == nil {
				t.Errorf("%s of %d bytes past the end did not trap", name, n)
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	f := Func{Body: nil, Export: "f"}
	caps := prep.DefaultCaps()
	caps.Functions, caps.Nesting, caps.Locals, caps.Globals, caps.Targets = 3, 10, 20, 2, 5
	caps.Pages, caps.TableEntries, caps.Size, caps.Body = 2, 10, 4000, 3000
	deep := func(n int) []byte {
		return Code(bytes.Repeat([]byte{0x02, 0x40}, n), bytes.Repeat([]byte{0x0b}, n))
	}
	table := func(n int) []byte { return Code(I32Const(0), 0x0e, U(n), make([]byte, n), 0) }
	one := func(body []byte, locals ...byte) Module {
		return Module{Types: []Type{none}, Funcs: []Func{{Body: body, Locals: locals}}}
	}
	extra := func(m Module, s ...Section) []byte { m.Extra = s; return m.Bytes() }
	global := Global{Type: I32, Init: I32Const(0)}
	for name, tc := range map[string]struct {
		wasm  []byte
		limit agent.Limit
		want  string // "" when it is accepted
	}{
		"nothing":            {nil, 0, "magic number"},
		"text":               {[]byte("export default {}"), 0, "magic number"},
		"component":          {[]byte{0, 'a', 's', 'm', 0x0d, 0, 1, 0}, 0, "component"},
		"new version":        {[]byte{0, 'a', 's', 'm', 2, 0, 0, 0}, 0, "version 2"},
		"cut short":          {Module{Types: []Type{none}, Funcs: []Func{f}}.Bytes()[:20], 0, "ends too early"},
		"unknown import":     {Module{Types: []Type{none}, Imports: []Import{{Module: "env", Name: "launch"}}}.Bytes(), 0, `"env"."launch", which is not there`},
		"imported memory":    {raw(2, 1, 1, []byte("m"), 1, []byte("x"), 2, 0, 1), 0, `imports the memory "m"."x"`},
		"imported global":    {raw(2, 1, 1, []byte("m"), 1, []byte("x"), 3, I32, 0), 0, `imports the global "m"."x"`},
		"out of order":       {extra(Module{}, Section{ID: 1, Body: Code(0)}), 0, "out of order"},
		"two code sections":  {extra(one(nil), Section{ID: 10, Body: Code(0)}), 0, "there twice"},
		"unknown section":    {extra(one(nil), Section{ID: 13, Body: nil}), 0, "unknown section"},
		"reserved export":    {Module{Types: []Type{none}, Funcs: []Func{{Export: "skep:fuel"}}}.Bytes(), 0, "reserved"},
		"sets the fuel":      {one(Code(I64Const(1<<40), 0x24, 0)).Bytes(), 0, "global 0 is not there"},
		"calls the refill":   {one(Code(I64Const(1), 0x10, 1, 0x1a)).Bytes(), 0, "function 1 is not there"},
		"refers to a helper": {one(Code(0xd2, 2, 0x1a)).Bytes(), 0, "function 2 is not there"},
		"tail call":          {one(Code(0x12, 0)).Bytes(), 0, "tail calls"},
		"exceptions":         {one(Code(0x06, 0x40, 0x0b)).Bytes(), 0, "exception handling"},
		"threads":            {one(Code(0xfe, 3, 0)).Bytes(), 0, "threads"},
		"functions at cap":   {Module{Types: []Type{none}, Funcs: make([]Func, 3)}.Bytes(), 0, ""},
		"functions past":     {Module{Types: []Type{none}, Funcs: make([]Func, 4)}.Bytes(), agent.LimitModule, "4, at most 3"},
		"nesting at cap":     {one(deep(9)).Bytes(), 0, ""},
		"nesting past":       {one(deep(10)).Bytes(), agent.LimitModule, "at most 10"},
		"locals at cap":      {one(nil, make20(I32, 20)...).Bytes(), 0, ""},
		"locals past":        {one(nil, make20(I32, 21)...).Bytes(), agent.LimitModule, "at most 20"},
		"locals by count":    {rawLocals(), agent.LimitModule, "locals of a function"},
		"globals at cap":     {Module{Globals: []Global{global, global}}.Bytes(), 0, ""},
		"globals past":       {Module{Globals: []Global{global, global, global}}.Bytes(), agent.LimitModule, "at most 2"},
		"targets at cap":     {one(table(5)).Bytes(), 0, ""},
		"targets past":       {one(table(6)).Bytes(), agent.LimitModule, "at most 5"},
		"memory at cap":      {Module{Memory: Size(2, -1)}.Bytes(), 0, ""},
		"memory past":        {Module{Memory: Size(3, -1)}.Bytes(), agent.LimitMemory, "at most 131072"},
		"table at cap":       {Module{Table: Size(10, -1)}.Bytes(), 0, ""},
		"table past":         {Module{Table: Size(100_000_000, -1)}.Bytes(), agent.LimitTable, "100000000, at most 10"},
		"body past":          {one(make([]byte, 3001)).Bytes(), agent.LimitModule, "at most 3000"},
		"size past":          {make([]byte, 4001), agent.LimitModule, "at most 4000"},
		"data outside":       {Module{Memory: Size(1, 1), Data: []Data{{Offset: 65535, Bytes: []byte("xy")}}}.Bytes(), 0, "outside its memory"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := prep.Prepare(tc.wasm, noFuncs, &caps)
			if tc.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got %v, want it to say %q", err, tc.want)
			}
			want := agent.Invalid
			if tc.limit != agent.NoLimit {
				want = agent.Exhausted
			}
			if e := agent.AsError(err); e.Kind != want || e.Limit != tc.limit {
				t.Errorf("kind %v limit %v, want %v %v", e.Kind, e.Limit, want, tc.limit)
			}
		})
	}
}

// The caps that TestRefusals does not come to: one past each is refused, with its name.
func TestCapsAreNamed(t *testing.T) {
	global := Global{Type: I32, Init: I32Const(0)}
	f := Func{Export: "f", Body: Code(0x03, 0x40, 0x0b, 0x03, 0x40, 0x0b)} // two loops
	m := Module{
		Types: []Type{none, threeI}, Funcs: []Func{f, {Export: "g"}}, Table: Size(4, -1), Memory: Size(1, -1), Globals: []Global{global},
		Data: []Data{{Bytes: []byte("x")}, {Bytes: []byte("y")}},
	}
	two := m
	two.Elems = []int{0, 1}
	importing := Module{Types: []Type{none}, Imports: []Import{{Module: "env", Name: "a"}, {Module: "env", Name: "a"}}}
	there := func(string, string) (prep.Signature, bool) { return prep.Signature{}, true }
	for name, tc := range map[string]struct {
		lower func(*prep.Caps)
		m     Module
		want  string
	}{
		"types":            {func(c *prep.Caps) { c.Types = 1 }, m, "entries of the type section: 2, at most 1"},
		"imports":          {func(c *prep.Caps) { c.Imports = 1 }, importing, "entries of the import section: 2, at most 1"},
		"exports":          {func(c *prep.Caps) { c.Exports = 2 }, m, "entries of the export section: 3, at most 2"},
		"tables":           {func(c *prep.Caps) { c.Tables = 0 }, m, "entries of the table section: 1, at most 0"},
		"data segments":    {func(c *prep.Caps) { c.Segments = 1 }, m, "entries of the data section: 2, at most 1"},
		"element segments": {func(c *prep.Caps) { c.Elements = 0 }, two, "element segments: 1, at most 0"},
		"loops":            {func(c *prep.Caps) { c.Loops = 1 }, m, "loops of a function: 2, at most 1"},
		"parameters":       {func(c *prep.Caps) { c.Params = 2 }, m, "parameters or results of a function: 3, at most 2"},
		"names":            {func(c *prep.Caps) { c.Name = 3 }, m, "bytes of a name in the export section: 6, at most 3"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := prep.Prepare(tc.m.Bytes(), there, nil); err != nil {
				t.Fatal("within all caps:", err)
			}
			caps := prep.DefaultCaps()
			tc.lower(&caps)
			_, err := prep.Prepare(tc.m.Bytes(), there, &caps)
			if e := agent.AsError(err); e == nil || e.Kind != agent.Exhausted || e.Limit != agent.LimitModule || !strings.Contains(e.Msg, tc.want) {
				t.Errorf("got %v, want it to say %q", err, tc.want)
			}
		})
	}
}

func make20(t byte, n int) []byte { return bytes.Repeat([]byte{t}, n) }

// raw is a module of one section.
func raw(id byte, parts ...any) []byte {
	body := Code(parts...)
	return Code([]byte("\x00asm\x01\x00\x00\x00"), id, U(len(body)), body)
}

// rawLocals declares four billion locals in four bytes.
func rawLocals() []byte {
	w := Module{Types: []Type{none}}.Bytes()
	w = w[:len(w)-len(Code(3, 1, 0, 7, 1, 0, 10, 1, 0))]
	return Code(w, 3, 2, 1, 0, 10, 10, 1, 8, 1, 0xff, 0xff, 0xff, 0xff, 0x0f, I32, 0x0b)
}

func TestImportsAreChecked(t *testing.T) {
	m := Module{Types: []Type{i32ToI}, Imports: []Import{{Module: "env", Name: "twice"}}}
	allow := func(sig prep.Signature) prep.Allow {
		return func(module, name string) (prep.Signature, bool) { return sig, module == "env" && name == "twice" }
	}
	p, err := prep.Prepare(m.Bytes(), allow(prep.Signature{Params: []byte{I32}, Results: []byte{I32}}), nil)
	if err != nil || len(p.Imports) != 1 || p.Imports[0].Name != "twice" {
		t.Fatal(p, err)
	}
	_, err = prep.Prepare(m.Bytes(), allow(prep.Signature{Params: []byte{I64}}), nil)
	if err == nil || !strings.Contains(err.Error(), "as (i32) -> (i32); it is (i64) -> ()") {
		t.Error(err)
	}
}

func TestWhatCanBeCloned(t *testing.T) {
	one := func(body []byte) Module {
		return Module{
			Types: []Type{none}, Funcs: []Func{{Body: body}}, Memory: Size(1, 1), Table: Size(1, 2), Elems: []int{0},
			Data: []Data{{Bytes: []byte("p"), Passive: true}},
		}
	}
	for name, tc := range map[string]struct {
		m           Module
		clone, redo bool
	}{
		"plain":           {one(nil), true, true},
		"table.set":       {one(Code(I32Const(0), 0xd0, FuncRef, 0x26, 0)), false, false},
		"table.grow":      {one(Code(0xd0, FuncRef, I32Const(1), 0xfc, 15, 0, 0x1a)), false, false},
		"memory.init":     {one(Code(I32Const(0), I32Const(0), I32Const(1), 0xfc, 8, 0, 0)), true, true},
		"data.drop":       {one(Code(0xfc, 9, 0)), true, false},
		"vector global":   {Module{Globals: []Global{{Type: V128, Mutable: true, Init: Code(0xfd, 12, make([]byte, 16))}}}, false, false},
		"constant global": {Module{Globals: []Global{{Type: FuncRef, Init: Code(0xd0, FuncRef)}}}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := prepare(t, tc.m)
			if p.Cloneable != tc.clone || p.Resettable != tc.redo {
				t.Errorf("cloneable %v resettable %v, want %v %v", p.Cloneable, p.Resettable, tc.clone, tc.redo)
			}
			run(t, p) // it still validates
		})
	}
}

func TestStateIsExported(t *testing.T) {
	p := prepare(t, Module{
		Types: []Type{none, toI32},
		Funcs: []Func{
			{Type: 1, Body: Code(0x23, 1), Export: "get"},
			{Type: 0, Body: Code(0x23, 1, I32Const(1), 0x6a, 0x24, 1), Export: "inc"},
		},
		Globals: []Global{{Type: I32, Init: I32Const(5)}, {Type: I32, Mutable: true, Init: I32Const(7), Export: "mine"}},
		Memory:  Size(1, 1),
		Data:    []Data{{Offset: 9, Bytes: []byte("hello")}},
		Start:   1,
	})
	if !p.HasStart || len(p.Globals) != 1 || len(p.Data) != 1 {
		t.Fatalf("%+v", p)
	}
	g := run(t, p)
	for range 2 {
		if _, err := g.call(prep.StartName); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := g.call("get"); err != nil || r[0] != 9 {
		t.Errorf("got %v %v, want 9", r, err)
	}
	g.module.ExportedGlobal(p.Globals[0].Name).(api.MutableGlobal).Set(70)
	if r, err := g.call("get"); err != nil || r[0] != 70 {
		t.Errorf("got %v %v, want 70", r, err)
	}
	if b, _ := g.module.Memory().Read(9, 5); string(b) != "hello" {
		t.Errorf("memory holds %q", b)
	}
}

func FuzzPrepare(f *testing.F) {
	f.Add(Module{
		Types: []Type{none, i32ToI}, Funcs: []Func{{Body: Code(0x03, 0x40, 0x0c, 0, 0x0b), Export: "f"}},
		Memory: Size(1, 2), Table: Size(1, 1), Elems: []int{0}, Data: []Data{{Bytes: []byte("x")}},
	}.Bytes())
	f.Add(Module{Types: []Type{none}, Funcs: []Func{{Body: Code(I32Const(0), I32Const(0), I32Const(9), 0xfc, 10, 0, 0)}}}.Bytes())
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	b := r.NewHostModuleBuilder(prep.MeterModule)
	nothing := api.GoModuleFunc(func(context.Context, api.Module, []uint64) {})
	b.NewFunctionBuilder().WithGoModuleFunction(nothing, []api.ValueType{I64}, []api.ValueType{I64}).Export(prep.RefillName)
	if _, err := b.Instantiate(ctx); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, wasm []byte) {
		p, err := prep.Prepare(wasm, noFuncs, nil)
		if err != nil {
			return
		}
		// What was valid stays valid; and when the engine takes the original, it takes ours.
		if c, err := r.CompileModule(ctx, wasm); err == nil {
			_ = c.Close(ctx)
			ours, err := r.CompileModule(ctx, p.Code)
			if err != nil {
				t.Fatalf("valid before, not after: %v", err)
			}
			_ = ours.Close(ctx)
		}
	})
}
