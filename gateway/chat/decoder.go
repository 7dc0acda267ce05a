package chat

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/openai"
	"github.com/skep-dev/skep/gateway/wire/raw"
	"github.com/tidwall/gjson"
)

// maxOpen bounds the calls of one answer, and what is kept of its opaque data.
const maxOpen = 1024

func (codec) Decoder(from wire.Origin) wire.Decoder { return &decoder{from: from} }

type decoder struct {
	from  wire.Origin
	begun bool
	ended bool
	next  int // number of the next part
	text  int // of the open text, thought and refusal, -1 when none is; kind says which it is
	kind  wire.PartKind
	open  bool

	calls   []*opened
	byIndex map[int64]*opened
	last    *opened

	plain   bool                // thoughts come as text of their own, so that in details is not told again
	details [][]json.RawMessage // a provider's list, each entry in the pieces in which it came
	signed  bool                // details has data that must go back to the provider
	held    int                 // bytes in details
	refuses bool
	stop    wire.Stop
	stopped bool
	usage   wire.Usage
	tier    string
	out     []wire.Event
}

// opened is a call of the stream. It begins, for the outside, when its name is known.
type opened struct {
	part   int // -1 until then
	id     string
	name   string
	custom bool
	wait   strings.Builder // arguments that came before the name
	any    bool            // arguments have been told
}

func (d *decoder) Frame(name string, data []byte) []wire.Event {
	if d.ended {
		return nil
	}
	d.out = d.out[:0]
	data = bytes.TrimSpace(data)
	switch {
	case len(data) == 0:
		return nil
	case string(data) == "[DONE]":
		d.finish()
		return d.out
	case !raw.Valid(data):
		d.breaks(&wire.Fault{Class: agent.StreamBroken, Message: "the provider's stream has a frame that is not JSON"})
		return d.out
	}
	r := gjson.ParseBytes(data)
	if e := r.Get("error"); name == "error" || e.IsObject() || e.Type == gjson.String {
		d.breaks(openai.StreamFault(r))
		return d.out
	}
	if r.IsObject() {
		d.chunk(r)
	}
	return d.out
}

func (d *decoder) Close() []wire.Event {
	if d.ended {
		return nil
	}
	d.out = d.out[:0]
	if d.stopped { // some hosts send no [DONE]
		d.finish()
	} else {
		d.breaks(&wire.Fault{Class: agent.StreamBroken, Message: "the provider's stream ended in the middle of the answer"})
	}
	return d.out
}

func (d *decoder) emit(e wire.Event) { d.out = append(d.out, e) }

func (d *decoder) breaks(f *wire.Fault) {
	d.ended = true
	d.emit(wire.Event{Kind: wire.Broken, Fault: f})
}

func (d *decoder) finish() {
	d.flush()
	if d.ended {
		return
	}
	if !d.stopped && (d.next == 0 || len(d.calls) > 0) {
		d.breaks(&wire.Fault{Class: agent.StreamBroken, Message: "the provider's stream ended without saying why the model stopped"})
		return
	}
	d.ended = true
	d.emit(wire.Event{Kind: wire.End, Stop: settled(d.stop, len(d.calls) > 0, d.refuses), Usage: d.usage, Tier: d.tier})
}

// flush ends all parts that are open.
func (d *decoder) flush() {
	d.closeText()
	for _, c := range d.calls {
		d.closeCall(c)
	}
	if d.signed { // it came after the text of the thought
		d.begin(wire.Part{Kind: wire.ThoughtPart})
		d.sign()
		d.closeText()
	}
}

func (d *decoder) chunk(r gjson.Result) {
	if !d.begun {
		d.begun = true
		d.emit(wire.Event{Kind: wire.Begin, ID: r.Get("id").String(), Model: r.Get("model").String(), Created: created(r)})
	}
	if t := r.Get("service_tier"); t.Type == gjson.String {
		d.tier = t.Str
	}
	for i, c := range r.Get("choices").Array() {
		if n := c.Get("index").Int(); n != 0 || i > 0 {
			continue // one answer is asked for
		}
		if d.stopped {
			break
		}
		d.delta(c.Get("delta"))
		d.use(c.Get("usage"))
		if f := c.Get("finish_reason"); f.Type == gjson.String && f.Str != "" && !d.ended {
			if f.Str == "error" {
				d.breaks(openai.StreamFault(c))
				return
			}
			d.stopped, d.stop = true, stopOf(f.Str)
			d.flush()
		}
		if d.ended {
			return
		}
	}
	d.use(r.Get("usage"))
	d.use(r.Get("x_groq.usage"))
}

