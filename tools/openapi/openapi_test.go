package openapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/egress"
	"github.com/skep-dev/skep/tools"
)

const shop = `openapi: 3.0.3
info: {title: Shop, version: "2"}
servers: [{url: "https://{place}.example.com/v1", variables: {place: {default: api}}}]
components:
  securitySchemes:
    key: {type: apiKey, in: header, name: X-Key}
    bearer: {type: http, scheme: bearer}
  schemas:
    Item:
      type: object
      required: [id, name]
      properties:
        id: {type: integer, readOnly: true}
        name: {type: string, nullable: true}
        price: {type: number, minimum: 0, exclusiveMinimum: true}
        parts: {type: array, items: {$ref: "#/components/schemas/Item"}}
        note: {type: string, writeOnly: true}
paths:
  /items/{id}:
    parameters:
      - {name: id, in: path, required: true, schema: {type: string}, description: of the item}
    get:
      operationId: getItem
      summary: Show an item
      parameters:
        - {name: tag, in: query, schema: {type: array, items: {type: string}}}
        - {name: filter, in: query, style: deepObject, schema: {type: object, properties: {color: {type: string}}}}
        - {name: X-Trace, in: header, schema: {type: string}}
        - {name: X-Key, in: header, required: true, schema: {type: string}}
        - {name: crumb, in: cookie, schema: {type: string}}
      responses: {"200": {description: ok, content: {application/json: {schema: {$ref: "#/components/schemas/Item"}}}}}
    delete:
      responses: {"204": {description: gone}}
  /items:
    post:
      operationId: addItem
      parameters:
        - {name: Idempotency-Key, in: header, required: true, schema: {type: string}}
      requestBody:
        required: true
        content: {application/json: {schema: {$ref: "#/components/schemas/Item"}}}
      responses: {"201": {description: made, content: {application/json: {schema: {$ref: "#/components/schemas/Item"}}}}}
  /form:
    post:
      operationId: send/form
      requestBody: {content: {application/x-www-form-urlencoded: {schema: {type: object, properties: {a: {type: string}, b: {type: array, items: {type: integer}}}}}}}
      responses: {"200": {description: ok, content: {text/plain: {}}}}
  /upload:
    post:
      operationId: upload
      requestBody: {content: {multipart/form-data: {schema: {type: object, properties: {file: {type: string, format: binary}, meta: {type: object}}}}}}
      responses: {"200": {description: ok, content: {image/png: {}}}}
`

