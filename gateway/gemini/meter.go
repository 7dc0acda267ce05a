package gemini

import (
	"github.com/skep-dev/skep/gateway/sse"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/raw"
	"github.com/tidwall/gjson"
)

// maxCalls bounds the ids that a meter keeps.
const maxCalls = 128

// Meter reads whole answers, and streams in both forms: which it is tells their first byte.
func (codec) Meter(stream bool) wire.Meter {
	if stream {
		return &streamMeter{}
	}
	return wire.WholeMeter(whole)
}

// chunks is what was read of chunks.
type chunks struct {
	s      wire.MeterState
	reason string
	block  bool
	called int
	tell   func(wire.Said) // nil when nobody listens
}

func (c *chunks) Tell(to func(wire.Said)) { c.tell = to }

func (c *chunks) take(data []byte) {
	if !raw.Valid(data) {
		return
	}
	list(gjson.ParseBytes(data), func(v gjson.Result) bool {
		c.chunk(v)
		return true
	})
}

func (c *chunks) chunk(v gjson.Result) {
	if v.Get("error").Exists() {
		if c.s.Fault == nil {
			c.s.Fault = streamFault(v)
		}
		return
	}
	if u := usageOf(v.Get("usageMetadata")); u.Known {
		u.Raw = append([]byte(nil), u.Raw...)
		c.s.Usage = u
	}
	if t := tierOf(v); t != "" {
		c.s.Tier = t
	}
	if c.s.ID == "" {
		c.s.ID = bounded(v.Get("responseId"))
	}
	if c.s.Model == "" {
		c.s.Model = bounded(v.Get("modelVersion"))
	}
	if v.Get("promptFeedback").Get("blockReason").Exists() {
		c.block = true
	}
	one := v.Get("candidates.0")
	one.Get("content").Get("parts").ForEach(func(_, p gjson.Result) bool {
		n := len(p.Get("text").Str)
		if c.tell != nil && n > 0 {
			kind := wire.TextPart
			if p.Get("thought").Bool() {
				kind = wire.ThoughtPart
			}
			c.tell(wire.Said{Kind: kind, Field: "text", Text: p.Get("text").Str})
		}
		if p.Get("thoughtSignature").Str != "" {
			c.s.Signed, c.s.Content = true, true
		}
		if f := p.Get("functionCall"); f.IsObject() {
			c.called++
			n += len(f.Get("args").Raw)
			c.s.Content = true
			id := bounded(f.Get("id"))
			if sign := p.Get("thoughtSignature").Str; id == "" && sign != "" {
				id = signID(sign)
			}
			if id != "" && len(c.s.Calls) < maxCalls {
				c.s.Calls = append(c.s.Calls, id)
			}
		}
		if p.Get("inlineData").Exists() {
			c.s.Content = true
		}
		c.s.Chars += n
		c.s.Content = c.s.Content || n > 0
		return true
	})
	if r := bounded(one.Get("finishReason")); r != "" {
		c.reason = r
	}
}

// state is what is known; whole tells that nothing follows unless the stream goes on.
func (c *chunks) state() wire.MeterState {
	s := c.s
	switch {
	case c.reason != "":
		s.Ended, s.Stop = true, stopOf(c.reason, c.called > 0)
	case c.block:
		s.Ended, s.Stop = true, wire.StopFilter
	}
	return s
}

// bounded returns a short string of its own.
func bounded(v gjson.Result) string {
	if v.Type != gjson.String || len(v.Str) > 512 {
		return ""
	}
	return string([]byte(v.Str))
}

// streamMeter reads a stream in the form in which it comes.
type streamMeter struct {
	chunks
	form  byte // '[' for an array, 's' for server-sent events
	p     sse.Parser
	a     elements
	clean bool // the last byte ended a frame
	some  bool
}

func (m *streamMeter) Write(b []byte) {
	if m.form == 0 {
		for i, c := range b {
			if c == ' ' || c == '\n' || c == '\r' || c == '\t' {
				continue
			}
			if m.form = 's'; c == '[' {
				m.form = '['
			}
			b = b[i:]
			break
		}
		m.p.Max = wire.MaxFrame
	}
	if m.form == '[' {
		m.a.write(b, m.take)
		return
	}
	for len(b) > 0 {
		n, _, data, ok, _ := m.p.Next(b) // a frame that is too long passes unread
		if m.clean = ok; ok {
			m.some = true
			m.take(data)
		}
		b = b[n:]
	}
}

func (m *streamMeter) State() wire.MeterState {
	s := m.state()
	if m.form == '[' {
		s.Ended = s.Ended && m.a.closed
	}
	return s
}

// Broken is the error that ends the stream, in its form: in an array it is the last element, and a frame that was cut is ended first.
func (m *streamMeter) Broken(f *wire.Fault) []byte {
	body := faultBody(f)
	if m.form == '[' {
		switch {
		case m.a.closed:
			return nil
		case m.a.depth > 1 || m.a.quoted: // cut within an element, which nothing can make whole
			return append([]byte("\n"), body...)
		case m.a.some && !m.a.comma:
			return append(append([]byte(",\n"), body...), "\n]"...)
		}
		return append(body, "\n]"...)
	}
	var b []byte
	if m.form != 0 && !m.clean {
		b = append(b, "\n\n"...)
	}
	return sse.Append(b, "", body)
}

// elements splits a JSON array into its elements. It keeps one of at most wire.MaxFrame bytes; a longer one passes unread.
type elements struct {
	buf     []byte
	depth   int
	quoted  bool
	escaped bool
	over    bool
	some    bool
	comma   bool // the last thing was a comma
	closed  bool
}

func (a *elements) write(b []byte, each func([]byte)) {
	for _, c := range b {
		if a.closed {
			return
		}
		inside := a.depth > 1
		switch {
		case a.escaped:
			a.escaped = false
		case a.quoted:
			if c == '\\' {
				a.escaped = true
			} else if c == '"' {
				a.quoted = false
			}
		case c == '"':
			a.quoted = true
		case c == '{' || c == '[':
			a.depth++
		case c == '}' || c == ']':
			a.depth--
			a.closed = a.depth <= 0
		case c == ',' && a.depth == 1:
			a.comma = true
		}
		if !inside && a.depth <= 1 {
			continue
		}
		if len(a.buf) >= wire.MaxFrame {
			a.over, a.buf = true, a.buf[:0]
		}
		if !a.over {
			a.buf = append(a.buf, c)
		}
		if a.depth == 1 { // it is whole
			if !a.over {
				each(a.buf)
			}
			a.buf, a.over, a.some, a.comma = a.buf[:0], false, true, false
		}
	}
}

// whole reads an answer that is no stream.
func whole(body []byte) wire.MeterState {
	if !raw.Valid(body) {
		return wire.MeterState{}
	}
	var c chunks
	c.take(body)
	s := c.state()
	s.Ended = s.Fault == nil
	return s
}
