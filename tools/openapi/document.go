package openapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/skep-dev/skep/agent"
)

// maxOperations is the most operations of a document.
const maxOperations = 5000

// document is what is needed of an OpenAPI document.
type document struct {
	title, version string
	server         string       // URL of the first server; may be relative, or ""
	ops            []*operation // by name
	byName         map[string]*operation
	auth           []string
}

// operation is one operation of the API.
type operation struct {
	name, title, description string
	method, path             string
	server                   string // of its own; else ""
	params                   []param
	body                     *body
	input                    schema
	output                   json.RawMessage
}

// param is one parameter: where it goes in a request, and how.
type param struct {
	arg, name, in, style string
	explode, reserved    bool
	required             bool
	json                 bool // its value goes as JSON
}

// parse reads a document of OpenAPI 3.0 or 3.1, in JSON or YAML.
func parse(text []byte) (doc *document, err error) {
	if len(text) > MaxDocument {
		return nil, agent.Errorf(agent.Invalid, "the OpenAPI document has %d bytes, more than %d", len(text), MaxDocument)
	}
	defer func() { // the parser is not ours, and the document is a stranger's
		if p := recover(); p != nil {
			doc, err = nil, agent.Wrap(agent.Invalid, fmt.Errorf("panic: %v", p), "the OpenAPI document cannot be read")
		}
	}()
	if err := isOpenAPI(text); err != nil {
		return nil, err
	}
	loader := openapi3.NewLoader()
	loader.IncludeOrigin = !bytes.Contains(text, []byte("__origin__"))
	t, err := loader.LoadFromData(text)
	if err != nil {
		return nil, malformed(err)
	}
	if !strings.HasPrefix(t.OpenAPI, "3.0") && !strings.HasPrefix(t.OpenAPI, "3.1") {
		return nil, &agent.Error{Kind: agent.Invalid, Msg: fmt.Sprintf("the document is of OpenAPI %.20q", t.OpenAPI), Hint: "give one of version 3.0 or 3.1"}
	}
	err = t.Validate(context.Background(), openapi3.DisableExamplesValidation(), openapi3.DisableSchemaDefaultsValidation(),
		openapi3.DisableSchemaPatternValidation(), openapi3.AllowExtensionsWithRef())
	if err != nil {
		return nil, malformed(err)
	}
	return read(t)
}

// isOpenAPI refuses what looks like something else, in words that help.
func isOpenAPI(text []byte) error {
	if len(bytes.TrimSpace(text)) == 0 {
		return agent.Errorf(agent.Invalid, "the OpenAPI document is empty")
	}
	head := text[:min(len(text), 4096)]
	if bytes.Contains(head, []byte("swagger")) && !bytes.Contains(text, []byte("openapi")) {
		return &agent.Error{Kind: agent.Invalid, Msg: "this is a document of Swagger 2.0", Hint: "convert it to OpenAPI 3, such as with: npx swagger2openapi FILE"}
	}
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("<")) {
		return &agent.Error{Kind: agent.Invalid, Msg: "this is a web page or XML, and no OpenAPI document", Hint: "give the document itself, in JSON or YAML"}
	}
	return nil
}

// malformed is an error of the parser, which says where.
func malformed(err error) error {
	msg := strings.Join(strings.Fields(err.Error()), " ")
	if len(msg) > 600 {
		msg = strings.ToValidUTF8(msg[:600], "") + "..."
	}
	return &agent.Error{Kind: agent.Invalid, Msg: "the OpenAPI document is not valid: " + msg, Hint: "correct it; https://spec.openapis.org/oas says how it should be"}
}

