package api

import (
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/skep-dev/skep/agent"
)

// object is a JSON object of the OpenAPI document.
type object = map[string]any

// schemas makes JSON Schemas (2020-12) of Go types, by reflection over their JSON tags. Named structs become components.
type schemas struct{ components object }

var (
	timeType    = reflect.TypeFor[time.Time]()
	rawType     = reflect.TypeFor[json.RawMessage]()
	bytesType   = reflect.TypeFor[[]byte]()
	payloadType = reflect.TypeFor[agent.Payload]()
	shortType   = reflect.TypeFor[json.Marshaler]()
	textType    = reflect.TypeFor[encoding.TextMarshaler]()
)

func (s *schemas) of(t reflect.Type) object {
	switch t {
	case timeType:
		return object{"type": "string", "format": "date-time"}
	case rawType:
		return anyValue()
	case bytesType:
		return object{"type": "string", "contentEncoding": "base64"}
	case durationType:
		return object{"type": "integer", "format": "int64", "description": "nanoseconds"}
	case payloadType:
		return s.component("Payload", func() object {
			return object{
				"type":        "object",
				"description": "bytes with their content type: a JSON value, text, or base64",
				"properties": object{
					"type": object{"type": "string"}, "json": anyValue(),
					"text": object{"type": "string"}, "base64": object{"type": "string", "contentEncoding": "base64"},
				},
				"required": []string{"type"},
			}
		})
	}
	if t.Implements(textType) && t.Kind() == reflect.Uint8 {
		return object{"type": "string", "enum": namesOf(t)}
	}
	if t.Implements(textType) && t.Kind() != reflect.Pointer {
		return object{"type": "string"}
	}
	if t.Implements(shortType) && t.Kind() == reflect.Struct { // grants: a text where nothing else is said
		return object{"anyOf": []object{{"type": "string"}, s.component(componentName(t), func() object { return s.structure(t) })}}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.of(t.Elem())
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int64, reflect.Uint64, reflect.Uint32:
		return object{"type": "integer", "format": "int64"}
	case reflect.Float64:
		return object{"type": "number"}
	case reflect.Slice:
		return object{"type": "array", "items": s.of(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": s.of(t.Elem())}
	case reflect.Struct:
		return s.component(componentName(t), func() object { return s.structure(t) })
	}
	panic("api: no schema for " + t.String())
}

func anyValue() object {
	return object{
		"description": "any JSON value", "type": []string{"null", "boolean", "object", "array", "number", "string"},
	}
}

func (s *schemas) component(name string, build func() object) object {
	if _, found := s.components[name]; !found {
		s.components[name] = nil // for a type that refers to itself
		s.components[name] = build()
	}
	return object{"$ref": "#/components/schemas/" + name}
}

// componentName is the type's name with a capital: list[agent.Run] is called RunList.
func componentName(t reflect.Type) string {
	name := t.Name()
	if base, arg, generic := strings.Cut(name, "["); generic {
		arg = strings.TrimSuffix(arg, "]")
		name = arg[strings.LastIndexAny(arg, "./")+1:] + capital(base)
	}
	return capital(name)
}

func capital(s string) string {
	r, n := utf8.DecodeRuneInString(s)
	return string(unicode.ToUpper(r)) + s[n:]
}

func (s *schemas) structure(t reflect.Type) object {
	properties, required := object{}, []string{}
	for _, f := range reflect.VisibleFields(t) {
		name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || name == "" || name == "-" {
			continue
		}
		optional := strings.Contains(opts, "omit")
		p := s.of(f.Type)
		if f.Type.Kind() == reflect.Slice && f.Type != rawType && !optional {
			p["type"] = []string{"array", "null"}
		}
		if kind, ok := p["type"].(string); ok && f.Type.Kind() == reflect.Pointer && !optional {
			p["type"] = []string{kind, "null"}
		}
		if doc := f.Tag.Get("doc"); doc != "" {
			p["description"] = doc
		}
		properties[name] = p
		if !optional {
			required = append(required, name)
		}
	}
	out := object{"type": "object", "properties": properties}
	if len(required) > 0 {
		slices.Sort(required)
		out["required"] = required
	}
	return out
}
