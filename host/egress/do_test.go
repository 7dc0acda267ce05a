package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/skep-dev/skep/agent"
)

// TestExchange is an ordinary request, by both versions of HTTP.
func TestExchange(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		w := newWorld(t)
		w.https("api.example.com", apiAddr, h2, func(rw http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			rw.Header()["Date"] = nil
			rw.Header().Add("Set-Cookie", "a=b")
			rw.Header().Add("Set-Cookie", "c=d")
			rw.Header().Set("X-Latin", "caf\xe9")
			rw.Header().Set("Content-Type", "text/plain")
			rw.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(rw, r.Proto+" "+r.Method+" "+r.Host+r.URL.String()+" "+string(b)+" "+r.Header.Get("Cookie"))
		})
		var use agent.HTTPUse
		g := &guard{}
		e := w.egress()
		r := &Request{
			Owner: Owner{agent.DefaultApp, "me"}, Method: "post", URL: "https://api.example.com/v1/x?q=1", Body: strings.NewReader("in"),
			Observe: func(u agent.HTTPUse) { use = u },
		}
		res, body, err := get(t, e, g, r)
		if err != nil {
			t.Fatal(err)
		}
		proto := map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[h2]
		want := proto + " POST api.example.com/v1/x?q=1 in "
		if body != want || res.Status != 201 || res.URL != "https://api.example.com/v1/x?q=1" || res.Redirected {
			t.Errorf("got %q, %+v", body, res)
		}
		header := [][2]string{{"content-length", itoa(len(want))}, {"content-type", "text/plain"}, {"set-cookie", "a=b"}, {"set-cookie", "c=d"}, {"x-latin", "café"}}
		if diff := cmp.Diff(header, res.Header); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]agent.Request{{Method: "POST", Scheme: "https", Host: "api.example.com", Port: "443", Path: "/v1/x"}}, g.judged); diff != "" {
			t.Error(diff)
		}
		told := agent.HTTPUse{Agent: "me", Method: "POST", Host: "api.example.com", Path: "/v1/x", Status: 201, Sent: 2, Received: int64(len(want))}
		if diff := cmp.Diff(told, use, cmpopts.IgnoreFields(agent.HTTPUse{}, "Duration")); diff != "" || use.Duration <= 0 {
			t.Error(diff, use.Duration)
		}
		r.Body = strings.NewReader("in")
		if _, body, err = get(t, e, g, r); err != nil || body != want { // no cookie was kept
			t.Errorf("again: %q, %v", body, err)
		}
		if len(w.dials()) != 1 {
			t.Errorf("two requests of one agent dialled %v", w.dials())
		}
	}
}

// TestStreams sends and receives in turns over one request.
func TestStreams(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		w := newWorld(t)
		w.https("api.example.com", apiAddr, h2, func(rw http.ResponseWriter, r *http.Request) {
			if r.ContentLength != -1 {
				t.Errorf("content-length is %d", r.ContentLength)
			}
			must(t, http.NewResponseController(rw).EnableFullDuplex())
			rw.(http.Flusher).Flush()
			lines := bufio.NewReader(r.Body)
			for {
				line, err := lines.ReadString('\n')
				if err != nil {
					return
				}
				_, _ = io.WriteString(rw, "got "+line)
				rw.(http.Flusher).Flush()
			}
		})
		in, out := io.Pipe()
		res, err := w.egress().Do(t.Context(), &guard{}, &Request{Method: "POST", URL: "https://api.example.com/", Body: in, Length: -1})
		must(t, err)
		lines := bufio.NewReader(res.Body)
		for _, s := range []string{"a\n", "b\n"} {
			_, err := io.WriteString(out, s)
			must(t, err)
			if line, err := lines.ReadString('\n'); line != "got "+s || err != nil {
				t.Errorf("%q, %v", line, err)
			}
		}
		_ = out.Close()
		if b, err := io.ReadAll(lines); len(b) > 0 || err != nil {
			t.Errorf("%q, %v", b, err)
		}
		must(t, res.Body.Close())
	}
}

