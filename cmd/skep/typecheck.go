package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/skep-dev/skep"
	"github.com/skep-dev/skep/agent"
)

// typeChecker finds the TypeScript checker: tsgo or tsc in a node_modules at or above dir, else on the PATH. It returns "" when
// there is none, for the type check is optional.
func typeChecker(dir string) string {
	for _, name := range []string{"tsgo", "tsc"} {
		if tool := findTool(dir, name); tool != "" {
			return tool
		}
	}
	for _, name := range []string{"tsgo", "tsc"} {
		if tool, err := exec.LookPath(name); err == nil {
			return tool
		}
	}
	return ""
}

// typeCheck runs tool over the file or directory at name and returns the first mistake as an Invalid error, with the others in
// its stack. A directory's own tsconfig.json is used; without one, name is checked as an agent of Skep.
func typeCheck(ctx context.Context, tool, name string) error {
	abs, err := filepath.Abs(name)
	if err != nil {
		return err
	}
	info, err := os.Stat(abs)
	if err != nil {
		return err
	}
	dir := abs
	if !info.IsDir() {
		dir = filepath.Dir(abs)
	}
	config := filepath.Join(dir, "tsconfig.json")
	if _, err := os.Stat(config); err != nil || !info.IsDir() {
		tmp, err := os.MkdirTemp("", "skep-types-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(tmp)
		if config, err = writeCheckConfig(tmp, abs, info.IsDir()); err != nil {
			return err
		}
	}
	cmd := exec.CommandContext(ctx, tool, "--noEmit", "--pretty", "false", "-p", config)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return agent.Wrap(agent.Internal, err, "run "+tool)
	}
	return typeError(dir, string(out))
}

// writeCheckConfig writes a tsconfig.json into tmp that checks abs against the SDK's declarations, and returns its path.
func writeCheckConfig(tmp, abs string, dir bool) (string, error) {
	entries, err := skep.SDK.ReadDir("sdk/js")
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		b, err := skep.SDK.ReadFile(path.Join("sdk/js", e.Name()))
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(tmp, e.Name()), b, 0o600); err != nil {
			return "", err
		}
	}
	include := abs
	if dir {
		include = filepath.Join(abs, "**", "*.ts")
	}
	b, err := json.Marshal(map[string]any{
		"compilerOptions": map[string]any{
			"target": "ES2023", "lib": []string{"ESNext", "WebWorker"}, "module": "ESNext", "moduleResolution": "Bundler",
			"allowImportingTsExtensions": true, "resolveJsonModule": true, "strict": true, "skipLibCheck": true, "types": []string{},
			"paths": map[string][]string{"skep": {filepath.Join(tmp, "index.d.ts")}},
		},
		"include": []string{include},
	})
	if err != nil {
		return "", err
	}
	config := filepath.Join(tmp, "tsconfig.json")
	return config, os.WriteFile(config, b, 0o600)
}

var typeErrorRE = regexp.MustCompile(`(?m)^(.+?)\((\d+),(\d+)\): error (TS\d+): (.*)$`)

// typeError makes one error of what the checker printed.
func typeError(dir, output string) error {
	all := typeErrorRE.FindAllStringSubmatch(output, -1)
	if all == nil {
		return &agent.Error{Kind: agent.Invalid, Msg: "the type check failed", Stack: strings.TrimSpace(output)}
	}
	place := func(m []string) agent.Pos {
		p := agent.Pos{File: m[1]}
		if !filepath.IsAbs(p.File) {
			p.File = filepath.Join(dir, p.File)
		}
		p.Line, _ = strconv.Atoi(m[2])
		p.Column, _ = strconv.Atoi(m[3])
		return here(p)
	}
	e := &agent.Error{Kind: agent.Invalid, Msg: all[0][5] + " (" + all[0][4] + ")", Pos: place(all[0])}
	var more []string
	for _, m := range all[1:] {
		more = append(more, place(m).String()+": "+m[5]+" ("+m[4]+")")
	}
	e.Stack = strings.Join(more, "\n")
	return e
}

// here makes the file of pos relative to the working directory, when it is below it.
func here(pos agent.Pos) agent.Pos {
	if wd, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(wd, pos.File); err == nil && !strings.HasPrefix(rel, "..") {
			pos.File = rel
		}
	}
	return pos
}
