package extism_test

import (
	"context"
	"strings"
	"testing"

	sdk "github.com/extism/go-sdk"
	"github.com/tetratelabs/wazero"

	"github.com/skep-dev/skep/host/extism"
)

// BenchmarkCall compares a call here with one in Extism's own SDK, which gets a new instance for each too. What a call
// costs beside the module's own work is the instance, and the trips through the ABI, eight bytes each.
func BenchmarkCall(b *testing.B) {
	for _, module := range []struct {
		name, function string
		wasm           []byte
	}{
		{"count_vowels", "count_vowels", fixture(b, "count_vowels.wasm")}, {"noop", "run_test", fixture(b, "noop.wasm")},
		{"echo", "echo", build(b, "pdk")},
	} {
		wasm := module.wasm
		ours := load(b, wasm)
		theirs, err := sdk.NewCompiledPlugin(b.Context(), sdk.Manifest{
			Wasm: []sdk.Wasm{sdk.WasmData{Data: wasm, Name: "main"}}, Memory: &sdk.ManifestMemory{MaxHttpResponseBytes: -1, MaxVarBytes: -1},
		}, sdk.PluginConfig{EnableWasi: true}, nil)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = theirs.Close(context.Background()) })
		sdk.SetLogLevel(sdk.LogLevelOff)
		for _, size := range []struct {
			name string
			n    int
		}{{"small", 32}, {"1MiB", 1 << 20}} {
			in := input(strings.Repeat("the quick brown fox jumps over ", size.n/31+1)[:size.n])
			b.Run(module.name+"/"+size.name+"/skep", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, _, err := ours.Call(b.Context(), extism.Call{Function: module.function, Input: in}); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run(module.name+"/"+size.name+"/sdk", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					i, err := theirs.Instance(b.Context(), sdk.PluginInstanceConfig{ModuleConfig: wazero.NewModuleConfig()})
					if err != nil {
						b.Fatal(err)
					}
					if _, _, err := i.Call(module.function, in.Body); err != nil {
						b.Fatal(err)
					}
					if err := i.Close(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
