package scrub

import (
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	upperHex = "0123456789ABCDEF"
	lowerHex = "0123456789abcdef"

	maxRun    = 8                           // backslashes in a row that are read as one escape
	maxEscape = 2 * (maxRun + len("u0000")) // the longest escape: a surrogate pair
)

// escapes are the bytes that may follow a backslash, and what they stand for; 0 when that is decided by what follows.
var escapes = map[byte]byte{
	'"': '"', '/': '/', '\'': '\'', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t',
	'\\': 0, 'x': 0, 'u': 0, 'U': 0,
}

// reading is one way to read the beginning of a text: its first size bytes stand for b[:n].
type reading struct {
	size, n int
	b       [utf8.UTFMax]byte
}

// isIntro reports whether c may begin an escape.
func isIntro(c byte) bool {
	return c == '%' || c == '\\' || c == '&' || c == '+' || c == 0
}

// readings appends to rs each way to read the escape that t begins with. More says that t ends within what may be one.
func readings(rs []reading, t []byte) (_ []reading, more bool) {
	switch t[0] {
	case '+':
		return one(rs, 1, ' '), false
	case 0: // UTF-16, whichever end comes first
		if len(t) < 2 {
			return rs, true
		}
		return one(rs, 2, t[1]), false
	case '%':
		return percent(rs, t)
	case '\\':
		return backslash(rs, t)
	}
	return entity(rs, t)
}

func one(rs []reading, size int, c byte) []reading {
	return append(rs, reading{size, 1, [4]byte{c}})
}

func code(rs []reading, size int, r rune) []reading {
	u := reading{size: size}
	u.n = utf8.EncodeRune(u.b[:], r)
	if rs = append(rs, u); 0x80 <= r && r <= 0xff { // or bytes that were never text
		rs = one(rs, size, byte(r))
	}
	return rs
}

// percent reads %XX, and %25XX as one that was encoded again.
func percent(rs []reading, t []byte) ([]reading, bool) {
	for i := 1; i <= 5; i += 2 {
		n, ok := digits(t[i:], 2)
		if !ok {
			return rs, i+2 > len(t) && len(t)-i == n
		}
		c := number(t[i : i+2])
		rs = one(rs, i+2, byte(c))
		if c == '+' {
			rs = one(rs, i+2, ' ')
		}
		if c != '%' {
			break
		}
		if i+2 == len(t) {
			return rs, i < 5
		}
	}
	return rs, false
}

// backslash reads the escapes of JSON, JavaScript, Go and C. Each time that JSON is put into JSON, backslashes are doubled and
// one more is put before.
func backslash(rs []reading, t []byte) ([]reading, bool) {
	run := 1
	for run < len(t) && run < maxRun && t[run] == '\\' {
		run++
	}
	for n := 2; n <= run; n *= 2 {
		rs = one(rs, n, '\\')
	}
	if run == len(t) {
		return rs, run < maxRun
	}
	after := t[run+1:]
	switch t[run] {
	case '"', '/', '\'', 'b', 'f', 'n', 'r', 't':
		rs = one(rs, run+1, escapes[t[run]])
	case 'x':
		return coded(rs, after, run+1, 2)
	case 'U':
		return coded(rs, after, run+1, 8)
	case 'u':
		if n, ok := digits(after, 4); ok && utf16.IsSurrogate(number(after[:n])) {
			return surrogates(rs, t, run)
		}
		return coded(rs, after, run+1, 4)
	}
	return rs, false
}

// coded reads the n digits of a code point that stand after an escape's first bytes.
func coded(rs []reading, t []byte, before, n int) ([]reading, bool) {
	if got, ok := digits(t, n); !ok {
		return rs, got == len(t)
	}
	return code(rs, before+n, number(t[:n])), false
}

// surrogates reads two \uXXXX with runs of backslashes of one length, of which the first is a surrogate.
func surrogates(rs []reading, t []byte, run int) ([]reading, bool) {
	size := run + len("u0000")
	first, second := number(t[run+1:size]), t[size:]
	for i := range min(run+1, len(second)) {
		if i < run && second[i] != '\\' || i == run && second[i] != 'u' {
			return rs, false
		}
	}
	if len(second) <= run {
		return rs, true
	}
	if n, ok := digits(second[run+1:], 4); !ok {
		return rs, run+1+n == len(second)
	}
	if r := utf16.DecodeRune(first, number(second[run+1:size])); r != utf8.RuneError {
		rs = code(rs, 2*size, r)
	}
	return rs, false
}

// entities are the named ones that stand for ASCII; the first is how an "&" is escaped again.
var entities = [...]struct {
	name string
	c    byte
}{{"amp;", '&'}, {"lt;", '<'}, {"gt;", '>'}, {"quot;", '"'}, {"apos;", '\''}}

// entity reads the entities of HTML and XML, escaped up to three times.
func entity(rs []reading, t []byte) ([]reading, bool) {
	at := 1
	for range 3 {
		rest := string(t[at:min(len(t), at+12)])
		if strings.HasPrefix(rest, "#") {
			return numeric(rs, t, at+1)
		}
		again, more := false, rest == ""
		for i, e := range entities {
			if strings.HasPrefix(rest, e.name) {
				rs = one(rs, at+len(e.name), e.c)
				again = i == 0
			}
			more = more || len(rest) < len(e.name) && strings.HasPrefix(e.name, rest)
		}
		if !again {
			return rs, more
		}
		at += len("amp;")
		if at == len(t) {
			return rs, true
		}
	}
	return rs, false
}

func numeric(rs []reading, t []byte, at int) ([]reading, bool) {
	var r, base rune = 0, 10
	if at < len(t) && t[at]|0x20 == 'x' {
		base = 16
		at++
	}
	for i := at; i < len(t) && i-at <= 7; i++ {
		d := digit(t[i])
		switch {
		case t[i] == ';' && i > at:
			return code(rs, i+1, r), false
		case d < 0 || d >= base:
			return rs, false
		}
		r = r*base + d
	}
	return rs, len(t)-at <= 7
}

// digits counts the hexadecimal digits that t begins with, up to n.
func digits(t []byte, n int) (int, bool) {
	for i := range n {
		if i >= len(t) || digit(t[i]) < 0 {
			return i, false
		}
	}
	return n, true
}

func number(t []byte) rune {
	var r rune
	for _, c := range t {
		r = r<<4 | digit(c)
	}
	return r
}

func digit(c byte) rune {
	switch {
	case '0' <= c && c <= '9':
		return rune(c - '0')
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return rune(c|0x20-'a') + 10
	}
	return -1
}
