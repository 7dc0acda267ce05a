package script

import (
	"bytes"

	"github.com/skep-dev/skep/agent"
)

// The bundler's parser calls itself for each level of nesting, in time that grows faster than the source, and a stack that
// is full ends the process. So sources that nest deeper than people and their tools write are refused before it sees them.
// The scanner below is not a parser: who knows where it takes a division for a regular expression can hide some nesting
// from it. maxSource bounds what that can do, to less than the bundler's stack.
const (
	maxNesting = 1_000   // brackets in brackets, or operators and statements that wait for their end
	maxSource  = 2 << 20 // bytes of one file
)

// checkNesting refuses source files that are too large or nest too deeply.
func checkNesting(name string, src []byte) error {
	if len(src) > maxSource {
		return &agent.Error{
			Kind: agent.Exhausted, Limit: agent.LimitUpload, Pos: agent.Pos{File: name},
			Msg: name + " is larger than 2 MiB, the most that one source file may have", Hint: "split it, or import less",
		}
	}
	if at := deepest(src); at >= 0 {
		line := 1 + bytes.Count(src[:at], []byte("\n"))
		column := at - bytes.LastIndexByte(src[:at], '\n')
		return &agent.Error{
			Kind: agent.Invalid, Msg: name + " nests deeper than 1000 levels",
			Pos: agent.Pos{File: name, Line: line, Column: column}, Hint: "simplify the code here",
		}
	}
	return nil
}

// deepest returns the offset at which src nests deeper than maxNesting, or -1.
func deepest(src []byte) int {
	depth, waiting := 0, 0
	before := byte(';') // the last byte that was neither space nor comment
	for i := 0; i < len(src); i++ {
		c := src[i]
		switch {
		case c <= ' ':
			continue
		case c == '"' || c == '\'' || c == '`':
			i = skipQuoted(src, i, c)
		case c == '/' && i+1 < len(src) && (src[i+1] == '/' || src[i+1] == '*'):
			i = skipComment(src, i)
			continue
		case c == '/' && bytes.IndexByte([]byte("(,=:[!&|?{};+-*%~^<>"), before) >= 0:
			i = skipQuoted(src, i, '/')
		case c == '(' || c == '[' || c == '{':
			depth++
		case c == ')' || c == ']' || c == '}':
			depth = max(depth-1, 0)
			if c == '}' {
				waiting = 0
			}
		case c == ';' || c == ',':
			if c == ',' || depth == 0 || before == ')' || before == '}' {
				waiting = 0
			}
		case c == '!' || c == '~' || c == '?' || c == ':' || c == '=' || c == '+' || c == '-' || c == '*' || c == '<':
			waiting++
		case inWord(c):
			end := i
			for end < len(src) && inWord(src[end]) {
				end++
			}
			switch string(src[i:min(end, i+10)]) {
			case "new", "typeof", "void", "delete", "await", "yield", "if", "else", "for", "while", "do", "with", "keyof", "infer", "readonly", "extends":
				waiting++
			}
			i = end - 1
		}
		if depth > maxNesting || waiting > 20*maxNesting {
			return i
		}
		before = src[min(i, len(src)-1)]
	}
	return -1
}

// skipQuoted returns the offset of the quote that ends what begins at i, or i when there is none. A string or a regular
// expression ends with its line.
func skipQuoted(src []byte, i int, quote byte) int {
	for j := i + 1; j < len(src); j++ {
		switch c := src[j]; {
		case c == '\\':
			j++
		case c == quote:
			return j
		case c == '\n' && quote != '`':
			return i
		}
	}
	return i
}

func skipComment(src []byte, i int) int {
	end := []byte("\n")
	if src[i+1] == '*' {
		end = []byte("*/")
	}
	n := bytes.Index(src[i+2:], end)
	if n < 0 {
		return len(src) - 1
	}
	return i + 2 + n + len(end) - 1
}
