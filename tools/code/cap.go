package code

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"
)

// BytesPerToken is how many bytes of JSON make a token of a model, about.
const BytesPerToken = 4

// Bounds of a value that is cut by its structure. One that is larger is cut as text.
const (
	maxCapped      = 32 << 20
	maxCappedNodes = 2_000_000
	minCap         = 64
)

// Cut is what was left out of a value.
type Cut struct {
	Shown, Total            int // bytes of JSON
	Strings, Items, Members int // strings that were shortened, items of arrays and members of objects that were left out
	Folded                  int // objects and arrays of which only the size is told
}

// Any says whether anything was left out.
func (c Cut) Any() bool { return c.Shown != c.Total }

// String is the notice that stands beside a value that was cut.
func (c Cut) String() string {
	if !c.Any() {
		return ""
	}
	var parts []string
	add := func(n int, what string) {
		if n > 0 {
			parts = append(parts, plural(n, what))
		}
	}
	add(c.Strings, "shortened string")
	add(c.Items, "left out item")
	add(c.Members, "left out field")
	add(c.Folded, "folded value")
	s := "shown are " + strconv.Itoa(c.Shown) + " of " + strconv.Itoa(c.Total) + " bytes"
	if len(parts) > 0 {
		s += " (" + strings.Join(parts, ", ") + ")"
	}
	return s
}

// Cap cuts a JSON value to at most limit bytes (64 at least) and keeps its shape: long strings are shortened, of long arrays and objects the
// beginning is kept, and what is deep is told by its size. Wherever something is left out, a text in its place says how much. What comes
// back is always one valid JSON value. Notice says what was cut, and is empty when nothing was; artifact, unless it is empty, is where the whole
// value is, and the notice tells.
func Cap(value json.RawMessage, limit int, artifact string) (out json.RawMessage, notice string) {
	out, cut := capValue(value, limit)
	notice = cut.String()
	if notice != "" && artifact != "" {
		notice += "; the whole value is the artifact " + artifact
	}
	return out, notice
}

// sizes are how much is kept of each string, array and object, and to which depth, from much to little.
var sizes = []struct{ text, items, members, depth int }{
	{1 << 20, 1000, 1000, 32}, {16000, 400, 400, 16}, {8000, 200, 300, 12}, {4000, 100, 200, 12}, {2000, 100, 150, 10}, {1000, 60, 100, 9}, {500, 40, 80, 8},
	{400, 25, 60, 8}, {300, 15, 50, 7}, {200, 10, 40, 6}, {150, 6, 30, 5}, {100, 4, 25, 4}, {80, 3, 20, 4}, {60, 2, 15, 3}, {40, 2, 10, 2}, {24, 1, 6, 2}, {16, 1, 3, 1}, {12, 0, 1, 1},
}

func capValue(data json.RawMessage, limit int) (json.RawMessage, Cut) {
	limit = max(limit, minCap)
	data = bytes.TrimSpace(data)
	total := len(data)
	if total == 0 {
		return json.RawMessage("null"), Cut{Shown: 4, Total: 4}
	}
	if total <= limit && json.Valid(data) {
		return data, Cut{Shown: total, Total: total}
	}
	if total > maxCapped {
		return capText(string(data[:min(4*limit, total)]), limit, total)
	}
	v, err := parseWithin(data, maxCappedNodes, 1000)
	if err != nil {
		return capText(string(data), limit, total)
	}
	if v.kind == '"' {
		return capText(v.text, limit, total)
	}
	for _, s := range sizes {
		c := capper{limit: limit, text: min(s.text, limit*3/4), items: s.items, members: s.members}
		c.write(v, s.depth)
		if c.b.Len() <= limit {
			c.cut.Shown, c.cut.Total = c.b.Len(), total
			if c.cut.Strings+c.cut.Items+c.cut.Members+c.cut.Folded == 0 {
				c.cut.Total = c.cut.Shown // it was only written with more space
			}
			return json.RawMessage(c.b.String()), c.cut
		}
	}
	return capText(string(data), limit, total)
}

