package egress

import (
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
)

var discard = log.New(io.Discard, "", 0)

// checkAgree wants everybody who reads a URL that is sent to read what was judged.
func checkAgree(t *testing.T, sent string, r agent.Request) {
	t.Helper()
	u, err := url.Parse(sent)
	if err != nil {
		t.Fatalf("%q: %v", sent, err)
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	if u.Scheme != r.Scheme || u.Hostname() != r.Host || port != r.Port || u.EscapedPath() != r.Path || u.User != nil || u.Fragment != "" || u.Opaque != "" {
		t.Errorf("%q is read as %#v, and judged as %+v", sent, u, r)
	}
	if target, _, _ := strings.Cut(u.RequestURI(), "?"); target != r.Path {
		t.Errorf("%q is sent as %q, and judged as %q", sent, u.RequestURI(), r.Path)
	}
	target, err := agent.ParseTarget(r.Origin())
	if err != nil {
		t.Fatalf("no grant can name the origin of %q: %v", sent, err)
	}
	if !target.Has(r) {
		t.Errorf("the grant %v has not %+v", target, r)
	}
	for s := range strings.SplitSeq(r.Path, "/") {
		if plain, err := url.PathUnescape(s); err != nil || plain == ".." || plain == "." {
			t.Errorf("%q has the segment %q", sent, s)
		}
	}
	if ip := net.ParseIP(u.Hostname()); ip != nil && r.Host != u.Hostname() {
		t.Errorf("%q goes to %v", sent, ip)
	}
}

func FuzzParse(f *testing.F) {
	for _, x := range forms {
		f.Add("GET", x.url)
	}
	for _, x := range badForms {
		f.Add("POST", x.url)
	}
	f.Fuzz(func(t *testing.T, method, raw string) {
		u, r, err := Parse(method, raw)
		if err != nil {
			mustBeOurs(t, err)
			return
		}
		checkAgree(t, u.String(), r)
		again, r2, err := Parse(r.Method, u.String())
		if err != nil || again.String() != u.String() || r2 != r {
			t.Errorf("%q becomes %q, and that %v, %v", raw, u, again, err)
		}
	})
}

func FuzzHeader(f *testing.F) {
	for _, x := range headerRows {
		for _, h := range x.header {
			f.Add(h[0], h[1])
		}
	}
	l := DefaultLimits()
	f.Fuzz(func(t *testing.T, name, value string) {
		h, err := requestHeader([][2]string{{name, value}}, "api.example.com", &l)
		if err != nil {
			mustBeOurs(t, err)
			return
		}
		req := &http.Request{Method: "GET", URL: &url.URL{Scheme: "http", Host: "api.example.com", Path: "/"}, Header: h}
		var b strings.Builder
		if err := req.Write(&b); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(b.String(), "\r\n\r\n"), "\r\n")
		if len(lines) > 4 { // request line, Host, User-Agent, and the one that was given
			t.Errorf("%q: %q makes %q", name, value, lines)
		}
		for _, line := range lines[1:] {
			n, _, _ := strings.Cut(line, ":")
			switch n = strings.ToLower(n); {
			case strings.ContainsAny(line, "\r\n"):
				t.Errorf("%q: %q makes the line %q", name, value, line)
			case n == "proxy", strings.HasPrefix(n, "proxy-"), n == "transfer-encoding", n == "content-length", n == "upgrade", n == "te", n == "trailer", n == "connection":
				t.Errorf("%q: %q makes the line %q", name, value, line)
			}
		}
	})
}
