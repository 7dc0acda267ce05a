package door

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
)

const everything = `{"http":["http://*:*","https://*:*"]}`

// TestAddresses asks for addresses that are not public, with everything granted: by a CONNECT, a whole URL, and a name that resolves to them. Nothing is
// dialled, and each is told of.
func TestAddresses(t *testing.T) {
	w := newWorld(t, everything)
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	list := []string{
		"127.0.0.1", "127.1.2.3", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.17.0.1", "192.168.1.1", "100.64.0.1", "100.100.100.200", "169.254.169.254", "169.254.170.2",
		"169.254.0.1", "168.63.129.16", "192.0.0.192", "198.18.0.1", "224.0.0.1", "255.255.255.255", "240.0.0.1", "::", "::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254",
		"64:ff9b::127.0.0.1", "64:ff9b::169.254.169.254", "2002:7f00:1::1", "2001::1", "fd00:ec2::254", "fd20:ce::254", "fc00::1", "fe80::1", "ff02::1", "4000::1",
	}
	for _, a := range own {
		host, _, _ := strings.Cut(a.String(), "/")
		if addr, err := netip.ParseAddr(host); err == nil {
			list = append(list, addr.WithZone("").String())
		}
	}
	for i, text := range list {
		addr := netip.MustParseAddr(text)
		name := fmt.Sprintf("n%d.example.com", i)
		w.names[name] = []string{apiAddr, text} // one bad address refuses the name
		host := text
		if addr.Is6() {
			host = "[" + text + "]"
		}
		for _, ask := range []string{"http://" + host + "/", "http://" + name + "/", "http://" + host + ":2375/containers/json", "https://" + name + "/", "https://" + host + "/"} {
			res, got, err := w.do("GET", ask, "")
			if err != nil { // the client got the refusal as the answer to its CONNECT
				if !addr.Is4In6() {
					t.Errorf("%s: %v", ask, err)
				}
				continue
			}
			if res.StatusCode != 403 && !(res.StatusCode == 400 && addr.Is4In6()) || !strings.HasPrefix(got, "skep: ") {
				t.Errorf("%s: %d %q", ask, res.StatusCode, got)
			}
		}
		dialled, _, refused := w.told()
		if len(dialled) > 0 {
			t.Errorf("%s: dialled %v", text, dialled)
		}
		if i == 0 && len(refused) != 5 {
			t.Errorf("told of %+v", refused)
		}
	}
}

// TestRebinding has a name resolve to a public address first, and to loopback when it is dialled.
func TestRebinding(t *testing.T) {
	w := newWorld(t, everything)
	w.host("api.example.com", apiAddr+":443", echo)
	if res, _, err := w.do("GET", "https://api.example.com/", ""); err != nil || res.StatusCode != 200 {
		t.Fatal(res, err)
	}
	w.names["api.example.com"] = []string{"127.0.0.1"}
	w.told()
	w.out.Close() // idle connections
	res, got, err := w.do("GET", "https://api.example.com/", "")
	if dialled, _, _ := w.told(); err != nil || res.StatusCode != 403 || !strings.Contains(got, "loopback") || len(dialled) > 0 {
		t.Errorf("%v %q %v; dialled %v", res, got, err, dialled)
	}
}

