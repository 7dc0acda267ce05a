package examples

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/evanw/esbuild/pkg/api"
)

// TestUnits runs the tests that examples in TypeScript have of their own, with the double of Skep that the npm package has.
func TestUnits(t *testing.T) {
	for _, name := range []string{"note-archive", "chat"} {
		t.Run(name, func(t *testing.T) { unit(t, name) })
	}
}

func unit(t *testing.T, name string) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("there is no node")
	}
	sdk, err := filepath.Abs(filepath.Join("..", "sdk", "js"))
	if err != nil {
		t.Fatal(err)
	}
	bundle := filepath.Join(t.TempDir(), name+".test.mjs")
	r := api.Build(api.BuildOptions{
		EntryPoints: []string{filepath.Join(name, "main.test.js")}, Outfile: bundle, Bundle: true, Write: true,
		Format: api.FormatESModule, Platform: api.PlatformNode, Target: api.ES2022, Sourcemap: api.SourceMapInline,
		Alias: map[string]string{"skep/testing": filepath.Join(sdk, "testing.js"), "skep": filepath.Join(sdk, "index.js")},
	})
	for _, m := range r.Errors {
		t.Errorf("%+v: %s", m.Location, m.Text)
	}
	cmd := exec.Command(node, "--test", bundle)
	cmd.Env = append(os.Environ(), "NODE_OPTIONS=--enable-source-maps")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("node --test: %v\n%s", err, out)
	}
}
