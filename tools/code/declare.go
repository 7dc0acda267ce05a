package code

import (
	"slices"
	"strings"

	"github.com/skep-dev/skep/agent"
)

// Level is how much declarations say.
type Level uint8

const (
	LevelCompact    Level = iota // a line of documentation, the arguments, and the result to some depth
	LevelNames                   // names only
	LevelSignatures              // names of the arguments as well
	LevelFull                    // everything that schemas and descriptions say, in comments where types cannot
)

var levelNames = [...]string{"compact", "names", "signatures", "full"}

func (l Level) String() string {
	if int(l) < len(levelNames) {
		return levelNames[l]
	}
	return "unknown"
}

func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText takes the empty text as LevelCompact.
func (l *Level) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*l = LevelCompact
		return nil
	}
	if i := slices.Index(levelNames[:], string(b)); i >= 0 {
		*l = Level(i)
		return nil
	}
	return &agent.Error{Kind: agent.Invalid, Msg: "unknown level of declarations " + quote(clip(line(string(b)), 40)),
		Hint: "levels are names, signatures, compact and full"}
}

// forms are, for each level, how arguments and results are written.
var forms = [...]struct{ in, out form }{
	LevelCompact: {form{depth: 4, fields: 60, values: 24, members: 16}, form{depth: 3, fields: 40, values: 8, members: 8}},
	LevelFull:    {form{depth: 10, fields: 400, values: 200, members: 60, docs: true}, form{depth: 10, fields: 400, values: 200, members: 60, docs: true}},
}

// Bounds of declarations, in bytes: of one tool, whose types get shallower until it fits, and of all, after which tools are given by
// name only.
var maxDeclared = [...]int{LevelCompact: 6 << 10, LevelFull: 64 << 10}

const maxDeclarations = 2 << 20

// docWidth is how long the documentation of a tool is in compact declarations, in bytes.
const docWidth = 160

// Declare writes tools, which are some of those that n was made of, as declarations in TypeScript: the types that their schemas share or
// repeat, and one constant named Root. The same tools give the same bytes in whatever order they come; within a tool the order is that of its
// schema. What tools say of themselves is foreign text: it ends up in comments and literals, and nowhere else.
func Declare(tools []agent.Tool, n *Names, level Level) string {
	tools = slices.SortedFunc(slices.Values(tools), func(a, b agent.Tool) int { return strings.Compare(a.Name, b.Name) })
	tools = slices.CompactFunc(tools, func(a, b agent.Tool) bool { return a.Name == b.Name })
	d := &declarer{level: level, types: make(map[string]string)}
	var open string
	for i := range tools {
		server, method, ok := strings.Cut(n.paths[tools[i].Name], ".")
		if !ok {
			continue
		}
		if server != open {
			if open != "" {
				d.body.WriteString(closing(level))
			}
			d.body.WriteString("  " + server + ": {")
			open = server
		} else if level == LevelNames {
			d.body.WriteByte(',')
		}
		d.tool(&tools[i], method)
	}
	if open != "" {
		d.body.WriteString(closing(level))
	}
	return d.head.String() + "declare const " + Root + ": {\n" + d.body.String() + "};\n"
}

func closing(l Level) string {
	if l == LevelNames {
		return " };\n"
	}
	return "\n  };\n"
}

type declarer struct {
	level      Level
	head, body strings.Builder
	types      map[string]string // by name, what is in head
}

// tool writes one tool.
func (d *declarer) tool(t *agent.Tool, method string) {
	switch {
	case d.level == LevelNames:
		d.body.WriteString(" " + method)
		return
	case d.head.Len()+d.body.Len() > maxDeclarations:
		d.body.WriteString("\n    " + method + "(args: object): Promise<unknown>;")
		return
	case d.level == LevelSignatures:
		d.body.WriteString("\n    " + method + signature(t) + ";")
		return
	}
	const indent = "    "
	if doc := toolDoc(t, d.level, indent); doc != "" {
		d.body.WriteString("\n" + indent + doc)
	}
	d.body.WriteString("\n" + indent + method)
	for depth := forms[d.level].in.depth; ; depth-- {
		text, helpers := d.behind(t, depth, indent)
		size := len(text)
		for _, h := range helpers {
			size += len(h.body)
		}
		if size > maxDeclared[d.level] && depth > 0 {
			continue
		}
		for _, h := range helpers {
			if d.types[h.name] == "" {
				d.types[h.name] = h.body
				d.head.WriteString("type " + h.name + " = " + h.body + ";\n")
			}
		}
		d.body.WriteString(text + ";")
		return
	}
}

// toolDoc is the comment before a tool.
func toolDoc(t *agent.Tool, level Level, indent string) string {
	text := t.Description
	if strings.TrimSpace(text) == "" {
		text = t.Title
	}
	if level != LevelFull {
		return comment(Sentence(text, docWidth), indent)
	}
	text = said(text, maxToolDoc)
	if t.Effect != agent.Unclassified {
		text += "\n@effect " + t.Effect.String()
	}
	return comment(text, indent)
}

// signature is the arguments of a tool by name.
func signature(t *agent.Tool) string {
	s, err := parse(t.Input)
	if err != nil {
		return "(args?)"
	}
	doc := document{root: s}
	ps := properties(follow(&doc, s))
	if len(ps) == 0 {
		return "()"
	}
	var parts []string
	optional := "?"
	for _, p := range head(ps, 40) {
		name := field(p.name)
		if len(name) > maxField {
			continue
		}
		if p.required {
			optional = ""
		} else {
			name += "?"
		}
		parts = append(parts, name)
	}
	return "(args" + optional + ": {" + strings.Join(parts, ", ") + "})"
}

// follow is s, or what it refers to.
func follow(d *document, s *value) *value {
	for range 16 {
		ref := refOf(s)
		if ref == "" || s.object("properties") != nil {
			break
		}
		to := d.resolve(ref)
		if to == nil {
			break
		}
		s = to
	}
	return s
}
