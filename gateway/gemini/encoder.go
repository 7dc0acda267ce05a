package gemini

import (
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/sse"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/raw"
)

func (codec) Encoder(r *wire.Request) wire.Encoder {
	return &encoder{r: r, array: r != nil && r.Array}
}

// encoder writes chunks: of text and thoughts as they come, of calls when they are whole, since the protocol has no pieces of those.
type encoder struct {
	r         *wire.Request
	array     bool
	some      bool // a chunk was written
	done      bool
	id, model string
	parts     []*openPart
	held      int
	used      wire.Usage
}

type openPart struct {
	wire.Part
	args  []byte
	ended bool
}

func (e *encoder) ContentType() string {
	if e.array {
		return "application/json; charset=utf-8"
	}
	return "text/event-stream; charset=utf-8"
}

func (e *encoder) Append(b []byte, ev wire.Event) []byte {
	if e.done {
		return b
	}
	if ev.Usage.Known || ev.Usage.Tokens != (agent.ModelTokens{}) {
		e.used = ev.Usage
	}
	switch ev.Kind {
	case wire.Begin:
		e.id, e.model = ev.ID, ev.Model
	case wire.PartBegin:
		p := &openPart{Part: ev.Part}
		e.parts = append(e.parts, p)
		switch p.Kind {
		case wire.CallPart:
			if p.Call != nil {
				call := *p.Call
				p.Call, p.args = &call, []byte(call.Args)
			}
		case wire.MediaPart:
			b = e.chunk(b, p.Part)
		case wire.TextPart, wire.ThoughtPart, wire.RefusalPart:
			if p.Text != "" {
				b = e.chunk(b, wire.Part{Kind: p.Kind, Text: p.Text})
			}
			if p.Thought != nil {
				b = e.chunk(b, wire.Part{Kind: p.Kind, Thought: p.Thought})
			}
		case wire.ResultPart:
		}
	case wire.PartDelta:
		p := e.part(ev.Index)
		switch {
		case p == nil || ev.Text == "":
		case p.Kind == wire.CallPart:
			p.args = append(p.args, ev.Text...)
			if e.held += len(ev.Text); e.held > wire.MaxFrame {
				return e.broken(b, &wire.Fault{Class: agent.StreamBroken, Message: "the arguments of a call are too long"})
			}
		default:
			b = e.chunk(b, wire.Part{Kind: p.Kind, Text: ev.Text})
		}
	case wire.PartOpaque:
		p := e.part(ev.Index)
		switch {
		case p == nil || ev.Part.Thought == nil:
		case p.Kind == wire.CallPart:
			p.Thought = ev.Part.Thought
		default:
			b = e.chunk(b, wire.Part{Kind: wire.ThoughtPart, Thought: ev.Part.Thought})
		}
	case wire.PartEnd:
		b = e.end(b, e.part(ev.Index))
	case wire.End:
		for _, p := range e.parts {
			b = e.end(b, p)
		}
		if e.done {
			return b
		}
		b = e.last(b, ev)
		e.done = true
	case wire.Broken:
		return e.broken(b, ev.Fault)
	case wire.Used, wire.Ping: // usage is told at the end; the protocol has no sign of life
	}
	return b
}

func (e *encoder) part(i int) *openPart {
	if i < 0 || i >= len(e.parts) || e.parts[i].ended {
		return nil
	}
	return e.parts[i]
}

// end writes a call that is whole.
func (e *encoder) end(b []byte, p *openPart) []byte {
	if p == nil || p.ended || e.done {
		return b
	}
	p.ended = true
	if p.Kind != wire.CallPart || p.Call == nil {
		return b
	}
	e.held -= len(p.args)
	p.Call.Args, p.args = string(p.args), nil
	if !readableCall(p.Part) {
		return e.broken(b, &wire.Fault{Class: agent.StreamBroken, Message: brokenCall})
	}
	return e.chunk(b, p.Part)
}

func (e *encoder) chunk(b []byte, p wire.Part) []byte {
	body, ok := appendPart([]byte(`{"candidates":[{"content":{"parts":[`), p)
	if !ok {
		return b
	}
	body = append(body, `],"role":"model"},"index":0}]`...)
	return e.frame(b, append(appendHead(body, e.model, e.id, e.r), '}'))
}

func (e *encoder) last(b []byte, ev wire.Event) []byte {
	body := []byte(`{"candidates":[{"content":{"parts":[{"text":""}],"role":"model"},"finishReason":`)
	body = raw.AppendString(body, stopName(ev.Stop))
	body = append(body, `,"index":0}],"usageMetadata":`...)
	body = appendUsage(body, e.used)
	b = e.frame(b, append(appendHead(body, e.model, e.id, e.r), '}'))
	if e.array {
		b = append(b, "\n]"...)
	}
	return b
}

func (e *encoder) broken(b []byte, f *wire.Fault) []byte {
	e.done = true
	b = e.frame(b, faultBody(f))
	if e.array {
		b = append(b, "\n]"...)
	}
	return b
}

func (e *encoder) frame(b, data []byte) []byte {
	some := e.some
	e.some = true
	switch {
	case !e.array:
		return sse.Append(b, "", data)
	case some:
		b = append(b, ",\n"...)
	default:
		b = append(b, '[')
	}
	return append(b, data...)
}
