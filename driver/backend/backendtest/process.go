package backendtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/backend"
)

// tail is how much of standard error is kept.
const tail = 8 << 10

var signals = map[string]syscall.Signal{"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL, "HUP": syscall.SIGHUP}

// process is a backend.Process of the rig's. What it writes is kept.
type process struct {
	cmd    *exec.Cmd
	stdin  *os.File
	stdout *os.File
	done   chan struct{}

	mu   sync.Mutex
	out  []byte
	err  []byte
	end  driver.ProcessData
	shut bool
}

// lookPath finds a program as the box would: in the PATH that its environment has.
func lookPath(name, path string) (string, error) {
	if filepath.IsAbs(name) {
		return name, nil
	}
	for _, dir := range filepath.SplitList(path) {
		file := filepath.Join(dir, name)
		if st, err := os.Stat(file); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return "", agent.Errorf(agent.NotFound, "there is no program %s in the PATH of the box", name)
}

// spawn is backend.Env's.
func (r *Rig) spawn(_ context.Context, c *backend.Command) (backend.Process, error) {
	env := map[string]string{}
	for _, m := range []map[string]string{r.Env.Vars, c.Env} {
		for k, v := range m {
			env[k] = v
		}
	}
	file, err := lookPath(c.Path, env["PATH"])
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(file, c.Args...), done: make(chan struct{})}
	p.cmd.Dir = c.Dir
	for k, v := range env {
		p.cmd.Env = append(p.cmd.Env, k+"="+v)
	}
	p.cmd.SysProcAttr = procAttr()
	in, stdin, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	stdout, out, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, in.Close(), stdin.Close())
	}
	p.stdin, p.stdout = stdin, stdout
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = in, out, errOut{p}
	p.cmd.WaitDelay = 5 * time.Second
	r.island.run(func() { err = p.cmd.Start() })
	_, _ = in.Close(), out.Close()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", c.Path, err), stdin.Close(), stdout.Close())
	}
	r.mu.Lock()
	r.procs = append(r.procs, p)
	r.mu.Unlock()
	r.record(driver.NewEvent("", driver.CLIStarted, driver.ProcessData{Name: c.Path, PID: p.cmd.Process.Pid}))
	go p.wait(r, c.Path)
	return p, nil
}

func (p *process) wait(r *Rig, name string) {
	_ = p.cmd.Wait()
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // what it left behind holds its output open
	d := driver.ProcessData{Name: name, PID: p.cmd.Process.Pid, Code: p.cmd.ProcessState.ExitCode()}
	if ws, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		d.Signal = ws.Signal().String()
	}
	p.mu.Lock()
	d.Tail = string(p.err)
	p.end = d
	p.mu.Unlock()
	r.record(driver.NewEvent("", driver.CLIExited, d))
	close(p.done)
}

type errOut struct{ p *process }

func (e errOut) Write(b []byte) (int, error) {
	e.p.mu.Lock()
	defer e.p.mu.Unlock()
	e.p.err = append(e.p.err, b...)
	e.p.err = e.p.err[max(0, len(e.p.err)-tail):]
	return len(b), nil
}

func (p *process) Write(b []byte) (int, error) { return p.stdin.Write(b) }

func (p *process) Read(b []byte) (int, error) {
	n, err := p.stdout.Read(b)
	p.mu.Lock()
	p.out = append(p.out, b[:n]...)
	p.mu.Unlock()
	return n, err
}

func (p *process) CloseInput() error {
	p.mu.Lock()
	shut := p.shut
	p.shut = true
	p.mu.Unlock()
	if shut {
		return nil
	}
	return p.stdin.Close()
}

func (p *process) Signal(name string, group bool) error {
	s, ok := signals[name]
	if !ok {
		return agent.Errorf(agent.Invalid, "there is no signal %.20q", name)
	}
	pid := p.cmd.Process.Pid
	if group {
		pid = -pid
	}
	return syscall.Kill(pid, s)
}

func (p *process) Wait() driver.ProcessData {
	<-p.done
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.end
}

func (p *process) Done() <-chan struct{} { return p.done }
