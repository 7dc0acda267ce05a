// Package raw reads and changes JSON of others without decoding it: the order of fields, spaces and fields that nobody here knows stay as they were.
package raw

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/skep-dev/skep/agent"
	"github.com/tidwall/gjson"
)

// MaxDepth bounds how deep JSON may nest.
const MaxDepth = 512

// Field is a field of an Object.
type Field struct {
	Name  string
	Value gjson.Result // its Index is that in the object's bytes
}

// Object is a JSON object, checked.
type Object struct {
	Bytes  []byte
	Fields []Field
	brace  int
}

// Valid reports whether b is one JSON value that nests at most MaxDepth deep.
func Valid(b []byte) bool { return !tooDeep(b) && gjson.ValidBytes(b) }

// tooDeep counts brackets: the checker of JSON calls itself for each level.
func tooDeep(b []byte) bool {
	if len(b) <= MaxDepth { // there is no room for more
		return false
	}
	depth, quoted := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case quoted:
			if c == '\\' {
				i++
			} else if c == '"' {
				quoted = false
			}
		case c == '"':
			quoted = true
		case c == '{' || c == '[':
			if depth++; depth > MaxDepth {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

// Parsed returns parsed, if it is an Object that was read of b before, or reads b.
func Parsed(parsed any, b []byte) (Object, error) {
	if o, ok := parsed.(Object); ok {
		return o, nil
	}
	return Read(b)
}

// Read reads an object. It refuses what is no JSON, and an object in which a field is twice, in any case of letters: two readers may then see two
// different requests.
// The error is of kind Invalid.
func Read(b []byte) (Object, error) {
	if tooDeep(b) {
		return Object{}, agent.Errorf(agent.Invalid, "the body nests more than %d levels deep", MaxDepth)
	}
	if !gjson.ValidBytes(b) {
		return Object{}, agent.Errorf(agent.Invalid, "the body is not valid JSON")
	}
	r := gjson.ParseBytes(b)
	if !r.IsObject() {
		return Object{}, agent.Errorf(agent.Invalid, "the body must be a JSON object")
	}
	o := Object{Bytes: b}
	for o.brace < len(b) && b[o.brace] != '{' {
		o.brace++
	}
	fields, twice := Fields(r)
	if twice != "" {
		return Object{}, agent.Errorf(agent.Invalid, "%s: the field is there twice", Show(twice))
	}
	for i := range fields {
		fields[i].Value.Index += o.brace
	}
	o.Fields = fields
	return o, nil
}

// Fields lists the fields of a checked object, with places from its brace on, and names one that is there twice, in any case of letters.
func Fields(r gjson.Result) (fields []Field, twice string) {
	base := r.Index
	fields = make([]Field, 0, 8)
	var seen map[string]bool
	r.ForEach(func(k, v gjson.Result) bool {
		v.Index -= base
		if len(fields) < 24 {
			for _, f := range fields {
				if strings.EqualFold(f.Name, k.Str) {
					twice = k.Str
				}
			}
		} else {
			if seen == nil {
				seen = make(map[string]bool, 64)
				for _, f := range fields {
					seen[strings.ToLower(f.Name)] = true
				}
			}
			if low := strings.ToLower(k.Str); seen[low] {
				twice = k.Str
			} else {
				seen[low] = true
			}
		}
		fields = append(fields, Field{k.Str, v})
		return twice == ""
	})
	return fields, twice
}

// Get returns a field; the zero Result when it is not there.
func (o Object) Get(name string) gjson.Result {
	for _, f := range o.Fields {
		if f.Name == name {
			return f.Value
		}
	}
	return gjson.Result{}
}

// Set returns the object's bytes with a field set to value, which is JSON: the old value is replaced where it is, a new field comes first. The object
// itself is not changed.
func (o Object) Set(name string, value []byte) []byte {
	if v := o.Get(name); v.Exists() {
		return Splice(o.Bytes, v.Index, len(v.Raw), value)
	}
	b := make([]byte, 0, len(o.Bytes)+len(name)+len(value)+8)
	b = append(b, o.Bytes[:o.brace+1]...)
	b = AppendString(b, name)
	b = append(b, ':')
	b = append(b, value...)
	if len(o.Fields) > 0 {
		b = append(b, ',')
	}
	return append(b, o.Bytes[o.brace+1:]...)
}

// With returns the object's bytes with all fields of other, as Set of each does.
func (o Object) With(other Object) []byte {
	b := make([]byte, 0, len(o.Bytes)+len(other.Bytes))
	b = append(b, o.Bytes[:o.brace+1]...)
	for i := len(other.Fields) - 1; i >= 0; i-- { // the one that came last comes first
		f := other.Fields[i]
		if o.Get(f.Name).Exists() {
			continue
		}
		b = append(append(AppendString(b, f.Name), ':'), f.Value.Raw...)
		if i > 0 || len(o.Fields) > 0 {
			b = append(b, ',')
		}
	}
	done := o.brace + 1
	for _, f := range o.Fields {
		if v := other.Get(f.Name); v.Exists() {
			b = append(append(b, o.Bytes[done:f.Value.Index]...), v.Raw...)
			done = f.Value.Index + len(f.Value.Raw)
		}
	}
	return append(b, o.Bytes[done:]...)
}

// Splice returns b with n bytes at a place replaced.
func Splice(b []byte, at, n int, with []byte) []byte {
	out := make([]byte, 0, len(b)-n+len(with))
	out = append(out, b[:at]...)
	out = append(out, with...)
	return append(out, b[at+n:]...)
}

// AppendString appends s as a JSON string.
func AppendString(b []byte, s string) []byte { return gjson.AppendJSONString(b, s) }

// Show cuts s to what fits an error message.
func Show(s string) string {
	if len(s) > 80 {
		s = s[:77]
		for len(s) > 0 && !utf8.ValidString(s) {
			s = s[:len(s)-1]
		}
		s += "..."
	}
	if q := strconv.Quote(s); q != `"`+s+`"` {
		return q
	}
	return s
}
