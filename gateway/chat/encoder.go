package chat

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/skep-dev/skep/gateway/sse"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/openai"
	"github.com/skep-dev/skep/gateway/wire/raw"
)

func (codec) Encoder(r *wire.Request) wire.Encoder {
	if r == nil {
		r = &wire.Request{}
	}
	return &encoder{r: r, parts: map[int]*sending{}}
}

// encoder makes the stream of one client.
type encoder struct {
	r     *wire.Request
	head  answer
	begun bool
	ended bool
	calls int
	parts map[int]*sending
	usage wire.Usage
	said  [2]template // of chunks that are a piece of text or of a thought
	tier  string      // that they are good for
}

// template is a chunk without its text.
type template struct{ before, after []byte }

// sending is a part that is open.
type sending struct {
	kind wire.PartKind
	call int // its number among calls, which is all that later pieces have
	id   string
	text strings.Builder // of a thought, for its signature; of a custom tool's arguments, until they are whole
	wrap bool            // a custom tool of the client's, called as a function by the model
	free bool            // free text
	any  bool
}

func (*encoder) ContentType() string { return "text/event-stream" }

func (e *encoder) Append(b []byte, v wire.Event) []byte {
	if e.ended {
		return b
	}
	switch v.Kind {
	case wire.Ping:
		return append(b, ": ping\n\n"...)
	case wire.Begin:
		e.usage = v.Usage
		return e.begin(b, v)
	case wire.Used:
		e.usage = v.Usage
		return b
	case wire.Broken:
		e.ended = true
		return append(b, codec{}.BrokenFrame(v.Fault)...)
	}
	if !e.begun {
		b = e.begin(b, wire.Event{})
	}
	if v.Tier != "" {
		e.head.Tier = v.Tier
	}
	switch v.Kind {
	case wire.PartBegin:
		return e.open(b, v)
	case wire.PartDelta:
		return e.delta(b, v)
	case wire.PartOpaque:
		return e.opaque(b, v.Index, v.Part.Thought)
	case wire.PartEnd:
		return e.close(b, v.Index)
	case wire.End:
		return e.end(b, v)
	}
	return b
}

func (e *encoder) begin(b []byte, v wire.Event) []byte {
	if e.begun {
		return b
	}
	e.begun = true
	e.head = answer{ID: idOf(v.ID), Object: "chat.completion.chunk", Created: unix(v.Created), Model: v.Model, Tier: v.Tier}
	if e.head.Model == "" {
		e.head.Model = e.r.Model
	}
	return e.send(b, turn{Role: "assistant", Content: json.RawMessage(`""`)})
}

func (e *encoder) send(b []byte, t turn) []byte { return e.chunk(b, &choice{Delta: &t}) }

func (e *encoder) chunk(b []byte, c *choice) []byte {
	x := e.head
	x.Choices = []choice{}
	if c != nil {
		x.Choices = append(x.Choices, *c)
		if e.r.StreamUse {
			x.Usage = json.RawMessage("null")
		}
	} else {
		x.Usage = openai.ChatUsage(e.usage)
	}
	return sse.Append(b, "", openai.JSON(&x))
}

// text is send of a piece of text, or of a thought: nearly all chunks of most streams, which differ in nothing else.
func (e *encoder) text(b []byte, kind int, s string) []byte {
	if e.tier != e.head.Tier {
		e.tier, e.said = e.head.Tier, [2]template{}
	}
	t := &e.said[kind]
	if t.before == nil {
		const delta = `"delta":{`
		chunk := e.send(nil, turn{})
		at := bytes.Index(chunk, []byte(delta)) + len(delta) // the first one: in a string its quotes would be escaped
		t.before, t.after = append(bytes.Clone(chunk[:at]), [...]string{`"content":`, `"reasoning_content":`}[kind]...), chunk[at:]
	}
	b = append(b, t.before...)
	b = raw.AppendString(b, s)
	return append(b, t.after...)
}

func (e *encoder) open(b []byte, v wire.Event) []byte {
	p := &sending{kind: v.Part.Kind}
	e.parts[v.Index] = p
	switch p.kind {
	case wire.CallPart:
		if v.Part.Call == nil {
			return b
		}
		c := *v.Part.Call
		p.id, p.call = c.ID, e.calls
		e.calls++
		p.wrap = !c.Custom && offersCustom(e.r, c.Name)
		p.free = c.Custom || p.wrap
		x := call{Index: &p.call, ID: c.ID, Type: "function", Function: &function{Name: c.Name, Args: json.RawMessage(`""`)}}
		if p.free {
			x.Type, x.Function, x.Custom = "custom", nil, &custom{Name: c.Name}
		}
		b = e.send(b, turn{Calls: []call{x}})
		if c.Args != "" {
			b = e.delta(b, wire.Event{Index: v.Index, Text: c.Args})
		}
	case wire.MediaPart:
		if x, err := piece(v.Part); err == nil && x.Image != nil {
			b = e.send(b, turn{Images: []part{x}})
		}
	default:
		if v.Part.Text != "" {
			b = e.delta(b, wire.Event{Index: v.Index, Text: v.Part.Text})
		}
	}
	if v.Part.Thought != nil {
		b = e.opaque(b, v.Index, v.Part.Thought)
	}
	return b
}

func (e *encoder) delta(b []byte, v wire.Event) []byte {
	p := e.parts[v.Index]
	if p == nil || v.Text == "" {
		return b
	}
	switch p.kind {
	case wire.TextPart:
		return e.text(b, 0, v.Text)
	case wire.RefusalPart:
		return e.send(b, turn{Refusal: v.Text})
	case wire.ThoughtPart:
		if p.text.Len()+len(v.Text) <= wire.MaxFrame {
			p.text.WriteString(v.Text)
		}
		return e.text(b, 1, v.Text)
	case wire.CallPart:
		if p.wrap {
			if p.text.Len()+len(v.Text) <= wire.MaxFrame {
				p.text.WriteString(v.Text)
			}
			return b
		}
		p.any = true
		return e.args(b, p, v.Text)
	}
	return b
}

func (e *encoder) args(b []byte, p *sending, s string) []byte {
	x := call{Index: &p.call}
	if p.free {
		x.Custom = &custom{Input: s}
	} else {
		x.Function = &function{Args: openai.String(s)}
	}
	return e.send(b, turn{Calls: []call{x}})
}

func (e *encoder) opaque(b []byte, index int, t *wire.Thinking) []byte {
	p := e.parts[index]
	if p == nil || t == nil {
		return b
	}
	text := ""
	if p.kind == wire.ThoughtPart {
		text = p.text.String()
	}
	return e.send(b, turn{Details: []json.RawMessage{sealedDetail(text, t, index, p.id)}})
}

func (e *encoder) close(b []byte, index int) []byte {
	p := e.parts[index]
	if p == nil {
		return b
	}
	delete(e.parts, index)
	switch {
	case p.kind != wire.CallPart:
	case p.wrap:
		b = e.args(b, p, wire.UnwrapCustom(p.text.String()))
	case !p.any && !p.free:
		b = e.args(b, p, "{}")
	}
	return b
}

func (e *encoder) end(b []byte, v wire.Event) []byte {
	e.ended = true
	if v.Usage.Known {
		e.usage = v.Usage
	}
	reason := reasonOf(v.Stop)
	b = e.chunk(b, &choice{Delta: &turn{}, Finish: &reason})
	if e.r.StreamUse && e.usage.Known {
		b = e.chunk(b, nil)
	}
	return sse.Append(b, "", []byte("[DONE]"))
}
