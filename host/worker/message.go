package worker

import (
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
)

// callMessage is a call as it crosses, with what its frame's kind adds: a request, or a source.
type callMessage struct {
	call    host.Call // without its functions
	calls   bool      // whether host calls are answered
	waiting waitingMessage
	request host.Request
	source  agent.Source
}

func (m *callMessage) encode(e *encoder, k kind) {
	if k == framePrepare {
		putSource(e, m.source)
		return
	}
	c := m.call
	e.text(string(c.Plugin))
	e.text(string(c.Tenant))
	e.text(c.Agent)
	e.int(int64(c.Weight))
	e.text(c.Function)
	putPayload(e, c.Input)
	put(e, c.Config, e.text)
	putLimits(e, c.Limits)
	e.int(int64(c.Depth))
	e.bool(c.Vars)
	e.bool(m.calls)
	m.waiting.encode(e)
	switch k {
	case frameFetch:
		e.text(m.request.Method)
		e.text(m.request.URL)
		putHeader(e, m.request.Header)
		e.bytes(m.request.Body)
	case frameEval, frameBundle:
		putSource(e, m.source)
	default:
	}
}

func decodeCall(k kind, b []byte) (*callMessage, error) {
	d := newDecoder(b)
	m := &callMessage{}
	if k == framePrepare {
		m.source = getSource(d)
		return m, d.done()
	}
	c := &m.call
	c.Plugin = agent.Digest(d.text())
	c.Tenant = agent.App(d.text())
	c.Agent = d.text()
	c.Weight = int(d.Int())
	c.Function = d.text()
	c.Input = getPayload(d)
	c.Config = get(d, d.text)
	c.Limits = getLimits(d)
	c.Depth = int(d.Int())
	c.Vars = d.bool()
	m.calls = d.bool()
	m.waiting.decode(d)
	if c.Depth < 0 {
		d.Fail()
	}
	switch k {
	case frameFetch:
		m.request = host.Request{Method: d.text(), URL: d.text(), Header: getHeader(d), Body: d.Bytes()}
	case frameEval, frameBundle:
		m.source = getSource(d)
	default:
	}
	return m, d.done()
}

// resultMessage is what a call, a fetch, an eval or a preparation came to.
type resultMessage struct {
	err      *agent.Error
	usage    agent.Usage
	output   agent.Payload
	response host.Response
	prepared host.Prepared

	suspended *host.Suspension
}

func (m *resultMessage) encode(e *encoder) {
	putError(e, m.err)
	putUsage(e, m.usage)
	putPayload(e, m.output)
	e.int(int64(m.response.Status))
	putHeader(e, m.response.Header)
	e.bytes(m.response.Body)
	e.texts(m.prepared.Exports)
	e.bool(m.prepared.Fetch)
	putSuspension(e, m.suspended)
}

func decodeResult(b []byte) (*resultMessage, error) {
	d := newDecoder(b)
	m := &resultMessage{err: getError(d), usage: getUsage(d), output: getPayload(d)}
	m.response = host.Response{Status: int(d.Int()), Header: getHeader(d), Body: d.Bytes()}
	m.prepared = host.Prepared{Exports: d.texts(), Fetch: d.bool()}
	m.suspended = getSuspension(d)
	return m, d.done()
}

// askMessage is a host call, or another question about a call. A line of console output has no ask.
type askMessage struct {
	ask    uint64
	what   question
	number uint64 // see host.Number
	name   string
	in     []byte
}

func (m *askMessage) encode(e *encoder) {
	e.uint(m.ask)
	e.byte(byte(m.what))
	e.uint(m.number)
	e.text(m.name)
	e.bytes(m.in)
}

func decodeAsk(b []byte) (*askMessage, error) {
	d := newDecoder(b)
	m := &askMessage{ask: d.Uint(), what: question(d.below(byte(questions))), number: d.Uint(), name: d.text(), in: d.Bytes()}
	return m, d.done()
}

func decodeDrop(b []byte) (ask uint64, err error) {
	d := newDecoder(b)
	ask = d.Uint()
	return ask, d.done()
}

// answerMessage is what a host call came to.
type answerMessage struct {
	err *agent.Error
	out []byte
}

func (m *answerMessage) encode(e *encoder) {
	putError(e, m.err)
	e.bytes(m.out)
}

func decodeAnswer(b []byte) (*answerMessage, error) {
	d := newDecoder(b)
	m := &answerMessage{err: getError(d), out: d.Bytes()}
	return m, d.done()
}

func decodeLoad(b []byte) (agent.Digest, error) {
	d := newDecoder(b)
	digest := agent.Digest(d.text())
	return digest, d.done()
}

// sourceMessage answers a load.
type sourceMessage struct {
	err    *agent.Error
	source agent.Source
}

