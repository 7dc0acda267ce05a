package leak

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/skep-dev/skep/gateway/sse"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/vault/scrub"
)

// Frames takes keys out of the bytes of a stream that is passed on. It reads no frame itself until the meter that reads all of them has told of something that
// may be a key, and changes no byte but of texts that spell one. It is not safe for concurrent use; a nil one takes out nothing.
type Frames struct {
	heard lanes // by the meter of the stream
	found bool  // a key was
	begin func() wire.Meter
	array bool // the stream is a JSON array and not frames
	on    bool // what comes is read
	line  line[[]byte]
	meter wire.Meter // of line
	parse sse.Parser
	part  []byte // of a frame that is not whole
	said  []piece
}

// NewFrames begins a stream, which m reads as it comes; begin makes another such meter. framed says that the stream is server-sent events; it is a JSON
// array else. It returns nil when clean is nil or m tells nothing.
func NewFrames(clean *scrub.Scrubber, m wire.Meter, begin func() wire.Meter, framed bool) *Frames {
	t, ok := m.(wire.Teller)
	if clean == nil || !ok {
		return nil
	}
	f := &Frames{heard: lanes{clean: clean}, begin: begin, array: !framed}
	t.Tell(func(s wire.Said) {
		l := f.heard.take(place{s.Kind, s.Index}, s.Text)
		f.found = f.found || len(l.find.Found()) > 0
	})
	return f
}

// Bytes takes keys out of a stream that has come whole.
func Bytes(clean *scrub.Scrubber, begin func() wire.Meter, framed bool, b []byte) []byte {
	m := begin()
	f := NewFrames(clean, m, begin, framed)
	m.Write(b)
	return f.Pass(b, true)
}

// Pass takes the next bytes, whole frames except at the end, and returns those that may go. After the last ones nothing is held.
func (f *Frames) Pass(b []byte, last bool) []byte {
	if f == nil || !f.on && !f.found && !f.array && f.heard.quiet() {
		return b
	}
	if !f.on {
		f.on = true
		f.line = line[[]byte]{lanes: lanes{clean: f.heard.clean}}
		f.parse = sse.Parser{Max: wire.MaxFrame}
		f.meter = f.begin()
		f.meter.(wire.Teller).Tell(func(s wire.Said) {
			f.said = f.line.piece(f.said, place{s.Kind, s.Index}, s.Field, strings.Clone(s.Text))
		})
	}
	for len(b) > 0 {
		n, whole := f.next(b)
		f.meter.Write(b[:n])
		f.part = append(f.part, b[:n]...)
		if b = b[n:]; whole {
			f.add()
		}
	}
	if last {
		f.meter.Write([]byte("\n\n")) // some clients read a frame that has no end
		f.add()
		f.line.end()
	}
	var out []byte
	for u := f.line.next(); u != nil; u = f.line.next() {
		out = append(out, edited(u)...)
	}
	if last {
		return append(out, f.part...) // the end of an array
	}
	if !f.found && !f.array && len(f.part) == 0 && len(f.line.queue) == 0 && f.line.quiet() {
		f.on = false
	}
	return out
}

// next returns how many bytes of b are of the frame, and whether it may end there.
func (f *Frames) next(b []byte) (int, bool) {
	if f.array {
		i := bytes.IndexByte(b, '}')
		if i < 0 {
			return len(b), false
		}
		return i + 1, true
	}
	n, _, _, ok, err := f.parse.Next(b)
	return n, ok || err != nil
}

// add makes a unit of what has come. In an array that is an element which says something, with what stands before it.
func (f *Frames) add() {
	if len(f.part) == 0 || f.array && len(f.said) == 0 {
		return
	}
	f.line.add(unit[[]byte]{of: f.part, size: 64 + len(f.part), pieces: f.said})
	f.part, f.said = nil, nil
}

// edited is a frame without what is cut out of it. One in which that cannot be found does not go at all.
func edited(u *unit[[]byte]) []byte {
	frame, from := u.of, 0
	for i := range u.pieces {
		p := &u.pieces[i]
		at, to := find(frame, from, p.field, p.text)
		if to == 0 {
			if len(p.cuts) > 0 {
				return nil
			}
			continue
		}
		if from = to; len(p.cuts) > 0 {
			text := quote(p.edited())
			frame = append(append(append([]byte(nil), frame[:at]...), text...), frame[to:]...)
			from = at + len(text)
		}
	}
	return frame
}

// find returns where in a frame, from a place on, the value of a field is that is text. to is 0 when there is none.
func find(frame []byte, from int, field, text string) (at, to int) {
	var name []byte
	for i := from; i < len(frame); i++ {
		if frame[i] != '"' {
			continue
		}
		end := i + 1
		for ; end < len(frame) && frame[end] != '"'; end++ {
			if frame[end] == '\\' {
				end++
			}
		}
		if end = min(end+1, len(frame)); bytes.HasPrefix(bytes.TrimLeft(frame[end:], " \t\r\n"), []byte(":")) {
			name = frame[i:end]
		} else if string(name) == `"`+field+`"` && unquote(frame[i:end]) == text {
			return i, end
		}
		i = end - 1
	}
	return 0, 0
}

func unquote(b []byte) string {
	var s string
	_ = json.Unmarshal(b, &s)
	return s
}

func quote(s string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
