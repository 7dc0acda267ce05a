package door

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
)

// echo answers with what it was asked.
func echo(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	w.Header().Set("X-Saw", r.Header.Get("Authorization"))
	fmt.Fprintf(w, "%s %s %s %q auth=%s len=%d", r.Method, r.Host, r.URL, b, r.Header.Get("Authorization"), r.ContentLength)
}

// TestPlain makes requests by whole URLs.
func TestPlain(t *testing.T) {
	w := newWorld(t, `{"http":["http://api.example.com"]}`)
	w.host("api.example.com", apiAddr+":80", echo)
	for _, tt := range []struct {
		method, url, body string
		header            []string
		want              string
	}{
		{"GET", "http://api.example.com/x?a=1", "", nil, `GET api.example.com /x?a=1 "" auth= len=0`},
		{"PUT", "http://API.example.com:80/y", "hello", nil, `PUT api.example.com /y "hello" auth= len=5`},
		{"GET", "http://api.example.com/", "", []string{"Proxy-Authorization", "Basic eDp5", "Te", "trailers", "Keep-Alive", "5"}, `GET api.example.com / "" auth= len=0`},
	} {
		res, got, err := w.do(tt.method, tt.url, tt.body, tt.header...)
		if err != nil || res.StatusCode != 200 || got != tt.want || res.Header.Get("Proxy-Status") != "" {
			t.Errorf("%s %s: %v %q, want %q", tt.method, tt.url, err, got, tt.want)
		}
	}
	if _, _, refused := w.told(); len(refused) > 0 {
		t.Errorf("told of %v", refused)
	}
}

// TestStreams has both bodies go by pieces, at the same time.
func TestStreams(t *testing.T) {
	w := newWorld(t, `{"http":["https://api.example.com","http://api.example.com"]}`)
	talk := func(rw http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(rw)
		_ = c.EnableFullDuplex()
		fmt.Fprintln(rw, "begun")
		_ = c.Flush()
		lines := bufio.NewScanner(r.Body)
		for lines.Scan() {
			fmt.Fprintln(rw, "got", lines.Text())
			_ = c.Flush()
		}
	}
	w.host("api.example.com", apiAddr+":443", talk)
	w.host("api.example.com", apiAddr+":80", talk)
	for _, scheme := range []string{"https", "http"} {
		in, feed := io.Pipe()
		req, err := http.NewRequestWithContext(t.Context(), "POST", scheme+"://api.example.com/talk", in)
		if err != nil {
			t.Fatal(err)
		}
		res, err := w.client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(res.Body)
		for _, say := range []string{"begun", "one~!~!~!~!", "two~!~!~!~!"} { // what may be a part of a placeholder is held back
			want := say
			if say != "begun" {
				fmt.Fprintln(feed, say)
				want = "got " + say
			}
			if !lines.Scan() || lines.Text() != want {
				t.Fatalf("%s: %q, %v; want %q", scheme, lines.Text(), lines.Err(), want)
			}
		}
		_ = feed.Close()
		if lines.Scan() || lines.Err() != nil {
			t.Errorf("%s: the end is %q, %v", scheme, lines.Text(), lines.Err())
		}
		_ = res.Body.Close()
	}
}

// TestTunnel speaks by TLS to a host of which a part is granted, and has a secret put in outside.
func TestTunnel(t *testing.T) {
	w := newWorld(t, `{"http":["GET,POST https://api.example.com/v1/**"],"secrets":["key"]}`)
	w.host("api.example.com", apiAddr+":443", echo)
	res, got, err := w.do("POST", "https://api.example.com/v1/x", "hi", "Authorization", "Bearer {{secret:key}}")
	if err != nil || res.StatusCode != 200 {
		t.Fatal(err, got)
	}
	if strings.Contains(got, canary) || strings.Contains(res.Header.Get("X-Saw"), canary) || !strings.Contains(got, "auth=Bearer [secret]") {
		t.Errorf("the host saw %q, and the box %q", got, res.Header.Get("X-Saw"))
	}
	if cs := res.TLS; cs == nil || cs.NegotiatedProtocol != "http/1.1" || cs.PeerCertificates[0].Issuer.CommonName != "Skep sandbox 01BOX" {
		t.Errorf("TLS %+v", cs)
	}
	w.told()
	for _, tt := range []struct{ method, url, secret, want, what string }{
		{"DELETE", "https://api.example.com/v1/x", "", "DELETE https://api.example.com/v1/x", "DELETE https://api.example.com/v1/x"},
		{"GET", "https://api.example.com/v2/x?q=1", "", "is not in the network", "GET https://api.example.com/v2/x"},
		{"GET", "https://api.example.com/v1/../v2", "", "is not in the network", "GET https://api.example.com/v1/../v2"},
		{"GET", "https://api.example.com/v1/x", "other", `the secret "other"`, "GET https://api.example.com/v1/x"},
	} {
		h := []string{"X-Key", "none"}
		if tt.secret != "" {
			h[1] = "{{secret:" + tt.secret + "}}"
		}
		if tt.want == "DELETE https://api.example.com/v1/x" {
			tt.want = "is not in the network"
		}
		res, got, err := w.do(tt.method, tt.url, "", h...)
		if err != nil {
			t.Fatal(err)
		}
		_, _, refused := w.told()
		if res.StatusCode != 403 && res.StatusCode != 404 || !strings.Contains(got, tt.want) || res.Header.Get("Proxy-Status") == "" {
			t.Errorf("%s %s: %d %q, want %q", tt.method, tt.url, res.StatusCode, got, tt.want)
		}
		if res.StatusCode == 403 && (len(refused) != 1 || refused[0].Grant != "http" || refused[0].What != tt.what || !strings.Contains(refused[0].Reason, tt.want)) {
			t.Errorf("%s %s: told of %+v", tt.method, tt.url, refused)
		}
	}
	if seen := w.requests(); !slices.Equal(seen, []string{"POST /v1/x"}) {
		t.Errorf("the host was asked %q", seen)
	}
}

