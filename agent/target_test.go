package agent

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func parse(t testing.TB, s string) Target {
	t.Helper()
	out, err := ParseTarget(s)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestParseTarget(t *testing.T) {
	for _, tt := range []struct{ in, text, words string }{
		{in: "https://api.example.com", words: "any request to https://api.example.com"},
		{in: "http://localhost:8080", words: "any request to http://localhost:8080"},
		{in: "https://example.com:443/a", text: "https://example.com/a", words: "any request to https://example.com, path /a"},
		{in: "http://example.com:80", text: "http://example.com"},
		{in: "https://example.com:80"},
		{in: "https://example.com:*"},
		{in: "POST,GET,POST https://example.com", text: "GET,POST https://example.com", words: "GET and POST requests to https://example.com"},
		{in: "A,B,C https://example.com", words: "A, B and C requests to https://example.com"},
		{in: "https://*.example.com/v1/**", words: "any request to every host below example.com over https, path /v1/**"},
		{in: "https://*", words: "any request to every public host over https"},
		{in: "http://*:*", words: "any request to every public host over http, port any"},
		{in: "https://*.example.com:8443", words: "any request to every host below example.com over https, port 8443"},
		{in: "https://127.0.0.1:8443/x"},
		{in: "https://[2001:db8::1]:8443/x", words: "any request to https://[2001:db8::1]:8443, path /x"},
		{in: "https://[::1]"},
		{in: "https://xn--bcher-kva.example/b%C3%BCcher"},
		{in: "https://a_b.example.com/x_y~z!$&'()+,;=:@-."},
		{in: "https://example.com/repos/*/issues/**"},
		{in: "https://example.com/a*b/c"},
		{in: "https://example.com/.../a"},
	} {
		got, err := ParseTarget(tt.in)
		if err != nil {
			t.Errorf("%s: %v", tt.in, err)
			continue
		}
		if tt.text == "" {
			tt.text = tt.in
		}
		if got.String() != tt.text {
			t.Errorf("%s: text %s, want %s", tt.in, got, tt.text)
		}
		if tt.words != "" && got.Words() != tt.words {
			t.Errorf("%s: words %q, want %q", tt.in, got.Words(), tt.words)
		}
	}
}

func TestParseTargetRefuses(t *testing.T) {
	long := strings.Repeat("a", 64)
	for _, tt := range []struct{ in, msg, hint string }{
		{"", "has no scheme", "begin it with https://"},
		{"api.example.com", "has no scheme", "begin it with https://"},
		{"https://api.example.com?key=1", "a query or a fragment is not part", "any query is allowed"},
		{"https://example.com/a?b=c", "a query or a fragment is not part", ""},
		{"https://example.com/a#b", "a query or a fragment is not part", ""},
		{"https://user@example.com", "holds a user or a password", "a secret of kind basic"},
		{"https://user:pass@example.com/v1", "holds a user or a password", "a secret of kind basic"},
		{"HTTPS://example.com", "has no scheme", ""},
		{"ftp://example.com", "has no scheme", ""},
		{"get https://example.com", `method "get" is not valid`, "upper case"},
		{"GET, POST https://example.com", `method "" is not valid`, "commas between"},
		{" https://example.com", `method "" is not valid`, ""},
		{"GET  https://example.com", "has no scheme", ""},
		{"https://", `host "" is not valid`, "*.example.com"},
		{"https://Example.com", `host "Example.com" is not valid`, "lower case"},
		{"https://bücher.example", "is not valid", "xn--"},
		{"https://example.com:", "is not valid", ""},
		{"https://example.com:0", "is not valid", ""},
		{"https://example.com:65536", "is not valid", ""},
		{"https://example.com:080", "is not valid", ""},
		{"https://example.com:8*", "is not valid", ""},
		{"https://example.com.", "is not valid", ""},
		{"https://-example.com", "is not valid", ""},
		{"https://a..b", "is not valid", ""},
		{"https://" + long + ".com", "is not valid", ""},
		{"https://" + strings.Repeat("a.", 127) + "a", "is not valid", ""},
		{"https://127.1", "is not valid", ""},
		{"https://0x7f.0.0.1", "is not valid", ""},
		{"https://example.0x7f", "is not valid", ""},
		{"https://2130706433", "is not valid", ""},
		{"https://0177.0.0.1", "is not valid", ""},
		{"https://[::ffff:127.0.0.1]", "is not valid", ""},
		{"https://[0:0:0:0:0:0:0:1]", "is not valid", ""},
		{"https://[fe80::1%25eth0]", "is not valid", ""},
		{"https://[127.0.0.1]", "is not valid", ""},
		{"https://[::1", "is not valid", ""},
		{"https://[::1]x", "is not valid", ""},
		{"https://::1", "is not valid", ""},
		{"https://*example.com", "is not valid", ""},
		{"https://a.*.example.com", "is not valid", ""},
		{"https://**", "is not valid", ""},
		{"https://*.com", "whole top-level domain", `write "*"`},
		{"https://example.com/", "one page only", "leave the path out"},
		{"https://example.com/a b", `method`, ""},
		{"https://example.com/ä", "path", ""},
		{`https://example.com/a\b`, "path", ""},
		{"https://example.com/../a", "path", ""},
		{"https://example.com/a/.", "path", ""},
		{"https://example.com/a/%2E%2e/b", "path", ""},
		{"https://example.com/a/.%2e", "path", ""},
		{"https://example.com/**/a", "path", `"**" is for the end only`},
		{"https://example.com/a**", "path", ""},
		{"https://example.com/a/**/**", "path", ""},
		{"https://example.com/" + strings.Repeat("a", maxTarget), "longer than 2048 bytes", ""},
	} {
		_, err := ParseTarget(tt.in)
		e := AsError(err)
		if e == nil || e.Kind != Invalid || !strings.Contains(e.Msg, tt.msg) || !strings.Contains(e.Hint, tt.hint) {
			t.Errorf("%.60q: %+v, want %q and the hint %q", tt.in, e, tt.msg, tt.hint)
		}
	}
	edge := "https://example.com/"
	if _, err := ParseTarget(edge + strings.Repeat("a", maxTarget-len(edge))); err != nil {
		t.Errorf("at the limit: %v", err)
	}
}

func TestHas(t *testing.T) {
	get := func(host, path string) Request {
		r := Request{Method: "GET", Scheme: "https", Host: host, Port: "443", Path: path}
		if h, port, ok := strings.Cut(host, ":"); ok {
			r.Host, r.Port = h, port
		}
		return r
	}
	for _, tt := range []struct {
		target string
		in     Request
		want   bool
	}{
		{"https://example.com", get("example.com", "/"), true},
		{"https://example.com", get("example.com", "/any/thing"), true},
		{"https://example.com", get("example.com:8443", "/"), false},
		{"https://example.com:*", get("example.com:8443", "/"), true},
		{"http://example.com", get("example.com", "/"), false},
		{"https://example.com", get("www.example.com", "/"), false},
		{"https://example.com", get("example.com.evil.org", "/"), false},
		{"https://*.example.com", get("www.example.com", "/"), true},
		{"https://*.example.com", get("a.b.example.com", "/"), true},
		{"https://*.example.com", get("example.com", "/"), false},
		{"https://*.example.com", get("evilexample.com", "/"), false},
		{"https://*.example.com", get(".example.com", "/"), false},
		{"https://*", get("anything.org", "/x"), true},
		{"POST https://example.com", get("example.com", "/"), false},
		{"GET,POST https://example.com", get("example.com", "/"), true},
		{"https://example.com/a", get("example.com", "/a"), true},
		{"https://example.com/a", get("example.com", "/a/"), false},
		{"https://example.com/a", get("example.com", "/a/b"), false},
		{"https://example.com/a", get("example.com", "/A"), false},
		{"https://example.com/a", get("example.com", "/"), false},
		{"https://example.com/a/*", get("example.com", "/a/b"), true},
		{"https://example.com/a/*", get("example.com", "/a/"), true},
		{"https://example.com/a/*", get("example.com", "/a/b/c"), false},
		{"https://example.com/a/*", get("example.com", "/a/b%2Fc"), false},
		{"https://example.com/a/*", get("example.com", "/a/b%5cc"), false},
		{"https://example.com/a/*", get("example.com", `/a/b\c`), false},
		{"https://example.com/a/**", get("example.com", "/a/b%2Fc"), false},
		{"https://example.com", get("example.com", "/a/b%2Fc"), true},
		{"https://example.com/a/**", get("example.com", "/a/b/c"), true},
		{"https://example.com/a/**", get("example.com", "/a/"), true},
		{"https://example.com/a/**", get("example.com", "/a"), false},
		{"https://example.com/a/**", get("example.com", "/ab/c"), false},
		{"https://example.com/repos/*/issues/**", get("example.com", "/repos/x/issues/1/comments"), true},
		{"https://example.com/repos/*/issues/**", get("example.com", "/repos/x/y/issues/1"), false},
		{"https://example.com/v*.json", get("example.com", "/v12.json"), true},
		{"https://example.com/v*.json", get("example.com", "/v.json"), true},
		{"https://example.com/v*.json", get("example.com", "/v1/x.json"), false},
		{"https://example.com/a*a", get("example.com", "/a"), false},
		{"https://example.com/a*b*c", get("example.com", "/a-c-b-c"), true},
		{"https://example.com/a*b*c", get("example.com", "/a-c-b"), false},
	} {
		if got := parse(t, tt.target).Has(tt.in); got != tt.want {
			t.Errorf("%s has %s %s: %v", tt.target, tt.in.Method, tt.in.URL(), got)
		}
	}
}

func TestRequestURL(t *testing.T) {
	for want, r := range map[string]Request{
		"https://example.com/x":       {Scheme: "https", Host: "example.com", Port: "443", Path: "/x"},
		"http://example.com:443/":     {Scheme: "http", Host: "example.com", Port: "443", Path: "/"},
		"https://[2001:db8::1]:8443/": {Scheme: "https", Host: "2001:db8::1", Port: "8443", Path: "/"},
	} {
		if got := r.URL(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// pick makes targets and requests of a few words, so that they often have to do with each other.
type pick struct{ *rand.Rand }

func (p pick) of(words ...string) string { return words[p.IntN(len(words))] }

func (p pick) target() string {
	s := p.of("", "", "GET ", "GET,POST ", "POST ") + p.of("https", "http") + "://" +
		p.of("*", "*.a.b", "a.b", "x.a.b", "*.x.a.b", "[::1]") + p.of("", "", "", ":*", ":80")
	for range p.IntN(3) {
		s += "/" + p.of("a", "b", "*", "a*", "*b", "a*b", "")
	}
	if p.IntN(3) == 0 {
		s += "/**"
	}
	return s
}

func (p pick) request() Request {
	r := Request{
		Method: p.of("GET", "POST"), Scheme: p.of("https", "http"), Port: p.of("80", "443"), Host: p.of("a.b", "x.a.b", "y.x.a.b", "d", "::1"),
	}
	for range 1 + p.IntN(3) {
		r.Path += "/" + p.of("a", "b", "ab", "ba", "", "a%2Fb")
	}
	return r
}

// Whatever a target covers it has: a change within what is covered only narrows.
func TestCoversImpliesHas(t *testing.T) {
	p := pick{rand.New(rand.NewPCG(1, 2))}
	covered, shared := 0, 0
	for range 100_000 {
		a, errA := ParseTarget(p.target())
		b, errB := ParseTarget(p.target())
		if errA != nil || errB != nil || !a.Covers(b) {
			continue
		}
		covered++
		for range 20 {
			r := p.request()
			if !b.Has(r) {
				continue
			}
			if shared++; !a.Has(r) {
				t.Fatalf("%s covers %s, which has %s %s", a, b, r.Method, r.URL())
			}
		}
	}
	if covered < 1000 || shared < 500 {
		t.Errorf("only %d covered and %d requests within: the words are too many", covered, shared)
	}
}

func TestCovers(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"https://example.com", "https://example.com/a", true},
		{"https://example.com/a", "https://example.com", false},
		{"https://example.com", "GET https://example.com", true},
		{"GET https://example.com", "https://example.com", false},
		{"GET,POST https://example.com", "POST https://example.com", true},
		{"GET https://example.com", "GET,POST https://example.com", false},
		{"https://*", "https://*.example.com", true},
		{"https://*.example.com", "https://*", false},
		{"https://*.example.com", "https://*.a.example.com", true},
		{"https://*.example.com", "https://example.com", false},
		{"https://*.example.com", "https://*.example.com", true},
		{"https://example.com:*", "https://example.com:9", true},
		{"https://example.com", "http://example.com", false},
		{"https://example.com/a/**", "https://example.com/a/b/*", true},
		{"https://example.com/a/**", "https://example.com/a", false},
		{"https://example.com/a/*", "https://example.com/a/b", true},
		{"https://example.com/a/*", "https://example.com/a/**", false},
		{"https://example.com/a/**", "https://example.com/a/**", true},
	} {
		if got := parse(t, tt.a).Covers(parse(t, tt.b)); got != tt.want {
			t.Errorf("%s covers %s: %v", tt.a, tt.b, got)
		}
	}
}

// FuzzParseTarget: what is read is written in one form, which reads as the same.
func FuzzParseTarget(f *testing.F) {
	for _, s := range []string{"https://a.b", "GET,POST http://*.a.b:*/x/*/**", "https://[::1]:8/a", "https://*", "X https://a:443/%41"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseTarget(s)
		if err != nil {
			if e := AsError(err); e.Kind != Invalid || e.Msg == "" {
				t.Fatalf("%q: %v", s, err)
			}
			return
		}
		text := a.String()
		b, err := ParseTarget(text)
		if err != nil || b.String() != text {
			t.Fatalf("%q is %q, which is %q: %v", s, text, b, err)
		}
		if !a.Covers(b) || !b.Covers(a) {
			t.Fatalf("%q does not cover itself", text)
		}
		if a.Words() == "" {
			t.Fatalf("%q has no words", text)
		}
	})
}
