package inside

import (
	"context"
	"io"
	"os"
	"sync"
	"syscall"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
)

// doSetup runs the script of an environment. What it writes is told as it comes, and its end is in the result.
func (b *box) doSetup(ctx context.Context, a *driver.SetupArgs) (any, error) {
	def(&a.Timeout, execTimeout)
	script, err := writeScript(a.Script)
	if err != nil {
		return nil, fileError("of the setup script", err)
	}
	defer os.Remove(script)
	p, err := b.procs.start(ctx, start{
		name: "setup", command: []string{"/bin/sh", "-eu", script}, dir: b.o.Boot.Workdir, env: b.vars(), stderr: true,
	})
	if err != nil {
		return nil, err
	}
	_ = p.CloseInput()
	stop := context.AfterFunc(ctx, func() { p.end(b.o.Grace, syscall.SIGTERM, syscall.SIGKILL) })
	defer stop()
	timedOut := b.execs.limit(p, a.Timeout)
	out, log := newTail(execMost), newTail(execMost)
	var wg sync.WaitGroup
	wg.Go(func() { b.tellSetup(ctx, p.err, log, true) })
	b.tellSetup(ctx, p, out, false)
	wg.Wait()
	d := p.Wait()
	r := driver.SetupResult{ExecResult: driver.ExecResult{Code: d.Code, Signal: d.Signal, OOM: d.OOM, TimedOut: timedOut(),
		Stdout: out.String(), Stderr: log.String(), Dropped: out.dropped() + log.dropped()}}
	shrink(&r.ExecResult)
	d.Tail = driver.CutTail(r.Stderr, toldTail)
	b.emit(ctx, driver.NewEvent("", driver.SetupEnded, d))
	if ctx.Err() != nil {
		return nil, agent.Errorf(agent.Unavailable, "the driver ended while the setup script ran")
	}
	return r, nil
}

// writeScript writes a script to a file: an argument could not be long, and from standard input its commands would eat it.
func writeScript(text string) (string, error) {
	f, err := os.CreateTemp("", "skep-setup-*")
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(text)
	if bad := f.Close(); err == nil {
		err = bad
	}
	return f.Name(), err
}

func (b *box) tellSetup(ctx context.Context, from io.Reader, keep *tail, isErr bool) {
	buf := make([]byte, 32<<10)
	var text runes
	for {
		n, err := from.Read(buf)
		_, _ = keep.Write(buf[:n])
		s := text.next(buf[:n])
		if err != nil {
			s += text.rest()
		}
		if s != "" {
			b.emit(ctx, driver.NewEvent("", driver.SetupOutput, driver.TextData{Text: s, Err: isErr}))
		}
		if err != nil {
			return
		}
	}
}