// api answers with what it was asked.
func api(t *testing.T) (*httptest.Server, func(s agent.ToolServer) tools.Source) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case r.URL.Path == "/v1/items/missing":
			http.Error(w, "no such item", http.StatusNotFound)
		case r.URL.Path == "/v1/items/away":
			http.Redirect(w, r, "http://localhost:1/else", http.StatusFound)
		case r.Method == http.MethodDelete:
			w.WriteHeader(http.StatusNoContent)
		case r.URL.Path == "/v1/form":
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			fmt.Fprintf(w, "%s %s", r.Header.Get("Content-Type"), body)
		case r.URL.Path == "/v1/upload":
			w.Header().Set("Content-Type", "image/png")
			w.Write([]byte("\x89PNG"))
			w.Write(body)
		default:
			w.Header().Set("Content-Type", "application/json")
			json.NewEncoder(w).Encode(map[string]any{
				"method": r.Method, "uri": r.RequestURI, "body": string(body), "trace": r.Header.Get("X-Trace"), "key": r.Header.Get("X-Key"),
				"cookie": r.Header.Get("Cookie"), "once": r.Header.Get("Idempotency-Key"),
			})
		}
	}))
	t.Cleanup(srv.Close)
	public := egress.New(nil)
	private := egress.New(&egress.Options{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	t.Cleanup(func() { public.Close(); private.Close() })
	open := Opener(Options{
		Egress: public, Private: private,
		Document: func(context.Context, agent.Digest) ([]byte, error) { return []byte(shop), nil },
		Sign: func(_ context.Context, _ agent.ToolServer, allow func(string) error, r *http.Request, _ agent.Request) (egress.Cleaner, error) {
			for _, v := range r.Header {
				if name, found := strings.CutPrefix(v[0], "{{secret:"); found {
					if err := allow(strings.TrimSuffix(name, "}}")); err != nil {
						return nil, err
					}
					v[0] = "hidden"
				}
			}
			return nil, nil
		},
	})
	return srv, func(s agent.ToolServer) tools.Source {
		t.Helper()
		s.Name, s.App, s.Kind = "shop", agent.DefaultApp, agent.OpenAPI
		src, err := open(t.Context(), s, nil)
		if err != nil {
			t.Fatal(err)
		}
		return src
	}
}

func TestOffers(t *testing.T) {
	_, open := api(t)
	list, err := open(agent.ToolServer{Header: map[string]string{"x-key": "${secret:KEY}"}}).Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, o := range list {
		got[o.Method] = fmt.Sprint(*o.Hints.ReadOnly, o.Hints.Destructive != nil, *o.Hints.Idempotent)
		if !json.Valid(o.Input) {
			t.Errorf("%s: %s", o.Method, o.Input)
		}
	}
	want := map[string]string{
		"getItem": "true false true", "delete_items_id": "false true true", "addItem": "false false false", "send/form": "false false false", "upload": "false false false",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for _, o := range list {
		switch o.Method {
		case "getItem":
			want := `{"additionalProperties":false,"properties":{"crumb":{"type":"string"},"filter":{"properties":{"color":{"type":"string"}},"type":"object"},"id":{"description":"of the item","type":"string"},"tag":{"items":{"type":"string"},"type":"array"}},"required":["id"],"type":"object"}`
			got := strings.ReplaceAll(string(o.Input), `,"X-Trace":{"type":"string"}`, "")
			got = strings.ReplaceAll(got, `"X-Trace":{"type":"string"},`, "")
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
			want = `{"$defs":{"Item":{"properties":{"id":{"type":"integer"},"name":{"type":["string","null"]},"parts":{"items":{"$ref":"#/$defs/Item"},"type":"array"},"price":{"exclusiveMinimum":0,"type":"number"}},"required":["id","name"],"type":"object"}},"$ref":"#/$defs/Item"}`
			if d := cmp.Diff(want, string(o.Output)); d != "" {
				t.Error(d)
			}
			if !strings.HasSuffix(o.Description, "GET /items/{id}") {
				t.Error(o.Description)
			}
		case "addItem":
			if s := string(o.Input); !strings.Contains(s, `"required":["body"]`) || !strings.Contains(s, `"required":["name"]`) || !strings.Contains(s, `"note"`) {
				t.Error(s)
			}
		}
	}
}

func TestCalls(t *testing.T) {
	srv, open := api(t)
	src := open(agent.ToolServer{URL: srv.URL + "/v1?k=1", Private: true, Header: map[string]string{"X-Key": "${secret:KEY}"}})
	for _, c := range []struct{ method, args, want string }{
		{"getItem", `{"id":"a/b c","tag":["x","y&z"],"filter":{"color":"red"},"X-Trace":"t1","crumb":"c"}`,
			`{"body":"","cookie":"crumb=c","key":"hidden","method":"GET","once":"","trace":"t1","uri":"/v1/items/a%2Fb%20c?k=1&tag=x&tag=y%26z&filter[color]=red"}`},
		{"addItem", `{"body":{"name":"tea","price":1.50}}`,
			`{"body":"{\"name\":\"tea\",\"price\":1.50}","cookie":"","key":"hidden","method":"POST","once":"call-7","trace":"","uri":"/v1/items?k=1"}`},
		{"delete_items_id", `{"id":"7"}`, `null`},
		{"send/form", `{"body":{"a":"x y","b":[1,2]}}`, `"application/x-www-form-urlencoded a=x%20y\u0026b=1\u0026b=2"`},
		{"upload", `{"body":{"file":"aGk=","meta":{"n":1}}}`, `{"$blob":0}`},

		{"getItem", `{"id":"missing"}`, `failed: GET /items/{id} answered 404 Not Found: no such item`},
		{"getItem", `{"id":"away"}`, `denied: the API at ` + srv.URL + ` leads on to http://localhost:1, where it is not followed`},
		{"getItem", `{"id":".."}`, `invalid: id is "..", which is no part of a path`},
		{"getItem", `{"id":""}`, `invalid: id is "", which is no part of a path`},
		{"getItem", `{}`, `invalid: id is missing`},
		{"getItem", `{"id":"7","more":1}`, `invalid: getItem has no argument "more"`},
		{"getItem", `{"id":"7","X-Trace":"a\r\nB: c"}`, `invalid: X-Trace has a line break or a control character, which no header can hold`},
		{"getItem", `{"id":"7","X-Trace":"{{secret:OTHER}}"}`, `invalid: the arguments name a secret; only the record of the server can: its headers and its URL`},
		{"addItem", `{}`, `invalid: body is missing`},
		{"nothing", `{}`, `not_found: the API has no operation "nothing"`},
	} {
		res, err := src.Call(t.Context(), c.method, json.RawMessage(c.args), &tools.CallOptions{Key: "call-7"})
		got := string(res.Value)
		if err != nil {
			got = agent.KindOf(err).String() + ": " + agent.AsError(err).Msg
		}
		if d := cmp.Diff(c.want, strings.NewReplacer("%5B", "[", "%5D", "]", `0c?k=1\u0026tag=x\u0026tag=y%26z\u0026`, "0c?k=1&tag=x&tag=y%26z&").Replace(got)); d != "" {
			t.Errorf("%s %s: %s", c.method, c.args, d)
		}
		if c.method == "upload" && (res.Blobs[0].Type != "image/png" || !bytes.Contains(res.Blobs[0].Body, []byte("filename=\"file\"\r\nContent-Type: application/octet-stream\r\n\r\nhi\r\n"))) {
			t.Errorf("%q", res.Blobs)
		}
	}
}

// TestUnsent tells requests that certainly have not left from those that may have.
func TestUnsent(t *testing.T) {
	srv, open := api(t)
	there := open(agent.ToolServer{URL: srv.URL + "/v1", Private: true, Header: map[string]string{"X-Key": "${secret:KEY}"}})
	gone := httptest.NewServer(nil)
	gone.Close()
	for _, c := range []struct {
		src    tools.Source
		id     string
		unsent bool
	}{
		{there, "missing", false}, {there, "away", false}, {there, "..", true},
		{open(agent.ToolServer{URL: gone.URL, Private: true}), "7", true}, // nobody listens there
		{open(agent.ToolServer{URL: srv.URL + "/v1"}), "7", true},         // an address that is refused
	} {
		_, err := c.src.Call(t.Context(), "getItem", fmt.Appendf(nil, `{"id":%q,"X-Key":"k"}`, c.id), nil)
		if err == nil || tools.Unsent(err) != c.unsent {
			t.Errorf("%s: %v, unsent %t", c.id, err, tools.Unsent(err))
		}
	}
}

// TestPrivate wants an API on this machine refused unless its record allows it.
func TestPrivate(t *testing.T) {
	srv, open := api(t)
	_, err := open(agent.ToolServer{URL: srv.URL + "/v1"}).Call(t.Context(), "delete_items_id", json.RawMessage(`{"id":"7"}`), nil)
	if agent.KindOf(err) != agent.Denied {
		t.Error(err)
	}
}

// TestStyles has the examples of OpenAPI 3.1, "Style Examples".
func TestStyles(t *testing.T) {
	array := []any{"blue", "black", "brown"}
	object := map[string]any{"R": json.Number("100"), "G": json.Number("200"), "B": json.Number("150")}
	for _, c := range []struct {
		in, style string
		explode   bool
		v         any
		want      string
	}{
		{"path", "matrix", false, "blue", ";color=blue"},
		{"path", "matrix", false, array, ";color=blue,black,brown"},
		{"path", "matrix", true, array, ";color=blue;color=black;color=brown"},
		{"path", "matrix", false, object, ";color=B,150,G,200,R,100"},
		{"path", "matrix", true, object, ";B=150;G=200;R=100"},
		{"path", "label", false, "blue", ".blue"},
		{"path", "label", false, array, ".blue,black,brown"},
		{"path", "label", true, array, ".blue.black.brown"},
		{"path", "label", true, object, ".B=150.G=200.R=100"},
		{"path", "simple", false, array, "blue,black,brown"},
		{"path", "simple", false, object, "B,150,G,200,R,100"},
		{"path", "simple", true, object, "B=150,G=200,R=100"},
		{"query", "form", false, "blue", "color=blue"},
		{"query", "form", false, array, "color=blue,black,brown"},
		{"query", "form", true, array, "color=blue&color=black&color=brown"},
		{"query", "form", false, object, "color=B,150,G,200,R,100"},
		{"query", "form", true, object, "B=150&G=200&R=100"},
		{"query", "form", true, "", "color="},
		{"query", "spaceDelimited", false, array, "color=blue%20black%20brown"},
		{"query", "pipeDelimited", false, array, "color=blue%7Cblack%7Cbrown"},
		{"query", "deepObject", true, object, "color[B]=150&color[G]=200&color[R]=100"},
	} {
		p := param{arg: "color", name: "color", in: c.in, style: c.style, explode: c.explode}
		got := strings.Join(p.inQuery(c.v), "&")
		if c.in == "path" {
			got, _ = p.inPath(c.v)
		}
		if got != c.want {
			t.Errorf("%s %s explode=%t %v: %s, want %s", c.in, c.style, c.explode, c.v, got, c.want)
		}
	}
}

func TestMalformed(t *testing.T) {
	for _, c := range []struct{ doc, want string }{
		{"", "the OpenAPI document is empty"},
		{"<html>", "a web page"},
		{"swagger: '2.0'\npaths: {}", "Swagger 2.0"},
		{"openapi: 4.0.0\ninfo: {title: a, version: b}\npaths: {}", "OpenAPI \"4.0.0\""},
		{"openapi: 3.0.0\ninfo: {title: a, version: b}\npaths: {}", "has no operations"},
		{"openapi: 3.0.0\ninfo: {title: a}\npaths: {/a: {get: {responses: {}}}}", "version"},
		{"openapi: 3.0.0\ninfo: {title: a, version: b}\npaths: {/a: {get: {parameters: [{name: x, in: nowhere}], responses: {}}}}", "nowhere"},
		{"openapi: 3.0.0\ninfo: {title: a, version: b}\npaths: {/a: {$ref: 'file:///etc/passwd'}}", "/etc/passwd"},
		{"openapi: 3.0.0\n  info: [", "line 2"},
	} {
		_, err := Check([]byte(c.doc))
		if agent.KindOf(err) != agent.Invalid || !strings.Contains(agent.AsError(err).Msg, c.want) {
			t.Errorf("%q: %v", c.doc, err)
		}
	}
	sum, err := Check([]byte(shop))
	want := Summary{Title: "Shop", Version: "2", URL: "https://api.example.com/v1", Tools: 5, Auth: []string{"bearer: the header Authorization: Bearer ${secret:NAME}", "key: the header X-Key: ${secret:NAME}"}}
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, sum); d != "" {
		t.Error(d)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(shop))
	f.Add([]byte(`{"openapi":"3.1.0","info":{"title":"a","version":"b"},"paths":{"/a":{"get":{"operationId":"a","responses":{"200":{"description":"x","content":{"application/json":{"schema":{"$ref":"#/components/schemas/A"}}}}}}}},"components":{"schemas":{"A":{"type":["object","null"],"properties":{"a":{"$ref":"#/components/schemas/A"}}}}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		doc, err := parse(b)
		if err != nil {
			if agent.KindOf(err) != agent.Invalid {
				t.Fatal(err)
			}
			return
		}
		for _, op := range doc.ops {
			if o := op.offer(nil); !json.Valid(o.Input) || op.name == "" {
				t.Fatalf("%q: %s", op.name, o.Input)
			}
		}
	})
}
