// Package rust tests the crate in this directory with the Rust that is there.
package rust

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestCrates runs the tests of the crate and of the examples that use it, for the machine they run on.
func TestCrates(t *testing.T) {
	cargo, rustc := tools()
	if cargo == "" {
		if os.Getenv("CI") != "" {
			t.Fatal("there is no cargo with a rustc beside it")
		}
		t.Skip("there is no cargo with a rustc beside it")
	}
	target := t.TempDir()
	for _, dir := range []string{".", "../../examples/hello-rust", "../../examples/rust-counter"} {
		// Reading the directory keeps go test from taking an old result for that of changed files.
		if err := filepath.WalkDir(dir, func(string, fs.DirEntry, error) error { return nil }); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(cargo, "test", "--offline", "--quiet")
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "RUSTC="+rustc, "RUSTDOC="+filepath.Join(filepath.Dir(rustc), "rustdoc"), "CARGO_TARGET_DIR="+target)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("cargo test in %s: %v\n%s", dir, err, out)
		}
	}
}

// tools returns a cargo and the rustc beside it: a distribution's, which is the oldest that must do, before any other.
func tools() (cargo, rustc string) {
	for _, dir := range append([]string{"/usr/bin"}, filepath.SplitList(os.Getenv("PATH"))...) {
		cargo, rustc := filepath.Join(dir, "cargo"), filepath.Join(dir, "rustc")
		if _, err := os.Stat(cargo); err != nil {
			continue
		}
		if exec.Command(rustc, "--version").Run() == nil {
			return cargo, rustc
		}
	}
	return "", ""
}
