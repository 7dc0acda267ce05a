package response

import (
	"bytes"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/openai"
	"github.com/skep-dev/skep/gateway/wire/raw"
	"github.com/tidwall/gjson"
)

// maxItems bounds the items of an answer, and the pieces of one.
const maxItems = 1024

func (codec) Decoder(from wire.Origin) wire.Decoder { return &decoder{from: from} }

type decoder struct {
	from    wire.Origin
	begun   bool
	ended   bool
	next    int
	items   map[int64]*incoming
	order   []*incoming
	calls   bool
	refuses bool
	out     []wire.Event
}

// incoming is an item of the stream. Some hosts send only its end, some only its pieces; what came of it is counted, so that the rest is told once.
type incoming struct {
	id    string
	done  bool
	call  string // function_call or custom_tool_call, when it is one
	subs  map[int64]*sub
	keys  []int64
	one   *sub  // of a call or a thought
	index int64 // of the summary that was told last
	from  string
}

// sub is a part that is open.
type sub struct {
	kind  wire.PartKind
	part  int
	n     int // bytes told
	ended bool
}

func (d *decoder) emit(e wire.Event) { d.out = append(d.out, e) }

func (d *decoder) breaks(f *wire.Fault) {
	if !d.ended {
		d.ended = true
		d.emit(wire.Event{Kind: wire.Broken, Fault: f})
	}
}

func streamBroken(message string) *wire.Fault {
	return &wire.Fault{Class: agent.StreamBroken, Message: message}
}

func (d *decoder) Close() []wire.Event {
	d.out = d.out[:0]
	d.breaks(streamBroken("the provider's stream ended in the middle of the answer"))
	return d.out
}

func (d *decoder) Frame(name string, data []byte) []wire.Event {
	if d.ended {
		return nil
	}
	d.out = d.out[:0]
	data = bytes.TrimSpace(data)
	if len(data) == 0 || string(data) == "[DONE]" {
		return nil
	}
	if !raw.Valid(data) {
		d.breaks(streamBroken("the provider's stream has a frame that is not JSON"))
		return d.out
	}
	r := gjson.ParseBytes(data)
	typ := r.Get("type").Str
	if typ == "" {
		typ = name
	}
	d.event(typ, r)
	return d.out
}

func (d *decoder) event(typ string, r gjson.Result) {
	switch typ {
	case "error", "response.error":
		d.breaks(openai.StreamFault(r))
		return
	case "response.failed", "response.cancelled":
		d.breaks(failed(r.Get("response")))
		return
	case "response.created", "response.in_progress", "response.queued":
		d.begin(r.Get("response"))
		return
	case "response.completed", "response.incomplete", "response.done":
		d.begin(r.Get("response"))
		d.finish(r.Get("response"))
		return
	case "keepalive", "ping":
		d.emit(wire.Event{Kind: wire.Ping})
		return
	case "":
		if e := r.Get("error"); e.IsObject() || e.Type == gjson.String {
			d.breaks(openai.StreamFault(r))
		}
		return
	}
	if !strings.HasPrefix(typ, "response.") {
		return
	}
	it := d.item(r)
	if it == nil || it.done {
		return
	}
	content := r.Get("content_index").Int()
	switch typ {
	case "response.output_item.added":
		d.added(it, r.Get("item"))
	case "response.output_item.done":
		d.done(it, r.Get("item"))
	case "response.output_text.delta":
		d.tell(d.sub(it, content, wire.TextPart), r.Get("delta").String())
	case "response.output_text.done":
		d.rest(d.sub(it, content, wire.TextPart), r.Get("text").String())
	case "response.refusal.delta":
		d.tell(d.sub(it, content, wire.RefusalPart), r.Get("delta").String())
	case "response.refusal.done":
		d.rest(d.sub(it, content, wire.RefusalPart), r.Get("refusal").String())
	case "response.content_part.done":
		d.content(it, content, r.Get("part"))
		if s := it.subs[content]; s != nil {
			d.close(s)
		}
	case "response.reasoning_summary_text.delta":
		d.thought(it, "summary", r.Get("summary_index").Int(), r.Get("delta").String())
	case "response.reasoning_text.delta":
		d.thought(it, "content", content, r.Get("delta").String())
	case "response.function_call_arguments.delta", "response.custom_tool_call_input.delta":
		if it.one != nil {
			d.tell(it.one, r.Get("delta").String())
		}
	case "response.function_call_arguments.done":
		if it.one != nil {
			d.rest(it.one, openai.ArgText(r.Get("arguments")))
		}
	case "response.custom_tool_call_input.done":
		if it.one != nil {
			d.rest(it.one, r.Get("input").String())
		}
	}
}

