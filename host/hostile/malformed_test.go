package hostile_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
	w "github.com/skep-dev/skep/internal/wasmtest"
)

// specimen is a small valid module with something of each kind in it.
func specimen() []byte {
	return w.Module{
		Types: []w.Type{
			{}, {Results: []byte{w.I32}}, {Params: []byte{w.I64}, Results: []byte{w.I64}}, {Params: []byte{w.I32, w.I32}, Results: []byte{w.I32}},
		},
		Imports: []w.Import{
			{Module: "extism:host/env", Name: "alloc", Type: 2}, {Module: "wasi_snapshot_preview1", Name: "random_get", Type: 3},
		},
		Table: w.Size(4, 10), Memory: w.Size(1, 4), Elems: []int{2, 3}, Start: 3,
		Globals: []w.Global{{Type: w.I32, Mutable: true, Init: w.I32Const(1), Export: "g"}, {Type: w.I64, Init: w.I64Const(-7)}},
		Data:    []w.Data{{Offset: 16, Bytes: []byte("hello")}, {Passive: true, Bytes: []byte("passive")}},
		Funcs: []w.Func{
			{Type: 1, Export: "f", Locals: []byte{w.I32, w.I64, w.F64}, Body: w.Code(
				times(3, 0, i32s(0, 8), callOp, 1, drop), i64s(16), callOp, 0, localSet, 1,
				w.I32Const(1), indirect, 0, 0, i32s(0, 0, 3), misc, 8, 1, 0, i32s(64, 0, 3000), misc, 11, 0,
				block, empty, localGet, 0, brTable, 2, 0, 0, 0, end_, localGet, 0, if_, w.I32, w.I32Const(1), else_, globalGet, 0, end_, drop,
				refNull, w.FuncRef, w.I32Const(1), misc, 15, 0, drop, w.I32Const(0))},
			{Type: 0, Locals: []byte{w.I32}, Body: w.Code(w.I32Const(1), memoryGrow, 0, drop)},
		},
	}.Bytes()
}

// allowed are the ends that a module of junk may come to. Internal, which says that the host is at fault, is not among them.
var allowed = []agent.Kind{agent.Invalid, agent.Exhausted, agent.Failed, agent.NotFound, agent.Denied, agent.Cancelled}

// junk loads and calls a module of junk. It reports whether it was accepted.
func (s *suite) junk(t *testing.T, name string, b []byte) bool {
	_, usage, err := s.call(t, attack{src: binary(b), limits: agent.Limits{CPU: 20 * time.Millisecond, Wall: 5 * time.Second, Memory: 8 << 20}})
	if err != nil && !slices.Contains(allowed, agent.KindOf(err)) {
		t.Errorf("%s: %s: %v", name, agent.KindOf(err), err)
	}
	if usage.CPU > slack {
		t.Errorf("%s: used %s", name, usage.CPU)
	}
	return agent.KindOf(err) != agent.Invalid
}

func TestMalformed(t *testing.T) {
	s := open(t)
	good := specimen()
	if _, _, err := s.call(t, attack{src: binary(good)}); err != nil {
		t.Fatalf("the specimen: %v", err)
	}
	t.Run("truncated at every byte", func(t *testing.T) {
		for n := range good {
			// What is left may be whole: sections are optional. Then there is no function f, or it has no code.
			if accepted := s.junk(t, fmt.Sprint("cut at ", n), good[:n]); accepted && n > 8 {
				if _, _, err := s.call(t, attack{src: binary(good[:n])}); agent.KindOf(err) != agent.NotFound {
					t.Errorf("cut at %d: %v", n, err)
				}
			}
		}
		s.serve(t)
	})
	t.Run("with every bit flipped", func(t *testing.T) {
		accepted := 0
		for i := range 8 * len(good) {
			bad := slices.Clone(good)
			bad[i/8] ^= 1 << (i % 8)
			if s.junk(t, fmt.Sprint("bit ", i), bad) {
				accepted++
			}
			if i%500 == 0 {
				s.serve(t)
			}
		}
		t.Logf("%d of %d were accepted", accepted, 8*len(good))
	})
	t.Run("with every byte the largest or zero", func(t *testing.T) {
		for i := range good {
			for _, v := range []byte{0, 0x7f, 0x80, 0xff} {
				bad := slices.Clone(good)
				bad[i] = v
				s.junk(t, fmt.Sprint("byte ", i, " as ", v), bad)
			}
		}
		s.serve(t)
	})
	t.Run("with pieces moved", func(t *testing.T) {
		r := rand.New(rand.NewPCG(1, 2))
		for n := range 500 {
			bad := slices.Clone(good)
			from, to, size := 8+r.IntN(len(bad)-8), 8+r.IntN(len(bad)-8), 1+r.IntN(16)
			copy(bad[to:], good[from:min(from+size, len(good))])
			s.junk(t, fmt.Sprint("move ", n), bad)
		}
		s.serve(t)
	})
	if cells, waiting := s.host.Live(); cells != 0 || waiting != 0 {
		t.Errorf("%d cells live, %d calls wait", cells, waiting)
	}
}

