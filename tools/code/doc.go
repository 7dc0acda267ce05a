package code

import (
	"strings"
)

// Bounds of documentation in full declarations, in bytes.
const (
	maxToolDoc  = 8 << 10
	maxFieldDoc = 1 << 10
	maxFact     = 120
)

// comment is text as a comment of TypeScript, in lines that begin with indent except for the first, or "". Nothing in text ends the
// comment or passes for a tag that was not meant as one.
func comment(text, indent string) string {
	var lines []string
	for l := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		end := strings.TrimLeft(l, " \t")
		pad := len(l) - len(end)
		end = strings.ReplaceAll(line(end), "*/", `*\/`)
		if end == "" && (len(lines) == 0 || lines[len(lines)-1] == "") {
			continue
		}
		if end == "" {
			pad = 0
		}
		lines = append(lines, strings.Repeat(" ", min(pad, 8))+end)
	}
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	switch {
	case len(lines) == 0:
		return ""
	case len(lines) == 1:
		return "/** " + strings.TrimLeft(lines[0], "/ ") + " */"
	}
	var b strings.Builder
	b.WriteString("/**\n")
	for _, l := range lines {
		b.WriteString(strings.TrimRight(indent+" * "+l, " ") + "\n")
	}
	b.WriteString(indent + " */")
	return b.String()
}

// said is a description within a bound, where no line passes for a tag of ours.
func said(text string, n int) string {
	text = clip(text, n)
	if !strings.Contains(text, "@") {
		return text
	}
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if strings.HasPrefix(line(l), "@") {
			lines[i] = strings.Replace(l, "@", `\@`, 1)
		}
	}
	return strings.Join(lines, "\n")
}

// facts are what a schema says of a value besides its type, and by which tag it is told.
var facts = []struct{ key, tag string }{
	{"default", "default"}, {"format", "format"}, {"pattern", "pattern"},
	{"minimum", "minimum"}, {"exclusiveMinimum", "exclusiveMinimum"}, {"maximum", "maximum"}, {"exclusiveMaximum", "exclusiveMaximum"},
	{"multipleOf", "multipleOf"}, {"minLength", "minLength"}, {"maxLength", "maxLength"}, {"minItems", "minItems"}, {"maxItems", "maxItems"},
	{"uniqueItems", "uniqueItems"}, {"contentEncoding", "contentEncoding"}, {"contentMediaType", "contentMediaType"},
}

// fieldDoc is all that a schema says of a field.
func fieldDoc(s *value) string {
	if s == nil || s.kind != '{' {
		return ""
	}
	text := s.str("description")
	if text == "" {
		text = s.str("title")
	}
	text = said(text, maxFieldDoc)
	var tags []string
	for _, f := range facts {
		v := s.get(f.key)
		if v == nil || v.kind == '0' && (strings.Contains(v.text, "9007199254740991")) {
			continue // the widest that a number of JavaScript can be
		}
		tags = append(tags, "@"+f.tag+" "+clip(line(jsonOf(v)), maxFact))
	}
	if s.is("deprecated") {
		tags = append(tags, "@deprecated")
	}
	if len(tags) == 0 {
		return text
	}
	gap := " "
	if strings.Contains(text, "\n") {
		gap = "\n"
	}
	return strings.TrimSpace(text + gap + strings.Join(tags, " "))
}

// jsonOf is a value as JSON on one line; strings go without quotes.
func jsonOf(v *value) string {
	if v.kind == '"' {
		return v.text
	}
	var b strings.Builder
	v.write(&b, 4*maxFact)
	return b.String()
}

// write writes v as JSON, or about so many bytes of it.
func (v *value) write(b *strings.Builder, n int) {
	if b.Len() > n {
		return
	}
	switch v.kind {
	case '{':
		b.WriteByte('{')
		for i, k := range v.keys {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(quote(k) + ":")
			v.in[k].write(b, n)
		}
		b.WriteByte('}')
	case '[':
		b.WriteByte('[')
		for i, e := range v.list {
			if i > 0 {
				b.WriteByte(',')
			}
			e.write(b, n)
		}
		b.WriteByte(']')
	case '"':
		b.WriteString(quote(v.text[:min(len(v.text), n)]))
	case '0':
		b.WriteString(v.text)
	case 't':
		if v.yes {
			b.WriteString("true")
		} else {
			b.WriteString("false")
		}
	default:
		b.WriteString("null")
	}
}