// TestOddForms sends what no client of good will sends. Nothing is resolved or dialled.
func TestOddForms(t *testing.T) {
	long := strings.Repeat("a", 20<<10)
	for name, tt := range map[string]struct {
		request string
		status  int
		words   string
	}{
		"no proxy":                   {"GET /containers/json HTTP/1.1\r\nHost: localhost\r\n\r\n", 404, "nothing here"},
		"no proxy, granted host":     {"GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n", 404, "nothing here"},
		"not granted":                {"GET http://evil.example.com/ HTTP/1.1\r\nHost: api.example.com\r\n\r\n", 403, "is not in the network"},
		"connect, not granted":       {"CONNECT evil.example.com:443 HTTP/1.1\r\nHost: api.example.com:443\r\n\r\n", 403, "is not granted"},
		"connect, another port":      {"CONNECT api.example.com:8443 HTTP/1.1\r\nHost: api.example.com\r\n\r\n", 403, "is not granted"},
		"connect to plain HTTP":      {"CONNECT api.example.com:80 HTTP/1.1\r\nHost: api.example.com\r\n\r\n", 403, "is not granted"},
		"connect to SSH":             {"CONNECT api.example.com:22 HTTP/1.1\r\nHost: api.example.com\r\n\r\n", 403, "is not granted"},
		"connect without a port":     {"CONNECT api.example.com HTTP/1.1\r\nHost: api.example.com\r\n\r\n", 400, "names a host and a port"},
		"connect with an empty port": {"CONNECT api.example.com: HTTP/1.1\r\nHost: api.example.com\r\n\r\n", 400, "names a host and a port"},
		"connect with port 0":        {"CONNECT api.example.com:0 HTTP/1.1\r\nHost: api.example.com\r\n\r\n", 400, "not a number"},
		"connect with a high port":   {"CONNECT api.example.com:65979 HTTP/1.1\r\nHost: api.example.com\r\n\r\n", 400, ""},
		"connect with a name's port": {"CONNECT api.example.com:https HTTP/1.1\r\nHost: api.example.com\r\n\r\n", 400, ""},
		"connect with a user":        {"CONNECT api.example.com:443@evil.example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n", 400, ""},
		"connect with a password":    {"CONNECT u:p@api.example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n", 400, ""},
		"connect with a path":        {"CONNECT api.example.com:443/x HTTP/1.1\r\nHost: x\r\n\r\n", 400, ""},
		"connect by a path":          {"CONNECT /x HTTP/1.1\r\nHost: api.example.com:443\r\n\r\n", 400, ""},
		"connect with a URL":         {"CONNECT https://api.example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n", 400, ""},
		"connect with a query":       {"CONNECT api.example.com:443?x HTTP/1.1\r\nHost: x\r\n\r\n", 400, ""},
		"connect to a number":        {"CONNECT 2130706433:443 HTTP/1.1\r\nHost: x\r\n\r\n", 400, "unusual form"},
		"connect to octal":           {"CONNECT 0177.0.0.1:443 HTTP/1.1\r\nHost: x\r\n\r\n", 400, "unusual form"},
		"connect to hexadecimal":     {"CONNECT 0x7f.1:443 HTTP/1.1\r\nHost: x\r\n\r\n", 400, "unusual form"},
		"connect to a short address": {"CONNECT 127.1:443 HTTP/1.1\r\nHost: x\r\n\r\n", 400, "unusual form"},
		"connect to a zone":          {"CONNECT [fe80::1%25eth0]:443 HTTP/1.1\r\nHost: x\r\n\r\n", 400, ""},
		"connect to nothing":         {"CONNECT :443 HTTP/1.1\r\nHost: x\r\n\r\n", 400, ""},
		"connect to a dot":           {"CONNECT .:443 HTTP/1.1\r\nHost: x\r\n\r\n", 400, ""},
		"connect with a body":        {"CONNECT api.example.com:443 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", 400, "no body"},
		"connect in chunks":          {"CONNECT api.example.com:443 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "no body"},
		"connect to a long name":     {"CONNECT " + long + ":443 HTTP/1.1\r\nHost: x\r\n\r\n", 400, ""},
		"a user":                     {"GET http://api.example.com@evil.example.com/ HTTP/1.1\r\nHost: api.example.com\r\n\r\n", 400, "a user or a password"},
		"a user and password":        {"GET http://u:hunter2@api.example.com/ HTTP/1.1\r\nHost: api.example.com\r\n\r\n", 400, "a user or a password"},
		"a backslash":                {"GET http://evil.example.com\\@api.example.com/ HTTP/1.1\r\nHost: x\r\n\r\n", 400, ""},
		"a number for a host":        {"GET http://2130706433/ HTTP/1.1\r\nHost: api.example.com\r\n\r\n", 400, "unusual form"},
		"IPv4 in IPv6":               {"GET http://[::ffff:7f00:1]/ HTTP/1.1\r\nHost: api.example.com\r\n\r\n", 400, "IPv4 address in IPv6"},
		"another scheme":             {"GET ftp://api.example.com/ HTTP/1.1\r\nHost: api.example.com\r\n\r\n", 400, "does not begin with"},
		"a file":                     {"GET file:///etc/passwd HTTP/1.1\r\nHost: api.example.com\r\n\r\n", 400, ""},
		"a socket":                   {"GET unix:///var/run/docker.sock HTTP/1.1\r\nHost: api.example.com\r\n\r\n", 400, ""},
		"dots":                       {"GET http://api.example.com/v1/..;/admin HTTP/1.1\r\nHost: api.example.com\r\n\r\n", 400, ""},
		"TRACE":                      {"TRACE http://api.example.com/ HTTP/1.1\r\nHost: api.example.com\r\n\r\n", 400, "not for requests"},
		"a long URL":                 {"GET http://api.example.com/" + long + " HTTP/1.1\r\nHost: api.example.com\r\n\r\n", 413, ""},
		"a long header":              {"GET http://api.example.com/ HTTP/1.1\r\nHost: api.example.com\r\nX: " + strings.Repeat("b", 66<<10) + "\r\n\r\n", 413, ""},
		"an endless header":          {"GET http://api.example.com/ HTTP/1.1\r\nHost: api.example.com\r\nX: " + strings.Repeat("b", 90<<10) + "\r\n\r\n", 431, ""},
		"many headers":               {"GET http://api.example.com/ HTTP/1.1\r\nHost: api.example.com\r\n" + strings.Repeat("X: b\r\n", 101) + "\r\n", 413, ""},
		"a WebSocket":                {"GET http://api.example.com/ HTTP/1.1\r\nHost: api.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n", 403, "WebSockets"},
		"another host's proxy":       {"GET http://api.example.com/ HTTP/1.1\r\nHost: api.example.com\r\nProxy: http://evil\r\n\r\n", 400, "Proxy"},
		"two lengths":                {"POST http://api.example.com/ HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 400, ""},
		"a length that is none":      {"POST http://api.example.com/ HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: +5\r\n\r\nhello", 400, ""},
		"an unknown coding":          {"POST http://api.example.com/ HTTP/1.1\r\nHost: api.example.com\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 501, ""},
		"two hosts":                  {"GET http://api.example.com/ HTTP/1.1\r\nHost: api.example.com\r\nHost: evil.example.com\r\n\r\n", 400, ""},
		"a folded header":            {"GET http://api.example.com/ HTTP/1.1\r\nHost: api.example.com\r\nX : y\r\n\r\n", 400, ""},
		"HTTP/2":                     {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 404, ""},
		"the driver's path":          {"GET http://api.example.com:8080/driver HTTP/1.1\r\nHost: api.example.com\r\n\r\n", 403, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, `{"http":["http://api.example.com","https://api.example.com"]}`)
			w.names["api.example.com"] = []string{apiAddr}
			res, got := w.raw(tt.request)
			if res.StatusCode != tt.status || !strings.Contains(got, tt.words) || strings.Contains(got, "hunter2") {
				t.Errorf("%d %.300q; want %d with %q", res.StatusCode, got, tt.status, tt.words)
			}
			dialled, asked, refused := w.told()
			if len(dialled)+len(asked) > 0 {
				t.Errorf("looked up %v, dialled %v", asked, dialled)
			}
			for _, r := range refused {
				if len(r.What) > 600 || strings.Contains(r.What, "hunter2") || strings.ContainsAny(r.What, "\r\n") {
					t.Errorf("told of %+v", r)
				}
			}
			if res.StatusCode == 403 && len(refused) != 1 {
				t.Errorf("told of %+v", refused)
			}
		})
	}
}

// TestHostHeader wants the URL to say where a request goes, whatever the header Host says, and the tunnel where it is in one.
func TestHostHeader(t *testing.T) {
	w := newWorld(t, `{"http":["http://api.example.com","https://api.example.com","https://pkg.example.com"]}`)
	w.host("api.example.com", apiAddr+":80", echo)
	res, got := w.raw("GET http://api.example.com/x HTTP/1.1\r\nHost: pkg.example.com\r\nConnection: close\r\n\r\n")
	if res.StatusCode != 200 || got != `GET api.example.com /x "" auth= len=0` {
		t.Errorf("%d %q", res.StatusCode, got)
	}
	w.host("api.example.com", apiAddr+":443", echo)
	w.host("pkg.example.com", pkgAddr+":443", echo)
	for request, want := range map[string]string{
		"GET /y HTTP/1.1\r\nHost: api.example.com\r\n\r\n":                              `GET api.example.com /y`,
		"GET /y HTTP/1.1\r\nHost: API.example.com:443\r\n\r\n":                          `GET api.example.com /y`,
		"GET https://api.example.com/y HTTP/1.1\r\nHost: pkg.example.com\r\n\r\n":       `GET api.example.com /y`,
		"GET /y HTTP/1.0\r\n\r\n":                                                       `GET api.example.com /y`,
		"GET /y HTTP/1.1\r\nHost: pkg.example.com\r\n\r\n":                              "skep: the tunnel is to https://api.example.com",
		"GET /y HTTP/1.1\r\nHost: api.example.com:8443\r\n\r\n":                         "skep: the tunnel is to https://api.example.com",
		"GET https://pkg.example.com/y HTTP/1.1\r\nHost: api.example.com\r\n\r\n":       "skep: the tunnel is to https://api.example.com",
		"GET http://api.example.com/y HTTP/1.1\r\nHost: api.example.com\r\n\r\n":        "skep: the tunnel is to https://api.example.com",
		"GET http://api.example.com:443/y HTTP/1.1\r\nHost: api.example.com\r\n\r\n":    "skep: the tunnel is to https://api.example.com",
		"GET /y HTTP/1.1\r\nHost: u@api.example.com\r\n\r\n":                            "400 Bad Request",
		"OPTIONS * HTTP/1.1\r\nHost: api.example.com\r\n\r\n":                           "skep: ",
		"CONNECT pkg.example.com:443 HTTP/1.1\r\nHost: pkg.example.com:443\r\n\r\n":     "skep: ",
		"GET /ai/v1/models HTTP/1.1\r\nHost: 127.0.0.1:18080\r\n\r\n":                   "skep: the tunnel is to",
		"GET /y HTTP/1.1\r\nHost: api.example.com\r\nUpgrade: websocket\r\n\r\n":        "skep: the request asks for another protocol",
		"GET /y HTTP/1.1\r\nHost: api.example.com\r\nUpgrade: h2c\r\nX_Host: e\r\n\r\n": `GET api.example.com /y`,
	} {
		before := len(w.requests())
		got := w.inTunnel(request)
		if !strings.HasPrefix(got, want) {
			t.Errorf("%q: %q, want %q", request, got, want)
		}
		if came := len(w.requests()) - before; strings.HasPrefix(want, "skep") && came > 0 {
			t.Errorf("%q came to a host", request)
		}
	}
}

// inTunnel sends bytes within a tunnel to the API, and returns the body of the answer.
func (w *world) inTunnel(request string) string {
	w.t.Helper()
	conn := w.connection()
	fmt.Fprint(conn, "CONNECT api.example.com:443 HTTP/1.1\r\nHost: api.example.com:443\r\n\r\n")
	if res, got := readResponse(w.t, bufio.NewReader(conn), "CONNECT"); res.StatusCode != 200 {
		w.t.Fatal(res.Status, got)
	}
	secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	fmt.Fprint(secure, request)
	_, got := readResponse(w.t, bufio.NewReader(secure), "GET")
	return got
}

// TestSmuggling sends requests whose end two readers could see in two places. A host gets one request for each that was judged, and nothing more.
func TestSmuggling(t *testing.T) {
	const inner = "GET http://api.example.com/smuggled HTTP/1.1\r\nHost: api.example.com\r\n\r\n"
	for name, tt := range map[string]struct {
		request string
		want    []string
	}{
		"length and chunks": {
			"POST http://api.example.com/a HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\n\r\n" + inner, []string{"POST /a"},
		},
		"a length that is too short": {
			"POST http://api.example.com/a HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" + inner, []string{"POST /a"},
		},
		"a body on GET": {
			fmt.Sprintf("GET http://api.example.com/a HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(inner), inner), []string{"GET /a"},
		},
		"length is of the connection": {
			"POST http://api.example.com/a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nConnection: close, content-length\r\n\r\nhello" + inner, []string{"POST /a"},
		},
		"an extension of a chunk": {
			"POST http://api.example.com/a HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n5;a=\"\n\"\r\nhello\r\n0\r\n\r\n" + inner, nil,
		},
		"a trailer": {
			"POST http://api.example.com/a HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTrailer: Content-Length\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 9\r\n\r\n" + inner,
			nil,
		},
		"a line in a header": {
			"POST http://api.example.com/a HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX: a\rGET /smuggled HTTP/1.1\r\n\r\n", nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, `{"http":["http://api.example.com"]}`)
			w.host("api.example.com", apiAddr+":80", echo)
			conn := w.connection()
			fmt.Fprint(conn, tt.request)
			_, _ = io.Copy(io.Discard, conn)
			seen := w.requests()
			if tt.want != nil && !slices.Equal(seen, tt.want) || slices.Contains(seen, "GET /smuggled") || len(seen) > 1 {
				t.Errorf("the host was asked %q", seen)
			}
		})
	}
}

