package code

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// hidden says whether r does not show, or changes how other text shows: controls, formats such as those of direction and of tags, and
// what is no character.
func hidden(r rune) bool {
	return r == '\u2028' || r == '\u2029' || unicode.Is(unicode.C, r) || r >= 0xfe00 && r <= 0xfe0f || r >= 0xe0000 && r <= 0xe0fff || !utf8.ValidRune(r)
}

// line is text on one line, without what does not show.
func line(s string) string {
	var b strings.Builder
	gap := false
	for _, r := range s {
		switch {
		case unicode.IsSpace(r):
			gap = b.Len() > 0
		case hidden(r) || r == utf8.RuneError:
		default:
			if gap {
				b.WriteByte(' ')
				gap = false
			}
			b.WriteRune(r)
		}
	}
	return b.String()
}

// clip cuts s to at most n bytes, at a space where one is near, and says so with an ellipsis.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	cut := max(n-len("…"), 0)
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	if space := strings.LastIndexByte(s[:cut], ' '); space > cut*2/3 {
		cut = space
	}
	return strings.TrimRight(s[:cut], " ,;:-(") + "…"
}

// abbreviations end in a dot that ends no sentence.
var abbreviations = words("e.g. i.e. etc. vs. cf. approx. incl. no. nr. fig. mr. mrs. dr. st. inc. ltd. z.b. resp. max. min. ca. a.k.a. u.s.")

// Sentence returns the first sentence of a description, on one line, of at most n bytes. A heading or a list ends one, a dot in a name, a number
// or an abbreviation does not.
func Sentence(text string, n int) string {
	text = strings.TrimSpace(text[:min(len(text), 16<<10)])
	// A first line that has no end is one that stands alone, such as a heading, unless the next goes on with it.
	var lines []string
	for l := range strings.SplitSeq(text, "\n") {
		l = line(strings.TrimLeft(strings.TrimSpace(l), "#>*-• \t"))
		l = strings.Trim(l, "*_`=")
		if l == "" {
			if len(lines) > 0 {
				break
			}
			continue
		}
		lines = append(lines, l)
		if end := sentenceEnd(strings.Join(lines, " ")); end > 0 || len(strings.Join(lines, " ")) > 4*n {
			break
		}
	}
	s := strings.Join(lines, " ")
	if end := sentenceEnd(s); end > 0 {
		s = s[:end]
	}
	return clip(strings.TrimRight(s, " :"), n)
}

// sentenceEnd returns where the first sentence of a line ends, or 0.
func sentenceEnd(s string) int {
	for i, r := range s {
		switch r {
		case '。', '！', '？', '．':
			return i + utf8.RuneLen(r)
		case '.', '!', '?':
			rest := s[i+1:]
			if rest != "" && rest[0] != ' ' && !strings.HasPrefix(rest, ") ") {
				continue
			}
			word := s[strings.LastIndexAny(s[:i], " (")+1 : i+1]
			if r == '.' && (abbreviations[strings.ToLower(word)] || len(word) == 2 && unicode.IsUpper(rune(word[0])) && rest != "") {
				continue
			}
			if strings.HasPrefix(rest, ") ") {
				return i + 2
			}
			return i + 1
		}
	}
	return 0
}
