package inside

import (
	"bytes"
	"context"
	"io"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
)

const (
	execTimeout = 10 * time.Minute
	execMost    = 64 << 10  // of each output, unless the command says otherwise
	execMax     = 256 << 10 // at the most, since the result has to fit a message
	keptExecs   = 256       // that have ended and are listed
	maxExecs    = 64        // that run
)

// execs are the programs that were run by commands.
type execs struct {
	b     *box
	mu    sync.Mutex
	all   map[string]*running
	order []*running
	over  bool
}

// running is a program that runs, or did.
type running struct {
	e        *driver.Exec
	p        *proc
	ready    chan struct{} // closed when p or err is there
	err      error
	out, log *tail
	result   driver.ExecResult
	done     chan struct{}
}

func newExecs(b *box) *execs { return &execs{b: b, all: map[string]*running{}} }

func (x *execs) doExec(ctx context.Context, e *driver.Exec) (any, error) {
	if e.ID == "" || len(e.ID) > 128 || len(e.Command) == 0 || slices.Contains(e.Command, "") && len(e.Command) == 1 {
		return nil, agent.Errorf(agent.Invalid, "an exec has to have an id, of at most 128 bytes, and a command")
	}
	r, first, err := x.begin(e)
	if err != nil {
		return nil, err
	}
	if first {
		return x.run(ctx, r)
	}
	select {
	case <-r.ready:
	case <-ctx.Done():
		return nil, ending()
	}
	if r.err != nil {
		return nil, r.err
	}
	if e.Background {
		return driver.ExecResult{PID: r.p.pid}, nil
	}
	select {
	case <-r.done:
		return r.result, nil
	case <-ctx.Done():
		return nil, ending()
	}
}

// begin returns the exec of that id; first says that it is new.
func (x *execs) begin(e *driver.Exec) (r *running, first bool, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if r = x.all[e.ID]; r != nil {
		return r, false, nil
	}
	if x.over {
		return nil, false, ending()
	}
	live := 0
	for _, o := range x.order {
		if !o.ended() {
			live++
		}
	}
	if live >= maxExecs {
		return nil, false, agent.Errorf(agent.Exhausted, "%d programs run in the sandbox already", live)
	}
	for i := 0; len(x.order)-live > keptExecs && i < len(x.order); i++ {
		if o := x.order[i]; o.ended() {
			delete(x.all, o.e.ID)
			x.order = slices.Delete(x.order, i, i+1)
			break
		}
	}
	most := int(min(max(e.Most, 0), execMax))
	def(&most, execMost)
	r = &running{e: e, ready: make(chan struct{}), done: make(chan struct{}), out: newTail(most), log: newTail(most)}
	x.all[e.ID] = r
	x.order = append(x.order, r)
	return r, true, nil
}

func (r *running) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

func (x *execs) forget(r *running) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.all, r.e.ID)
	x.order = slices.DeleteFunc(x.order, func(o *running) bool { return o == r })
}

// run starts the program and, unless it is for the background, waits for its end.
func (x *execs) run(ctx context.Context, r *running) (any, error) {
	e := r.e
	var st *stream
	var err error
	if e.Stream != nil {
		st, err = x.b.open(ctx, e.Stream)
	}
	if err == nil {
		err = x.start(ctx, r)
	}
	if r.err = err; err != nil {
		x.forget(r)
		close(r.done)
		close(r.ready)
		if st != nil {
			_ = st.Close()
		}
		return nil, err
	}
	close(r.ready)
	if e.Background {
		x.b.works.wg.Go(func() { x.follow(ctx, r, st) })
		return driver.ExecResult{PID: r.p.pid}, nil
	}
	x.follow(ctx, r, st)
	return r.result, nil
}

func (x *execs) start(ctx context.Context, r *running) error {
	e := r.e
	p, err := x.b.procs.start(ctx, start{
		name: e.ID, command: shell(e.Command), dir: x.b.path(e.Dir), env: x.b.vars(e.Env), stderr: true, tell: e.Background, detach: e.Background,
	})
	if err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	r.p = p
	if x.over {
		_ = p.kill(syscall.SIGKILL, true)
	}
	return nil
}

