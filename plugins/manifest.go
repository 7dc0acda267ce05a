package plugins

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/skep-dev/skep/agent"
)

// ManifestFile is the name of a package's manifest.
const ManifestFile = "skep.json"

// Manifest says what a package is and what it asks for. All fields are optional; a field that is not known is refused.
type Manifest struct {
	Name        string        `json:"name,omitempty"`
	Version     string        `json:"version,omitempty"`
	Main        string        `json:"main,omitempty"` // path of the entry file
	Description string        `json:"description,omitempty"`
	Grants      *agent.Grants `json:"grants,omitempty"` // what it asks for; an agent on it gets what its owner grants

	Tools Tools `json:"tools,omitempty"` // functions that other agents can call as tools
	MCP   *MCP  `json:"mcp,omitempty"`   // what it serves as an MCP server of its own

	Given bool `json:"-"` // whether the package has a manifest at all
}

func parseManifest(b []byte) (Manifest, error) {
	m := Manifest{Given: true}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	err := d.Decode(&m)
	if err == nil {
		if _, end := d.Token(); !errors.Is(end, io.EOF) {
			err = agent.Errorf(agent.Invalid, "text after the closing brace")
		}
	}
	if err != nil {
		e := &agent.Error{
			Kind: agent.Invalid, Msg: ManifestFile + ": " + err.Error(), Pos: agent.Pos{File: ManifestFile},
			Hint: "a manifest may have the fields name, version, main, description, grants, tools and mcp",
		}
		if known, ok := errors.AsType[*agent.Error](err); ok && known.Hint != "" { // a target that cannot be read
			e.Hint = known.Hint
		}
		return Manifest{}, e
	}
	if m.Grants != nil {
		if err := m.Grants.Check(); err != nil {
			e := *agent.AsError(err)
			e.Msg, e.Pos = ManifestFile+": "+e.Msg, agent.Pos{File: ManifestFile}
			return Manifest{}, &e
		}
	}
	if m.Name != "" {
		if err := agent.CheckName("plugin", m.Name); err != nil {
			return Manifest{}, err
		}
	}
	if m.Version != "" {
		if err := agent.CheckVersion(m.Version); err != nil {
			return Manifest{}, err
		}
	}
	m.Main = strings.TrimPrefix(m.Main, "./")
	return m, nil
}

// source turns the files of an archive into agent code.
func source(files map[string][]byte) (agent.Source, Manifest, error) {
	var m Manifest
	if b, ok := files[ManifestFile]; ok {
		var err error
		if m, err = parseManifest(b); err != nil {
			return agent.Source{}, Manifest{}, err
		}
	}
	entry, err := entryOf(files, m)
	if err != nil {
		return agent.Source{}, Manifest{}, err
	}
	if path.Ext(entry) == ".wasm" {
		if !isWasm(files[entry]) {
			return agent.Source{}, Manifest{}, agent.Errorf(agent.Invalid, "%s is not a WebAssembly module: it does not begin with \\0asm", entry)
		}
		return agent.Source{Kind: agent.Wasm, Main: entry, Files: map[string][]byte{entry: files[entry]}}, m, nil
	}
	for _, name := range sorted(files) {
		if isText(name) {
			if err := checkText(name, files[name]); err != nil {
				return agent.Source{}, Manifest{}, err
			}
		}
	}
	return agent.Source{Kind: kindOf(entry), Main: entry, Files: files}, m, nil
}

// entryOf returns the entry file: the manifest's main; else main.* or index.*, at the top or in src; else the only file
// at the top that can be run.
func entryOf(files map[string][]byte, m Manifest) (string, error) {
	if m.Main != "" {
		if _, ok := files[m.Main]; !ok {
			return "", agent.Errorf(agent.Invalid, "%s: main is %q, which is not in the package", ManifestFile, clip(m.Main))
		}
		if kindOf(m.Main) == agent.UnknownCode {
			return "", agent.Errorf(agent.Invalid, "%s: main is %q, which is neither a script nor Python nor a WebAssembly module", ManifestFile, clip(m.Main))
		}
		return m.Main, nil
	}
	for _, stem := range []string{"main", "index", "src/main", "src/index"} {
		for _, ext := range codeExts() {
			if _, ok := files[stem+ext]; ok {
				return stem + ext, nil
			}
		}
	}
	top := topFiles(files, func(name string) bool { return IsScript(name) || path.Ext(name) == ".wasm" })
	if len(top) == 0 { // else Python beside a script is something that it brings along
		top = topFiles(files, IsPython)
	}
	switch {
	case len(top) == 1:
		return top[0], nil
	case len(top) > 1:
		return "", &agent.Error{
			Kind: agent.Invalid, Msg: "cannot tell which file to run: " + clip(strings.Join(top, ", ")),
			Hint: `name one in skep.json, such as {"main": "` + top[0] + `"}, or call it main` + path.Ext(top[0]),
		}
	}
	hint := `add a main.ts, or name the entry file in skep.json: {"main": "..."}`
	if dir := commonDir(files); dir != "" {
		hint = "all files are below " + clip(dir) + "/: pack what is in that directory, not the directory"
	}
	return "", &agent.Error{Kind: agent.Invalid, Msg: "the package has no file to run", Hint: hint}
}

// topFiles returns the files of a kind that lie in no directory, sorted.
func topFiles(files map[string][]byte, is func(name string) bool) []string {
	var top []string
	for name := range files {
		if !strings.Contains(name, "/") && is(name) {
			top = append(top, name)
		}
	}
	slices.Sort(top)
	return top
}

func commonDir(files map[string][]byte) string {
	dir := ""
	for name := range files {
		first, _, nested := strings.Cut(name, "/")
		if !nested || dir != "" && dir != first {
			return ""
		}
		dir = first
	}
	return dir
}
