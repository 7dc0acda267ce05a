package egress

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
)

// Public addresses of hosts in the world of the tests. No packet goes to them: the dialer of the world leads to loopback.
const (
	apiAddr   = "93.184.216.34"
	evilAddr  = "93.184.216.66"
	apiAddrV6 = "2606:2800:220:1::1"
)

// world is an internet of its own: names, and servers on loopback that stand for public ones. Its dialer writes down each
// address that it is asked for.
type world struct {
	t   testing.TB
	pki *pki

	mu      sync.Mutex
	names   map[string][]string
	servers map[string]string // public address and port → address on loopback
	dialled []string
	asked   []string
}

func newWorld(t testing.TB) *world {
	return &world{t: t, pki: newPKI(t), names: map[string][]string{}, servers: map[string]string{}}
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
	var d net.Dialer
	return d.DialContext(ctx, "tcp", at)
}

func (w *world) dials() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string{}, w.dialled...)
}

func (w *world) lookups() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string{}, w.asked...)
}

// host gives a name an address with a server behind it.
func (w *world) host(name, addrPort, loopback string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names[name] = []string{netip.MustParseAddrPort(addrPort).Addr().String()}
	w.servers[addrPort] = loopback
}

// http serves a handler for a name, without TLS.
func (w *world) http(name, addr string, h http.HandlerFunc) {
	s := httptest.NewServer(h)
	w.t.Cleanup(s.Close)
	w.host(name, addr+":80", s.Listener.Addr().String())
}

// https serves a handler for a name, by HTTP/2 if h2.
func (w *world) https(name, addr string, h2 bool, h http.HandlerFunc) {
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = h2
	s.TLS = &tls.Config{Certificates: []tls.Certificate{w.pki.cert(w.t, name)}}
	s.Config.ErrorLog = discard
	s.StartTLS()
	w.t.Cleanup(s.Close)
	w.host(name, addr+":443", s.Listener.Addr().String())
}

// raw serves a name by a function of the connection, without TLS. The request's header has been read when it is called.
func (w *world) raw(name, addr string, serve func(net.Conn, *bufio.Reader, *http.Request)) {
	l := listen(w.t, func(c net.Conn) {
		r := bufio.NewReader(c)
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			serve(c, r, req)
		}
	})
	w.host(name, addr+":80", l)
}

// listen accepts connections on loopback until the test ends, and then closes them.
func listen(t testing.TB, serve func(net.Conn)) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			all.Go(func() {
				defer c.Close()
				serve(c)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return l.Addr().String()
}

// egress returns a way out into the world.
func (w *world) egress(change ...func(*Options)) *Egress {
	o := &Options{Resolver: w, Dial: w.dial, RootCAs: w.pki.roots}
	for _, f := range change {
		f(o)
	}
	e := New(o)
	e.dialer.own = func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("93.184.216.99")}, nil }
	w.t.Cleanup(func() { _ = e.Close() })
	return e
}

// guard allows what allow allows, writes down what it was asked, and signs by sign.
type guard struct {
	mu     sync.Mutex
	allow  func(agent.Request) bool
	sign   func(*http.Request, agent.Request) (Cleaner, error)
	judged []agent.Request
}

var errNotGranted = agent.Errorf(agent.Denied, "not granted")

func (g *guard) Allow(_ context.Context, r agent.Request) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.judged = append(g.judged, r)
	if g.allow != nil && !g.allow(r) {
		return errNotGranted
	}
	return nil
}

func (g *guard) Sign(_ context.Context, req *http.Request, r agent.Request) (Cleaner, error) {
	if g.sign == nil {
		return nil, nil
	}
	return g.sign(req, r)
}

// hiding is a Cleaner for one value that is not cut by a chunk.
type hiding string

func (h hiding) String(s string) string { return strings.ReplaceAll(s, string(h), "[secret]") }
func (h hiding) Reader(r io.Reader) io.Reader {
	b, err := io.ReadAll(r)
	if err != nil {
		return io.MultiReader(strings.NewReader(h.String(string(b))), failing{err})
	}
	return strings.NewReader(h.String(string(b)))
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// get makes a request and reads its response whole.
func get(t testing.TB, e *Egress, g Guard, r *Request) (*Response, string, error) {
	t.Helper()
	if g == nil {
		g = &guard{}
	}
	res, err := e.Do(t.Context(), g, r)
	if err != nil {
		mustBeOurs(t, err)
		return nil, "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		mustBeOurs(t, err)
	}
	return res, string(b), err
}

// mustBeOurs wants an agent.Error of a kind that says what to do.
func mustBeOurs(t testing.TB, err error) {
	t.Helper()
	var e *agent.Error
	if !errors.As(err, &e) || e.Kind == agent.Internal {
		t.Errorf("error %v is not one of ours", err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantError(t testing.TB, err error, kind agent.Kind, words string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %v with %q", kind, words)
	}
	if e := agent.AsError(err); e.Kind != kind || !strings.Contains(e.Msg, words) {
		t.Errorf("got %v error %q, want %v with %q", e.Kind, e.Msg, kind, words)
	}
}

func wantLimit(t testing.TB, err error, words string) {
	t.Helper()
	wantError(t, err, agent.Exhausted, words)
	if agent.AsError(err).Limit != agent.LimitHTTP {
		t.Errorf("the error's limit is %q", agent.AsError(err).Limit)
	}
}

// pki is a certificate authority for a test.
type pki struct {
	key   *ecdsa.PrivateKey
	ca    *x509.Certificate
	roots *x509.CertPool
}

func newPKI(t testing.TB) *pki {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	p := &pki{key: key, roots: x509.NewCertPool()}
	if p.ca, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	p.roots.AddCert(p.ca)
	return p
}

func (p *pki) cert(t testing.TB, name string, change ...func(*x509.Certificate)) tls.Certificate {
	now := time.Now()
	c := &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{name}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, f := range change {
		f(c)
	}
	der, err := x509.CreateCertificate(rand.Reader, c, p.ca, p.key.Public(), p.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: p.key}
}

// listenOnce is listen for a server that only notes that somebody came.
func listenOnce(t testing.TB, accepted chan<- struct{}) string {
	return listen(t, func(net.Conn) { accepted <- struct{}{} })
}