func (m *sourceMessage) encode(e *encoder) {
	putError(e, m.err)
	putSource(e, m.source)
}

func decodeSource(b []byte) (*sourceMessage, error) {
	d := newDecoder(b)
	m := &sourceMessage{err: getError(d), source: getSource(d)}
	return m, d.done()
}

// loadedMessage tells what a loading has cost.
type loadedMessage struct {
	agent string
	usage agent.Usage
	err   *agent.Error
}

func (m *loadedMessage) encode(e *encoder) {
	e.text(m.agent)
	putUsage(e, m.usage)
	putError(e, m.err)
}

func decodeLoaded(b []byte) (*loadedMessage, error) {
	d := newDecoder(b)
	m := &loadedMessage{agent: d.text(), usage: getUsage(d), err: getError(d)}
	return m, d.done()
}

func encodeProgress(e *encoder, p host.Progress) {
	e.text(p.Stage)
	e.int(p.Done)
	e.int(p.Total)
}

func decodeProgress(b []byte) (host.Progress, error) {
	d := newDecoder(b)
	p := host.Progress{Stage: d.text(), Done: d.Int(), Total: d.Int()}
	return p, d.done()
}

func putPayload(e *encoder, p agent.Payload) {
	e.text(p.Type)
	e.bytes(p.Body)
}

func getPayload(d *decoder) agent.Payload { return agent.Payload{Type: d.text(), Body: d.Bytes()} }

func putHeader(e *encoder, h [][2]string) {
	e.uint(uint64(len(h)))
	for _, f := range h {
		e.text(f[0])
		e.text(f[1])
	}
}

func getHeader(d *decoder) (h [][2]string) {
	for range d.count() {
		if d.Bad {
			return nil
		}
		h = append(h, [2]string{d.text(), d.text()})
	}
	return h
}

func putSource(e *encoder, s agent.Source) {
	e.byte(byte(s.Kind))
	e.text(s.Main)
	put(e, s.Files, e.bytes)
}

func getSource(d *decoder) agent.Source {
	return agent.Source{Kind: agent.CodeKind(d.below(byte(agent.Python) + 1)), Main: d.text(), Files: get(d, d.Bytes)}
}

func putLimits(e *encoder, l agent.Limits) {
	for _, n := range [...]int64{
		int64(l.Wall), int64(l.CPU), l.Memory, l.Table, l.Stack, l.Input, l.Output, l.HostCalls, l.Log, l.Events,
	} {
		e.int(n)
	}
}

func getLimits(d *decoder) agent.Limits {
	return agent.Limits{
		Wall: time.Duration(d.Int()), CPU: time.Duration(d.Int()), Memory: d.Int(), Table: d.Int(), Stack: d.Int(),
		Input: d.Int(), Output: d.Int(), HostCalls: d.Int(), Log: d.Int(), Events: d.Int(),
	}
}

func putUsage(e *encoder, u agent.Usage) {
	for _, n := range [...]int64{int64(u.CPU), int64(u.Wall), u.Fuel, u.Memory, u.HostCalls, u.In, u.Out, u.Log} {
		e.int(n)
	}
}

func getUsage(d *decoder) agent.Usage {
	return agent.Usage{
		CPU: time.Duration(d.Int()), Wall: time.Duration(d.Int()), Fuel: d.Int(), Memory: d.Int(), HostCalls: d.Int(),
		In: d.Int(), Out: d.Int(), Log: d.Int(),
	}
}

// putError writes all of an error but its cause, which is for the log of the side where it came up.
func putError(e *encoder, err *agent.Error) {
	e.bool(err != nil)
	if err == nil {
		return
	}
	e.byte(byte(err.Kind))
	e.text(err.Msg)
	e.text(err.Hint)
	e.int(int64(err.After))
	e.byte(byte(err.Limit))
	e.text(err.Pos.File)
	e.int(int64(err.Pos.Line))
	e.int(int64(err.Pos.Column))
	e.text(err.Stack)
	e.byte(byte(err.Given))
}

func getError(d *decoder) *agent.Error {
	if !d.bool() {
		return nil
	}
	return &agent.Error{
		Kind: agent.Kind(d.below(byte(agent.Cancelled) + 1)), Msg: d.text(), Hint: d.text(),
		After: time.Duration(d.Int()), Limit: agent.Limit(d.below(byte(agent.MaxLimit) + 1)),
		Pos: agent.Pos{File: d.text(), Line: int(d.Int()), Column: int(d.Int())}, Stack: d.text(),
		Given: agent.Kind(d.below(byte(agent.Cancelled) + 1)),
	}
}

// errorOf turns a message's error back into an error, whose nil is nil.
func errorOf(e *agent.Error) error {
	if e == nil {
		return nil
	}
	return e
}
