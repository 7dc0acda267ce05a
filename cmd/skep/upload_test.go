package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/plugins"
)

func TestProjectFiles(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"main.ts":                        "export const f = () => 1",
		"lib/a.ts":                       "",
		"notes.txt":                      "",
		".env":                           "SECRET=1",
		".git/config":                    "",
		"package.json":                   `{"dependencies": {"used": "1", "@scope/one": "1", "skep": "1"}, "devDependencies": {"typescript": "7"}}`,
		"node_modules/used/index.js":     "",
		"node_modules/used/package.json": `{"dependencies": {"hoisted": "1", "nested": "1"}}`,
		"node_modules/used/node_modules/nested/index.js": "",
		"node_modules/hoisted/index.js":                  "",
		"node_modules/@scope/one/index.js":               "",
		"node_modules/typescript/lib/tsc.js":             "",
		"node_modules/.bin/tsc":                          "",
	} {
		write(t, filepath.Join(dir, filepath.FromSlash(name)), content)
	}
	got, err := projectFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"lib/a.ts", "main.ts", "node_modules/@scope/one/index.js", "node_modules/hoisted/index.js", "node_modules/used/index.js",
		"node_modules/used/node_modules/nested/index.js", "node_modules/used/package.json", "notes.txt", "package.json",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("project files (-want +got):\n%s", diff)
	}
}

func TestPackDirIsAPackage(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "index.ts"), "export const f = () => 1")
	first, err := packDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	src, _, err := plugins.Open("x.zip", "", first, nil)
	if err != nil || src.Main != "index.ts" {
		t.Errorf("main = %q, %v", src.Main, err)
	}
	if err := os.Chtimes(filepath.Join(dir, "index.ts"), time.Unix(0, 0), time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	if second, err := packDir(dir); err != nil || !slices.Equal(first, second) {
		t.Errorf("the same files packed to other bytes (%v)", err)
	}
}

func TestPackDirErrors(t *testing.T) {
	tests := []struct{ name, file, content, want string }{
		{"empty", "README.md", "", "no agent code"},
		{"not installed", "package.json", `{"dependencies": {"left-pad": "1"}}`, "left-pad is listed in package.json but not installed"},
		{"bad manifest", "package.json", `{`, "not valid JSON"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, tt.file), tt.content)
			_, err := packDir(dir)
			if agent.KindOf(err) != agent.Invalid || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an invalid error with %q", err, tt.want)
			}
		})
	}
}

func TestAgentNames(t *testing.T) {
	for file, want := range map[string]string{
		"hello.ts": "hello", "My Agent.ts": "my-agent", "hive/main.ts": "hive", "hive/agent.js": "hive", "x/_a_.wasm": "a",
	} {
		if got := fileAgent(file); got != want {
			t.Errorf("fileAgent(%q) = %q, want %q", file, got, want)
		}
	}
	if got := dirAgent("x/hello.v2"); got != "hello.v2" {
		t.Errorf("dirAgent = %q", got)
	}
}

func TestGoBuildError(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), "module broken\n\ngo 1.24\n")
	write(t, filepath.Join(dir, "main.go"), "package main\n\nfunc main() {\n\tnope()\n}\n")
	c := &cli{stderr: io.Discard}
	_, err := c.loadUpload(context.Background(), dir)
	e := agent.AsError(err)
	if e == nil || e.Kind != agent.Invalid || e.Pos.Line != 4 || e.Pos.Column != 2 || e.Msg != "undefined: nope" {
		t.Fatalf("got %+v", e)
	}
	want := "   4 | \tnope()\n     | \t^\n"
	if got := excerpt(dir, e.Pos); got != want {
		t.Errorf("excerpt:\n%s\nwant:\n%s", got, want)
	}
}

// A compiled module goes along with the manifest that lies beside its source, whatever compiled it.
func TestModuleWithManifest(t *testing.T) {
	dir := t.TempDir()
	module := upload{Name: "m", File: "m.wasm", Type: mediaTypes[".wasm"], Body: []byte("\x00asm\x01\x00\x00\x00")}
	got, err := withManifest(module, dir)
	if d := cmp.Diff(module, got); d != "" || err != nil {
		t.Errorf("without a manifest: %v\n%s", err, d)
	}
	write(t, filepath.Join(dir, plugins.ManifestFile), `{"name":"mailer","grants":{"http":["https://api.example.com"]}}`)
	if got, err = withManifest(module, dir); err != nil {
		t.Fatal(err)
	}
	src, m, err := plugins.Open(got.File, got.Type, got.Body, nil)
	if err != nil || src.Kind != agent.Wasm || m.Name != "mailer" || m.Grants == nil || len(m.Grants.HTTP) != 1 {
		t.Errorf("%+v %+v %v", src.Kind, m, err)
	}
	write(t, filepath.Join(dir, plugins.ManifestFile), `{"main":"main.go"}`)
	if got, err = withManifest(module, dir); err != nil {
		t.Fatal(err)
	}
	if _, _, err = plugins.Open(got.File, got.Type, got.Body, nil); err == nil || !strings.Contains(err.Error(), "main.go") {
		t.Errorf("a main that is not in the package: %v", err)
	}
}
