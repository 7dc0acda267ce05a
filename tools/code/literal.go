package code

import (
	"encoding/json"
	"math"
	"slices"
	"strings"

	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/file"
)

// literals compares values that are written out in a call with the schema of its tool. Of what is not written out it says nothing.
type literals struct {
	*checker
	doc  document
	tool string
}

// plainSchema is s, or what it refers to, unless there are further conditions: of those a value is checked when all of it is written out.
func (l *literals) plainSchema(s *value) *value {
	for range 16 {
		if s == nil || s.kind != '{' {
			return nil
		}
		for _, k := range []string{"anyOf", "oneOf", "allOf", "not", "if", "dependentSchemas", "dependencies", "unevaluatedProperties", "propertyNames", "$dynamicRef"} {
			if s.in[k] != nil {
				return nil
			}
		}
		ref := s.str("$ref")
		if ref == "" {
			return s
		}
		if s.in["properties"] != nil || s.in["type"] != nil || s.in["required"] != nil {
			return nil
		}
		s = l.doc.resolve(ref)
	}
	return nil
}

// object compares an object literal.
func (l *literals) object(s *value, o *ast.ObjectLiteral, path string) {
	s = l.plainSchema(s)
	if s == nil || s.object("properties") == nil {
		return
	}
	known := s.object("properties")
	given := make(map[string]bool)
	open := false
	for _, p := range o.Value {
		switch p := p.(type) {
		case *ast.PropertyShort:
			name := p.Name.Name.String()
			given[name] = true
			l.known(s, name, path, p.Name.Idx)
		case *ast.PropertyKeyed:
			name, ok := keyOf(p)
			if n, isNumber := p.Key.(*ast.NumberLiteral); isNumber {
				name, ok = n.Literal, true
			}
			if !ok {
				open = true
				continue
			}
			given[name] = true
			if l.known(s, name, path, p.Key.Idx0()) {
				l.value(known.in[name], p.Value, join(path, name))
			}
		default:
			open = true
		}
	}
	if !open {
		l.missing(s, given, path, o.LeftBrace)
	}
}

func join(path, name string) string {
	switch {
	case field(name) != name:
		return path + "[" + quote(clip(name, maxIdent)) + "]"
	case path == "":
		return name
	}
	return path + "." + name
}

// missing finds properties that must be there and are not.
func (l *literals) missing(s *value, given map[string]bool, path string, idx file.Idx) {
	if s == nil || s.kind != '{' {
		return
	}
	var names []string
	for _, r := range head(s.array("required"), 100) {
		if r.kind == '"' && !given[r.text] {
			text := join(path, r.text)
			c := compiled{doc: l.doc}
			if want := c.wanted([]string{r.text}); want != "" && path == "" {
				text += " (" + want + ")"
			}
			names = append(names, text)
		}
	}
	if len(names) > 0 {
		l.find(idx, true, l.tool+" needs "+clip(strings.Join(names, ", "), 400), "")
	}
}

// known says whether a property is one of s, and finds those that are not.
func (l *literals) known(s *value, name, path string, idx file.Idx) bool {
	props := s.object("properties")
	if p, ok := props.in[name]; ok {
		return !p.isFalse()
	}
	more := s.get("additionalProperties")
	if s.object("patternProperties") != nil || more != nil && !more.isFalse() {
		return false
	}
	hint := didYouMean(nearest(props.keys, name))
	if hint == "" && len(props.keys) > 0 && len(props.keys) <= 20 {
		hint = "known are " + clip(strings.Join(props.keys, ", "), 300)
	}
	l.find(idx, more.isFalse(), l.tool+" knows no "+clip(line(join(path, name)), 200), hint)
	return false
}

// value compares a value that is written out.
func (l *literals) value(s *value, e ast.Expression, path string) {
	s = l.plainSchema(s)
	kind := kindOfNode(e)
	if s == nil || kind == "" || len(path) > 400 {
		return
	}
	if want := typesOf(s); len(want) > 0 && !slices.Contains(want, kind) {
		if !(kind == "integer" && slices.Contains(want, "number")) && !(kind == "null" && s.is("nullable")) {
			var names []string
			for _, w := range want {
				names = append(names, withArticle(w))
			}
			got := kind
			if kind == "integer" {
				got = "number"
			}
			l.find(e.Idx0(), true, l.tool+": "+path+" must be "+or(names)+", not "+withArticle(got), "")
			return
		}
	}
	switch e := e.(type) {
	case *ast.ObjectLiteral:
		l.object(s, e, path)
	case *ast.ArrayLiteral:
		if items := s.object("items"); items != nil && s.in["prefixItems"] == nil {
			for _, x := range head(e.Value, 200) {
				if x != nil {
					l.value(items, x, path+"[]")
				}
			}
		}
	case *ast.StringLiteral:
		l.oneOf(s, e, e.Value.String(), path)
	}
}

