package main

import (
	"context"
	"os/exec"
	"path/filepath"
	"regexp"

	"github.com/skep-dev/skep/agent"
)

// The AssemblyScript compiler prints an error as what is wrong, a picture of the line, and the place, which may be missing.
var (
	asErrorRE = regexp.MustCompile(`(?m)^ERROR ([A-Z]+\d+: .*)$`)
	asPlaceRE = regexp.MustCompile(`\bin (\S+)\((\d+),(\d+)\)`)
)

// buildAS compiles the AssemblyScript program in dir with the compiler in its node_modules, as its asconfig.json says.
func (c *cli) buildAS(ctx context.Context, dir string) ([]byte, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	asc := findTool(abs, "asc")
	if asc == "" {
		return nil, &agent.Error{
			Kind: agent.Invalid, Msg: dir + " holds an AssemblyScript program, but its compiler is not installed",
			Hint: "run npm install in " + dir + "; it needs the package assemblyscript, and Node 20 or newer",
		}
	}
	if _, err := exec.LookPath("node"); err != nil {
		return nil, &agent.Error{Kind: agent.Invalid, Msg: "the AssemblyScript compiler needs Node, which is not installed", Hint: "install Node 20 or newer"}
	}
	return intoFile(func(file string) error {
		out, err := c.compile(ctx, dir, nil, asc, "--target", "release", "--outFile", file)
		if err == nil {
			return nil
		}
		return buildError(dir, "asc", out.String(), asMistakes(out.String()), err)
	})
}

// asMistakes reads the compiler's errors, those with a place first.
func asMistakes(output string) []mistake {
	var placed, others []mistake
	at := asErrorRE.FindAllStringSubmatchIndex(output, -1)
	for i, m := range at {
		end := len(output)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		msg := output[m[2]:m[3]]
		if p := asPlaceRE.FindStringSubmatch(output[m[1]:end]); p != nil {
			placed = append(placed, mistakeAt(p[1], p[2], p[3], msg))
		} else {
			others = append(others, mistake{msg: msg})
		}
	}
	return append(placed, others...)
}

// findTool finds a program of an npm package in a node_modules at or above dir; "" when there is none.
func findTool(dir, name string) string {
	for at := dir; ; at = filepath.Dir(at) {
		if tool, err := exec.LookPath(filepath.Join(at, "node_modules", ".bin", name)); err == nil {
			return tool
		}
		if at == filepath.Dir(at) {
			return ""
		}
	}
}
