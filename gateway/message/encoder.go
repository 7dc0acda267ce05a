package message

import (
	"strconv"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/raw"
)

func (codec) Encoder(r *wire.Request) wire.Encoder { return &encoder{r: r} }

// encoder writes one block after another, as clients of the protocol expect: what comes of a part while the one before it is open is kept until then.
type encoder struct {
	r     *wire.Request
	begun bool
	done  bool
	parts []*part
	at    int // the part that is written now
	held  int // bytes kept
	next  int // index of the next block
	used  wire.Usage
	tier  string
	why   string
}

// part is one that has begun. Its block begins when there is something to say, so that none is empty.
type part struct {
	wire.Part
	text    string // that came while others were written
	thought *wire.Thinking
	signed  bool // the opaque data of a call was written
	opened  bool
	ended   bool
	block   int
}

func (e *encoder) ContentType() string { return "text/event-stream; charset=utf-8" }

func (e *encoder) Append(b []byte, ev wire.Event) []byte {
	if e.done {
		return b
	}
	if ev.Tier != "" {
		e.tier = ev.Tier
	}
	if ev.Usage.Known || ev.Kind == wire.End && ev.Usage.Tokens != (agent.ModelTokens{}) {
		e.used = ev.Usage
	}
	switch ev.Kind {
	case wire.Ping:
		if e.begun {
			b = append(b, "event: ping\ndata: {\"type\":\"ping\"}\n\n"...)
		}
	case wire.Begin:
		if !ev.Usage.Known {
			e.used = ev.Usage // an estimate
		}
		b = e.begin(b, ev)
	case wire.PartBegin:
		if ev.Part.Kind == wire.MediaPart {
			e.done = true
			return append(b, codec{}.BrokenFrame(&wire.Fault{Class: agent.InvalidRequest, Message: noMedia})...)
		}
		b = e.begin(b, ev)
		p := &part{Part: ev.Part}
		if ev.Part.Kind == wire.CallPart {
			p.thought = ev.Part.Thought
		}
		e.parts = append(e.parts, p)
		p.text = p.Part.Text
		if p.Call != nil {
			p.text = p.Call.Args
		}
		e.held += len(p.text)
		b = e.flush(b)
	case wire.PartDelta:
		if p := e.part(ev.Index); p != nil && !p.ended {
			if p.Kind == wire.RefusalPart {
				e.why += ev.Text
			}
			p.text += ev.Text
			e.held += len(ev.Text)
			b = e.flush(b)
		}
	case wire.PartOpaque:
		if p := e.part(ev.Index); p != nil && !p.ended && !p.signed {
			p.thought = ev.Part.Thought
		}
	case wire.PartEnd:
		if p := e.part(ev.Index); p != nil && !p.ended {
			p.ended = true
			b = e.flush(b)
		}
	case wire.End:
		b = e.end(b, ev)
	case wire.Broken:
		b = append(b, codec{}.BrokenFrame(ev.Fault)...)
		e.done = true
	case wire.Used:
	}
	if e.held > wire.MaxFrame {
		b = append(b, codec{}.BrokenFrame(&wire.Fault{Class: agent.StreamBroken, Message: "the provider's answer is in too many pieces at once"})...)
		e.done = true
	}
	return b
}

func (e *encoder) part(i int) *part {
	if i < 0 || i >= len(e.parts) {
		return nil
	}
	return e.parts[i]
}

func (e *encoder) begin(b []byte, ev wire.Event) []byte {
	if e.begun {
		return b
	}
	e.begun = true
	b = append(b, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":"...)
	b = raw.AppendString(b, answerID(ev.ID))
	b = append(b, `,"type":"message","role":"assistant","model":`...)
	b = raw.AppendString(b, modelOf(ev.Model, e.r))
	b = append(b, `,"content":[],"stop_reason":null,"stop_sequence":null,"usage":`...)
	b = appendUsage(b, e.used, e.tier)
	return append(b, "}}\n\n"...)
}

// flush writes what can be written.
func (e *encoder) flush(b []byte) []byte {
	for e.at < len(e.parts) {
		p := e.parts[e.at]
		if p.text != "" || p.Kind == wire.CallPart || p.ended && p.thought != nil {
			b = e.open(b, p)
		}
		if p.text != "" && p.opened {
			b = e.delta(b, p.block, p.Kind, p.text)
		}
		e.held -= len(p.text)
		p.text = ""
		if !p.ended {
			return b
		}
		b = e.close(b, p)
		e.at++
	}
	return b
}

