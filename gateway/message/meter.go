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
}

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
			m.chars(len(d.Get("text").Str))
		case "thinking_delta":
			m.chars(len(d.Get("thinking").Str))
		case "input_json_delta":
			m.chars(len(d.Get("partial_json").Str))
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

func (m *streamMeter) block(b gjson.Result) { takeBlock(&m.s, b) }

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
	if v.Get("type").Str == "error" {
		s.Fault = streamFault(v)
		return s
	}
	if !v.IsObject() {
		return s
	}
	s.Ended = true
	s.ID, s.Model, s.Stop = bounded(v.Get("id")), bounded(v.Get("model")), stops[v.Get("stop_reason").Str]
	v.Get("content").ForEach(func(_, b gjson.Result) bool {
		takeBlock(&s, b)
		return true
	})
	var f figures
	f.take(v.Get("usage"))
	s.Usage, s.Tier = f.usage(), f.tier
	return s
}
