package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/link"
	"github.com/skep-dev/skep/driver/program"
)

func TestMain(m *testing.M) {
	if os.Getenv("SKEP_DRIVER_MAIN") != "" {
		os.Unsetenv("SKEP_DRIVER_MAIN")
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const patience = time.Minute

// plane is a control plane for one driver.
type plane struct {
	t    *testing.T
	link *link.Link
	dir  string
	boot driver.Boot

	mu     sync.Mutex
	events []driver.Event
	change chan struct{}
}

func newPlane(t *testing.T, dir string) *plane {
	t.Helper()
	p := &plane{t: t, dir: dir, change: make(chan struct{})}
	p.boot = driver.Boot{Version: driver.Version, Sandbox: "01BOX", Generation: 1, Socket: filepath.Join(dir, "skep.sock"), Token: link.NewSecret(),
		Relay: "127.0.0.1:0", Workdir: filepath.Join(dir, "work")}
	p.link = link.New(link.Options{
		Sandbox: "01BOX", Generation: 1, Token: p.boot.Token, Key: link.NewSecret(), Log: slog.New(slog.DiscardHandler),
		Welcome: func(context.Context) (driver.WelcomeBody, error) { return driver.WelcomeBody{}, nil },
		Events: func(_ context.Context, _ int64, list []driver.Event) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.events = append(p.events, list...)
			close(p.change)
			p.change = make(chan struct{})
			return nil
		},
	})
	l, err := net.Listen("unix", p.boot.Socket)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(p.boot.Socket, 0o666); err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: p.link}
	go s.Serve(l)
	t.Cleanup(func() {
		p.link.Close(nil)
		s.Close()
		p.link.Wait()
	})
	return p
}

func (p *plane) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	p.t.Cleanup(cancel)
	return ctx
}

func (p *plane) line() []byte {
	b, err := json.Marshal(p.boot)
	if err != nil {
		p.t.Fatal(err)
	}
	return append(b, '\n')
}

func (p *plane) exec(id, command string, background bool) driver.ExecResult {
	p.t.Helper()
	var out driver.ExecResult
	if err := p.link.Do(p.ctx(), driver.DoExec, driver.Exec{ID: id, Command: []string{command}, Background: background}, &out); err != nil {
		p.t.Fatal(err)
	}
	return out
}

// await waits for an event of a type.
func (p *plane) await(kind string) driver.Event {
	p.t.Helper()
	late := time.After(patience)
	for {
		p.mu.Lock()
		change := p.change
		for _, e := range p.events {
			if e.Type == kind {
				p.mu.Unlock()
				return e
			}
		}
		p.mu.Unlock()
		select {
		case <-change:
		case <-late:
			p.t.Fatalf("no %s comes", kind)
		}
	}
}

// shortDir is a folder whose name leaves room for that of a socket, which others may use.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "skep")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, name := range []string{dir, filepath.Join(dir, "work"), filepath.Join(dir, "home")} {
		if err := os.MkdirAll(name, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(name, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// command is this test's binary as the driver; as another user when the test is run by root, as in a box.
func command(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	c := exec.Command("/proc/self/exe")
	c.Env = []string{"SKEP_DRIVER_MAIN=yes", "HOME=" + filepath.Join(dir, "home"), "PATH=" + os.Getenv("PATH")}
	c.Dir = dir
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Getuid() == 0 {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(self) // the folder of the test's binary is root's alone
		if err != nil {
			t.Fatal(err)
		}
		c.Path = filepath.Join(dir, "driver")
		if err := os.WriteFile(c.Path, b, 0o755); err != nil {
			t.Fatal(err)
		}
		c.SysProcAttr.Credential = &syscall.Credential{Uid: 1000, Gid: 1000}
	}
	return c
}

func begin(t *testing.T) (*plane, *exec.Cmd) {
	t.Helper()
	dir := shortDir(t)
	p := newPlane(t, dir)
	c := command(t, dir)
	c.Stdin = bytes.NewReader(p.line())
	if testing.Verbose() {
		c.Stderr = os.Stderr
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	if err := p.link.Ready(p.ctx()); err != nil {
		t.Fatal(err)
	}
	return p, c
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	late := time.Now().Add(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(late) {
			t.Fatal(what)
		}
		<-tick.C
	}
}

// state returns the state of a process, as ps has it; "" when it is gone.
func state(pid string) string {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return ""
	}
	return strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))[0]
}

