package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/skep-dev/skep/agent"
)

// builder compiles the programs of one language to WebAssembly, with the toolchain of this machine.
type builder struct {
	sign  string // a file of this pattern at the top of a directory is the sign of such a program
	build func(c *cli, ctx context.Context, dir string) ([]byte, error)
}

// builderOf returns what compiles the program in dir, or nil when there is nothing to compile.
func builderOf(dir string) *builder {
	for _, b := range []builder{
		{"*.go", (*cli).buildGo}, {"Cargo.toml", (*cli).buildRust}, {"asconfig.json", (*cli).buildAS}, {"*.c", (*cli).buildC},
	} {
		if found, err := filepath.Glob(filepath.Join(dir, b.sign)); err == nil && len(found) > 0 {
			return &b
		}
	}
	return nil
}

// sourceDirs maps the ends of compiled languages' files to whether a program lies above the file's directory, too.
var sourceDirs = map[string]bool{".go": false, ".c": false, ".rs": true}

// programOf returns the directory of the program that a source file belongs to.
func programOf(file string) string {
	dir := filepath.Dir(file)
	if sourceDirs[filepath.Ext(file)] && builderOf(dir) == nil && filepath.Base(dir) == "src" {
		return filepath.Dir(dir)
	}
	return dir
}

// output is what a compiler printed.
type output struct{ stdout, stderr bytes.Buffer }

func (o *output) String() string { return o.stdout.String() + o.stderr.String() }

// compile runs a compiler in dir. The error is exec's.
func (c *cli) compile(ctx context.Context, dir string, env []string, tool string, args ...string) (*output, error) {
	cmd := exec.CommandContext(ctx, tool, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var out output
	cmd.Stdout, cmd.Stderr = &out.stdout, &out.stderr
	b := c.newBar("build")
	defer b.clear()
	b.step(filepath.Base(tool))
	return &out, cmd.Run()
}

// intoFile gives build the path of a file to write, and returns what is in it then.
func intoFile(build func(file string) error) ([]byte, error) {
	tmp, err := os.MkdirTemp("", "skep-build-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	file := filepath.Join(tmp, "agent.wasm")
	if err := build(file); err != nil {
		return nil, err
	}
	return os.ReadFile(file)
}

// mistake is one message of a compiler.
type mistake struct {
	agent.Pos
	msg string
}

func mistakeAt(file, line, column, msg string) mistake {
	m := mistake{agent.Pos{File: file}, msg}
	m.Line, _ = strconv.Atoi(line)
	m.Column, _ = strconv.Atoi(column)
	return m
}

// buildError makes one error of what a compiler said, placed at its first message in a file of dir.
func buildError(dir, what, output string, all []mistake, err error) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return agent.Wrap(agent.Internal, err, "run "+what)
	}
	if len(all) == 0 {
		return &agent.Error{Kind: agent.Invalid, Msg: what + " failed", Stack: strings.TrimSpace(output)}
	}
	e := &agent.Error{Kind: agent.Invalid, Msg: all[0].msg, Pos: all[0].Pos}
	if e.Pos.File != "" && !filepath.IsAbs(e.Pos.File) {
		e.Pos.File = filepath.Join(dir, e.Pos.File)
	}
	var more []string
	for _, m := range all[1:] {
		more = append(more, strings.TrimPrefix(m.String()+": "+m.msg, ": "))
	}
	e.Stack = strings.Join(more, "\n")
	return e
}

// places finds a compiler's messages by an expression with the groups file, line, column and message.
func places(re *regexp.Regexp, output string) []mistake {
	var all []mistake
	for _, m := range re.FindAllStringSubmatch(output, -1) {
		all = append(all, mistakeAt(m[1], m[2], m[3], m[4]))
	}
	return all
}
