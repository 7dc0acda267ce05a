package plugins

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
)

// wasm returns a module with one type and these imports, each "module name" with the bytes of what it is.
func wasm(imports ...string) []byte {
	b := []byte("\x00asm\x01\x00\x00\x00\x01\x04\x01\x60\x00\x00")
	section := []byte{byte(len(imports) / 2)}
	for i := 0; i < len(imports); i += 2 {
		module, name, _ := strings.Cut(imports[i], " ")
		section = append(append(section, byte(len(module))), module...)
		section = append(append(section, byte(len(name))), name...)
		section = append(section, imports[i+1]...)
	}
	return append(append(b, importSection, byte(len(section))), section...)
}

const function = "\x00\x00"

func TestImports(t *testing.T) {
	got, err := imports(wasm("a f", function, "b t", "\x01\x70\x01\x01\x02", "b r", "\x01\x63\x00\x00\x01", "c m", "\x02\x00\x01",
		"d g", "\x03\x7f\x00", "d h", "\x03\x64\x70\x01", "e tag", "\x04\x00\x00", "z f", function))
	if d := cmp.Diff([]string{"a f", "b t", "b r", "c m", "d g", "d h", "e tag", "z f"}, got); d != "" || err != nil {
		t.Errorf("%v\n%s", err, d)
	}
	if got, err := imports([]byte("\x00asm\x01\x00\x00\x00")); len(got) != 0 || err != nil {
		t.Errorf("without imports: %v %v", got, err)
	}
	for _, bad := range []string{"", "\x00asm", "\x00asm\x01\x00\x00\x00\x02\x05\x01", "\x00asm\x01\x00\x00\x00\x02\x01\x7f", string(wasm("a f", "\x09")), string(wasm("a f", "\x01"))} {
		if got, err := imports([]byte(bad)); err == nil {
			t.Errorf("%q: %v", bad, got)
		}
	}
}

func TestCheckImports(t *testing.T) {
	request := wasm("extism:host/env http_request", function, "extism:host/user skep_call", function)
	calls := wasm("extism:host/user skep_call", function)
	for _, tt := range []struct {
		name, manifest string
		module         []byte
		want           string // "" means it is let in
	}{
		{name: "no manifest", module: request},
		{name: "asks for a host", manifest: `{"grants":{"http":["https://api.example.com"]}}`, module: request},
		{name: "asks for nothing", manifest: `{}`, module: request, want: `imports "extism:host/env http_request", which skep.json does not ask for`},
		{name: "asks for something else", manifest: `{"grants":{"agents":["b"]}}`, module: request, want: "http_request"},
		{name: "skep_call is judged when it calls", manifest: `{}`, module: calls},
		{name: "not readable", manifest: `{}`, module: wasm("a f", "\x09"), want: "cannot be read"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			files := map[string][]byte{"main.wasm": tt.module}
			if tt.manifest != "" {
				files[ManifestFile] = []byte(tt.manifest)
			}
			src, m, err := source(files)
			if err != nil {
				t.Fatal(err)
			}
			err = CheckImports(src, m)
			switch e := agent.AsError(err); {
			case tt.want == "":
				if err != nil {
					t.Error(err)
				}
			case err == nil || e.Kind != agent.Invalid || !strings.Contains(e.Msg, tt.want):
				t.Errorf("error = %v", err)
			case strings.Contains(tt.want, "http_request") && !strings.Contains(e.Hint, `"grants": {"http":`):
				t.Errorf("hint = %q", e.Hint)
			}
		})
	}
}

func TestManifestGrants(t *testing.T) {
	m, err := parseManifest([]byte(`{"description":"d","grants":{"http":["GET https://api.example.com/v1/**"],"secrets":[{"name":"key","limits":{"per_day":9}}],"state":{}}}`))
	if err != nil || m.Description != "d" {
		t.Fatal(m, err)
	}
	if got := m.Grants.Words(); len(got) != 3 || !strings.Contains(got[0], "api.example.com") {
		t.Errorf("words: %q", got)
	}
	for _, bad := range []string{`{"grants":{"http":["ftp://x"]}}`, `{"grants":{"https":[]}}`, `{"grants":{"secrets":["a","a"]}}`, `{"grants":[]}`} {
		if _, err := parseManifest([]byte(bad)); agent.KindOf(err) != agent.Invalid || !strings.Contains(err.Error(), ManifestFile) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// FuzzImports reads any bytes as a module: no panic, and no more names than bytes.
func FuzzImports(f *testing.F) {
	f.Add(wasm("a f", function, "b m", "\x02\x01\x01\x02"))
	f.Add([]byte("\x00asm\x01\x00\x00\x00\x02\x01\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		names, err := imports(b)
		if err == nil && len(names) > len(b) {
			t.Fatalf("%d names in %d bytes", len(names), len(b))
		}
	})
}
