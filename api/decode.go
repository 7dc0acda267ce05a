package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
)

// A request type is a struct whose fields say by tag where they come from:
//
//	path:"name"     a parameter of the path
//	query:"name"    a parameter of the query string
//	header:"Name"   a header
//	body:"json"     the body, decoded strictly from JSON; body:"raw" is the body's bytes, body:"stream" an io.Reader of them
//	once:"-"        a store.Once made of the Idempotency-Key header
//	meta:"…"        what the server knows of the request: method, url, host, headers (all of them) or token
//
// default:"…" stands in for an absent parameter or body, doc:"…" describes a field in the OpenAPI document. An embedded struct adds its fields.
type plan struct {
	fields []fieldPlan
	json   bool // whether the body is JSON
	raw    bool // whether the body is taken as it is
	stream bool // whether the handler reads it
	once   bool
}

type fieldPlan struct {
	source string // path, query, header, body, once, meta
	name   string
	index  []int
	typ    reflect.Type
	absent string // what an absent parameter means
	doc    string
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	onceType     = reflect.TypeFor[store.Once]()
)

// planOf panics when t is not a request type as described above: a fault of the route table, found by any test.
func planOf(t reflect.Type) plan {
	var p plan
	for _, f := range reflect.VisibleFields(t) {
		if f.Anonymous {
			continue
		}
		fp := fieldPlan{index: f.Index, typ: f.Type, doc: f.Tag.Get("doc"), absent: f.Tag.Get("default")}
		for _, source := range []string{"path", "query", "header", "body", "once", "meta"} {
			if name, ok := f.Tag.Lookup(source); ok {
				fp.source, fp.name = source, name
			}
		}
		switch {
		case fp.source == "":
			panic(fmt.Sprintf("api: field %s of %s has no source", f.Name, t))
		case fp.source == "once" && f.Type != onceType:
			panic(fmt.Sprintf("api: field %s of %s is not a store.Once", f.Name, t))
		case fp.source == "body" && fp.name == "json":
			p.json = true
		case fp.source == "body" && fp.name == "stream":
			p.stream = true
		case fp.source == "body":
			p.raw = true
		case fp.source == "once":
			p.once = true
		}
		p.fields = append(p.fields, fp)
	}
	return p
}

// source is where the values of one request come from. Every string and byte slice it returns is the caller's to keep.
type source interface {
	path(name string) string // as it was sent, still escaped
	query(name string) string
	header(name string) string
	headers() [][2]string
	body() io.Reader // of a handler that reads it
	method() string
	url() string
}

// decode fills the request struct v.
func (p *plan) decode(v reflect.Value, src source, token agent.TokenID, body []byte) error {
	for i := range p.fields {
		f := &p.fields[i]
		fv := v.FieldByIndex(f.index)
		var s string
		var err error
		switch f.source {
		case "path":
			if s, err = url.PathUnescape(src.path(f.name)); err != nil {
				err = agent.Errorf(agent.Invalid, "path parameter %q is not escaped as RFC 3986 says", f.name)
			}
		case "query":
			s = src.query(f.name)
		case "header":
			s = src.header(f.name)
		case "body":
			switch f.name {
			case "raw":
				fv.SetBytes(body)
				continue
			case "stream":
				fv.Set(reflect.ValueOf(src.body()))
				continue
			}
			if len(body) == 0 {
				body = []byte(f.absent)
			}
			if err := decodeJSON(body, fv.Addr().Interface()); err != nil {
				return err
			}
			if err := required(fv); err != nil {
				return err
			}
			continue
		case "once":
			once, err := onceOf(src, token, body)
			if err != nil {
				return err
			}
			fv.Set(reflect.ValueOf(once))
			continue
		case "meta":
			p.meta(fv, f.name, src, token)
			continue
		}
		if err != nil {
			return err
		}
		if s == "" {
			s = f.absent
		}
		if s == "" {
			continue
		}
		if !utf8.ValidString(s) {
			return agent.Errorf(agent.Invalid, "%s parameter %q is not valid UTF-8", f.source, f.name)
		}
		if err := setText(fv, s); err != nil {
			return agent.Errorf(agent.Invalid, "%s parameter %q must be %s, not %.80q", f.source, f.name, err, s)
		}
	}
	return nil
}

func (p *plan) meta(fv reflect.Value, name string, src source, token agent.TokenID) {
	switch name {
	case "method":
		fv.SetString(src.method())
	case "url":
		fv.SetString(src.url())
	case "host":
		fv.SetString(src.header("Host"))
	case "headers":
		fv.Set(reflect.ValueOf(src.headers()))
	case "token":
		fv.SetString(string(token))
	}
}

