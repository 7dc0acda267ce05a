//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/skep-dev/skep/sandbox/dockertest"
	"github.com/skep-dev/skep/sandbox/image/imagetest"
)

// TestContainers runs the scripts in testdata/containers as TestScript does, with a server that has sandboxes in Docker, and IMAGE_CLI set to an image with each
// command-line agent.
func TestContainers(t *testing.T) {
	host := dockertest.Host(t)
	driver := filepath.Join(t.TempDir(), "skep-driver")
	build := exec.Command("go", "build", "-o", driver, "../skep-driver")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	vars := map[string]string{"IMAGE_TOOLS": imagetest.Tools(t)}
	for _, name := range []string{"claude", "codex", "gemini", "opencode", "pi"} {
		vars["IMAGE_"+strings.ToUpper(name)] = imagetest.CLI(t, name)
	}
	testscript.Run(t, scripts(t, "testdata/containers", sandboxOptions{kind: "docker", host: host, driver: driver}, vars))
}
