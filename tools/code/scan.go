package code

import (
	"strings"
	"unicode/utf8"
)

// token is a word, literal or sign of a script. It is as much of the language as the beginnings and ends of things need.
type token struct {
	kind     byte // of: w " ` / 0 and for signs p
	from, to int
	depth    int  // brackets around it; a bracket has that of what is around both
	newline  bool // a line ends between it and the token before
}

// scan cuts JavaScript or TypeScript into tokens. It takes whatever comes: what is not closed ends with the text. Where only a parser knows
// whether a slash divides, it guesses by what stands before.
func scan(text string) []token {
	var out []token
	depth, newline := 0, false
	for i := 0; i < len(text); {
		c := text[i]
		from := i
		var kind byte = 'p'
		at := depth
		switch {
		case c == '\n' || c == '\r':
			newline = true
			i++
			continue
		case c <= ' ':
			i++
			continue
		case strings.HasPrefix(text[i:], "//"):
			i = lineEnd(text, i)
			continue
		case strings.HasPrefix(text[i:], "/*"):
			end := commentEnd(text, i)
			newline = newline || strings.Contains(text[i:end], "\n")
			i = end
			continue
		case c == '"' || c == '\'':
			kind = '"'
			i = stringEnd(text, i)
		case c == '`':
			kind = '`'
			i = templateEnd(text, i, 0)
		case c == '/' && beforeRegexp(text, out):
			kind = '/'
			i = regexpEnd(text, i)
		case wordByte(c):
			kind = 'w'
			if c >= '0' && c <= '9' {
				kind = '0'
			}
			for i < len(text) && wordByte(text[i]) {
				i++
			}
		case c == '(' || c == '[' || c == '{':
			depth++
			i++
		case c == ')' || c == ']' || c == '}':
			depth = max(depth-1, 0)
			at = depth
			i++
		case strings.HasPrefix(text[i:], "=>"), strings.HasPrefix(text[i:], "?."):
			i += 2
		case strings.HasPrefix(text[i:], "..."):
			i += 3
		default:
			i++
		}
		out = append(out, token{kind, from, i, at, newline})
		newline = false
	}
	return out
}

func wordByte(c byte) bool {
	return c == '_' || c == '$' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c >= utf8.RuneSelf || c == '\\'
}

func lineEnd(text string, i int) int {
	if n := strings.IndexAny(text[i:], "\n\r"); n >= 0 {
		return i + n
	}
	return len(text)
}

func commentEnd(text string, i int) int {
	if n := strings.Index(text[i+2:], "*/"); n >= 0 {
		return i + n + 4
	}
	return len(text)
}

func stringEnd(text string, i int) int {
	for q := text[i]; ; {
		i++
		switch {
		case i >= len(text):
			return len(text)
		case text[i] == '\\':
			i++
		case text[i] == q:
			return i + 1
		case text[i] == '\n':
			return i
		}
	}
}

// maxTemplates is how deep templates may stand in templates; deeper ones end with the text.
const maxTemplates = 50

func templateEnd(text string, i, level int) int {
	for i++; i < len(text); i++ {
		switch {
		case text[i] == '\\':
			i++
		case text[i] == '`':
			return i + 1
		case strings.HasPrefix(text[i:], "${"):
			if level >= maxTemplates {
				return len(text)
			}
			i = holeEnd(text, i+2, level+1) - 1
		}
	}
	return len(text)
}

// holeEnd returns where a hole of a template ends that begins at i.
func holeEnd(text string, i, level int) int {
	for depth := 1; i < len(text); {
		switch c := text[i]; {
		case c == '"' || c == '\'':
			i = stringEnd(text, i)
			continue
		case c == '`':
			i = templateEnd(text, i, level)
			continue
		case strings.HasPrefix(text[i:], "//"):
			i = lineEnd(text, i)
			continue
		case strings.HasPrefix(text[i:], "/*"):
			i = commentEnd(text, i)
			continue
		case c == '{':
			depth++
		case c == '}':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return len(text)
}

// operands are words after which a value comes, so that a slash begins a regular expression.
var operands = words("return typeof case in of do else void delete throw new await yield instanceof")

func beforeRegexp(text string, before []token) bool {
	if len(before) == 0 {
		return true
	}
	last := before[len(before)-1]
	switch last.kind {
	case 'w':
		return operands[text[last.from:last.to]]
	case 'p':
		c := text[last.from]
		return c != ')' && c != ']' && c != '}'
	}
	return false
}

func regexpEnd(text string, i int) int {
	class := false
	for i++; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\':
			i++
		case c == '\n':
			return i
		case c == '[':
			class = true
		case c == ']':
			class = false
		case c == '/' && !class:
			i++
			for i < len(text) && wordByte(text[i]) {
				i++
			}
			return i
		}
	}
	return len(text)
}

// source is a script in tokens.
type source struct {
	text   string
	tokens []token
}

func (s *source) is(i int, text string) bool {
	return i >= 0 && i < len(s.tokens) && s.tokens[i].kind != '"' && s.tokens[i].kind != '`' && s.text[s.tokens[i].from:s.tokens[i].to] == text
}

func (s *source) kind(i int) byte {
	if i < 0 || i >= len(s.tokens) {
		return 0
	}
	return s.tokens[i].kind
}

// match returns the token that closes the bracket at i, or -1.
func (s *source) match(i int) int {
	if i < 0 || i >= len(s.tokens) {
		return -1
	}
	for j := i + 1; j < len(s.tokens); j++ {
		if s.tokens[j].depth == s.tokens[i].depth {
			if c := s.text[s.tokens[j].from]; s.tokens[j].kind == 'p' && (c == ')' || c == ']' || c == '}') {
				return j
			}
			return -1
		}
	}
	return -1
}

// importEnd returns the token behind an import or export-from declaration that begins at i, or -1 when there is none.
func (s *source) importEnd(i int) int {
	if !s.is(i, "import") || s.is(i+1, "(") || s.is(i+1, ".") || s.tokens[i].depth != 0 {
		return -1
	}
	for j := i + 1; j < len(s.tokens) && j < i+4096; j++ {
		if s.kind(j) == '"' && (j == i+1 || s.is(j-1, "from")) {
			return s.declarationEnd(j + 1)
		}
		if s.is(j, ";") || s.tokens[j].depth == 0 && s.is(j, "=") {
			return -1
		}
	}
	return -1
}

// declarationEnd is behind the attributes and the semicolon that may follow.
func (s *source) declarationEnd(j int) int {
	if (s.is(j, "with") || s.is(j, "assert")) && s.is(j+1, "{") {
		if m := s.match(j + 1); m > 0 {
			j = m + 1
		}
	}
	if s.is(j, ";") {
		j++
	}
	return j
}
