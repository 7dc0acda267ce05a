package scrub

// Span is a place in a text where a value is: from one offset to another, in bytes.
type Span struct{ From, To int }

// Finder finds values in a text that comes in pieces, for those who take them out themselves. Offsets count from the beginning of the whole text, of which it
// keeps no more than the beginning of an escape. It is not safe for concurrent use.
type Finder struct {
	m    matcher
	rest []byte // of the text, from seen on
	seen int    // the offset up to which the matcher went
}

// Finder begins a text. It must not be used when s is nil.
func (s *Scrubber) Finder() *Finder { return &Finder{m: matcher{s: s}} }

// Add takes the next piece.
func (f *Finder) Add(piece string) {
	f.rest = append(f.rest, piece...)
	to := f.m.scan(f.rest, f.seen, f.seen, false)
	f.rest = f.rest[:copy(f.rest, f.rest[to-f.seen:])]
	f.seen = to
}

// Len is how long the text is until now.
func (f *Finder) Len() int { return f.seen + len(f.rest) }

// Open is the offset from where more text may still make a value; Len when nothing is open.
func (f *Finder) Open() int {
	open := f.m.hold(f.seen)
	for _, s := range f.m.spans {
		if s.to > open { // what is open may make it longer
			return min(open, s.from)
		}
	}
	return open
}

// Quiet reports whether nothing is open, and nothing was found that Found has not returned.
func (f *Finder) Quiet() bool { return f.m.waiting == 0 && len(f.rest) == 0 && len(f.m.spans) == 0 }

// Found returns the places before Open that it has not returned before, in order.
func (f *Finder) Found() (list []Span) {
	open := f.Open()
	for len(f.m.spans) > 0 && f.m.spans[0].to <= open {
		list = append(list, Span{f.m.spans[0].from, f.m.spans[0].to})
		f.m.spans = append(f.m.spans[:0], f.m.spans[1:]...)
	}
	return list
}

// Settle takes what is open for a value.
func (f *Finder) Settle() {
	if f.Open() < f.Len() {
		f.seen, f.rest = f.Len(), f.rest[:0]
		f.m.flood(f.seen)
	}
}

// End says that the text has ended: what is open is none.
func (f *Finder) End() {
	f.seen = f.m.scan(f.rest, f.seen, f.seen, true)
	f.rest = f.rest[:0]
	for i := range f.m.slots {
		f.m.slots[i] = f.m.slots[i][:0]
	}
	f.m.waiting = 0
}
