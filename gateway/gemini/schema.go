package gemini

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/skep-dev/skep/gateway/wire/raw"
	"github.com/tidwall/gjson"
)

// Bounds of a schema that is converted: references may make a small one large.
const (
	maxSchemaDepth = 32
	maxSchemaSize  = 256 << 10
)

// toOpenAPI converts a JSON schema to the subset of OpenAPI's that the protocol has: references are put in place, and keywords that only narrow what is
// asked for are left out. ok is false for one that would mean something else then; the protocol's field for JSON schemas takes that.
func toOpenAPI(schema json.RawMessage) (out json.RawMessage, ok bool) {
	if !raw.Valid(schema) {
		return nil, false
	}
	c := converter{root: gjson.ParseBytes(schema)}
	b, ok := c.schema(nil, c.root, 0)
	return b, ok
}

type converter struct{ root gjson.Result }

// kept are keywords that both have, of any type.
var kept = []string{"minItems", "maxItems", "minProperties", "maxProperties", "minLength", "maxLength", "minimum", "maximum"}

// formats are those that the protocol takes.
var formats = []string{"date-time", "float", "double", "int32", "int64"}

// lost are keywords without which a schema means something else.
var lost = []string{"patternProperties", "prefixItems", "not", "if", "dependentSchemas", "$dynamicRef", "propertyNames"}

func (c *converter) schema(b []byte, v gjson.Result, depth int) ([]byte, bool) {
	if depth > maxSchemaDepth || len(b) > maxSchemaSize || !v.IsObject() {
		return nil, false
	}
	fields, twice := raw.Fields(v)
	if twice != "" {
		return nil, false
	}
	by := map[string]gjson.Result{}
	for _, f := range fields {
		by[f.Name] = f.Value
	}
	for _, name := range lost {
		if by[name].Exists() {
			return nil, false
		}
	}
	if r := by["$ref"]; r.Exists() {
		target, ok := c.find(r.String())
		if !ok {
			return nil, false
		}
		return c.schema(b, target, depth+1)
	}
	if all := by["allOf"]; all.Exists() {
		list := all.Array()
		if len(list) != 1 || by["properties"].Exists() || by["type"].Exists() {
			return nil, false
		}
		return c.schema(b, list[0], depth+1)
	}
	w := object{b: append(b, '{')}
	nullable := by["nullable"].Bool()
	kind := by["type"]
	var types []string
	switch {
	case kind.IsArray():
		for _, t := range kind.Array() {
			if t.String() == "null" {
				nullable = true
				continue
			}
			types = append(types, t.String())
		}
	case kind.Exists():
		types = []string{kind.String()}
	case by["properties"].Exists():
		types = []string{"object"}
	case by["items"].Exists():
		types = []string{"array"}
	case by["enum"].Exists() || by["const"].Type == gjson.String:
		types = []string{"string"}
	}
	variants := by["anyOf"]
	if !variants.Exists() {
		variants = by["oneOf"]
	}
	if len(types) > 1 || len(types) == 0 && !variants.Exists() {
		return nil, false
	}
	if len(types) == 1 {
		if !slices.Contains([]string{"string", "number", "integer", "boolean", "array", "object"}, strings.ToLower(types[0])) {
			return nil, false
		}
		w.set("type", raw.AppendString(nil, strings.ToUpper(types[0])))
	}
	for _, name := range []string{"title", "description", "pattern"} {
		if s := by[name]; s.Type == gjson.String {
			w.set(name, []byte(s.Raw))
		}
	}
	if f := by["format"].String(); slices.Contains(formats, f) {
		w.set("format", raw.AppendString(nil, f))
	}
	for _, name := range kept {
		if n := by[name]; n.Type == gjson.Number {
			w.set(name, []byte(n.Raw))
		}
	}
	if e := by["const"]; e.Exists() {
		if e.Type != gjson.String {
			return nil, false
		}
		w.set("enum", []byte("["+e.Raw+"]"))
	} else if e := by["enum"]; e.IsArray() {
		list := []byte{'['}
		for _, x := range e.Array() {
			if x.Type == gjson.Null {
				nullable = true
				continue
			}
			if x.Type != gjson.String {
				return nil, false
			}
			if len(list) > 1 {
				list = append(list, ',')
			}
			list = append(list, x.Raw...)
		}
		w.set("enum", append(list, ']'))
	}
	if a := by["additionalProperties"]; a.IsObject() && a.Raw != "{}" {
		return nil, false
	}
	var ok bool
	if p := by["properties"]; p.IsObject() {
		if w, ok = c.properties(w, p, by["required"], depth); !ok {
			return nil, false
		}
	}
	if i := by["items"]; i.Exists() {
		w.key("items")
		if w.b, ok = c.schema(w.b, i, depth+1); !ok {
			return nil, false
		}
	}
	if variants.IsArray() {
		w.key("anyOf")
		w.b = append(w.b, '[')
		n := 0
		for _, x := range variants.Array() {
			if x.Get("type").String() == "null" {
				nullable = true
				continue
			}
			if n > 0 {
				w.b = append(w.b, ',')
			}
			n++
			if w.b, ok = c.schema(w.b, x, depth+1); !ok {
				return nil, false
			}
		}
		w.b = append(w.b, ']')
		if n == 0 {
			return nil, false
		}
	}
	if nullable {
		w.set("nullable", []byte("true"))
	}
	return append(w.b, '}'), true
}

