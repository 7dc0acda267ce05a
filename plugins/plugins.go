// Package plugins reads and writes plugin packages: the files in which agent code is uploaded and kept. A package is a
// WebAssembly module, one script or Python file, or a zip archive of files with an optional manifest, skep.json. An archive comes from a
// stranger: names that leave it, archives that grow and names given twice are refused.
package plugins

import (
	"bytes"
	"math"
	"mime"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/internal/phrase"
)

// Limits bounds a package. A zero field means the default.
type Limits struct {
	Upload   int64 // bytes of the package; 64 MiB
	Unpacked int64 // bytes of its files together; 128 MiB
	Files    int   // entries of an archive, directories included; 10,000
}

// Unlimited returns the limits for packages that were checked before.
func Unlimited() *Limits {
	return &Limits{Upload: math.MaxInt64, Unpacked: math.MaxInt64 - 1, Files: math.MaxInt}
}

func (l *Limits) or() Limits {
	out := Limits{Upload: 64 << 20, Unpacked: 128 << 20, Files: 10_000}
	if l == nil {
		return out
	}
	if l.Upload != 0 {
		out.Upload = l.Upload
	}
	if l.Unpacked != 0 {
		out.Unpacked = l.Unpacked
	}
	if l.Files != 0 {
		out.Files = l.Files
	}
	return out
}

// scriptName returns the file name of a script that came without one.
func scriptName(mediaType string) string {
	switch mediaType {
	case "text/javascript", "application/javascript", "application/x-javascript":
		return "main.js"
	case "text/x-python", "application/x-python", "application/x-python-code":
		return "main.py"
	}
	return "main.ts"
}

// IsScript reports whether a file of this name is JavaScript or TypeScript.
func IsScript(name string) bool {
	return slices.Contains(scriptExts, path.Ext(name))
}

// IsPython reports whether a file of this name is Python.
func IsPython(name string) bool { return path.Ext(name) == ".py" }

// isText reports whether a file of this name is code that is kept as its author wrote it.
func isText(name string) bool { return IsScript(name) || IsPython(name) }

func kindOf(name string) agent.CodeKind {
	switch {
	case IsScript(name):
		return agent.Script
	case IsPython(name):
		return agent.Python
	case path.Ext(name) == ".wasm":
		return agent.Wasm
	}
	return agent.UnknownCode
}

// codeExts lists how the names of files end that can be run, those first that win over the others.
func codeExts() []string { return slices.Concat([]string{".wasm"}, scriptExts, []string{".py"}) }

var scriptExts = []string{".ts", ".tsx", ".mts", ".cts", ".js", ".jsx", ".mjs", ".cjs"}

// Open reads a package. WebAssembly and zip are known by their first bytes; anything else is one text file, whose language
// its file name or else its content type tells, TypeScript when neither does. filename may be a path; it may be empty.
// The files of the source share memory with body where they can.
func Open(filename, contentType string, body []byte, l *Limits) (agent.Source, Manifest, error) {
	limits := l.or()
	switch {
	case int64(len(body)) > limits.Upload:
		return agent.Source{}, Manifest{}, agent.Exceeded(agent.LimitUpload, "the package has %d bytes, more than %d", len(body), limits.Upload)
	case len(body) == 0:
		return agent.Source{}, Manifest{}, agent.Errorf(agent.Invalid, "the package is empty")
	case isWasm(body):
		return module(body), Manifest{}, nil
	case isZip(body):
		return openZip(body, limits)
	}
	name, err := nameScript(filename, contentType)
	if err != nil {
		return agent.Source{}, Manifest{}, err
	}
	if err := checkText(name, body); err != nil {
		return agent.Source{}, Manifest{}, err
	}
	return agent.Source{Kind: kindOf(name), Main: name, Files: map[string][]byte{name: body}}, Manifest{}, nil
}

func isWasm(b []byte) bool { return bytes.HasPrefix(b, []byte("\x00asm")) }

// isZip also knows the empty archive, so that it is refused as one.
func isZip(b []byte) bool {
	return bytes.HasPrefix(b, []byte("PK\x03\x04")) || bytes.HasPrefix(b, []byte("PK\x05\x06"))
}

func module(body []byte) agent.Source {
	return agent.Source{Kind: agent.Wasm, Main: "main.wasm", Files: map[string][]byte{"main.wasm": body}}
}

func nameScript(filename, contentType string) (string, error) {
	name := filename[strings.LastIndexAny(filename, `/\`)+1:]
	t, _, _ := mime.ParseMediaType(contentType)
	switch ext := path.Ext(name); {
	case isText(name):
		return name, checkPath(name)
	case ext == ".wasm" || t == "application/wasm":
		return "", agent.Errorf(agent.Invalid, "this is not a WebAssembly module: it does not begin with \\0asm")
	case ext == ".zip" || t == "application/zip":
		return "", agent.Errorf(agent.Invalid, "this is not a zip archive: it does not begin with PK")
	case ext != "" && ext != name:
		return "", &agent.Error{
			Kind: agent.Invalid, Msg: "files ending in " + clip(ext) + " cannot be run",
			Hint: "upload a WebAssembly module, a zip package, or a file ending in .py, " + strings.Join(scriptExts, ", "),
		}
	}
	return scriptName(t), nil
}

func checkText(name string, b []byte) error {
	if utf8.Valid(b) && bytes.IndexByte(b, 0) < 0 {
		return nil
	}
	return &agent.Error{
		Kind: agent.Invalid, Pos: agent.Pos{File: name, Line: badLine(b)}, Msg: name + " is not UTF-8 text",
		Hint: "save scripts as UTF-8; upload compiled code as a WebAssembly module",
	}
}

// badLine returns the line of the first byte that is not text.
func badLine(b []byte) int {
	line := 1
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		switch {
		case r == utf8.RuneError && n == 1, r == 0:
			return line
		case r == '\n':
			line++
		}
		b = b[n:]
	}
	return line
}

func clip(s string) string { return phrase.Clip(s, 80) }