func read(t *openapi3.T) (*document, error) {
	d := &document{byName: map[string]*operation{}}
	if t.Info != nil {
		d.title, d.version = t.Info.Title, t.Info.Version
	}
	d.server = serverURL(t.Servers)
	schemas, err := newSchemas(t)
	if err != nil {
		return nil, err
	}
	for _, path := range sortedKeys(t.Paths.Map()) {
		item := t.Paths.Value(path)
		methods := item.Operations()
		for _, method := range sortedKeys(methods) {
			if len(d.ops) == maxOperations {
				return nil, agent.Errorf(agent.Invalid, "the OpenAPI document has more than %d operations", maxOperations)
			}
			op, err := readOperation(schemas, path, method, item, methods[method])
			if err != nil {
				return nil, err
			}
			for n, name := 2, op.name; d.byName[op.name] != nil; n++ {
				op.name = fmt.Sprintf("%s_%d", name, n)
			}
			d.byName[op.name] = op
			d.ops = append(d.ops, op)
		}
	}
	if len(d.ops) == 0 {
		return nil, agent.Errorf(agent.Invalid, "the OpenAPI document has no operations under paths")
	}
	slices.SortFunc(d.ops, func(a, b *operation) int { return strings.Compare(a.name, b.name) })
	d.auth = authWords(t)
	return d, nil
}

func readOperation(s *schemas, path, method string, item *openapi3.PathItem, o *openapi3.Operation) (*operation, error) {
	op := &operation{method: strings.ToUpper(method), path: path, name: operationName(o.OperationID, method, path), title: o.Summary}
	op.description = describe(op, o)
	if o.Servers != nil && len(*o.Servers) > 0 {
		op.server = serverURL(*o.Servers)
	} else if len(item.Servers) > 0 {
		op.server = serverURL(item.Servers)
	}
	build := s.builder(false)
	props, required := schema{}, []string{}
	for _, p := range parametersOf(item, o) {
		if p.In == "header" && slices.Contains([]string{"accept", "content-type", "authorization"}, strings.ToLower(p.Name)) {
			continue // OpenAPI 3: "shall be ignored"
		}
		got, in := readParam(build, p)
		for props[got.arg] != nil {
			got.arg += "_" + got.in
		}
		op.params = append(op.params, got)
		props[got.arg] = in
		if got.required {
			required = append(required, got.arg)
		}
	}
	if o.RequestBody != nil && o.RequestBody.Value != nil && len(o.RequestBody.Value.Content) > 0 {
		b, in := readBody(build, o.RequestBody.Value)
		for props[b.arg] != nil {
			b.arg += "_"
		}
		op.body = b
		props[b.arg] = in
		if o.RequestBody.Value.Required {
			required = append(required, b.arg)
		}
	}
	op.input = schema{"type": "object", "properties": props, "additionalProperties": false}
	if len(required) > 0 {
		op.input["required"] = required
	}
	if err := build.finish(op.input); err != nil {
		return nil, agent.Errorf(agent.Invalid, "the OpenAPI document: %s %s: %s", op.method, path, agent.AsError(err).Msg)
	}
	op.output = s.output(o)
	return op, nil
}

// describe is what a tool says of itself: summary, description and what it stands for.
func describe(op *operation, o *openapi3.Operation) string {
	var parts []string
	for _, s := range []string{o.Summary, o.Description} {
		if s = strings.TrimSpace(s); s != "" && !slices.Contains(parts, s) {
			parts = append(parts, s)
		}
	}
	if o.Deprecated {
		parts = append(parts, "It is deprecated.")
	}
	return strings.Join(append(parts, op.method+" "+op.path), "\n\n")
}

// parametersOf are those of the path, with those of the operation in their place.
func parametersOf(item *openapi3.PathItem, o *openapi3.Operation) []*openapi3.Parameter {
	var out []*openapi3.Parameter
	for _, list := range []openapi3.Parameters{item.Parameters, o.Parameters} {
		for _, r := range list {
			if r == nil || r.Value == nil {
				continue
			}
			same := func(p *openapi3.Parameter) bool { return p.Name == r.Value.Name && p.In == r.Value.In }
			if i := slices.IndexFunc(out, same); i >= 0 {
				out[i] = r.Value
				continue
			}
			out = append(out, r.Value)
		}
	}
	return out
}

