package runtime_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/plugins"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/runtime/runtimetest"
	"github.com/skep-dev/skep/store"
)

func TestPutPlugin(t *testing.T) {
	r := newRig(t, map[string]runtimetest.Func{"f": nil, "b": nil}, nil)
	packed, err := plugins.Pack(map[string][]byte{"main.ts": []byte("1"), "skep.json": []byte(`{"name":"boxed","version":"1.0"}`)})
	if err != nil {
		t.Fatal(err)
	}
	wasm := []byte("\x00asm\x01\x00\x00\x00")
	for _, tt := range []struct {
		name, want string // name@version main
		up         runtime.Upload
		content    string // its file name
	}{
		{"script", "hello@1.0.0 hello.ts", runtime.Upload{Name: "hello", Version: "1.0.0", Filename: "x/hello.ts", Body: []byte("1")}, "hello.ts"},
		{"module", "mod@2 main.wasm", runtime.Upload{Name: "mod", Version: "2", Body: wasm}, "mod.wasm"},
		{"package", "boxed@1.0 main.ts", runtime.Upload{Body: packed}, "boxed.zip"},
		{"package by another name", "other@2.0 main.ts", runtime.Upload{Name: "other", Version: "2.0", Body: packed}, "other.zip"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stages := 0
			p, replayed, err := r.PutPlugin(t.Context(), app, tt.up, store.Once{}, func(host.Progress) { stages++ })
			if err != nil || replayed {
				t.Fatal(replayed, err)
			}
			if got := p.Name + "@" + p.Version + " " + p.Main; got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if !cmp.Equal(p.Exports, []string{"b", "f"}) || p.Size != int64(len(tt.up.Body)) || stages == 0 {
				t.Errorf("exports %v, size %d, %d stages", p.Exports, p.Size, stages)
			}
			src, err := r.LoadSource(t.Context(), p.Digest)
			if err != nil || src.Main != p.Main || src.Kind != p.Kind {
				t.Errorf("loaded %s %s: %v", src.Kind, src.Main, err)
			}
			name, body, err := r.Content(t.Context(), app, string(p.Digest))
			if err != nil || tt.name != "package by another name" && name != tt.content || string(body) != string(tt.up.Body) {
				t.Errorf("content %s %q: %v", name, body, err)
			}
			again, replayed, err := r.PutPlugin(t.Context(), app, tt.up, store.Once{}, nil)
			if err != nil || !replayed || !cmp.Equal(again, p) {
				t.Errorf("again: %v, replayed %v: %+v", err, replayed, again)
			}
		})
	}
}

// The same text is another program under another language's name.
func TestScriptNameCounts(t *testing.T) {
	r := newRig(t, nil, nil)
	var digests []agent.Digest
	for _, file := range []string{"a.ts", "a.js"} {
		p, _, err := r.PutPlugin(t.Context(), app, runtime.Upload{Name: "x", Filename: file, Body: []byte("a<b>(c)")}, store.Once{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if want := "0-" + p.Digest.Hex()[:12]; p.Version != want {
			t.Errorf("version %s, want %s", p.Version, want)
		}
		digests = append(digests, p.Digest)
	}
	if digests[0] == digests[1] {
		t.Error("the digests are equal")
	}
}

func TestPutPluginRefuses(t *testing.T) {
	r := newRig(t, nil, nil)
	up := runtime.Upload{Name: "x", Version: "1", Filename: "x.ts", Body: []byte("1")}
	if _, _, err := r.PutPlugin(t.Context(), app, up, store.Once{}, nil); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, want string
		kind       agent.Kind
		change     func(*runtime.Upload)
	}{
		{"no name", "has no name", agent.Invalid, func(u *runtime.Upload) { u.Name = "" }},
		{"name", "not valid", agent.Invalid, func(u *runtime.Upload) { u.Name = "X" }},
		{"version", "not valid", agent.Invalid, func(u *runtime.Upload) { u.Version = "-" }},
		{"other code", "x@1", agent.Exists, func(u *runtime.Upload) { u.Body = []byte("2") }},
		{"syntax", "syntax error", agent.Invalid, func(u *runtime.Upload) { u.Body = []byte("\n  " + runtimetest.SyntaxError) }},
		{"language", ".rb", agent.Invalid, func(u *runtime.Upload) { u.Filename = "x.rb" }},
	} {
		up := up
		tt.change(&up)
		_, _, err := r.PutPlugin(t.Context(), app, up, store.Once{}, nil)
		if e := agent.AsError(err); e == nil || e.Kind != tt.kind || !strings.Contains(e.Msg, tt.want) {
			t.Errorf("%s: got %v, want %s with %q", tt.name, err, tt.kind, tt.want)
		}
	}
	_, err := r.Check(t.Context(), app, runtime.Upload{Filename: "x.ts", Body: []byte("\n  " + runtimetest.SyntaxError)})
	if e := agent.AsError(err); e == nil || e.Pos != (agent.Pos{File: "x.ts", Line: 2, Column: 3}) {
		t.Errorf("check: %v", err)
	}
	if _, err := r.Check(t.Context(), app, runtime.Upload{Filename: "x.ts", Body: []byte("1")}); err != nil {
		t.Errorf("check of good code: %v", err)
	}
}

// A package says what its module may import, and what it asks for is kept with it.
func TestPluginAsks(t *testing.T) {
	r := newRig(t, nil, nil)
	module := []byte("\x00asm\x01\x00\x00\x00\x01\x04\x01\x60\x00\x00\x02\x20\x01\x0fextism:host/env\x0chttp_request\x00\x00")
	put := func(version, manifest string) (agent.Plugin, error) {
		t.Helper()
		files := map[string][]byte{"main.wasm": module, "skep.json": []byte(manifest)}
		body, err := plugins.Pack(files)
		if err != nil {
			t.Fatal(err)
		}
		if _, checkErr := r.Check(t.Context(), app, runtime.Upload{Name: "m", Body: body}); kind(checkErr) == "ok" != strings.Contains(manifest, "http") {
			t.Errorf("check of %s: %v", manifest, checkErr)
		}
		p, _, err := r.PutPlugin(t.Context(), app, runtime.Upload{Name: "m", Version: version, Body: body}, store.Once{}, nil)
		return p, err
	}
	if _, err := put("1", `{"description":"asks for nothing"}`); kind(err) != "invalid" || !strings.Contains(err.Error(), "http_request") {
		t.Errorf("an import that is not asked for: %v", err)
	}
	if _, err := r.store.Plugin(t.Context(), app, "m"); kind(err) != "not_found" {
		t.Errorf("a refused package was stored: %v", err)
	}
	p, err := put("2", `{"grants":{"http":["https://api.example.com"]}}`)
	if err != nil || p.Asks == nil || len(p.Asks.HTTP) != 1 {
		t.Errorf("%+v %v", p.Asks, err)
	}
	if p, err = r.store.Plugin(t.Context(), app, "m@2"); err != nil || p.Asks == nil || len(p.Asks.HTTP) != 1 {
		t.Errorf("stored: %+v %v", p.Asks, err)
	}
	bare, _, err := r.PutPlugin(t.Context(), app, runtime.Upload{Name: "bare", Body: module}, store.Once{}, nil)
	if err != nil || bare.Asks != nil {
		t.Errorf("a bare module: %+v %v", bare.Asks, err)
	}
}
