package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/guard"
	"github.com/skep-dev/skep/gateway/leak"
	"github.com/skep-dev/skep/gateway/sse"
	"github.com/skep-dev/skep/gateway/wire"
)

var chunks = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

// keptBytes is how large a buffer may be that is used again.
const keptBytes = 128 << 10

// lists are of events on their way to a client.
var lists = sync.Pool{New: func() any { l := make([]wire.Event, 0, 16); return &l }}

// keptEvents is how many events a list may have room for and be used again.
const keptEvents = 256

// afterEnd is how long a stream may take to close after its terminator.
const afterEnd = 2 * time.Second

// passWhole passes an answer that is not streamed.
func (x *exchange) passWhole(ctx context.Context, s *shipment, res *http.Response, r io.Reader) *wire.Fault {
	b, fault := x.whole(ctx, s, res, r)
	if fault != nil {
		return fault
	}
	m := s.codec.Meter(false)
	m.Write(b)
	st := m.State()
	l := s.call
	l.was = heard{usage: st.Usage, chars: st.Chars, whole: st.Ended, stop: st.Stop, tier: st.Tier}
	if st.Fault != nil && !st.Content {
		return x.failed(s, cleaned(st.Fault, s.clean), b, "application/json")
	}
	if f := x.again(l, st.Stop, st.Content); f != nil {
		return x.failed(s, f, nil, "")
	}
	l.content()
	if b, fault = x.clearWhole(s, b); fault != nil {
		return x.failed(s, fault, nil, "")
	}
	x.remember(s.from, st.Calls)
	l.end(nil) // before the answer is told: who has read it finds what it used
	if err := x.to.whole(s, res.Header, nil, b); err != nil {
		return ownFaultOf(agent.ClientAbort, 499, errGone.Error())
	}
	return nil
}

// passStream passes a stream, frame by frame.
func (x *exchange) passStream(ctx context.Context, s *shipment, res *http.Response, r io.Reader, typ string, framed bool) *wire.Fault {
	p := chunks.Get().(*[]byte)
	defer chunks.Put(p)
	if !framed && s.clean != nil {
		r = s.clean.Reader(r)
	}
	m := s.codec.Meter(true)
	l := s.call
	defer x.to.end()
	if b, ok := m.(wire.Breaker); ok {
		s.last = b.Broken
	}
	var held []byte // withheld: until the first content, then what is no whole frame yet
	spelled := leak.NewFrames(s.clean, m, func() wire.Meter { return s.codec.Meter(true) }, framed)
	pass := func(b []byte, last bool) error { return x.to.pass(s.cleanBytes(spelled.Pass(b, last))) }
	if s.Strip != nil { // without the frames that the client did not ask for
		f := sse.NewFilter(wire.MaxFrame, s.Strip)
		var kept []byte
		pass = func(b []byte, last bool) error {
			kept = f.Append(kept[:0], s.cleanBytes(spelled.Pass(b, last)))
			if last {
				kept = f.Flush(kept)
			}
			return x.to.pass(kept)
		}
	}
	finish := func() wire.MeterState {
		st := m.State()
		l.was = heard{usage: st.Usage, chars: st.Chars, whole: st.Ended, stop: st.Stop, tier: st.Tier}
		return st
	}
	for {
		n, err := r.Read(*p)
		rest := held // what is passed at the end
		if n > 0 {
			m.Write((*p)[:n])
			out := (*p)[:n]
			if len(held) > 0 || !x.content {
				held = append(held, out...)
				out = held
			}
			if !x.content {
				st := m.State()
				if st.Fault != nil { // also after content, as long as none of it has been sent
					finish()
					return x.failed(s, cleaned(st.Fault, s.clean), nil, "")
				}
				if st.Ended {
					if f := x.again(l, st.Stop, st.Content); f != nil {
						finish()
						return x.failed(s, f, nil, "")
					}
				}
				if st.Content && err == nil || st.Ended || len(held) > maxPreamble {
					if f := x.beginStream(s, res.Header, typ); f != nil {
						finish()
						return f
					}
				}
			}
			switch {
			case err != nil && m.State().Ended: // all of it goes at the end, once the ledger has the call
				rest = out
			case x.content:
				whole := len(out)
				if framed {
					whole = frames(out)
				}
				if len(out)-whole > wire.MaxFrame {
					finish()
					return x.failed(s, &wire.Fault{Class: agent.StreamBroken, Status: http.StatusBadGateway, Message: "a frame of the stream is longer than may be"}, nil, "")
				}
				if pass(out[:whole], false) != nil {
					finish()
					return ownFaultOf(agent.ClientAbort, 499, errGone.Error())
				}
				held = append(held[:0], out[whole:]...)
				rest = held
			}
		}
		if err == nil {
			continue
		}
		st := finish()
		if x.content && !st.Ended && pass(nil, true) != nil { // what was held back as it may have been a key, and the provider's own error with it
			return ownFaultOf(agent.ClientAbort, 499, errGone.Error())
		}
		switch {
		case st.Fault != nil:
			f := cleaned(st.Fault, s.clean)
			s.told = true
			return x.failed(s, f, nil, "")
		case st.Ended: // however its connection ended
		case !errors.Is(err, io.EOF):
			return x.failed(s, cleaned(x.faultOf(ctx, l.c.p, err, true), s.clean), nil, "")
		default:
			return x.failed(s, cleaned(x.faultOf(ctx, l.c.p, io.ErrUnexpectedEOF, true), s.clean), nil, "")
		}
		x.remember(s.from, st.Calls)
		if !x.content {
			if f := x.beginStream(s, res.Header, typ); f != nil {
				return f
			}
		}
		l.end(nil)
		x.to.last()
		if pass(rest, true) != nil {
			return ownFaultOf(agent.ClientAbort, 499, errGone.Error())
		}
		return nil
	}
}