// TestNotTLS speaks something else in a tunnel.
func TestNotTLS(t *testing.T) {
	w := newWorld(t, `{"http":["https://api.example.com:22"]}`)
	conn := w.connection()
	fmt.Fprint(conn, "CONNECT api.example.com:22 HTTP/1.1\r\nHost: x\r\n\r\n")
	r := bufio.NewReader(conn)
	if res, _ := readResponse(t, r, "CONNECT"); res.StatusCode != 200 {
		t.Fatal(res.Status)
	}
	fmt.Fprint(conn, "SSH-2.0-OpenSSH_9.6\r\n")
	res, got := readResponse(t, r, "GET")
	dialled, _, refused := w.told()
	if res.StatusCode != 403 || !strings.Contains(got, "not TLS") || len(dialled) > 0 || len(refused) != 1 {
		t.Errorf("%d %q; dialled %v, told of %v", res.StatusCode, got, dialled, refused)
	}
	if _, err := r.ReadByte(); err == nil {
		t.Error("the tunnel stays open")
	}
}

// TestBounds opens as many tunnels as there may be, and closes the door.
func TestBounds(t *testing.T) {
	w := newWorld(t, `{"http":["https://api.example.com","http://api.example.com"]}`)
	w.host("api.example.com", apiAddr+":80", echo)
	var open []net.Conn
	for range MaxConnections {
		conn := w.connection()
		fmt.Fprint(conn, "CONNECT api.example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n")
		if res, got := readResponse(t, bufio.NewReader(conn), "CONNECT"); res.StatusCode != 200 {
			t.Fatal(res.Status, got)
		}
		open = append(open, conn)
	}
	for _, request := range []string{"CONNECT api.example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n", "GET http://api.example.com/ HTTP/1.1\r\nHost: x\r\n\r\n"} {
		if res, got := w.raw(request); res.StatusCode != 429 || res.Header.Get("Retry-After") != "1" || !strings.Contains(got, "64") {
			t.Errorf("%d %q", res.StatusCode, got)
		}
	}
	_ = open[0].Close()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(20 * time.Second); ; { // until the server has seen it
		if res, _ := w.raw("GET http://api.example.com/ HTTP/1.1\r\nHost: x\r\n\r\n"); res.StatusCode == 200 {
			break
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("the place of a tunnel that has ended is not free")
		}
	}
	_ = w.door.Close()
	for _, conn := range open[1:] {
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("a tunnel outlives the door")
		}
	}
	if res, got := w.raw("GET http://api.example.com/ HTTP/1.1\r\nHost: x\r\n\r\n"); res.StatusCode != 502 || !strings.Contains(got, "closed") {
		t.Errorf("%d %q", res.StatusCode, got)
	}
	if err := w.door.Close(); err != nil {
		t.Error(err)
	}
}