// setText sets v from its text form; the error says what was expected.
func setText(v reflect.Value, s string) error {
	if v.Type() == durationType {
		d, err := time.ParseDuration(s)
		if err != nil || d < 0 {
			return fmt.Errorf("a duration such as 1.5s or 200ms")
		}
		v.SetInt(int64(d))
		return nil
	}
	if u, ok := v.Addr().Interface().(interface{ UnmarshalText([]byte) error }); ok {
		if u.UnmarshalText([]byte(s)) != nil {
			return fmt.Errorf("one of %s", strings.Join(namesOf(v.Type()), ", "))
		}
		return nil
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(s)
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < 0 || (v.Kind() == reflect.Int && n > math.MaxInt32) {
			return fmt.Errorf("a whole number from 0 up")
		}
		v.SetInt(n)
	case reflect.Bool:
		b, err := strconv.ParseBool(s)
		if err != nil {
			return fmt.Errorf("true or false")
		}
		v.SetBool(b)
	default:
		panic("api: no text form for " + v.Type().String())
	}
	return nil
}

// namesOf lists the names of a small integer kind of package agent.
func namesOf(t reflect.Type) []string {
	var names []string
	for i := range uint64(256) {
		v := reflect.New(t).Elem()
		v.SetUint(i)
		name := fmt.Sprint(v.Interface())
		if strings.HasPrefix(name, "unknown(") {
			break
		}
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}

const maxKey = 255

// onceOf returns the Once of an Idempotency-Key header: the zero one when there is none.
func onceOf(src source, token agent.TokenID, body []byte) (store.Once, error) {
	key := src.header("Idempotency-Key")
	if key == "" {
		return store.Once{}, nil
	}
	if len(key) > maxKey || !utf8.ValidString(key) {
		return store.Once{}, agent.Errorf(agent.Invalid, "header Idempotency-Key must be UTF-8 of at most %d bytes", maxKey)
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s %s\n", src.method(), src.url())
	h.Write(body)
	digest := agent.Digest("sha256:" + hex.EncodeToString(h.Sum(nil)))
	return store.Once{Scope: string(token), Key: key, Request: digest}, nil
}

// fiberSource reads from a fiber context, whose own strings are valid only during the handler, and copies them.
type fiberSource struct{ c *fiber.Ctx }

func (s fiberSource) path(name string) string {
	if name == "path" { // the rest, slashes included
		name = "*"
	}
	return strings.Clone(s.c.Params(name))
}

func (s fiberSource) header(name string) string { return string(s.c.Request().Header.Peek(name)) }
func (s fiberSource) method() string            { return strings.Clone(s.c.Method()) }

func (s fiberSource) url() string {
	u := s.c.Request().URI()
	if q := u.QueryString(); len(q) > 0 {
		return string(u.PathOriginal()) + "?" + string(q)
	}
	return string(u.PathOriginal())
}

func (s fiberSource) query(name string) string {
	return string(s.c.Request().URI().QueryArgs().Peek(name))
}

func (s fiberSource) headers() [][2]string {
	all, fields, text := s.c.Request().Header.All(), 0, make([]byte, 0, 512)
	for k, v := range all {
		fields, text = fields+1, append(append(text, k...), v...)
	}
	rest, out := string(text), make([][2]string, 0, fields) // one string for all
	for k, v := range all {
		n := len(k) + len(v)
		out = append(out, [2]string{rest[:len(k)], rest[len(k):n]})
		rest = rest[n:]
	}
	return out
}

// checkContent refuses a body of another media type than the route takes.
func checkContent(p *plan, contentType, encoding string, empty bool) error {
	if !p.json || empty {
		return nil
	}
	if encoding != "" && !strings.EqualFold(encoding, "identity") {
		return invalidAs(http.StatusUnsupportedMediaType, fmt.Sprintf("content encoding %.80q is not supported here", encoding),
			"send the body as it is")
	}
	if contentType == "" || (agent.Payload{Type: contentType}).IsJSON() {
		return nil
	}
	return invalidAs(http.StatusUnsupportedMediaType, fmt.Sprintf("content type %.80q is not supported here", contentType),
		"send JSON, with the header Content-Type: application/json")
}

func (s fiberSource) body() io.Reader {
	n, stream := int64(s.c.Request().Header.ContentLength()), s.c.Context().RequestBodyStream()
	if stream == nil || n == 0 {
		return bytes.NewReader(nil)
	}
	return &bodyReader{stream, n}
}

// bodyReader is a body of which left bytes are to come, or any number when that is below 0.
type bodyReader struct {
	r    io.Reader
	left int64
}

func (b *bodyReader) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	if b.left > 0 {
		p = p[:min(int64(len(p)), b.left)]
	}
	n, err := b.r.Read(p)
	if b.left > 0 {
		b.left -= int64(n)
	}
	if err != nil && (err != io.EOF || b.left > 0) {
		err = agent.Wrap(agent.Invalid, err, "the body ended before its declared length, or came too slowly")
	}
	return n, err
}
