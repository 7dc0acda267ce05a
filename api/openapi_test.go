package api

import (
	"bytes"
	"context"
	"io"
	"mime"
	"net/http"
	"sort"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	"github.com/google/go-cmp/cmp"
)

// checker holds each exchange against the OpenAPI document, but for bodies that stream.
type checker struct {
	t      testing.TB
	router routers.Router
}

var parsed sync.Map // router by document, for tests only

func checked(t testing.TB, doc []byte) http.RoundTripper {
	if r, ok := parsed.Load(string(doc)); ok {
		return checker{t, r.(routers.Router)}
	}
	d, err := openapi3.NewLoader().LoadFromData(doc)
	if err != nil {
		t.Fatal(err)
	}
	r, err := legacy.NewRouter(d)
	if err != nil {
		t.Fatal(err)
	}
	parsed.Store(string(doc), r)
	return checker{t, r}
}

func isJSON(h http.Header) bool {
	m, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	return m == typeJSON || m == typeProblem
}

func (c checker) RoundTrip(req *http.Request) (*http.Response, error) {
	var in []byte
	if req.Body != nil {
		in, _ = io.ReadAll(req.Body)
		req.Body = io.NopCloser(bytes.NewReader(in))
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	route, params, err := c.router.FindRoute(req)
	if err != nil {
		preflight := req.Header.Get("Access-Control-Request-Method") != ""
		if res.StatusCode < 400 && !strings.Contains(req.URL.Path, "/http/") && !strings.Contains(req.URL.Path, "/files/") && !strings.Contains(req.URL.Path, "/models/") && !preflight {
			c.t.Errorf("%s %s is not in the document: %v", req.Method, req.URL, err)
		}
		return res, nil
	}
	ctx := context.Background()
	copied := req.Clone(ctx)
	copied.Body = io.NopCloser(bytes.NewReader(in))
	input := &openapi3filter.RequestValidationInput{
		Request: copied, PathParams: params, Route: route, Options: &openapi3filter.Options{
			AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true,
			ExcludeRequestBody: !isJSON(req.Header), ExcludeResponseBody: !isJSON(res.Header),
		},
	}
	if res.StatusCode < 400 && !strings.HasSuffix(req.URL.Path, "/http/") { // an empty {path}
		if err := openapi3filter.ValidateRequest(ctx, input); err != nil {
			c.t.Errorf("%s %s does not match the document: %v", req.Method, req.URL, err)
		}
	}
	var out []byte
	if isJSON(res.Header) {
		if out, err = io.ReadAll(res.Body); err != nil {
			return nil, err
		}
		res.Body.Close()
		res.Body = io.NopCloser(bytes.NewReader(out))
	}
	answer := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: res.StatusCode, Header: res.Header, Options: input.Options,
	}
	answer.SetBodyBytes(out)
	if err := openapi3filter.ValidateResponse(ctx, answer); err != nil {
		c.t.Errorf("%s %s: the answer does not match the document: %v\n%.500s", req.Method, req.URL, err, out)
	}
	return res, nil
}

func TestDocument(t *testing.T) {
	s := New(nil, nil, nil)
	loader := openapi3.NewLoader()
	doc, err := loader.LoadFromData(s.doc)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(context.Background()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(s.doc, New(nil, nil, nil).doc) {
		t.Error("the document differs from one start to the next")
	}
}

func TestDocumentHasEveryRoute(t *testing.T) {
	s := New(nil, nil, nil)
	doc, err := openapi3.NewLoader().LoadFromData(s.doc)
	if err != nil {
		t.Fatal(err)
	}
	var documented, routed []string
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			documented = append(documented, method+" "+fiberPath(path))
		}
	}
	app := s.fiber(life{context.Background(), context.Background()}, false)
	for _, rs := range app.Stack() {
		for _, r := range rs {
			if r.Path != "/" { // middleware
				routed = append(routed, r.Method+" "+r.Path)
			}
		}
	}
	sort.Strings(documented)
	sort.Strings(routed)
	if d := cmp.Diff(routed, documented); d != "" {
		t.Errorf("routes (-) and document (+) differ:\n%s", d)
	}
	if len(routed) < 40 {
		t.Errorf("only %d routes", len(routed))
	}
}