// failed reads why a response failed.
func failed(r gjson.Result) *wire.Fault {
	if e := r.Get("error"); e.IsObject() {
		return openai.StreamFault(e)
	}
	status := r.Get("status").String()
	if status == "" {
		status = "failed"
	}
	return &wire.Fault{Class: agent.ServerFault, Message: "the provider's response has the status " + raw.Show(status)}
}

func (d *decoder) begin(r gjson.Result) {
	if d.begun {
		return
	}
	d.begun = true
	d.emit(wire.Event{Kind: wire.Begin, ID: r.Get("id").String(), Model: r.Get("model").String(), Created: created(r)})
}

// item finds the item that an event is of: by output_index, or else by its id.
func (d *decoder) item(r gjson.Result) *incoming {
	id := r.Get("item_id").String()
	if id == "" {
		id = r.Get("item.id").String()
	}
	index := r.Get("output_index")
	key := index.Int()
	if index.Type != gjson.Number {
		for _, it := range d.order {
			if id != "" && it.id == id {
				return it
			}
		}
		key = -1 - int64(len(d.order))
	}
	return d.at(key, id)
}

func (d *decoder) at(key int64, id string) *incoming {
	it := d.items[key]
	if it == nil {
		if len(d.order) >= maxItems {
			d.breaks(streamBroken("the provider's answer has too many items"))
			return nil
		}
		if d.items == nil {
			d.items = map[int64]*incoming{}
		}
		it = &incoming{}
		d.items[key] = it
		d.order = append(d.order, it)
		d.begin(gjson.Result{})
	}
	if it.id == "" {
		it.id = id
	}
	return it
}

func (d *decoder) open(kind wire.PartKind, p wire.Part) *sub {
	s := &sub{kind: kind, part: d.next}
	d.next++
	p.Kind = kind
	d.emit(wire.Event{Kind: wire.PartBegin, Index: s.part, Part: p})
	return s
}

func (d *decoder) sub(it *incoming, index int64, kind wire.PartKind) *sub {
	s := it.subs[index]
	if s != nil {
		return s
	}
	if len(it.subs) >= maxItems {
		d.breaks(streamBroken("the provider's answer has too many parts"))
		return nil
	}
	if it.subs == nil {
		it.subs = map[int64]*sub{}
	}
	d.refuses = d.refuses || kind == wire.RefusalPart
	s = d.open(kind, wire.Part{Item: it.id})
	it.subs[index] = s
	it.keys = append(it.keys, index)
	return s
}

func (d *decoder) tell(s *sub, text string) {
	if s == nil || s.ended || text == "" || d.ended {
		return
	}
	s.n += len(text)
	d.emit(wire.Event{Kind: wire.PartDelta, Index: s.part, Text: text})
}

// rest tells what of the whole text has not come in pieces.
func (d *decoder) rest(s *sub, whole string) {
	if s != nil && len(whole) > s.n {
		d.tell(s, whole[s.n:])
	}
}

func (d *decoder) close(s *sub) {
	if !s.ended && !d.ended {
		s.ended = true
		d.emit(wire.Event{Kind: wire.PartEnd, Index: s.part})
	}
}

func (d *decoder) thought(it *incoming, from string, index int64, text string) {
	if text == "" || it.from != "" && it.from != from { // of two forms of one thought, the first
		return
	}
	if it.one == nil {
		it.one = d.open(wire.ThoughtPart, wire.Part{Item: it.id})
		it.from, it.index = from, index
	}
	if index != it.index {
		it.index = index
		d.tell(it.one, "\n\n")
	}
	d.tell(it.one, text)
}

