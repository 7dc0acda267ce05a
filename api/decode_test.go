package api

import (
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
)

func readAll(t testing.TB, r io.Reader) []byte {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// fixed is a source of given values.
type fixed struct {
	p, q, h map[string]string
	m, u    string
}

func (f fixed) path(name string) string    { return f.p[name] }
func (f fixed) query(name string) string   { return f.q[name] }
func (f fixed) header(name string) string  { return f.h[name] }
func (f fixed) headers() (out [][2]string) { return out }
func (f fixed) method() string             { return f.m }
func (f fixed) url() string                { return f.u }
func (f fixed) body() io.Reader            { return strings.NewReader("") }

type inner struct {
	Limit int `query:"limit"`
}

type sample struct {
	inner
	Name   string          `path:"name"`
	Status agent.RunStatus `query:"status"`
	Follow bool            `query:"follow" default:"true"`
	After  int64           `query:"after"`
	Wait   time.Duration   `header:"Wait"`
	Token  agent.TokenID   `meta:"token"`
	Method string          `meta:"method"`
	Once   store.Once      `once:"-"`
	Body   newMessage      `body:"json"`
}

func TestDecode(t *testing.T) {
	p := planOf(reflect.TypeFor[sample]())
	src := fixed{
		p: map[string]string{"name": "a%2Fb"}, q: map[string]string{"limit": "7", "status": "running", "after": "9"},
		h: map[string]string{"Wait": "1.5s", "Idempotency-Key": "k"}, m: "POST", u: "/x",
	}
	var got sample
	if err := p.decode(reflect.ValueOf(&got).Elem(), src, "T", []byte(`{"content":null}`)); err != nil {
		t.Fatal(err)
	}
	want := sample{
		inner: inner{7}, Name: "a/b", Status: agent.Running, Follow: true, After: 9, Wait: 1500 * time.Millisecond, Token: "T",
		Method: "POST", Body: newMessage{Content: json.RawMessage("null")},
	}
	want.Once = store.Once{Scope: "T", Key: "k", Request: got.Once.Request}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(sample{}, inner{})); d != "" {
		t.Error(d)
	}
	if got.Once.Request.Hex() == "" {
		t.Errorf("request digest = %q", got.Once.Request)
	}
	first := got.Once
	for _, change := range []func(*fixed){func(f *fixed) { f.m = "PUT" }, func(f *fixed) { f.u = "/y" }} {
		other := src
		change(&other)
		if err := p.decode(reflect.ValueOf(&got).Elem(), other, "T", []byte(`{"content":null}`)); err != nil || got.Once == first {
			t.Errorf("%v %v", got.Once, err)
		}
	}
}

func TestNegotiate(t *testing.T) {
	for _, tt := range []struct{ accept, want string }{
		{"", typeJSON}, {"*/*", typeJSON}, {"text/event-stream", typeSSE}, {"text/*", typeSSE},
		{"application/json;q=0.5, application/x-ndjson", typeNDJSON}, {"application/*", typeJSON},
		{"text/html, */*;q=0.1", typeJSON}, {"application/json;q=0, */*", typeSSE}, {"TEXT/Event-Stream", typeSSE},
		{"text/html", ""}, {"*/*;q=0", ""}, {";;;", ""}, {"application/json;q=2", ""},
	} {
		if got, err := negotiate(tt.accept, typeJSON, typeSSE, typeNDJSON); got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%q = %q %v, want %q", tt.accept, got, err, tt.want)
		}
	}
}

// FuzzDecode feeds a request decoder with anything. It must answer with a value of valid UTF-8, or with an Invalid error
// that can be shown.
func FuzzDecode(f *testing.F) {
	f.Add("a%2Fb", "7", "running", "1s", "key", []byte(`{"role":"user","content":{"a":[1,2]}}`))
	f.Add("%zz", "-1", "lost", "soon", strings.Repeat("k", 256), []byte(`{"role":1}`))
	f.Add("\xff", "9999999999999999999999", "unknown", "-1s", "\xff", []byte("{\"content\":\"\xff\"}"))
	f.Add("", "", "", "", "", []byte(`{"content":1}{}`))
	p := planOf(reflect.TypeFor[sample]())
	f.Fuzz(func(t *testing.T, name, limit, status, wait, key string, body []byte) {
		src := fixed{
			p: map[string]string{"name": name}, q: map[string]string{"limit": limit, "status": status, "after": limit, "follow": status},
			h: map[string]string{"Wait": wait, "Idempotency-Key": key},
		}
		var v sample
		if err := p.decode(reflect.ValueOf(&v).Elem(), src, "T", body); err != nil {
			var e *agent.Error
			if !errors.As(err, &e) || e.Kind != agent.Invalid || e.Msg == "" {
				t.Fatalf("%#v", err)
			}
			if b := problemOf(err, "id").encode(); !utf8.Valid(b) {
				t.Fatalf("%q", b)
			}
			return
		}
		if !utf8.ValidString(v.Name) || !utf8.ValidString(v.Body.Role) || v.Limit < 0 || v.After < 0 || v.Wait < 0 || v.Body.Content == nil {
			t.Fatalf("%+v", v)
		}
	})
}

func FuzzAccept(f *testing.F) {
	f.Add("text/event-stream;q=0.5, */*;q=0.1")
	f.Fuzz(func(t *testing.T, accept string) {
		if got, err := negotiate(accept, typeJSON, typeSSE); (got == "") != (err != nil) {
			t.Fatalf("%q %v", got, err)
		}
	})
}
