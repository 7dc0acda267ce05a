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

// buildGo compiles the Go program in dir to WebAssembly with the Go toolchain of this machine.
func (c *cli) buildGo(ctx context.Context, dir string) ([]byte, error) {
	tool, err := exec.LookPath("go")
	if err != nil {
		return nil, &agent.Error{Kind: agent.Invalid, Msg: dir + " holds a Go program, but there is no go command", Hint: "install Go 1.24 or newer, or push a .wasm file"}
	}
	tmp, err := os.MkdirTemp("", "skep-build-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	out := filepath.Join(tmp, "agent.wasm")
	cmd := exec.CommandContext(ctx, tool, "build", "-buildmode=c-shared", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", out, ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	b := c.newBar("build")
	b.step("go build")
	err = cmd.Run()
	b.clear()
	if err != nil {
		return nil, buildError(dir, output.String(), err)
	}
	return os.ReadFile(out)
}

var goErrorRE = regexp.MustCompile(`(?m)^(?:\./)?([^\s:]+\.go):(\d+):(?:(\d+):)? (.*)$`)

// buildError makes one error of what the compiler printed, placed at its first message.
func buildError(dir, output string, err error) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return agent.Wrap(agent.Internal, err, "run the go command")
	}
	m := goErrorRE.FindStringSubmatch(output)
	if m == nil {
		return &agent.Error{Kind: agent.Invalid, Msg: "go build failed", Stack: strings.TrimSpace(output)}
	}
	e := &agent.Error{Kind: agent.Invalid, Msg: m[4], Pos: agent.Pos{File: filepath.Join(dir, m[1])}}
	e.Pos.Line, _ = strconv.Atoi(m[2])
	e.Pos.Column, _ = strconv.Atoi(m[3])
	if all := goErrorRE.FindAllString(output, -1); len(all) > 1 {
		e.Stack = strings.Join(all[1:], "\n")
	}
	return e
}
