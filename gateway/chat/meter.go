package chat

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

// meter reads a stream as it goes by. Ended is true from the last finish_reason on: some hosts send no [DONE], and usage comes between the two, so
// whoever passes the stream on reads it to its end all the same.
type meter struct {
	p        sse.Parser
	s        wire.MeterState
	seen     uint64 // bits of the choices that have begun, and that have finished
	finished uint64
	done     bool
	tell     func(wire.Said) // nil when nobody listens
}

func (m *meter) Tell(to func(wire.Said)) { m.tell = to }

func (m *meter) Write(p []byte) { _ = m.p.Write(p, m.frame) }

func (m *meter) State() wire.MeterState {
	s := m.s
	s.Ended = s.Fault == nil && (m.done || m.seen != 0 && m.seen&^m.finished == 0)
	return s
}

// Broken makes the error frame after what has gone by, which may be half a frame.
func (m *meter) Broken(f *wire.Fault) []byte {
	b := codec{}.BrokenFrame(f)
	if m.p.Within() {
		b = append([]byte("\n\n"), b...)
	}
	return b
}

func (m *meter) frame(name string, data []byte) {
	if string(bytes.TrimSpace(data)) == "[DONE]" {
		m.done = true
		return
	}
	r := gjson.ParseBytes(data)
	if !r.IsObject() {
		return
	}
	if e := r.Get("error"); e.IsObject() || e.Type == gjson.String {
		m.fail(r)
		return
	}
	if name == "error" {
		m.fail(r)
		return
	}
	r.ForEach(func(k, v gjson.Result) bool {
		switch k.Str {
		case "id":
			if m.s.ID == "" {
				m.s.ID = openai.Short(v)
			}
		case "model":
			if m.s.Model == "" {
				m.s.Model = openai.Short(v)
			}
		case "service_tier":
			m.s.Tier = openai.Short(v)
		case "usage":
			m.use(v)
		case "x_groq":
			m.use(v.Get("usage"))
		case "choices":
			v.ForEach(func(_, c gjson.Result) bool { m.choice(c); return true })
		}
		return true
	})
}

func (m *meter) fail(r gjson.Result) {
	if m.s.Fault == nil {
		m.s.Fault = openai.StreamFault(r)
	}
}

func (m *meter) use(v gjson.Result) {
	if u := openai.Usage(v); u.Known {
		m.s.Usage = u
	}
}

func (m *meter) choice(c gjson.Result) {
	bit := uint64(1) << (uint64(c.Get("index").Uint()) & 63)
	m.seen |= bit
	c.ForEach(func(k, v gjson.Result) bool {
		switch k.Str {
		case "delta", "message":
			m.message(int(c.Get("index").Uint()&63)<<16, v)
		case "usage":
			m.use(v)
		case "finish_reason":
			if v.Type == gjson.String && v.Str != "" {
				m.finished |= bit
				m.s.Stop = stopOf(v.Str)
				if v.Str == "error" {
					m.fail(c)
				}
			}
		}
		return true
	})
}

// message reads a delta, or a whole message, of the choice whose texts have numbers from choice on.
func (m *meter) message(choice int, d gjson.Result) {
	s := &m.s
	said := func(kind wire.PartKind, index int, field, text string) {
		s.Chars += len(text)
		s.Content = s.Content || len(text) > 0
		if m.tell != nil && text != "" {
			m.tell(wire.Said{Kind: kind, Index: choice + index, Field: field, Text: text})
		}
	}
	d.ForEach(func(k, v gjson.Result) bool {
		switch k.Str {
		case "content":
			if v.IsArray() {
				v.ForEach(func(_, p gjson.Result) bool { said(wire.TextPart, 0, "text", p.Get("text").String()); return true })
			} else {
				said(wire.TextPart, 0, k.Str, v.Str)
			}
		case "reasoning_content":
			said(wire.ThoughtPart, 0, k.Str, v.Str)
		case "refusal":
			said(wire.RefusalPart, 0, k.Str, v.Str)
		case "reasoning":
			if !d.Get("reasoning_content").Exists() {
				said(wire.ThoughtPart, 0, k.Str, v.Str)
			}
		case "reasoning_details":
			v.ForEach(func(_, p gjson.Result) bool {
				if p.Get("data").Type == gjson.String || p.Get("signature").Type == gjson.String {
					s.Signed, s.Content = true, true
				}
				return true
			})
		case "function_call":
			said(wire.CallPart, 0, "arguments", v.Get("arguments").String())
			m.named(v.Get("name"))
		case "images", "audio":
			s.Content = s.Content || v.IsArray() || v.IsObject()
		case "tool_calls":
			v.ForEach(func(_, c gjson.Result) bool {
				s.Content = true
				at := 1 + int(c.Get("index").Uint()&0x3fff)
				said(wire.CallPart, at, "arguments", c.Get("function.arguments").String())
				said(wire.CallPart, at, "input", c.Get("custom.input").Str)
				m.named(c.Get("function.name"))
				id := c.Get("id")
				if id.Type == gjson.String && id.Str != "" && len(id.Str) <= 256 && len(s.Calls) < maxCalls && !has(s.Calls, id.Str) {
					s.Calls = append(s.Calls, strings.Clone(id.Str))
				}
				return true
			})
		}
		return true
	})
}

// named counts the name of a call.
func (m *meter) named(name gjson.Result) {
	m.s.Chars += len(name.Str)
	m.s.Content = m.s.Content || len(name.Str) > 0
}

func has(list []string, s string) bool {
	for i := len(list) - 1; i >= 0; i-- {
		if list[i] == s {
			return true
		}
	}
	return false
}

// whole reads an answer that is no stream.
func whole(body []byte) wire.MeterState {
	if !raw.Valid(body) {
		return wire.MeterState{}
	}
	m := meter{}
	m.frame("", body)
	s := m.State()
	s.Ended = s.Fault == nil
	return s
}
