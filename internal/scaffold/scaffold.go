// Package scaffold writes the project that skep new makes: an agent that works, and what an editor needs to understand it.
package scaffold

import (
	"bytes"
	"embed"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"github.com/skep-dev/skep"
	"github.com/skep-dev/skep/agent"
)

// Lang is the language of a project.
type Lang uint8

const (
	UnknownLang Lang = iota
	TypeScript
	Go
	Rust
	AssemblyScript
	C
	Python
)

var langNames = [...]string{"unknown", "ts", "go", "rust", "as", "c", "python"}

func (l Lang) String() string {
	if int(l) < len(langNames) {
		return langNames[l]
	}
	return langNames[UnknownLang]
}

func (l *Lang) UnmarshalText(b []byte) error {
	switch string(b) {
	case "ts", "typescript", "js", "javascript":
		*l = TypeScript
	case "go", "golang":
		*l = Go
	case "rust", "rs":
		*l = Rust
	case "as", "assemblyscript":
		*l = AssemblyScript
	case "c":
		*l = C
	case "python", "py":
		*l = Python
	default:
		return &agent.Error{
			Kind: agent.Invalid, Msg: "there is no project for language " + string(b),
			Hint: "use --lang ts, go, rust, as (AssemblyScript), c or python",
		}
	}
	return nil
}

//go:embed template
var templates embed.FS

// The places of the SDK in a project. Its directory is hidden, so that no tool takes it for the project's own code.
const (
	sdkDir = ".skep"
	goMod  = "module github.com/skep-dev/skep\n\ngo 1.24\n"
)

// Write makes the project name in dir, which it creates. It writes nothing when a file it would write is there already. It
// returns the files' paths below dir, sorted.
func Write(dir, name string, lang Lang) ([]string, error) {
	if err := agent.CheckName("agent", name); err != nil {
		return nil, err
	}
	files, err := render(name, lang)
	if err != nil {
		return nil, err
	}
	var names []string
	for file := range files {
		names = append(names, file)
	}
	slices.Sort(names)
	for _, file := range names {
		at := filepath.Join(dir, filepath.FromSlash(file))
		if _, err := os.Lstat(at); err == nil {
			return nil, &agent.Error{Kind: agent.Exists, Msg: at + " is already there", Hint: "nothing was written; choose another name or directory"}
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, agent.Wrap(agent.Invalid, err, "make project "+name)
		}
	}
	for _, file := range names {
		at := filepath.Join(dir, filepath.FromSlash(file))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return nil, agent.Wrap(agent.Invalid, err, "make project "+name)
		}
		if err := os.WriteFile(at, files[file], 0o644); err != nil {
			return nil, agent.Wrap(agent.Invalid, err, "make project "+name)
		}
	}
	return names, nil
}

// render returns the content of a project's files by path.
func render(name string, lang Lang) (map[string][]byte, error) {
	files := make(map[string][]byte)
	root := path.Join("template", lang.String())
	project := struct{ Name, Package string }{name, strings.ReplaceAll(name, ".", "-")} // crates have no dots
	err := walk(templates, root, func(at string, _ []byte) error {
		t, err := template.ParseFS(templates, at)
		if err != nil {
			return err
		}
		var buf bytes.Buffer
		if err := t.Execute(&buf, project); err != nil {
			return err
		}
		file := strings.TrimSuffix(strings.TrimPrefix(at, root+"/"), ".tmpl")
		if file == "gitignore" {
			file = ".gitignore"
		}
		files[file] = buf.Bytes()
		return nil
	})
	if err != nil {
		return nil, err
	}
	switch lang {
	case Go:
		files[sdkDir+"/go.mod"] = []byte(goMod)
		return files, addSDK(files, "", "abi", "sdk/go")
	case TypeScript:
		return files, addSDK(files, "sdk/js", "sdk/js")
	case Python:
		return files, addSDK(files, "sdk/python", "sdk/python")
	}
	return files, addSDK(files, "sdk", "sdk/"+lang.String())
}

// addSDK adds the SDK's files in dirs, tests left out, at their path below base.
func addSDK(files map[string][]byte, base string, dirs ...string) error {
	for _, dir := range dirs {
		err := walk(skep.SDK, dir, func(at string, b []byte) error {
			if !strings.HasSuffix(at, "_test.go") {
				files[path.Join(sdkDir, strings.TrimPrefix(strings.TrimPrefix(at, base), "/"))] = b
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// walk gives fn the files below root.
func walk(tree embed.FS, root string, fn func(at string, b []byte) error) error {
	return fs.WalkDir(tree, root, func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := tree.ReadFile(at)
		if err != nil {
			return err
		}
		return fn(at, b)
	})
}