// TestCleaned has a host repeat a secret wherever it can.
func TestCleaned(t *testing.T) {
	const value = "s3cr3t"
	w := newWorld(t)
	w.raw("api.example.com", apiAddr, func(c net.Conn, _ *bufio.Reader, r *http.Request) {
		body := string(pack(t, []byte("body "+r.Header.Get("X-Key")), "gzip"))
		_, _ = io.WriteString(c, "HTTP/1.1 200 "+value+"\r\nX-"+value+": x\r\nX-Echo: "+value+"\r\nContent-Encoding: gzip\r\nContent-Length: "+itoa(len(body))+"\r\n\r\n"+body)
	})
	g := &guard{sign: func(req *http.Request, _ agent.Request) (Cleaner, error) {
		req.Header.Set("X-Key", value)
		return hiding(value), nil
	}}
	res, body, err := get(t, w.egress(), g, &Request{URL: "http://api.example.com/?k=" + value})
	must(t, err)
	if body != "body [secret]" || res.StatusText != "[secret]" || res.Get("x-echo") != "[secret]" || strings.Contains(res.URL, value) || res.Get("content-length") != "" {
		t.Errorf("%q, %+v", body, res)
	}
	for _, h := range res.Header {
		if strings.Contains(h[0], value) {
			t.Errorf("the header %s is told", h[0])
		}
	}
}

// TestSigning has a signer that does what it must not, or cannot.
func TestSigning(t *testing.T) {
	for _, row := range []struct {
		name  string
		sign  func(*http.Request) error
		kind  agent.Kind
		words string
	}{
		{"other host", func(r *http.Request) error { r.URL.Host = "evil.example.net"; return nil }, agent.Internal, "elsewhere"},
		{"other Host", func(r *http.Request) error { r.Host = "evil.example.net"; return nil }, agent.Internal, "elsewhere"},
		{"other scheme", func(r *http.Request) error { r.URL.Scheme = "https"; return nil }, agent.Internal, "elsewhere"},
		{"other path", func(r *http.Request) error { r.URL.Path, r.URL.RawPath = "/admin", ""; return nil }, agent.Internal, "elsewhere"},
		{"opaque", func(r *http.Request) error { r.URL.Opaque = "//evil.example.net/"; return nil }, agent.Internal, "elsewhere"},
		{"user", func(r *http.Request) error { r.URL.User = url.User("x"); return nil }, agent.Internal, "elsewhere"},
		{"other method", func(r *http.Request) error { r.Method = "DELETE"; return nil }, agent.Internal, "elsewhere"},
		{"secret with a newline", func(r *http.Request) error { r.Header.Set("X-Key", "a\r\nX-Evil: b"); return nil }, agent.Invalid, "X-Key holds a control character once its secret is in"},
		{"refusal", func(*http.Request) error { return agent.Errorf(agent.Denied, "the secret is not for this host") }, agent.Denied, "not for this host"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t)
			w.names["api.example.com"] = []string{apiAddr}
			g := &guard{sign: func(r *http.Request, _ agent.Request) (Cleaner, error) { return nil, row.sign(r) }}
			_, err := w.egress().Do(t.Context(), g, &Request{URL: "http://api.example.com/x"})
			wantError(t, err, row.kind, row.words)
			if len(w.dials()) > 0 {
				t.Errorf("dialled %v", w.dials())
			}
		})
	}
	t.Run("query, header and body", func(t *testing.T) {
		w := newTwoHosts(t, false)
		g := &guard{sign: func(r *http.Request, _ agent.Request) (Cleaner, error) {
			b, err := io.ReadAll(r.Body)
			must(t, err)
			s := strings.ReplaceAll(string(b), "{{secret:k}}", "longer than before")
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(s)), int64(len(s))
			r.URL.RawQuery = "signed"
			r.Header.Set("Authorization", "signed")
			return nil, nil
		}}
		for range 2 { // the second time on a connection that is there
			_, _, err := get(t, w.egress(), g, &Request{Method: "POST", URL: "https://api.example.com/x?q", Body: strings.NewReader("k={{secret:k}}")})
			must(t, err)
		}
		want := seen{"POST", "api.example.com/x", http.Header{"Authorization": {"signed"}}, "k=longer than before"}
		if diff := cmp.Diff([]seen{want, want}, w.requests); diff != "" {
			t.Error(diff)
		}
	})
}

