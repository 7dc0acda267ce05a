package egress

import (
	"bufio"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/skep-dev/skep/agent"
)

// forms are ways to write a URL, and the one form in which it is judged and sent.
var forms = []struct{ name, url, want string }{
	{"plain", "https://api.example.com/v1/x", "https://api.example.com/v1/x"},
	{"no path", "https://api.example.com", "https://api.example.com/"},
	{"upper case scheme and host", "HTTPS://API.Example.COM/V1", "https://api.example.com/V1"},
	{"the scheme's own port", "https://api.example.com:443/", "https://api.example.com/"},
	{"the other scheme's port", "http://api.example.com:443/", "http://api.example.com:443/"},
	{"empty port", "https://api.example.com:/", "https://api.example.com/"},
	{"port with leading zeros", "https://api.example.com:0444/", "https://api.example.com:444/"},
	{"trailing dot", "https://api.example.com./", "https://api.example.com/"},
	{"fragment", "https://api.example.com/a#b", "https://api.example.com/a"},
	{"fragment with a host", "https://api.example.com#@evil.example.net/", "https://api.example.com/"},
	{"query", "https://api.example.com?a=b", "https://api.example.com/?a=b"},
	{"name of 253 bytes", "https://" + strings.Repeat("a.", 126) + "a/", "https://" + strings.Repeat("a.", 126) + "a/"},
	{"query with a URL", "https://api.example.com/?u=http://evil.example.net/..", "https://api.example.com/?u=http://evil.example.net/.."},
	{"empty query", "https://api.example.com/?", "https://api.example.com/?"},
	{"query with at sign", "https://api.example.com/?@evil.example.net", "https://api.example.com/?@evil.example.net"},
	{"at sign in the path", "https://api.example.com/@evil.example.net", "https://api.example.com/@evil.example.net"},
	{"dot segment", "https://api.example.com/a/./b", "https://api.example.com/a/b"},
	{"dot-dot segment", "https://api.example.com/a/../b", "https://api.example.com/b"},
	{"dot-dot above the root", "https://api.example.com/../../b", "https://api.example.com/b"},
	{"dot-dot at the end", "https://api.example.com/a/b/..", "https://api.example.com/a/"},
	{"dot at the end", "https://api.example.com/a/.", "https://api.example.com/a/"},
	{"escaped dots", "https://api.example.com/a/%2e%2E/b", "https://api.example.com/b"},
	{"half escaped dots", "https://api.example.com/a/.%2e/b", "https://api.example.com/b"},
	{"three dots", "https://api.example.com/a/.../b", "https://api.example.com/a/.../b"},
	{"hidden file", "https://api.example.com/.well-known/x", "https://api.example.com/.well-known/x"},
	{"double slash", "https://api.example.com//a//b", "https://api.example.com//a//b"},
	{"double slash and dot-dot", "https://api.example.com/a//../b", "https://api.example.com/a/b"},
	{"escaped slash", "https://api.example.com/a%2Fb", "https://api.example.com/a%2Fb"},
	{"escaped slash and dots", "https://api.example.com/a/..%2fb", "https://api.example.com/a/..%2fb"},
	{"escaped letter", "https://api.example.com/%61", "https://api.example.com/%61"},
	{"escaped percent sign", "https://api.example.com/100%25", "https://api.example.com/100%25"},
	{"not ASCII in path", "https://api.example.com/é", "https://api.example.com/%C3%A9"},
	{"not ASCII in query", "https://api.example.com/?q=é", "https://api.example.com/?q=%C3%A9"},
	{"quotes", `https://api.example.com/"a"?"b"`, "https://api.example.com/%22a%22?%22b%22"},
	{"placeholder in the query", "https://api.example.com/?key={{secret:k}}", "https://api.example.com/?key={{secret:k}}"},
	{"braces in the path", "https://api.example.com/{id}", "https://api.example.com/%7Bid%7D"},
	{"semicolon", "https://api.example.com/a;b=c/d", "https://api.example.com/a;b=c/d"},
	{"colon in the path", "https://api.example.com/a:b", "https://api.example.com/a:b"},
	{"underscore in the host", "https://my_bucket.example.com/", "https://my_bucket.example.com/"},
	{"two hyphens in the host", "https://r3---sn-x.example.com/", "https://r3---sn-x.example.com/"},
	{"number as a label, not the last", "https://1.2.3.example.com/", "https://1.2.3.example.com/"},
	{"IPv4", "https://8.8.8.8/", "https://8.8.8.8/"},
	{"IPv6", "https://[2606:2800:220:1::1]:8443/", "https://[2606:2800:220:1::1]:8443/"},
	{"IPv6 in long form", "https://[2606:2800:0220:0001:0000:0000:0000:0001]/", "https://[2606:2800:220:1::1]/"},
	{"IPv6 in upper case", "https://[2606:2800:220:1::ABCD]/", "https://[2606:2800:220:1::abcd]/"},
	{"international name", "https://bücher.example/", "https://xn--bcher-kva.example/"},
	{"international name in ASCII", "https://xn--bcher-kva.example/", "https://xn--bcher-kva.example/"},
	{"international name in ASCII, upper case", "https://XN--BCHER-KVA.example/", "https://xn--bcher-kva.example/"},
	{"sharp s is not ss", "https://straße.example/", "https://xn--strae-oqa.example/"},
	{"cyrillic a is not a", "https://аpple.example/", "https://xn--pple-43d.example/"},
}

