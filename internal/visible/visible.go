// Package visible shows text of strangers to a person who decides by it: every character that is not to be seen, or that makes others be
// seen elsewhere, is shown as what it is.
package visible

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text shows s on one line: line breaks and tabs too are escaped. What is not valid UTF-8 is shown by its bytes, as \xff.
func Text(s string) string { return escape(s, hidden) }

// Block is Text with the line breaks left as they are, but for carriage returns.
func Block(s string) string {
	return escape(s, func(r rune) bool { return r != '\n' && hidden(r) })
}

// JSON shows a JSON value indented, out of the very bytes of it: members stay in their order, also those that are there twice, and a
// character that is written as an escape stays one. What is no JSON is shown as a Block.
func JSON(b []byte) string {
	var out bytes.Buffer
	if json.Indent(&out, b, "", "  ") != nil {
		return Block(string(b))
	}
	return Block(out.String())
}

// Line is JSON on one line, cut to at most most characters.
func Line(b []byte, most int) string {
	var out bytes.Buffer
	text := string(b)
	if json.Compact(&out, b) == nil {
		text = out.String()
	}
	return Cut(Text(text), most)
}

// Cut shortens what was made visible to at most most characters, and says so by three dots at its end.
func Cut(s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	runes := []rune(s)
	return string(runes[:max(most-3, 0)]) + "..."
}

func escape(s string, hide func(rune) bool) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, hide) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case !hide(r):
			b.WriteString(s[i : i+n])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r > 0xffff:
			fmt.Fprintf(&b, `\u{%x}`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		i += n
	}
	return b.String()
}

// blank are letters and symbols that fonts draw as nothing.
var blank = map[rune]bool{
	0x034f: true, 0x115f: true, 0x1160: true, 0x17b4: true, 0x17b5: true, 0x2800: true, 0x3164: true, 0xffa0: true, 0xfffc: true,
}

// hidden reports whether a person would not see r, or see others differently for it: controls, formats (bidirectional marks, joiners,
// tags), every space but the plain one, variation selectors, and code points that stand for nothing. unicode.IsPrint knows most of it.
func hidden(r rune) bool {
	return !unicode.IsPrint(r) || blank[r] || unicode.Is(unicode.Variation_Selector, r) || unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r)
}
