package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/vault/scrub"
)

// How long a program may take to end itself once its input has ended, and again once it was told to (MCP, transport stdio, shutdown).
const (
	endAfter  = 2 * time.Second
	termAfter = time.Second
)

// keptStderr is how much of the end of a program's standard error is kept, in bytes.
const keptStderr = 64 << 10

// process is a running program, which leads a group of its own.
type process struct {
	cmd    *exec.Cmd
	wire   *wire
	stderr *tail
	done   chan struct{} // closed when it has ended and was reaped
}

// spawn starts the record's program.
func (s *source) spawn(ctx context.Context) (*process, error) {
	env := map[string]string{"PATH": os.Getenv("PATH"), "LANG": "C.UTF-8"}
	dir, err := s.folder()
	if err != nil {
		return nil, err
	}
	env["HOME"] = dir
	var secrets []string
	for name, text := range s.rec.Env {
		value, values, err := s.expand(ctx, text, "")
		if err != nil {
			return nil, err
		}
		if strings.Contains(value, "\x00") {
			return nil, agent.Errorf(agent.Invalid, "server %s: environment variable %s would hold a NUL", s.rec.Name, name)
		}
		env[name], secrets = value, append(secrets, values...)
	}
	file, err := lookPath(s.rec.Command[0], env["PATH"], dir)
	if err != nil {
		return nil, &agent.Error{
			Kind: agent.Unavailable, Msg: fmt.Sprintf("server %s: there is no program %q", s.rec.Name, s.rec.Command[0]), Err: err,
			Hint: "install it where the server of Skep runs, or name the whole path of it",
		}
	}
	list := make([]string, 0, len(env))
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	clean := scrubber(secrets)
	p := &process{stderr: &tail{clean: clean}, done: make(chan struct{})}
	p.cmd = &exec.Cmd{Path: file, Args: s.rec.Command, Env: list, Dir: dir, Stderr: p.stderr, SysProcAttr: ownGroup(), WaitDelay: endAfter}
	return p, s.begin(p, clean)
}

// begin starts p with pipes of ours, which know deadlines.
func (s *source) begin(p *process, clean *scrub.Scrubber) error {
	theirIn, ourOut, err := os.Pipe()
	if err != nil {
		return err
	}
	ourIn, theirOut, err := os.Pipe()
	if err != nil {
		return errors.Join(err, theirIn.Close(), ourOut.Close())
	}
	p.cmd.Stdin, p.cmd.Stdout = theirIn, theirOut
	started := make(chan error, 1)
	s.work.Go(func() {
		runtime.LockOSThread() // the kernel takes the end of this thread for the death of the program's parent
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		_ = p.cmd.Wait()
		killGroup(p.cmd.Process) // what it has left behind
		close(p.done)
	})
	err = <-started
	_ = theirIn.Close()
	_ = theirOut.Close()
	if err != nil {
		_, _ = ourIn.Close(), ourOut.Close()
		return agent.Wrap(agent.Unavailable, err, "server "+s.rec.Name+": its program "+s.rec.Command[0]+" cannot be started")
	}
	p.wire = newWire(s.rec.Name, ourOut, ourIn, s.o.Bounds, clean, func(line []byte) {
		_, _ = p.stderr.Write([]byte("(on standard output) " + kept(string(line), 500) + "\n"))
	})
	return nil
}

// end ends the program and all of its group: by the end of its input, then by signals. It returns when it is reaped.
func (p *process) end() {
	_ = p.wire.Close()
	if waitFor(p.done, endAfter) {
		return
	}
	terminateGroup(p.cmd.Process)
	if waitFor(p.done, termAfter) {
		return
	}
	killGroup(p.cmd.Process)
	_ = p.wire.Close()
	<-p.done
}

func waitFor(done <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}

// fate says how the program has ended. p.done is closed.
func (p *process) fate() string {
	state := p.cmd.ProcessState
	what := "ended with exit code " + strconv.Itoa(state.ExitCode())
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		what = "was killed by signal " + strconv.Itoa(int(ws.Signal()))
	}
	if last := p.stderr.last(); last != "" {
		what += `, and said "` + last + `"`
	}
	return what
}

// folder is where the program runs.
func (s *source) folder() (string, error) {
	dir := s.rec.Dir
	if dir == "" {
		at := filepath.Join(string(s.rec.App), s.rec.Name)
		if !filepath.IsLocal(at) {
			return "", agent.Errorf(agent.Invalid, "server %s: there can be no folder of that name", s.rec.Name)
		}
		dir = filepath.Join(s.o.Dir, at)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return "", agent.Wrap(agent.Unavailable, err, "server "+s.rec.Name+": its folder cannot be made")
		}
	} else if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "", &agent.Error{Kind: agent.Unavailable, Msg: "server " + s.rec.Name + ": there is no folder " + dir, Err: err}
	}
	return filepath.Abs(dir)
}

// lookPath finds a program in the folders of path, which is the program's own. A name with a slash is one from dir.
func lookPath(name, path, dir string) (string, error) {
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		return exec.LookPath(name)
	}
	for _, folder := range filepath.SplitList(path) {
		if !filepath.IsAbs(folder) {
			continue
		}
		if file, err := exec.LookPath(filepath.Join(folder, name)); err == nil {
			return file, nil
		}
	}
	return "", exec.ErrNotFound
}

// tail keeps the end of what is written to it, without secrets.
type tail struct {
	clean *scrub.Scrubber
	mu    sync.Mutex
	b     []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(p)
	p = p[max(0, n-keptStderr):]
	t.b = append(t.b, p...)
	if over := len(t.b) - keptStderr; over > keptStderr/4 {
		t.b = append(t.b[:0], t.b[over:]...)
	}
	return n, nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(string(t.clean.Bytes(bytes.Clone(t.b[max(0, len(t.b)-keptStderr):]))), "\uFFFD")
}

// last is the last line that is not blank, cut short.
func (t *tail) last() string {
	lines := strings.Split(strings.TrimSpace(t.String()), "\n")
	return kept(strings.TrimSpace(lines[len(lines)-1]), 300)
}
