package gateway

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
)

// Ask answers a request in canonical form. With each the answer is streamed to it as it comes, and returned whole at the end; an error of each ends the
// call. The error is an *agent.Error.
func (g *Gateway) Ask(ctx context.Context, who Caller, r *wire.Request, each func(wire.Event) error) (*wire.Answer, error) {
	asked := *r
	asked.Stream = each != nil
	x := &exchange{g: g, ctx: ctx, who: who, op: wire.Generate, asked: &asked, began: g.o.Now(), peek: peekOf(&asked)}
	f := &askFront{each: each}
	x.to = f
	var err error
	if x.book, err = g.book(ctx, who.App); err == nil {
		x.restore(&asked)
		if err = x.startLog(); err == nil {
			defer x.writeLog()
			err = x.run(r.Model)
		}
	}
	switch {
	case err == nil && f.err == nil:
		return f.answer(), nil
	case f.err != nil:
		return nil, agent.AsError(f.err)
	case errors.Is(err, errBroken) && x.last.fault != nil:
		return nil, errorOf(x.last.fault)
	}
	if fault, ok := errors.AsType[*wire.Fault](err); ok {
		return nil, errorOf(fault)
	}
	return nil, agent.AsError(err)
}

// peekOf reads of a request in canonical form what is read of others.
func peekOf(r *wire.Request) wire.Peek {
	p := wire.Peek{Model: r.Model, Stream: r.Stream, Tools: len(r.Tools) > 0, User: r.User}
	if r.MaxTokens != nil {
		p.MaxTokens = *r.MaxTokens
	}
	count := func(parts []wire.Part) {
		for i := range parts {
			q := &parts[i]
			p.Text += len(q.Text)
			switch {
			case q.Call != nil:
				p.Text += len(q.Call.Name) + len(q.Call.Args)
			case q.Media != nil:
				p.Media++
			}
			if q.Result != nil {
				p.Answers(q.Result.CallID)
				for _, in := range q.Result.Parts {
					p.Text += len(in.Text)
					if in.Media != nil {
						p.Media++
					}
				}
			}
			if q.Thought != nil && q.Thought.Opaque != "" {
				p.Signed = true
			}
		}
	}
	count(r.System)
	for i := range r.Messages {
		if r.Messages[i].Role == wire.User {
			p.Last = "" // unless results are in it
		}
		count(r.Messages[i].Parts)
	}
	for i := range r.Tools {
		t := &r.Tools[i]
		p.Text += len(t.Name) + len(t.Description) + len(t.Schema) + len(t.Native)
	}
	return p
}

// askFront is who has the canonical form in hand.
type askFront struct {
	each func(wire.Event) error
	got  *wire.Answer
	all  wire.Collector
	err  error
}

func (f *askFront) gone() bool { return f.err != nil }

func (f *askFront) answer() *wire.Answer {
	if f.got != nil {
		return f.got
	}
	return f.all.Answer()
}

func (f *askFront) whole(_ *shipment, _ http.Header, a *wire.Answer, _ []byte) error {
	own := *a
	own.Parts = slices.Clone(a.Parts)
	a = &own
	f.got = a
	if f.each == nil {
		return nil
	}
	return f.events(a.Events())
}

func (f *askFront) begin(*shipment, http.Header, string) error { return nil }

func (f *askFront) pass([]byte) error { return nil } // nothing is passed to it

func (f *askFront) events(list []wire.Event) error {
	for _, e := range list {
		f.all.Add(e)
		if f.err = f.each(e); f.err != nil {
			return errGone
		}
	}
	return nil
}

func (f *askFront) last() {}

func (f *askFront) broken(*wire.Fault, func(*wire.Fault) []byte) {}

func (f *askFront) end() {}
