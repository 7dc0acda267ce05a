package message

import (
	"maps"
	"slices"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/raw"
	"github.com/tidwall/gjson"
)

// maxParts bounds the blocks of an answer.
const maxParts = 4096

func (codec) Decoder(from wire.Origin) wire.Decoder {
	from.Protocol = own
	return &decoder{from: from, open: map[int64]*openBlock{}}
}

type openBlock struct {
	index     int // canonical
	kind      wire.PartKind
	input     string // arguments that came with the start
	said      bool   // arguments came in pieces
	signature strings.Builder
	redacted  bool
}

type decoder struct {
	from   wire.Origin
	begun  bool
	done   bool
	open   map[int64]*openBlock // by the provider's index; nil for a block that is not translated
	parts  int
	used   figures
	stop   wire.Stop
	text   string
	why    string
	events []wire.Event
}

func (d *decoder) add(e wire.Event) { d.events = append(d.events, e) }

func (d *decoder) broken(f *wire.Fault) {
	d.add(wire.Event{Kind: wire.Broken, Fault: f, Usage: d.used.usage()})
	d.done = true
}

func (d *decoder) failed(message string) {
	d.broken(&wire.Fault{Class: agent.StreamBroken, Message: message})
}

func (d *decoder) Frame(name string, data []byte) []wire.Event {
	if d.done {
		return nil
	}
	d.events = d.events[:0]
	if len(data) > wire.MaxFrame {
		d.failed("the provider sent a frame that is too long")
		return d.events
	}
	if at, text, ok := textDelta(data); ok {
		d.say(d.open[at], string(text))
		return d.events
	}
	if !raw.Valid(data) {
		if name == "ping" || len(data) == 0 {
			return nil
		}
		d.failed("the provider's stream has a frame that is not valid JSON")
		return d.events
	}
	v := gjson.ParseBytes(data)
	kind := v.Get("type").Str
	if kind == "" {
		kind = name
	}
	switch kind {
	case "message_start":
		m := v.Get("message")
		d.used.take(m.Get("usage"))
		if d.begun {
			break
		}
		d.begun = true
		d.add(wire.Event{Kind: wire.Begin, ID: m.Get("id").String(), Model: m.Get("model").String(), Usage: d.used.usage(), Tier: d.used.tier})
	case "content_block_start":
		d.start(v.Get("index").Int(), v.Get("content_block"))
	case "content_block_delta":
		d.delta(v.Get("index").Int(), v.Get("delta"))
	case "content_block_stop":
		d.end(v.Get("index").Int())
	case "message_delta":
		delta := v.Get("delta")
		if s := delta.Get("stop_reason"); s.Type == gjson.String {
			d.stop, d.text = stops[s.Str], delta.Get("stop_sequence").String()
			d.why = delta.Get("stop_details").Get("explanation").String()
		}
		if u := v.Get("usage"); u.IsObject() {
			d.used.take(u)
			d.add(wire.Event{Kind: wire.Used, Usage: d.used.usage(), Tier: d.used.tier})
		}
	case "message_stop":
		d.finish()
	case "error":
		d.broken(streamFault(v))
	case "ping":
		d.add(wire.Event{Kind: wire.Ping})
	}
	return d.events
}

func (d *decoder) finish() {
	for _, at := range slices.Sorted(maps.Keys(d.open)) { // a provider that forgot to end them
		d.end(at)
	}
	if d.why != "" && d.stop == wire.StopFilter {
		i := d.parts
		d.parts++
		d.add(wire.Event{Kind: wire.PartBegin, Index: i, Part: wire.Part{Kind: wire.RefusalPart}})
		d.add(wire.Event{Kind: wire.PartDelta, Index: i, Text: d.why})
		d.add(wire.Event{Kind: wire.PartEnd, Index: i})
	}
	d.add(wire.Event{Kind: wire.End, Stop: d.stop, StopText: d.text, Usage: d.used.usage(), Tier: d.used.tier})
	d.done = true
}

func (d *decoder) start(at int64, b gjson.Result) {
	if d.open[at] != nil {
		d.end(at)
	}
	o := &openBlock{}
	p := wire.Part{}
	text := ""
	switch b.Get("type").Str {
	case "text":
		text = b.Get("text").String()
	case "thinking":
		p.Kind, text = wire.ThoughtPart, b.Get("thinking").String()
		o.signature.WriteString(b.Get("signature").String())
	case "redacted_thinking":
		p.Kind, o.redacted = wire.ThoughtPart, true
		o.signature.WriteString(b.Get("data").String())
	case "tool_use":
		p.Kind, p.Call = wire.CallPart, &wire.ToolCall{ID: b.Get("id").String(), Name: b.Get("name").String()}
		if p.Call.ID == "" || p.Call.Name == "" {
			d.failed("the provider's stream has a call of a tool without an id or a name")
			return
		}
		o.input = arguments(b.Get("input"))
	default:
		return
	}
	if d.parts >= maxParts {
		d.failed("the provider's answer has too many parts")
		return
	}
	o.index, o.kind = d.parts, p.Kind
	d.parts++
	d.open[at] = o
	d.add(wire.Event{Kind: wire.PartBegin, Index: o.index, Part: p})
	if text != "" {
		d.add(wire.Event{Kind: wire.PartDelta, Index: o.index, Text: text})
	}
}

func (d *decoder) delta(at int64, v gjson.Result) {
	o := d.open[at]
	if o == nil {
		return
	}
	text := ""
	switch v.Get("type").Str {
	case "text_delta":
		d.say(o, v.Get("text").String())
		return
	case "thinking_delta":
		if o.kind == wire.ThoughtPart {
			text = v.Get("thinking").String()
		}
	case "input_json_delta":
		if o.kind == wire.CallPart {
			text = v.Get("partial_json").String()
			o.said = o.said || text != ""
		}
	case "signature_delta":
		s := v.Get("signature").String()
		if o.signature.Len()+len(s) > wire.MaxFrame {
			d.failed("the provider's stream has a signature that is too long")
			return
		}
		o.signature.WriteString(s)
	}
	if text != "" {
		d.add(wire.Event{Kind: wire.PartDelta, Index: o.index, Text: text})
	}
}

// say tells a piece of text of a block, which may be nil.
func (d *decoder) say(o *openBlock, text string) {
	if o != nil && o.kind == wire.TextPart && text != "" {
		d.add(wire.Event{Kind: wire.PartDelta, Index: o.index, Text: text})
	}
}

func (d *decoder) end(at int64) {
	o := d.open[at]
	if o == nil {
		return
	}
	delete(d.open, at)
	if o.kind == wire.CallPart && !o.said {
		d.add(wire.Event{Kind: wire.PartDelta, Index: o.index, Text: o.input})
	}
	if o.signature.Len() > 0 {
		t := &wire.Thinking{Opaque: o.signature.String(), Redacted: o.redacted, Origin: d.from}
		d.add(wire.Event{Kind: wire.PartOpaque, Index: o.index, Part: wire.Part{Kind: o.kind, Thought: t}})
	}
	d.add(wire.Event{Kind: wire.PartEnd, Index: o.index})
}

func (d *decoder) Close() []wire.Event {
	if d.done {
		return nil
	}
	d.events = d.events[:0]
	d.failed("the provider's stream ended before its end")
	return d.events
}
