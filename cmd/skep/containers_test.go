//go:build linux

package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/skep-dev/skep/sandbox/dockertest"
	"github.com/skep-dev/skep/sandbox/image/imagetest"
)

// boxImage returns the image with every command-line agent: that which one of them needs does not disturb the others.
func boxImage(t *testing.T) string {
	t.Helper()
	return imagetest.CLI(t, boxCLINames...)
}

var boxCLINames = []string{"claude", "codex", "gemini", "opencode", "pi"}

// TestContainers runs the scripts in testdata/containers as TestScript does, with a server that has sandboxes in Docker, and IMAGE_CLI set to an image with
// that command-line agent. They have one command more:
//
//	emptied   waits until the engine has nothing more of the server's; each script ends with it, since what is left would be there for good
func TestContainers(t *testing.T) {
	host := dockertest.Host(t)
	vars := map[string]string{"IMAGE_TOOLS": imagetest.Tools(t)}
	for _, name := range boxCLINames {
		vars["IMAGE_"+strings.ToUpper(name)] = boxImage(t)
	}
	p := scripts(t, "testdata/containers", sandboxOptions{kind: "docker", host: host, driver: dockertest.Static(t, "github.com/skep-dev/skep/cmd/skep-driver")}, vars)
	p.Cmds["emptied"] = func(ts *testscript.TestScript, _ bool, _ []string) {
		c := dockertest.Client(t, host)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			left, err := boxesLeft(ctx, c, ts.Getenv("SKEP_DATA"))
			if err != nil {
				ts.Fatalf("%q are left: %v", left, err)
			}
			if len(left) == 0 {
				return
			}
			<-tick.C
		}
	}
	testscript.Run(t, p)
}