// oneOf compares a text with the values it may be.
func (l *literals) oneOf(s *value, e ast.Expression, got, path string) {
	list := s.array("enum")
	if len(list) == 0 {
		return
	}
	var words, shown []string
	for _, v := range list {
		if v.kind == '"' {
			if v.text == got {
				return
			}
			words = append(words, v.text)
		}
		shown = append(shown, clip(line(jsonText(v)), 60))
	}
	l.find(e.Idx0(), true, l.tool+": "+path+" must be "+or(head(shown, 12))+", not "+clip(line(quote(got)), 80), didYouMean(nearest(words, got)))
}

func jsonText(v *value) string {
	if v.kind == '"' {
		return quote(v.text)
	}
	return jsonOf(v)
}

// typesOf are the names of the types that s allows, or nil when it says nothing.
func typesOf(s *value) []string {
	t := s.get("type")
	if t == nil {
		return nil
	}
	list := s.array("type")
	if t.kind == '"' {
		list = []*value{t}
	}
	var names []string
	for _, v := range list {
		switch v.text {
		case "string", "number", "integer", "boolean", "null", "array", "object":
			names = append(names, v.text)
		default:
			return nil
		}
	}
	return names
}

// kindOfNode is the type of JSON that an expression surely has, or "".
func kindOfNode(e ast.Node) string {
	switch e := e.(type) {
	case *ast.StringLiteral:
		return "string"
	case *ast.TemplateLiteral:
		if e.Tag == nil {
			return "string"
		}
	case *ast.NumberLiteral:
		switch v := e.Value.(type) {
		case int64:
			return "integer"
		case float64:
			if v == math.Trunc(v) {
				return "integer"
			}
			return "number"
		}
	case *ast.BooleanLiteral:
		return "boolean"
	case *ast.NullLiteral:
		return "null"
	case *ast.ArrayLiteral:
		return "array"
	case *ast.ObjectLiteral:
		return "object"
	case *ast.UnaryExpression:
		if op := e.Operator.String(); op == "-" && !e.Postfix {
			if k := kindOfNode(e.Operand); k == "integer" || k == "number" {
				return k
			}
		} else if _, isNumber := e.Operand.(*ast.NumberLiteral); op == "!" && isNumber {
			return "boolean" // as bundlers write it
		}
	}
	return ""
}

// constant is the JSON of an expression all of which is written out.
func constant(e ast.Expression, depth int) (json.RawMessage, bool) {
	if depth > 50 {
		return nil, false
	}
	switch e := e.(type) {
	case *ast.StringLiteral, *ast.TemplateLiteral:
		s, ok := text(e)
		data, err := json.Marshal(s)
		return data, ok && err == nil
	case *ast.NumberLiteral:
		data, err := json.Marshal(e.Value)
		return data, err == nil && kindOfNode(e) != ""
	case *ast.BooleanLiteral:
		data, err := json.Marshal(e.Value)
		return data, err == nil
	case *ast.NullLiteral:
		return json.RawMessage("null"), true
	case *ast.UnaryExpression:
		n, ok := e.Operand.(*ast.NumberLiteral)
		if !ok || e.Postfix || kindOfNode(n) == "" {
			return nil, false
		}
		v, good := constant(n, depth+1)
		switch e.Operator.String() {
		case "-":
			return append(json.RawMessage("-"), v...), good
		case "!":
			return json.RawMessage(map[bool]string{true: "true", false: "false"}[n.Literal == "0"]), n.Literal == "0" || n.Literal == "1"
		}
		return nil, false
	case *ast.ArrayLiteral:
		list := make([]json.RawMessage, 0, len(e.Value))
		for _, x := range e.Value {
			v, ok := constant(x, depth+1)
			if !ok {
				return nil, false
			}
			list = append(list, v)
		}
		data, err := json.Marshal(list)
		return data, err == nil
	case *ast.ObjectLiteral:
		m := make(map[string]json.RawMessage, len(e.Value))
		for _, p := range e.Value {
			k, ok := p.(*ast.PropertyKeyed)
			if !ok {
				return nil, false
			}
			name, named := keyOf(k)
			v, ok := constant(k.Value, depth+1)
			if !ok || !named || k.Kind != ast.PropertyKindValue || name == "__proto__" {
				return nil, false
			}
			m[name] = v
		}
		data, err := json.Marshal(m)
		return data, err == nil
	}
	return nil, false
}
