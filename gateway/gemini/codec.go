// Package gemini is the protocol of Gemini's generateContent, streamGenerateContent and countTokens: requests, answers, streams in both of their forms
// (server-sent events and a JSON array), lists of models and errors.
package gemini

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"net/url"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/gateway/wire/openai"
	"github.com/skep-dev/skep/gateway/wire/raw"
	"github.com/tidwall/gjson"
)

// Codec is the protocol. It is a wire.Counter and a wire.Lister too, and its meters of streams are a wire.Breaker.
var Codec wire.Codec = codec{}

type codec struct{}

var (
	_ wire.Counter = codec{}
	_ wire.Lister  = codec{}
)

func (codec) Protocol() agent.Protocol { return agent.GeminiProtocol }

// own is the protocol as origins name it.
var own = agent.GeminiProtocol.String()

func invalid(format string, args ...any) error { return agent.Errorf(agent.Invalid, format, args...) }

func (codec) Key(h http.Header, key string) { h.Set("x-goog-api-key", key) }

// place is what a path says: /VERSION/models/MODEL:METHOD?QUERY.
type place struct {
	version string // such as /v1beta
	model   string
	method  string
	query   string
}

func placeOf(path string) place {
	var p place
	path, p.query, _ = strings.Cut(path, "?")
	version, rest, ok := strings.Cut(path, "/models/")
	if !ok {
		if version, rest, ok = strings.Cut(path, "/tunedModels/"); ok {
			rest = "tunedModels/" + rest
		}
	}
	if !ok {
		return p
	}
	p.version = version
	if i := strings.LastIndexByte(rest, ':'); i >= 0 {
		rest, p.method = rest[:i], rest[i+1:]
	}
	if m, err := url.PathUnescape(rest); err == nil {
		rest = m
	}
	p.model = rest
	return p
}

// path is the way back, for another model.
func (p place) path(model string) string {
	version := p.version
	if version == "" {
		version = "/v1beta"
	}
	return version + modelPath(model) + ":" + p.method
}

func modelPath(model string) string {
	model = strings.TrimPrefix(model, "models/")
	segments := strings.Split(model, "/")
	for i, s := range segments {
		segments[i] = url.PathEscape(s)
	}
	model = strings.Join(segments, "/")
	if strings.HasPrefix(model, "tunedModels/") {
		return "/" + model
	}
	return "/models/" + model
}

func (p place) streams() bool { return p.method == "streamGenerateContent" }

// array reports whether the stream is a JSON array.
func (p place) array() bool {
	if !p.streams() {
		return false
	}
	for f := range strings.SplitSeq(p.query, "&") {
		if k, v, _ := strings.Cut(f, "="); (k == "alt" || k == "$alt" || k == "%24alt") && v == "sse" {
			return false
		}
	}
	return true
}

// get reads a field by its name, or by the same name with underscores: the protocol takes both.
func get(v gjson.Result, name string) gjson.Result {
	if r := v.Get(name); r.Exists() {
		return r
	}
	return v.Get(snake(name))
}

func field(o raw.Object, name string) gjson.Result {
	if r := o.Get(name); r.Exists() {
		return r
	}
	return o.Get(snake(name))
}

func snake(s string) string {
	b := make([]byte, 0, len(s)+4)
	for i := range len(s) {
		if c := s[i]; c >= 'A' && c <= 'Z' {
			b = append(b, '_', c+'a'-'A')
		} else {
			b = append(b, c)
		}
	}
	return string(b)
}

// read reads a request. It refuses one in which a field is there in both of its spellings.
func read(body []byte) (raw.Object, error) {
	o, err := raw.Read(body)
	if err != nil {
		return o, err
	}
	names := make(map[string]bool, len(o.Fields))
	for _, f := range o.Fields {
		names[f.Name] = true
	}
	for _, f := range o.Fields {
		if s := snake(f.Name); s != f.Name && names[s] {
			return o, invalid("%s: the field is there twice, also as %s", raw.Show(f.Name), raw.Show(s))
		}
	}
	return o, nil
}

// asked returns the request that is meant: of one that counts, the one that is within it.
func asked(o raw.Object) (raw.Object, error) {
	if v := field(o, "generateContentRequest"); v.IsObject() {
		return read([]byte(v.Raw))
	}
	return o, nil
}

func (codec) Peek(op wire.Op, path string, body []byte) (wire.Peek, error) {
	at := placeOf(path)
	p := wire.Peek{Model: at.model, Stream: at.streams()}
	if op == wire.List || op == wire.Describe {
		return p, nil
	}
	if at.model == "" {
		return p, invalid("the path names no model; it is /v1beta/models/MODEL:generateContent")
	}
	o, err := read(body)
	if err != nil {
		return p, err
	}
	if o, err = asked(o); err != nil {
		return p, err
	}
	p.MaxTokens = max(get(field(o, "generationConfig"), "maxOutputTokens").Int(), 0)
	if t := o.Get("tools"); t.IsArray() && t.Get("#").Int() > 0 {
		p.Tools = true
		p.Text += len(t.Raw)
	}
	signed := weigh(&p, field(o, "systemInstruction").Get("parts"), "")
	list(o.Get("contents"), func(c gjson.Result) bool {
		if c.Get("role").Str != "model" {
			p.Last = "" // unless results are in it
		}
		signed = weigh(&p, c.Get("parts"), signed)
		return true
	})
	return p, nil
}

