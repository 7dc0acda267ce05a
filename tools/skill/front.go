package skill

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/skep-dev/skep/agent"
)

// maxFront is the most bytes of YAML at the beginning of a SKILL.md.
const maxFront = 16 << 10

// Front is what the YAML at the beginning of a SKILL.md says.
type Front struct {
	Name          string
	Description   string
	License       string
	Compatibility string
	Allowed       []string // tools that it asks for, as they are written
	Metadata      map[string]string
}

// ParseFront reads a SKILL.md and returns what its front matter says, and the instructions that follow it. Keys that the format does not
// know are passed over. Errors are Invalid and name the line.
func ParseFront(text []byte) (f Front, instructions []byte, err error) {
	head, rest, err := cutFront(text)
	if err != nil {
		return f, nil, err
	}
	fields, err := mapping(head)
	if err != nil {
		return f, nil, err
	}
	for _, field := range fields {
		if err := f.set(field); err != nil {
			return f, nil, err
		}
	}
	for _, must := range [][2]string{{"name", f.Name}, {"description", f.Description}} {
		if must[1] == "" {
			return f, nil, &agent.Error{
				Kind: agent.Invalid, Msg: fmt.Sprintf("the front matter has no %s", must[0]), Pos: at(1),
				Hint: "a skill has at least name and description between the two lines of ---",
			}
		}
	}
	return f, rest, nil
}

func at(line int) agent.Pos { return agent.Pos{File: Main, Line: line} }

func bad(line int, format string, args ...any) error {
	return &agent.Error{Kind: agent.Invalid, Msg: fmt.Sprintf(format, args...), Pos: at(line)}
}

// cutFront returns what stands between the two lines of --- and what comes after them.
func cutFront(text []byte) (head, rest []byte, err error) {
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	if !utf8.Valid(text) {
		return nil, nil, bad(1, "the file is not UTF-8 text")
	}
	first, rest, _ := bytes.Cut(text, []byte("\n"))
	if string(bytes.TrimRight(first, " \t\r")) != "---" {
		return nil, nil, &agent.Error{
			Kind: agent.Invalid, Msg: "the file does not begin with a line of ---", Pos: at(1),
			Hint: "begin with ---, name: NAME, description: TEXT and ---, each on a line of its own",
		}
	}
	head = rest
	for n := 0; ; {
		line, after, more := bytes.Cut(rest, []byte("\n"))
		if string(bytes.TrimRight(line, " \t\r")) == "---" {
			return head[:n], after, nil
		}
		if n += len(line) + 1; n > maxFront {
			return nil, nil, bad(1, "the front matter has more than %d bytes", maxFront)
		}
		if !more {
			return nil, nil, bad(1, "the front matter has no end: there is no second line of ---")
		}
		rest = after
	}
}

// pair is one line of a mapping.
type pair struct{ key, value *yaml.Node }

// mapping parses the front matter. Its lines are counted from the one after the first ---.
func mapping(head []byte) (fields []pair, err error) {
	defer func() { // the parser of YAML is not ours, and what it reads is anybody's
		if v := recover(); v != nil {
			fields, err = nil, bad(2, "the front matter cannot be read as YAML")
		}
	}()
	if isEmpty(head) {
		return nil, bad(2, "the front matter is empty")
	}
	var doc yaml.Node
	if err := yaml.Load(head, &doc); err != nil {
		return nil, syntax(err)
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		return nil, bad(2, "the front matter is no YAML document")
	}
	fields, ok := pairs(doc.Content[0])
	if !ok {
		return nil, bad(2, "the front matter is no list of KEY: VALUE lines")
	}
	seen := map[string]bool{}
	for _, f := range fields {
		if key, _ := scalar(f.key); seen[key] {
			return nil, bad(lineOf(f.key), "%.80q stands there twice", key)
		} else {
			seen[key] = true
		}
	}
	return fields, nil
}

// isEmpty tells of what has no lines but comments.
func isEmpty(head []byte) bool {
	for line := range bytes.Lines(head) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}

func syntax(err error) error {
	e := &agent.Error{
		Kind: agent.Invalid, Msg: "the front matter is not valid YAML", Err: err, Pos: at(2), Hint: "put a text that has a colon or a # in quotes",
	}
	var load *yaml.LoadError
	if errors.As(err, &load) {
		e.Msg += ": " + load.Message
		e.Pos = at(load.Mark.Line + 1)
	}
	return e
}

// pairs returns what a mapping has. One that refers to another, by an alias, has none.
func pairs(n *yaml.Node) (out []pair, ok bool) {
	if n.Kind != yaml.MappingNode {
		return nil, false
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		out = append(out, pair{n.Content[i], n.Content[i+1]})
	}
	return out, true
}