// beginStream begins to answer the client. From here on no other candidate can be asked.
func (x *exchange) beginStream(s *shipment, from http.Header, typ string) *wire.Fault {
	s.call.content()
	x.content = true
	if err := x.to.begin(s, from, typ); err != nil {
		if errors.Is(err, errGone) {
			return ownFaultOf(agent.ClientAbort, 499, errGone.Error())
		}
		x.content = false
		f := ownFault(err)
		f.Own = true
		return x.failed(s, f, nil, "")
	}
	return nil
}

// frames is how many bytes of b are whole frames of server-sent events.
func frames(b []byte) int {
	n := 0
	if i := bytes.LastIndex(b, []byte("\n\n")); i >= 0 {
		n = i + 2
	}
	if i := bytes.LastIndex(b[n:], []byte("\r\n\r\n")); i >= 0 {
		n += i + 4
	}
	if i := bytes.LastIndex(b[n:], []byte("\r\r")); i >= 0 {
		n += i + 2
	}
	return n
}

// translateWhole decodes an answer that is not streamed, and gives it to who asked.
func (x *exchange) translateWhole(ctx context.Context, s *shipment, res *http.Response, r io.Reader) *wire.Fault {
	b, fault := x.whole(ctx, s, res, r)
	if fault != nil {
		return fault
	}
	a, err := s.codec.DecodeAnswer(b, s.from)
	if err != nil {
		if f, ok := errors.AsType[*wire.Fault](err); ok { // an error with the status of a success
			return x.failed(s, cleaned(f, s.clean), nil, "")
		}
		return x.failed(s, &wire.Fault{
			Class: agent.ServerFault, Status: http.StatusBadGateway, Type: "upstream_error", Message: "the answer of the provider " + s.call.c.p.Name + " cannot be read: " + agent.AsError(err).Msg,
		}, nil, "")
	}
	if f := x.again(s.call, a.Stop, len(a.Parts) > 0); f != nil {
		s.call.heard(a)
		return x.failed(s, f, nil, "")
	}
	clear, found := s.guard.Answer(a)
	if found != nil {
		s.call.heard(a)
		return x.failed(s, x.guarded(s.call.c, found, "answer"), nil, "")
	}
	return x.tell(s, res.Header, clear)
}

