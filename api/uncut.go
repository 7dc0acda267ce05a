package api

import "unicode/utf8"

// uncut passes text on that comes in pieces, which end anywhere, in pieces that end with a whole character of UTF-8.
type uncut struct{ rest []byte } // the bytes of a character of which more is to come

// take returns what is whole of the bytes so far.
func (u *uncut) take(piece []byte) string {
	b := append(u.rest, piece...)
	whole := len(b)
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if tail := b[len(b)-n:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				whole -= n
			}
			break
		}
	}
	out := string(b[:whole])
	u.rest = append(b[:0], b[whole:]...)
	return out
}