// suiteDir is where the engine's module keeps the public WebAssembly suite.
func suiteDir(t *testing.T) string {
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/tetratelabs/wazero").Output()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(strings.TrimSpace(string(dir)), "internal/integration_test/spectest")
}

// TestPublicSuite compiles the modules of the public suite that must be refused, and mutants of those that must not.
func TestPublicSuite(t *testing.T) {
	eng, err := cell.New(t.Context(), lib, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := eng.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	compile := func(wasm []byte) error {
		code, err := eng.Compile(t.Context(), wasm, "extism:host/env", "wasi_snapshot_preview1")
		if err != nil {
			return err
		}
		return code.Close(t.Context())
	}
	bad, good := suiteModules(t)
	if len(bad) < 1000 || len(good) < 500 {
		t.Fatalf("only %d bad modules and %d good ones were found", len(bad), len(good))
	}
	for _, m := range bad {
		if m.name == "ref_func.5.wasm" {
			continue // its function is declared by the rewriting, which exports the start function
		}
		if err := compile(m.wasm); err == nil || agent.KindOf(err) != agent.Invalid && agent.KindOf(err) != agent.Exhausted {
			t.Errorf("%s, %q: %v", m.name, m.text, err)
		}
	}
	r := rand.New(rand.NewPCG(3, 4))
	for n := range 3000 {
		wasm := slices.Clone(good[r.IntN(len(good))].wasm)
		if len(wasm) > 4096 || len(wasm) < 9 {
			continue
		}
		for range 1 + r.IntN(3) {
			wasm[8+r.IntN(len(wasm)-8)] ^= 1 << r.IntN(8)
		}
		if err := compile(wasm); err != nil && agent.KindOf(err) == agent.Internal {
			t.Errorf("mutant %d: %v", n, err)
		}
	}
	t.Logf("%d modules that must be refused, %d that mutants were made of", len(bad), len(good))
}

type suiteModule struct {
	name, text string
	wasm       []byte
}

func suiteModules(t *testing.T) (bad, good []suiteModule) {
	scripts, err := filepath.Glob(filepath.Join(suiteDir(t), "v2/testdata/*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range scripts {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var script struct {
			Commands []struct {
				Type, Filename, Text string
				ModuleType           string `json:"module_type"`
			}
		}
		if err := json.Unmarshal(b, &script); err != nil {
			t.Fatal(err)
		}
		for _, c := range script.Commands {
			refused := c.Type == "assert_invalid" || c.Type == "assert_malformed"
			if c.Filename == "" || c.ModuleType == "text" || !refused && c.Type != "module" {
				continue
			}
			wasm, err := os.ReadFile(filepath.Join(filepath.Dir(path), c.Filename))
			if err != nil {
				t.Fatal(err)
			}
			m := suiteModule{name: c.Filename, text: c.Text, wasm: wasm}
			if refused {
				bad = append(bad, m)
			} else {
				good = append(good, m)
			}
		}
	}
	return bad, good
}
