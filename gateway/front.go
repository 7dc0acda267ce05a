package gateway

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
)

// front is who asked: an HTTP client, or a guest. Its methods are called by the exchange's goroutine.
type front interface {
	gone() bool
	// whole gives an answer that is not streamed. passed is one in the client's own protocol, in place of a.
	whole(s *shipment, from http.Header, a *wire.Answer, passed []byte) error
	// begin begins a stream: everything else follows. pass and events are the next of it, which come at the borders of frames.
	begin(s *shipment, from http.Header, typ string) error
	pass(p []byte) error
	events(list []wire.Event) error
	// last tells that the answer ends with the next pass or events.
	last()
	// broken tells that the stream ends early.
	broken(f *wire.Fault, frame func(*wire.Fault) []byte)
	// end stops what begin started.
	end()
}

// out is the way to an HTTP client. Signs of life are sent by a goroutine of their own.
type out struct {
	mu    sync.Mutex
	sink  Sink
	begun bool
	left  bool // a write failed
	open  bool // a stream to which signs of life may be sent
	wrote time.Time
	beat  []byte
	timer *time.Timer
}

func (o *out) head(status int, h http.Header) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.begun = true
	err := o.sink.Begin(status, h)
	o.left = o.left || err != nil
	return err
}

func (o *out) write(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.writeLocked(p)
}

func (o *out) writeLocked(p []byte) error {
	if o.left {
		return errGone
	}
	if o.open {
		o.wrote = time.Now()
	}
	if _, err := o.sink.Write(p); err != nil {
		o.left = true
		return errGone
	}
	return nil
}

// beatLocked sends a sign of life.
func (o *out) beatLocked() error {
	b, ok := o.sink.(Beater)
	if !ok {
		return o.writeLocked(o.beat)
	}
	if o.left {
		return errGone
	}
	o.wrote = time.Now()
	if b.Beat(o.beat) != nil {
		o.left = true
		return errGone
	}
	return nil
}

// live sends beat whenever nothing was for d. gone is called once a write has failed.
func (o *out) live(d time.Duration, beat []byte, gone func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open, o.beat, o.wrote = true, beat, time.Now()
	o.timer = time.AfterFunc(d, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if !o.open {
			return
		}
		next := d - time.Since(o.wrote)
		if next <= 0 {
			next = d
			if o.beatLocked() != nil {
				o.open = false
				gone()
				return
			}
		}
		o.timer.Reset(next)
	})
}

func (o *out) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open = false
	if o.timer != nil {
		o.timer.Stop()
	}
}

// httpFront is an HTTP client.
type httpFront struct {
	out
	x    *exchange
	enc  wire.Encoder
	buf  []byte
	tape *tape // nil when nobody needs what is said
}

// tape keeps what is said to a client, without signs of life.
type tape struct {
	status int
	typ    string
	body   []byte
	most   int
	over   bool // there was more
}

// say writes what is of the answer.
func (f *httpFront) say(p []byte) error {
	if t := f.tape; t != nil {
		n := min(len(p), t.most-len(t.body))
		t.body = append(t.body, p[:n]...)
		t.over = t.over || n < len(p)
	}
	return f.write(p)
}

// start is head of an answer that say follows.
func (f *httpFront) start(status int, h http.Header) error {
	if t := f.tape; t != nil {
		t.status, t.typ = status, h.Get("Content-Type")
	}
	return f.head(status, h)
}

var (
	comment      = []byte(": still there\n\n")
	messagesPing = []byte("event: ping\ndata: {\"type\": \"ping\"}\n\n")
)

func (f *httpFront) gone() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.left
}

// The gateway's own header fields.
const (
	HeaderAttempts = "X-Skep-Attempts" // calls to providers that were made for the request
	HeaderModel    = "X-Skep-Model"    // who answered: PROVIDER/MODEL
	HeaderCall     = "X-Skep-Call"     // id of the call in the ledger
	HeaderEstimate = "X-Skep-Estimate" // "true": a count of tokens is an estimate
	HeaderCache    = "X-Skep-Cache"    // hit or miss, where the route has a cache
	headerRetry    = "X-Should-Retry"
)

// header is what goes with an answer: what of the provider's the client is for, and the gateway's own.
func (x *exchange) header(from http.Header, same bool, typ string) http.Header {
	h := make(http.Header, 8)
	for name, vs := range from {
		if passes(name, same) {
			h[name] = vs
		}
	}
	if typ != "" {
		h["Content-Type"] = []string{typ}
	}
	x.mark(h)
	return h
}

func (x *exchange) mark(h http.Header) {
	if x.cached != "" {
		h[HeaderCache] = []string{x.cached}
	}
	if x.attempts > 0 {
		h[HeaderAttempts] = []string{strconv.Itoa(x.attempts)}
		h[HeaderCall] = []string{x.call}
	}
}

// passes reports whether a header field of a provider's answer is for the client. Limits of the provider's account are told only in its own protocol.
func passes(name string, same bool) bool {
	switch name {
	case "Request-Id", "X-Request-Id":
		return true
	case "Retry-After", "Retry-After-Ms":
		return false // told by the fault
	}
	return same && (strings.HasPrefix(name, "Anthropic-") || strings.HasPrefix(name, "Openai-") || strings.HasPrefix(name, "X-Ratelimit-") ||
		strings.HasPrefix(name, "X-Goog-") || strings.HasPrefix(name, "X-Gemini-"))
}

