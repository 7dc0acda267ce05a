package inject

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/vault/scrub"
)

// FuzzPlaceholder holds the parser to what it says: the parts are the text, and names are names.
func FuzzPlaceholder(f *testing.F) {
	for _, s := range []string{"", "{{secret:a}}", "x{{secret:a}}y{{secret:b-c.d}}", "{{secret:", "{{{secret:a}}}", "{{secret:{{secret:a}}}}", "}}{{secret:a}}{{"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		parts, err := parse(s)
		if err != nil {
			if agent.KindOf(err) != agent.Invalid || parts != nil || !strings.Contains(s, opening) {
				t.Fatalf("%v, %v of %q", parts, err, s)
			}
			return
		}
		var b strings.Builder
		for _, p := range parts {
			if (p.text == "") == (p.secret == "") || strings.Contains(p.text, opening) {
				t.Fatalf("part %+v of %q", p, s)
			}
			if b.WriteString(p.text); p.secret != "" {
				if err := agent.CheckName("secret", p.secret); err != nil {
					t.Fatal(err)
				}
				b.WriteString(opening + p.secret + closing)
			}
		}
		if (parts == nil) == strings.Contains(s, opening) || parts != nil && b.String() != s {
			t.Fatalf("%+v of %q", parts, s)
		}
	})
}

// FuzzJSON replaces placeholders in JSON, and holds what comes out against the same done to the decoded value.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{"a":"{{secret:key}}"}`, `[1,{"b":["\u007b{secret:key}}",null]},true]`, `{"a":{},"b":[],"c":"x{{secret:key}}y", "d" : -1.5e3 }`, `"{{secret:key}}"`, `{"a":1,"a":"{{secret:key}}"}`} {
		f.Add(s, canary)
	}
	near := New(nil, nil).near
	f.Fuzz(func(t *testing.T, text, value string) {
		value = strings.ToValidUTF8(value, "?")
		fd := finder{near: near, r: &http.Request{}}
		doc, err := fd.json([]byte(text))
		if err != nil {
			return
		}
		secrets := map[string]*opened{}
		for _, s := range fd.slots {
			for _, name := range s.names() {
				secrets[name] = &opened{text: value}
			}
		}
		for _, s := range fd.slots {
			if err := s.fill(secrets); err != nil {
				t.Fatal(err)
			}
		}
		out := doc.bytes()
		if len(fd.slots) == 0 {
			if string(out) != text {
				t.Fatalf("%q became %q", text, out)
			}
			return
		}
		var before, after any
		if err := json.Unmarshal([]byte(text), &before); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(out, &after); err != nil {
			t.Fatalf("%v: %q became %q", err, text, out)
		}
		if diff := cmp.Diff(replaced(before, value), after); diff != "" {
			t.Fatalf("%q became %q: %s", text, out, diff)
		}
	})
}

// replaced is v with each placeholder in a string replaced by value.
func replaced(v any, value string) any {
	switch v := v.(type) {
	case string:
		parts, _ := parse(v)
		if parts == nil {
			return v
		}
		var b strings.Builder
		for _, p := range parts {
			if b.WriteString(p.text); p.secret != "" {
				b.WriteString(value)
			}
		}
		return b.String()
	case []any:
		for i := range v {
			v[i] = replaced(v[i], value)
		}
	case map[string]any:
		for k := range v {
			v[k] = replaced(v[k], value)
		}
	}
	return v
}

// FuzzReferences makes requests of anything: the secret is only ever where it is bound to, and no placeholder is sent.
func FuzzReferences(f *testing.F) {
	f.Add("/v1", "a=1&key={{secret:key}}", "X-Key", "{{secret:key}}", jsonType, `{"key":"{{secret:key}}"}`)
	f.Add("/v1/%7B%7Bsecret:key}}", "%6bey=%7B%7Bsecret:key}}", "{{secret:key}}", "x", formType, `key={{secret:key}}&b`)
	f.Add("/", "key=x", "Authorization", "Basic e3tzZWNyZXQ6a2V5fX0=", "text/plain", `{{secret:key}}`)
	v := vaultMap{}
	v.put(f, "key", agent.SecretValue, canary, "https://api.example.com header:x-key query:key body:key body:/key")
	i := New(v, nil)
	leak := scrub.New([]byte(canary))
	f.Fuzz(func(t *testing.T, path, query, name, value, kind, body string) {
		u := &url.URL{Scheme: "https", Host: "api.example.com", Path: "/" + path, RawQuery: query}
		r, err := http.NewRequest("POST", u.String(), strings.NewReader(body))
		if err != nil || leak.In([]byte(strings.Join([]string{path, query, name, value, kind, body}, " "))) {
			t.Skip()
		}
		r.Header = http.Header{name: {value}}
		r.Header["Content-Type"] = append(r.Header["Content-Type"], kind)
		target := agent.Request{Method: "POST", Scheme: "https", Host: "api.example.com", Port: "443", Path: r.URL.EscapedPath()}
		uses := new(user)
		s, err := i.Sign(context.Background(), uses.use(), r, target)
		if err != nil {
			if k := agent.KindOf(err); k != agent.Invalid && k != agent.Denied || leak.In([]byte(err.Error())) {
				t.Fatal(err)
			}
			return
		}
		if (s == nil) != (len(uses.audits) == 0) {
			t.Fatalf("audits %v, Scrubber %v", uses.audits, s)
		}
		at := map[string]bool{}
		for _, use := range uses.audits {
			at[use.Place] = true
		}
		check := func(text, place string) {
			t.Helper()
			if leak.In([]byte(text)) && !at[place] {
				t.Fatalf("the value is at %s: %q", place, text)
			}
			if i.near.In([]byte(text)) {
				t.Fatalf("a placeholder is sent at %s: %q", place, text)
			}
		}
		check(r.URL.EscapedPath(), "the path")
		for name, values := range r.Header {
			check(name, "a name")
			for _, v := range values {
				check(v, "header:"+strings.ToLower(name))
			}
		}
		for raw := range strings.SplitSeq(r.URL.RawQuery, "&") {
			key, _, _ := strings.Cut(raw, "=")
			key, _ = url.QueryUnescape(key)
			check(raw, "query:"+key)
		}
		sent, err := dump(r)
		if err != nil {
			t.Fatal(err)
		}
		if leak.In([]byte(sent)) && len(at) == 0 {
			t.Fatalf("the value is in %q", sent)
		}
	})
}