func TestForms(t *testing.T) {
	for _, f := range forms {
		t.Run(f.name, func(t *testing.T) {
			u, r, err := Parse("get", f.url)
			if err != nil {
				t.Fatal(err)
			}
			if u.String() != f.want || urlText(u, r) != f.want {
				t.Errorf("got %s, want %s", u, f.want)
			}
			checkAgree(t, u.String(), r)
		})
	}
}

// badForms are ways to write a URL that two readers could read in two ways, or that nobody can read.
var badForms = []struct{ name, url, words string }{
	{"empty", "", "does not begin with"},
	{"relative", "/v1", "does not begin with"},
	{"without scheme", "//api.example.com/", "does not begin with"},
	{"opaque", "https:api.example.com", "does not begin with"},
	{"one slash", "https:/api.example.com/", "does not begin with"},
	{"three slashes", "https:///api.example.com/", "no host"},
	{"file", "file:///etc/passwd", "does not begin with"},
	{"gopher", "gopher://api.example.com/", "does not begin with"},
	{"ftp", "ftp://api.example.com/", "does not begin with"},
	{"unix", "http+unix://%2Frun%2Fx.sock/", "does not begin with"},
	{"data", "data:text/plain,x", "does not begin with"},
	{"scheme with a blank", " https://api.example.com/", "a blank"},
	{"user", "https://user@api.example.com/", "a user or a password"},
	{"user and password", "https://user:pass@api.example.com/", "a user or a password"},
	{"host as user", "https://api.example.com@evil.example.net/", "a user or a password"},
	{"host and port as user", "https://api.example.com:443@evil.example.net/", "a user or a password"},
	{"two at signs", "https://a@b@evil.example.net/", "a user or a password"},
	{"empty user", "https://@api.example.com/", "a user or a password"},
	{"escaped at sign", "https://api.example.com%40evil.example.net/", `a "%"`},
	{"backslash before the at sign", `https://api.example.com\@evil.example.net/`, "a backslash"},
	{"backslash for a slash", `https://api.example.com\v1`, "a backslash"},
	{"backslashes for slashes", `https:\\api.example.com/`, "a backslash"},
	{"backslash in the query", `https://api.example.com/?\`, "a backslash"},
	{"backslash after a non-ASCII letter", `https://api.example.com/é\`, "a backslash"},
	{"tab in the scheme", "ht\ttps://api.example.com/", "a control character"},
	{"tab in the host", "https://api.exa\tmple.com/", "a control character"},
	{"newline in the path", "https://api.example.com/a\nb", "a control character"},
	{"CRLF in the path", "https://api.example.com/ HTTP/1.1\r\nHost: evil", "a blank"},
	{"CRLF in the query", "https://api.example.com/?a\r\nX-Y: z", "a control character"},
	{"null", "https://api.example.com/\x00", "a control character"},
	{"DEL", "https://api.example.com/\x7f", "a control character"},
	{"blank in the host", "https://api example.com/", "a blank"},
	{"blank in the path", "https://api.example.com/a b", "a blank"},
	{"not UTF-8", "https://api.example.com/\xff", "not UTF-8"},
	{"half an escape", "https://api.example.com/%2", "two hexadecimal digits"},
	{"no escape", "https://api.example.com/%zz", "two hexadecimal digits"},
	{"no host", "https://", "no host"},
	{"no host but a port", "https://:443/", "no host"},
	{"no host but a query", "https://?x", "no host"},
	{"dot as host", "https://./", "not a name"},
	{"two trailing dots", "https://api.example.com../", "not a name"},
	{"empty label", "https://api..example.com/", "not a name"},
	{"leading dot", "https://.example.com/", "not a name"},
	{"leading hyphen", "https://-api.example.com/", "not a name"},
	{"trailing hyphen", "https://api-.example.com/", "not a name"},
	{"label of 64 bytes", "https://" + strings.Repeat("a", 64) + ".example.com/", "not a name"},
	{"name of 255 bytes", "https://" + strings.Repeat("a.", 127) + "a/", "not a name"},
	{"star", "https://*.example.com/", "not a name"},
	{"comma", "https://api.example.com,evil.example.net/", "not a name"},
	{"quote", "https://api.example.com'/", "not a name"},
	{"escaped host", "https://%61pi.example.com/", `a "%"`},
	{"port 0", "https://api.example.com:0/", "port"},
	{"port 65536", "https://api.example.com:65536/", "port"},
	{"port 2^32+443", "https://api.example.com:4294967739/", "port"},
	{"port with a sign", "https://api.example.com:+443/", "port"},
	{"negative port", "https://api.example.com:-443/", "port"},
	{"port in full-width digits", "https://api.example.com:４４３/", "port"},
	{"port name", "https://api.example.com:https/", "port"},
	{"two ports", "https://api.example.com:443:80/", `more than one ":"`},
	{"decimal IPv4", "http://2130706433/", "unusual form"},
	{"octal IPv4", "http://0177.0.0.1/", "unusual form"},
	{"hexadecimal IPv4", "http://0x7f000001/", "unusual form"},
	{"hexadecimal parts", "http://0x7f.0x0.0x0.0x1/", "unusual form"},
	{"hexadecimal last part", "http://127.0.0.0x1/", "unusual form"},
	{"empty hexadecimal", "http://127.0.0.0x/", "unusual form"},
	{"short IPv4", "http://127.1/", "unusual form"},
	{"three parts", "http://127.0.1/", "unusual form"},
	{"five parts", "http://127.0.0.0.1/", "unusual form"},
	{"part of 256", "http://256.0.0.1/", "unusual form"},
	{"leading zeros", "http://127.000.000.001/", "unusual form"},
	{"IPv4 with a trailing dot", "http://127.0.0.1./", "unusual form"},
	{"zero", "http://0/", "unusual form"},
	{"name that ends with a number", "http://example.1/", "unusual form"},
	{"full-width digits", "http://１２７.0.0.1/", "stand for others"},
	{"circled digits", "http://①②⑦.0.0.1/", "stand for others"},
	{"superscript", "http://127.0.0.¹/", "stand for others"},
	{"ideographic full stop", "http://127。0。0。1/", "stand for others"},
	{"full-width full stop", "https://api．example．com/", "stand for others"},
	{"full-width letters", "https://ａｐｉ.example.com/", "stand for others"},
	{"soft hyphen", "https://api.exam\u00adple.com/", "stand for others"},
	{"zero-width joiner", "https://api.exam\u200dple.com/", "international"},
	{"zero-width blank", "https://api.exam\u200bple.com/", "stand for others"},
	{"word joiner", "https://api.exam\u2060ple.com/", "stand for others"},
	{"Kelvin sign", "https://api.example.com.\u212Aey/", "stand for others"},
	{"long s", "https://api.example\u017f.com/", "stand for others"},
	{"ligature", "https://oﬃce.example.com/", "stand for others"},
	{"decomposed letter", "https://bu\u0308cher.example/", "stand for others"},
	{"upper case that is not ASCII", "https://BÜCHER.example/", "stand for others"},
	{"full-width slash", "https://api.example.com／evil.example.net/", "international"},
	{"account-of sign", "https://evil.example℀.example.com/", "international"},
	{"full-width at sign", "https://api.example.com＠evil.example.net/", "international"},
	{"full-width question mark", "https://api.example.com？.evil.example.net/", "international"},
	{"right-to-left override", "https://api.\u202eelpmaxe.com/", "international"},
	{"mixed directions", "https://a\u05d0b.example/", "international"},
	{"bad punycode", "https://xn--a.example/", "international"},
	{"punycode of ASCII", "https://xn--api-.example.com/", "international"},
	{"punycode that is not normal", "https://xn--e1A-.example/", "international"},
	{"underscore in an international name", "https://bü_cher.example/", "international"},
	{"IPv6 without brackets", "http://::1/", `more than one ":"`},
	{"IPv6 without end", "http://[::1/", `no "]"`},
	{"IPv6 with a zone", "http://[fe80::1%eth0]/", "a zone"},
	{"IPv6 with an escaped zone", "http://[fe80::1%25eth0]/", "a zone"},
	{"IPv6 with text after", "http://[2606:2800:220:1::1]evil.example.net/", `after the address's "]"`},
	{"name in brackets", "http://[localhost]/", "not an IPv6 address"},
	{"IPv4 in brackets", "http://[127.0.0.1]/", "not an IPv6 address"},
	{"future address", "http://[v1.x]/", "not an IPv6 address"},
	{"IPv4-mapped", "http://[::ffff:8.8.8.8]/", "in IPv6 form"},
	{"IPv4-mapped in hexadecimal", "http://[::ffff:7f00:1]/", "in IPv6 form"},
	{"IPv4-mapped in long form", "http://[0:0:0:0:0:ffff:7f00:0001]/", "in IPv6 form"},
	{"nine groups", "http://[1:2:3:4:5:6:7:8:9]/", "not an IPv6 address"},
	{"dots with a parameter", "https://api.example.com/v1/..;a=b/admin", "take for"},
	{"dots with an empty parameter", "https://api.example.com/v1/..;/admin", "take for"},
	{"doubly escaped dots", "https://api.example.com/v1/%252e%252e/admin", "take for"},
	{"triply escaped dots", "https://api.example.com/v1/%25252e./admin", "take for"},
	{"overlong dots", "https://api.example.com/v1/%c0%ae%c0%ae/admin", "take for"},
	{"escaped parameter after dots", "https://api.example.com/v1/..%3b/admin", "take for"},
}

func TestBadForms(t *testing.T) {
	w := newWorld(t)
	e := w.egress()
	for _, f := range badForms {
		t.Run(f.name, func(t *testing.T) {
			_, _, err := Parse("GET", f.url)
			wantError(t, err, agent.Invalid, f.words)
			for _, part := range []string{"evil", "pass@", "a=b"} {
				if e := agent.AsError(err); strings.Contains(f.url, part) && strings.Contains(e.Msg+e.Hint, part) {
					t.Errorf("the error holds %q: %v", part, err)
				}
			}
			if _, _, err = get(t, e, nil, &Request{URL: f.url}); err == nil {
				t.Error("Do took it")
			}
		})
	}
	if len(w.dials()) > 0 || len(w.lookups()) > 0 {
		t.Errorf("dialled %v, looked up %v", w.dials(), w.lookups())
	}
}

func TestMethods(t *testing.T) {
	for in, want := range map[string]string{
		"": "GET", "get": "GET", "Patch": "PATCH", "M-SEARCH": "M-SEARCH", "PROPFIND": "PROPFIND",
		"CONNECT": "", "connect": "", "TRACE": "", "Track": "", "GET ": "", "GET /": "", "G\r\nET": "", "GÉT": "", "a:b": "", strings.Repeat("A", 33): "",
	} {
		t.Run(in, func(t *testing.T) {
			_, r, err := Parse(in, "https://api.example.com/")
			if want == "" {
				wantError(t, err, agent.Invalid, "")
			} else if err != nil || r.Method != want {
				t.Errorf("got %q, %v", r.Method, err)
			}
		})
	}
}

// TestSentAsJudged wants the bytes on the wire to be those that the guard saw.
func TestSentAsJudged(t *testing.T) {
	w := newWorld(t)
	lines := make(chan string, 1)
	w.raw("api.example.com", apiAddr, func(c net.Conn, _ *bufio.Reader, req *http.Request) {
		lines <- req.Method + " " + req.RequestURI + " " + req.Host
		_, _ = c.Write([]byte("HTTP/1.1 204 No Content\r\n\r\n"))
	})
	e := w.egress()
	for _, f := range forms {
		target, ok := strings.CutPrefix(f.want, "https://api.example.com")
		if !ok || strings.HasPrefix(target, ":") {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			g := &guard{}
			_, _, err := get(t, e, g, &Request{URL: strings.Replace(f.want, "https", "http", 1)})
			if err != nil {
				t.Fatal(err)
			}
			if got := <-lines; got != "GET "+target+" api.example.com" {
				t.Errorf("sent %q, want target %q", got, target)
			}
			path, _, _ := strings.Cut(target, "?")
			if diff := cmp.Diff([]agent.Request{{Method: "GET", Scheme: "http", Host: "api.example.com", Port: "80", Path: path}}, g.judged); diff != "" {
				t.Error(diff)
			}
		})
	}
}