// heard notes what was read of a whole answer.
func (l *call) heard(a *wire.Answer) {
	l.was = heard{usage: a.Usage, whole: true, stop: a.Stop, tier: a.Tier}
	for _, p := range a.Parts {
		l.was.chars += len(p.Text)
		if p.Call != nil {
			l.was.chars += len(p.Call.Name) + len(p.Call.Args)
		}
	}
}

// tell gives a whole answer to who asked.
func (x *exchange) tell(s *shipment, from http.Header, a *wire.Answer) *wire.Fault {
	l := s.call
	l.heard(a)
	l.content()
	if x.keepsItems() {
		for i := range a.Parts {
			nameItem(&a.Parts[i])
		}
		x.keepItems(s.from, a.Parts)
	}
	if !a.Usage.Known { // the client is told the same figures as the ledger
		a.Usage.Tokens, _ = l.tokens(nil)
	}
	x.rememberParts(s.from, a.Parts)
	l.end(nil)
	defer x.to.end()
	x.content = x.peek.Stream
	if err := x.to.whole(s, from, a, nil); err != nil {
		if errors.Is(err, errGone) {
			return ownFaultOf(agent.ClientAbort, 499, errGone.Error())
		}
		x.content = false
		return x.failed(s, ownFault(err), nil, "")
	}
	return nil
}

// decoding is a stream on its way through the canonical form.
type decoding struct {
	held  []wire.Event // withheld until the first content, then those of one read
	size  int
	fault *wire.Fault
	ended bool
	found bool // the first content
	parts wire.Collector
	keep  bool   // parts are needed: calls of tools came
	plain []bool // by index, parts of text, which are not kept of a stream
}

// translateStream decodes a stream, and gives it to who asked, as a stream or, where none was asked for, whole.
func (x *exchange) translateStream(ctx context.Context, s *shipment, res *http.Response, r io.Reader) *wire.Fault {
	p := chunks.Get().(*[]byte)
	defer chunks.Put(p)
	l := s.call
	defer x.to.end()
	dec := s.codec.Decoder(s.from)
	parser := sse.Parser{Max: wire.MaxFrame}
	list := lists.Get().(*[]wire.Event)
	d := decoding{held: (*list)[:0]}
	defer func() {
		if cap(d.held) <= keptEvents {
			clear(d.held)
			*list = d.held[:0]
			lists.Put(list)
		}
	}()
	var watch *guard.Stream
	if s.guard != nil {
		watch = s.guard.Stream()
	}
	spelled := leak.NewEvents(s.clean)
	take := func(list []wire.Event) {
		list = spelled.Take(list)
		if watch != nil && d.fault == nil {
			clear, found := watch.Events(list)
			if found != nil {
				x.usageOf(l, list)
				d.fault = x.guarded(l.c, found, "answer")
				return
			}
			list = clear
		}
		for i := range list {
			x.take(l, &d, &list[i])
		}
	}
	for {
		n, err := r.Read(*p)
		for b := (*p)[:n]; len(b) > 0 && !d.ended && d.fault == nil; {
			n, name, data, ok, err := parser.Next(b)
			b = b[n:]
			switch {
			case err != nil:
				d.fault = &wire.Fault{Class: agent.StreamBroken, Status: http.StatusBadGateway, Message: "a frame of the stream is longer than may be"}
			case ok:
				take(dec.Frame(name, s.cleanBytes(data)))
			}
			if x.peek.Stream && d.found && !x.content && !d.ended && d.fault == nil { // the first content does not wait for what has come with it
				if f := x.flow(s, &d, res.Header); f != nil {
					return f
				}
			}
		}
		if err != nil && !d.ended && d.fault == nil {
			if name, data, ok := parser.Flush(); ok && errors.Is(err, io.EOF) {
				take(dec.Frame(name, s.cleanBytes(data)))
			}
			if !d.ended && d.fault == nil {
				if !errors.Is(err, io.EOF) {
					d.fault = x.faultOf(ctx, l.c.p, err, true)
				} else if take(dec.Close()); !d.ended && d.fault == nil {
					d.fault = x.faultOf(ctx, l.c.p, io.ErrUnexpectedEOF, true)
				}
			}
		}
		if d.ended && d.fault == nil {
			d.fault = x.again(l, l.was.stop, d.found)
		}
		if x.peek.Stream && (d.ended || d.found || d.size > maxPreamble) && (d.fault == nil || x.content) {
			if f := x.flow(s, &d, res.Header); f != nil {
				return f
			}
		}
		if d.fault != nil {
			if x.gone() {
				d.fault = ownFaultOf(agent.ClientAbort, 499, errGone.Error())
			}
			return x.failed(s, cleaned(d.fault, s.clean), nil, "")
		}
		if d.ended {
			if err == nil { // what closes the stream lets its connection be used again
				s.idle = afterEnd
				s.silence.Reset(afterEnd)
				_, _ = io.Copy(io.Discard, io.LimitReader(r, 64<<10))
			}
			if !x.peek.Stream {
				return x.tell(s, res.Header, d.parts.Answer())
			}
			return nil
		}
	}
}

