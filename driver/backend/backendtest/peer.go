package backendtest

import (
	"encoding/json"
	"testing"

	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/backend"
)

// Peer is a Puppet that speaks JSON-RPC.
type Peer struct{ *Puppet }

// NewPeer returns one, which runs until Exit, or until it is killed.
func NewPeer(t testing.TB) *Peer { return &Peer{NewPuppet(t)} }

// Env has a Spawn that gives the process, whatever is to be started.
func (p *Peer) Env(home string) *backend.Env {
	p.Puppet.Env.Home = home
	return p.Puppet.Env
}

// Events returns the events so far, when there is one of the type among those from the one with number from on.
func (p *Peer) Events(kind string, from int) []driver.Event {
	p.t.Helper()
	list, _ := p.after(from, kind)
	return list
}

// Message is one that a Peer was sent.
type Message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// Hear returns the next message that the backend has written.
func (p *Peer) Hear() (m Message) {
	p.t.Helper()
	p.hear(&m)
	return m
}

// Answer hears a call of a method and answers it.
func (p *Peer) Answer(method, result string) Message {
	p.t.Helper()
	m := p.Hear()
	if m.Method != method {
		p.t.Fatalf("the backend calls %s %s, want %s", m.Method, m.Params, method)
	}
	if len(m.ID) > 0 {
		p.Say(`{"id":` + string(m.ID) + `,"result":` + result + `}`)
	}
	return m
}

// Babble says what may be anything while a turn of the session begins, and exits. What was told has to be in order, as it is when it leaves the box.
func (p *Peer) Babble(s backend.Session, text string) {
	p.t.Helper()
	go p.babble(text)
	_ = s.Prompt(p.t.Context(), &driver.Prompt{Turn: "one", Text: "x"})
	<-s.Done()
	list := Known(p.Puppet.Events())
	for i := range list {
		list[i].Fit()
	}
	if err := Envelope(list); err != nil {
		p.t.Error(err)
	}
}
