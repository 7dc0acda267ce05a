package code

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// form is how much of types is written.
type form struct {
	depth   int  // objects within objects
	fields  int  // of one object
	values  int  // of one enum
	members int  // of one union
	docs    bool // each field has its documentation, on lines of its own
}

// typer writes the types of one schema.
type typer struct {
	form
	doc    document
	output bool              // it is of what a tool returns
	names  map[*value]string // of the schemas that get types of their own
	used   []*value          // of those, in the order of their first use
	isUsed map[*value]bool
	inside bool            // there is an object or array between the type being defined and here
	within map[*value]bool // schemas being written with none in between: a type may not be itself
	left   int             // schemas that may still be written
}

// maxLists is how many lists of lists are written where no objects are any more.
const maxLists = 4

// maxTyped is how many schemas one declaration is made of. All after those is unknown.
const maxTyped = 20_000

// of returns the type of what meets s. Conditions that a type cannot say are left out, so it may be wider than s.
func (t *typer) of(s *value, depth int, indent string) expr {
	if t.left--; t.left < 0 || s == nil || depth < -maxLists {
		return plain(unknown)
	}
	if s.isFalse() {
		return plain(never)
	}
	if s.kind != '{' {
		return plain(unknown)
	}
	if t.within[s] {
		return plain(itself)
	}
	t.within[s] = true
	defer delete(t.within, s)

	var all []expr
	if ref := refOf(s); ref != "" {
		all = append(all, t.ref(ref, depth, indent))
	}
	all = append(all, t.own(s, depth, indent))
	if parts := s.array("allOf"); len(parts) <= t.members {
		for _, part := range parts {
			all = append(all, t.of(part, depth, indent))
		}
	}
	for _, key := range []string{"anyOf", "oneOf"} {
		if parts := s.array(key); len(parts) > 0 && len(parts) <= t.members {
			all = append(all, t.anyOf(parts, depth, indent))
		}
	}
	e := both(all)
	if s.is("nullable") {
		e = union([]expr{e, plain("null")})
	}
	return e
}

func (t *typer) anyOf(parts []*value, depth int, indent string) expr {
	var es []expr
	for _, part := range parts {
		es = append(es, t.of(part, depth, indent))
	}
	return union(es)
}

// ref is the type that a reference stands for: by its name where it has one, else in place.
func (t *typer) ref(ref string, depth int, indent string) expr {
	s := t.doc.resolve(ref)
	if s == nil {
		return plain(unknown)
	}
	name := t.names[s]
	if name == "" || !t.inside {
		return t.of(s, depth, indent)
	}
	if !t.isUsed[s] {
		t.isUsed[s] = true
		t.used = append(t.used, s)
	}
	return plain(name)
}

// enter is what is written within an object or an array.
func (t *typer) enter(s *value, depth int, indent string) expr {
	inside, within := t.inside, t.within
	t.inside, t.within = true, make(map[*value]bool)
	e := t.of(s, depth, indent)
	t.inside, t.within = inside, within
	if e.text == itself {
		return plain(unknown)
	}
	return e
}

// own is the type by what s says itself.
func (t *typer) own(s *value, depth int, indent string) expr {
	if c, ok := s.in["const"]; ok {
		return t.literal(c, depth)
	}
	if list := s.array("enum"); list != nil {
		return t.enum(s, list, depth)
	}
	if s.object("properties") == nil && s.in["type"] == nil {
		switch {
		case s.in["additionalProperties"] != nil || s.object("patternProperties") != nil:
			return t.object(s, depth, indent)
		case s.in["items"] != nil || s.array("prefixItems") != nil:
			return t.array(s, depth, indent)
		}
		return plain(unknown)
	}
	kinds := s.array("type")
	if k := s.get("type"); k != nil && k.kind == '"' {
		kinds = []*value{k}
	}
	if len(kinds) == 0 {
		return t.object(s, depth, indent)
	}
	var es []expr
	for _, k := range head(kinds, 7) {
		es = append(es, t.kind(k.text, s, depth, indent))
	}
	return union(es)
}

