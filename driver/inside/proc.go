package inside

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
)

const (
	tailBytes = 64 << 10               // of standard error that are kept
	toldTail  = 16 << 10               // of it that an event has
	lateRead  = 2 * time.Second        // after its end, a process's output is read no longer: something that escaped its group may hold it open
	oomEvery  = 500 * time.Millisecond // the kernel's count of processes that it ended is looked at
)

// start says what to start.
type start struct {
	name    string // for events and lists
	command []string
	dir     string
	env     map[string]string // the whole
	stderr  bool              // there is a reader of standard error; otherwise its end is kept
	tell    bool              // of its start and its end, by events
	detach  bool              // what is left of its group when it ends goes on
}

// proc is a process in a group of its own. It is a backend.Process.
type proc struct {
	start
	b       *box
	ctx     context.Context // of the command that started it, for its trace
	cmd     *exec.Cmd
	pid     int
	began   time.Time
	kills   int64    // oomKills at its start
	in      *os.File // to its standard input
	out     *os.File // from its standard output
	err     *os.File // from its standard error
	tail    *tail
	exited  chan struct{} // closed when it has exited
	drained chan struct{} // closed when its output is read
	done    chan struct{} // closed after both
	result  driver.ProcessData

	mu     sync.Mutex
	reaped bool
	once   sync.Once // of drained
}

// procs are all processes of the driver.
type procs struct {
	b   *box
	mu  sync.Mutex // held while a process starts and gets known, and while orphans are reaped
	all map[int]*proc
	oom int64 // processes that were ended for want of memory, as far as was told
}

func newProcs(b *box) *procs { return &procs{b: b, all: map[int]*proc{}, oom: oomKills()} }

// start starts a process. Its life is its own: ctx is for its trace alone.
func (ps *procs) start(ctx context.Context, s start) (*proc, error) {
	path, err := lookPath(s.command[0], s.env["PATH"], s.dir)
	if err != nil {
		return nil, err
	}
	p := &proc{start: s, b: ps.b, ctx: ctx, exited: make(chan struct{}), drained: make(chan struct{}), done: make(chan struct{}), tail: newTail(tailBytes)}
	theirs, err := p.pipes()
	if err != nil {
		return nil, agent.Wrap(agent.Exhausted, err, "no pipes can be made for a process")
	}
	p.cmd = &exec.Cmd{Path: path, Args: s.command, Dir: s.dir, Env: list(s.env), Stdin: theirs[0], Stdout: theirs[1], Stderr: theirs[2], SysProcAttr: attributes()}
	ps.mu.Lock()
	p.kills, p.began = oomKills(), time.Now()
	if err = p.cmd.Start(); err == nil {
		p.pid = p.cmd.Process.Pid
		ps.all[p.pid] = p
		preferToEnd(p.pid)
	}
	ps.mu.Unlock()
	for _, f := range theirs {
		_ = f.Close()
	}
	if err != nil {
		p.closeAll()
		return nil, startError(path, s.dir, err)
	}
	if s.tell {
		ps.b.emit(ctx, driver.NewEvent("", driver.CLIStarted, driver.ProcessData{Name: s.name, PID: p.pid}))
	}
	go p.wait() // ends with the process, which ends with the driver
	return p, nil
}

func startError(path, dir string, err error) error {
	e := &agent.Error{Kind: agent.Invalid, Msg: "the program " + path + " cannot be started", Err: err}
	info, bad := os.Stat(dir)
	switch {
	case errors.Is(bad, os.ErrNotExist):
		return agent.Errorf(agent.NotFound, "there is no folder %s to start the program in", dir)
	case bad == nil && !info.IsDir():
		return agent.Errorf(agent.Invalid, "%s is no folder, in which a program could be started", dir)
	case errors.Is(err, os.ErrNotExist):
		e.Kind, e.Hint = agent.NotFound, "the program, its interpreter or its folder is not there"
	case errors.Is(err, syscall.EAGAIN):
		e.Kind, e.Hint = agent.Exhausted, "the box has as many processes as it may: see size.pids of the environment"
	case errors.Is(err, syscall.ENOMEM):
		e.Kind, e.Hint = agent.Exhausted, "the box has no memory left: see size.memory of the environment"
	}
	return e
}

// pipes makes the pipes of p, and returns the other ends.
func (p *proc) pipes() (theirs [3]*os.File, err error) {
	var files []*os.File
	pipe := func() (r, w *os.File) {
		if err != nil {
			return nil, nil
		}
		if r, w, err = os.Pipe(); err == nil {
			files = append(files, r, w)
		}
		return r, w
	}
	theirs[0], p.in = pipe()
	p.out, theirs[1] = pipe()
	p.err, theirs[2] = pipe()
	if err != nil {
		for _, f := range files {
			_ = f.Close()
		}
	}
	return theirs, err
}

func (p *proc) closeAll() {
	for _, f := range []*os.File{p.in, p.out, p.err} {
		_ = f.Close()
	}
}