func (f *httpFront) whole(s *shipment, from http.Header, a *wire.Answer, passed []byte) error {
	typ := "application/json"
	if passed == nil {
		r, err := f.x.canonical()
		if err != nil {
			return err
		}
		if f.x.peek.Stream {
			if err := f.begin(s, from, ""); err != nil {
				return err
			}
			return f.events(a.Events())
		}
		if passed, err = f.x.codec.EncodeAnswer(a, r); err != nil {
			return err
		}
	} else if t := from["Content-Type"]; len(t) > 0 {
		typ = t[0]
	}
	h := f.x.header(from, s.pass, typ)
	h[HeaderModel] = []string{s.call.c.p.Name + "/" + s.call.c.model}
	s.call.room(h)
	h["Content-Length"] = []string{strconv.Itoa(len(passed))}
	if err := f.start(http.StatusOK, h); err != nil {
		return errGone
	}
	return f.say(passed)
}

func (f *httpFront) begin(s *shipment, from http.Header, typ string) error {
	if !s.passes() {
		r, err := f.x.canonical()
		if err != nil {
			return err
		}
		f.enc = f.x.codec.Encoder(r)
		typ = f.enc.ContentType()
	}
	h := f.x.header(from, s.pass, typ)
	h[HeaderModel] = []string{s.call.c.p.Name + "/" + s.call.c.model}
	s.call.room(h)
	h["Cache-Control"] = []string{"no-cache"}
	if err := f.start(http.StatusOK, h); err != nil {
		return errGone
	}
	if strings.HasPrefix(typ, "text/event-stream") {
		beat := comment
		if f.x.protocol == agent.MessageProtocol {
			beat = messagesPing
		}
		f.live(f.x.g.o.Ping, beat, func() { s.cancel(errGone) })
	}
	return nil
}

func (f *httpFront) pass(p []byte) error { return f.say(p) }

func (f *httpFront) last() {
	if e, ok := f.sink.(Ender); ok {
		e.Last()
	}
}

func (f *httpFront) events(list []wire.Event) error {
	b := f.buf[:0]
	for i := range list {
		b = f.enc.Append(b, list[i])
	}
	f.buf = b
	return f.say(b)
}

func (f *httpFront) broken(fault *wire.Fault, frame func(*wire.Fault) []byte) {
	var last []byte
	switch {
	case f.enc != nil:
		last = f.enc.Append(nil, wire.Event{Kind: wire.Broken, Fault: fault})
	case frame != nil:
		last = frame(fault)
	}
	if len(last) == 0 {
		last = f.x.codec.BrokenFrame(fault)
	}
	_ = f.say(last)
}

// refuse answers with an error: a fault of a provider, or a refusal of the gateway's own.
func (f *httpFront) refuse(err error) error {
	x := f.x
	fault := ownFault(err)
	if fault.Class == agent.ClientAbort {
		return errGone
	}
	if agent.KindOf(err) == agent.Internal && fault.Own {
		x.g.o.Log.Error("gateway: a request failed", "app", x.who.App, "err", err)
	}
	if fault.Class == agent.AuthFault && !fault.Own { // the client's own key is good
		own := *fault
		own.Class, own.Status, own.Type, own.Code = agent.ServerFault, http.StatusBadGateway, "api_error", ""
		own.Message = "the provider refuses the key that this server has for it: " + fault.Message
		if x.last.fault == fault {
			x.last.fault = &own
		}
		fault = &own
	}
	if fault.Message == "" {
		fault.Message = "the provider failed: " + fault.Class.String()
	}
	status, header, body := x.codec.EncodeFault(fault)
	h := make(http.Header, len(header)+6)
	for name, vs := range header {
		h[name] = vs
	}
	for name, vs := range fault.Header {
		if _, ok := h[name]; !ok {
			h[name] = vs
		}
	}
	if last := &x.last; last.fault == fault && last.body != nil && last.c.speaks == x.protocol {
		status, body = fault.Status, last.body
		h["Content-Type"] = []string{last.typ}
	}
	if h["Content-Type"] == nil {
		h["Content-Type"] = []string{"application/json"}
	}
	if fault.After > 0 && h["Retry-After"] == nil {
		h["Retry-After"] = []string{seconds(fault.After)}
	}
	if final(fault) {
		h[headerRetry] = []string{"false"}
	}
	x.mark(h)
	if last := &x.last; last.c != nil {
		h[HeaderModel] = []string{last.c.p.Name + "/" + last.c.model}
	}
	if err := f.start(status, h); err != nil {
		return errGone
	}
	return f.say(body)
}

// final reports whether a client that tries again would do no good. What a provider failed at was tried as often as it makes sense; of the gateway's own
// refusals, limits and providers that rest pass by.
func final(f *wire.Fault) bool {
	if !f.Own {
		return true
	}
	switch f.Class {
	case agent.RateLimited, agent.Overloaded, agent.ServerFault:
		return f.After > maxWait
	}
	return true
}
