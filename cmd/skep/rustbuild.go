package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/skep-dev/skep/agent"
)

const rustTarget = "wasm32-unknown-unknown"

// buildRust compiles the Rust library in dir. What cargo keeps for the next time goes to the user's cache directory, so that
// nothing but the sources changes in a directory that is watched.
func (c *cli) buildRust(ctx context.Context, dir string) ([]byte, error) {
	cargo, rustc := findRust(ctx)
	if cargo == "" {
		return nil, &agent.Error{
			Kind: agent.Invalid, Msg: dir + " holds a Rust program, but no Rust compiler here has the target " + rustTarget,
			Hint: "on Debian and Ubuntu: apt install cargo rustc libstd-rust-dev-wasm32; with rustup: rustup target add " + rustTarget,
		}
	}
	env := []string{"RUSTC=" + rustc}
	if os.Getenv("CARGO_TARGET_DIR") == "" {
		target, err := cargoTarget(dir)
		if err != nil {
			return nil, err
		}
		env = append(env, "CARGO_TARGET_DIR="+target)
	}
	out, err := c.compile(ctx, dir, env, cargo, "build", "--lib", "--release", "--target", rustTarget, "--message-format=json")
	module, mistakes := readCargo(out.stdout.Bytes())
	if err != nil {
		return nil, buildError(dir, "cargo build", out.stderr.String(), mistakes, err)
	}
	if module == "" {
		return nil, &agent.Error{
			Kind: agent.Invalid, Msg: "cargo made no WebAssembly module of " + dir,
			Hint: `the library's crate type must be cdylib: [lib] crate-type = ["cdylib"] in Cargo.toml`,
		}
	}
	return os.ReadFile(module)
}

// findRust returns a compiler that can build for rustTarget, and the cargo that belongs to it. A machine may have more than
// one of them, of which the first on the PATH need not have the target.
func findRust(ctx context.Context) (cargo, rustc string) {
	candidates := []string{os.Getenv("RUSTC")}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		candidates = append(candidates, filepath.Join(dir, "rustc"))
	}
	for _, rustc := range candidates {
		if rustc == "" || !exists(rustc) {
			continue
		}
		out, err := exec.CommandContext(ctx, rustc, "--print", "target-libdir", "--target", rustTarget).Output()
		if err != nil || !exists(strings.TrimSpace(string(out))) {
			continue
		}
		for _, cargo := range []string{filepath.Join(filepath.Dir(rustc), "cargo"), "cargo"} {
			if at, err := exec.LookPath(cargo); err == nil {
				return at, rustc
			}
		}
	}
	return "", ""
}

// cargoTarget returns the directory for what cargo makes of the program in dir.
func cargoTarget(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", agent.Wrap(agent.Invalid, err, "there is no cache directory to build in")
	}
	return filepath.Join(cache, "skep", "cargo", agent.DigestOf([]byte(abs)).Hex()[:16]), nil
}

// readCargo reads the messages of cargo, one JSON object a line: the path of the module that was made, and the errors.
func readCargo(b []byte) (module string, all []mistake) {
	for line := range bytes.Lines(b) {
		var m struct {
			Reason    string
			Filenames []string
			Message   struct {
				Level, Message string
				Spans          []struct {
					File    string `json:"file_name"`
					Line    int    `json:"line_start"`
					Column  int    `json:"column_start"`
					Primary bool   `json:"is_primary"`
				}
			}
		}
		if json.Unmarshal(line, &m) != nil {
			continue
		}
		for _, name := range m.Filenames {
			if filepath.Ext(name) == ".wasm" {
				module = name
			}
		}
		if m.Message.Level != "error" {
			continue
		}
		for _, s := range m.Message.Spans {
			if s.Primary {
				all = append(all, mistakeAt(s.File, strconv.Itoa(s.Line), strconv.Itoa(s.Column), m.Message.Message))
				break
			}
		}
	}
	return module, all
}