func (d *decoder) use(v gjson.Result) {
	if u := openai.Usage(v); u.Known {
		d.usage = u
		d.emit(wire.Event{Kind: wire.Used, Usage: u})
	}
}

func (d *decoder) delta(v gjson.Result) {
	if !v.IsObject() {
		return
	}
	thought := v.Get("reasoning_content").Str
	if thought == "" {
		thought = v.Get("reasoning").Str
	}
	d.plain = d.plain || thought != ""
	details := v.Get("reasoning_details")
	if details.IsArray() {
		var list []json.RawMessage
		for _, x := range details.Array() {
			list = append(list, json.RawMessage(x.Raw))
		}
		if thought == "" && !d.plain {
			thought = detailText(list)
		}
		d.keep(list)
	}
	d.say(wire.ThoughtPart, thought)
	if details.IsArray() && d.signed && !(d.open && d.kind == wire.ThoughtPart) && d.next == 0 {
		d.begin(wire.Part{Kind: wire.ThoughtPart})
	}
	if c := v.Get("content"); c.IsArray() {
		for _, p := range c.Array() {
			if t := p.Get("thinking"); t.IsArray() {
				for _, x := range t.Array() {
					d.say(wire.ThoughtPart, x.Get("text").Str)
				}
				continue
			}
			d.say(wire.TextPart, p.Get("text").Str)
		}
	} else {
		d.say(wire.TextPart, c.Str)
	}
	if s := v.Get("refusal").Str; s != "" {
		d.refuses = true
		d.say(wire.RefusalPart, s)
	}
	for _, x := range v.Get("images").Array() {
		if b, err := openai.URLBlob("images", x.Get("image_url.url").String(), true); err == nil {
			d.closeText()
			d.emit(wire.Event{Kind: wire.PartBegin, Index: d.next, Part: wire.Part{Kind: wire.MediaPart, Media: b}})
			d.emit(wire.Event{Kind: wire.PartEnd, Index: d.next})
			d.next++
		}
	}
	for _, c := range v.Get("tool_calls").Array() {
		d.call(c)
	}
	if f := v.Get("function_call"); f.IsObject() { // the old form
		d.piece(d.find(gjson.Result{}, "", f.Get("name").Str), "", f.Get("name").Str, openai.ArgText(f.Get("arguments")), false)
	}
}

// keep adds pieces of a provider's list to what came before: pieces of one entry have its index and type.
func (d *decoder) keep(list []json.RawMessage) {
	for _, x := range list {
		if d.held += len(x); d.held > wire.MaxFrame || len(d.details) >= maxOpen {
			d.breaks(&wire.Fault{Class: agent.StreamBroken, Message: "the provider's stream has more opaque data than may be"})
			return
		}
		d.signed = d.signed || opaque([]json.RawMessage{x})
		if n := len(d.details); n > 0 && goesOn(d.details[n-1][0], x) {
			d.details[n-1] = append(d.details[n-1], x)
			continue
		}
		d.details = append(d.details, []json.RawMessage{x})
	}
}

// goesOn reports whether b is a piece of the entry that a began.
func goesOn(a, b json.RawMessage) bool {
	ra, rb := gjson.ParseBytes(a), gjson.ParseBytes(b)
	kind := ra.Get("type").Str
	return ra.Get("index").Exists() && ra.Get("index").Raw == rb.Get("index").Raw && kind == rb.Get("type").Str && kind != "reasoning.encrypted"
}

// entry makes one entry of its pieces: texts go on, and of all else what came last counts.
func entry(pieces []json.RawMessage) json.RawMessage {
	if len(pieces) == 1 {
		return pieces[0]
	}
	all := map[string]json.RawMessage{}
	texts := map[string]*strings.Builder{"text": {}, "summary": {}}
	for _, p := range pieces {
		gjson.ParseBytes(p).ForEach(func(k, v gjson.Result) bool {
			if v.Type == gjson.Null {
				return true
			}
			all[k.Str] = json.RawMessage(v.Raw)
			if t := texts[k.Str]; t != nil {
				t.WriteString(v.String())
			}
			return true
		})
	}
	for k, t := range texts {
		if all[k] != nil {
			all[k] = openai.String(t.String())
		}
	}
	return openai.JSON(all)
}

// say adds to the open text of a kind, or begins one.
func (d *decoder) say(kind wire.PartKind, s string) {
	if s == "" || d.ended {
		return
	}
	if !d.open || d.kind != kind {
		d.begin(wire.Part{Kind: kind})
	}
	d.emit(wire.Event{Kind: wire.PartDelta, Index: d.text, Text: s})
}

