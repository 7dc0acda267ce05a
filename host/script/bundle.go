package script

import (
	"bytes"
	"context"
	"fmt"
	"path"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/skep-dev/skep/agent"
)

// BundleOptions bounds what is bundled. Zero fields mean the defaults.
type BundleOptions struct {
	MaxFiles int   // files of the source; 0 means 5,000
	MaxBytes int64 // bytes of the source; 0 means 32 MiB
}

// Bundle is an agent's code as one ES module, and the map that leads back to its author's files.
type Bundle struct {
	Code []byte
	Map  *SourceMap
}

// The language that the engine runs; what is newer (decorators, using) is lowered to it.
const target = api.ES2023

// What TypeScript's settings do to the output is fixed: a tsconfig.json in the source is not read.
const tsconfig = `{"compilerOptions":{"target":"ES2022","useDefineForClassFields":true,"experimentalDecorators":false}}`

// MakeBundle turns src into one module. Nothing outside src is read, and only "skep" stays imported. The error is of kind
// Invalid, lists everything that is wrong, and has the first place.
func MakeBundle(ctx context.Context, src agent.Source, o *BundleOptions) (*Bundle, error) {
	if err := ctx.Err(); err != nil {
		return nil, agent.Wrap(agent.Cancelled, err, "bundling was cancelled")
	}
	if src.Kind != agent.Script {
		return nil, agent.Errorf(agent.Invalid, "the code is of kind %s, not script", src.Kind)
	}
	if o == nil {
		o = &BundleOptions{}
	}
	t, err := newTree(src, o)
	if err != nil {
		return nil, err
	}
	text := t.files[t.main]
	if err := checkNesting(t.main, text); err != nil {
		return nil, err
	}
	if selfContained(text) {
		return transform(t.main, text)
	}
	return t.build()
}

var skepImport = regexp.MustCompile(`import\s+[\w$*{}\s,]+\s+from\s*(?:"skep"|'skep')`)

// selfContained reports whether the file surely imports nothing but "skep". It may say no of one that does not.
func selfContained(text []byte) bool {
	if bytes.Contains(text, []byte("skep")) {
		text = skepImport.ReplaceAll(text, nil)
	}
	return !hasWord(text, "import") && !hasWord(text, "from") && !hasWord(text, "require")
}

// hasWord reports whether word stands in text for itself, and not for a property.
func hasWord(text []byte, word string) bool {
	for {
		i := bytes.Index(text, []byte(word))
		if i < 0 {
			return false
		}
		end := i + len(word)
		if (i == 0 || text[i-1] != '.' && !inWord(text[i-1])) && (end == len(text) || !inWord(text[end])) {
			return true
		}
		text = text[end:]
	}
}

func inWord(c byte) bool {
	return c == '_' || c == '$' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// transform is the quick way for a single file.
func transform(name string, text []byte) (*Bundle, error) {
	l, _ := loaderOf(name)
	r := api.Transform(string(withoutMaps(text)), api.TransformOptions{
		Loader: l, Sourcefile: name, Target: target, Format: api.FormatESModule, TsconfigRaw: tsconfig, Define: defines(text),
		Sourcemap: api.SourceMapExternal, SourcesContent: api.SourcesContentExclude, LogLevel: api.LogLevelSilent,
	})
	if len(r.Errors) > 0 {
		return nil, refused(r.Errors)
	}
	return &Bundle{Code: r.Code, Map: NewSourceMap(r.Map)}, nil
}

// defines says what code for other places may count on. The table is costly to the bundler, so it is left out where
// nothing of it is used.
func defines(text []byte) map[string]string {
	if !bytes.Contains(text, []byte("process")) && !bytes.Contains(text, []byte("global")) {
		return nil
	}
	return map[string]string{"process.env.NODE_ENV": `"production"`, "global": "globalThis"}
}

// build bundles the tree from its main file.
func (t *tree) build() (*Bundle, error) {
	r := api.Build(api.BuildOptions{
		EntryPoints: []string{t.main}, Outfile: "agent.js", Bundle: true, Write: false, Plugins: []api.Plugin{t.plugin()},
		Format: api.FormatESModule, Platform: api.PlatformNeutral, Target: target, TsconfigRaw: tsconfig, Define: defines([]byte("process")),
		Sourcemap: api.SourceMapExternal, SourcesContent: api.SourcesContentExclude, LogLevel: api.LogLevelSilent,
		AbsWorkingDir: "/", LegalComments: api.LegalCommentsNone, LogLimit: maxMessages + 1,
	})
	if len(r.Errors) > 0 {
		return nil, refused(r.Errors)
	}
	b := &Bundle{}
	for _, f := range r.OutputFiles {
		if path.Ext(f.Path) == ".map" {
			b.Map = NewSourceMap(f.Contents)
		} else {
			b.Code = f.Contents
		}
	}
	return b, nil
}

// maxMessages bounds how many errors are listed.
const maxMessages = 20

// refused makes one error of what the bundler found.
func refused(messages []api.Message) error {
	e := &agent.Error{Kind: agent.Invalid}
	var lines []string
	for i, m := range messages {
		pos := position(m.Location)
		if i == 0 {
			e.Pos = pos
		}
		if i == maxMessages {
			lines = append(lines, fmt.Sprintf("and %d more", len(messages)-i))
			break
		}
		line := strings.ReplaceAll(m.Text, `"`+namespace+":", `"`)
		if pos.Line > 0 {
			line = pos.String() + ": " + line
		}
		for _, n := range m.Notes {
			if p := position(n.Location); p.Line > 0 {
				line += "\n  " + p.String() + ": " + n.Text
			}
		}
		lines = append(lines, line)
	}
	e.Msg = strings.Join(lines, "\n")
	return e
}

// position turns the bundler's place, with its 0-based column of bytes, into ours.
func position(l *api.Location) agent.Pos {
	if l == nil {
		return agent.Pos{}
	}
	before := l.LineText[:min(l.Column, len(l.LineText))]
	return agent.Pos{File: strings.TrimPrefix(l.File, namespace+":"), Line: l.Line, Column: utf8.RuneCountInString(before) + 1}
}