// lineOf is the line of a node in the file.
func lineOf(n *yaml.Node) int { return n.Line + 1 }

// scalar is the text of a value that is no list and no mapping, as it is written: 1.0 is no 1.
func scalar(n *yaml.Node) (string, bool) {
	switch {
	case n.Kind != yaml.ScalarNode:
		return "", false
	case isNull(n):
		return "", true
	}
	return strings.TrimSpace(n.Value), true
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

func (f *Front) set(field pair) error {
	key, ok := scalar(field.key)
	if !ok {
		return nil
	}
	into := map[string]*string{"name": &f.Name, "description": &f.Description, "license": &f.License, "compatibility": &f.Compatibility}[key]
	line := lineOf(field.key)
	switch {
	case key == "metadata":
		return f.metadata(line, field.value)
	case key == "allowed-tools":
		return f.allowed(line, field.value)
	case into == nil:
		return nil
	}
	text, ok := scalar(field.value)
	if !ok {
		return bad(line, "%s is no text", key)
	}
	*into = text
	switch n := utf8.RuneCountInString(*into); {
	case key == "name":
		if err := CheckName(*into); err != nil {
			e, _ := errors.AsType[*agent.Error](err)
			return &agent.Error{Kind: e.Kind, Msg: e.Msg, Hint: e.Hint, Pos: at(line)}
		}
	case key == "description" && n > MaxDescription:
		return bad(line, "the description has %d characters: %d are allowed", n, MaxDescription)
	case key != "description" && n > maxWords:
		return bad(line, "%s has %d characters: %d are allowed", key, n, maxWords)
	}
	return nil
}

func (f *Front) metadata(line int, n *yaml.Node) error {
	if isNull(n) {
		return nil
	}
	fields, ok := pairs(n)
	if !ok {
		return bad(line, "metadata is no list of KEY: VALUE lines")
	}
	f.Metadata = map[string]string{}
	for _, p := range fields {
		key, ok := scalar(p.key)
		value, isText := scalar(p.value)
		if !ok {
			return bad(lineOf(p.key), "a key of metadata is no text")
		}
		if !isText { // others write lists there; as text they can still be read
			if value, isText = asYAML(p.value); !isText {
				return bad(lineOf(p.value), "%.80q of metadata is no text", key)
			}
		}
		f.Metadata[key] = value
	}
	return nil
}

// asYAML writes a list or a mapping in one line. One with anchors, aliases or many levels it does not.
func asYAML(n *yaml.Node) (string, bool) {
	var b strings.Builder
	ok := writeYAML(&b, n, 0)
	return b.String(), ok && b.Len() <= maxFront
}

func writeYAML(b *strings.Builder, n *yaml.Node, depth int) bool {
	const deepest = 8
	open, end := "[", "]"
	switch {
	case n.Kind == yaml.ScalarNode:
		b.WriteString(n.Value)
		return true
	case n.Kind == yaml.MappingNode:
		open, end = "{", "}"
	case n.Kind != yaml.SequenceNode:
		return false
	}
	b.WriteString(open)
	for i, c := range n.Content {
		switch {
		case i == 0:
		case n.Kind == yaml.MappingNode && i%2 == 1:
			b.WriteString(": ")
		default:
			b.WriteString(", ")
		}
		if depth == deepest || !writeYAML(b, c, depth+1) {
			return false
		}
	}
	b.WriteString(end)
	return true
}

// allowed reads tools set apart by spaces or commas, or as a list.
func (f *Front) allowed(line int, n *yaml.Node) error {
	if n.Kind == yaml.SequenceNode {
		for _, v := range n.Content {
			text, ok := scalar(v)
			if !ok || text == "" {
				return bad(lineOf(v), "an entry of allowed-tools is no text")
			}
			f.Allowed = append(f.Allowed, text)
		}
		return nil
	}
	text, ok := scalar(n)
	if !ok {
		return bad(line, "allowed-tools is neither a text nor a list")
	}
	f.Allowed = splitTools(text)
	return nil
}

// splitTools splits at spaces and commas that do not stand in parentheses: Bash(git log *) is one tool.
func splitTools(text string) (out []string) {
	depth, begin := 0, -1
	for i, r := range text + " " {
		switch {
		case r == '(':
			depth++
		case r == ')':
			depth = max(0, depth-1)
		}
		if apart := (r == ' ' || r == ',' || r == '\n' || r == '\t') && (depth == 0 || i == len(text)); !apart {
			if begin < 0 {
				begin = i
			}
		} else if begin >= 0 {
			out = append(out, text[begin:i])
			begin = -1
		}
	}
	return out
}
