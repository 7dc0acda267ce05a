package code

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"strconv"
	"strings"
)

// Bounds of a schema that is read. What is larger is taken as one that says nothing.
const (
	maxSchemaBytes = 1 << 20
	maxSchemaNodes = 50_000
	maxSchemaDepth = 100
)

var errSchema = errors.New("the schema is larger than 1 MiB, 50000 values or 100 levels")

// value is a JSON value whose members keep their order, which declarations follow.
type value struct {
	kind byte // of: { [ " 0 t n (object, array, string, number, boolean, null)
	text string
	yes  bool
	list []*value
	keys []string
	in   map[string]*value
}

// parse reads one JSON value within the bounds of schemas. Of members with one name the last counts.
func parse(data []byte) (*value, error) {
	if len(data) > maxSchemaBytes {
		return nil, errSchema
	}
	return parseWithin(data, maxSchemaNodes, maxSchemaDepth)
}

// parseWithin reads one JSON value of at most so many values and levels.
func parseWithin(data []byte, nodes, depth int) (*value, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := parseValue(d, depth, &nodes)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more behind the schema")
	}
	return v, nil
}

func parseValue(d *json.Decoder, depth int, left *int) (*value, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	if *left--; *left < 0 || depth < 0 {
		return nil, errSchema
	}
	switch t := t.(type) {
	case string:
		return &value{kind: '"', text: t}, nil
	case json.Number:
		return &value{kind: '0', text: t.String()}, nil
	case bool:
		return &value{kind: 't', yes: t}, nil
	case json.Delim:
		if t == '[' {
			v := &value{kind: '['}
			for d.More() {
				e, err := parseValue(d, depth-1, left)
				if err != nil {
					return nil, err
				}
				v.list = append(v.list, e)
			}
			_, err := d.Token()
			return v, err
		}
		v := &value{kind: '{', in: make(map[string]*value)}
		for d.More() {
			k, err := d.Token()
			if err != nil {
				return nil, err
			}
			e, err := parseValue(d, depth-1, left)
			if err != nil {
				return nil, err
			}
			key := k.(string)
			if _, again := v.in[key]; !again {
				v.keys = append(v.keys, key)
			}
			v.in[key] = e
		}
		_, err := d.Token()
		return v, err
	}
	return &value{kind: 'n'}, nil
}

// get returns a member of an object, or nil.
func (v *value) get(key string) *value {
	if v == nil {
		return nil
	}
	return v.in[key]
}

// str returns a member that is a string.
func (v *value) str(key string) string {
	if m := v.get(key); m != nil && m.kind == '"' {
		return m.text
	}
	return ""
}

// is says whether a member is true.
func (v *value) is(key string) bool {
	m := v.get(key)
	return m != nil && m.kind == 't' && m.yes
}

// object returns a member that is an object.
func (v *value) object(key string) *value {
	if m := v.get(key); m != nil && m.kind == '{' {
		return m
	}
	return nil
}

// array returns what a member that is an array holds.
func (v *value) array(key string) []*value {
	if m := v.get(key); m != nil && m.kind == '[' {
		return m.list
	}
	return nil
}

// number returns a member that is a whole number from 0 on, or -1.
func (v *value) number(key string) int {
	if m := v.get(key); m != nil && m.kind == '0' {
		if n, err := strconv.ParseFloat(m.text, 64); err == nil && n >= 0 && n < 1<<30 {
			return int(n)
		}
	}
	return -1
}

// isFalse says whether v is the schema that nothing meets.
func (v *value) isFalse() bool { return v != nil && v.kind == 't' && !v.yes }

// document is a schema with what its references need.
type document struct {
	root  *value
	named map[string]*value // by $id and by #anchor; made when it is first needed
}

// resolve follows a reference within the document: a JSON Pointer, an anchor or the $id of a part. It returns nil for what is elsewhere.
func (d *document) resolve(ref string) *value {
	if id := d.root.str("$id"); id != "" {
		if rest, ok := strings.CutPrefix(ref, strings.TrimSuffix(id, "#")); ok && (rest == "" || rest[0] == '#') {
			ref = "#" + strings.TrimPrefix(rest, "#")
		}
	}
	if ref == "#" {
		return d.root
	}
	if pointer, ok := strings.CutPrefix(ref, "#/"); ok {
		return d.point(pointer)
	}
	d.name()
	return d.named[ref]
}

// name finds the parts that have names. After it, a document does not change.
func (d *document) name() {
	if d.named == nil {
		d.named = make(map[string]*value)
		d.index(d.root)
	}
}

func (d *document) point(pointer string) *value {
	if p, err := url.PathUnescape(pointer); err == nil {
		pointer = p
	}
	v := d.root
	for step := range strings.SplitSeq(pointer, "/") {
		step = strings.ReplaceAll(strings.ReplaceAll(step, "~1", "/"), "~0", "~")
		switch {
		case v.kind == '{':
			v = v.in[step]
		case v.kind == '[':
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(v.list) {
				return nil
			}
			v = v.list[i]
		default:
			return nil
		}
		if v == nil {
			return nil
		}
	}
	return v
}

func (d *document) index(v *value) {
	for _, key := range []string{"$anchor", "$dynamicAnchor"} {
		if a := v.str(key); a != "" && d.named["#"+a] == nil {
			d.named["#"+a] = v
		}
	}
	for _, key := range []string{"$id", "id"} {
		if id := v.str(key); id != "" && d.named[id] == nil {
			d.named[id] = v
		}
	}
	for _, k := range v.keys {
		d.index(v.in[k])
	}
	for _, e := range v.list {
		d.index(e)
	}
}

// refOf is what a schema refers to, or "".
func refOf(s *value) string {
	if r := s.str("$ref"); r != "" {
		return r
	}
	return s.str("$dynamicRef")
}
