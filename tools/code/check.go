package code

import (
	"bytes"
	"reflect"
	"slices"
	"unicode/utf8"

	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/file"
	"github.com/dop251/goja/parser"

	"github.com/skep-dev/skep/agent"
)

// Finding is something that is wrong with a script.
type Finding struct {
	Pos           agent.Pos
	Message, Hint string
	Fatal         bool // it would fail wherever it is reached; others are worth a look
}

// Bounds of a check. A script that is larger, or nests so deeply that a parser would need much memory, is not looked into.
const (
	maxChecked  = 2 << 20
	maxBrackets = 1500
	maxRun      = 20_000 // tokens without a comma, a semicolon or a brace
	maxFindings = 20
	maxWalk     = 10_000
)

// Check looks for calls of tools in a script that cannot be right: tools that are not there, and arguments that do not fit. js is one
// module of JavaScript, as it will be run; at finds places of it in the author's own, and says false where there are none. n has the names of
// all tools, and tools are those that the script may call. What is only known when the script runs is not spoken of, and neither is a
// script that cannot be parsed: the engine that runs it says more of that. Findings come in the order of their places, at most twenty.
func Check(js []byte, at func(line, column int) (agent.Pos, bool), tools []agent.Tool, n *Names) []Finding {
	if len(js) > maxChecked || !bytes.Contains(js, []byte(Root)) && !mentions(js) {
		return nil
	}
	c := &checker{
		at: at, names: n, tools: make(map[string]*agent.Tool, len(tools)), decls: make(map[string][]decl), assigned: make(map[string]bool),
		params: make(map[*ast.Binding]bool), values: make(map[string]thing), said: make(map[string]bool),
	}
	for i := range tools {
		c.tools[tools[i].Name] = &tools[i]
	}
	c.src = source{text: string(js), tokens: scan(string(js))}
	if c.src.deep() {
		return nil
	}
	body := c.script()
	program, err := parser.ParseFile(nil, "", before+string(body)+"\n})", parser.IgnoreRegExpErrors, parser.WithDisableSourceMaps)
	if err != nil {
		return nil
	}
	root := reflect.ValueOf(program.Body)
	c.walk(root, 0, c.declare)
	c.walk(root, 0, c.look)
	slices.SortStableFunc(c.found, func(a, b Finding) int {
		if a.Pos.File != b.Pos.File || a.Pos.Line == 0 || b.Pos.Line == 0 {
			return 0
		}
		if a.Pos.Line != b.Pos.Line {
			return a.Pos.Line - b.Pos.Line
		}
		return a.Pos.Column - b.Pos.Column
	})
	return head(c.found, maxFindings)
}

// before makes a module a script that may await and return.
const before = "(async function(){"

// deep says whether a parser might need much memory.
func (s *source) deep() bool {
	run := 0
	for _, t := range s.tokens {
		if t.depth > maxBrackets {
			return true
		}
		run++
		if t.kind == 'p' {
			switch s.text[t.from] {
			case ',', ';', '{', '}':
				run = 0
			}
		}
		if run > maxRun {
			return true
		}
	}
	return false
}

// script is the module without imports and exports, byte for byte as long. What is imported is declared.
func (c *checker) script() []byte {
	s := &c.src
	out := []byte(s.text)
	blank := func(from, to int) {
		for i := from; i < to; i++ {
			if out[i] != '\n' {
				out[i] = ' '
			}
		}
	}
	for i := 0; i < len(s.tokens); i++ {
		if s.tokens[i].depth != 0 {
			continue
		}
		if end := s.importEnd(i); end > 0 {
			c.imports(i, end)
			blank(s.tokens[i].from, s.tokens[end-1].to)
			i = end - 1
			continue
		}
		if !s.is(i, "export") || s.is(i-1, ".") {
			continue
		}
		switch {
		case s.is(i+1, "default"):
			blank(s.tokens[i].from, s.tokens[i+1].to)
			copy(out[s.tokens[i].from:s.tokens[i+1].to], "var _default =") // as long as the words themselves
		case s.is(i+1, "{"), s.is(i+1, "*"):
			end := i + 2
			if m := s.match(i + 1); s.is(i+1, "{") && m > 0 {
				end = m + 1
			}
			for end < len(s.tokens) && (s.is(end, "as") || s.is(end, "from") || s.kind(end) == '"' || s.is(end-1, "as")) {
				end++
			}
			end = s.declarationEnd(end)
			blank(s.tokens[i].from, s.tokens[min(end, len(s.tokens))-1].to)
			i = end - 1
		default:
			blank(s.tokens[i].from, s.tokens[i].to)
		}
	}
	return out
}