func readParam(b *builder, p *openapi3.Parameter) (param, schema) {
	got := param{arg: p.Name, name: p.Name, in: p.In, style: p.Style, reserved: p.AllowReserved, required: p.Required || p.In == "path"}
	if got.style == "" {
		got.style = map[string]string{"path": "simple", "header": "simple"}[p.In]
		if got.style == "" {
			got.style = "form"
		}
	}
	got.explode = got.style == "form"
	if p.Explode != nil {
		got.explode = *p.Explode
	}
	in := schema{}
	if p.Schema != nil {
		in = b.schema(p.Schema)
	} else if media := firstJSON(p.Content); media != nil && media.Schema != nil {
		in, got.json = b.schema(media.Schema), true
	}
	if p.Description != "" && in["$ref"] == nil {
		in["description"] = p.Description
	}
	return got, in
}

func firstJSON(c openapi3.Content) *openapi3.MediaType {
	for _, name := range sortedKeys(c) {
		if isJSON(name) {
			return c[name]
		}
	}
	return nil
}

// operationName is what the tool is called: its operation's id where there is one, as far as a tool may be called so.
func operationName(id, method, path string) string {
	name := id
	if name == "" {
		name = strings.ToLower(method) + strings.NewReplacer("{", "", "}", "", "/", "_").Replace(strings.TrimSuffix(path, "/"))
	}
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./", r) {
			return r
		}
		return '_'
	}, name)
	return name[:min(len(name), 100)]
}

// serverURL is the first of the servers, with its variables as they are by default.
func serverURL(list openapi3.Servers) string {
	if len(list) == 0 || list[0] == nil {
		return ""
	}
	u := list[0].URL
	for name, v := range list[0].Variables {
		if v != nil {
			u = strings.ReplaceAll(u, "{"+name+"}", v.Default)
		}
	}
	return u
}

// authWords says for each security scheme what to set.
func authWords(t *openapi3.T) []string {
	if t.Components == nil {
		return nil
	}
	var out []string
	for _, name := range sortedKeys(t.Components.SecuritySchemes) {
		ref := t.Components.SecuritySchemes[name]
		if ref == nil || ref.Value == nil {
			continue
		}
		s := ref.Value
		switch {
		case s.Type == "apiKey" && s.In == "header":
			out = append(out, fmt.Sprintf("%s: the header %s: ${secret:NAME}", name, s.Name))
		case s.Type == "apiKey" && s.In == "query":
			out = append(out, fmt.Sprintf("%s: a URL that ends in ?%s=${secret:NAME}", name, url.QueryEscape(s.Name)))
		case s.Type == "apiKey":
			out = append(out, fmt.Sprintf("%s: the header Cookie: %s=${secret:NAME}", name, s.Name))
		case s.Type == "http" && strings.EqualFold(s.Scheme, "basic"):
			out = append(out, name+": the header Authorization: ${secret:NAME}, a secret of kind basic")
		case s.Type == "http" || s.Type == "oauth2" || s.Type == "openIdConnect":
			out = append(out, name+": the header Authorization: Bearer ${secret:NAME}")
		}
	}
	return out
}

func sortedKeys[M ~map[string]V, V any](m M) []string {
	return slices.Sorted(maps.Keys(m))
}

// base is where the API is.
type base struct {
	origin string // https://api.example.com
	path   string // without a slash at the end
	query  string // that every request has
}

// base returns where an API is: where its record says, else its document.
func (d *document) base(s agent.ToolServer) (base, error) {
	text := s.URL
	if text == "" {
		text = d.server
	}
	return parseBase(text)
}

func parseBase(text string) (base, error) {
	hint := "say where the API is with its URL, such as https://api.example.com/v1"
	if text == "" || !strings.Contains(text, "://") {
		return base{}, &agent.Error{Kind: agent.Invalid, Msg: fmt.Sprintf("the OpenAPI document does not say where the API is: its server is %.80q", text), Hint: hint}
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" || u.Scheme != "http" && u.Scheme != "https" {
		return base{}, &agent.Error{Kind: agent.Invalid, Msg: fmt.Sprintf("%.80q is no URL of an API", text), Hint: hint}
	}
	return base{origin: u.Scheme + "://" + strings.ToLower(u.Host), path: strings.TrimSuffix(u.EscapedPath(), "/"), query: placeholders(u.RawQuery)}, nil
}

// methodHasBody reports whether a request of the method is sent with one.
func methodHasBody(method string) bool {
	return method != http.MethodGet && method != http.MethodHead && method != http.MethodTrace
}