// What escapes from its group and loses its parent is the driver's, which reaps it, and ends it with everything else.
func TestOrphans(t *testing.T) {
	p, c := begin(t)
	out := p.exec("1", `setsid sh -c 'echo $$; exec >&- 2>&- sleep 1000' & setsid sh -c 'echo $$; exec >&- 2>&- sleep 0.1' & wait -n 2>/dev/null; sleep 0.05`, false)
	pids := strings.Fields(out.Stdout)
	if len(pids) != 2 {
		t.Fatalf("%+v", out)
	}
	until(t, "an orphan is not reaped", func() bool { return state(pids[0]) == "" || state(pids[1]) == "" })
	if state(pids[0]) == "" && state(pids[1]) == "" {
		t.Fatal("both are gone")
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Errorf("the driver ended with %v", err)
	}
	until(t, "an orphan is left", func() bool { return state(pids[0]) == "" && state(pids[1]) == "" })
	if err := p.link.Ready(p.ctx()); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("%v", err)
	}
}

// A driver that is killed takes along what it runs.
func TestKilledDriver(t *testing.T) {
	p, c := begin(t)
	bg := p.exec("bg", "exec sleep 1000", true)
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	until(t, "a program outlives its driver", func() bool { s := state(fmt.Sprint(bg.PID)); return s == "" || s == "Z" })
}

// What the driver holds in memory, its key among it, cannot be read by the programs that run as the same user.
func TestSecretsOfTheDriver(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to run a driver as another user")
	}
	p, c := begin(t)
	out := p.exec("1", fmt.Sprintf("id -u; cat /proc/%d/environ /proc/%d/maps; head -c 1 /proc/%d/mem", c.Process.Pid, c.Process.Pid, c.Process.Pid), false)
	if out.Stdout != "1000\n" || strings.Count(out.Stderr, "ermission denied") != 3 {
		t.Errorf("%+v", out)
	}
	out = p.exec("2", "tr '\\0' '\\n' < /proc/self/environ; cat /proc/$PPID/fd/0", false)
	if strings.Contains(out.Stdout, p.boot.Token) {
		t.Error("a program has the token")
	}
}

func TestBadBoot(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"nothing":       {"", "no boot payload"},
		"no JSON":       {`{"token":"SECRET"` + "\n", "is no JSON"},
		"other version": {`{"version":99,"token":"SECRET","sandbox":"x","socket":"/nowhere"}` + "\n", "of version 99"},
		"no socket":     {`{"version":1,"token":"SECRET","sandbox":"x"}` + "\n", "lacks the socket"},
	} {
		t.Run(name, func(t *testing.T) {
			d := command(t, shortDir(t))
			d.Stdin = strings.NewReader(c.in)
			out, err := d.CombinedOutput()
			if err == nil || !strings.Contains(string(out), c.want) || strings.Contains(string(out), "SECRET") {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

func TestVersionAndBackends(t *testing.T) {
	say := func(args ...string) (int, string) {
		var out, told bytes.Buffer
		code := program.Main(version, program.Backends(), args, nil, &out, &told)
		return code, out.String() + told.String()
	}
	if code, out := say("--version"); code != 0 || !strings.HasPrefix(out, "skep-driver ") {
		t.Errorf("%d %s", code, out)
	}
	code, out := say("backends")
	var specs []struct{ Name string }
	if err := json.Unmarshal([]byte(out), &specs); code != 0 || err != nil || len(specs) != len(program.Backends()) {
		t.Errorf("%d %v %s", code, err, out)
	}
	seen := map[string]bool{}
	for _, s := range specs {
		if s.Name == "" || seen[s.Name] {
			t.Errorf("the name %q is empty or there twice", s.Name)
		}
		seen[s.Name] = true
	}
	if code, out := say("x"); code != 1 || !strings.Contains(out, "usage: skep-driver") {
		t.Errorf("%d %s", code, out)
	}
}
