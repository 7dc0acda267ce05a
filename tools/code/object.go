package code

import (
	"strconv"
	"strings"
)

// maxField is how long the name of a property gets that is written, in bytes.
const maxField = 200

// property is a field of an object.
type property struct {
	name     string
	schema   *value // nil: nothing is known of it
	required bool
}

// properties are the fields that s names, in its order: its own, those that must be there and are not described, and those that its conditions
// speak of, which may be there.
func properties(s *value) []property {
	required := make(map[string]bool)
	for _, r := range s.array("required") {
		if r.kind == '"' {
			required[r.text] = true
		}
	}
	var ps []property
	seen := make(map[string]bool)
	add := func(name string, schema *value, required bool) {
		if !seen[name] {
			seen[name] = true
			ps = append(ps, property{name, schema, required})
		}
	}
	if own := s.object("properties"); own != nil {
		for _, k := range own.keys {
			if !own.in[k].isFalse() {
				add(k, own.in[k], required[k])
			}
		}
	}
	for _, r := range s.array("required") {
		if r.kind == '"' {
			add(r.text, nil, true)
		}
	}
	conditions := []*value{s.object("then"), s.object("else")}
	if d := s.object("dependentSchemas"); d != nil {
		for _, k := range d.keys {
			conditions = append(conditions, d.in[k])
		}
	}
	for _, c := range conditions {
		if more := c.object("properties"); more != nil {
			for _, k := range more.keys {
				add(k, more.in[k], false)
			}
		}
	}
	return ps
}

// object is the type of an object.
func (t *typer) object(s *value, depth int, indent string) expr {
	ps := properties(s)
	if len(ps) == 0 {
		return t.record(s, depth, indent)
	}
	if depth <= 0 {
		return plain("object")
	}
	var b strings.Builder
	b.WriteByte('{')
	in, gap := indent, " "
	if t.docs {
		in, gap = indent+"  ", "\n"+indent+"  "
	}
	shown, left := 0, 0
	for _, p := range ps {
		if shown >= t.fields || len(p.name) > maxField {
			left++
			continue
		}
		if shown > 0 {
			b.WriteByte(';')
		}
		if shown > 0 || t.docs {
			b.WriteString(gap)
		}
		if t.docs {
			if doc := comment(fieldDoc(p.schema), in); doc != "" {
				b.WriteString(doc + gap)
			}
		}
		b.WriteString(field(p.name))
		if !p.required {
			b.WriteByte('?')
		}
		b.WriteString(": " + t.enter(p.schema, depth-1, in).text)
		shown++
	}
	if left > 0 {
		b.WriteString(" /* " + strconv.Itoa(left) + " more */")
	}
	if open := s.get("additionalProperties"); open != nil && open.kind == 't' && open.yes && !t.output {
		b.WriteString("; [key: string]: unknown")
	}
	if t.docs {
		b.WriteString("\n" + indent)
	}
	b.WriteByte('}')
	e := plain(b.String())
	if more := t.more(s, depth, indent); more.text != unknown {
		e = both([]expr{e, plain("Record<string, " + more.text + ">")})
	}
	return e
}

// record is an object without fields that are known.
func (t *typer) record(s *value, depth int, indent string) expr {
	more := t.more(s, depth, indent)
	if more.text == unknown && t.output {
		return plain("object")
	}
	if names := s.object("propertyNames").array("enum"); len(names) > 0 && len(names) <= t.values {
		return plain("Partial<Record<" + t.enum(s, names, 0).text + ", " + more.text + ">>")
	}
	if more.text == never {
		return plain("{}")
	}
	return plain("Record<string, " + more.text + ">")
}

// more is the type of the members that have no name in s.
func (t *typer) more(s *value, depth int, indent string) expr {
	var es []expr
	if ps := s.object("patternProperties"); ps != nil {
		for _, k := range head(ps.keys, t.members) {
			es = append(es, t.enter(ps.in[k], depth-1, indent))
		}
	}
	open := s.get("additionalProperties")
	switch {
	case open.isFalse() && len(es) > 0:
	case open.isFalse() && len(properties(s)) > 0:
		return plain(unknown)
	case open.isFalse():
		return plain(never)
	case open != nil && open.kind == '{':
		es = append(es, t.enter(open, depth-1, indent))
	case len(es) == 0:
		return plain(unknown)
	}
	return union(es)
}
