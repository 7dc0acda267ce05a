package gemini

import (
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/raw"
	"github.com/tidwall/gjson"
)

// maxParts bounds the parts of an answer.
const maxParts = 4096

func (codec) Decoder(from wire.Origin) wire.Decoder {
	from.Protocol = own
	return &decoder{from: from}
}

// decoder reads chunks. A stream has no terminator: it is complete when a chunk had a reason to finish, and its end is told when it is closed, since
// chunks after that one may still tell usage.
type decoder struct {
	from   wire.Origin
	begun  bool
	done   bool
	id     string
	kind   wire.PartKind
	open   bool // the last part goes on
	signed bool // the open part, a thought, has its signature
	parts  int
	calls  int
	reason string
	block  string
	usage  wire.Usage
	tier   string
	events []wire.Event
}

func (d *decoder) add(e wire.Event) { d.events = append(d.events, e) }

func (d *decoder) broken(f *wire.Fault) {
	d.add(wire.Event{Kind: wire.Broken, Fault: f, Usage: d.usage})
	d.done = true
}

func (d *decoder) failed(message string) {
	d.broken(&wire.Fault{Class: agent.StreamBroken, Message: message})
}

func (d *decoder) Frame(_ string, data []byte) []wire.Event {
	if d.done {
		return nil
	}
	d.events = d.events[:0]
	switch {
	case len(data) > wire.MaxFrame:
		d.failed("the provider sent a frame that is too long")
	case len(data) == 0:
	case !raw.Valid(data):
		d.failed("the provider's stream has a frame that is not valid JSON")
	default:
		list(gjson.ParseBytes(data), func(v gjson.Result) bool {
			d.chunk(v)
			return !d.done
		})
	}
	return d.events
}

func (d *decoder) chunk(v gjson.Result) {
	if e := v.Get("error"); e.Exists() {
		d.broken(streamFault(v))
		return
	}
	if u := usageOf(v.Get("usageMetadata")); u.Known {
		d.usage = u
	}
	if t := tierOf(v); t != "" {
		d.tier = t
	}
	if id := v.Get("responseId").String(); d.id == "" {
		d.id = id
	}
	if !d.begun {
		d.begun = true
		d.add(wire.Event{Kind: wire.Begin, ID: d.id, Model: v.Get("modelVersion").String(), Usage: d.usage, Tier: d.tier})
	} else if d.usage.Known {
		d.add(wire.Event{Kind: wire.Used, Usage: d.usage})
	}
	if b := v.Get("promptFeedback").Get("blockReason").String(); b != "" && b != "BLOCK_REASON_UNSPECIFIED" {
		d.block = b
		if why := v.Get("promptFeedback").Get("blockReasonMessage").String(); why != "" {
			d.block += ": " + why
		}
	}
	c := v.Get("candidates.0")
	c.Get("content").Get("parts").ForEach(func(_, p gjson.Result) bool {
		d.part(p)
		return !d.done
	})
	if r := c.Get("finishReason").String(); r != "" {
		d.reason = r
	}
}

// begin opens a part, and closes the one before it.
func (d *decoder) begin(p wire.Part) int {
	d.end()
	if d.parts >= maxParts {
		d.failed("the provider's answer has too many parts")
		return -1
	}
	i := d.parts
	d.parts++
	d.kind, d.open, d.signed = p.Kind, true, false
	d.add(wire.Event{Kind: wire.PartBegin, Index: i, Part: p})
	return i
}

func (d *decoder) end() {
	if d.open {
		d.open = false
		d.add(wire.Event{Kind: wire.PartEnd, Index: d.parts - 1})
	}
}

func (d *decoder) opaque(i int, kind wire.PartKind, t *wire.Thinking) {
	d.add(wire.Event{Kind: wire.PartOpaque, Index: i, Part: wire.Part{Kind: kind, Thought: t}})
}

func (d *decoder) part(p gjson.Result) {
	var sign *wire.Thinking
	if s := p.Get("thoughtSignature").String(); s != "" {
		sign = &wire.Thinking{Opaque: s, Origin: d.from}
	}
	switch {
	case p.Get("functionCall").IsObject():
		d.call(p.Get("functionCall"), sign)
		return
	case p.Get("inlineData").IsObject():
		m := p.Get("inlineData")
		b := &wire.Blob{MIME: m.Get("mimeType").String(), Data: standard(m.Get("data").String())}
		b.Image = len(b.MIME) > 6 && b.MIME[:6] == "image/"
		if d.begin(wire.Part{Kind: wire.MediaPart, Media: b}) >= 0 {
			d.end()
		}
	case p.Get("thought").Bool():
		d.text(wire.ThoughtPart, p.Get("text").String(), sign)
		return
	case p.Get("text").String() != "":
		d.text(wire.TextPart, p.Get("text").String(), nil)
	}
	if sign != nil && !d.done { // on text or a file, where nothing else has a place for it
		if i := d.begin(wire.Part{Kind: wire.ThoughtPart}); i >= 0 {
			d.opaque(i, wire.ThoughtPart, sign)
			d.end()
		}
	}
}

func (d *decoder) text(kind wire.PartKind, text string, sign *wire.Thinking) {
	if text == "" && sign == nil {
		return
	}
	i := d.parts - 1
	if !d.open || d.kind != kind || d.signed {
		if i = d.begin(wire.Part{Kind: kind}); i < 0 {
			return
		}
	}
	if text != "" {
		d.add(wire.Event{Kind: wire.PartDelta, Index: i, Text: text})
	}
	if sign != nil {
		d.signed = true
		d.opaque(i, kind, sign)
	}
}

func (d *decoder) call(c gjson.Result, sign *wire.Thinking) {
	name := c.Get("name").String()
	switch {
	case c.Get("partialArgs").Exists() || c.Get("willContinue").Bool():
		d.failed("the provider sends the arguments of a call in pieces, which was not asked for")
		return
	case name == "":
		d.failed("the provider's answer has a call of a tool without a name")
		return
	}
	id := c.Get("id").String()
	if id == "" {
		id = callID(d.id, d.calls)
	}
	d.calls++
	i := d.begin(wire.Part{Kind: wire.CallPart, Call: &wire.ToolCall{ID: id, Name: name}, Thought: sign})
	if i < 0 {
		return
	}
	d.add(wire.Event{Kind: wire.PartDelta, Index: i, Text: arguments(c.Get("args"))})
	if sign != nil {
		d.opaque(i, wire.CallPart, sign)
	}
	d.end()
}

func (d *decoder) Close() []wire.Event {
	if d.done {
		return nil
	}
	d.events = nil // what Frame returned is still good
	stop := stopOf(d.reason, d.calls > 0)
	switch {
	case d.reason != "":
	case d.block != "":
		stop = wire.StopFilter
	default:
		d.failed("the provider's stream ended before its end")
		return d.events
	}
	d.end()
	if d.block != "" {
		if i := d.begin(wire.Part{Kind: wire.RefusalPart}); i >= 0 {
			d.add(wire.Event{Kind: wire.PartDelta, Index: i, Text: blockedText + " (" + d.block + ")"})
			d.end()
		}
	}
	d.add(wire.Event{Kind: wire.End, Stop: stop, Usage: d.usage, Tier: d.tier})
	d.done = true
	return d.events
}
