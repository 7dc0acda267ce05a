package guard

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// JSON returns a body of a protocol of models with what is found in its texts replaced, or what must not be in it. The bytes of all else stay as they are.
// What is no text is not looked at: names of fields and kinds, ids, data of images and files, and opaque data of providers. Arguments and results
// of tools are looked at whole, numbers and names of fields too. body must be valid JSON, or is returned as it is.
func (g *Guard) JSON(body []byte) ([]byte, *Found) {
	if g == nil || !json.Valid(body) {
		return body, nil
	}
	w := walker{g: g, b: body}
	w.value("", false, nil)
	if w.found != nil {
		return nil, w.found
	}
	return w.done(), nil
}

// arguments looks at JSON that a tool gets or returned.
func (g *Guard) arguments(text string) (string, *Found) {
	if !json.Valid([]byte(text)) {
		return g.Text(text)
	}
	w := walker{g: g, b: []byte(text)}
	w.value("", true, nil)
	if w.found != nil {
		return "", w.found
	}
	return string(w.done()), nil
}

// prose looks at a text, which may be JSON: then also at what is escaped in it.
func (g *Guard) prose(text string) (string, *Found) {
	if isObject(text) {
		var found *Found
		if text, found = g.arguments(text); found != nil {
			return "", found
		}
	}
	return g.Text(text)
}

// still are fields whose values are words of the protocols, and not texts.
var still = map[string]bool{
	"type": true, "role": true, "model": true, "object": true, "status": true, "finish_reason": true, "finishReason": true, "stop_reason": true,
	"modelVersion": true, "responseId": true, "system_fingerprint": true, "service_tier": true, "effort": true, "tool_choice": true,
	"detail": true, "mime_type": true, "mimeType": true, "media_type": true, "required": true, "usage": true, "usageMetadata": true, "cache_control": true,
	"signature": true, "encrypted_content": true, "thoughtSignature": true, "thought_signature": true, "b64_json": true, "file_data": true,
}

// names are fields that hold a name or an id, as long as it looks like one.
var names = map[string]bool{
	"name": true, "id": true, "call_id": true, "tool_call_id": true, "tool_use_id": true, "item_id": true, "previous_response_id": true, "file_id": true,
	"conversation": true, "container": true, "prompt_cache_key": true, "format": true,
}

// named are objects of JSON Schema whose fields are called as its author likes: none of the above means there what it does elsewhere.
var named = map[string]bool{"properties": true, "patternProperties": true, "$defs": true, "definitions": true}

var nameRE = regexp.MustCompile(`^[A-Za-z0-9_.:/-]{1,256}$`)

// free are fields whose value is a tool's own: when it is an object, or text that is one.
var free = map[string]bool{"input": true, "arguments": true, "args": true, "response": true, "structuredContent": true}

// maxDepth is how deep within others an object may be that says of itself what is no text. Those of the protocols are less deep by far.
const maxDepth = 100

// edit replaces bytes.
type edit struct {
	from, to int
	with     string
}

// walker goes through JSON that is valid.
type walker struct {
	g     *Guard
	b     []byte
	at    int
	depth int // of objects
	edits []edit
	odds  []edit // of what tells the tokens of a text one by one, which is left out when the text is changed
	found *Found
}

func (w *walker) done() []byte {
	if len(w.edits) == 0 {
		return w.b
	}
	w.edits = append(w.edits, w.odds...)
	slices.SortStableFunc(w.edits, func(a, b edit) int { return a.from - b.from })
	out := make([]byte, 0, len(w.b)+64)
	at := 0
	for _, e := range w.edits {
		if e.from < at { // within what is left out
			continue
		}
		out = append(out, w.b[at:e.from]...)
		out = append(out, e.with...)
		at = e.to
	}
	return append(out, w.b[at:]...)
}

func (w *walker) space() {
	for w.at < len(w.b) && (w.b[w.at] == ' ' || w.b[w.at] == '\t' || w.b[w.at] == '\n' || w.b[w.at] == '\r') {
		w.at++
	}
}

// value goes through the value of a field. own says that it is a tool's own data. in is the object that it is in.
func (w *walker) value(field string, own bool, in *object) {
	w.space()
	if w.at >= len(w.b) || w.found != nil {
		return
	}
	from := w.at
	switch c := w.b[w.at]; c {
	case '{':
		w.object(own || free[field], named[field])
	case '[':
		w.at++
		for w.space(); w.at < len(w.b) && w.b[w.at] != ']'; w.space() {
			w.value(field, own, in)
			if w.found != nil {
				return
			}
			if w.space(); w.at < len(w.b) && w.b[w.at] == ',' {
				w.at++
			}
		}
		w.at++
	case '"':
		w.skipString()
		w.text(field, own, in, from)
	default:
		for w.at < len(w.b) && !strings.ContainsRune(",]} \t\r\n", rune(w.b[w.at])) {
			w.at++
		}
		if own && (c == '-' || c >= '0' && c <= '9') {
			num := string(w.b[from:w.at])
			out, found := w.g.Text(num)
			if found != nil {
				w.found = found
			} else if out != num {
				w.edits = append(w.edits, edit{from, w.at, quote(out)})
			}
		}
	}
	if !own && (field == "logprobs" || field == "top_logprobs" || field == "logprobsResult") && w.at > from {
		with := "null"
		if w.b[from] == '[' {
			with = "[]"
		}
		w.odds = append(w.odds, edit{from, w.at, with})
	}
}

