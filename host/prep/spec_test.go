package prep_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/skep-dev/skep/host/prep"
)

// The WebAssembly 2.0 specification's test suite comes with the engine's source. Each of its modules that can stand alone
// runs twice, as it is and prepared; every call must give the same results, or trap, in both.
func TestSpecificationSuite(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/tetratelabs/wazero").Output()
	if err != nil {
		t.Fatal(err)
	}
	scripts, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "internal/integration_test/spectest/v2/testdata/*.json"))
	if err != nil || len(scripts) < 100 {
		t.Fatalf("%d scripts found, %v", len(scripts), err)
	}
	total := 0
	for _, path := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".json"), func(t *testing.T) {
			s := &specScript{t: t, dir: filepath.Dir(path)}
			s.run(path)
			total += s.calls
		})
	}
	if total < 20_000 {
		t.Errorf("only %d calls were compared", total)
	}
}

type specScript struct {
	t            *testing.T
	dir          string
	plain, ready api.Module
	dispatch     map[string]uint32
	calls        int
}

type specCommand struct {
	Type, Filename string
	Line           int
	Action         struct {
		Type, Field, Module string
		Args                []struct {
			Type  string
			Value json.RawMessage
		}
	}
}

func (s *specScript) run(path string) {
	b, err := os.ReadFile(path)
	if err != nil {
		s.t.Fatal(err)
	}
	var script struct{ Commands []specCommand }
	if err := json.Unmarshal(b, &script); err != nil {
		s.t.Fatal(err)
	}
	ctx := context.Background()
	r := wazero.NewRuntime(ctx)
	defer func() { _ = r.Close(ctx) }()
	refill := api.GoModuleFunc(func(_ context.Context, _ api.Module, s []uint64) { s[0] = uint64(int64(s[0]) + 100) })
	h := r.NewHostModuleBuilder(prep.MeterModule)
	h.NewFunctionBuilder().WithGoModuleFunction(refill, []api.ValueType{api.ValueTypeI64}, []api.ValueType{api.ValueTypeI64}).
		Export(prep.RefillName)
	if _, err := h.Instantiate(ctx); err != nil {
		s.t.Fatal(err)
	}
	for _, c := range script.Commands {
		switch {
		case c.Type == "module":
			s.load(ctx, r, c)
		case s.plain != nil && c.Action.Type == "invoke" && c.Action.Module == "":
			s.compare(ctx, c)
		}
	}
}

func (s *specScript) load(ctx context.Context, r wazero.Runtime, c specCommand) {
	s.plain, s.ready = nil, nil
	wasm, err := os.ReadFile(filepath.Join(s.dir, c.Filename))
	if err != nil {
		s.t.Fatal(err)
	}
	caps := prep.DefaultCaps()
	caps.Pages = 1 << 16
	p, err := prep.Prepare(wasm, noFuncs, &caps)
	if err != nil {
		if strings.Contains(err.Error(), "imports the") {
			return // not alone
		}
		s.t.Fatalf("line %d: %v", c.Line, err)
	}
	config := wazero.NewModuleConfig().WithName("")
	plain, err := r.InstantiateWithConfig(ctx, wasm, config)
	if err != nil {
		s.t.Fatalf("line %d: %v", c.Line, err)
	}
	ready, err := r.InstantiateWithConfig(ctx, p.Code, config)
	if err != nil {
		s.t.Fatalf("line %d: prepared: %v", c.Line, err)
	}
	for _, d := range p.Data {
		ready.Memory().Write(d.Offset, d.Data)
	}
	if p.Grows {
		ready.ExportedGlobal(prep.TableGlobal).(api.MutableGlobal).Set(1 << 32)
	}
	if p.HasStart {
		if _, err := ready.ExportedFunction(prep.StartName).Call(ctx); err != nil {
			s.t.Fatalf("line %d: start: %v", c.Line, err)
		}
	}
	s.plain, s.ready, s.dispatch = plain, ready, p.Dispatch
}

func (s *specScript) compare(ctx context.Context, c specCommand) {
	fn := s.plain.ExportedFunction(c.Action.Field)
	var args []uint64
	for _, a := range c.Action.Args {
		if a.Type == "v128" || a.Type == "externref" || a.Type == "funcref" {
			return
		}
		var v string
		if err := json.Unmarshal(a.Value, &v); err != nil {
			return
		}
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			return // nan:canonical and the like
		}
		args = append(args, n)
	}
	if fn == nil || slices.ContainsFunc(fn.Definition().ResultTypes(), func(t api.ValueType) bool { return t == api.ValueTypeExternref || t == prep.FuncRef }) {
		return
	}
	want, werr := fn.Call(ctx, args...)
	for i, t := range fn.Definition().ResultTypes() {
		if len(want) == 1 && (t == api.ValueTypeI32 || t == api.ValueTypeF32) { // the engine leaves what it likes in the upper half
			want[i] = uint64(uint32(want[i]))
		}
	}
	got, gerr := s.callPrepared(ctx, c.Action.Field, args, len(want))
	if (werr == nil) != (gerr == nil) || !slices.Equal(want, got) {
		s.t.Errorf("line %d: %s(%v): %v %v, prepared %v %v", c.Line, c.Action.Field, args, want, werr, got, gerr)
	}
	s.calls++
}

// callPrepared calls through the dispatcher where it can.
func (s *specScript) callPrepared(ctx context.Context, name string, args []uint64, results int) ([]uint64, error) {
	index, ok := s.dispatch[name]
	if !ok {
		return s.ready.ExportedFunction(name).Call(ctx, args...)
	}
	all := make([]uint64, 7)
	all[0] = uint64(index)
	copy(all[1:], args)
	got, err := s.ready.ExportedFunction(prep.DispatchName).Call(ctx, all...)
	return got[:min(results, len(got))], err
}
