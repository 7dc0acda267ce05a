package door

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway"
	"github.com/skep-dev/skep/host/egress"
	"github.com/skep-dev/skep/host/grant"
	"github.com/skep-dev/skep/vault"
	"github.com/skep-dev/skep/vault/inject"
)

// Public addresses of hosts in the world of the tests. No packet goes to them: the dialer leads to loopback, and writes down what it is asked for.
const (
	apiAddr = "93.184.216.34"
	pkgAddr = "93.184.216.66"
	testKey = "skb_key-of-this-box"
	canary  = "s3cr3t-canary-0451"
)

// world is a box's door with an internet of its own behind it.
type world struct {
	t      *testing.T
	door   *Door
	socket string
	roots  *x509.CertPool // that the outside trusts
	ca     *x509.Certificate
	key    *ecdsa.PrivateKey
	auth   *grant.Authority
	out    *egress.Egress
	inject *inject.Injector

	mu      sync.Mutex
	grants  agent.Grants
	network []agent.Target
	names   map[string][]string
	servers map[string]string // public address and port → address on loopback
	dialled []string
	asked   []string
	seen    []string // requests that came to hosts, as METHOD PATH
	refused []agent.Refusal
	caller  func() (gateway.Caller, error)
}

// newWorld makes a box that is granted and allowed what grants says in JSON. change may change the options of its door.
func newWorld(t *testing.T, grants string, change ...func(*Options)) *world {
	t.Helper()
	w := &world{t: t, names: map[string][]string{}, servers: map[string]string{}}
	if err := json.Unmarshal([]byte(grants), &w.grants); err != nil {
		t.Fatal(err)
	}
	for _, g := range w.grants.HTTP {
		w.network = append(w.network, g.Allow)
	}
	w.authority()
	w.auth = grant.NewAuthority(grant.Subject{App: agent.DefaultApp, Agent: "a", Run: "r"}, func() agent.Grants {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.grants
	}, nil, nil)
	w.out = egress.New(&egress.Options{Resolver: w, Dial: w.dial, RootCAs: w.roots})
	w.inject = inject.New(secrets{}, nil)
	o := &Options{
		Box: "01BOX", Key: testKey, Way: (*way)(w), Secret: bytes.Repeat([]byte{7}, 32),
		Caller: func(context.Context) (gateway.Caller, error) { return w.caller() },
		Refused: func(_ context.Context, r agent.Refusal) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.refused = append(w.refused, r)
		},
	}
	for _, f := range change {
		f(o)
	}
	var err error
	if w.door, err = New(o); err != nil {
		t.Fatal(err)
	}
	w.serve()
	return w
}

// serve listens as the keeper does.
func (w *world) serve() {
	dir, err := os.MkdirTemp("", "door") // t.TempDir's are too long for a socket
	if err != nil {
		w.t.Fatal(err)
	}
	w.socket = filepath.Join(dir, "s")
	l, err := net.Listen("unix", w.socket)
	if err != nil {
		w.t.Fatal(err)
	}
	s := &http.Server{Handler: w.door, MaxHeaderBytes: MaxHeader, ErrorLog: log.New(io.Discard, "", 0)}
	var all sync.WaitGroup
	all.Go(func() { _ = s.Serve(l) })
	w.t.Cleanup(func() {
		_ = w.door.Close()
		_ = s.Close()
		all.Wait()
		_ = w.out.Close()
		_ = os.RemoveAll(dir)
	})
}

// client is a client in the box that uses the proxy and trusts its authority.
func (w *world) client() *http.Client {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(w.door.CA())) {
		w.t.Fatal("the authority's certificate cannot be read")
	}
	tr := &http.Transport{
		Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: "127.0.0.1:18080"}), TLSClientConfig: &tls.Config{RootCAs: roots, NextProtos: []string{"http/1.1"}}, DisableCompression: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", w.socket)
		},
	}
	w.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// do makes a request as a client in the box does, and reads the response whole.
func (w *world) do(method, url, body string, header ...string) (*http.Response, string, error) {
	w.t.Helper()
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(w.t.Context(), method, url, in)
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	res, err := w.client().Do(req)
	if err != nil {
		return nil, "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return res, string(b), err
}

// raw sends bytes, and returns what comes until the connection ends or a response is there.
func (w *world) raw(text string) (*http.Response, string) {
	w.t.Helper()
	conn := w.connection()
	if _, err := io.WriteString(conn, text); err != nil {
		w.t.Logf("writing: %v", err) // the answer may have come early
	}
	return readResponse(w.t, bufio.NewReader(conn), text)
}

func readResponse(t *testing.T, r *bufio.Reader, request string) (*http.Response, string) {
	t.Helper()
	method, _, _ := strings.Cut(request, " ")
	res, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil {
		t.Fatalf("no response: %v", err)
	}
	if res.StatusCode == http.StatusOK && method == http.MethodConnect {
		return res, ""
	}
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(b)
}

func (w *world) connection() net.Conn {
	w.t.Helper()
	conn, err := net.Dial("unix", w.socket)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	return conn
}

func (w *world) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, host)
	var out []netip.Addr
	for _, a := range w.names[strings.TrimSuffix(host, ".")] {
		out = append(out, netip.MustParseAddr(a))
	}
	if out == nil {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return out, nil
}

