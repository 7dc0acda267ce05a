package openapi

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/skep-dev/skep/agent"
)

// pair is a name and its value, neither of them escaped.
type pair struct{ name, value string }

// text is a primitive value as it stands in a URL or a header.
func text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case json.Number:
		return v.String()
	case bool:
		if v {
			return "true"
		}
		return "false"
	}
	b, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(b)
}

// escape encodes all but what RFC 3986 calls unreserved; with reserved, also all but what it calls reserved.
func escape(s string, reserved bool) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~", c) >= 0 ||
			reserved && strings.IndexByte(":/?@!$'()*,;", c) >= 0 {
			b.WriteByte(c)
			continue
		}
		fmt.Fprintf(&b, "%%%02X", c)
	}
	return b.String()
}

// values lists what an array holds, or names and values of an object in the order of the names.
func values(v any) (list []string, members []pair, primitive bool) {
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			list = append(list, text(x))
		}
		return list, nil, false
	case map[string]any:
		for _, name := range sortedKeys(v) {
			members = append(members, pair{name, text(v[name])})
		}
		return nil, members, false
	}
	return nil, nil, true
}

func escapeAll(list []string, reserved bool) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = escape(s, reserved)
	}
	return out
}

// flat is what an object looks like in a list: name,value,name,value or name=value,name=value; each part is escaped.
func flat(members []pair, equals, reserved bool) []string {
	var out []string
	for _, m := range members {
		name, value := escape(m.name, reserved), escape(m.value, reserved)
		if equals {
			out = append(out, name+"="+value)
		} else {
			out = append(out, name, value)
		}
	}
	return out
}

// inPath is a parameter in place of {name} (OpenAPI 3.1, "Style Values": matrix, label, simple).
func (p param) inPath(v any) (string, error) {
	if p.json {
		v, p.style = jsonText(v), "simple"
	}
	list, members, primitive := values(v)
	parts := escapeAll(list, false)
	if members != nil {
		parts = flat(members, p.explode, false)
	}
	var s string
	switch name := escape(p.name, false); p.style {
	case "label":
		sep := ","
		if p.explode {
			sep = "."
		}
		if s = "." + strings.Join(parts, sep); primitive {
			s = "." + escape(text(v), false)
		}
	case "matrix":
		switch {
		case primitive:
			s = ";" + name + "=" + escape(text(v), false)
		case p.explode && members != nil:
			s = ";" + strings.Join(parts, ";")
		case p.explode:
			for _, part := range parts {
				s += ";" + name + "=" + part
			}
		default:
			s = ";" + name + "=" + strings.Join(parts, ",")
		}
	default:
		if s = strings.Join(parts, ","); primitive {
			s = escape(text(v), false)
		}
	}
	if s == "" || s == "." || s == ".." {
		return "", agent.Errorf(agent.Invalid, "%s is %q, which is no part of a path", p.arg, s)
	}
	return s, nil
}

// inQuery is a parameter in the query, escaped (form, spaceDelimited, pipeDelimited, deepObject).
func (p param) inQuery(v any) []string {
	if p.json {
		return []string{escape(p.name, false) + "=" + escape(jsonText(v), p.reserved)}
	}
	name := escape(p.name, false)
	list, members, primitive := values(v)
	if primitive {
		return []string{name + "=" + escape(text(v), p.reserved)}
	}
	if p.style == "deepObject" {
		return deep(name, v, p.reserved)
	}
	parts := escapeAll(list, p.reserved)
	if members != nil {
		parts = flat(members, p.explode, p.reserved)
		if p.explode {
			return parts
		}
	}
	if p.explode {
		for i := range parts {
			parts[i] = name + "=" + parts[i]
		}
		return parts
	}
	if len(parts) == 0 {
		return nil
	}
	sep := map[string]string{"spaceDelimited": "%20", "pipeDelimited": "%7C"}[p.style]
	if sep == "" {
		sep = ","
	}
	return []string{name + "=" + strings.Join(parts, sep)}
}

// deep is name[member]=value. What the specification leaves open, members that are objects or lists, goes as most servers read it.
func deep(name string, v any, reserved bool) []string {
	var out []string
	switch v := v.(type) {
	case map[string]any:
		for _, k := range sortedKeys(v) {
			out = append(out, deep(name+"["+escape(k, false)+"]", v[k], reserved)...)
		}
		return out
	case []any:
		for _, x := range v {
			out = append(out, deep(name, x, reserved)...)
		}
		return out
	}
	return []string{name + "=" + escape(text(v), reserved)}
}

// inHeader is a parameter as a header's value, not escaped (simple).
func (p param) inHeader(v any) (string, error) {
	if p.json {
		v = jsonText(v)
	}
	list, members, primitive := values(v)
	for _, m := range members {
		if p.explode {
			list = append(list, m.name+"="+m.value)
		} else {
			list = append(list, m.name, m.value)
		}
	}
	s := strings.Join(list, ",")
	if primitive {
		s = text(v)
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return "", agent.Errorf(agent.Invalid, "%s has a line break or a control character, which no header can hold", p.arg)
	}
	return s, nil
}

// inCookie is a parameter as a cookie (form).
func (p param) inCookie(v any) string {
	return strings.Join(p.inQuery(v), "; ")
}

func jsonText(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return "null"
	}
	return string(b)
}

// placeholders turns ${secret:NAME}, as records say it, into what is replaced at the last step; in a query it may be escaped.
func placeholders(s string) string {
	for _, open := range []string{"${secret:", "$%7Bsecret:", "%24%7Bsecret:", "$%7Bsecret%3A", "%24%7Bsecret%3A"} {
		for {
			before, after, found := strings.Cut(s, open)
			if !found {
				break
			}
			name, rest, closed := strings.Cut(after, "}")
			if n, r, other := strings.Cut(after, "%7D"); other && (!closed || len(n) < len(name)) {
				name, rest, closed = n, r, true
			}
			if !closed {
				break
			}
			s = before + "{{secret:" + name + "}}" + rest
		}
	}
	return s
}

// secretsOf lists the secrets that a record names.
func secretsOf(s agent.ToolServer) map[string]bool {
	out := map[string]bool{}
	texts := []string{}
	if u, err := url.Parse(s.URL); err == nil {
		texts = append(texts, placeholders(u.RawQuery))
	}
	for _, v := range s.Header {
		texts = append(texts, placeholders(v))
	}
	for _, t := range texts {
		for {
			_, after, found := strings.Cut(t, "{{secret:")
			if !found {
				break
			}
			name, rest, _ := strings.Cut(after, "}}")
			out[name], t = true, rest
		}
	}
	return out
}
