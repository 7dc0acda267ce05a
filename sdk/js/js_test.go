// Package js tests the npm package in this directory with the tools that are there.
package js

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestNode(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("there is no node")
	}
	if out, err := exec.Command(node, "--test").CombinedOutput(); err != nil {
		t.Errorf("node --test: %v\n%s", err, out)
	}
}

// TestTypes checks the declarations, the examples and a new project with the TypeScript checker.
func TestTypes(t *testing.T) {
	tsc, err := exec.LookPath(filepath.Join("node_modules", ".bin", "tsc"))
	if err != nil {
		t.Skip("there is no checker: npm ci")
	}
	for _, dir := range []string{".", "../../examples"} {
		// Reading the directory keeps go test from taking an old result for that of changed files.
		if err := filepath.WalkDir(dir, func(string, fs.DirEntry, error) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(tsc, "--noEmit", "-p", dir).CombinedOutput(); err != nil {
			t.Errorf("tsc -p %s: %v\n%s", dir, err, out)
		}
	}
}

var (
	exportRE = regexp.MustCompile(`(?m)^export (?:class|function|const) (\w+)`)
	guestRE  = regexp.MustCompile(`export const api = freeze\(record\(\{([^}]*)\}\)\)`)
)

// TestExports holds the declarations, the stand-in and the module that the server has built in against each other.
func TestExports(t *testing.T) {
	read := func(name string) string {
		b, err := os.ReadFile(filepath.FromSlash(name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	exports := func(name string) (names []string) {
		for _, m := range exportRE.FindAllStringSubmatch(read(name), -1) {
			names = append(names, m[1])
		}
		slices.Sort(names)
		return slices.Compact(names)
	}
	m := guestRE.FindStringSubmatch(read("../../host/script/guest/src/api.js"))
	if m == nil {
		t.Fatal("the guest's api.js does not list what it exports")
	}
	want := strings.FieldsFunc(m[1], func(r rune) bool { return r == ',' || r == ' ' || r == '\n' })
	slices.Sort(want)
	if got := exports("index.d.ts"); !slices.Equal(got, want) {
		t.Errorf("index.d.ts declares %v, the server has %v", got, want)
	}
	inside := []string{"context", "setHost", "waitUntil"} // for testing.js
	got := slices.DeleteFunc(exports("index.js"), func(name string) bool { return slices.Contains(inside, name) })
	if !slices.Equal(got, want) {
		t.Errorf("index.js exports %v, the server has %v", got, want)
	}
}