func (e *encoder) start(b []byte) ([]byte, int) {
	n := e.next
	e.next++
	b = append(b, "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":"...)
	b = strconv.AppendInt(b, int64(n), 10)
	return append(b, `,"content_block":`...), n
}

func (e *encoder) open(b []byte, p *part) []byte {
	if p.opened {
		return b
	}
	switch p.Kind {
	case wire.ThoughtPart:
		if t := p.thought; p.text == "" && t != nil && t.Redacted && t.Origin.Protocol == own {
			b, p.block = e.start(b)
			b = appendThought(b, "", t)
			p.thought = nil
			break
		}
		b, p.block = e.start(b)
		b = append(b, `{"type":"thinking","thinking":"","signature":""}`...)
	case wire.CallPart:
		if p.Call == nil || p.Call.Name == "" {
			return b
		}
		b = e.sign(b, p)
		b, p.block = e.start(b)
		b = append(b, `{"type":"tool_use","id":`...)
		b = raw.AppendString(b, cleanID(p.Call.ID))
		b = append(b, `,"name":`...)
		b = raw.AppendString(b, p.Call.Name)
		b = append(b, `,"input":{}}`...)
	case wire.TextPart, wire.RefusalPart:
		b, p.block = e.start(b)
		b = append(b, `{"type":"text","text":""}`...)
	case wire.ResultPart, wire.MediaPart:
		return b
	}
	p.opened = true
	return append(b, "}\n\n"...)
}

// sign writes the opaque data that sits on a call as a thought of its own: a call has no place for it here.
func (e *encoder) sign(b []byte, p *part) []byte {
	if p.thought == nil {
		return b
	}
	p.signed = true
	b, n := e.start(b)
	b = append(b, "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}}\n\n"...)
	b = appendSignature(b, n, p.thought)
	p.thought = nil
	return stopBlock(b, n)
}

func appendSignature(b []byte, n int, t *wire.Thinking) []byte {
	b = append(b, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":"...)
	b = strconv.AppendInt(b, int64(n), 10)
	b = append(b, `,"delta":{"type":"signature_delta","signature":`...)
	b = raw.AppendString(b, signature(t))
	return append(b, "}}\n\n"...)
}

func (e *encoder) delta(b []byte, n int, kind wire.PartKind, text string) []byte {
	b = append(b, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":"...)
	b = strconv.AppendInt(b, int64(n), 10)
	switch kind {
	case wire.ThoughtPart:
		b = append(b, `,"delta":{"type":"thinking_delta","thinking":`...)
	case wire.CallPart:
		b = append(b, `,"delta":{"type":"input_json_delta","partial_json":`...)
	case wire.TextPart, wire.ResultPart, wire.MediaPart, wire.RefusalPart:
		b = append(b, `,"delta":{"type":"text_delta","text":`...)
	}
	b = raw.AppendString(b, text)
	return append(b, "}}\n\n"...)
}

func stopBlock(b []byte, n int) []byte {
	b = append(b, "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":"...)
	b = strconv.AppendInt(b, int64(n), 10)
	return append(b, "}\n\n"...)
}

func (e *encoder) close(b []byte, p *part) []byte {
	if !p.opened {
		return b
	}
	if p.thought != nil && p.Kind == wire.ThoughtPart {
		b = appendSignature(b, p.block, p.thought)
		p.thought = nil
	}
	b = stopBlock(b, p.block)
	if p.Kind == wire.CallPart { // it was told after the call had begun
		b = e.sign(b, p)
	}
	return b
}

func (e *encoder) end(b []byte, ev wire.Event) []byte {
	e.done = true
	if ev.Stop == wire.StopBroken {
		return append(b, codec{}.BrokenFrame(&wire.Fault{Class: agent.StreamBroken, Message: brokenCall})...)
	}
	b = e.begin(b, ev)
	for _, p := range e.parts {
		p.ended = true
	}
	b = e.flush(b)
	b = append(b, "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{"...)
	b = appendStop(b, ev.Stop, ev.StopText, e.why)
	b = append(b, `},"usage":`...)
	b = appendUsage(b, e.used, e.tier)
	return append(b, "}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"...)
}