func head[T any](list []T, n int) []T { return list[:min(len(list), n)] }

func (t *typer) kind(name string, s *value, depth int, indent string) expr {
	switch name {
	case "string", "boolean", "number", "null":
		return plain(name)
	case "integer":
		return plain("number")
	case "array":
		return t.array(s, depth, indent)
	case "object":
		return t.object(s, depth, indent)
	}
	return plain(unknown)
}

// enum is one of list, or its type and the first of list where that is long.
func (t *typer) enum(s *value, list []*value, depth int) expr {
	var es []expr
	for _, v := range head(list, t.values) {
		es = append(es, t.literal(v, depth))
	}
	if len(list) > t.values {
		var kinds []expr
		for _, v := range head(list, 1000) {
			kinds = append(kinds, plain(kindOf(v)))
		}
		return union(append(es, kinds...))
	}
	return union(es)
}

func kindOf(v *value) string {
	switch v.kind {
	case '"':
		return "string"
	case '0':
		return "number"
	case 't':
		return "boolean"
	case 'n':
		return "null"
	}
	return unknown
}

// maxLiteral is how long a value gets that is a type, in bytes.
const maxLiteral = 100

// literal is the type of one value.
func (t *typer) literal(v *value, depth int) expr {
	switch {
	case v.kind == '"' && len(v.text) <= maxLiteral:
		return plain(quote(v.text))
	case v.kind == '0' && len(v.text) <= maxLiteral:
		return plain(v.text)
	case v.kind == 't':
		return plain(strconv.FormatBool(v.yes))
	case v.kind == '{' && depth <= 0, v.kind == '[' && depth <= 0:
		return plain("object")
	case v.kind == '{' && len(v.keys) <= t.fields:
		var b strings.Builder
		for i, k := range v.keys {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(field(k) + ": " + t.literal(v.in[k], depth-1).text)
		}
		return plain("{" + b.String() + "}")
	case v.kind == '[' && len(v.list) <= t.values:
		var parts []string
		for _, e := range v.list {
			parts = append(parts, t.literal(e, depth-1).text)
		}
		return plain("[" + strings.Join(parts, ", ") + "]")
	}
	return plain(kindOf(v))
}

// array is a list or a tuple.
func (t *typer) array(s *value, depth int, indent string) expr {
	if depth <= 0 {
		depth--
	}
	first, rest := s.array("prefixItems"), s.get("items")
	if old := s.array("items"); old != nil { // until draft 2019-09
		first, rest = old, s.get("additionalItems")
	}
	if len(first) == 0 || len(first) > t.members {
		if rest == nil || rest.isFalse() {
			return plain("unknown[]")
		}
		return arrayOf(t.enter(rest, depth, indent))
	}
	needed := s.number("minItems")
	if needed < 0 && !t.output {
		needed = len(first) // whoever writes one writes it whole
	}
	var parts []string
	for i, e := range first {
		x := t.enter(e, depth, indent)
		switch {
		case i < needed:
		case x.op != 0:
			x.text = "(" + x.text + ")?"
		default:
			x.text += "?"
		}
		parts = append(parts, x.text)
	}
	if rest != nil && !rest.isFalse() {
		parts = append(parts, "..."+arrayOf(t.enter(rest, depth, indent)).text)
	}
	return plain("[" + strings.Join(parts, ", ") + "]")
}

// quote is a string of TypeScript.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == utf8.RuneError || hidden(r):
			b.WriteString(`\u{` + strconv.FormatInt(int64(r), 16) + `}`)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// field is the name of a property: as it is where it may stand so.
func field(name string) string {
	for i, r := range name {
		if !starts(r) && (i == 0 || !continues(r)) {
			return quote(name)
		}
	}
	if name == "" || name == "new" {
		return quote(name)
	}
	return name
}
