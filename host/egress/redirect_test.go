package egress

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/skep-dev/skep/agent"
)

// seen is what one server saw of one request.
type seen struct {
	Method, URL string
	Header      http.Header
	Body        string
}

// twoHosts is a world with a host that redirects as asked, api, and another, evil. Both note what they see.
type twoHosts struct {
	*world
	requests []seen
}

func newTwoHosts(t *testing.T, h2 bool) *twoHosts {
	w := &twoHosts{world: newWorld(t)}
	handle := func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		h := r.Header.Clone()
		for _, name := range []string{"Accept-Encoding", "User-Agent", "Content-Length"} {
			h.Del(name)
		}
		w.mu.Lock()
		w.requests = append(w.requests, seen{r.Method, r.Host + r.URL.Path, h, string(body)})
		w.mu.Unlock()
		if q := r.URL.Query(); r.URL.Path == "/redirect" && q.Has("to") {
			status, _ := strconv.Atoi(q.Get("status"))
			rw.Header().Set("Location", q.Get("to"))
			rw.WriteHeader(status)
		}
	}
	w.https("api.example.com", apiAddr, h2, handle)
	w.https("evil.example.net", evilAddr, h2, handle)
	w.http("plain.example.com", "93.184.216.35", handle)
	return w
}

func redirectURL(status int, to string) string {
	return "https://api.example.com/redirect?status=" + strconv.Itoa(status) + "&to=" + url.QueryEscape(to)
}

// TestRedirectRefused has a granted host send the request to where it may not go. Nothing else than that host may be dialled.
func TestRedirectRefused(t *testing.T) {
	for _, row := range []struct {
		name, to string
		kind     agent.Kind
		words    string
	}{
		{"host that is not granted", "https://other.example.net/", agent.Denied, "not granted"},
		{"granted host, other port", "https://api.example.com:8443/", agent.Denied, "not granted"},
		{"granted host, other scheme", "http://api.example.com/", agent.Denied, "not granted"},
		{"path that is not granted", "https://api.example.com/admin", agent.Denied, "not granted"},
		{"path that is not granted, by dots", "/x/../admin", agent.Denied, "not granted"},
		{"path that is not granted, by escaped dots", "/x/%2e%2e/admin", agent.Denied, "not granted"},
		{"same scheme, other host", "//other.example.net/", agent.Denied, "not granted"},
		{"loopback", "https://127.0.0.1/ok", agent.Denied, "a loopback address"},
		{"loopback, IPv6", "https://[::1]/ok", agent.Denied, "a loopback address"},
		{"metadata", "http://169.254.169.254/ok", agent.Denied, "a cloud metadata address"},
		{"private name", "https://internal.example.com/ok", agent.Denied, "a private address"},
		{"decimal address", "http://2130706433/", agent.Unavailable, "unusual form"},
		{"user and password", "https://a:b@api.example.com/", agent.Unavailable, "a user or a password"},
		{"host as user", "https://api.example.com@evil.example.net/", agent.Unavailable, "a user or a password"},
		{"file", "file:///etc/passwd", agent.Unavailable, "does not begin with"},
		{"javascript", "javascript:alert(1)", agent.Unavailable, "does not begin with"},
		{"opaque", "https:evil.example.net", agent.Unavailable, "does not begin with"},
		{"backslashes", `\\evil.example.net/`, agent.Unavailable, "a backslash"},
		{"slash and backslash", `/\evil.example.net/`, agent.Unavailable, "a backslash"},
		{"no host", "https://", agent.Unavailable, "no host"},
		{"zone", "http://[fe80::1%25eth0]/", agent.Unavailable, "a zone"},
		{"full-width", "https://ｅvil.example.net/", agent.Unavailable, "stand for others"},
		{"placeholder", "https://evil.example.net/?q={{secret:k}}", agent.Denied, "names a secret"},
		{"placeholder on the same host", "/ok?q={{secret:k}}", agent.Denied, "names a secret"},
		{"placeholder, escaped", "/ok?q=%7B%7Bsecret%3Ak%7D%7D", agent.Denied, "names a secret"},
		{"placeholder, upper case", "/ok?q={{SECRET:k}}", agent.Denied, "names a secret"},
		{"itself", "", agent.Exhausted, "more than 10 times"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newTwoHosts(t, false)
			w.names["internal.example.com"] = []string{"10.0.0.1"}
			e := w.egress()
			g := &guard{allow: func(r agent.Request) bool {
				return (r.Path == "/redirect" || r.Path == "/ok") && r.Origin() != "https://evil.example.net" || row.kind == agent.Unavailable
			}}
			u := redirectURL(302, row.to)
			if row.to == "" {
				u = redirectURL(302, "/redirect?status=302&to="+url.QueryEscape("?status=302&to=%2Fredirect%3Fstatus%3D302%26to%3D%253Fa"))
				w.https("api.example.com", apiAddr, false, func(rw http.ResponseWriter, r *http.Request) { http.Redirect(rw, r, r.URL.String(), http.StatusFound) })
			}
			_, _, err := get(t, e, g, &Request{URL: u})
			wantError(t, err, row.kind, row.words)
			for _, d := range w.dials() {
				if d != apiAddr+":443" {
					t.Errorf("dialled %s", d)
				}
			}
		})
	}
}

