// Package backendtest runs backends with the real command-line agents that they are for. The agents are in a network namespace that has nothing but Skep's
// own gateway of models, whose provider answers from a script; files that they change are real files.
//
// The agents come from npm: "npm ci" in a folder of clis gets the exact versions that the tests are about.
package backendtest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// CLI is a vendor's command-line agent.
type CLI struct {
	Name string            // folder below clis
	Bin  []string          // folders below its node_modules that are in PATH, before .bin; for a Node of its own, say
	Vars map[string]string // environment, besides what every box has
}

// home is the folder of the CLI.
func (c CLI) home() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "clis", c.Name)
}

// path is PATH for it.
func (c CLI) path() string {
	var list []string
	for _, dir := range append(c.Bin, ".bin") {
		list = append(list, filepath.Join(c.home(), "node_modules", dir))
	}
	return strings.Join(append(list, os.Getenv("PATH")), string(filepath.ListSeparator))
}

// Need skips the test when the CLI is not installed, or cannot be run as it should be; where the environment has SKEP_NEED_DOCKER, as in CI, it fails.
func (c CLI) Need(t testing.TB) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(c.home(), "node_modules")); err != nil {
		missing(t, "%s is not installed: run npm ci in driver/backend/backendtest/clis/%s", c.Name, c.Name)
	}
}

func missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("SKEP_NEED_DOCKER") != "" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// Version is the one that package.json asks of an npm package of the CLI's.
func (c CLI) Version(t testing.TB, name string) string {
	t.Helper()
	var p struct {
		Dependencies map[string]string `json:"dependencies"`
	}
	b, err := os.ReadFile(filepath.Join(c.home(), "package.json"))
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if err != nil || p.Dependencies[name] == "" {
		t.Fatalf("package.json of %s says nothing of %s: %v", c.Name, name, err)
	}
	return p.Dependencies[name]
}