// TestBothHaveToAllow grants what the environment has not, and has what is not granted.
func TestBothHaveToAllow(t *testing.T) {
	w := newWorld(t, `{"http":["https://api.example.com"]}`)
	w.host("api.example.com", apiAddr+":443", echo)
	w.host("pkg.example.com", pkgAddr+":443", echo)
	more, err := agent.ParseTarget("https://pkg.example.com")
	if err != nil {
		t.Fatal(err)
	}
	w.network = append(w.network, more)
	if _, got, err := w.do("GET", "https://pkg.example.com/", ""); err != nil || !strings.Contains(got, "is not granted") {
		t.Errorf("not granted: %q %v", got, err)
	}
	w.network = w.network[1:]
	w.grant(agent.Grants{HTTP: []agent.HTTPGrant{{Allow: more}, {Allow: agent.Target{Scheme: "http", Host: "api.example.com", Port: "80"}}}})
	if _, got, err := w.do("GET", "http://api.example.com/", ""); err != nil || !strings.Contains(got, "is not in the network") {
		t.Errorf("not in the network: %q %v", got, err)
	}
	if _, got, err := w.do("GET", "https://pkg.example.com/", ""); err != nil || !strings.HasPrefix(got, "GET pkg.example.com /") {
		t.Errorf("both: %q %v", got, err)
	}
	if seen := w.requests(); len(seen) != 1 {
		t.Errorf("hosts were asked %q", seen)
	}
}

// TestNarrowed takes a grant back while a response comes.
func TestNarrowed(t *testing.T) {
	w := newWorld(t, `{"http":["https://api.example.com"]}`)
	more := make(chan struct{})
	w.host("api.example.com", apiAddr+":443", func(rw http.ResponseWriter, r *http.Request) {
		for {
			fmt.Fprintln(rw, "line")
			if http.NewResponseController(rw).Flush() != nil {
				return
			}
			select {
			case <-more:
			case <-r.Context().Done():
				return
			}
		}
	})
	res, err := w.client().Get("https://api.example.com/")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	in := bufio.NewReader(res.Body)
	if _, err := in.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	w.grant(agent.Grants{})
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			select {
			case more <- struct{}{}:
			case <-stop:
				return
			}
		}
	}()
	if _, err := io.Copy(io.Discard, in); err == nil {
		t.Error("the response came to its end")
	}
	if _, _, refused := w.told(); len(refused) != 1 || !strings.Contains(refused[0].Reason, "taken back") {
		t.Errorf("told of %v", refused)
	}
}

// TestCut has a host break off in the middle: the box must not take what came for the whole.
func TestCut(t *testing.T) {
	w := newWorld(t, `{"http":["https://api.example.com","http://api.example.com"]}`)
	cut := func(rw http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(rw, "half")
		_ = http.NewResponseController(rw).Flush()
		panic(http.ErrAbortHandler)
	}
	w.host("api.example.com", apiAddr+":443", cut)
	w.host("api.example.com", apiAddr+":80", cut)
	for _, scheme := range []string{"http", "https"} {
		if _, got, err := w.do("GET", scheme+"://api.example.com/", ""); err == nil {
			t.Errorf("%s: %q is taken for the whole", scheme, got)
		}
	}
}

// TestAuthorityIsKept wants the next server to show certificates that the box trusts, and no other box to trust them.
func TestAuthorityIsKept(t *testing.T) {
	one, two := newWorld(t, `{}`), newWorld(t, `{}`)
	if one.door.CA() != two.door.CA() {
		t.Error("the authority of the same box is another one")
	}
	for name, change := range map[string]func(*Options){
		"another box":    func(o *Options) { o.Box = "02BOX" },
		"another secret": func(o *Options) { o.Secret = bytes.Repeat([]byte{8}, 32) },
		"no secret":      func(o *Options) { o.Secret = nil },
	} {
		other := newWorld(t, `{}`, change)
		c, err := other.door.ca.certificate("api.example.com")
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM([]byte(one.door.CA()))
		if _, err := c.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "api.example.com"}); err == nil {
			t.Errorf("%s is trusted", name)
		}
	}
	c, err := two.door.ca.certificate("2606:2800:220:1::1")
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(one.door.CA()))
	if _, err := c.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "2606:2800:220:1::1"}); err != nil {
		t.Error(err)
	}
	if again, err := two.door.ca.certificate("2606:2800:220:1::1"); err != nil || again != c {
		t.Errorf("the certificate is made anew: %v", err)
	}
}

// TestServerName has a client in a tunnel ask for another name than the tunnel's.
func TestServerName(t *testing.T) {
	w := newWorld(t, `{"http":["https://api.example.com"]}`)
	w.host("api.example.com", apiAddr+":443", echo)
	for name, good := range map[string]bool{"api.example.com": true, "API.Example.com": true, "": true, "evil.example.com": false} {
		conn := w.connection()
		fmt.Fprint(conn, "CONNECT api.example.com:443 HTTP/1.1\r\nHost: api.example.com:443\r\n\r\n")
		if res, _ := readResponse(t, bufio.NewReader(conn), "CONNECT"); res.StatusCode != 200 {
			t.Fatal(res.Status)
		}
		secure := tls.Client(conn, &tls.Config{ServerName: name, InsecureSkipVerify: true})
		if err := secure.Handshake(); (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
	}
}
