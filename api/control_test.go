package api

import (
	"archive/zip"
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
)

// What a run is played again with comes as JSON, as a file, or as a form with several.
func TestReplayRequest(t *testing.T) {
	var packed bytes.Buffer
	z := zip.NewWriter(&packed)
	w, err := z.Create("main.ts")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("export {}")); err != nil {
		t.Fatal(err)
	}
	z.Close()
	formType, form := form(t, "main.ts", "export {}", "lib.ts", "export {}")
	for _, tt := range []struct {
		name, filename, mediaType, body string
		plugin, source                  string // source is the kind and the files
		err                             string
	}{
		{"nothing", "", "", "", "", "", ""},
		{"an empty object", "", "application/json", "{}", "", "", ""},
		{"a plugin", "", "application/json", `{"plugin":"order@2"}`, "order@2", "", ""},
		{"no media type", "", "", `{"plugin":"order@2"}`, "order@2", "", ""},
		{"code", "", "application/json", `{"code":"export {}","files":{"lib.ts":"export {}"}}`, "", "script main.ts lib.ts main.ts", ""},
		{"JavaScript", "", "application/json", `{"code":"export {}","language":"js"}`, "", "script main.js main.js", ""},
		{"both", "", "application/json", `{"plugin":"a","code":"export {}"}`, "", "", "both"},
		{"another field", "", "application/json", `{"plugins":"a"}`, "", "", "plugins"},
		{"another language", "", "application/json", `{"code":"x","language":"cobol"}`, "", "", "cobol"},
		{"a script", "order.ts", "application/octet-stream", "export {}", "", "script order.ts order.ts", ""},
		{"a module", "", "application/wasm", "\x00asm\x01\x00\x00\x00", "", "wasm main.wasm main.wasm", ""},
		{"a package", "x.zip", "application/zip", packed.String(), "", "script main.ts main.ts", ""},
		{"a form", "", formType, form, "", "script main.ts lib.ts main.ts", ""},
		{"something else", "notes.txt", "text/plain", "hello", "", "", ".txt"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req, err := replayRunRequest{Filename: tt.filename, Type: tt.mediaType, Body: []byte(tt.body)}.request()
			if tt.err != "" {
				if e := wantKind(t, err, agent.Invalid); !strings.Contains(e.Msg+e.Hint, tt.err) {
					t.Errorf("%+v", e)
				}
				return
			}
			source := ""
			if req.Source != nil {
				source = req.Source.Kind.String() + " " + req.Source.Main + " " + strings.Join(sorted(req.Source.Files), " ")
			}
			if err != nil || req.Plugin != tt.plugin || source != tt.source {
				t.Errorf("%q %q %v", req.Plugin, source, err)
			}
		})
	}
}

func sorted(files map[string][]byte) []string { return slices.Sorted(maps.Keys(files)) }