// TestClientGone has the box give up a request: it ends outside, too.
func TestClientGone(t *testing.T) {
	w := newWorld(t, `{"http":["https://api.example.com","http://api.example.com"]}`)
	begun, ended := make(chan struct{}), make(chan struct{})
	wait := func(_ http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		<-r.Context().Done()
		ended <- struct{}{}
	}
	w.host("api.example.com", apiAddr+":443", wait)
	w.host("api.example.com", apiAddr+":80", wait)
	for _, scheme := range []string{"http", "https"} {
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, "GET", scheme+"://api.example.com/", nil)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := w.client().Do(req)
			done <- err
		}()
		<-begun
		cancel()
		<-ended
		if err := <-done; err == nil {
			t.Error("the request went well")
		}
	}
}

// TestFlood wants a box that asks for much that it may not have to have a part of it told.
func TestFlood(t *testing.T) {
	w := newWorld(t, `{}`)
	for i := range 100 {
		if res, _ := w.raw(fmt.Sprintf("GET http://h%d.example.com/ HTTP/1.1\r\nHost: x\r\n\r\n", i/2)); res.StatusCode != 403 {
			t.Fatal(res.Status)
		}
	}
	if _, _, refused := w.told(); len(refused) != toldMost || refused[1].More != 1 {
		t.Errorf("told of %d: %+v", len(refused), refused)
	}
}

