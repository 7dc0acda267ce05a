package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// maxDepth is how deep a schema may be nested.
const maxDepth = 64

// checkSchema returns a schema without space, or what is wrong with it in words that follow "its schema". Nothing is fetched: a reference to elsewhere
// is an error (MCP 2026-07-28, tools, security considerations).
func checkSchema(raw json.RawMessage, most int, input bool) (json.RawMessage, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, errors.New("is missing")
	}
	if len(raw) > most {
		return nil, fmt.Errorf("has %d bytes, more than %d", len(raw), most)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, errors.New("is not JSON")
	}
	root, ok := doc.(map[string]any)
	if !ok {
		return nil, errors.New("is not an object")
	}
	if t, there := root["type"]; there && t != "object" && input {
		return nil, errors.New("is not of an object")
	}
	w := walk{root: root, state: map[string]int8{}}
	if err := w.visit(doc, "", 0); err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(nowhere{})
	c.UseRegexpEngine(anyRegexp)
	if err := c.AddResource(schemaURL, doc); err != nil {
		return nil, fmt.Errorf("is not valid: %s", kept(err.Error(), 300))
	}
	if _, err := c.Compile(schemaURL); err != nil {
		return nil, fmt.Errorf("is not valid: %s", kept(strings.ReplaceAll(err.Error(), "\n", " "), 300))
	}
	var out bytes.Buffer
	if err := json.Compact(&out, raw); err != nil {
		return nil, errors.New("is not JSON")
	}
	return out.Bytes(), nil
}

const schemaURL = "tool:///schema"

// nowhere loads no schema.
type nowhere struct{}

func (nowhere) Load(at string) (any, error) {
	return nil, fmt.Errorf("it refers to %s, and nothing is fetched", kept(at, 200))
}

// anyRegexp takes patterns of JavaScript that Go does not know for ones that everything matches.
func anyRegexp(text string) (jsonschema.Regexp, error) {
	if re, err := regexp.Compile(text); err == nil {
		return re, nil
	}
	return matchAll(text), nil
}

type matchAll string

func (matchAll) MatchString(string) bool { return true }
func (m matchAll) String() string        { return string(m) }

// walk looks for what no validator ends with: nesting without end, and references that come back to themselves without going into a value.
type walk struct {
	root  map[string]any
	state map[string]int8 // by pointer: 1 under way, 2 done
}

// applied are the keywords whose schemas are of the same value (JSON Schema 2020-12, core, section 10.2).
var applied = []string{"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"}

func (w *walk) visit(v any, at string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("is nested more than %d deep", maxDepth)
	}
	switch v := v.(type) {
	case map[string]any:
		if _, schema := v["$ref"]; schema {
			if err := w.follow(v, at, 0); err != nil {
				return err
			}
		}
		for name, one := range v {
			if err := w.visit(one, at+"/"+escape(name), depth+1); err != nil {
				return err
			}
		}
	case []any:
		for i, one := range v {
			if err := w.visit(one, at+"/"+strconv.Itoa(i), depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// follow goes from a schema to those that are of the same value.
func (w *walk) follow(schema any, at string, depth int) error {
	m, ok := schema.(map[string]any)
	if !ok || w.state[at] == 2 {
		return nil
	}
	if w.state[at] == 1 || depth > 1000 {
		return errors.New("refers to itself without end")
	}
	w.state[at] = 1
	if ref, ok := m["$ref"].(string); ok && strings.HasPrefix(ref, "#") {
		if pointer, err := url.PathUnescape(ref[1:]); err == nil && (pointer == "" || pointer[0] == '/') {
			if err := w.follow(resolve(w.root, pointer), pointer, depth+1); err != nil {
				return err
			}
		}
	}
	for _, name := range applied {
		switch v := m[name].(type) {
		case []any:
			for i, one := range v {
				if err := w.follow(one, at+"/"+name+"/"+strconv.Itoa(i), depth+1); err != nil {
					return err
				}
			}
		case map[string]any:
			if name == "dependentSchemas" {
				for key, one := range v {
					if err := w.follow(one, at+"/"+name+"/"+escape(key), depth+1); err != nil {
						return err
					}
				}
				continue
			}
			if err := w.follow(v, at+"/"+name, depth+1); err != nil {
				return err
			}
		}
	}
	w.state[at] = 2
	return nil
}

// resolve finds what a JSON pointer (RFC 6901) points at, or nil.
func resolve(doc any, pointer string) any {
	if pointer == "" {
		return doc
	}
	for part := range strings.SplitSeq(pointer[1:], "/") {
		part = strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~")
		switch v := doc.(type) {
		case map[string]any:
			doc = v[part]
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(v) {
				return nil
			}
			doc = v[i]
		default:
			return nil
		}
	}
	return doc
}

func escape(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}
