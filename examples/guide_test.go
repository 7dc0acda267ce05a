package examples

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const toolServers = "../tools/mcp/testdata/servers/node_modules/.bin"

// withNPX makes an npx that knows the MCP servers of the tests, and fetches nothing, the one that is found.
func withNPX(t *testing.T) {
	t.Helper()
	needs(t, "mcp")
	servers, err := filepath.Abs(toolServers)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	npx := fmt.Sprintf("#!/bin/sh\n# npx -y @modelcontextprotocol/NAME ARGS...\nname=${2#@modelcontextprotocol/}\nshift 2\nexec '%s'/mcp-$name \"$@\"\n", servers)
	if err := os.WriteFile(filepath.Join(dir, "npx"), []byte(npx), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// passing is what differs from one time to the next in what commands print.
var passing = []struct {
	is   *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`\b[0-9A-HJKMNP-TV-Z]{26}\b`), "ID"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d`), "DATE"},
	{regexp.MustCompile(`\d\d:\d\d:\d\d\.\d{3}`), "TIME"},
	{regexp.MustCompile(`\b[\d.]+(ns|µs|ms|s)\b`), "SOME"},
	{regexp.MustCompile(`sha256:[0-9a-f]{64}`), "DIGEST"},
	{regexp.MustCompile(`\b\d+ bytes`), "SOME bytes"},
	{regexp.MustCompile(`(?m)^TIME +(waiting|resumed) .*\n`), ""}, // whoever is quick finds a run that has not given up its cell yet
	{regexp.MustCompile(`(?m)[ \t]+$`), ""},
	{regexp.MustCompile(` {2,}`), "  "}, // columns are as wide as what differs
}

func lasting(s string) string {
	for _, p := range passing {
		s = p.is.ReplaceAllString(s, p.with)
	}
	if !strings.HasPrefix(s, "TIME") {
		return s
	}
	lines := strings.SplitAfter(s, "\n") // of calls that are made at once, any may be the first
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// block is what stands between two fences of a guide.
var block = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")

// TestTwoServers does what docs/guide/code-mode-two-servers.md says, command by command, and compares what is printed.
func TestTwoServers(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts the server")
	}
	guide, err := os.ReadFile("../docs/guide/code-mode-two-servers.md")
	if err != nil {
		t.Fatal(err)
	}
	withNPX(t)
	s := start(t)
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	// One shell does it all, for variables stay; after each block it prints a line that ends it.
	var script strings.Builder
	var asked, want []string
	for _, b := range block.FindAllStringSubmatch(string(guide), -1) {
		switch lang, text := b[1], b[2]; lang {
		case "sh":
			if strings.HasPrefix(text, "skep approvals\n") { // a person is not that fast
				script.WriteString("until skep approvals 2>&1 | grep -q memory; do sleep 0.1; done\n")
			}
			script.WriteString(text + "echo '--end--'\n")
			asked, want = append(asked, text), append(want, "")
		case "ts":
			if err := os.WriteFile(filepath.Join(home, "todos.ts"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		case "":
			want[len(want)-1] = text
		}
	}
	if len(asked) < 8 {
		t.Fatalf("the guide has %d blocks of commands", len(asked))
	}
	cmd := exec.CommandContext(t.Context(), "sh")
	cmd.Dir, cmd.Stdin = home, strings.NewReader("exec 2>&1\n"+script.String())
	cmd.Env = append(append(os.Environ(), s.env...), "PATH="+filepath.Dir(s.binary)+":"+os.Getenv("PATH"))
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got := strings.Split(string(out), "--end--\n")
	if len(got) != len(asked)+1 {
		t.Fatalf("%d blocks of commands printed %d blocks:\n%s", len(asked), len(got)-1, out)
	}
	for i, text := range asked {
		printed := strings.ReplaceAll(got[i], home, "/home/ada")
		if diff := cmp.Diff(lasting(want[i]), lasting(printed)); diff != "" {
			t.Errorf("%s\nprints:\n%s\n(-guide +printed):\n%s", text, printed, diff)
		}
	}
}
