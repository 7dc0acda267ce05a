package code

import (
	"strings"

	"github.com/skep-dev/skep/agent"
)

// What Wrap puts before and behind a script. Unwrap knows them again.
const (
	mark         = "/*script*/" // and what it imports among its statements
	beforeFunc   = "/*function*/export default "
	beforeCall   = "/*called*/export default async () => "
	beforeBody   = "export default async (input, context) => {/*body*/"
	behindBody   = "\n}\n"
	maxWrapBytes = 4 << 20
)

// Wrap makes a module of a script, whose default export is to be called. A script is a module that has one; or one function, which becomes it,
// also when the script calls it at once; or statements, which may await and return, and become its body: input and context are its parameters. Imports
// stay in front of them. Whatever is put before the script's own text stands on the line of its first token, so that lines are counted as they
// were; lines that held an import among statements are left blank. A fence of Markdown around the script is taken away.
func Wrap(text string) string {
	text = strings.TrimPrefix(text, "\ufeff")
	if len(text) > maxWrapBytes {
		return text
	}
	text = unfenced(text)
	s := &source{text: text, tokens: scan(text)}
	start := 0
	for {
		end := s.importEnd(start)
		if end < 0 {
			break
		}
		start = end
	}
	if start >= len(s.tokens) || s.exports(start) {
		return text
	}
	end := len(s.tokens)
	for end > start && s.is(end-1, ";") && s.tokens[end-1].depth == 0 {
		end--
	}
	if end == start {
		return text
	}
	at := s.tokens[start].from
	switch {
	case s.isFunction(start, end):
		return text[:at] + beforeFunc + text[at:]
	case s.isCalled(start, end):
		return text[:at] + beforeCall + text[at:]
	}
	imports, text := s.takeImports(start)
	return text[:at] + mark + imports + beforeBody + text[at:] + behindBody
}

// unfenced takes a fence of Markdown off, and leaves its lines empty.
func unfenced(text string) string {
	start := len(text) - len(strings.TrimLeft(text, " \t\r\n"))
	if !strings.HasPrefix(text[start:], "```") {
		return text
	}
	body := text[lineEnd(text, start):]
	end := strings.LastIndex(body, "\n```")
	if end < 0 || strings.TrimSpace(body[end+4:]) != "" {
		return text
	}
	return text[:start] + body[:end]
}

// exports says whether the script is a module of its own, by an export at its top level.
func (s *source) exports(from int) bool {
	for i := from; i < len(s.tokens); i++ {
		if s.tokens[i].depth == 0 && s.is(i, "export") && !s.is(i-1, ".") && !s.is(i+1, ":") {
			return true
		}
	}
	return false
}

// isFunction says whether the tokens from i to end are one function, arrow functions among them, perhaps in brackets.
func (s *source) isFunction(i, end int) bool {
	for s.is(i, "(") && s.match(i) == end-1 {
		i, end = i+1, end-1
	}
	if s.is(i, "async") && i+1 < end && !s.tokens[i+1].newline && !s.is(i+1, "=>") {
		i++
	}
	if s.is(i, "function") {
		for i++; i < end && !s.is(i, "("); i++ {
			if s.is(i, "{") {
				return false
			}
		}
		params := s.match(i)
		if params < 0 {
			return false
		}
		return s.bodyEnds(params+1, end)
	}
	if s.is(i, "<") {
		for i < end && !s.is(i, "(") {
			i++
		}
	}
	switch {
	case s.is(i, "("):
		i = s.match(i) + 1
		if i <= 0 {
			return false
		}
	case s.kind(i) == 'w' && !reservedWords[s.text[s.tokens[i].from:s.tokens[i].to]]:
		i++
	default:
		return false
	}
	base := s.depth(i)
	if s.is(i, ":") { // the type of the result
		for i < end && !(s.is(i, "=>") && s.tokens[i].depth == base) {
			if s.is(i, ";") {
				return false
			}
			i++
		}
	}
	if !s.is(i, "=>") {
		return false
	}
	i++
	if s.is(i, "{") {
		return s.match(i) == end-1
	}
	return i < end && s.isExpression(i, end)
}

func (s *source) depth(i int) int {
	if i >= len(s.tokens) {
		return 0
	}
	return s.tokens[i].depth
}

