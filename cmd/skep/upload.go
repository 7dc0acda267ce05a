package main

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/plugins"
)

// upload is agent code, ready to be sent.
type upload struct {
	Name string // what the plugin is called unless the user says otherwise
	File string // the file's name, which tells its kind
	Type string // media type; the file's name tells a script's
	Body []byte
}

// mediaTypes has the kinds of file that can be sent as they are, besides scripts.
var mediaTypes = map[string]string{".wasm": "application/wasm", ".zip": "application/zip"}

// loadUpload reads FILE as it is, packs DIR into a zip file, or compiles DIR when it holds a program in a compiled language.
func (c *cli) loadUpload(ctx context.Context, name string) (upload, error) {
	info, err := os.Stat(name)
	if err != nil {
		return upload{}, &agent.Error{Kind: agent.Invalid, Msg: "no such file or directory: " + name, Hint: "skep new NAME makes a project to start from"}
	}
	if info.IsDir() {
		return c.loadDir(ctx, name)
	}
	ext := filepath.Ext(name)
	typ, ok := mediaTypes[ext]
	_, compiled := sourceDirs[ext]
	switch {
	case compiled:
		return c.loadDir(ctx, programOf(name))
	case !ok && !isCode(name):
		return upload{}, &agent.Error{Kind: agent.Invalid, Msg: "cannot push " + name, Hint: "push a .ts, .js, .py or .wasm file, a .zip package, or a directory"}
	}
	body, err := os.ReadFile(name)
	if err != nil {
		return upload{}, err
	}
	return upload{Name: fileAgent(name), File: filepath.Base(name), Type: typ, Body: body}, nil
}

func (c *cli) loadDir(ctx context.Context, dir string) (upload, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return upload{}, err
	}
	up := upload{Name: dirAgent(abs)}
	if b := builderOf(abs); b != nil {
		up.File, up.Type = up.Name+".wasm", mediaTypes[".wasm"]
		if up.Body, err = b.build(c, ctx, dir); err != nil {
			return up, err
		}
		return withManifest(up, abs)
	}
	up.File, up.Type = up.Name+".zip", mediaTypes[".zip"]
	up.Body, err = packDir(abs)
	return up, err
}

// withManifest packs a compiled module with the manifest that lies beside its source, if one does.
func withManifest(up upload, dir string) (upload, error) {
	manifest, err := os.ReadFile(filepath.Join(dir, plugins.ManifestFile))
	if errors.Is(err, fs.ErrNotExist) {
		return up, nil
	}
	if err != nil {
		return up, err
	}
	up.File, up.Type = up.Name+".zip", mediaTypes[".zip"]
	up.Body, err = plugins.Pack(map[string][]byte{"main.wasm": up.Body, plugins.ManifestFile: manifest})
	return up, err
}

// isCode reports whether a file of this name is code that is run from its text.
func isCode(name string) bool { return plugins.IsScript(name) || plugins.IsPython(name) }

// packDir makes a package of a script project; equal content makes equal bytes. Hidden files are left out. Of node_modules
// only the packages that package.json lists under dependencies go in, with what they depend on.
func packDir(dir string) ([]byte, error) {
	names, err := projectFiles(dir)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(names, isCode) {
		return nil, &agent.Error{Kind: agent.Invalid, Msg: "there is no agent code in " + dir, Hint: "skep new NAME makes a project to start from"}
	}
	files := make(map[string][]byte, len(names))
	for _, name := range names {
		if files[name], err = os.ReadFile(filepath.Join(dir, filepath.FromSlash(name))); err != nil {
			return nil, err
		}
	}
	return plugins.Pack(files)
}

// projectFiles lists what packDir packs, sorted, as slash-separated paths below dir.
func projectFiles(dir string) ([]string, error) {
	var files []string
	if err := walkFiles(dir, dir, &files); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	if err := dependencies(dir, dir, seen, &files); err != nil {
		return nil, err
	}
	slices.Sort(files)
	return slices.Compact(files), nil
}

// walkFiles adds the regular files below root that are neither hidden nor in a node_modules.
func walkFiles(dir, root string, files *[]string) error {
	return filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case p == root:
			return nil
		case ignored(d.Name()):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case !d.Type().IsRegular():
			return nil
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		*files = append(*files, filepath.ToSlash(rel))
		return nil
	})
}

// ignored reports whether a file or directory of a project is no part of its code.
func ignored(name string) bool {
	return strings.HasPrefix(name, ".") || name == "node_modules" || name == "__pycache__"
}

// dependencies adds the packages that the package.json in pkg lists, found as Node finds them: in node_modules beside it or
// further up to dir.
func dependencies(dir, pkg string, seen map[string]bool, files *[]string) error {
	var manifest struct {
		Dependencies map[string]string `json:"dependencies"`
	}
	b, err := os.ReadFile(filepath.Join(pkg, "package.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, &manifest); err != nil {
		return &agent.Error{Kind: agent.Invalid, Msg: "package.json is not valid JSON", Err: err, Pos: agent.Pos{File: filepath.Join(pkg, "package.json")}}
	}
	for name := range manifest.Dependencies {
		if name == "skep" { // the server has its own
			continue
		}
		at := findPackage(dir, pkg, name)
		if at == "" {
			return &agent.Error{Kind: agent.Invalid, Msg: "package " + name + " is listed in package.json but not installed", Hint: "run npm install in " + dir}
		}
		if seen[at] {
			continue
		}
		seen[at] = true
		if err := walkFiles(dir, at, files); err != nil {
			return err
		}
		if err := dependencies(dir, at, seen, files); err != nil {
			return err
		}
	}
	return nil
}

func findPackage(dir, pkg, name string) string {
	for {
		at := filepath.Join(pkg, "node_modules", filepath.FromSlash(name))
		if info, err := os.Stat(at); err == nil && info.IsDir() {
			return at
		}
		if pkg == dir || len(pkg) <= len(dir) {
			return ""
		}
		pkg = filepath.Dir(pkg)
	}
}

// The file names that say nothing about an agent, so that the directory's name is taken instead.
var plainNames = map[string]bool{"agent": true, "index": true, "main": true}

var notInName = regexp.MustCompile(`[^a-z0-9._-]+`)

// fileAgent and dirAgent make a valid plugin and agent name of a file's and of a directory's name.
func fileAgent(file string) string {
	name := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
	if plainNames[name] {
		return dirAgent(filepath.Dir(file))
	}
	return cleanName(name)
}

func dirAgent(dir string) string {
	abs, err := filepath.Abs(dir)
	if err != nil {
		abs = dir
	}
	return cleanName(filepath.Base(abs))
}

func cleanName(name string) string {
	name = strings.Trim(notInName.ReplaceAllString(strings.ToLower(name), "-"), "._-")
	return strings.TrimRight(name[:min(len(name), 63)], "._-")
}
