package plugins_test

import (
	"archive/zip"
	"bytes"
	"io/fs"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/plugins"
)

var wasm = []byte("\x00asm\x01\x00\x00\x00")

type entry struct {
	name, body string
	mode       fs.FileMode
}

func zipOf(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
		if e.mode != 0 {
			h.SetMode(e.mode)
		}
		f, err := w.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(e.body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestOpen(t *testing.T) {
	module := string(wasm)
	for _, tt := range []struct {
		name, file, contentType string
		body                    []byte
		kind                    agent.CodeKind
		main                    string
		files                   int
		manifest                plugins.Manifest
	}{
		{name: "wasm", body: wasm, kind: agent.Wasm, main: "main.wasm", files: 1},
		{name: "python", file: "x.py", body: []byte("def f(): pass"), kind: agent.Python, main: "x.py", files: 1},
		{name: "python by type", contentType: "text/x-python", body: []byte("def f(): pass"), kind: agent.Python, main: "main.py", files: 1},
		{name: "python package", body: zipOf(t, entry{"a.py", "", 0}, entry{"lib/b.py", "", 0}), kind: agent.Python, main: "a.py", files: 2},
		{name: "python beside a script", body: zipOf(t, entry{"a.ts", "", 0}, entry{"b.py", "", 0}), kind: agent.Script, main: "a.ts", files: 2},
		{name: "main.ts before main.py", body: zipOf(t, entry{"main.ts", "", 0}, entry{"main.py", "", 0}), kind: agent.Script, main: "main.ts", files: 2},
		{name: "wasm whatever it is called", file: "x.txt", body: wasm, kind: agent.Wasm, main: "main.wasm", files: 1},
		{name: "by name", file: "dir/hello.mjs", body: []byte("1"), kind: agent.Script, main: "hello.mjs", files: 1},
		{name: "windows path", file: `C:\a\hello.tsx`, body: []byte("1"), kind: agent.Script, main: "hello.tsx", files: 1},
		{name: "name before type", file: "a.ts", contentType: "text/javascript", body: []byte("1"), kind: agent.Script, main: "a.ts", files: 1},
		{name: "by type", contentType: "text/javascript; charset=utf-8", body: []byte("1"), kind: agent.Script, main: "main.js", files: 1},
		{name: "neither", contentType: "application/x-www-form-urlencoded", body: []byte("export {}"), kind: agent.Script, main: "main.ts", files: 1},
		{name: "zip", body: zipOf(t, entry{"lib/", "", 0}, entry{"lib/a.ts", "2", 0}, entry{"index.ts", "1", 0}), kind: agent.Script, main: "index.ts", files: 2},
		{name: "only script", body: zipOf(t, entry{"README.md", "x", 0}, entry{"bot.js", "1", 0}), kind: agent.Script, main: "bot.js", files: 2},
		{
			name: "manifest", kind: agent.Script, main: "src/bot.ts", files: 2,
			body:     zipOf(t, entry{"skep.json", `{"name":"bot","version":"1.2.0","main":"./src/bot.ts","description":"d"}`, 0}, entry{"src/bot.ts", "1", 0}),
			manifest: plugins.Manifest{Name: "bot", Version: "1.2.0", Main: "src/bot.ts", Description: "d", Given: true},
		},
		{name: "module in zip", body: zipOf(t, entry{"main.wasm", module, 0}, entry{"README.md", "x", 0}), kind: agent.Wasm, main: "main.wasm", files: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			src, m, err := plugins.Open(tt.file, tt.contentType, tt.body, nil)
			if err != nil {
				t.Fatal(err)
			}
			if src.Kind != tt.kind || src.Main != tt.main || len(src.Files) != tt.files || !reflect.DeepEqual(m, tt.manifest) {
				t.Errorf("got %s %s with %d files and %+v", src.Kind, src.Main, len(src.Files), m)
			}
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	ok := entry{"main.ts", "1", 0}
	encrypted := zipOf(t, ok)
	encrypted[bytes.Index(encrypted, []byte("PK\x01\x02"))+8] |= 1
	damaged := zipOf(t, ok)
	damaged[bytes.Index(damaged, []byte("main.ts"))+len("main.ts")] ^= 0xff
	for _, tt := range []struct {
		name, file string
		body       []byte
		limits     plugins.Limits
		kind       agent.Kind
		want       string
	}{
		{name: "empty", want: "empty"},
		{name: "another language", file: "agent.rb", body: []byte("1"), want: "files ending in .rb cannot be run"},
		{name: "no module", file: "a.wasm", body: []byte("1"), want: "not a WebAssembly module"},
		{name: "no archive", file: "a.zip", body: []byte("1"), want: "not a zip archive"},
		{name: "utf-16", file: "a.ts", body: []byte("\xff\xfe1\x00"), want: "a.ts is not UTF-8"},
		{name: "script in zip", body: zipOf(t, ok, entry{"b.ts", "x\n\xff", 0}), want: "b.ts is not UTF-8"},
		{name: "too large", body: []byte("12345"), limits: plugins.Limits{Upload: 4}, kind: agent.Exhausted, want: "has 5 bytes, more than 4"},
		{name: "too many files", body: zipOf(t, ok, entry{"a/", "", 0}), limits: plugins.Limits{Files: 1}, kind: agent.Exhausted, want: "more than 1 entries"},
		{name: "bomb", body: zipOf(t, entry{"main.ts", strings.Repeat(" ", 1<<20), 0}), limits: plugins.Limits{Unpacked: 1 << 16}, kind: agent.Exhausted, want: "more than 65536 bytes unpacked"},
		{name: "parts of a bomb", body: zipOf(t, entry{"a.ts", strings.Repeat(" ", 40), 0}, entry{"b.ts", strings.Repeat(" ", 40), 0}), limits: plugins.Limits{Unpacked: 64}, kind: agent.Exhausted, want: "more than 64 bytes unpacked"},
		{name: "slip", body: zipOf(t, ok, entry{"../x.ts", "1", 0}), want: `"../x.ts" has an empty part`},
		{name: "slip below", body: zipOf(t, ok, entry{"a/../../x.ts", "1", 0}), want: "has an empty part"},
		{name: "absolute", body: zipOf(t, ok, entry{"/etc/passwd", "1", 0}), want: "is absolute"},
		{name: "drive", body: zipOf(t, ok, entry{"C:/x.ts", "1", 0}), want: "is absolute"},
		{name: "backslash", body: zipOf(t, ok, entry{`a\x.ts`, "1", 0}), want: "backslash"},
		{name: "control", body: zipOf(t, ok, entry{"a\x00.ts", "1", 0}), want: "control character"},
		{name: "not utf-8", body: zipOf(t, ok, entry{"a\xff.ts", "1", 0}), want: "is not UTF-8"},
		{name: "long", body: zipOf(t, ok, entry{strings.Repeat("a", 256), "1", 0}), want: "256 bytes, more than 255"},
		{name: "twice", body: zipOf(t, ok, ok), want: `two files called "main.ts"`},
		{name: "file and directory", body: zipOf(t, ok, entry{"main.ts/x", "1", 0}), want: "both a file and a directory"},
		{name: "link", body: zipOf(t, ok, entry{"x.ts", "/etc/passwd", fs.ModeSymlink | 0o777}), want: "symbolic link"},
		{name: "device", body: zipOf(t, ok, entry{"x.ts", "", fs.ModeDevice}), want: "not a regular file"},
		{name: "encrypted", body: encrypted, want: "encrypted"},
		{name: "damaged", body: damaged, want: "cannot be unpacked"},
		{name: "cut off", body: zipOf(t, ok)[:40], want: "not a whole zip archive"},
		{name: "no files", body: zipOf(t), want: "no file to run"},
		{name: "nothing to run", body: zipOf(t, entry{"README.md", "1", 0}), want: "no file to run"},
		{name: "which to run", body: zipOf(t, entry{"a.ts", "1", 0}, entry{"b.ts", "1", 0}), want: "cannot tell which file to run: a.ts, b.ts"},
		{name: "unknown field", body: zipOf(t, ok, entry{"skep.json", `{"entry":"main.ts"}`, 0}), want: `unknown field "entry"`},
		{name: "two manifests", body: zipOf(t, ok, entry{"skep.json", `{}{}`, 0}), want: "after the closing brace"},
		{name: "bad name", body: zipOf(t, ok, entry{"skep.json", `{"name":"A B"}`, 0}), want: `plugin name "A B"`},
		{name: "bad version", body: zipOf(t, ok, entry{"skep.json", `{"version":"-"}`, 0}), want: `version "-"`},
		{name: "main is not there", body: zipOf(t, ok, entry{"skep.json", `{"main":"x.ts"}`, 0}), want: `main is "x.ts", which is not in the package`},
		{name: "main cannot run", body: zipOf(t, ok, entry{"skep.json", `{"main":"skep.json"}`, 0}), want: "neither a script nor"},
		{name: "main is no module", body: zipOf(t, entry{"main.wasm", "1", 0}), want: "main.wasm is not a WebAssembly module"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := plugins.Open(tt.file, "", tt.body, &tt.limits)
			if err == nil {
				t.Fatal("no error")
			}
			if tt.kind == agent.Internal {
				tt.kind = agent.Invalid
			}
			if e := agent.AsError(err); e.Kind != tt.kind || !strings.Contains(e.Msg, tt.want) {
				t.Errorf("got %s %q, want %s with %q", e.Kind, e.Msg, tt.kind, tt.want)
			}
		})
	}
}

func TestHints(t *testing.T) {
	_, _, err := plugins.Open("", "", zipOf(t, entry{"bot/main.ts", "1", 0}, entry{"bot/skep.json", "{}", 0}), nil)
	if e := agent.AsError(err); e == nil || !strings.Contains(e.Hint, "all files are below bot/") {
		t.Errorf("got %+v", e)
	}
	_, _, err = plugins.Open("a.ts", "", []byte("one\ntwo \xff"), nil)
	if e := agent.AsError(err); e == nil || e.Pos != (agent.Pos{File: "a.ts", Line: 2}) {
		t.Errorf("got %+v", e)
	}
}

// A directory of entries is expensive to read: their number must be known before.
func TestManyEntriesAreCountedFirst(t *testing.T) {
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	for i := range 70_000 { // more than the archive's own counter holds
		if _, err := w.CreateRaw(&zip.FileHeader{Name: strconv.Itoa(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	_, _, err := plugins.Open("", "", buf.Bytes(), nil)
	if e := agent.AsError(err); e == nil || e.Kind != agent.Exhausted || !strings.Contains(e.Msg, "more than 10000 entries") {
		t.Errorf("got %v", err)
	}
}

func TestPack(t *testing.T) {
	files := map[string][]byte{"main.ts": []byte("1"), "lib/a.ts": []byte("2"), "empty.json": {}}
	b, err := plugins.Pack(files)
	if err != nil {
		t.Fatal(err)
	}
	src, _, err := plugins.Open("", "", b, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(files, src.Files); d != "" {
		t.Errorf("files changed (-want +got):\n%s", d)
	}
	// What a digest is made of never changes, or every pushed package would become another one.
	const want = "sha256:a0266707c5f619a658e4cbf81292dbf1e3bc8582df60f94395d3be139a0c1efe"
	if got := agent.DigestOf(b); got != want {
		t.Errorf("digest is %s, want %s", got, want)
	}
}

func TestPackRefuses(t *testing.T) {
	for name, files := range map[string]map[string][]byte{
		"nothing": nil, "slip": {"../a": nil}, "absolute": {"/a": nil}, "file and directory": {"a": nil, "a/b": nil},
	} {
		if _, err := plugins.Pack(files); err == nil || agent.KindOf(err) != agent.Invalid {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestCollect(t *testing.T) {
	dir := fstest.MapFS{
		"main.ts": {Data: []byte("1"), ModTime: time.Now()}, ".git/HEAD": {Data: []byte("x")}, "sub/.git": {Data: []byte("x")},
		"sub/a.ts": {Data: []byte("2")}, "node_modules/p/index.js": {Data: []byte("3")},
	}
	got, err := plugins.Collect(dir, func(name string, isDir bool) bool { return isDir && name == "node_modules" }, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string][]byte{"main.ts": []byte("1"), "sub/a.ts": []byte("2")}, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if _, err := plugins.Collect(dir, nil, &plugins.Limits{Files: 2}); err == nil || agent.KindOf(err) != agent.Exhausted {
		t.Errorf("too many files: %v", err)
	}
	if _, err := plugins.Collect(dir, nil, &plugins.Limits{Upload: 2}); err == nil || agent.KindOf(err) != agent.Exhausted {
		t.Errorf("too many bytes: %v", err)
	}
	dir["link"] = &fstest.MapFile{Mode: fs.ModeSymlink, Data: []byte("main.ts")}
	if _, err := plugins.Collect(dir, nil, nil); err == nil || agent.KindOf(err) != agent.Invalid {
		t.Errorf("link: %v", err)
	}
}

func FuzzOpen(f *testing.F) {
	f.Add("a.ts", "", []byte("export {}"))
	f.Add("", "", wasm)
	f.Add("", "text/javascript", []byte("1"))
	f.Add("", "", zipOf(f, entry{"main.ts", "1", 0}, entry{"skep.json", `{"name":"a"}`, 0}))
	f.Add("", "", zipOf(f, entry{"../main.ts", "1", 0}))
	limits := &plugins.Limits{Upload: 1 << 20, Unpacked: 1 << 20, Files: 100}
	f.Fuzz(func(t *testing.T, name, contentType string, body []byte) {
		src, _, err := plugins.Open(name, contentType, body, limits)
		if err != nil {
			if k := agent.KindOf(err); k != agent.Invalid && k != agent.Exhausted {
				t.Fatalf("kind %s: %v", k, err)
			}
			return
		}
		if _, ok := src.Files[src.Main]; !ok || src.Kind == agent.UnknownCode {
			t.Fatalf("%s source without its main %q", src.Kind, src.Main)
		}
		var total int
		for name, b := range src.Files {
			if total += len(b); !fs.ValidPath(name) || strings.Contains(name, `\`) {
				t.Fatalf("name %q", name)
			}
		}
		if total > 1<<20 {
			t.Fatalf("%d bytes unpacked", total)
		}
		if src.Kind != agent.Script {
			return
		}
		packed, err := plugins.Pack(src.Files)
		if err != nil {
			t.Fatal(err)
		}
		again, _, err := plugins.Open("", "", packed, plugins.Unlimited())
		if err != nil || again.Kind != src.Kind || !cmp.Equal(again.Files, src.Files) {
			t.Fatalf("packed and opened again: %v", err)
		}
	})
}