// imports declares what an import brings.
func (c *checker) imports(i, end int) {
	s := &c.src
	skep := false
	for j := i; j < end; j++ {
		if s.kind(j) == '"' {
			skep = s.text[s.tokens[j].from+1:max(s.tokens[j].to-1, s.tokens[j].from+1)] == "skep"
		}
	}
	word := func(j int) string { return s.text[s.tokens[j].from:s.tokens[j].to] }
	for j := i + 1; j < end; j++ {
		if s.kind(j) != 'w' || s.is(j, "from") && s.kind(j+1) == '"' || s.is(j, "as") || s.is(j+1, "as") {
			continue
		}
		exported := word(j)
		if s.is(j-1, "as") {
			exported = word(j - 2)
		}
		d := decl{}
		switch {
		case skep && exported == Root:
			d.is = thing{kind: 'r'}
		case skep && exported == "*":
			d.is = thing{kind: 'n'}
		}
		c.decls[word(j)] = append(c.decls[word(j)], d)
	}
}

// thing is what is known of a value: nothing, or that it is the module skep, the tools object, a member of its, a server or a tool.
type thing struct {
	kind   byte // 0, 'n', 'r', 'o', 's' or 't'
	server *server
	name   string // of the tool, or of the member
}

// decl is where a variable gets its value: from an expression, perhaps as a member of it. Without one nothing is known.
type decl struct {
	from ast.Expression
	path []string
	is   thing
}

type checker struct {
	src      source
	at       func(line, column int) (agent.Pos, bool)
	names    *Names
	tools    map[string]*agent.Tool
	decls    map[string][]decl
	assigned map[string]bool
	params   map[*ast.Binding]bool // bindings that get their values from elsewhere
	values   map[string]thing      // what variables are
	active   []string              // variables whose values are being looked up
	trying   int                   // blocks with a catch around
	said     map[string]bool
	lines    []int
	found    []Finding
	valid    Validator
}

// walk calls visit for each node below v, the outer ones first. What stands in two places of the tree is visited once.
func (c *checker) walk(v reflect.Value, depth int, visit func(ast.Node)) {
	if depth > maxWalk {
		return
	}
	switch v.Kind() {
	case reflect.Interface:
		if !v.IsNil() {
			c.walk(v.Elem(), depth, visit)
		}
	case reflect.Pointer:
		if v.IsNil() || v.Elem().Kind() != reflect.Struct {
			return
		}
		if n, ok := v.Interface().(ast.Node); ok {
			visit(n)
			if t, ok := n.(*ast.TryStatement); ok && t.Catch != nil {
				c.trying++
				c.walk(reflect.ValueOf(t.Body), depth+1, visit)
				c.trying--
				c.walk(reflect.ValueOf(t.Catch), depth+1, visit)
				c.walk(reflect.ValueOf(t.Finally), depth+1, visit)
				return
			}
		} else if p, ok := v.Interface().(*ast.Binding); ok {
			visit(p)
		}
		c.walk(v.Elem(), depth+1, visit)
	case reflect.Struct:
		t := v.Type()
		for i := range v.NumField() {
			if t.Field(i).IsExported() && t.Field(i).Name != "DeclarationList" && t.Field(i).Name != "File" {
				c.walk(v.Field(i), depth+1, visit)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			c.walk(v.Index(i), depth+1, visit)
		}
	}
}

// find notes a finding at a place of the parsed text, once.
func (c *checker) find(idx file.Idx, fatal bool, message, hint string) {
	offset := int(idx) - 1 - len(before)
	if offset < 0 || offset > len(c.src.text) || len(c.found) > 10*maxFindings {
		return
	}
	line, column := c.position(offset)
	p, ok := c.at(line, column)
	if !ok || c.said[p.String()+message] {
		return
	}
	c.said[p.String()+message] = true
	c.found = append(c.found, Finding{p, message, hint, fatal && c.trying == 0})
}

// position is the line and column of an offset, as source maps count: from 1, columns in units of UTF-16.
func (c *checker) position(offset int) (line, column int) {
	if c.lines == nil {
		c.lines = []int{0}
		for i := range len(c.src.text) {
			if c.src.text[i] == '\n' {
				c.lines = append(c.lines, i+1)
			}
		}
	}
	i, exact := slices.BinarySearch(c.lines, offset)
	if !exact {
		i--
	}
	column = 1
	for text := c.src.text[c.lines[i]:offset]; text != ""; {
		r, size := utf8.DecodeRuneInString(text)
		column++
		if r > 0xffff {
			column++
		}
		text = text[size:]
	}
	return i + 1, column
}
