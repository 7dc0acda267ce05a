package openapi

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/skep-dev/skep/agent"
)

// schema is a JSON Schema 2020-12 in the making.
type schema = map[string]any

// Bounds of what is made of one operation's schemas.
const (
	maxSchema      = 256 << 10 // bytes of JSON
	maxSchemaDepth = 64
	maxSchemaNodes = 20_000
	maxDefs        = 500
)

// schemas makes JSON Schemas of those of a document.
type schemas struct {
	root  any  // the whole document, for references
	since bool // version 3.1, whose schemas are JSON Schemas already
}

func newSchemas(t *openapi3.T) (*schemas, error) {
	s := &schemas{since: !strings.HasPrefix(t.OpenAPI, "3.0")}
	b, err := json.Marshal(t)
	if err != nil {
		return nil, malformed(err)
	}
	return s, json.Unmarshal(b, &s.root)
}

// builder makes the schemas of one tool. Components that they refer to are put into $defs.
type builder struct {
	*schemas
	out   bool // of what comes back, where properties are left out that are only written; else those that are only read
	defs  schema
	names map[string]string // by reference
	queue []string
	nodes int
}

func (s *schemas) builder(out bool) *builder {
	return &builder{schemas: s, out: out, defs: schema{}, names: map[string]string{}}
}

// schema is one schema of the document. References in it stand for $defs, which finish makes.
func (b *builder) schema(r *openapi3.SchemaRef) schema {
	raw, err := json.Marshal(r)
	if err != nil {
		return schema{}
	}
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return schema{}
	}
	m, ok := b.convert(v, 0).(schema)
	if !ok { // true: anything
		return schema{}
	}
	return m
}

// finish adds $defs to the whole.
func (b *builder) finish(whole schema) error {
	for len(b.queue) > 0 {
		ref := b.queue[0]
		b.queue = b.queue[1:]
		v, found := pointer(b.root, ref)
		if !found {
			return agent.Errorf(agent.Invalid, "the reference %.200q leads nowhere", ref)
		}
		b.defs[b.names[ref]] = b.convert(v, 0)
	}
	if len(b.defs) > 0 {
		whole["$defs"] = b.defs
	}
	raw, err := json.Marshal(whole)
	if err != nil || len(raw) > maxSchema || b.nodes > maxSchemaNodes || len(b.defs) > maxDefs {
		for name := range b.defs { // it says nothing rather than half of it
			b.defs[name] = true
		}
		if raw, err = json.Marshal(whole); err != nil || len(raw) > maxSchema {
			return agent.Errorf(agent.Invalid, "its schema has more than %d bytes", maxSchema)
		}
	}
	return nil
}