// TestTLS has hosts that cannot prove who they are.
func TestTLS(t *testing.T) {
	for _, row := range []struct {
		name  string
		setup func(*world, *tls.Config)
		words string
	}{
		{"another name", func(w *world, c *tls.Config) { c.Certificates = []tls.Certificate{w.pki.cert(t, "evil.example.net")} }, "for another name"},
		{"expired", func(w *world, c *tls.Config) {
			c.Certificates = []tls.Certificate{w.pki.cert(t, "api.example.com", func(x *x509.Certificate) { x.NotAfter = time.Now().Add(-time.Minute) })}
		}, "has expired"},
		{"another authority", func(_ *world, c *tls.Config) {
			c.Certificates = []tls.Certificate{newPKI(t).cert(t, "api.example.com")}
		}, "nobody whom this server trusts"},
		{"not for servers", func(w *world, c *tls.Config) {
			c.Certificates = []tls.Certificate{w.pki.cert(t, "api.example.com", func(x *x509.Certificate) { x.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} })}
		}, "certificate is not valid"},
		{"TLS 1.1", func(_ *world, c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 }, "TLS handshake failed"},
		{"wants a certificate", func(_ *world, c *tls.Config) { c.ClientAuth, c.MaxVersion = tls.RequireAnyClientCert, tls.VersionTLS12 }, "TLS handshake failed"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t)
			c := &tls.Config{Certificates: []tls.Certificate{w.pki.cert(t, "api.example.com")}}
			row.setup(w, c)
			w.host("api.example.com", apiAddr+":443", listen(t, func(conn net.Conn) { _ = tls.Server(conn, c).Handshake() }))
			_, _, err := get(t, w.egress(), nil, &Request{URL: "https://api.example.com/?q=hidden"})
			wantError(t, err, agent.Unavailable, row.words)
			if strings.Contains(err.Error(), "hidden") {
				t.Error(err)
			}
		})
	}
	t.Run("plain HTTP at the port of HTTPS", func(t *testing.T) {
		w := newWorld(t)
		w.http("api.example.com", apiAddr, func(http.ResponseWriter, *http.Request) {})
		w.servers[apiAddr+":443"] = w.servers[apiAddr+":80"]
		_, _, err := get(t, w.egress(), nil, &Request{URL: "https://api.example.com/"})
		wantError(t, err, agent.Unavailable, "does not speak TLS")
	})
	t.Run("address in the certificate", func(t *testing.T) {
		w := newWorld(t)
		w.https("api.example.com", apiAddr, false, func(http.ResponseWriter, *http.Request) {})
		_, _, err := get(t, w.egress(), nil, &Request{URL: "https://" + apiAddr + "/"})
		wantError(t, err, agent.Unavailable, "for another name")
	})
}

// TestEnvironment sets the variables that other clients follow.
func TestEnvironment(t *testing.T) {
	proxy := make(chan struct{}, 10)
	at := "http://" + listenOnce(t, proxy)
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"} {
		t.Setenv(name, at)
	}
	w := newTwoHosts(t, false)
	for _, u := range []string{"http://plain.example.com/", "https://api.example.com/"} {
		_, _, err := get(t, w.egress(), nil, &Request{URL: u})
		must(t, err)
	}
	if len(w.requests) != 2 || len(proxy) > 0 || slices.Contains(w.dials(), strings.TrimPrefix(at, "http://")) {
		t.Errorf("%d requests arrived, dialled %v", len(w.requests), w.dials())
	}
}

// TestOwnersShareNothing wants a connection of its own for each agent, and the connections of agents that are gone closed.
func TestOwnersShareNothing(t *testing.T) {
	w := newWorld(t)
	w.http("api.example.com", apiAddr, func(rw http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(rw, r.RemoteAddr) })
	e := w.egress(func(o *Options) { o.Limits.Owners = 3 })
	from := map[string]Owner{}
	ask := func(o Owner) string {
		_, body, err := get(t, e, nil, &Request{Owner: o, URL: "http://api.example.com/"})
		must(t, err)
		return body
	}
	owners := []Owner{{"a", "x"}, {"a", "y"}, {"b", "x"}}
	for _, o := range owners {
		at := ask(o)
		if other, taken := from[at]; taken {
			t.Errorf("%v shares a connection with %v", o, other)
		}
		from[at] = o
		if again := ask(o); again != at {
			t.Errorf("%v has two connections", o)
		}
	}
	ask(Owner{"c", "z"}) // the least recent one goes
	if at := ask(owners[2]); from[at] != owners[2] {
		t.Error("a recent connection was closed")
	}
	if at := ask(owners[0]); from[at] == owners[0] {
		t.Error("the least recent connection is still there")
	}
	if len(e.pools.by) != 3 || e.pools.recent.Len() != 3 {
		t.Errorf("%d pools", len(e.pools.by))
	}
}