// object is what is known of an object before its fields are gone through.
type object struct {
	kind   string
	mime   string
	signed bool
}

// object goes through an object. schema says that the names of its fields are those of a schema's author.
func (w *walker) object(own, schema bool) {
	w.depth++
	defer func() { w.depth-- }()
	o := &object{}
	if !own && !schema && w.depth <= maxDepth {
		o = w.peek()
	}
	w.at++
	for w.space(); w.at < len(w.b) && w.b[w.at] != '}'; w.space() {
		from := w.at
		w.skipString()
		name := unquote(w.b[from:w.at])
		if own {
			out, found := w.g.Text(name)
			if found != nil {
				w.found = found
			} else if out != name {
				w.edits = append(w.edits, edit{from, w.at, quote(out)})
			}
		}
		w.space()
		w.at++ // the colon
		switch {
		case own || schema:
			w.value(name, own, o)
		case still[name]:
			w.skip()
		default:
			w.value(name, false, o)
		}
		if w.found != nil {
			return
		}
		if w.space(); w.at < len(w.b) && w.b[w.at] == ',' {
			w.at++
		}
	}
	w.at++
}

// peek reads what decides how fields of an object are looked at.
func (w *walker) peek() *object {
	o, was := &object{}, w.at
	w.at++
	for w.space(); w.at < len(w.b) && w.b[w.at] != '}'; w.space() {
		from := w.at
		w.skipString()
		name := string(w.b[from:w.at])
		w.space()
		w.at++
		w.space()
		from = w.at
		w.skip()
		switch name {
		case `"type"`:
			o.kind = unquote(w.b[from:w.at])
		case `"media_type"`, `"mimeType"`, `"mime_type"`:
			o.mime = unquote(w.b[from:w.at])
		case `"signature"`:
			o.signed = w.at-from > 2
		}
		if w.space(); w.at < len(w.b) && w.b[w.at] == ',' {
			w.at++
		}
	}
	w.at = was
	return o
}

// text looks at a string that ends at w.at.
func (w *walker) text(field string, own bool, in *object, from int) {
	text := unquote(w.b[from:w.at])
	var out string
	var found *Found
	switch {
	case own:
		out, found = w.g.Text(text)
	case names[field] && nameRE.MatchString(text), field == "thinking" && in != nil && in.signed, encoded(field, text, in):
		return
	case free[field] && isObject(text):
		out, found = w.g.arguments(text)
	default:
		out, found = w.g.prose(text)
	}
	if found != nil {
		w.found = found
	} else if out != text {
		w.edits = append(w.edits, edit{from, w.at, quote(out)})
	}
}

// encoded reports whether a text is the data of an image or a file.
func encoded(field, text string, in *object) bool {
	if head, _, ok := strings.Cut(text, ","); ok && strings.HasPrefix(head, "data:") && strings.HasSuffix(head, ";base64") {
		return true
	}
	if field != "data" || in == nil {
		return false
	}
	return in.kind != "text" && (in.mime != "" || in.kind == "base64" || in.kind == "redacted_thinking" || len(text) > 256 && nameRE.MatchString(text[:256]))
}

func isObject(text string) bool {
	t := strings.TrimLeft(text, " \t\r\n")
	return t != "" && (t[0] == '{' || t[0] == '[') && json.Valid([]byte(t))
}

// skipString goes behind a string.
func (w *walker) skipString() {
	for w.at++; w.at < len(w.b) && w.b[w.at] != '"'; w.at++ {
		if w.b[w.at] == '\\' {
			w.at++
		}
	}
	w.at = min(w.at+1, len(w.b))
}

// skip goes behind a value.
func (w *walker) skip() {
	w.space()
	depth := 0
	for w.at < len(w.b) {
		switch w.b[w.at] {
		case '"':
			w.skipString()
			if depth == 0 {
				return
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return
			}
			if depth--; depth == 0 {
				w.at++
				return
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return
			}
		}
		w.at++
	}
}

func unquote(b []byte) string {
	if !slices.Contains(b, '\\') && len(b) >= 2 {
		return string(b[1 : len(b)-1])
	}
	var s string
	_ = json.Unmarshal(b, &s)
	return s
}

func quote(s string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s)
	return strings.TrimSuffix(b.String(), "\n")
}