// TestRedirectFollowed is what arrives at the end of a redirect: the method, the body and the headers.
func TestRedirectFollowed(t *testing.T) {
	all := http.Header{
		"Authorization": {"Bearer a"}, "Cookie": {"c=d"}, "Cookie2": {"e"}, "Origin": {"https://o.example"}, "Referer": {"https://r.example/?s"},
		"X-Key": {"{{secret:k}}"}, "X-Plain": {"p"}, "Content-Type": {"text/x"}, "Content-Language": {"en"},
	}
	less := func(names ...string) http.Header {
		h := all.Clone()
		for _, n := range names {
			h.Del(n)
		}
		return h
	}
	own := []string{"Authorization", "Cookie", "Cookie2", "Origin", "Referer", "X-Key"}
	body := []string{"Content-Type", "Content-Language"}
	for _, row := range []struct {
		name   string
		status int
		method string
		to     string
		want   seen
	}{
		{"301 GET", 301, "GET", "/x", seen{"GET", "api.example.com/x", all, "b"}},
		{"301 POST", 301, "POST", "/x", seen{"GET", "api.example.com/x", less(body...), ""}},
		{"301 PUT", 301, "PUT", "/x", seen{"PUT", "api.example.com/x", all, "b"}},
		{"302 POST", 302, "POST", "x", seen{"GET", "api.example.com/x", less(body...), ""}},
		{"302 DELETE", 302, "DELETE", "/x", seen{"DELETE", "api.example.com/x", all, "b"}},
		{"303 POST", 303, "POST", "/x", seen{"GET", "api.example.com/x", less(body...), ""}},
		{"303 PUT", 303, "PUT", "/x", seen{"GET", "api.example.com/x", less(body...), ""}},
		{"303 GET", 303, "GET", "/x", seen{"GET", "api.example.com/x", all, "b"}},
		{"307 POST", 307, "POST", "/x", seen{"POST", "api.example.com/x", all, "b"}},
		{"308 PATCH", 308, "PATCH", "/x", seen{"PATCH", "api.example.com/x", all, "b"}},
		{"query only", 307, "POST", "?x", seen{"POST", "api.example.com/redirect", all, "b"}},
		{"fragment and blank", 307, "POST", "/x y#z", seen{"POST", "api.example.com/x y", all, "b"}},
		{"upper case, own port", 307, "POST", "HTTPS://API.EXAMPLE.COM:443/x", seen{"POST", "api.example.com/x", all, "b"}},
		{"to another host, 302", 302, "POST", "https://evil.example.net/x", seen{"GET", "evil.example.net/x", less(append(own, body...)...), ""}},
		{"to another host, 307", 307, "POST", "https://evil.example.net/x", seen{"POST", "evil.example.net/x", less(own...), "b"}},
		{"to another host, 308, without scheme", 308, "PUT", "//evil.example.net/x", seen{"PUT", "evil.example.net/x", less(own...), "b"}},
		{"to plain HTTP", 307, "POST", "http://plain.example.com/x", seen{"POST", "plain.example.com/x", less(own...), "b"}},
		{"there and back", 307, "POST", "https://evil.example.net/redirect?status=307&to=https://api.example.com/x", seen{"POST", "api.example.com/x", less(own...), "b"}},
	} {
		for _, h2 := range []bool{false, true} {
			t.Run(row.name+map[bool]string{true: ", HTTP/2"}[h2], func(t *testing.T) {
				w := newTwoHosts(t, h2)
				var uses []agent.HTTPUse
				g := &guard{}
				r := &Request{
					Method: row.method, URL: redirectURL(row.status, row.to), Body: strings.NewReader("b"), Length: 1,
					Header:  [][2]string{{"Host", "api.example.com"}},
					Observe: func(u agent.HTTPUse) { uses = append(uses, u) },
				}
				for name, vs := range all {
					r.Header = append(r.Header, [2]string{name, vs[0]})
				}
				res, _, err := get(t, w.egress(), g, r)
				if err != nil {
					t.Fatal(err)
				}
				if !res.Redirected || len(g.judged) != len(w.requests) || len(uses) != len(w.requests) {
					t.Errorf("redirected %v, judged %d and told of %d of %d requests", res.Redirected, len(g.judged), len(uses), len(w.requests))
				}
				got := w.requests[len(w.requests)-1]
				if diff := cmp.Diff(row.want, got); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}

// TestRedirectSecrets has secrets in a request that a host wants to have sent elsewhere.
func TestRedirectSecrets(t *testing.T) {
	const value = "s3cR3t"
	for _, row := range []struct {
		name, to string
		words    string // of the error
		url      string // that the guest is told, when there is none
	}{
		{"echoed in the query, same host", "/x?k=" + value, "", "https://api.example.com/x?k=[secret]"},
		{"echoed in the query, other host", "https://evil.example.net/?k=" + value, "takes a secret to another host", ""},
		{"echoed in the path, other host", "https://evil.example.net/" + value, "takes a secret to", ""},
		{"echoed in the path, same host", "/" + value, "the URL's path holds a secret", ""},
		{"echoed in the host", "https://" + value + ".example.net/", "takes a secret to", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newTwoHosts(t, false)
			g := &guard{sign: func(req *http.Request, r agent.Request) (Cleaner, error) {
				if r.Host != "api.example.com" || req.Header.Get("X-Key") == "" {
					return nil, nil
				}
				req.Header.Set("X-Key", value)
				return hiding(value), nil
			}}
			res, _, err := get(t, w.egress(), g, &Request{URL: redirectURL(302, row.to), Header: [][2]string{{"x-key", "{{secret:k}}"}}})
			if row.words != "" {
				wantError(t, err, agent.Denied, row.words)
				if e := agent.AsError(err); strings.Contains(strings.ToLower(e.Error()+e.Hint), strings.ToLower(value)) {
					t.Errorf("the error holds the secret: %v", err)
				}
				if len(w.requests) != 1 {
					t.Errorf("%d requests were sent", len(w.requests))
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if res.URL != row.url {
				t.Errorf("the guest is told %s", res.URL)
			}
			if got := w.requests[1].Header.Get("X-Key"); got != value {
				t.Errorf("the second hop got the key %q, want it signed anew", got)
			}
		})
	}
	t.Run("manual", func(t *testing.T) {
		w := newTwoHosts(t, false)
		g := &guard{sign: func(*http.Request, agent.Request) (Cleaner, error) { return hiding(value), nil }}
		res, _, err := get(t, w.egress(), g, &Request{URL: redirectURL(302, "https://evil.example.net/?"+value), Redirect: Manual})
		if err != nil || res.Status != 302 || res.Redirected || res.Get("location") != "https://evil.example.net/?[secret]" {
			t.Errorf("got %+v, %v", res, err)
		}
	})
	t.Run("cleaned after the hop that had the secret", func(t *testing.T) {
		w := newTwoHosts(t, false)
		w.https("evil.example.net", evilAddr, false, func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, "I know "+value) })
		g := &guard{sign: func(_ *http.Request, r agent.Request) (Cleaner, error) {
			if r.Host == "api.example.com" {
				return hiding(value), nil
			}
			return nil, nil
		}}
		_, body, err := get(t, w.egress(), g, &Request{URL: redirectURL(302, "https://evil.example.net/")})
		if err != nil || body != "I know [secret]" {
			t.Errorf("got %q, %v", body, err)
		}
	})
}

func TestRedirectModes(t *testing.T) {
	w := newTwoHosts(t, false)
	e := w.egress()
	_, _, err := get(t, e, nil, &Request{URL: redirectURL(302, "/x"), Redirect: Fail})
	wantError(t, err, agent.Invalid, "redirects the request")
	res, _, err := get(t, e, nil, &Request{URL: redirectURL(302, "/x"), Redirect: Fail + 1})
	if err != nil || res.Status != 302 || res.Get("location") != "/x" {
		t.Errorf("manual: %+v, %v", res, err)
	}
	if res, _, err = get(t, e, nil, &Request{URL: redirectURL(304, "/x")}); err != nil || res.Status != 304 {
		t.Errorf("304: %+v, %v", res, err)
	}
	if res, _, err = get(t, e, nil, &Request{URL: redirectURL(302, "")}); err != nil || res.Status != 302 {
		t.Errorf("without Location: %+v, %v", res, err)
	}
}

// TestRedirectBody resends a body that was kept, and says so when it was not.
func TestRedirectBody(t *testing.T) {
	stream := func(n int) io.Reader { return io.LimitReader(zeros{}, int64(n)) }
	for _, row := range []struct {
		name   string
		body   io.Reader
		length int64
		again  bool
	}{
		{"in memory", bytes.NewReader(make([]byte, maxReplay)), maxReplay, true},
		{"in memory, too long", bytes.NewReader(make([]byte, maxReplay+1)), maxReplay + 1, false},
		{"stream of unknown length", stream(maxReplay), -1, true},
		{"stream of unknown length, too long", stream(maxReplay + 1), -1, false},
		{"stream of known length", stream(maxReplay), maxReplay, true},
		{"stream of known length, too long", stream(maxReplay + 1), maxReplay + 1, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newTwoHosts(t, false)
			_, _, err := get(t, w.egress(), nil, &Request{Method: "POST", URL: redirectURL(307, "/x"), Body: row.body, Length: row.length})
			if row.again {
				if err != nil || len(w.requests) != 2 || len(w.requests[1].Body) != maxReplay {
					t.Errorf("%d requests, %v", len(w.requests), err)
				}
				return
			}
			wantError(t, err, agent.Invalid, "with its body")
			if len(w.requests) != 1 {
				t.Errorf("%d requests", len(w.requests))
			}
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
