package code

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/skep-dev/skep/agent"
)

// helper is a type that has a name of its own, since it holds itself or is needed more than once.
type helper struct{ name, body string }

// behind is what stands behind the name of a tool, and the types that it needs. A type whose name is taken by another gets a longer one.
func (d *declarer) behind(t *agent.Tool, depth int, indent string) (string, []helper) {
	names := &naming{taken: make(map[string]bool), prefix: pascal(t.Name)}
	text, helpers := d.named(t, names, depth, indent)
	for _, h := range helpers {
		if is, taken := d.types[h.name]; taken && is != h.body {
			for name := range d.types {
				names.taken[name] = true
			}
			for _, h := range helpers {
				names.taken[h.name] = true
			}
			return d.named(t, names, depth, indent)
		}
	}
	return text, helpers
}

func (d *declarer) named(t *agent.Tool, names *naming, depth int, indent string) (string, []helper) {
	in, out := forms[d.level].in, forms[d.level].out
	in.depth, out.depth = depth, min(depth, out.depth)
	args, helpers := d.args(t, in, names, indent)
	result, more := d.result(t, out, names, indent)
	return args + ": Promise<" + result + ">", append(helpers, more...)
}

func (d *declarer) args(t *agent.Tool, f form, names *naming, indent string) (string, []helper) {
	s, err := parse(t.Input)
	if err != nil {
		return "(args?: Record<string, unknown>)", nil
	}
	ty := newTyper(s, f, names)
	root := follow(&ty.doc, s)
	ps := properties(root)
	if len(ps) == 0 && plainObject(root) {
		return "()", nil
	}
	optional := "?"
	for _, p := range ps {
		if p.required {
			optional = ""
		}
	}
	if len(ps) == 0 && (len(root.array("anyOf"))+len(root.array("oneOf"))+len(root.array("allOf")) > 0) {
		optional = ""
	}
	e := ty.root(s, indent)
	if e.text == unknown && len(ps) > 0 {
		e = ty.object(root, f.depth, indent)
	}
	if e.text == unknown || e.text == never || e.text == "object" {
		e.text = "Record<string, unknown>"
	}
	return "(args" + optional + ": " + e.text + ")", ty.helpers()
}

// plainObject says whether an object's schema without properties says nothing of others.
func plainObject(s *value) bool {
	for _, k := range s.keys {
		switch k {
		case "$schema", "$id", "type", "title", "description", "properties", "required", "$defs", "definitions", "default", "examples", "$comment":
		case "additionalProperties":
			if !s.in[k].isFalse() {
				return false
			}
		default:
			return false
		}
	}
	return s.kind == '{' && s.str("type") == "object"
}

func (d *declarer) result(t *agent.Tool, f form, names *naming, indent string) (string, []helper) {
	if len(t.Output) == 0 {
		return unknown, nil
	}
	s, err := parse(t.Output)
	if err != nil {
		return unknown, nil
	}
	ty := newTyper(s, f, names)
	ty.output = true
	return ty.root(s, indent).text, ty.helpers()
}

func newTyper(s *value, f form, names *naming) *typer {
	t := &typer{form: f, doc: document{root: s}, names: make(map[*value]string), isUsed: make(map[*value]bool), within: make(map[*value]bool), left: maxTyped}
	if f.depth > 0 {
		t.nameHelpers(names)
	}
	return t
}

// root is the type of the whole schema.
func (t *typer) root(s *value, indent string) expr {
	e := t.of(s, t.depth, indent)
	if e.text == itself {
		return plain(unknown)
	}
	return e
}

// helpers are the types that have been used, and those that they use.
func (t *typer) helpers() []helper {
	var out []helper
	for i := 0; i < len(t.used) && i < 200; i++ {
		s := t.used[i]
		t.inside, t.within = false, make(map[*value]bool)
		e := t.of(s, max(t.depth-1, 1), "")
		if e.text == itself {
			e = plain(unknown)
		}
		out = append(out, helper{t.names[s], e.text})
	}
	return out
}

// nameHelpers finds which parts of the schema are to have names: what holds itself, and objects that more than one place refers to.
func (t *typer) nameHelpers(names *naming) {
	count, state := make(map[*value]int), make(map[*value]byte)
	label := make(map[*value]string)
	var order []*value
	recursive := make(map[*value]bool)
	left := maxTyped
	var walk func(s *value, depth int)
	walk = func(s *value, depth int) {
		if left--; left < 0 || depth > 2*maxSchemaDepth || s == nil {
			return
		}
		if ref := refOf(s); ref != "" {
			to := t.doc.resolve(ref)
			if to == nil || to.kind != '{' {
				return
			}
			if count[to] == 0 {
				order = append(order, to)
				label[to] = ref
			}
			count[to]++
			switch state[to] {
			case 'a':
				recursive[to] = true
			case 0:
				state[to] = 'a'
				walk(to, depth+1)
				state[to] = 'z'
			}
		}
		for _, k := range s.keys {
			switch k {
			case "$defs", "definitions", "const", "enum", "default", "examples":
			default:
				walk(s.in[k], depth+1)
			}
		}
		for _, e := range s.list {
			walk(e, depth+1)
		}
	}
	state[t.doc.root] = 'a'
	walk(t.doc.root, 0)
	for _, s := range order {
		if recursive[s] || count[s] > 1 && len(properties(s)) > 2 {
			t.names[s] = names.next(label[s])
		}
	}
}

// naming hands out names of types for one tool.
type naming struct {
	taken  map[string]bool
	prefix string
}

// globalTypes are names that mean something in TypeScript.
var globalTypes = words(`Promise Record Partial Required Readonly Pick Omit Exclude Extract Awaited Array ReadonlyArray String Number Boolean Object
	Function Symbol BigInt Date RegExp Error Map Set WeakMap WeakSet Proxy JSON Math Infinity NaN Uint8Array ArrayBuffer`)

func (n *naming) next(ref string) string {
	name := pascal(ref[strings.LastIndexAny(ref, "/#")+1:])
	if name == "" {
		name = n.prefix + "Args"
	}
	if globalTypes[name] || n.taken[name] {
		name = n.prefix + name
	}
	for base, i := name, 2; n.taken[name] || globalTypes[name]; i++ {
		name = base + strconv.Itoa(i)
	}
	n.taken[name] = true
	return name
}

// pascal is text as the name of a type.
func pascal(s string) string {
	var b strings.Builder
	up := true
	for _, r := range s {
		switch {
		case r != '$' && r != '_' && (starts(r) || b.Len() > 0 && continues(r)):
			if up {
				r = unicode.ToUpper(r)
			}
			up = false
			if b.Len() < 60 {
				b.WriteRune(r)
			}
		default:
			up = true
		}
	}
	name := b.String()
	if r, _ := utf8.DecodeRuneInString(name); name != "" && !unicode.IsUpper(r) {
		name = "T" + name
	}
	return name
}