// bodyEnds says whether a function's body, before which the type of its result may stand, is the last of the tokens to end.
func (s *source) bodyEnds(i, end int) bool {
	if s.is(i, "{") {
		return s.match(i) == end-1
	}
	if !s.is(i, ":") {
		return false
	}
	base := s.depth(i)
	for ; i < end; i++ {
		if s.tokens[i].depth == base && s.is(i, ";") {
			return false
		}
		if s.tokens[i].depth == base && s.is(i, "{") && !s.is(i-1, ":") && !s.is(i-1, "|") && !s.is(i-1, "&") && !s.is(i-1, "<") && !s.is(i-1, ",") {
			return s.match(i) == end-1
		}
	}
	return false
}

// statements are words that begin one.
var statements = words("const let var if for while do return throw try switch break continue function class import export debugger")

// isExpression says whether the tokens from i to end are surely one expression: none begins a statement, and where a line ends, what comes next goes
// on with it.
func (s *source) isExpression(i, end int) bool {
	base := s.depth(i)
	for j := i; j < end; j++ {
		t := s.tokens[j]
		if t.depth != base {
			continue
		}
		word := s.text[t.from:t.to]
		if word == ";" || t.kind == 'w' && statements[word] && !s.is(j-1, ".") && !s.is(j-1, "?.") && j > i {
			return false
		}
		if j > i && t.newline && t.kind != 'p' && !operands[word] && s.kind(j-1) != 'p' {
			return false
		}
		if j > i && t.newline && t.kind != 'p' && (s.is(j-1, ")") || s.is(j-1, "]") || s.is(j-1, "}")) {
			return false
		}
	}
	return true
}

// isCalled says whether the tokens are a function in brackets that is called at once, perhaps awaited.
func (s *source) isCalled(i, end int) bool {
	if s.is(i, "await") {
		i++
	}
	if !s.is(i, "(") {
		return false
	}
	f := s.match(i)
	return f > 0 && s.is(f+1, "(") && s.match(f+1) == end-1 && s.isFunction(i+1, f)
}

// takeImports returns the imports that stand among statements, on one line, and the text without them.
func (s *source) takeImports(from int) (imports, rest string) {
	var b strings.Builder
	text := []byte(s.text)
	for i := from; i < len(s.tokens); i++ {
		if s.tokens[i].depth != 0 || !s.tokens[i].newline && !s.is(i-1, ";") {
			continue
		}
		end := s.importEnd(i)
		if end < 0 {
			continue
		}
		a, z := s.tokens[i].from, s.tokens[end-1].to
		for k := i; k < end; k++ {
			b.WriteString(s.text[s.tokens[k].from:s.tokens[k].to] + " ")
		}
		b.WriteString("; ")
		for k := a; k < z; k++ {
			if text[k] != '\n' {
				text[k] = ' '
			}
		}
		i = end - 1
	}
	return b.String(), string(text)
}

// Unwrap returns the script that Wrap made a module of, except for fences and for imports among statements, and how to find a place of the module in
// it. Of any other text it returns that text.
func Unwrap(module string) (text string, at func(agent.Pos) agent.Pos) {
	i, end := -1, 0
	for _, before := range []string{beforeFunc, beforeCall, mark} {
		if j := strings.Index(module, before); j >= 0 && (i < 0 || j < i) {
			i, end = j, len(before)
		}
	}
	if i >= 0 && strings.HasPrefix(module[i:], mark) {
		j := strings.Index(module[i:lineEnd(module, i)], beforeBody)
		end = j + len(beforeBody)
		if j < 0 {
			i = -1
		}
	}
	if i < 0 {
		return module, func(p agent.Pos) agent.Pos { return p }
	}
	text = module[:i] + module[i+end:]
	if strings.HasPrefix(module[i:], mark) {
		text = strings.TrimSuffix(text, behindBody)
	}
	row := 1 + strings.Count(module[:i], "\n")
	column := i - strings.LastIndexByte(module[:i], '\n') // of mark, from 1
	return text, func(p agent.Pos) agent.Pos {
		if p.Line == row && p.Column > column {
			p.Column = max(p.Column-end, column)
		}
		return p
	}
}
