// Package peertest is a program that a test is itself: a backend.Process whose lines the test says and hears. It is for what a real agent cannot be made to say.
package peertest

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

// Peer is the program.
type Peer struct {
	Stays bool // when its input ends

	t       testing.TB
	in, out pipe
	lines   *bufio.Reader
	done    chan struct{}
	once    sync.Once
	end     driver.ProcessData

	mu     sync.Mutex
	events []driver.Event
	more   chan struct{}
}

type pipe struct {
	r *io.PipeReader
	w *io.PipeWriter
}

func newPipe() pipe {
	r, w := io.Pipe()
	return pipe{r, w}
}

// New returns a program that runs until Exit, or until it is killed.
func New(t testing.TB) *Peer {
	p := &Peer{t: t, in: newPipe(), out: newPipe(), done: make(chan struct{}), more: make(chan struct{})}
	p.lines = bufio.NewReader(p.in.r)
	return p
}

// Env has a Spawn that gives the program, whatever is to be started.
func (p *Peer) Env(home string) *backend.Env {
	return &backend.Env{Home: home, Models: "http://127.0.0.1:1/ai", Key: "key", Spawn: func(context.Context, *backend.Command) (backend.Process, error) { return p, nil }}
}

// Sink takes events.
func (p *Peer) Sink(e driver.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = append(p.events, e)
	close(p.more)
	p.more = make(chan struct{})
}

// Events returns the events so far, when there is one of the type among those from the one with number from on.
func (p *Peer) Events(kind string, from int) []driver.Event {
	p.t.Helper()
	late := time.After(20 * time.Second)
	for {
		p.mu.Lock()
		list, more := p.events, p.more
		p.mu.Unlock()
		for i := from; i < len(list); i++ {
			if list[i].Type == kind {
				return list
			}
		}
		select {
		case <-more:
		case <-late:
			p.t.Fatalf("no event %s came; there are %+v", kind, list)
		}
	}
}

// Say writes lines to the standard output of the program.
func (p *Peer) Say(lines ...string) {
	p.t.Helper()
	for _, line := range lines {
		if _, err := io.WriteString(p.out.w, line+"\n"); err != nil {
			p.t.Fatalf("say: %v", err)
		}
	}
}

// Message is one that the program was sent.
type Message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// Hear returns the next message that the program is sent.
func (p *Peer) Hear() (m Message) {
	p.t.Helper()
	line, err := p.lines.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &m)
	}
	if err != nil {
		p.t.Fatalf("hear: %v", err)
	}
	return m
}

// Answer hears a call of a method and answers it.
func (p *Peer) Answer(method, result string) Message {
	p.t.Helper()
	m := p.Hear()
	if m.Method != method {
		p.t.Fatalf("the program was asked %s %s, want %s", m.Method, m.Params, method)
	}
	if len(m.ID) > 0 {
		p.Say(`{"id":` + string(m.ID) + `,"result":` + result + `}`)
	}
	return m
}

// SayAny writes text to the standard output, as far as somebody reads it.
func (p *Peer) SayAny(text string) { _, _ = io.WriteString(p.out.w, text) }

// HearAny drops a line that the program is sent, and reports whether there was one.
func (p *Peer) HearAny() bool {
	_, err := p.lines.ReadBytes('\n')
	return err == nil
}

// Exit ends the program.
func (p *Peer) Exit(d driver.ProcessData) {
	p.once.Do(func() {
		p.end = d
		_ = p.out.w.Close()
		_ = p.in.r.Close()
		close(p.done)
	})
}

func (p *Peer) Write(b []byte) (int, error) { return p.in.w.Write(b) }
func (p *Peer) Read(b []byte) (int, error)  { return p.out.r.Read(b) }

// CloseInput lets the program end, as most do, unless it stays.
func (p *Peer) CloseInput() error {
	_ = p.in.w.Close()
	if !p.Stays {
		p.Exit(driver.ProcessData{})
	}
	return nil
}

// Signal ends the program.
func (p *Peer) Signal(name string, _ bool) error {
	p.Exit(driver.ProcessData{Code: -1, Signal: name})
	return nil
}

// Done is closed by Exit.
func (p *Peer) Done() <-chan struct{} { return p.done }

// Wait waits for Exit.
func (p *Peer) Wait() driver.ProcessData {
	<-p.done
	return p.end
}
