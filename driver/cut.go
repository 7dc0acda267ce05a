package driver

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"
)

// Fit makes the data of e fit into MaxEvent, and sets Cut when it had to: the longest texts become shorter, at the border of a rune; when that is not
// enough, the largest fields of the data go. What is not UTF-8 is made so, and what is not JSON becomes an Unparsed.
func (e *Event) Fit() {
	if !utf8.Valid(e.Data) {
		e.Data = bytes.ToValidUTF8(e.Data, []byte("\uFFFD"))
	}
	e.Turn, e.Native, e.Trace = CutText(e.Turn, maxShort), CutText(e.Native, maxShort), CutText(e.Trace, maxShort)
	e.Type = CutText(e.Type, maxName)
	if len(e.Data) > 0 && !json.Valid(e.Data) {
		e.Type, e.Data = Unparsed, marshal(UnparsedData{Raw: string(e.Data)})
	}
	if len(e.Data) <= MaxEvent {
		return
	}
	e.Cut = true
	dec := json.NewDecoder(bytes.NewReader(e.Data))
	dec.UseNumber()
	var v any
	_ = dec.Decode(&v) // it is JSON
	text := longest(v)
	for most := MaxEvent / 2; most >= 64; most /= 2 {
		if most < MaxEvent/2 && text <= most {
			continue // it would be what it was
		}
		if b := marshal(shorten(v, most)); len(b) <= MaxEvent {
			e.Data = b
			return
		}
	}
	e.Data = dropFields(v)
}

// shorten returns v with no text longer than most bytes. It does not change v.
func shorten(v any, most int) any {
	switch v := v.(type) {
	case string:
		return CutText(v, most)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = shorten(v[i], most)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for k := range v {
			out[k] = shorten(v[k], most)
		}
		return out
	}
	return v
}

// longest is how many bytes the longest text in v has.
func longest(v any) (most int) {
	switch v := v.(type) {
	case string:
		return len(v)
	case []any:
		for i := range v {
			most = max(most, longest(v[i]))
		}
	case map[string]any:
		for k := range v {
			most = max(most, longest(v[k]))
		}
	}
	return most
}

// dropFields leaves out the largest fields of an object until it fits.
func dropFields(v any) json.RawMessage {
	fields, ok := shorten(v, 64).(map[string]any)
	if !ok {
		return json.RawMessage("{}")
	}
	sizes := make(map[string]int, len(fields)) // with a colon and a comma
	names := make([]string, 0, len(fields))
	total := 1 // the braces, less the comma that the last has not
	for name, f := range fields {
		sizes[name] = len(marshal(name)) + len(marshal(f)) + 2
		names = append(names, name)
		total += sizes[name]
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(sizes[b]-sizes[a], strings.Compare(a, b)) })
	for _, name := range names {
		if total <= MaxEvent {
			break
		}
		delete(fields, name)
		total -= sizes[name]
	}
	return marshal(fields)
}

// CutText returns the beginning of s: at most most bytes, and no half of a rune.
func CutText(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return strings.Clone(s[:most]) // what is cut off need not be kept
}

// CutTail returns the end of s: at most most bytes, and no half of a rune.
func CutTail(s string, most int) string {
	if len(s) <= most {
		return s
	}
	from := len(s) - most
	for from < len(s) && !utf8.RuneStart(s[from]) {
		from++
	}
	return strings.Clone(s[from:])
}