// The keywords whose values are schemas, lists of them and maps of them; and those of OpenAPI that say nothing of a value.
var (
	oneSchema = []string{"items", "not", "if", "then", "else", "additionalProperties", "contains", "propertyNames", "unevaluatedItems", "unevaluatedProperties", "contentSchema"}
	schemaMap = []string{"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
	schemaSet = []string{"allOf", "anyOf", "oneOf", "prefixItems"}
	dropped   = []string{"xml", "discriminator", "externalDocs", "example", "nullable", "readOnly", "writeOnly", "allowEmptyValue", "$schema", "$id", "$anchor", "$dynamicAnchor", "$dynamicRef", "__origin__"}
)

func (b *builder) convert(v any, depth int) any {
	m, ok := v.(map[string]any)
	if b.nodes++; !ok || depth > maxSchemaDepth || b.nodes > maxSchemaNodes {
		if yes, is := v.(bool); is {
			return yes
		}
		return true
	}
	out := schema{}
	for key, val := range m {
		switch {
		case key == "$ref":
			out["$ref"] = b.refer(val)
		case slices.Contains(dropped, key) || strings.HasPrefix(key, "x-"):
		case slices.Contains(oneSchema, key):
			out[key] = b.convert(val, depth+1)
		case slices.Contains(schemaMap, key):
			out[key] = b.each(val, depth)
		case slices.Contains(schemaSet, key):
			list, _ := val.([]any)
			all := make([]any, 0, len(list))
			for _, s := range list {
				all = append(all, b.convert(s, depth+1))
			}
			out[key] = all
		default:
			out[key] = val
		}
	}
	b.hide(m, out)
	if !b.since {
		old(m, out)
	}
	binary(out)
	return out
}

func (b *builder) each(v any, depth int) any {
	m, _ := v.(map[string]any)
	out := schema{}
	for name, s := range m {
		out[name] = b.convert(s, depth+1)
	}
	return out
}

// refer returns the place in $defs of what ref leads to.
func (b *builder) refer(ref any) string {
	text, _ := ref.(string)
	name, known := b.names[text]
	if !known {
		name = text[strings.LastIndexByte(text, '/')+1:]
		for n, first := 2, name; taken(b.names, name); n++ {
			name = fmt.Sprintf("%s_%d", first, n)
		}
		b.names[text] = name
		b.queue = append(b.queue, text)
	}
	return "#/$defs/" + name
}

func taken(names map[string]string, name string) bool {
	for _, n := range names {
		if n == name {
			return true
		}
	}
	return false
}

// hide leaves out properties that go only the other way.
func (b *builder) hide(m map[string]any, out schema) {
	props, _ := m["properties"].(map[string]any)
	other := "readOnly"
	if b.out {
		other = "writeOnly"
	}
	kept, _ := out["properties"].(schema)
	for name, p := range props {
		if p, _ := p.(map[string]any); p[other] == true {
			delete(kept, name)
			if list, ok := out["required"].([]any); ok {
				out["required"] = slices.DeleteFunc(slices.Clone(list), func(v any) bool { return v == name })
			}
		}
	}
	if list, ok := out["required"].([]any); ok && len(list) == 0 {
		delete(out, "required")
	}
}

// old turns what OpenAPI 3.0 says otherwise than JSON Schema 2020-12 into what it means there.
func old(m map[string]any, out schema) {
	for bound, exclusive := range map[string]string{"minimum": "exclusiveMinimum", "maximum": "exclusiveMaximum"} {
		if yes, ok := out[exclusive].(bool); ok {
			delete(out, exclusive)
			if yes && out[bound] != nil {
				out[exclusive] = out[bound]
				delete(out, bound)
			}
		}
	}
	if out["$ref"] != nil { // its siblings are ignored
		for key := range out {
			if key != "$ref" {
				delete(out, key)
			}
		}
		return
	}
	if m["nullable"] != true {
		return
	}
	if list, ok := out["enum"].([]any); ok && !slices.Contains(list, any(nil)) {
		out["enum"] = append(slices.Clone(list), nil)
	}
	switch t := out["type"].(type) {
	case string:
		out["type"] = []any{t, "null"}
	case []any:
		if !slices.Contains(t, any("null")) {
			out["type"] = append(slices.Clone(t), "null")
		}
	}
}

// binary says bytes as they go through JSON.
func binary(out schema) {
	if out["type"] == "string" && out["format"] == "binary" {
		delete(out, "format")
		out["contentEncoding"] = "base64"
	}
}

// pointer finds what a reference within the document leads to (RFC 6901).
func pointer(root any, ref string) (any, bool) {
	path, ok := strings.CutPrefix(ref, "#/")
	if !ok {
		return nil, false
	}
	for part := range strings.SplitSeq(path, "/") {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		switch at := root.(type) {
		case map[string]any:
			if root, ok = at[part]; !ok {
				return nil, false
			}
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(at) {
				return nil, false
			}
			root = at[i]
		default:
			return nil, false
		}
	}
	return root, true
}

// output is the schema of what an operation returns when it succeeds, nil when the document does not say.
func (s *schemas) output(o *openapi3.Operation) json.RawMessage {
	if o.Responses == nil {
		return nil
	}
	build := s.builder(true)
	var all []any
	for _, status := range sortedKeys(o.Responses.Map()) {
		r := o.Responses.Value(status)
		if !strings.HasPrefix(status, "2") || r == nil || r.Value == nil {
			continue
		}
		media := firstJSON(r.Value.Content)
		switch {
		case media != nil && media.Schema != nil:
			all = append(all, build.schema(media.Schema))
		case len(r.Value.Content) == 0:
			all = append(all, schema{"type": "null"})
		default:
			return nil
		}
	}
	if len(all) == 0 {
		return nil
	}
	whole, _ := all[0].(schema)
	if len(all) > 1 {
		whole = schema{"anyOf": all}
	} else if whole["type"] == "null" && len(whole) == 1 {
		return nil
	}
	if build.finish(whole) != nil {
		return nil
	}
	b, err := json.Marshal(whole)
	if err != nil {
		return nil
	}
	return b
}
