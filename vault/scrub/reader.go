package scrub

import "io"

// A reader asks its source for this much at once: little at first, since most responses are short.
const (
	firstChunk = 4 << 10
	chunk      = 32 << 10
)

// Reader returns src with each value replaced by Mark. It passes on all that it has, but for the end of it that may yet turn
// out to be a value: at most the longest spelling of one, and a whole escape. What it holds it passes on when src ends, for
// whatever reason.
func (s *Scrubber) Reader(src io.Reader) io.Reader {
	if s == nil {
		return src
	}
	return &reader{src: src, m: matcher{s: s}, ask: firstChunk}
}

// Guard returns src as far as the first value in it, where reading fails with err. Nothing of the value is passed on.
func (s *Scrubber) Guard(src io.Reader, err error) io.Reader {
	if s == nil {
		return src
	}
	return &reader{src: src, m: matcher{s: s}, ask: firstChunk, refuse: err}
}

type reader struct {
	src    io.Reader
	m      matcher
	text   []byte // read and not yet passed on
	base   int    // the offset of text
	seen   int    // the offset up to which the matcher went
	out    []byte // scrubbed and ready from next on
	next   int
	ask    int   // how much to ask for
	err    error // of src, after out
	refuse error // what to fail with where a value is, instead of replacing it
}

func (r *reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for empty := 0; r.next == len(r.out); {
		if r.err != nil {
			return 0, r.err
		}
		n := r.fill()
		if empty++; n > 0 {
			empty = 0
		} else if empty == 100 {
			return 0, io.ErrNoProgress
		}
	}
	n := copy(p, r.out[r.next:])
	r.next += n
	return n, nil
}

// fill reads once from the source.
func (r *reader) fill() int {
	held := len(r.text)
	if cap(r.text)-held < r.ask {
		r.text = append(make([]byte, 0, 2*held+r.ask), r.text...)
	}
	n, err := r.src.Read(r.text[held : held+r.ask])
	if n == r.ask {
		r.ask = chunk
	}
	r.text, r.err = r.text[:held+n], err
	r.seen = r.m.scan(r.text, r.base, r.seen, err != nil)

	end := r.seen
	if err == nil {
		end = r.m.hold(end)
	}
	if r.refuse != nil && len(r.m.spans) > 0 {
		end, r.err = min(end, r.m.spans[0].from), r.refuse
	}
	var used int
	r.out, used = r.m.flush(r.out[:0], r.text, r.base, end)
	r.next = 0
	r.text = r.text[:copy(r.text, r.text[used-r.base:])]
	r.base = used
	return n
}
