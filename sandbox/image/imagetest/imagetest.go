// Package imagetest has images for tests of sandboxes. They are made of what this machine has, once, and stay in its engine.
package imagetest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gofrs/flock"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/sandbox/dockertest"
	"github.com/skep-dev/skep/sandbox/image"
)

// tools are the programs of Tools.
var tools = strings.Fields(`sh bash env [ basename cat chmod chown cp cut date dd df diff dirname du echo expr false find git grep gzip head hostname id kill ln ls md5sum
	mkdir mkfifo mktemp mv nohup nproc od printenv printf ps pwd readlink realpath rm rmdir sed seq setsid sha256sum sleep sort split stat stty tail tar tee test
	timeout touch tr true truncate tty uname uniq wc which xargs yes`)

// Tools returns the name of an image with a shell, coreutils and git: 40 MB. The test is skipped when no container engine answers, or fails when
// SKEP_NEED_DOCKER is set.
func Tools(t testing.TB) string {
	t.Helper()
	return build(t, "skep-test/tools:{layer}")
}

// CLI returns the name of an image with the same and command-line agents, each by its name or as NAME@VERSION. It is downloaded from npm the first time.
func CLI(t testing.TB, names ...string) string {
	t.Helper()
	return build(t, "skep-test/"+strings.ReplaceAll(strings.Join(names, "-"), "@", "-")+":{layer}", names...)
}

var (
	mu    sync.Mutex
	built = map[string]string{} // by name as it was asked for
)

func build(t testing.TB, name string, clis ...string) string {
	t.Helper()
	mu.Lock()
	defer mu.Unlock()
	if built[name] != "" {
		return built[name]
	}
	engine, err := image.Dial(dockertest.Host(t))
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	lock := flock.New(filepath.Join(os.TempDir(), "skep-test-images.lock")) // packages of tests run side by side
	if err := lock.Lock(); err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()
	im, err := image.Build(t.Context(), engine, image.Spec{Name: name, Base: image.Host, Programs: slices.Clone(tools), CLIs: clis})
	if err != nil {
		t.Fatalf("make an image for tests: %v; %s", err, agent.AsError(err).Hint)
	}
	built[name] = im.Name
	return im.Name
}
