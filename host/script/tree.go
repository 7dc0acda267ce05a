package script

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/skep-dev/skep/agent"
)

// namespace marks the bundler's paths as those of a tree.
const namespace = "skep"

// tree is the files of one source, and resolves imports among them. Its paths are clean, relative and use slashes.
type tree struct {
	main  string
	files map[string][]byte
	dirs  map[string]bool
}

func newTree(src agent.Source, o *BundleOptions) (*tree, error) {
	maxFiles, maxBytes := o.MaxFiles, o.MaxBytes
	if maxFiles == 0 {
		maxFiles = 5000
	}
	if maxBytes == 0 {
		maxBytes = 32 << 20
	}
	if len(src.Files) > maxFiles {
		return nil, &agent.Error{Kind: agent.Exhausted, Limit: agent.LimitUpload,
			Msg: fmt.Sprintf("the source has %d files, at most %d are taken", len(src.Files), maxFiles)}
	}
	t := &tree{main: path.Clean(src.Main), files: make(map[string][]byte, len(src.Files)), dirs: map[string]bool{".": true}}
	total := int64(0)
	for name, body := range src.Files {
		clean := path.Clean(name)
		if path.IsAbs(clean) || clean == "." || clean == ".." || strings.HasPrefix(clean, "../") || strings.ContainsAny(name, "\\\x00") {
			return nil, agent.Errorf(agent.Invalid, "the file name %q is not a relative path with slashes", name)
		}
		if total += int64(len(body)); total > maxBytes {
			return nil, &agent.Error{Kind: agent.Exhausted, Limit: agent.LimitUpload,
				Msg: fmt.Sprintf("the source is larger than %d bytes", maxBytes)}
		}
		t.files[clean] = body
		for d := path.Dir(clean); !t.dirs[d]; d = path.Dir(d) {
			t.dirs[d] = true
		}
	}
	if _, ok := t.files[t.main]; !ok {
		return nil, agent.Errorf(agent.Invalid, "the main file %q is not among the source's files", src.Main)
	}
	if l, ok := loaderOf(t.main); !ok || l == api.LoaderText || l == api.LoaderJSON {
		return nil, &agent.Error{Kind: agent.Invalid, Msg: fmt.Sprintf("the main file %q is not a script", src.Main),
			Hint: "name a file that ends in .ts, .tsx, .mts, .js, .jsx or .mjs"}
	}
	return t, nil
}

// loaderOf says how a file is read, by the end of its name.
func loaderOf(name string) (api.Loader, bool) {
	switch path.Ext(name) {
	case ".ts", ".mts", ".cts":
		return api.LoaderTS, true
	case ".tsx":
		return api.LoaderTSX, true
	case ".js", ".mjs", ".cjs":
		return api.LoaderJS, true
	case ".jsx":
		return api.LoaderJSX, true
	case ".json":
		return api.LoaderJSON, true
	case ".txt", ".md", ".html", ".htm", ".sql", ".css", ".svg", ".xml", ".csv", ".yaml", ".yml", ".toml", ".graphql":
		return api.LoaderText, true
	}
	return api.LoaderNone, false
}

// plugin makes the bundler see the tree and nothing else.
func (t *tree) plugin() api.Plugin {
	return api.Plugin{Name: "skep", Setup: func(b api.PluginBuild) {
		b.OnResolve(api.OnResolveOptions{Filter: ".*"}, func(a api.OnResolveArgs) (api.OnResolveResult, error) {
			if a.Kind == api.ResolveEntryPoint {
				return api.OnResolveResult{Path: t.main, Namespace: namespace}, nil
			}
			if a.Path == "skep" {
				return api.OnResolveResult{Path: "skep", External: true}, nil
			}
			p, err := t.resolve(a.Importer, a.Path, a.Kind == api.ResolveJSRequireCall || a.Kind == api.ResolveJSRequireResolve)
			if err != nil {
				return api.OnResolveResult{}, err
			}
			if p == "" { // a browser field that says false
				return api.OnResolveResult{Path: a.Path, Namespace: namespace + "-empty"}, nil
			}
			return api.OnResolveResult{Path: p, Namespace: namespace, SideEffects: t.sideEffects(p)}, nil
		})
		b.OnLoad(api.OnLoadOptions{Filter: ".*", Namespace: namespace + "-empty"}, func(api.OnLoadArgs) (api.OnLoadResult, error) {
			empty := "module.exports = {}"
			return api.OnLoadResult{Contents: &empty, Loader: api.LoaderJS}, nil
		})
		b.OnLoad(api.OnLoadOptions{Filter: ".*", Namespace: "file"}, func(a api.OnLoadArgs) (api.OnLoadResult, error) {
			return api.OnLoadResult{}, fmt.Errorf("only uploaded files can be imported")
		})
		b.OnLoad(api.OnLoadOptions{Filter: ".*", Namespace: namespace}, func(a api.OnLoadArgs) (api.OnLoadResult, error) {
			l, ok := loaderOf(a.Path)
			if !ok {
				return api.OnLoadResult{}, unreadable(a.Path)
			}
			if l != api.LoaderText {
				if err := checkNesting(a.Path, t.files[a.Path]); err != nil {
					return api.OnLoadResult{}, err
				}
			}
			text, wrong := sealed(a.Path, l, t.files[a.Path])
			return api.OnLoadResult{Contents: &text, Loader: l, Errors: wrong}, nil
		})
	}}
}

func unreadable(name string) error {
	if path.Ext(name) == ".wasm" {
		return fmt.Errorf("%s: a script cannot load WebAssembly; push the module as a plugin of its own and call it as an agent", name)
	}
	return fmt.Errorf("%s: files of this kind cannot be imported; use .ts, .tsx, .js, .mjs, .cjs, .json, or text such as .txt, .md, .html, .sql", name)
}

// sideEffects reads the package's own word on whether unused imports of it may be dropped.
func (t *tree) sideEffects(p string) api.SideEffects {
	i := strings.LastIndex(p, "node_modules/")
	if i < 0 {
		return api.SideEffectsTrue
	}
	rest := strings.SplitN(p[i+len("node_modules/"):], "/", 3)
	n := 1
	if strings.HasPrefix(rest[0], "@") {
		n = 2
	}
	if pkg := t.manifest(p[:i] + "node_modules/" + strings.Join(rest[:min(n, len(rest))], "/")); pkg != nil && string(pkg.SideEffects) == "false" {
		return api.SideEffectsFalse
	}
	return api.SideEffectsTrue
}

// manifest is what matters of a package.json.
type manifest struct {
	Exports     json.RawMessage `json:"exports"`
	Imports     json.RawMessage `json:"imports"`
	Module      string          `json:"module"`
	Main        string          `json:"main"`
	Browser     json.RawMessage `json:"browser"`
	SideEffects json.RawMessage `json:"sideEffects"`
}

// manifest returns the package.json of dir, or nil.
func (t *tree) manifest(dir string) *manifest {
	b, ok := t.files[path.Join(dir, "package.json")]
	if !ok {
		return nil
	}
	var m manifest
	if deepest(b) >= 0 || json.Unmarshal(b, &m) != nil {
		return nil
	}
	return &m
}
