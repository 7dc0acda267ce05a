package response

import (
	"encoding/json"
	"strings"

	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/openai"
)

func (codec) Encoder(r *wire.Request) wire.Encoder {
	if r == nil {
		r = &wire.Request{}
	}
	return &encoder{r: r, parts: map[int]*sending{}}
}

// encoder makes the stream of one client: each item from output_item.added to output_item.done, the numbers of the sequence without gaps, and the whole
// response in its last event.
type encoder struct {
	r       *wire.Request
	x       *response
	seq     int64
	ended   bool
	refused bool
	parts   map[int]*sending
	output  []json.RawMessage // by output_index; nil while open
	size    int               // bytes that are kept
	usage   wire.Usage
}

// sending is an item that is open.
type sending struct {
	kind   wire.PartKind
	out    int // output_index
	id     string
	item   string // of the part
	call   wire.ToolCall
	wrap   bool // a custom tool of the client's, called as a function by the model
	text   strings.Builder
	opaque *wire.Thinking
	shown  bool // the summary of a thought has begun
}

func (*encoder) ContentType() string { return "text/event-stream" }

func (e *encoder) Append(b []byte, v wire.Event) []byte {
	if e.ended {
		return b
	}
	switch v.Kind {
	case wire.Ping:
		return append(b, ": ping\n\n"...)
	case wire.Used:
		e.usage = v.Usage
		return b
	case wire.Broken:
		e.ended = true
		var last []byte
		if e.x != nil {
			last = e.state("failed")
		}
		return broken(b, v.Fault, last, e.seq)
	case wire.Begin:
		e.usage = v.Usage
	}
	if e.x == nil {
		b = e.begin(b, v)
	}
	if v.Tier != "" {
		e.x.Tier = v.Tier
	}
	switch v.Kind {
	case wire.PartBegin:
		return e.open(b, v)
	case wire.PartDelta:
		if p := e.parts[v.Index]; p != nil {
			return e.delta(b, p, v.Text)
		}
	case wire.PartOpaque:
		if p := e.parts[v.Index]; p != nil {
			p.opaque = v.Part.Thought
		}
	case wire.PartEnd:
		return e.close(b, v.Index)
	case wire.End:
		return e.end(b, v)
	}
	return b
}

func (e *encoder) send(b []byte, typ string, fields ...any) []byte {
	b = event(b, typ, e.seq, fields...)
	e.seq++
	return b
}

func (e *encoder) state(status string) json.RawMessage {
	x := *e.x
	x.Status = status
	x.Output = []json.RawMessage{}
	for _, v := range e.output {
		if v != nil {
			x.Output = append(x.Output, v)
		}
	}
	return openai.JSON(&x)
}

func (e *encoder) begin(b []byte, v wire.Event) []byte {
	e.x = responseTo(e.r)
	e.x.ID, e.x.Created = idOf(v.ID), unix(v.Created)
	if v.Model != "" {
		e.x.Model = v.Model
	}
	s := e.state("in_progress")
	b = e.send(b, "response.created", "response", s)
	return e.send(b, "response.in_progress", "response", s)
}

// added begins an item.
func (e *encoder) added(b []byte, p *sending, x item) []byte {
	p.id, p.out = x.ID, len(e.output)
	e.output = append(e.output, nil)
	return e.send(b, "response.output_item.added", "output_index", p.out, "item", openai.JSON(x))
}

func (e *encoder) done(b []byte, p *sending, x item) []byte {
	s := openai.JSON(x)
	e.output[p.out] = s
	return e.send(b, "response.output_item.done", "output_index", p.out, "item", s)
}

func (e *encoder) open(b []byte, v wire.Event) []byte {
	p := &sending{kind: v.Part.Kind, opaque: v.Part.Thought, item: v.Part.Item}
	e.parts[v.Index] = p
	switch p.kind {
	case wire.TextPart, wire.RefusalPart:
		e.refused = e.refused || p.kind == wire.RefusalPart
		b = e.added(b, p, item{Type: "message", ID: newID(v.Part, "msg_"), Status: "in_progress", Role: "assistant", Content: emptyList})
		b = e.send(b, "response.content_part.added", "item_id", p.id, "output_index", p.out, "content_index", 0, "part", e.part(p, ""))
	case wire.ThoughtPart:
		b = e.added(b, p, thoughtItem(newID(v.Part, "rs_"), "in_progress", "", ""))
	case wire.CallPart:
		if v.Part.Call == nil {
			delete(e.parts, v.Index)
			return b
		}
		p.call = *v.Part.Call
		p.call.Args = ""
		p.wrap = !p.call.Custom && offersCustom(e.r, p.call.Name)
		p.call.Custom = p.call.Custom || p.wrap
		if p.opaque != nil {
			b = e.signed(b, p)
		}
		b = e.added(b, p, callItem(newID(v.Part, callPrefix(p.call)), "in_progress", p.call))
		return e.delta(b, p, v.Part.Call.Args)
	default: // there is no word for media
		delete(e.parts, v.Index)
		return b
	}
	return e.delta(b, p, v.Part.Text)
}

