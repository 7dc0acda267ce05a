package code

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/skep-dev/skep/agent"
)

// Validator checks arguments by schemas, of which it keeps the last it has compiled. The zero one is ready, and safe for concurrent use.
type Validator struct {
	mu   sync.Mutex
	kept map[[sha256.Size]byte]*compiled
}

// maxCompiled is how many schemas a Validator keeps.
const maxCompiled = 2048

// Bounds of a check. Arguments that are deeper are refused. A schema by which a value could be looked at more often than maxLooks times is left
// to the tool's server to check.
const (
	maxArgsDepth = 200
	maxLooks     = 100_000
)

// Validate returns an Invalid error that says what is wrong with args, an object, by schema (JSON Schema 2020-12 unless it says which
// draft). Empty args are {}. A schema that cannot be compiled, or would cost too much to check, is one that every object meets: its
// server has the last word. References to other documents are not followed; what they stand for may be anything.
func (v *Validator) Validate(schema, args []byte) error {
	if len(bytes.TrimSpace(args)) == 0 {
		args = []byte("{}")
	}
	depth, err := depthOf(args)
	if err != nil {
		return err
	}
	if depth > maxArgsDepth {
		return agent.Errorf(agent.Invalid, "the arguments are %d levels deep, more than %d", depth, maxArgsDepth)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(args))
	if err != nil {
		return notJSON(err)
	}
	if _, ok := value.(map[string]any); !ok {
		return &agent.Error{Kind: agent.Invalid, Msg: "the arguments of a tool are an object, not " + typeName(value),
			Hint: "call it as tools.SERVER.METHOD({ name: value })"}
	}
	c := v.compile(schema)
	if c.schema == nil || c.looks(depth) > maxLooks {
		return nil
	}
	err = c.schema.Validate(value)
	var bad *jsonschema.ValidationError
	if !errors.As(err, &bad) || atFault(bad) {
		return nil
	}
	return complain(c, bad)
}

func notJSON(err error) error {
	return &agent.Error{Kind: agent.Invalid, Msg: "the arguments are not JSON: " + clip(line(err.Error()), 200)}
}

// depthOf returns how deep args are, and an error unless they are one JSON value.
func depthOf(args []byte) (int, error) {
	if !json.Valid(args) {
		var v any
		err := json.Unmarshal(args, &v)
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		return 0, notJSON(err)
	}
	deepest, depth, inText, escaped := 0, 0, false, false
	for _, b := range args {
		switch {
		case escaped:
			escaped = false
		case inText && b == '\\':
			escaped = true
		case b == '"':
			inText = !inText
		case inText:
		case b == '{' || b == '[':
			depth++
			deepest = max(deepest, depth)
		case b == '}' || b == ']':
			depth--
		}
	}
	return deepest, nil
}

// compiled is a schema that can be checked by, or not.
type compiled struct {
	schema *jsonschema.Schema // nil: anything goes
	doc    document

	mu   sync.Mutex
	cost map[int]int // by depth
}

func (v *Validator) compile(schema []byte) *compiled {
	key := sha256.Sum256(schema)
	v.mu.Lock()
	c := v.kept[key]
	v.mu.Unlock()
	if c != nil {
		return c
	}
	c = compile(schema)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.kept == nil || len(v.kept) >= maxCompiled {
		v.kept = make(map[[sha256.Size]byte]*compiled)
	}
	v.kept[key] = c
	return c
}

// schemaURL is where a schema stands while it is compiled.
const schemaURL = "tool:///schema.json"

func compile(schema []byte) *compiled {
	c := &compiled{cost: make(map[int]int)}
	root, err := parse(schema)
	if err != nil || root.kind != '{' {
		return c
	}
	c.doc = document{root: root}
	c.doc.name() // it is read by several at once
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return c
	}
	if m, ok := doc.(map[string]any); ok {
		if draft, ok := m["$schema"].(string); !ok || !drafts.MatchString(draft) {
			delete(m, "$schema")
		}
	}
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(nowhere{})
	compiler.UseRegexpEngine(pattern)
	if err := compiler.AddResource(schemaURL, doc); err != nil {
		return c
	}
	c.schema, err = compiler.Compile(schemaURL)
	if err != nil {
		c.schema = nil
	}
	return c
}

