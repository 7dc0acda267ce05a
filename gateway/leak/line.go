// Package leak takes the key of a provider out of streamed answers in which it is spelled in pieces: over several deltas of a text, of thoughts, or of a
// call's arguments. What is in one piece, the caller takes out itself (vault/scrub).
//
// What may be the beginning of a key is held back, with all that comes behind it, until more of its text has come. Text that cannot be one is never held.
// While another text goes on, as a call does after the words before it, the first few bytes of what may be a key do not hold it up: they go, and the rest of
// the key is taken out if it was one. What is held is bounded; past that it is taken for a key.
package leak

import (
	"strings"

	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/vault/scrub"
)

const (
	short   = 6         // bytes of what may be a key that hold up another text
	maxHeld = 256 << 10 // bytes
)

// place tells texts apart: all that is said in words is one text, as clients put it together, and the arguments of each call are one.
type place struct {
	kind  wire.PartKind
	index int
}

// lane is one text.
type lane struct {
	place
	find  *scrub.Finder
	loose bool // another text has gone on since, and what may be a key is short
}

// piece is what a unit adds to a text.
type piece struct {
	lane     *lane
	from, to int // offsets in the text
	field    string
	text     string
	cuts     []cut
}

// cut is a place in a piece's text: what is there goes, and mark stands for it.
type cut struct {
	from, to int
	mark     string
}

// edited is the text without what is cut out of it.
func (p *piece) edited() string {
	var b strings.Builder
	at := 0
	for _, c := range p.cuts {
		b.WriteString(p.text[at:c.from])
		b.WriteString(c.mark)
		at = c.to
	}
	b.WriteString(p.text[at:])
	return b.String()
}

// lanes are the texts of a stream.
type lanes struct {
	clean *scrub.Scrubber
	list  []*lane
}

// take adds to a text, and returns it.
func (l *lanes) take(at place, text string) *lane {
	var to *lane
	for _, o := range l.list {
		if o.place == at {
			to = o
		} else if !o.find.Quiet() && o.find.Len()-o.find.Open() < short {
			o.loose = true
		}
	}
	if to == nil {
		to = &lane{place: at, find: l.clean.Finder()}
		l.list = append(l.list, to)
	}
	to.find.Add(text)
	to.loose = false
	return to
}

// piece adds to a text, and appends to list the piece that it is.
func (l *lanes) piece(list []piece, at place, field, text string) []piece {
	if text == "" {
		return list
	}
	to := l.take(at, text)
	n := to.find.Len()
	return append(list, piece{lane: to, from: n - len(text), to: n, field: field, text: text})
}

// quiet reports whether no text ends in what may be a key.
func (l *lanes) quiet() bool {
	for _, o := range l.list {
		if !o.find.Quiet() {
			return false
		}
	}
	return true
}

// unit is what goes as a whole: a frame, or an event.
type unit[T any] struct {
	of     T
	size   int
	pieces []piece
}

// quiet reports whether there is nothing in it that is a key, and nothing at its end that may become one.
func (u *unit[T]) quiet() bool {
	for i := range u.pieces {
		if !u.pieces[i].lane.find.Quiet() {
			return false
		}
	}
	return true
}

// changed reports whether something is cut out of it.
func (u *unit[T]) changed() bool {
	for i := range u.pieces {
		if len(u.pieces[i].cuts) > 0 {
			return true
		}
	}
	return false
}

// line holds units back, in their order.
type line[T any] struct {
	lanes
	queue []unit[T]
	size  int
}

// add takes the next unit, whose pieces have been taken by their lanes.
func (l *line[T]) add(u unit[T]) {
	l.queue = append(l.queue, u)
	l.size += u.size
	for i := range u.pieces {
		l.cut(u.pieces[i].lane)
	}
	if l.size > maxHeld {
		for _, o := range l.list {
			o.find.Settle()
			l.cut(o)
		}
	}
}

// cut takes out of what is held the keys that were found in a text.
func (l *line[T]) cut(from *lane) {
	for _, s := range from.find.Found() {
		mark := scrub.Mark
		for i := range l.queue {
			for k := range l.queue[i].pieces {
				p := &l.queue[i].pieces[k]
				if p.lane != from || p.to <= s.From || p.from >= s.To {
					continue
				}
				p.cuts = append(p.cuts, cut{max(s.From-p.from, 0), min(s.To, p.to) - p.from, mark})
				mark = ""
			}
		}
	}
}

// end says that no more comes.
func (l *line[T]) end() {
	for _, o := range l.list {
		o.find.End()
		l.cut(o)
	}
}

// next returns the first unit if it may go. It is good until the next call.
func (l *line[T]) next() *unit[T] {
	if len(l.queue) == 0 {
		l.queue = nil
		return nil
	}
	u := &l.queue[0]
	for i := range u.pieces {
		if p := &u.pieces[i]; !p.lane.loose && p.to > p.lane.find.Open() {
			return nil
		}
	}
	l.queue = l.queue[1:]
	l.size -= u.size
	return u
}
