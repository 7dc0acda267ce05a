package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/skep-dev/skep"
	"github.com/skep-dev/skep/agent"
)

var (
	cErrorRE = regexp.MustCompile(`(?m)^([^\s:]+\.[ch]):(\d+):(\d+): (?:fatal )?error: (.*)$`)

	// lacksCRE finds what is printed when a part of the toolchain is missing.
	lacksCRE = regexp.MustCompile(`clang: (?:command )?not found|clang: No such file|unable to execute command.*wasm-ld|wasm-ld.*(?:No such file|doesn't exist)|` +
		`cannot open .*(?:libclang_rt|crt1)|'std\w+\.h' file not found|No available targets`)

	linkErrorRE = regexp.MustCompile(`(?m)^wasm-ld\S*: error: (?:\S+\.o: )?(.*)$`)
)

const cHint = "on Debian and Ubuntu: apt install make clang lld wasi-libc libclang-rt-dev-wasm32"

// buildC compiles the C program in dir: by its Makefile, which gets the file to write as OUT, else by clang alone.
func (c *cli) buildC(ctx context.Context, dir string) ([]byte, error) {
	tool, build := "clang", c.clang
	if exists(filepath.Join(dir, "Makefile")) {
		tool, build = "make", c.makeC
	}
	if _, err := exec.LookPath(tool); err != nil {
		return nil, lacksC(dir, tool+" is not installed")
	}
	return intoFile(func(file string) error {
		out, err := build(ctx, dir, file)
		if err == nil {
			return nil
		}
		all := places(cErrorRE, out.String())
		var exit *exec.ExitError
		if own := slices.ContainsFunc(all, func(m mistake) bool { return !lacksCRE.MatchString(m.msg) }); !own && errors.As(err, &exit) && lacksCRE.MatchString(out.String()) {
			return lacksC(dir, "the compiler's toolchain for WebAssembly is not complete")
		}
		if m := linkErrorRE.FindStringSubmatch(out.String()); len(all) == 0 && m != nil {
			return &agent.Error{Kind: agent.Invalid, Msg: m[1], Hint: "every function that is called must be defined in a file that is compiled, or in wasi-libc"}
		}
		return buildError(dir, tool, out.String(), all, err)
	})
}

func lacksC(dir, what string) error {
	return &agent.Error{Kind: agent.Invalid, Msg: dir + " holds a C program, but " + what, Hint: cHint}
}

func (c *cli) makeC(ctx context.Context, dir, file string) (*output, error) {
	return c.compile(ctx, dir, nil, "make", "--silent", "OUT="+file)
}

// clang compiles the files of dir against the SDK's header.
func (c *cli) clang(ctx context.Context, dir, file string) (*output, error) {
	header, err := skep.SDK.ReadFile("sdk/c/skep.h")
	if err != nil {
		return &output{}, err
	}
	include := filepath.Dir(file)
	if err := os.WriteFile(filepath.Join(include, "skep.h"), header, 0o600); err != nil {
		return &output{}, err
	}
	sources, err := filepath.Glob(filepath.Join(dir, "*.c"))
	if err != nil {
		return &output{}, err
	}
	args := []string{"--target=wasm32-wasi", "-mexec-model=reactor", "-O2", "-Werror=implicit-function-declaration", "-I" + include, "-Wl,--strip-all", "-o", file}
	for _, s := range sources {
		args = append(args, filepath.Base(s))
	}
	return c.compile(ctx, dir, nil, "clang", args...)
}
