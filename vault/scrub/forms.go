package scrub

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
)

// unit is one byte of a spelling, and above it the alphabet that says which bytes of a text stand for it.
type unit uint16

const (
	plain    unit = iota << 8 // the byte itself
	anyCase                   // hexadecimal: either case
	anySixty                  // base64: the standard alphabet or that for URLs, with line breaks between
	alphabets

	formEnd unit = 0xffff
)

// shortest is the fewest digits of a spelling in hexadecimal or base64. Fewer are found in text that is no secret.
const shortest = 6

// is reports whether the byte c of a text stands for u.
func (u unit) is(c byte) bool {
	switch u &^ 0xff {
	case anyCase:
		if 'A' <= c && c <= 'F' {
			c |= 0x20
		}
	case anySixty:
		switch c {
		case '-':
			c = '+'
		case '_':
			c = '/'
		}
	}
	return byte(u) == c
}

// spell adds the spellings of v to s and returns how many there are.
func (s *Scrubber) spell(v []byte) int {
	n := 1
	s.add(plain, v)
	if text := hex.AppendEncode(nil, v); len(text) >= shortest {
		s.add(anyCase, text)
		n++
	}
	for before := range 3 {
		if text := sixty(v, before); len(text) >= shortest {
			s.add(anySixty, text)
			n++
		}
	}
	return n
}

// sixty returns the base64 digits that v alone decides when it stands after a number of other bytes, and before any.
func sixty(v []byte, before int) []byte {
	text := base64.RawStdEncoding.AppendEncode(nil, append(make([]byte, before, before+len(v)), v...))
	from, to := (before*8+5)/6, (before+len(v))*8/6
	return text[from:max(from, to)]
}

func (s *Scrubber) add(a unit, text []byte) {
	for _, c := range text {
		s.forms = append(s.forms, a|unit(c))
	}
	s.forms = append(s.forms, formEnd)
}

// index fills the tables that say where a spelling may begin.
func (s *Scrubber) index() {
	begins := true
	for i, u := range s.forms {
		if begins {
			for c := range 256 {
				if u.is(byte(c)) {
					s.first[c] = append(s.first[c], int32(i))
					s.begin(byte(c), s.forms[i+1])
				}
			}
		}
		begins = u == formEnd
	}
	for c := range 256 {
		if s.first[c] == nil {
			continue
		}
		s.pair(0, byte(c))
		s.pair('%', upperHex[c>>4])
		s.pair('%', lowerHex[c>>4])
		if c == ' ' {
			for _, u := range s.first[c] {
				s.begin('+', s.forms[u+1])
			}
		}
	}
	s.pair('%', '2') // of %25
	for c, r := range escapes {
		if r == 0 || s.first[r] != nil {
			s.pair('\\', c)
		}
	}
	s.pair('&', '#')
	for _, e := range entities {
		if e.c == '&' || s.first[e.c] != nil {
			s.pair('&', e.name[0])
		}
	}
}

// begin notes that a spelling may begin with the byte c, and go on with next.
func (s *Scrubber) begin(c byte, next unit) {
	s.last[c] = true
	for d := range 256 {
		b := byte(d)
		if next == formEnd || next.is(b) || isIntro(b) && b != '+' || b == '+' && next.is(' ') ||
			next&^0xff == anySixty && (b == '\n' || b == '\r') {
			s.pair(c, b)
		}
	}
}

func (s *Scrubber) pair(a, b byte) {
	s.last[a] = true
	k := uint(a) | uint(b)<<8
	s.pairs[k>>6] |= 1 << (k & 63)
}

// begins reports whether a spelling may begin at t[i].
func (s *Scrubber) begins(t []byte, i int) bool {
	if i+1 == len(t) {
		return s.last[t[i]]
	}
	return s.may(uint(t[i])|uint(t[i+1])<<8) != 0
}

// ahead is how far goesOn looks.
const ahead = 8

// goesOn reports whether t may go on as the spelling does at a place in forms. It looks ahead as far as bytes stand for
// themselves, so that nearly all that only begins like a value costs no state.
func (s *Scrubber) goesOn(at int32, t []byte) bool {
	for i, u := range s.forms[min(int(at), len(s.forms)):] {
		if u == formEnd || i == len(t) || i == ahead || isIntro(t[i]) || t[i] == '\n' || t[i] == '\r' {
			return true
		}
		if !u.is(t[i]) {
			return false
		}
	}
	return true
}

// may returns 1 when a spelling may begin with the two bytes of k, the lower one first, else 0.
func (s *Scrubber) may(k uint) uint64 { return s.pairs[k>>6&(1<<10-1)] >> (k & 63) & 1 }

// skip returns the first place in t from i on where a spelling may begin, or len(t). Most bytes of most texts end here, so it
// takes seven pairs at a time.
func (s *Scrubber) skip(t []byte, i int) int {
	for ; i+8 <= len(t); i += 7 {
		w := uint(binary.LittleEndian.Uint64(t[i:]))
		if s.may(w)|s.may(w>>8)|s.may(w>>16)|s.may(w>>24)|s.may(w>>32)|s.may(w>>40)|s.may(w>>48) != 0 {
			for ; s.may(w) == 0; w >>= 8 {
				i++
			}
			return i
		}
	}
	for ; i < len(t); i++ {
		if s.begins(t, i) {
			return i
		}
	}
	return len(t)
}