func (c *converter) properties(w object, p, required gjson.Result, depth int) (object, bool) {
	fields, twice := raw.Fields(p)
	if twice != "" {
		return w, false
	}
	if len(fields) == 0 { // an empty list of them is refused
		return w, true
	}
	w.key("properties")
	in := object{b: append(w.b, '{')}
	names := map[string]bool{}
	for _, f := range fields {
		names[f.Name] = true
		in.key(f.Name)
		var ok bool
		if in.b, ok = c.schema(in.b, f.Value, depth+1); !ok {
			return w, false
		}
	}
	w.b = append(in.b, '}')
	var must []byte
	for _, x := range required.Array() {
		if !names[x.String()] {
			continue
		}
		if must != nil {
			must = append(must, ',')
		}
		must = append(must, x.Raw...)
	}
	if must != nil {
		w.set("required", append(append([]byte{'['}, must...), ']'))
	}
	return w, true
}

// find looks up a reference within the schema, such as #/$defs/name.
func (c *converter) find(ref string) (gjson.Result, bool) {
	rest, ok := strings.CutPrefix(ref, "#/")
	if !ok {
		return gjson.Result{}, false
	}
	v := c.root
	for name := range strings.SplitSeq(rest, "/") {
		name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
		found := gjson.Result{}
		v.ForEach(func(k, x gjson.Result) bool {
			if k.Str == name {
				found = x
				return false
			}
			return true
		})
		if !found.Exists() {
			return found, false
		}
		v = found
	}
	return v, true
}

// object is a JSON object that is being written.
type object struct {
	b    []byte
	some bool
}

func (o *object) key(name string) {
	if o.some {
		o.b = append(o.b, ',')
	}
	o.some = true
	o.b = append(raw.AppendString(o.b, name), ':')
}

func (o *object) set(name string, value []byte) {
	o.key(name)
	o.b = append(o.b, value...)
}

// fromOpenAPI converts a schema of the protocol to a JSON schema.
func fromOpenAPI(v gjson.Result) json.RawMessage { return appendJSONSchema(nil, v, 0) }

func appendJSONSchema(b []byte, v gjson.Result, depth int) []byte {
	if !v.IsObject() || depth > raw.MaxDepth {
		return append(b, "{}"...)
	}
	nullable := v.Get("nullable").Bool()
	w := object{b: append(b, '{')}
	v.ForEach(func(k, x gjson.Result) bool {
		name := camel(k.Str)
		switch name {
		case "nullable", "propertyOrdering", "example":
		case "type":
			t := strings.ToLower(x.String())
			switch {
			case t == "type_unspecified" || x.IsArray():
			case nullable:
				w.set(name, append(raw.AppendString([]byte{'['}, t), `,"null"]`...))
			default:
				w.set(name, raw.AppendString(nil, t))
			}
		case "enum":
			value := []byte(x.Raw)
			if nullable && x.IsArray() && x.Get("#").Int() > 0 {
				value = append([]byte(strings.TrimSuffix(strings.TrimSpace(x.Raw), "]")), ",null]"...)
			}
			w.set(name, value)
		case "properties":
			w.key(name)
			in := object{b: append(w.b, '{')}
			x.ForEach(func(k, p gjson.Result) bool {
				in.key(k.Str)
				in.b = appendJSONSchema(in.b, p, depth+1)
				return true
			})
			w.b = append(in.b, '}')
		case "items", "additionalProperties":
			w.key(name)
			if x.IsObject() {
				w.b = appendJSONSchema(w.b, x, depth+1)
			} else {
				w.b = append(w.b, x.Raw...)
			}
		case "anyOf":
			w.key(name)
			w.b = append(w.b, '[')
			n := 0
			x.ForEach(func(_, p gjson.Result) bool {
				if n > 0 {
					w.b = append(w.b, ',')
				}
				n++
				w.b = appendJSONSchema(w.b, p, depth+1)
				return true
			})
			w.b = append(w.b, ']')
		default:
			if n, err := strconv.ParseInt(x.Str, 10, 64); err == nil && slices.Contains(kept, name) { // long numbers may be strings
				w.set(name, strconv.AppendInt(nil, n, 10))
			} else {
				w.set(name, []byte(x.Raw))
			}
		}
		return true
	})
	return append(w.b, '}')
}

func camel(s string) string {
	if !strings.Contains(s, "_") {
		return s
	}
	var b strings.Builder
	for i, w := range strings.Split(s, "_") {
		if i > 0 && w != "" {
			w = strings.ToUpper(w[:1]) + w[1:]
		}
		b.WriteString(w)
	}
	return b.String()
}