// TestNoWay has a door with nothing behind it.
func TestNoWay(t *testing.T) {
	w := newWorld(t, everything, func(o *Options) { o.Way = nil })
	for _, request := range []string{
		"CONNECT api.example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n", "GET http://api.example.com/ HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		if res, got := w.raw(request); res.StatusCode != 403 || !strings.Contains(got, "nothing outside") {
			t.Errorf("%d %q", res.StatusCode, got)
		}
	}
	if res, got := w.raw("GET /ai/v1/models HTTP/1.1\r\nHost: x\r\n\r\n"); res.StatusCode != 404 || !strings.Contains(got, "no model gateway") {
		t.Errorf("%d %q", res.StatusCode, got)
	}
}

// TestStatus has a status for every kind of error.
func TestStatus(t *testing.T) {
	want := map[agent.Kind]int{
		agent.Internal: 500, agent.Invalid: 400, agent.Unauthenticated: 401, agent.Denied: 403, agent.NotFound: 404, agent.Exists: 409, agent.Conflict: 409,
		agent.Exhausted: 429, agent.Unavailable: 502, agent.Failed: 502, agent.Cancelled: 502,
	}
	for _, k := range agent.Kinds() {
		if got := statusOf(agent.Errorf(k, "x")); got != want[k] {
			t.Errorf("%v: %d, want %d", k, got, want[k])
		}
	}
}
