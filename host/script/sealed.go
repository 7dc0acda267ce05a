package script

import (
	"bytes"
	"regexp"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
)

// The bundler reads the file system behind its plugins' back in two cases, which sealed takes away before it sees a file:
// a source map named by a comment, and a dynamic import or require of a path that is put together (a "glob"), for which it
// lists directories.

// mapComment finds references to source maps other than those that carry the map in themselves.
var mapComment = regexp.MustCompile(`sourceMappingURL=(data:)?`)

// perhapsDynamic finds the files that may hold a dynamic import or require; it errs on the safe side.
var perhapsDynamic = regexp.MustCompile(`import\s*[(/.]|require|\\u`)

// The functions of the prelude that take the place of import and require where the argument is not a literal. They fail.
const (
	dynamicImport  = "skepImport"
	dynamicRequire = "skepRequire"
)

// withoutMaps breaks the references to source maps in files.
func withoutMaps(text []byte) []byte {
	if !bytes.Contains(text, []byte("sourceMappingURL=")) {
		return text
	}
	return mapComment.ReplaceAllFunc(text, func(m []byte) []byte {
		if bytes.HasSuffix(m, []byte("data:")) {
			return m
		}
		return []byte("sourceMappingUrl=")
	})
}

// sealed returns text so that the bundler reads no file for it. What it cannot parse it refuses.
func sealed(name string, l api.Loader, text []byte) (string, []api.Message) {
	text = withoutMaps(text)
	if l == api.LoaderText || l == api.LoaderJSON || !perhapsDynamic.Match(text) {
		return string(text), nil
	}
	// The parser itself says where they are, when it does not bundle.
	r := api.Transform(string(text), api.TransformOptions{
		Loader: l, Sourcefile: name, Target: target, Format: api.FormatESModule, TsconfigRaw: tsconfig, Define: defines(text),
		LogLevel: api.LogLevelSilent,
		LogOverride: map[string]api.LogLevel{
			"unsupported-dynamic-import": api.LogLevelWarning, "unsupported-require-call": api.LogLevelWarning,
		},
	})
	if len(r.Errors) > 0 {
		return "", r.Errors
	}
	lines := strings.SplitAfter(string(text), "\n")
	done := map[[2]int]bool{}
	for i := len(r.Warnings) - 1; i >= 0; i-- { // from the end, so that columns before stay right
		w := r.Warnings[i]
		if w.Location == nil || !strings.Contains(w.Text, "will not be bundled") || done[[2]int{w.Location.Line, w.Location.Column}] {
			continue
		}
		done[[2]int{w.Location.Line, w.Location.Column}] = true
		replaceWord(lines, w.Location)
	}
	return strings.Join(lines, ""), nil
}

// replaceWord replaces the import or require at l.
func replaceWord(lines []string, l *api.Location) {
	if l.Line < 1 || l.Line > len(lines) {
		return
	}
	line := lines[l.Line-1]
	end := l.Column + l.Length
	if end > len(line) {
		return
	}
	word := dynamicRequire
	if strings.HasPrefix(line[l.Column:], "import") {
		word = dynamicImport
	}
	lines[l.Line-1] = line[:l.Column] + word + line[end:]
}