var drafts = regexp.MustCompile(`^https?://json-schema\.org/(draft/2020-12|draft/2019-09|draft-0[467])/schema#?$`)

// nowhere stands for all other documents: anything meets what is there.
type nowhere struct{}

func (nowhere) Load(string) (any, error) { return map[string]any{}, nil }

// pattern compiles a regular expression. One of JavaScript that Go does not know matches everything.
func pattern(s string) (jsonschema.Regexp, error) {
	if len(s) > 1<<10 {
		return anyText(s), nil
	}
	re, err := regexp.Compile(s)
	if err != nil {
		return anyText(s), nil
	}
	return re, nil
}

type anyText string

func (anyText) MatchString(string) bool { return true }
func (t anyText) String() string        { return string(t) }

// looks is how often a value of so many levels could be looked at: how many ways lead through the schema to one value.
func (c *compiled) looks(depth int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n, ok := c.cost[depth]; ok {
		return n
	}
	w := &ways{doc: &c.doc, known: make(map[way]int), active: make(map[way]bool)}
	n := w.of(c.doc.root, depth)
	if w.tired {
		n = maxLooks + 1
	}
	c.cost[depth] = n
	return n
}

type way struct {
	schema *value
	depth  int
}

type ways struct {
	doc    *document
	known  map[way]int
	active map[way]bool
	tired  bool
}

// maxWays is how many steps the counting of ways may take.
const maxWays = 200_000

// of adds up the ways by keywords, of which each applies to the same value; of the members of one keyword that each apply to another
// value, the one with the most counts.
func (w *ways) of(s *value, depth int) int {
	at := way{s, depth}
	if n, ok := w.known[at]; ok {
		return n
	}
	if len(w.known) > maxWays {
		w.tired = true
	}
	if s == nil || s.kind != '{' || depth < 0 || w.active[at] || w.tired {
		return 1
	}
	w.active[at] = true
	defer delete(w.active, at)
	n := 1
	add := func(m int) { n = min(n+m, maxLooks+1) }
	if ref := refOf(s); ref != "" {
		add(w.of(w.doc.resolve(ref), depth))
	}
	for _, k := range s.keys {
		v := s.in[k]
		switch k {
		case "allOf", "anyOf", "oneOf":
			for _, part := range v.list {
				add(w.of(part, depth))
			}
		case "dependentSchemas", "dependencies":
			for _, part := range v.keys {
				add(w.of(v.in[part], depth))
			}
		case "not", "if", "then", "else":
			add(w.of(v, depth))
		case "properties":
			most := 0
			for _, part := range v.keys {
				most = max(most, w.of(v.in[part], depth-1))
			}
			add(most)
		case "patternProperties":
			for _, part := range v.keys {
				add(w.of(v.in[part], depth-1))
			}
		case "items", "prefixItems":
			if v.kind == '[' {
				most := 0
				for _, part := range v.list {
					most = max(most, w.of(part, depth-1))
				}
				add(most)
			} else {
				add(w.of(v, depth-1))
			}
		case "additionalProperties", "unevaluatedProperties", "unevaluatedItems", "additionalItems", "contains", "propertyNames":
			add(w.of(v, depth-1))
		}
	}
	w.known[at] = n
	return n
}

// typeName is what a value of JSON is, with its article.
func typeName(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case string:
		return "a string"
	case []any:
		return "an array"
	case map[string]any:
		return "an object"
	}
	return "a number"
}

// withArticle is the name of a type of JSON Schema with its article.
func withArticle(t string) string {
	switch t {
	case "null":
		return t
	case "array", "object", "integer":
		return "an " + t
	}
	return "a " + t
}

func or(list []string) string {
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:len(list)-1], ", ") + " or " + list[len(list)-1]
}

// place is a path of JSON as JavaScript writes it.
func place(path []string) string {
	var b strings.Builder
	for _, p := range path {
		switch {
		case p != "" && strings.Trim(p, "0123456789") == "" && len(p) < 10:
			b.WriteString("[" + p + "]")
		case field(p) != p || len(p) > maxIdent:
			b.WriteString("[" + quote(clip(p, maxIdent)) + "]")
		case b.Len() > 0:
			b.WriteString("." + p)
		default:
			b.WriteString(p)
		}
	}
	return clip(b.String(), 400)
}

// shown is a value in a message.
func shown(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return clip(line(string(data)), 80)
}