func (w *world) dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	w.mu.Lock()
	w.dialled = append(w.dialled, to.String())
	at, found := w.servers[to.String()]
	w.mu.Unlock()
	if !found {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	return new(net.Dialer).DialContext(ctx, "tcp", at)
}

// told returns what was dialled, looked up and told of since the last call.
func (w *world) told() (dialled, asked []string, refused []agent.Refusal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	dialled, asked, refused = w.dialled, w.asked, w.refused
	w.dialled, w.asked, w.refused = nil, nil, nil
	return dialled, asked, refused
}

// host serves a handler for a name, by TLS when addrPort ends in 443.
func (w *world) host(name, addrPort string, h http.HandlerFunc) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		w.seen = append(w.seen, r.Method+" "+r.URL.Path)
		w.mu.Unlock()
		h(rw, r)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	if strings.HasSuffix(addrPort, "443") {
		s.TLS = &tls.Config{Certificates: []tls.Certificate{w.cert(name)}}
		s.StartTLS()
	} else {
		s.Start()
	}
	w.t.Cleanup(s.Close)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names[name] = []string{netip.MustParseAddrPort(addrPort).Addr().String()}
	w.servers[addrPort] = s.Listener.Addr().String()
}

// requests are what came to hosts.
func (w *world) requests() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.seen)
}

// grant changes what the agent is granted.
func (w *world) grant(g agent.Grants) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.grants = g
}

// authority makes who signs for the outside.
func (w *world) authority() {
	var err error
	if w.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		w.t.Fatal(err)
	}
	now := time.Now()
	t := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "outside"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, w.key.Public(), w.key)
	if err != nil {
		w.t.Fatal(err)
	}
	if w.ca, err = x509.ParseCertificate(der); err != nil {
		w.t.Fatal(err)
	}
	w.roots = x509.NewCertPool()
	w.roots.AddCert(w.ca)
}

func (w *world) cert(name string) tls.Certificate {
	now := time.Now()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{name}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, w.ca, w.key.Public(), w.key)
	if err != nil {
		w.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: w.key}
}

// secrets has one, which is bound to a header of the API.
type secrets struct{}

func (secrets) Material(_ context.Context, app agent.App, name string) (vault.Material, error) {
	if name != "key" {
		return vault.Material{}, agent.Errorf(agent.NotFound, "no secret %s", name)
	}
	s := agent.Secret{App: app, Name: name, Kind: agent.SecretValue, Version: 1}
	var b agent.Binding
	if err := b.UnmarshalText([]byte("https://api.example.com/** header:authorization")); err != nil {
		return vault.Material{}, err
	}
	s.Bindings = append(s.Bindings, b)
	return vault.Material{Secret: s, Value: []byte(canary)}, nil
}

// way is the Way of a world, made of the parts that package runtime makes its own of.
type way world

func (w *way) Client() Client { return &client{way: w} }

func (w *way) Reach(ctx context.Context, to agent.Request) error {
	to.Method, to.Path = http.MethodGet, "/"
	for _, t := range w.network {
		if t.Methods, t.Path = nil, ""; t.Has(to) {
			return nil
		}
	}
	return w.auth.HTTP(ctx, to)
}

type client struct {
	*way
	now agent.Request
}

func (c *client) Do(ctx context.Context, r *egress.Request) (*egress.Response, error) {
	r.Owner = egress.Owner{App: agent.DefaultApp, Agent: "a"}
	return c.out.Do(ctx, c, r)
}

func (c *client) Still(ctx context.Context) error { return c.auth.StillHTTP(ctx, c.now) }

func (c *client) Allow(ctx context.Context, to agent.Request) error {
	c.now = to
	if !slices.ContainsFunc(c.network, func(t agent.Target) bool { return t.Has(to) }) {
		return agent.Errorf(agent.Denied, "%s is not in the network of the environment", to.Origin())
	}
	return c.auth.HTTP(ctx, to)
}

func (c *client) Sign(ctx context.Context, req *http.Request, to agent.Request) (egress.Cleaner, error) {
	clean, err := c.inject.Sign(ctx, inject.Use{
		App: agent.DefaultApp, Agent: "a", Allow: func(ctx context.Context, name string) error { return c.auth.Secret(ctx, name, to) },
		Audit: func(context.Context, agent.SecretUse) error { return nil },
	}, req, to)
	if clean == nil || err != nil {
		return nil, err
	}
	return clean, nil
}