func (d *decoder) added(it *incoming, v gjson.Result) {
	switch kind := v.Get("type").Str; kind {
	case "function_call", "custom_tool_call":
		d.call(it, kind, v)
	}
}

// call begins a call as soon as its id and name are known.
func (d *decoder) call(it *incoming, kind string, v gjson.Result) {
	id, name := v.Get("call_id").String(), v.Get("name").String()
	if id == "" {
		id = v.Get("id").String()
	}
	if it.one != nil || name == "" {
		return
	}
	if id == "" {
		id = openai.NewID("call_")
	}
	it.call, d.calls = kind, true
	it.one = d.open(wire.CallPart, wire.Part{Item: it.id, Call: &wire.ToolCall{ID: id, Name: name, Custom: kind == "custom_tool_call"}})
}

func (d *decoder) content(it *incoming, index int64, p gjson.Result) {
	switch p.Get("type").Str {
	case "output_text":
		if t := p.Get("text").String(); t != "" || it.subs[index] != nil {
			d.rest(d.sub(it, index, wire.TextPart), t)
		}
	case "refusal":
		d.rest(d.sub(it, index, wire.RefusalPart), p.Get("refusal").String())
	}
}

// done ends an item, of which v is the whole.
func (d *decoder) done(it *incoming, v gjson.Result) {
	switch kind := v.Get("type").Str; kind {
	case "message":
		for i, p := range v.Get("content").Array() {
			d.content(it, int64(i), p)
		}
	case "reasoning":
		var x item
		if openai.Unmarshal([]byte(v.Raw), &x) != nil {
			break
		}
		if text := thoughtText(x); text != "" {
			if it.one == nil {
				d.thought(it, "done", 0, text)
			} else {
				d.rest(it.one, text)
			}
		}
		if x.Encrypted != "" {
			if it.one == nil {
				it.one = d.open(wire.ThoughtPart, wire.Part{Item: it.id})
			}
			t := &wire.Thinking{Opaque: x.Encrypted, Origin: d.from}
			d.emit(wire.Event{Kind: wire.PartOpaque, Index: it.one.part, Part: wire.Part{Kind: wire.ThoughtPart, Thought: t}})
		}
	case "function_call":
		d.call(it, kind, v)
		if it.one == nil {
			d.breaks(streamBroken("the provider's answer has a call of a tool without its name"))
			return
		}
		d.rest(it.one, openai.ArgText(v.Get("arguments")))
	case "custom_tool_call":
		d.call(it, kind, v)
		if it.one != nil {
			d.rest(it.one, v.Get("input").String())
		}
	}
	d.closeItem(it)
}

func (d *decoder) closeItem(it *incoming) {
	if it.done {
		return
	}
	it.done = true
	for _, k := range it.keys {
		d.close(it.subs[k])
	}
	if it.one != nil {
		if it.call == "function_call" && it.one.n == 0 {
			d.tell(it.one, "{}")
		}
		d.close(it.one)
	}
}

// finish ends the answer, of which r is the whole.
func (d *decoder) finish(r gjson.Result) {
	for i, v := range r.Get("output").Array() {
		id := v.Get("id").String()
		var it *incoming
		for _, x := range d.order {
			if id != "" && x.id == id {
				it = x
			}
		}
		if it == nil {
			it = d.at(int64(i), id)
		}
		if it != nil && !it.done {
			d.done(it, v)
		}
		if d.ended {
			return
		}
	}
	for _, it := range d.order {
		d.closeItem(it)
	}
	u := openai.Usage(r.Get("usage"))
	if u.Known {
		d.emit(wire.Event{Kind: wire.Used, Usage: u})
	}
	d.ended = true
	tier := r.Get("service_tier")
	d.emit(wire.Event{Kind: wire.End, Stop: stopOf(r, d.calls, d.refuses), Usage: u, Tier: tier.String()})
}