// signed tells opaque data that sits on a call, as an item of its own.
func (e *encoder) signed(b []byte, p *sending) []byte {
	s := wire.SealCall(p.opaque, p.call.ID)
	p.opaque = nil
	t := &sending{}
	b = e.added(b, t, thoughtItem(signID(p.item), "in_progress", "", ""))
	return e.done(b, t, thoughtItem(t.id, "completed", "", s))
}

func (e *encoder) part(p *sending, s string) json.RawMessage {
	if p.kind == wire.RefusalPart {
		return openai.JSON(struct {
			Type    string `json:"type"`
			Refusal string `json:"refusal"`
		}{"refusal", s})
	}
	return openai.JSON(outputText(s))
}

func (e *encoder) delta(b []byte, p *sending, s string) []byte {
	if s == "" {
		return b
	}
	if e.size += len(s); e.size <= 4*wire.MaxFrame {
		p.text.WriteString(s)
	}
	switch p.kind {
	case wire.TextPart:
		return e.send(b, "response.output_text.delta", "item_id", p.id, "output_index", p.out, "content_index", 0, "delta", s, "logprobs", emptyList)
	case wire.RefusalPart:
		return e.send(b, "response.refusal.delta", "item_id", p.id, "output_index", p.out, "content_index", 0, "delta", s)
	case wire.ThoughtPart:
		if !p.shown {
			p.shown = true
			empty := ""
			b = e.send(b, "response.reasoning_summary_part.added", "item_id", p.id, "output_index", p.out, "summary_index", 0,
				"part", openai.JSON(content{Type: "summary_text", Text: &empty}))
		}
		return e.send(b, "response.reasoning_summary_text.delta", "item_id", p.id, "output_index", p.out, "summary_index", 0, "delta", s)
	}
	switch {
	case p.wrap: // until it is whole
		return b
	case p.call.Custom:
		return e.send(b, "response.custom_tool_call_input.delta", "item_id", p.id, "output_index", p.out, "delta", s)
	}
	return e.send(b, "response.function_call_arguments.delta", "item_id", p.id, "output_index", p.out, "delta", s)
}

func (e *encoder) close(b []byte, index int) []byte {
	p := e.parts[index]
	if p == nil {
		return b
	}
	delete(e.parts, index)
	s := p.text.String()
	switch p.kind {
	case wire.TextPart, wire.RefusalPart:
		if p.kind == wire.TextPart {
			b = e.send(b, "response.output_text.done", "item_id", p.id, "output_index", p.out, "content_index", 0, "text", s, "logprobs", emptyList)
		} else {
			b = e.send(b, "response.refusal.done", "item_id", p.id, "output_index", p.out, "content_index", 0, "refusal", s)
		}
		b = e.send(b, "response.content_part.done", "item_id", p.id, "output_index", p.out, "content_index", 0, "part", e.part(p, s))
		return e.done(b, p, messageItem(p.id, "completed", wire.Part{Kind: p.kind, Text: s}))
	case wire.ThoughtPart:
		if p.shown {
			b = e.send(b, "response.reasoning_summary_text.done", "item_id", p.id, "output_index", p.out, "summary_index", 0, "text", s)
			b = e.send(b, "response.reasoning_summary_part.done", "item_id", p.id, "output_index", p.out, "summary_index", 0,
				"part", openai.JSON(content{Type: "summary_text", Text: &s}))
		}
		sealed := ""
		if p.opaque != nil {
			sealed = wire.Seal(p.opaque)
		}
		return e.done(b, p, thoughtItem(p.id, "completed", s, sealed))
	}
	return e.closeCall(b, p, s)
}

func (e *encoder) closeCall(b []byte, p *sending, s string) []byte {
	switch {
	case p.wrap:
		s = wire.UnwrapCustom(s)
		if s != "" {
			b = e.send(b, "response.custom_tool_call_input.delta", "item_id", p.id, "output_index", p.out, "delta", s)
		}
		fallthrough
	case p.call.Custom:
		b = e.send(b, "response.custom_tool_call_input.done", "item_id", p.id, "output_index", p.out, "input", s)
	default:
		if strings.TrimSpace(s) == "" {
			s = "{}"
			b = e.send(b, "response.function_call_arguments.delta", "item_id", p.id, "output_index", p.out, "delta", s)
		}
		b = e.send(b, "response.function_call_arguments.done", "item_id", p.id, "output_index", p.out, "name", p.call.Name, "arguments", s)
	}
	p.call.Args = s
	b = e.done(b, p, callItem(p.id, "completed", p.call))
	if p.opaque != nil {
		b = e.signed(b, p)
	}
	return b
}

func (e *encoder) end(b []byte, v wire.Event) []byte {
	for i := 0; len(e.parts) > 0 && i < 1<<20; i++ { // a decoder ends each; this is for those that do not
		b = e.close(b, i)
	}
	e.ended = true
	if v.Usage.Known {
		e.usage = v.Usage
	}
	e.x.settle(v.Stop, e.refused, e.usage)
	return e.send(b, "response."+e.x.Status, "response", e.state(e.x.Status))
}
