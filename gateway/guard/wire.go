package guard

import (
	"maps"
	"slices"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
)

// Request returns a request with what is found replaced, or what must not be in it. r itself is not changed.
func (g *Guard) Request(r *wire.Request) (*wire.Request, *Found) {
	if g == nil {
		return r, nil
	}
	out := *r
	var found *Found
	if out.System, found = g.parts(r.System, true); found != nil {
		return nil, found
	}
	out.Messages = append([]wire.Message(nil), r.Messages...)
	for i := range out.Messages {
		if out.Messages[i].Parts, found = g.parts(out.Messages[i].Parts, true); found != nil {
			return nil, found
		}
	}
	out.Tools = append([]wire.Tool(nil), r.Tools...)
	for i := range out.Tools {
		t := &out.Tools[i]
		if t.Description, found = g.Text(t.Description); found != nil {
			return nil, found
		}
		for _, raw := range []*[]byte{(*[]byte)(&t.Schema), (*[]byte)(&t.Native)} {
			if *raw, found = g.JSON(*raw); found != nil {
				return nil, found
			}
		}
	}
	if out.User, found = g.Text(r.User); found != nil {
		return nil, found
	}
	if len(r.Metadata) > 0 {
		out.Metadata = make(map[string]string, len(r.Metadata))
		for k, v := range r.Metadata {
			if out.Metadata[k], found = g.Text(v); found != nil {
				return nil, found
			}
		}
	}
	if r.Format != nil && r.Format.Schema != nil {
		f := *r.Format
		if f.Schema, found = g.JSON(f.Schema); found != nil {
			return nil, found
		}
		out.Format = &f
	}
	return &out, nil
}

// Answer returns an answer with what is found replaced, or what must not be in it. a itself is not changed.
func (g *Guard) Answer(a *wire.Answer) (*wire.Answer, *Found) {
	if g == nil {
		return a, nil
	}
	out := *a
	var found *Found
	if out.Parts, found = g.parts(a.Parts, false); found != nil {
		return nil, found
	}
	return &out, nil
}

// parts looks at parts. With prompt, thoughts that a provider signed are left as they are: they are its own, and are good unchanged alone.
func (g *Guard) parts(parts []wire.Part, prompt bool) ([]wire.Part, *Found) {
	out := append([]wire.Part(nil), parts...)
	for i := range out {
		p := &out[i]
		var found *Found
		if p.Kind != wire.ThoughtPart || !prompt || p.Thought == nil || p.Thought.Opaque == "" {
			if p.Text, found = g.prose(p.Text); found != nil {
				return nil, found
			}
		}
		if p.Call != nil {
			c := *p.Call
			if c.Custom {
				c.Args, found = g.Text(c.Args)
			} else {
				c.Args, found = g.arguments(c.Args)
			}
			if found != nil {
				return nil, found
			}
			p.Call = &c
		}
		if p.Result != nil {
			r := *p.Result
			if r.Parts, found = g.parts(r.Parts, prompt); found != nil {
				return nil, found
			}
			p.Result = &r
		}
		if m := p.Media; m != nil && m.URL != "" && !strings.HasPrefix(m.URL, "data:") {
			b := *m
			if b.URL, found = g.Text(b.URL); found != nil {
				return nil, found
			}
			p.Media = &b
		}
	}
	return out, nil
}

// Stream looks at a streamed answer. It holds back the end of each text that may still become something that is looked for, and the arguments of a call of a
// tool until they are whole, since they are JSON in which anything may be escaped.
type Stream struct {
	g    *Guard
	open map[int]*openPart
	held int
}

type openPart struct {
	kind wire.PartKind
	args bool // arguments in JSON
	text []byte
	tail tail
}

// Stream begins to look at an answer. It must not be used when g is nil.
func (g *Guard) Stream() *Stream { return &Stream{g: g, open: map[int]*openPart{}} }

// Events takes the next events, and returns those that may go. After Found, nothing more may go.
func (s *Stream) Events(list []wire.Event) ([]wire.Event, *Found) {
	out := make([]wire.Event, 0, len(list)+1)
	for _, e := range list {
		var found *Found
		if out, found = s.event(out, e); found != nil {
			return nil, found
		}
	}
	return out, nil
}

func (s *Stream) event(out []wire.Event, e wire.Event) ([]wire.Event, *Found) {
	switch e.Kind {
	case wire.PartBegin:
		o := &openPart{kind: e.Part.Kind, args: e.Part.Call != nil && !e.Part.Call.Custom, tail: tail{g: s.g}}
		first := e.Part.Text
		e.Part.Text = ""
		if e.Part.Call != nil {
			c := *e.Part.Call
			first, c.Args = c.Args, ""
			e.Part.Call = &c
		}
		s.open[e.Index] = o
		if o.kind == wire.MediaPart {
			return append(out, e), nil
		}
		out = append(out, e)
		if first != "" {
			return s.delta(out, o, wire.Event{Kind: wire.PartDelta, Index: e.Index, Text: first})
		}
		return out, nil
	case wire.PartDelta:
		if o := s.open[e.Index]; o != nil {
			return s.delta(out, o, e)
		}
	case wire.PartEnd:
		var found *Found
		if out, found = s.end(out, e.Index); found != nil {
			return nil, found
		}
	case wire.End:
		for _, i := range slices.Sorted(maps.Keys(s.open)) {
			var found *Found
			if out, found = s.end(out, i); found != nil {
				return nil, found
			}
		}
	case wire.Begin, wire.PartOpaque, wire.Used, wire.Broken, wire.Ping:
	}
	return append(out, e), nil
}

func (s *Stream) delta(out []wire.Event, o *openPart, e wire.Event) ([]wire.Event, *Found) {
	switch {
	case o.kind == wire.MediaPart:
		return append(out, e), nil
	case o.args:
		o.text = append(o.text, e.Text...)
		if s.held += len(e.Text); s.held > wire.MaxFrame {
			return append(out, wire.Event{Kind: wire.Broken, Fault: &wire.Fault{
				Class: agent.StreamBroken, Status: 502, Own: true, Message: "the arguments of a call are longer than a guardrail can look at",
			}}), nil
		}
		return out, nil
	}
	text, found := o.tail.write(e.Text)
	if found != nil {
		return nil, found
	}
	if text != "" {
		e.Text = text
		out = append(out, e)
	}
	return out, nil
}

// end lets go what is held of a part.
func (s *Stream) end(out []wire.Event, index int) ([]wire.Event, *Found) {
	o := s.open[index]
	if o == nil {
		return out, nil
	}
	delete(s.open, index)
	var text string
	var found *Found
	switch {
	case o.args:
		s.held -= len(o.text)
		text, found = s.g.arguments(string(o.text))
	case o.kind != wire.MediaPart:
		text, found = o.tail.flush()
	}
	if found != nil {
		return nil, found
	}
	if text != "" {
		out = append(out, wire.Event{Kind: wire.PartDelta, Index: index, Text: text})
	}
	return out, nil
}
