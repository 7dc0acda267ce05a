package main

import (
	"context"
	"os/exec"
	"regexp"

	"github.com/skep-dev/skep/agent"
)

var goErrorRE = regexp.MustCompile(`(?m)^(?:\./)?([^\s:]+\.go):(\d+):(?:(\d+):)? (.*)$`)

// buildGo compiles the Go program in dir.
func (c *cli) buildGo(ctx context.Context, dir string) ([]byte, error) {
	tool, err := exec.LookPath("go")
	if err != nil {
		return nil, &agent.Error{Kind: agent.Invalid, Msg: dir + " holds a Go program, but there is no go command", Hint: "install Go 1.24 or newer, or push a .wasm file"}
	}
	return intoFile(func(file string) error {
		env := []string{"GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0"}
		out, err := c.compile(ctx, dir, env, tool, "build", "-buildmode=c-shared", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", file, ".")
		if err != nil {
			return buildError(dir, "go build", out.String(), places(goErrorRE, out.String()), err)
		}
		return nil
	})
}
