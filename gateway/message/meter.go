package message

import (
	"github.com/skep-dev/skep/gateway/sse"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/raw"
	"github.com/tidwall/gjson"
)

// maxCalls bounds the ids that a meter keeps.
const maxCalls = 128

func (codec) Meter(stream bool) wire.Meter {
	if stream {
		return &streamMeter{p: sse.Parser{Max: wire.MaxFrame}}
	}
	return wire.WholeMeter(whole)
}

type streamMeter struct {
	p    sse.Parser
	s    wire.MeterState
	used figures
	tell func(wire.Said) // nil when nobody listens
}

func (m *streamMeter) Tell(to func(wire.Said)) { m.tell = to }

func (m *streamMeter) Write(b []byte) {
	for len(b) > 0 {
		n, name, data, ok, _ := m.p.Next(b) // a frame that is too long passes unread
		if ok {
			m.frame(name, data)
		}
		b = b[n:]
	}
}

func (m *streamMeter) State() wire.MeterState {
	s := m.s
	s.Usage, s.Tier = m.used.usage(), m.used.tier
	return s
}

func (m *streamMeter) frame(name string, data []byte) {
	if name == "ping" {
		return
	}
	if _, text, ok := textDelta(data); ok {
		m.chars(len(text))
		if m.tell != nil {
			m.told(wire.TextPart, 0, "text", string(text))
		}
		return
	}
	if !raw.Valid(data) {
		return
	}
	v := gjson.ParseBytes(data)
	kind := v.Get("type").Str
	if kind == "" {
		kind = name
	}
	switch kind {
	case "message_start":
		msg := v.Get("message")
		if m.s.ID == "" {
			m.s.ID, m.s.Model = bounded(msg.Get("id")), bounded(msg.Get("model"))
		}
		m.used.take(copied(msg.Get("usage")))
	case "content_block_start":
		m.block(v.Get("content_block"))
	case "content_block_delta":
		d := v.Get("delta")
		switch d.Get("type").Str {
		case "text_delta":
			m.said(wire.TextPart, 0, "text", d)
		case "thinking_delta":
			m.said(wire.ThoughtPart, 0, "thinking", d)
		case "input_json_delta":
			m.said(wire.CallPart, int(v.Get("index").Int()), "partial_json", d)
		case "signature_delta":
			m.s.Signed, m.s.Content = true, true
		}
	case "message_delta":
		if s := v.Get("delta").Get("stop_reason"); s.Type == gjson.String {
			m.s.Stop = stops[s.Str]
		}
		m.used.take(copied(v.Get("usage")))
	case "message_stop":
		m.s.Ended = true
	case "error":
		if m.s.Fault == nil {
			m.s.Fault = streamFault(v)
		}
	}
}

func (m *streamMeter) chars(n int) {
	m.s.Chars += n
	m.s.Content = m.s.Content || n > 0
}

// said notes a piece of a text, which is a field of d.
func (m *streamMeter) said(kind wire.PartKind, index int, field string, d gjson.Result) {
	text := d.Get(field).Str
	m.chars(len(text))
	m.told(kind, index, field, text)
}

func (m *streamMeter) told(kind wire.PartKind, index int, field, text string) {
	if m.tell != nil && text != "" {
		m.tell(wire.Said{Kind: kind, Index: index, Field: field, Text: text})
	}
}

func (m *streamMeter) block(b gjson.Result) {
	takeBlock(&m.s, b)
	m.told(wire.TextPart, 0, "text", b.Get("text").Str)
	m.told(wire.ThoughtPart, 0, "thinking", b.Get("thinking").Str)
}

// takeBlock notes what a block, whole or beginning, tells.
func takeBlock(s *wire.MeterState, b gjson.Result) {
	n := 0
	switch b.Get("type").Str {
	case "text":
		n = len(b.Get("text").Str)
	case "thinking":
		n = len(b.Get("thinking").Str)
		s.Signed = s.Signed || b.Get("signature").Str != ""
	case "redacted_thinking":
		s.Signed, s.Content = true, true
	case "tool_use":
		if id := bounded(b.Get("id")); id != "" && len(s.Calls) < maxCalls {
			s.Calls = append(s.Calls, id)
		}
		if in := b.Get("input").Raw; in != "{}" {
			n = len(in)
		}
		s.Content = true
	default:
		s.Content = true
	}
	s.Chars += n
	s.Content = s.Content || n > 0
}

// bounded returns a short string of its own; the buffer that v is in is used again.
func bounded(v gjson.Result) string {
	if v.Type != gjson.String || len(v.Str) > 512 {
		return ""
	}
	return string([]byte(v.Str))
}

// copied returns v with bytes of its own.
func copied(v gjson.Result) gjson.Result {
	v.Raw = string([]byte(v.Raw))
	return v
}

// whole reads an answer that is no stream.
func whole(body []byte) wire.MeterState {
	var s wire.MeterState
	if !raw.Valid(body) {
		return s
	}
	v := gjson.ParseBytes(body)
	if !v.IsObject() {
		return s
	}
	var f figures
	fails := false
	v.ForEach(func(k, field gjson.Result) bool {
		switch k.Str {
		case "type":
			fails = field.Str == "error"
		case "id":
			s.ID = bounded(field)
		case "model":
			s.Model = bounded(field)
		case "stop_reason":
			s.Stop = stops[field.Str]
		case "content":
			field.ForEach(func(_, b gjson.Result) bool {
				takeBlock(&s, b)
				return true
			})
		case "usage":
			f.take(field)
		}
		return true
	})
	if fails {
		return wire.MeterState{Fault: streamFault(v)}
	}
	s.Ended, s.Usage, s.Tier = true, f.usage(), f.tier
	return s
}
