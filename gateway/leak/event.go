package leak

import (
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/vault/scrub"
)

// Events takes keys out of a stream in canonical form. It is not safe for concurrent use; a nil one takes out nothing.
type Events struct {
	line  line[wire.Event]
	kinds []wire.PartKind // by index
}

// NewEvents begins a stream. It returns nil when clean is nil.
func NewEvents(clean *scrub.Scrubber) *Events {
	if clean == nil {
		return nil
	}
	return &Events{line: line[wire.Event]{lanes: lanes{clean: clean}}}
}

// Take takes the next events, and returns those that may go: list itself, for as long as nothing is held back. After the last event nothing is.
func (e *Events) Take(list []wire.Event) []wire.Event {
	if e == nil {
		return list
	}
	for i := range list {
		if u := e.unit(list[i]); len(e.line.queue) > 0 || !u.quiet() {
			return e.hold(append(make([]wire.Event, 0, len(list)+1), list[:i]...), u, list[i+1:])
		}
	}
	return list
}

// hold takes u and the rest of a list, and appends to out what may go.
func (e *Events) hold(out []wire.Event, u unit[wire.Event], rest []wire.Event) []wire.Event {
	for {
		e.line.add(u)
		if u.of.Kind == wire.End || u.of.Kind == wire.Broken {
			e.line.end()
		}
		for u := e.line.next(); u != nil; u = e.line.next() {
			if u.changed() {
				e.edit(&u.of, u.pieces[0].edited())
			}
			if u.of.Kind != wire.PartDelta || u.of.Text != "" {
				out = append(out, u.of)
			}
		}
		if len(rest) == 0 {
			return out
		}
		u, rest = e.unit(rest[0]), rest[1:]
	}
}

// unit reads what an event says.
func (e *Events) unit(of wire.Event) unit[wire.Event] {
	u := unit[wire.Event]{of: of, size: 64 + len(of.Text)}
	text := of.Text
	switch of.Kind {
	case wire.PartBegin:
		for len(e.kinds) <= of.Index {
			e.kinds = append(e.kinds, wire.MediaPart)
		}
		e.kinds[of.Index] = of.Part.Kind
		if text = of.Part.Text; of.Part.Call != nil {
			text = of.Part.Call.Args
		}
	case wire.PartDelta:
		if of.Index >= len(e.kinds) {
			return u
		}
	default:
		return u
	}
	at := place{kind: e.kinds[of.Index]}
	if at.kind == wire.MediaPart {
		return u
	}
	if at.kind == wire.CallPart {
		at.index = of.Index
	}
	u.pieces = e.line.piece(nil, at, "", text)
	return u
}

// edit puts text in the place of what an event says.
func (e *Events) edit(of *wire.Event, text string) {
	switch {
	case of.Kind == wire.PartDelta:
		of.Text = text
	case of.Part.Call != nil:
		c := *of.Part.Call
		c.Args, of.Part.Call = text, &c
	default:
		of.Part.Text = text
	}
}
