package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxArgs is the most bytes of arguments that are judged, maxDepth how deep they may be nested. What is beyond is denied.
const (
	MaxArgs  = 8 << 20
	maxDepth = 64
)

type kind uint8

const (
	null kind = iota
	boolean
	number
	text
	array
	object
)

// value is a JSON value. Objects keep their keys in order.
type value struct {
	kind kind
	text string // of a text as it is meant; of a number or a boolean as it is written
	keys []string
	list []value
}

// decode reads arguments. Unlike encoding/json it refuses what two readers may understand differently: keys that are there twice, and bytes that
// are no text.
func decode(args []byte) (value, error) {
	if len(bytes.TrimSpace(args)) == 0 {
		return value{kind: object}, nil
	}
	if len(args) > MaxArgs {
		return value{}, fmt.Errorf("they have %d bytes, above %d", len(args), MaxArgs)
	}
	if !json.Valid(args) {
		return value{}, fmt.Errorf("they are no JSON")
	}
	if !utf8.Valid(args) {
		return value{}, fmt.Errorf("they hold bytes that are no UTF-8")
	}
	d := decoder{b: args}
	v, err := d.value(0)
	if err == nil && v.kind != object {
		err = fmt.Errorf("they are no object")
	}
	return v, err
}

// decoder reads JSON that is known to be valid.
type decoder struct {
	b []byte
	i int
}

func (d *decoder) space() {
	for d.i < len(d.b) && (d.b[d.i] == ' ' || d.b[d.i] == '\t' || d.b[d.i] == '\n' || d.b[d.i] == '\r') {
		d.i++
	}
}

func (d *decoder) value(depth int) (v value, err error) {
	if depth > maxDepth {
		return v, fmt.Errorf("they are nested more than %d deep", maxDepth)
	}
	d.space()
	switch c := d.b[d.i]; c {
	case '{', '[':
		if v.kind = array; c == '{' {
			v.kind = object
		}
		d.i++
		for {
			if d.space(); d.b[d.i] == '}' || d.b[d.i] == ']' {
				d.i++
				if key, ok := v.repeated(); ok {
					err = fmt.Errorf("the key %q is there twice, and readers differ in which of them they take", key)
				}
				return v, err
			}
			if d.b[d.i] == ',' {
				d.i++
				d.space()
			}
			if c == '{' {
				key, err := d.string()
				if err != nil {
					return v, err
				}
				v.keys = append(v.keys, key)
				d.space()
				d.i++ // :
			}
			e, err := d.value(depth + 1)
			if err != nil {
				return v, err
			}
			v.list = append(v.list, e)
		}
	case '"':
		v.kind = text
		v.text, err = d.string()
		return v, err
	case 'n':
		d.i += len("null")
		return v, nil
	}
	start := d.i
	for d.i < len(d.b) && strings.IndexByte(",]} \t\r\n", d.b[d.i]) < 0 {
		d.i++
	}
	v.text = string(d.b[start:d.i])
	if v.kind = number; v.text == "true" || v.text == "false" {
		v.kind = boolean
	}
	return v, nil
}

// repeated returns a key that an object has twice.
func (v *value) repeated() (key string, ok bool) {
	if len(v.keys) <= 16 {
		for i, k := range v.keys {
			if slices.Contains(v.keys[:i], k) {
				return k, true
			}
		}
		return "", false
	}
	seen := make(map[string]bool, len(v.keys))
	for _, k := range v.keys {
		if seen[k] {
			return k, true
		}
		seen[k] = true
	}
	return "", false
}

func (d *decoder) string() (string, error) {
	start := d.i
	escaped := false
	for d.i++; d.b[d.i] != '"'; d.i++ {
		if d.b[d.i] == '\\' {
			escaped = true
			d.i++
		}
	}
	d.i++
	raw := d.b[start:d.i]
	if !escaped {
		return string(raw[1 : len(raw)-1]), nil
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err
}

// each calls f with every value that is no object or array, at any depth.
func (v *value) each(f func(*value)) {
	if v.kind != array && v.kind != object {
		f(v)
		return
	}
	for i := range v.list {
		v.list[i].each(f)
	}
}

// find collects what path leads to, through arrays too. Keys match without regard to case; exact tells whether one matched as it is
// written. "*" as the whole path is every value at any depth.
func (v *value) find(path []string, out []*value) (found []*value, exact bool) {
	if len(path) == 1 && path[0] == "*" {
		v.each(func(e *value) { out = append(out, e) })
		return out, len(out) > 0
	}
	return v.step(path, out, true)
}

func (v *value) step(path []string, out []*value, exact bool) (found []*value, ok bool) {
	switch {
	case v.kind == array:
		for i := range v.list {
			var e bool
			out, e = v.list[i].step(path, out, exact)
			ok = ok || e
		}
		return out, ok
	case len(path) == 0 && v.kind == null:
		return out, false
	case len(path) == 0:
		return append(out, v), exact
	case v.kind != object:
		return append(out, &value{kind: object}), false // not of the shape that the rule is about: it cannot be compared
	}
	whole := path[0]
	if len(path) > 1 {
		whole = strings.Join(path, ".")
	}
	for i, k := range v.keys {
		e := false
		switch {
		case path[0] == "*" || strings.EqualFold(k, path[0]):
			out, e = v.list[i].step(path[1:], out, exact && (path[0] == "*" || k == path[0]))
		case len(path) > 1 && strings.EqualFold(k, whole):
			out, e = v.list[i].step(nil, out, exact && k == whole)
		}
		ok = ok || e
	}
	return out, ok
}