// shell returns the command as it is run: one entry is a line for sh.
func shell(command []string) []string {
	if len(command) == 1 {
		return []string{"/bin/sh", "-c", command[0]}
	}
	return command
}

// follow takes what the program writes until it has ended.
func (x *execs) follow(ctx context.Context, r *running, st *stream) {
	defer close(r.done)
	var frames *frameWriter
	if st != nil {
		defer st.Close()
		frames = &frameWriter{w: st}
		go x.input(r, st) // ends with the stream
	} else {
		go func() { // ends with the program
			_, _ = r.p.Write(r.e.Stdin)
			_ = r.p.CloseInput()
		}()
	}
	timeout := r.e.Timeout
	if timeout == 0 && !r.e.Background {
		timeout = execTimeout
	}
	timedOut := x.limit(r.p, timeout)
	var wg sync.WaitGroup
	wg.Go(func() { x.take(ctx, r, r.p.err, r.log, frames, driver.FrameErr) })
	x.take(ctx, r, r.p, r.out, frames, driver.FrameOut)
	wg.Wait()
	d := r.p.Wait()
	r.result = driver.ExecResult{Code: d.Code, Signal: d.Signal, OOM: d.OOM, TimedOut: timedOut(), Stdout: r.out.String(), Stderr: r.log.String(),
		Dropped: r.out.dropped() + r.log.dropped()}
	r.out, r.log = nil, nil
	shrink(&r.result)
	if frames != nil {
		_ = frames.frame(driver.FrameExit, driver.Body(driver.ExecResult{Code: d.Code, Signal: d.Signal, OOM: d.OOM, TimedOut: r.result.TimedOut}))
		_ = st.CloseWrite()
	}
}

// shrink makes a result fit a message: bytes that have to be escaped take more room than they are.
func shrink(r *driver.ExecResult) {
	for len(driver.Body(r)) > driver.MaxMessage-4096 {
		before := len(r.Stdout) + len(r.Stderr)
		r.Stdout, r.Stderr = driver.CutTail(r.Stdout, len(r.Stdout)/2), driver.CutTail(r.Stderr, len(r.Stderr)/2)
		r.Dropped += int64(before - len(r.Stdout) - len(r.Stderr))
	}
}

// limit ends p after a timeout; 0 is none. What it returns stops that, and says whether it has.
func (x *execs) limit(p *proc, timeout time.Duration) func() bool {
	if timeout <= 0 {
		return func() bool { return false }
	}
	t := time.AfterFunc(timeout, func() { p.end(x.b.o.Grace, syscall.SIGTERM, syscall.SIGKILL) })
	return func() bool { return !t.Stop() }
}

// take reads one output to its end.
func (x *execs) take(ctx context.Context, r *running, from io.Reader, keep *tail, frames *frameWriter, kind driver.ExecFrame) {
	buf := make([]byte, 32<<10)
	var text runes
	for {
		n, err := from.Read(buf)
		if n > 0 {
			_, _ = keep.Write(buf[:n])
			if frames != nil && frames.frame(kind, buf[:n]) != nil && !r.e.Background {
				_ = r.p.kill(syscall.SIGKILL, true) // nobody listens any more
				frames = nil
			}
			if r.e.Show {
				x.show(ctx, r, text.next(buf[:n]), kind)
			}
		}
		if err != nil {
			if r.e.Show {
				x.show(ctx, r, text.rest(), kind)
			}
			return
		}
	}
}

func (x *execs) show(ctx context.Context, r *running, text string, kind driver.ExecFrame) {
	if text != "" {
		x.b.emit(ctx, driver.NewEvent("", driver.ExecOutput, driver.TextData{Item: r.e.ID, Text: text, Err: kind == driver.FrameErr}))
	}
}

// input takes the frames that come for a program. When they are cut off, the program of a foreground exec is ended.
func (x *execs) input(r *running, st *stream) {
	_, _ = r.p.Write(r.e.Stdin)
	for {
		kind, b, err := driver.ReadExecFrame(st)
		switch {
		case err != nil:
			_ = r.p.CloseInput()
			if err == io.EOF {
				st.Gone()
			}
			if !r.e.Background {
				r.p.end(x.b.o.Grace, syscall.SIGHUP, syscall.SIGKILL)
			}
			return
		case kind == driver.FrameSignal:
			_ = r.p.Signal(string(b), true)
		case kind == driver.FrameInput && len(b) == 0:
			_ = r.p.CloseInput()
		case kind == driver.FrameInput:
			_, _ = r.p.Write(b)
		}
	}
}