// wait waits for the end of p, ends what is left of its group, and tells.
func (p *proc) wait() {
	var reading sync.WaitGroup
	if !p.stderr {
		reading.Go(func() { _, _ = io.Copy(p.tail, p.err) })
	}
	awaitExit(p.pid)
	if !p.detach {
		_ = p.kill(syscall.SIGKILL, true)
	}
	p.mu.Lock()
	_ = p.cmd.Wait()
	p.reaped = true
	p.mu.Unlock()
	p.b.procs.forget(p.pid)
	close(p.exited)
	_ = p.in.Close()
	late := time.AfterFunc(lateRead, func() {
		_, _ = p.out.Close(), p.err.Close()
		p.drain()
	})
	reading.Wait()
	p.result = p.ended()
	<-p.drained
	late.Stop()
	p.closeAll()
	if p.tell {
		data := p.result
		data.Tail = driver.CutTail(data.Tail, toldTail)
		p.b.emit(p.ctx, driver.NewEvent("", driver.CLIExited, data))
	}
	close(p.done)
}

func (p *proc) ended() driver.ProcessData {
	d := driver.ProcessData{Name: p.name, PID: p.pid, Code: p.cmd.ProcessState.ExitCode(), Tail: p.tail.String()}
	if ws, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		d.Signal = signalName(ws.Signal())
	}
	d.OOM = d.Code != 0 && oomKills() > p.kills // a shell exits with 137 for a child that was killed
	return d
}

func (p *proc) drain() { p.once.Do(func() { close(p.drained) }) }

// Read reads standard output.
func (p *proc) Read(b []byte) (int, error) {
	n, err := p.out.Read(b)
	if err != nil {
		p.drain()
		if errors.Is(err, os.ErrClosed) {
			err = io.EOF
		}
	}
	return n, err
}

// Write writes to standard input.
func (p *proc) Write(b []byte) (int, error) { return p.in.Write(b) }

// CloseInput closes standard input.
func (p *proc) CloseInput() error { return p.in.Close() }

// Done is closed when the process has exited and its output is read.
func (p *proc) Done() <-chan struct{} { return p.done }

// Wait waits for Done.
func (p *proc) Wait() driver.ProcessData {
	<-p.done
	return p.result
}

// Signal sends a signal by its name.
func (p *proc) Signal(name string, group bool) error {
	sig, err := signalOf(name)
	if err != nil {
		return err
	}
	return p.kill(sig, group)
}

func (p *proc) kill(sig syscall.Signal, group bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return agent.Errorf(agent.NotFound, "the process %d has ended", p.pid)
	}
	pid := p.pid
	if group {
		pid = -pid
	}
	if err := sendSignal(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return agent.Wrap(agent.Invalid, err, "the signal cannot be sent")
	}
	return nil
}

// end ends p by the steps that are left of the ladder: those of signals, each after grace.
func (p *proc) end(grace time.Duration, steps ...syscall.Signal) {
	for _, sig := range steps {
		_ = p.kill(sig, sig != syscall.SIGINT)
		select {
		case <-p.exited:
			return
		case <-time.After(grace):
		}
	}
	<-p.exited
}

func (ps *procs) forget(pid int) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	delete(ps.all, pid)
}

// killAll kills what is left of all groups, and what has escaped from them.
func (ps *procs) killAll() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range ps.all {
		_ = p.kill(syscall.SIGKILL, true)
	}
	if !ps.b.o.Reap {
		return
	}
	for range 10 { // what is killed may leave children of its own to us
		live := false
		for pid, dead := range children() {
			if !dead {
				live = sendSignal(pid, syscall.SIGKILL) == nil || live
			}
		}
		if !live {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// watch reaps what others leave behind, and tells when the kernel ends something for want of memory.
func (ps *procs) watch(ctx context.Context) {
	tick := time.NewTicker(oomEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		ps.checkOOM()
		if ps.b.o.Reap {
			ps.reapOrphans()
		}
	}
}

// checkOOM tells of what was ended for want of memory since it was called last.
func (ps *procs) checkOOM() {
	ps.mu.Lock()
	now := oomKills()
	more := now > ps.oom
	ps.oom = max(ps.oom, now)
	ps.mu.Unlock()
	if more {
		ps.b.emit(context.Background(), driver.NewEvent("", driver.OutOfMemory, driver.ProcessData{Name: "box", OOM: true}))
	}
}

func (ps *procs) reapOrphans() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for pid, dead := range children() {
		if dead && ps.all[pid] == nil {
			reap(pid)
		}
	}
}

// tail keeps the end of what is written to it.
type tail struct {
	most int
	mu   sync.Mutex
	buf  []byte
	all  int64
}

func newTail(most int) *tail { return &tail{most: most} }

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all += int64(len(p))
	t.buf = append(t.buf, p...)
	if len(t.buf) > 2*t.most {
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-t.most:]...)
	}
	return len(p), nil
}

// String returns the end, as UTF-8.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(driver.CutTail(string(t.buf), t.most), "\uFFFD")
}

// dropped returns how many bytes String does not have.
func (t *tail) dropped() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(0, t.all-int64(t.most))
}
