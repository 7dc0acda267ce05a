package openapi

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"mime"
	"mime/multipart"
	"net/textproto"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/skep-dev/skep/agent"
)

// body is what a request may carry.
type body struct {
	arg       string
	media     string // content type that is sent
	required  bool
	props     map[string]bool // of forms: the properties that are bytes
	encodings openapi3.Encodings
}

func isJSON(media string) bool {
	t, _, err := mime.ParseMediaType(media)
	if err != nil {
		t = media
	}
	return t == agent.TypeJSON || strings.HasSuffix(t, "+json")
}

// Kinds of bodies, those first that are preferred where an operation takes several.
var bodyKinds = []func(media string) bool{
	func(m string) bool { return m == agent.TypeJSON },
	isJSON,
	func(m string) bool { return m == typeForm },
	func(m string) bool { return m == typeMultipart },
	func(m string) bool { return strings.HasPrefix(m, "text/") },
	func(string) bool { return true },
}

const (
	typeForm      = "application/x-www-form-urlencoded"
	typeMultipart = "multipart/form-data"
)

// readBody picks the media type that requests have, and makes its schema.
func readBody(b *builder, r *openapi3.RequestBody) (*body, schema) {
	out := &body{arg: "body", required: r.Required}
	var content *openapi3.MediaType
	for _, is := range bodyKinds {
		for _, name := range sortedKeys(r.Content) {
			if content == nil && is(strings.ToLower(name)) {
				out.media, content = name, r.Content[name]
			}
		}
	}
	in := schema{}
	if content != nil {
		out.encodings = content.Encoding
		if content.Schema != nil {
			in = b.schema(content.Schema)
			out.props = binaryProps(content.Schema.Value)
		}
	}
	switch kind := strings.ToLower(out.media); {
	case isJSON(kind), kind == typeForm, kind == typeMultipart:
	case strings.HasPrefix(kind, "text/"), strings.HasSuffix(kind, "xml"):
		in = schema{"type": "string", "description": "text of type " + out.media}
	default:
		in = schema{"type": "string", "contentEncoding": "base64", "description": "bytes of type " + out.media + ", in base64"}
	}
	if strings.Contains(out.media, "*") {
		out.media = agent.TypeBytes
	}
	if r.Description != "" && in["$ref"] == nil && in["description"] == nil {
		in["description"] = r.Description
	}
	return out, in
}

// binaryProps are the properties of a form that are files.
func binaryProps(s *openapi3.Schema) map[string]bool {
	out := map[string]bool{}
	if s == nil {
		return out
	}
	for name, p := range s.Properties {
		if p == nil || p.Value == nil {
			continue
		}
		v := p.Value
		out[name] = v.Format == "binary" || v.ContentMediaType != "" && v.ContentEncoding == "" || v.ContentEncoding == "base64"
		if v.Items != nil && v.Items.Value != nil {
			out[name] = out[name] || v.Items.Value.Format == "binary"
		}
	}
	return out
}

// encode is the body of a request and its content type.
func (b *body) encode(v any) (out []byte, media string, err error) {
	switch kind := strings.ToLower(b.media); {
	case isJSON(kind):
		out, err = json.Marshal(v)
		return out, b.media, err
	case kind == typeForm:
		return b.form(v)
	case kind == typeMultipart:
		return b.multipart(v)
	}
	text, ok := v.(string)
	if !ok {
		return nil, "", agent.Errorf(agent.Invalid, "%s must be a string", b.arg)
	}
	if kind := strings.ToLower(b.media); strings.HasPrefix(kind, "text/") || strings.HasSuffix(kind, "xml") {
		return []byte(text), b.media, nil
	}
	out, err = decodeBytes(b.arg, text)
	return out, b.media, err
}

func decodeBytes(what, text string) ([]byte, error) {
	out, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, agent.Errorf(agent.Invalid, "%s must be bytes in base64", what)
	}
	return out, nil
}

// form is application/x-www-form-urlencoded: properties as parameters of a query, in the style form unless the document says another.
func (b *body) form(v any) ([]byte, string, error) {
	m, ok := v.(map[string]any)
	if !ok {
		return nil, "", agent.Errorf(agent.Invalid, "%s must be an object", b.arg)
	}
	var parts []string
	for _, name := range sortedKeys(m) {
		p := param{arg: name, name: name, style: "form", explode: true}
		if e := b.encodings[name]; e != nil {
			if e.Style != "" {
				p.style, p.explode = e.Style, e.Style == "form"
			}
			if e.Explode != nil {
				p.explode = *e.Explode
			}
			p.json = e.Style == "" && isJSON(e.ContentType)
		}
		if _, object := m[name].(map[string]any); object && b.encodings[name] == nil {
			p.json = true // OpenAPI 3: objects are JSON unless it says otherwise
		}
		parts = append(parts, p.inQuery(m[name])...)
	}
	return []byte(strings.Join(parts, "&")), typeForm, nil
}

// multipart is multipart/form-data (RFC 7578). The boundary is the same for the same body.
func (b *body) multipart(v any) ([]byte, string, error) {
	m, ok := v.(map[string]any)
	if !ok {
		return nil, "", agent.Errorf(agent.Invalid, "%s must be an object", b.arg)
	}
	whole, err := json.Marshal(m)
	if err != nil {
		return nil, "", err
	}
	var buf bytes.Buffer
	w := multipart.NewWriter(&buf)
	if err := w.SetBoundary("skep-" + agent.DigestOf(whole).Hex()[:40]); err != nil {
		return nil, "", err
	}
	for _, name := range sortedKeys(m) {
		list, isList := m[name].([]any)
		if !isList {
			list = []any{m[name]}
		}
		for _, x := range list {
			if err := b.part(w, name, x); err != nil {
				return nil, "", err
			}
		}
	}
	if err := w.Close(); err != nil {
		return nil, "", err
	}
	return buf.Bytes(), w.FormDataContentType(), nil
}

func (b *body) part(w *multipart.Writer, name string, v any) error {
	h := textproto.MIMEHeader{}
	quoted := strings.NewReplacer("\\", "\\\\", `"`, `\"`, "\r", "%0D", "\n", "%0A").Replace(name)
	disposition := fmt.Sprintf(`form-data; name="%s"`, quoted)
	media, data := "", []byte(text(v))
	switch v.(type) {
	case map[string]any, []any:
		media = agent.TypeJSON
	}
	if s, ok := v.(string); ok && b.props[name] {
		var err error
		if data, err = decodeBytes(b.arg+"."+name, s); err != nil {
			return err
		}
		disposition += fmt.Sprintf(`; filename="%s"`, quoted)
		media = agent.TypeBytes
	}
	if e := b.encodings[name]; e != nil && e.ContentType != "" && !strings.ContainsAny(e.ContentType, "*,") {
		media = e.ContentType
	}
	h.Set("Content-Disposition", disposition)
	if media != "" {
		h.Set("Content-Type", media)
	}
	part, err := w.CreatePart(h)
	if err == nil {
		_, err = part.Write(data)
	}
	return err
}