// frameWriter writes frames from more than one goroutine.
type frameWriter struct {
	mu  sync.Mutex
	w   io.Writer
	buf []byte
}

func (f *frameWriter) frame(kind driver.ExecFrame, b []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.buf = driver.AppendExecFrame(f.buf[:0], kind, b)
	_, err := f.w.Write(f.buf)
	return err
}

// doProcesses lists what runs, and of execs also what has ended.
func (b *box) doProcesses(context.Context, *struct{}) (any, error) {
	out := driver.Processes{List: []driver.Process{}}
	b.execs.mu.Lock()
	for _, r := range b.execs.order {
		if r.p == nil {
			continue
		}
		p := driver.Process{ID: r.e.ID, PID: r.p.pid, Command: shortened(r.e.Command), Started: r.p.began.UTC(), Ended: r.ended()}
		if p.Ended {
			p.Code = r.result.Code
		}
		out.List = append(out.List, p)
	}
	b.execs.mu.Unlock()
	b.procs.mu.Lock()
	defer b.procs.mu.Unlock()
	for _, p := range b.procs.all {
		if p.name == "cli" {
			out.List = append(out.List, driver.Process{ID: "cli", PID: p.pid, Command: shortened(p.command), Started: p.began.UTC()})
		}
	}
	return out, nil
}

// shortened keeps a list of commands within a message.
func shortened(command []string) []string {
	out := make([]string, 0, min(len(command), 16))
	for _, c := range command[:min(len(command), 16)] {
		out = append(out, driver.CutText(c, 64))
	}
	return out
}

func (x *execs) doSignal(ctx context.Context, a *driver.SignalArgs) (any, error) {
	if a.ID == "cli" {
		return nil, x.signalCLI(a.Signal)
	}
	x.mu.Lock()
	r := x.all[a.ID]
	x.mu.Unlock()
	if r == nil || r.p == nil {
		return nil, agent.Errorf(agent.NotFound, "nothing was started under the id %q", a.ID)
	}
	if a.Signal != "" {
		return nil, r.p.Signal(a.Signal, true)
	}
	r.p.end(x.b.o.Grace, syscall.SIGTERM, syscall.SIGKILL)
	return nil, nil
}

func (x *execs) signalCLI(name string) error {
	def(&name, "TERM")
	sig, err := signalOf(name)
	if err != nil {
		return err
	}
	t := x.b.turns
	t.mu.Lock()
	c := t.cli
	t.mu.Unlock()
	if c == nil {
		return agent.Errorf(agent.NotFound, "no command-line agent runs")
	}
	c.signal(sig)
	return nil
}

// end ends all programs.
func (x *execs) end() {
	x.mu.Lock()
	x.over = true
	list := slices.Clone(x.order)
	x.mu.Unlock()
	var wg sync.WaitGroup
	for _, r := range list {
		if !r.ended() && r.p != nil {
			wg.Go(func() { r.p.end(x.b.o.Grace, syscall.SIGTERM, syscall.SIGKILL) })
		}
	}
	wg.Wait()
}

// runes makes text of bytes that come in pieces, without cutting a rune in two.
type runes struct{ left []byte }

func (t *runes) next(p []byte) string {
	b := append(t.left, p...)
	end := len(b)
	for i := 1; i <= 3 && i <= len(b); i++ {
		c := b[len(b)-i]
		if c < 0x80 {
			break
		}
		if c >= 0xC0 { // a rune begins here: is it whole?
			if need := runeLen(c); need > i {
				end = len(b) - i
			}
			break
		}
	}
	out := string(bytes.ToValidUTF8(b[:end], []byte("\uFFFD")))
	t.left = append([]byte(nil), b[end:]...)
	return out
}

func runeLen(first byte) int {
	switch {
	case first >= 0xF0:
		return 4
	case first >= 0xE0:
		return 3
	}
	return 2
}

func (t *runes) rest() string {
	out := string(bytes.ToValidUTF8(t.left, []byte("\uFFFD")))
	t.left = nil
	return out
}