// capText is the beginning and the end of a text, as JSON.
func capText(text string, limit, total int) (json.RawMessage, Cut) {
	if out := jsonString(text); len(out) <= limit {
		return out, Cut{Shown: total, Total: total}
	}
	for keep := limit - 2; ; keep = keep * 3 / 4 {
		out := jsonString(shorten(text, max(keep, 0)))
		if len(out) <= limit || keep <= 0 {
			return out, Cut{Shown: len(out), Total: total, Strings: 1}
		}
	}
}

// shorten keeps about n bytes of a text, most of them of its beginning, and says how many are left out.
func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	note := func(out int) string { return "…[" + strconv.Itoa(out) + " more bytes]" }
	n = max(n-len(note(len(s))), 0)
	tail := 0
	if n > 400 {
		tail = n / 5
	}
	from, to := n-tail, len(s)-tail
	for from > 0 && !utf8.RuneStart(s[from]) {
		from--
	}
	for to < len(s) && !utf8.RuneStart(s[to]) {
		to++
	}
	end := s[to:]
	if end != "" {
		end = "…" + end
	}
	return s[:from] + note(to-from) + end
}

func jsonString(s string) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(strings.ToValidUTF8(s, "\ufffd")); err != nil {
		return json.RawMessage(`""`)
	}
	return bytes.TrimSpace(b.Bytes())
}

// capper writes a value and leaves out what is too much.
type capper struct {
	b                           bytes.Buffer
	limit, text, items, members int
	cut                         Cut
}

func (c *capper) write(v *value, depth int) {
	if c.b.Len() > c.limit {
		return
	}
	switch v.kind {
	case '"':
		s := v.text
		if len(s) > c.text {
			s = shorten(s, c.text)
			if len(s) < len(v.text) {
				c.cut.Strings++
			} else {
				s = v.text
			}
		}
		c.b.Write(jsonString(s))
	case '0':
		c.b.WriteString(v.text)
	case 't':
		c.b.WriteString(strconv.FormatBool(v.yes))
	case '[':
		c.array(v, depth)
	case '{':
		c.object(v, depth)
	default:
		c.b.WriteString("null")
	}
}

func (c *capper) array(v *value, depth int) {
	if depth <= 0 && len(v.list) > 0 {
		c.cut.Folded++
		c.b.Write(jsonString("[" + plural(len(v.list), "item") + "]"))
		return
	}
	c.b.WriteByte('[')
	keep := len(v.list)
	if keep > c.items+1 {
		keep = c.items
	}
	for i, e := range v.list[:keep] {
		if i > 0 {
			c.b.WriteByte(',')
		}
		c.write(e, depth-1)
	}
	if left := len(v.list) - keep; left > 0 {
		c.cut.Items += left
		if keep > 0 {
			c.b.WriteByte(',')
		}
		c.b.Write(jsonString("…" + plural(left, "more item")))
	}
	c.b.WriteByte(']')
}

func (c *capper) object(v *value, depth int) {
	if depth <= 0 && len(v.keys) > 0 {
		c.cut.Folded++
		c.b.Write(jsonString("{" + plural(len(v.keys), "field") + "}"))
		return
	}
	c.b.WriteByte('{')
	keep := len(v.keys)
	if keep > c.members+1 {
		keep = c.members
	}
	wrote := 0
	for _, k := range v.keys[:keep] {
		if len(k) > c.text {
			continue
		}
		if wrote > 0 {
			c.b.WriteByte(',')
		}
		wrote++
		c.b.Write(jsonString(k))
		c.b.WriteByte(':')
		c.write(v.in[k], depth-1)
	}
	if left := len(v.keys) - wrote; left > 0 {
		c.cut.Members += left
		if wrote > 0 {
			c.b.WriteByte(',')
		}
		c.b.Write(jsonString("…"))
		c.b.WriteByte(':')
		c.b.Write(jsonString(plural(left, "more field")))
	}
	c.b.WriteByte('}')
}