func (d *decoder) begin(p wire.Part) {
	d.closeText()
	d.open, d.kind, d.text = true, p.Kind, d.next
	d.next++
	d.emit(wire.Event{Kind: wire.PartBegin, Index: d.text, Part: p})
}

// sign tells the opaque data that has come for the open thought.
func (d *decoder) sign() {
	if d.signed {
		list := make([]json.RawMessage, len(d.details))
		for i, pieces := range d.details {
			list[i] = entry(pieces)
		}
		t := &wire.Thinking{Opaque: string(join(list)), Origin: d.from}
		d.emit(wire.Event{Kind: wire.PartOpaque, Index: d.text, Part: wire.Part{Kind: wire.ThoughtPart, Thought: t}})
	}
	d.details, d.signed = nil, false
}

func (d *decoder) closeText() {
	if !d.open {
		return
	}
	if d.kind == wire.ThoughtPart {
		d.sign()
	}
	d.open = false
	d.emit(wire.Event{Kind: wire.PartEnd, Index: d.text})
}

func (d *decoder) call(c gjson.Result) {
	id, name := c.Get("id").Str, c.Get("function.name").Str
	args := openai.ArgText(c.Get("function.arguments"))
	custom := c.Get("custom").IsObject() || c.Get("type").Str == "custom"
	if custom {
		name, args = c.Get("custom.name").Str, c.Get("custom.input").Str
	}
	if o := d.find(c.Get("index"), id, name); o != nil {
		d.piece(o, id, name, args, custom)
	}
}

// find finds the call that a piece belongs to: by index, but for hosts that give each call the same one; without an index by id, or else the last call.
func (d *decoder) find(index gjson.Result, id, name string) *opened {
	var o *opened
	key := int64(-1)
	if index.Type == gjson.Number {
		key = index.Int()
		o = d.byIndex[key]
		if o != nil && id != "" && o.id != "" && id != o.id && name != "" {
			o = nil
			for _, x := range d.calls {
				if x.id == id {
					o = x
				}
			}
		}
	} else {
		for _, x := range d.calls {
			if id != "" && x.id == id {
				o = x
			}
		}
		if o == nil && id == "" && (name == "" || d.last != nil && d.last.name == "") {
			o = d.last
		}
	}
	if o == nil {
		if len(d.calls) >= maxOpen {
			d.breaks(&wire.Fault{Class: agent.StreamBroken, Message: "the provider's answer has too many calls of tools"})
			return nil
		}
		o = &opened{part: -1}
		d.calls = append(d.calls, o)
	}
	if key >= 0 {
		if d.byIndex == nil {
			d.byIndex = map[int64]*opened{}
		}
		d.byIndex[key] = o
	}
	d.last = o
	return o
}

// piece takes what came of a call. A call without an id gets one, once.
func (d *decoder) piece(o *opened, id, name, args string, custom bool) {
	if o == nil || d.ended {
		return
	}
	if o.part >= 0 {
		d.args(o, args)
		return
	}
	if id != "" {
		o.id = id
	}
	o.name += name
	o.custom = o.custom || custom
	if o.name == "" {
		if d.held += len(args); d.held > wire.MaxFrame {
			d.breaks(&wire.Fault{Class: agent.StreamBroken, Message: "the provider's stream has a call of a tool without its name"})
			return
		}
		o.wait.WriteString(args)
		return
	}
	if o.id == "" {
		o.id = openai.NewID("call_")
	}
	d.closeText()
	o.part = d.next
	d.next++
	d.emit(wire.Event{Kind: wire.PartBegin, Index: o.part, Part: wire.Part{Kind: wire.CallPart, Call: &wire.ToolCall{ID: o.id, Name: o.name, Custom: o.custom}}})
	d.args(o, o.wait.String()+args)
	o.wait.Reset()
}

func (d *decoder) args(o *opened, s string) {
	if !o.any && !o.custom {
		s = strings.TrimLeft(s, " \t\r\n")
	}
	if s == "" {
		return
	}
	o.any = true
	d.emit(wire.Event{Kind: wire.PartDelta, Index: o.part, Text: s})
}

func (d *decoder) closeCall(o *opened) {
	switch {
	case o.part == -2: // ended
		return
	case o.part == -1:
		if !d.ended {
			d.breaks(&wire.Fault{Class: agent.StreamBroken, Message: "the provider's answer has a call of a tool without its name"})
		}
		return
	}
	if d.ended {
		return
	}
	if !o.any && !o.custom {
		d.emit(wire.Event{Kind: wire.PartDelta, Index: o.part, Text: "{}"})
	}
	d.emit(wire.Event{Kind: wire.PartEnd, Index: o.part})
	o.part = -2
}
