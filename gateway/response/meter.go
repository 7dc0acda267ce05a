package response

import (
	"bytes"
	"strings"

	"github.com/skep-dev/skep/gateway/sse"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/openai"
	"github.com/skep-dev/skep/gateway/wire/raw"
	"github.com/tidwall/gjson"
)

// maxCalls bounds the ids of calls that a meter keeps.
const maxCalls = 128

func (codec) Meter(stream bool) wire.Meter {
	if stream {
		return &meter{p: sse.Parser{Max: wire.MaxFrame}}
	}
	return wire.WholeMeter(whole)
}

// meter reads a stream as it goes by. It is a wire.Breaker: what it makes has the response's own id and goes on with the numbers of the sequence.
type meter struct {
	p              sse.Parser
	s              wire.MeterState
	head           []byte // the response, as it began
	next           int64
	calls, refuses bool
	whole          int             // bytes in items that came whole
	tell           func(wire.Said) // nil when nobody listens
}

func (m *meter) Tell(to func(wire.Said)) { m.tell = to }

var _ wire.Breaker = (*meter)(nil)

func (m *meter) Write(p []byte) { _ = m.p.Write(p, m.frame) }

func (m *meter) State() wire.MeterState { return m.s }

func (m *meter) Broken(f *wire.Fault) []byte {
	var b []byte
	if m.p.Within() { // half a frame: it must not swallow what follows
		b = append(b, "\n\n"...)
	}
	return broken(b, f, m.head, m.next)
}

func (m *meter) frame(name string, data []byte) {
	data = bytes.TrimSpace(data)
	if len(data) == 0 || data[0] != '{' {
		return
	}
	r := gjson.ParseBytes(data)
	typ := r.Get("type").Str
	if typ == "" {
		typ = name
	}
	if n := r.Get("sequence_number"); n.Type == gjson.Number && n.Num >= 0 && n.Num < 1<<53 {
		m.next = int64(n.Num) + 1
	}
	switch typ {
	case "response.output_text.delta", "response.refusal.delta", "response.reasoning_summary_text.delta", "response.reasoning_text.delta",
		"response.function_call_arguments.delta", "response.custom_tool_call_input.delta":
		m.refuses = m.refuses || typ == "response.refusal.delta"
		text := r.Get("delta").String()
		m.said(len(text))
		if m.tell != nil && text != "" {
			kind, index := wire.TextPart, 0
			switch typ {
			case "response.refusal.delta":
				kind = wire.RefusalPart
			case "response.reasoning_summary_text.delta", "response.reasoning_text.delta":
				kind = wire.ThoughtPart
			case "response.function_call_arguments.delta", "response.custom_tool_call_input.delta":
				kind, index = wire.CallPart, int(r.Get("output_index").Int())
			}
			m.tell(wire.Said{Kind: kind, Index: index, Field: "delta", Text: text})
		}
	case "response.output_text.done", "response.refusal.done":
		m.refuses = m.refuses || typ == "response.refusal.done"
		if m.s.Chars == 0 { // nothing came in pieces
			m.said(len(r.Get("text").String()) + len(r.Get("refusal").String()))
		}
	case "response.output_item.added":
		m.item(r.Get("item"))
	case "response.output_item.done":
		m.item(r.Get("item"))
		m.whole += m.chars(r.Get("item"))
		m.said(max(m.whole-m.s.Chars, 0))
	case "response.created", "response.in_progress", "response.queued":
		m.about(r.Get("response"))
	case "response.completed", "response.incomplete", "response.done":
		m.about(r.Get("response"))
		m.ended(r.Get("response"))
		m.s.Ended = m.s.Fault == nil
	case "response.failed", "response.cancelled":
		m.about(r.Get("response"))
		m.fail(failed(r.Get("response")))
	case "error", "response.error":
		m.fail(openai.StreamFault(r))
	case "":
		if e := r.Get("error"); e.IsObject() || e.Type == gjson.String {
			m.fail(openai.StreamFault(r))
		}
	}
}

func (m *meter) fail(f *wire.Fault) {
	if m.s.Fault == nil {
		m.s.Fault = f
	}
}

func (m *meter) said(n int) {
	m.s.Chars += n
	m.s.Content = m.s.Content || n > 0
}

func (m *meter) about(r gjson.Result) {
	if m.s.ID == "" {
		m.s.ID = openai.Short(r.Get("id"))
	}
	if m.s.Model == "" {
		m.s.Model = openai.Short(r.Get("model"))
	}
	if t := openai.Short(r.Get("service_tier")); t != "" {
		m.s.Tier = t
	}
	if m.head == nil && r.IsObject() && len(r.Raw) <= 1<<20 {
		m.head = []byte(r.Raw)
	}
	if u := openai.Usage(r.Get("usage")); u.Known {
		m.s.Usage = u
	}
}

func (m *meter) item(v gjson.Result) {
	switch v.Get("type").Str {
	case "message", "":
		return
	case "function_call", "custom_tool_call":
		m.calls = true
	case "reasoning":
		if s := v.Get("encrypted_content"); s.Type == gjson.String && s.Str != "" {
			m.s.Signed, m.s.Content = true, true
		}
		return
	}
	m.s.Content = true // a call, or something of the provider's own
	id := v.Get("call_id").String()
	if id == "" || len(id) > 256 || len(m.s.Calls) >= maxCalls {
		return
	}
	for _, s := range m.s.Calls {
		if s == id {
			return
		}
	}
	m.s.Calls = append(m.s.Calls, strings.Clone(id))
}

// chars counts what is in an item that is whole.
func (m *meter) chars(v gjson.Result) (n int) {
	switch v.Get("type").Str {
	case "function_call", "custom_tool_call":
		m.calls = true
		n = len(v.Get("arguments").String()) + len(v.Get("input").String())
	case "message":
		v.Get("content").ForEach(func(_, p gjson.Result) bool {
			m.refuses = m.refuses || p.Get("type").Str == "refusal"
			n += len(p.Get("text").String()) + len(p.Get("refusal").String())
			return true
		})
	case "reasoning":
		for _, list := range []string{"summary", "content"} {
			v.Get(list).ForEach(func(_, p gjson.Result) bool { n += len(p.Get("text").String()); return true })
		}
	}
	return n
}

// ended reads the whole response. What did not come in pieces is counted now.
func (m *meter) ended(r gjson.Result) {
	n := 0
	r.Get("output").ForEach(func(_, v gjson.Result) bool {
		m.item(v)
		n += m.chars(v)
		return true
	})
	m.said(max(n-m.s.Chars, 0))
	m.s.Stop = stopOf(r, m.calls, m.refuses)
}

// whole reads an answer that is no stream.
func whole(body []byte) wire.MeterState {
	if !raw.Valid(body) {
		return wire.MeterState{}
	}
	r := gjson.ParseBytes(body)
	if r.Get("object").Str == "response.input_tokens" {
		return wire.MeterState{Ended: true, Content: true}
	}
	m := meter{}
	m.about(r)
	switch {
	case r.Get("error").IsObject():
		m.fail(openai.StreamFault(r))
	case r.Get("status").Str == "failed" || r.Get("status").Str == "cancelled":
		m.fail(failed(r))
	default:
		m.ended(r)
		m.s.Ended = true
	}
	return m.s
}
