package extism_test

import (
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/extism"
	"github.com/skep-dev/skep/internal/wasmtest"
)

// TestRefusesUnknownImports loads modules that need functions of a host's own, or other modules.
func TestRefusesUnknownImports(t *testing.T) {
	eng := newEngine(t)
	for module, missing := range map[string]string{
		"host.wasm":           `"extism:host/user"."mult"`,
		"host_memory.wasm":    `"host"."to_upper"`,
		"host_multiple.wasm":  `"extism:host/user"."host`,
		"main.wasm":           `"lib"."capitalize"`,
		"nested.c.instr.wasm": `"dylibso_observe"."instrument_`,
	} {
		_, err := extism.Load(t.Context(), eng, fixture(t, module), nil)
		if agent.KindOf(err) != agent.Invalid || !strings.Contains(err.Error(), missing) {
			t.Errorf("%s: %v, want a refusal that names %s", module, err, missing)
		}
	}
}

func TestLibraryLoads(t *testing.T) {
	a := load(t, fixture(t, "lib.wasm"))
	_, _, err := a.Call(t.Context(), extism.Call{Function: "capitalize"})
	if agent.KindOf(err) != agent.Invalid || !strings.Contains(err.Error(), "(i64) -> (i64)") {
		t.Errorf("%v, want a refusal that tells the function's type", err)
	}
}

func TestRefusesNames(t *testing.T) {
	a := load(t, fixture(t, "fs.wasm"))
	for _, name := range []string{"", "nope", "_initialize", "malloc", "asyncify_get_state"} {
		_, usage, err := a.Call(t.Context(), extism.Call{Function: name})
		if agent.KindOf(err) != agent.NotFound || !strings.Contains(err.Error(), "it has run_test") {
			t.Errorf("%q: %v", name, err)
		}
		if usage.Fuel != 0 {
			t.Errorf("%q: %d fuel was used", name, usage.Fuel)
		}
	}
}

func TestRefusesReseed(t *testing.T) {
	m := wasmtest.Module{
		Types: []wasmtest.Type{{Params: []byte{wasmtest.I32}}},
		Funcs: []wasmtest.Func{{Export: "skep_reseed"}},
	}
	_, err := extism.Load(t.Context(), newEngine(t), m.Bytes(), nil)
	if agent.KindOf(err) != agent.Invalid || !strings.Contains(err.Error(), "skep_reseed is (i32) -> ()") {
		t.Error(err)
	}
}
