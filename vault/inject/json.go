package inject

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/skep-dev/skep/agent"
)

// maxDepth is the deepest that JSON with a placeholder may nest.
const maxDepth = 200

// document is JSON with strings to replace. All else stays as it was written.
type document struct {
	text  []byte
	edits []jsonEdit
}

type jsonEdit struct {
	from, to int // of the string, with its quotes
	slot     *slot
}

// json finds the slots in a text of JSON. The place of a string is its pointer (RFC 6901).
func (f *finder) json(text []byte) (*document, error) {
	if !json.Valid(text) || !utf8.Valid(text) {
		return nil, misplaced(string(text), "in a body that is not valid JSON", "")
	}
	w := walker{f: f, doc: &document{text: text}}
	w.space()
	return w.doc, w.value()
}

func (d *document) bytes() []byte {
	var b bytes.Buffer
	at := 0
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	for _, edit := range d.edits {
		b.Write(d.text[at:edit.from])
		_ = e.Encode(edit.slot.text) // a string into memory
		b.Truncate(b.Len() - 1)      // the line break that Encode adds
		at = edit.to
	}
	b.Write(d.text[at:])
	return b.Bytes()
}

// walker goes over valid JSON.
type walker struct {
	f   *finder
	doc *document
	at  int
	in  []string // the names and numbers that lead here
}

func (w *walker) pointer() string {
	var b strings.Builder
	for _, name := range w.in {
		b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
	}
	return b.String()
}

// inside walks the value of the field or element with a name.
func (w *walker) inside(name string) error {
	if len(w.in) == maxDepth {
		return agent.Errorf(agent.Invalid, "a body of JSON with a placeholder nests deeper than %d", maxDepth)
	}
	w.in = append(w.in, name)
	err := w.value()
	w.in = w.in[:len(w.in)-1]
	return err
}

func (w *walker) space() {
	for w.at < len(w.doc.text) && strings.IndexByte(" \t\r\n", w.doc.text[w.at]) >= 0 {
		w.at++
	}
}

// next takes one byte of punctuation, and the space around it.
func (w *walker) next() byte {
	w.space()
	c := w.doc.text[w.at]
	w.at++
	w.space()
	return c
}

func (w *walker) value() error {
	switch w.doc.text[w.at] {
	case '{':
		return w.object()
	case '[':
		return w.array()
	case '"':
		return w.text()
	}
	for w.at < len(w.doc.text) && strings.IndexByte(",]} \t\r\n", w.doc.text[w.at]) < 0 {
		w.at++
	}
	return nil
}

func (w *walker) object() error {
	if w.next(); w.doc.text[w.at] == '}' {
		w.at++
		return nil
	}
	seen := map[string]bool{}
	for {
		from, to := w.token()
		key := unquote(w.doc.text[from:to])
		if w.f.like(string(w.doc.text[from:to])) || w.f.like(key) {
			return misplaced(key, "in the name of a field of JSON", places)
		}
		if seen[key] {
			return invalid("a body of JSON with a placeholder has the field "+quote(key)+" twice in one object", "send it once: which of the two counts is the receiver's choice")
		}
		seen[key] = true
		w.next() // the colon
		if err := w.inside(key); err != nil {
			return err
		}
		if w.next() == '}' {
			return nil
		}
	}
}

func (w *walker) array() error {
	if w.next(); w.doc.text[w.at] == ']' {
		w.at++
		return nil
	}
	for i := 0; ; i++ {
		if err := w.inside(strconv.Itoa(i)); err != nil {
			return err
		}
		if w.next() == ']' {
			return nil
		}
	}
}

// token takes a string and returns where it stands.
func (w *walker) token() (from, to int) {
	from = w.at
	for w.at++; w.doc.text[w.at] != '"'; w.at++ {
		if w.doc.text[w.at] == '\\' {
			w.at++
		}
	}
	w.at++
	return from, w.at
}

func (w *walker) text() error {
	from, to := w.token()
	raw := w.doc.text[from:to]
	text := unquote(raw)
	if !w.f.like(string(raw)) && !w.f.like(text) {
		return nil
	}
	pointer := w.pointer()
	s, err := w.f.slot(agent.Place{Kind: agent.PlaceBody, Name: pointer}, text, "in the body at "+quote(pointer))
	if err == nil {
		w.doc.edits = append(w.doc.edits, jsonEdit{from, to, s})
	}
	return err
}

func unquote(raw []byte) string {
	var s string
	_ = json.Unmarshal(raw, &s) // raw is a string of valid JSON
	return s
}