// TestPoolInUse keeps the pool of an owner whose request runs.
func TestPoolInUse(t *testing.T) {
	w := newWorld(t)
	w.http("api.example.com", apiAddr, func(http.ResponseWriter, *http.Request) {})
	e := w.egress(func(o *Options) { o.Limits.Owners = 1 })
	a := e.pools.take(Owner{Agent: "a"})
	for _, name := range []string{"b", "c"} {
		_, _, err := get(t, e, nil, &Request{Owner: Owner{Agent: name}, URL: "http://api.example.com/"})
		must(t, err)
	}
	if again := e.pools.take(Owner{Agent: "a"}); again != a {
		t.Error("an owner has two pools at once")
	}
	e.pools.give(a)
	e.pools.give(a)
	if e.pools.recent.Len() != 1 {
		t.Errorf("%d pools", e.pools.recent.Len())
	}
}

// TestUnclosed ends a request whose body was not read to its end, and one from another goroutine while it is read.
func TestUnclosed(t *testing.T) {
	w := newWorld(t)
	gone := make(chan struct{}, 2)
	w.http("api.example.com", apiAddr, func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(rw, "begin")
		rw.(http.Flusher).Flush()
		<-r.Context().Done()
		gone <- struct{}{}
	})
	e := w.egress()
	for _, reading := range []bool{false, true} {
		var told []agent.HTTPUse
		res, err := e.Do(t.Context(), &guard{}, &Request{URL: "http://api.example.com/", Observe: func(u agent.HTTPUse) { told = append(told, u) }})
		must(t, err)
		ended := make(chan error, 1)
		if reading {
			started := make(chan struct{})
			go func() {
				_, _ = io.ReadFull(res.Body, make([]byte, 5))
				close(started)
				_, err := io.ReadAll(res.Body)
				ended <- err
			}()
			<-started
		}
		must(t, res.Body.Close())
		must(t, res.Body.Close())
		if reading {
			wantError(t, <-ended, agent.Cancelled, "closed")
		}
		<-gone
		if len(told) != 1 {
			t.Errorf("told %v", told)
		}
		if _, err := res.Body.Read(make([]byte, 1)); err == nil {
			t.Error("a closed body can be read")
		}
	}
}

// TestRoundTripper puts the door under an ordinary client.
func TestRoundTripper(t *testing.T) {
	w := newTwoHosts(t, false)
	g := &guard{allow: func(r agent.Request) bool { return r.Host == "api.example.com" }}
	c := &http.Client{Transport: w.egress().RoundTripper(g, Owner{Agent: "me"})}
	res, err := c.PostForm("https://api.example.com/x", url.Values{"a": {"b"}})
	must(t, err)
	_ = res.Body.Close()
	if len(w.requests) != 1 || w.requests[0].Body != "a=b" || res.StatusCode != 200 {
		t.Errorf("%+v, %+v", w.requests, res)
	}
	for u, kind := range map[string]agent.Kind{
		redirectURL(302, "https://evil.example.net/"): agent.Denied, "https://evil.example.net/": agent.Denied, "http://u:p@api.example.com/": agent.Invalid,
	} {
		res, err := c.Get(u)
		if err == nil {
			_ = res.Body.Close()
		}
		wantError(t, err, kind, "")
	}
	req, err := http.NewRequestWithContext(t.Context(), "GET", "https://api.example.com/", nil)
	must(t, err)
	req.Host = "evil.example.net"
	if res, err = c.Do(req); err == nil {
		_ = res.Body.Close()
	}
	wantError(t, err, agent.Invalid, "another host")
	if slices.Contains(w.dials(), evilAddr+":443") {
		t.Error("the other host was dialled")
	}
}

// TestUnavailable says in words what is wrong with the way, and nothing of what the system or a library says.
func TestUnavailable(t *testing.T) {
	for words, err := range map[string]error{
		"the connection was refused":      &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED},
		"there is no way to the host":     &net.OpError{Op: "dial", Err: syscall.ENETUNREACH},
		"the host did not answer in time": &net.OpError{Op: "dial", Err: context.DeadlineExceeded},
		"no connection came about":        errors.New("GET http://x/?q=hidden: surprise"),
		"an error of ours, as it is":      agent.Errorf(agent.Unavailable, "an error of ours, as it is"),
		"the request was cancelled":       context.Canceled,
	} {
		got := connectError("api.example.com", err)
		if m := agent.AsError(got); !strings.Contains(m.Msg, words) || strings.Contains(got.Error(), "hidden") {
			t.Errorf("%v becomes %v, want %q", err, got, words)
		}
	}
}