// usageOf notes what events tell of usage that are not told.
func (x *exchange) usageOf(l *call, list []wire.Event) {
	for i := range list {
		if e := &list[i]; e.Usage.Known {
			l.was.usage = e.Usage
		}
		l.was.chars += len(list[i].Text)
	}
}

// take looks at an event and keeps it for the client.
func (x *exchange) take(l *call, d *decoding, e *wire.Event) {
	if d.ended || d.fault != nil {
		return
	}
	switch e.Kind {
	case wire.Begin, wire.Used:
		if e.Usage.Known {
			l.was.usage = e.Usage
		}
	case wire.PartDelta:
		l.was.chars += len(e.Text)
	case wire.PartBegin:
		if x.keepsItems() {
			nameItem(&e.Part)
		}
		if e.Part.Call != nil {
			l.was.chars += len(e.Part.Call.Name)
			d.keep = true
		}
	case wire.End:
		if e.Usage.Known {
			l.was.usage = e.Usage
		}
		l.was.whole, l.was.stop, d.ended = true, e.Stop, true
		if !e.Usage.Known {
			e.Usage.Tokens, _ = l.tokens(nil)
		}
	case wire.Broken:
		d.fault = e.Fault
		if d.fault == nil {
			d.fault = &wire.Fault{Class: agent.StreamBroken, Status: http.StatusBadGateway, Message: "the answer of the provider " + l.c.p.Name + " ended in the middle"}
		}
		return
	case wire.Ping:
		return
	case wire.PartOpaque, wire.PartEnd:
	}
	if e.Tier != "" {
		l.was.tier = e.Tier
	}
	switch {
	case !x.peek.Stream:
		d.parts.Add(*e)
	case e.Kind == wire.PartBegin:
		for len(d.plain) <= e.Index {
			d.plain = append(d.plain, false)
		}
		d.plain[e.Index] = e.Part.Kind == wire.TextPart && !x.keepsItems()
		d.parts.Add(*e)
	case e.Kind == wire.PartDelta && e.Index < len(d.plain) && d.plain[e.Index]:
	default:
		d.parts.Add(*e)
	}
	if !x.content {
		d.size += len(e.Text) + 64
		d.found = d.found || e.Content()
	}
	if x.peek.Stream {
		d.held = append(d.held, *e)
	}
}

// flow gives what is held to the client.
func (x *exchange) flow(s *shipment, d *decoding, from http.Header) *wire.Fault {
	if len(d.held) == 0 {
		return nil
	}
	if !x.content {
		if f := x.beginStream(s, from, ""); f != nil {
			return f
		}
	}
	if d.ended {
		if d.keep {
			x.rememberParts(s.from, d.parts.Answer().Parts)
		}
		if x.keepsItems() {
			x.keepItems(s.from, d.parts.Answer().Parts)
		}
		s.call.end(nil)
		x.to.last()
	}
	err := x.to.events(d.held)
	clear(d.held)
	d.held, d.size = d.held[:0], 0
	if err != nil {
		return ownFaultOf(agent.ClientAbort, 499, errGone.Error())
	}
	return nil
}
