package backendtest

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/backend"
)

// Puppet is a process that says what a test wants it to: for what no real CLI can be brought to say. It has no network, and no files.
type Puppet struct {
	Env   *backend.Env
	Stays bool // when its input ends
	*recorder

	out  *io.PipeWriter
	outR *io.PipeReader
	in   *io.PipeWriter
	said chan []byte // lines that the backend wrote
	done chan struct{}
	once sync.Once
	end  driver.ProcessData
}

// NewPuppet returns one whose Env starts it, once. It ends with the test.
func NewPuppet(t testing.TB) *Puppet {
	p := &Puppet{recorder: newRecorder(t, 20*time.Second), said: make(chan []byte, 1000), done: make(chan struct{})}
	p.outR, p.out = io.Pipe()
	inR, in := io.Pipe()
	p.in = in
	p.Env = &backend.Env{Home: "/home/agent", Relay: "http://" + driver.RelayAddr, Models: "http://" + driver.RelayAddr + driver.ModelPath, Key: modelKey}
	p.Env.Spawn = func(context.Context, *backend.Command) (backend.Process, error) { return p.Process(), nil }
	go func() {
		for lines := bufio.NewReader(inR); ; {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			select {
			case p.said <- line:
			case <-p.done:
				return
			}
		}
	}()
	t.Cleanup(func() { p.Exit(driver.ProcessData{}) })
	return p
}

// Sink is the sink for backend.Backend.Start.
func (p *Puppet) Sink(e driver.Event) { p.record(e) }

// Say writes lines to the backend.
func (p *Puppet) Say(lines ...string) {
	p.t.Helper()
	for _, line := range lines {
		if _, err := io.WriteString(p.out, line+"\n"); err != nil {
			p.t.Errorf("say: %v", err)
		}
	}
}

// Hear returns the next line that the backend has written.
func (p *Puppet) Hear() (v map[string]any) {
	p.t.Helper()
	p.hear(&v)
	return v
}

// hear reads the next line that the backend has written into v.
func (p *Puppet) hear(v any) {
	p.t.Helper()
	select {
	case line := <-p.said:
		if err := json.Unmarshal(line, v); err != nil {
			p.t.Fatalf("the backend wrote %q: %v", line, err)
		}
	case <-time.After(p.wait):
		p.t.Fatal("the backend writes nothing")
	}
}

// Exit ends the process.
func (p *Puppet) Exit(d driver.ProcessData) {
	p.once.Do(func() {
		p.end = d
		close(p.done)
		_ = p.out.Close()
		_ = p.in.CloseWithError(io.ErrClosedPipe)
	})
}

// babble says what may be anything, whatever it hears, and exits.
func (p *Puppet) babble(in string) {
	go func() {
		for {
			select {
			case <-p.said:
			case <-p.done:
				return
			}
		}
	}()
	_, _ = io.WriteString(p.out, in+"\n") // as far as somebody reads it
	p.Exit(driver.ProcessData{})
}

// Babble says what may be anything, and exits. Once done is closed, what was told in between has to be in order; what was not understood may be anywhere.
func (p *Puppet) Babble(in []byte, done <-chan struct{}) {
	p.t.Helper()
	p.babble(string(in))
	<-done
	if err := Envelope(Known(p.Events())); err != nil {
		p.t.Error(err)
	}
}

// Process is what Spawn of its Env returns.
func (p *Puppet) Process() backend.Process { return limb{p} }

// limb is the Process of a Puppet.
type limb struct{ p *Puppet }

func (l limb) Write(b []byte) (int, error) { return l.p.in.Write(b) }
func (l limb) Read(b []byte) (int, error)  { return l.p.outR.Read(b) }
func (l limb) Done() <-chan struct{}       { return l.p.done }

func (l limb) CloseInput() error {
	if l.p.Stays {
		return l.p.in.Close()
	}
	l.p.Exit(driver.ProcessData{})
	return nil
}

func (l limb) Signal(name string, _ bool) error {
	l.p.Exit(driver.ProcessData{Code: -1, Signal: name})
	return nil
}

func (l limb) Wait() driver.ProcessData {
	<-l.p.done
	return l.p.end
}
