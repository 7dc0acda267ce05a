// Package scrub takes secrets out of bytes on their way to those who must not read them: responses, log lines, events and
// errors. It finds each value as it is, and in the encodings that text passes through on its way: percent-encoding, JSON and
// JavaScript escapes, HTML entities, UTF-16, hexadecimal and base64, mixed and nested as they may be.
//
// What is found is exact: text that does not spell a value stays as it is, byte for byte. What somebody hides on purpose (a
// value reversed, compressed, or sent letter by letter) is not found, by this or by any other filter: who may receive a
// secret is a matter of its bindings.
package scrub

import "slices"

// Mark stands where a value was.
const Mark = "[secret]"

// Scrubber finds a fixed set of values. It is immutable and safe for concurrent use; a nil one finds nothing.
type Scrubber struct {
	values [][]byte
	forms  []unit          // every spelling of every value, one after the other, each with a formEnd after it
	first  [256][]int32    // by byte: where in forms a spelling begins with it
	pairs  [1 << 10]uint64 // bit a|b<<8: a spelling may begin with the bytes a, b
	last   [256]bool       // a spelling may begin with this byte
	most   int             // entries of a slot before it floods
}

// New returns a Scrubber of the values, or nil when there are none. Empty values are left out. It copies what it keeps.
//
// Values of fewer than five bytes are found in fewer encodings, since their base64 is short enough to be a word.
func New(values ...[]byte) *Scrubber {
	s := &Scrubber{}
	for _, v := range values {
		if len(v) == 0 || slices.ContainsFunc(s.values, func(w []byte) bool { return string(w) == string(v) }) {
			continue
		}
		s.values = append(s.values, slices.Clone(v))
	}
	if len(s.values) == 0 {
		return nil
	}
	n := 0
	for _, v := range s.values {
		n += s.spell(v)
	}
	s.most = 64 + 8*n
	s.index()
	return s
}

// Merge returns a Scrubber of the values of all, or nil when there are none.
func Merge(all ...*Scrubber) *Scrubber {
	all = slices.DeleteFunc(slices.Clone(all), func(s *Scrubber) bool { return s == nil })
	all = slices.Compact(all)
	if len(all) == 1 {
		return all[0]
	}
	var values [][]byte
	for _, s := range all {
		values = append(values, s.values...)
	}
	return New(values...)
}

// Bytes returns b with each value replaced by Mark. It returns b itself when there is none in it.
func (s *Scrubber) Bytes(b []byte) []byte {
	out, _ := s.scrub(b)
	return out
}

// String is Bytes of a string.
func (s *Scrubber) String(text string) string {
	if out, found := s.scrub([]byte(text)); found {
		return string(out)
	}
	return text
}

// In reports whether b holds a value.
func (s *Scrubber) In(b []byte) bool {
	_, found := s.scrub(b)
	return found
}

func (s *Scrubber) scrub(b []byte) (_ []byte, found bool) {
	if s == nil || s.skip(b, 0) == len(b) {
		return b, false
	}
	m := matcher{s: s}
	m.scan(b, 0, 0, true)
	if len(m.spans) == 0 {
		return b, false
	}
	out, _ := m.flush(nil, b, 0, len(b))
	return out, true
}
