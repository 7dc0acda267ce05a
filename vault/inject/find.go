package inject

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/vault/scrub"
)

const (
	maxBody         = 1 << 20 // bytes of a body in which placeholders are replaced
	maxPlaceholders = 64      // in one request
)

// never lists headers that frame a request, say where it goes, or are for the next hop: no secret stands there.
var never = map[string]bool{
	"connection": true, "content-length": true, "expect": true, "host": true, "keep-alive": true, "proxy-authorization": true,
	"proxy-connection": true, "te": true, "trailer": true, "transfer-encoding": true, "upgrade": true,
}

// finder finds the slots of a request, and refuses it where a placeholder stands anywhere else.
type finder struct {
	near    *scrub.Scrubber
	r       *http.Request
	headers map[string]int // by name in lower case, how many there are
	slots   []*slot
	count   int      // of placeholders
	after   []func() // put each slot's text where it belongs
}

func (f *finder) find() error {
	u := f.r.URL
	if u.User != nil && f.like(u.User.String()) {
		return misplaced(u.User.String(), "in the user of the URL", "a user and password make a secret of kind basic, for the authorization header")
	}
	for _, part := range []struct{ text, where string }{
		{f.r.Method, "in the method"}, {u.Scheme, "in the scheme of the URL"}, {u.Host, "in the host of the URL"}, {f.r.Host, "in the host header"},
		{u.Opaque, "in the URL"}, {u.Path, "in the path of the URL"}, {u.RawPath, "in the path of the URL"},
		{u.Fragment, "in the fragment of the URL"}, {u.RawFragment, "in the fragment of the URL"},
	} {
		if f.like(part.text) {
			return misplaced(part.text, part.where, places)
		}
	}
	if err := f.query(); err != nil {
		return err
	}
	for name, values := range f.r.Header {
		f.headers[strings.ToLower(name)] += len(values)
	}
	for _, name := range slices.Sorted(maps.Keys(f.r.Header)) {
		if err := f.header(name, f.r.Header[name]); err != nil {
			return err
		}
	}
	for name, values := range f.r.Trailer {
		if f.like(name) || slices.ContainsFunc(values, f.like) {
			return misplaced(name, "in a trailer", places)
		}
	}
	return f.body()
}

// like reports whether something in text looks like a placeholder.
func (f *finder) like(text string) bool { return text != "" && f.near.In([]byte(text)) }

// slot adds text as one if there is a placeholder in it. Where says in words what the place is.
func (f *finder) slot(p agent.Place, text, where string) (*slot, error) {
	parts, err := parse(text)
	if err != nil {
		return nil, err
	}
	for _, part := range parts {
		if f.like(part.text) {
			parts = nil
			break
		}
		if part.secret != "" {
			f.count++
		}
	}
	if f.count > maxPlaceholders {
		return nil, agent.Errorf(agent.Invalid, "the request has more than %d placeholders of secrets", maxPlaceholders)
	}
	if parts == nil {
		return nil, misplaced(text, where+" in a spelling that is not replaced", "write it as {{secret:NAME}}, not encoded again; a user and password make a secret of kind basic")
	}
	s := &slot{place: p, parts: parts}
	f.slots = append(f.slots, s)
	return s, nil
}

func (f *finder) header(name string, values []string) error {
	if f.like(name) {
		return misplaced(name, "in the name of a header", places)
	}
	lower := strings.ToLower(name)
	for i, v := range values {
		if !f.like(v) {
			continue
		}
		if never[lower] {
			return misplaced(v, "in the header "+lower+", where no secret can go", places)
		}
		s, err := f.slot(agent.Place{Kind: agent.PlaceHeader, Name: lower}, v, "in the header "+quote(lower))
		if err != nil {
			return err
		}
		s.alone = f.headers[lower] == 1
		f.after = append(f.after, func() { f.r.Header[name][i] = s.text })
	}
	return nil
}

func (f *finder) query() error {
	if !f.like(f.r.URL.RawQuery) {
		return nil
	}
	form, err := f.form(agent.PlaceQuery, f.r.URL.RawQuery, "query parameter")
	if err == nil {
		f.after = append(f.after, func() { f.r.URL.RawQuery = form.String() })
	}
	return err
}

// body reads a body of up to 1 MiB, and has any other fail where a placeholder turns up in it.
func (f *finder) body() error {
	r := f.r
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	if r.ContentLength > 0 && r.ContentLength <= maxBody {
		return f.whole()
	}
	why := "in a body of more than 1 MiB"
	if r.ContentLength <= 0 {
		why = "in a body whose length is not known before it is sent"
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{f.near.Guard(r.Body, misplaced("", why, bodies)), r.Body}
	r.GetBody = nil
	return nil
}

const bodies = "a secret is put into a body of JSON or a form, of at most 1 MiB, in UTF-8 and sent at once; else it goes into a header"

func (f *finder) whole() error {
	r := f.r
	b, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return agent.AsError(err)
	}
	if int64(len(b)) != r.ContentLength {
		return agent.Errorf(agent.Invalid, "the body has %d bytes or more, and the request says %d", len(b), r.ContentLength)
	}
	if err := r.Body.Close(); err != nil {
		return agent.AsError(err)
	}
	setBody(r, b)
	if !f.near.In(b) {
		return nil
	}
	switch kind, what := mediaOf(r.Header); kind {
	case formMedia:
		form, err := f.form(agent.PlaceBody, string(b), "form's field")
		f.after = append(f.after, func() { setBody(r, []byte(form.String())) })
		return err
	case jsonMedia:
		doc, err := f.json(b)
		f.after = append(f.after, func() { setBody(r, doc.bytes()) })
		return err
	default:
		hint := bodies
		if json.Valid(b) {
			hint = "say that it is JSON: content-type: application/json"
		}
		return misplaced(string(b), "in a body "+what, hint)
	}
}

// write puts the filled slots into the request. The URL and the headers that it had stay as they were, for others to use.
func (f *finder) write() {
	u := *f.r.URL
	f.r.URL, f.r.Header = &u, f.r.Header.Clone()
	for _, put := range f.after {
		put()
	}
}

// setBody gives r a body of known bytes, and a length to match.
func setBody(r *http.Request, b []byte) {
	r.ContentLength = int64(len(b))
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }
	r.Body, _ = r.GetBody()
}

type media uint8

const (
	otherMedia media = iota
	jsonMedia
	formMedia
)

// mediaOf says how the body is to be read by its one content type, and in words what it is. What is encoded or in another
// character set than UTF-8 is not read.
func mediaOf(h http.Header) (media, string) {
	types := h.Values("Content-Type")
	if len(types) != 1 {
		return otherMedia, "without one content type"
	}
	if enc := h.Values("Content-Encoding"); len(enc) > 0 && !(len(enc) == 1 && strings.EqualFold(enc[0], "identity")) {
		return otherMedia, "with a content encoding"
	}
	t, params, err := mime.ParseMediaType(types[0])
	if err != nil {
		return otherMedia, "whose content type is not valid"
	}
	if c, ok := params["charset"]; ok && !strings.EqualFold(c, "utf-8") {
		return otherMedia, "in another character set than UTF-8"
	}
	switch {
	case t == "application/json" || strings.HasPrefix(t, "application/") && strings.HasSuffix(t, "+json"):
		return jsonMedia, ""
	case t == "application/x-www-form-urlencoded":
		return formMedia, ""
	}
	return otherMedia, "of type " + clip(t)
}