// signID stands for the id of a call that has none: what its signature says is in what the provider sent, and in what the client sends back.
func signID(signature string) string {
	h := sha256.Sum256([]byte(signature))
	return "signed_" + hex.EncodeToString(h[:16])
}

// weigh adds what parts have to p. It returns the last signature in them, or the one before.
func weigh(p *wire.Peek, parts gjson.Result, signed string) string {
	one := func(v gjson.Result) {
		if s := get(v, "thoughtSignature").Str; s != "" {
			p.Signed, signed = true, s
		}
		p.Text += len(v.Get("text").Str)
		if get(v, "inlineData").Exists() || get(v, "fileData").Exists() {
			p.Media++
		}
		if c := get(v, "functionCall"); c.Exists() {
			p.Text += len(c.Raw)
		}
		if r := get(v, "functionResponse"); r.Exists() {
			p.Text += len(r.Raw)
			id := r.Get("id").Str
			if id == "" && signed != "" {
				id = signID(signed)
			}
			p.Answers(id)
		}
	}
	list(parts, func(v gjson.Result) bool {
		one(v)
		return true
	})
	return signed
}

func (codec) Patch(op wire.Op, path, query string, _ http.Header, body []byte, to wire.Target) (wire.Call, error) {
	path, _, _ = strings.Cut(path, "?")
	c := wire.Call{Path: path, Query: openai.Query(query), Header: http.Header{}}
	if op == wire.List || op == wire.Describe {
		return c, nil
	}
	c.Header.Set("Content-Type", "application/json")
	o, err := read(body)
	if err != nil {
		return wire.Call{}, err
	}
	c.Body = body
	at := placeOf(path)
	if to.Model != "" && at.model != to.Model {
		c.Path = at.path(to.Model)
		if o.Get("model").Exists() {
			c.Body = o.Set("model", raw.AppendString(nil, "models/"+strings.TrimPrefix(to.Model, "models/")))
		}
		if inner := field(o, "generateContentRequest"); inner.Get("model").Exists() {
			r, err := raw.Read([]byte(inner.Raw))
			if err != nil {
				return wire.Call{}, err
			}
			c.Body = o.Set(nameIn(o, "generateContentRequest"), r.Set("model", raw.AppendString(nil, "models/"+strings.TrimPrefix(to.Model, "models/"))))
		}
	}
	c.Body = dropForeign(c.Body, to.Origin)
	return c, nil
}

// nameIn is a field's name as o spells it.
func nameIn(o raw.Object, name string) string {
	if o.Get(name).Exists() {
		return name
	}
	return snake(name)
}

// sealedMark begins a sealed thought in base64, in which clients of the protocol expect signatures.
var sealedMark = base64.StdEncoding.EncodeToString([]byte("skep1."))

// skipSignature stands for a signature that is not there: the protocol's own word for history that another model made.
const skipSignature = "skip_thought_signature_validator"

// signature is opaque data as clients get it: this protocol's own as it is, that of others sealed, in base64.
func signature(t *wire.Thinking) string {
	if t.Origin.Protocol == own {
		return t.Opaque
	}
	return base64.StdEncoding.EncodeToString([]byte(wire.Seal(t)))
}

// thought reads a signature, which may be another provider's, sealed.
func thought(s string) *wire.Thinking {
	switch s {
	case "", skipSignature, "context_engineering_is_the_way_to_go":
		return nil
	}
	if t, ok := unseal(s); ok {
		return t
	}
	return &wire.Thinking{Opaque: s, Origin: wire.Origin{Protocol: own}}
}

func unseal(s string) (*wire.Thinking, bool) {
	if !strings.HasPrefix(s, sealedMark) {
		return nil, false
	}
	plain := strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(s, "="))
	b, err := base64.RawStdEncoding.DecodeString(plain)
	if err != nil {
		return nil, false
	}
	return wire.Unseal(string(b))
}

// dropForeign takes signatures out of a request that a provider of another protocol made: this one would refuse them. All other bytes stay.
func dropForeign(body []byte, to wire.Origin) []byte {
	if !bytes.Contains(body, []byte(sealedMark)) {
		return body
	}
	out := make([]byte, 0, len(body))
	done := 0
	ok := true
	each := func(c gjson.Result) {
		c.Get("parts").ForEach(func(_, p gjson.Result) bool {
			t, sealed := unseal(get(p, "thoughtSignature").Str)
			if !sealed || t.Origin.Fits(to) {
				return true
			}
			if p.Index < done || p.Index+len(p.Raw) > len(body) {
				ok = false
				return false
			}
			out = append(out, body[done:p.Index]...)
			out = appendUnsigned(out, p)
			done = p.Index + len(p.Raw)
			return true
		})
	}
	gjson.GetBytes(body, "contents").ForEach(func(_, c gjson.Result) bool {
		each(c)
		return ok
	})
	if !ok {
		return body
	}
	return append(out, body[done:]...)
}

func appendUnsigned(b []byte, part gjson.Result) []byte {
	called := get(part, "functionCall").Exists()
	b = append(b, '{')
	first := true
	part.ForEach(func(k, v gjson.Result) bool {
		value := v.Raw
		if k.Str == "thoughtSignature" || k.Str == "thought_signature" {
			if !called {
				return true
			}
			value = `"` + skipSignature + `"`
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(append(append(b, k.Raw...), ':'), value...)
		return true
	})
	if first {
		b = append(b, `"text":""`...)
	}
	return append(b, '}')
}
