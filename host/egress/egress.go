// Package egress is the one way out for the requests of guests. It puts a URL into its one canonical form, has it judged,
// resolves its host once, refuses addresses that are not public, dials exactly an address that it checked, and bounds time,
// size and count of all that goes out or comes back. Redirects are judged like first requests.
//
// Do is the door; RoundTripper puts it under an http.Client, for code of ours.
package egress

import (
	"context"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"

	"github.com/skep-dev/skep/agent"
	"golang.org/x/sync/semaphore"
)

// Owner is for whom a request is made. Owners share no connections.
type Owner struct {
	App   agent.App
	Agent string
}

// Guard judges the requests of one cell and puts its secrets in.
type Guard interface {
	// Allow says whether the request may be made. It is asked before anything is resolved or dialled, and for each redirect.
	Allow(ctx context.Context, r agent.Request) error

	// Sign puts secrets into the request at the last step: into headers, the query and the body. It must not change the
	// method, the host or the path. The Cleaner takes them out of what comes back; nil means that there are none.
	Sign(ctx context.Context, req *http.Request, r agent.Request) (Cleaner, error)
}

// Cleaner takes secrets out of what comes back.
type Cleaner interface {
	Reader(r io.Reader) io.Reader
	String(s string) string
}

// Resolver finds the addresses of a name. A *net.Resolver is one. Names come with a dot at the end: they are never completed
// with a search domain.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Options of an Egress. The zero value of a field is its default.
type Options struct {
	Allow    []netip.Prefix // addresses that are not public and may be reached all the same
	Resolver Resolver       // nil means the system's, by Go's own code
	Dial     func(ctx context.Context, to netip.AddrPort) (net.Conn, error)
	RootCAs  *x509.CertPool // nil means the system's
	Limits   Limits
	Log      *slog.Logger // why requests failed; nil means nowhere
}

// Egress is the way out. It is safe for concurrent use.
type Egress struct {
	limits Limits
	dialer dialer
	roots  *x509.CertPool
	log    *slog.Logger
	all    *semaphore.Weighted
	pools  pools
	blank  http.Request // what all requests have in common
}

// New returns the way out. It starts nothing; Close it at the end.
func New(o *Options) *Egress {
	if o == nil {
		o = &Options{}
	}
	e := &Egress{limits: o.Limits.or(DefaultLimits()), roots: o.RootCAs, log: o.Log}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	e.dialer = dialer{resolver: o.Resolver, dial: o.Dial, allow: slices.Clone(o.Allow), own: ownAddrs}
	if e.dialer.resolver == nil {
		e.dialer.resolver = &net.Resolver{PreferGo: true}
	}
	if e.dialer.dial == nil {
		e.dialer.dial = e.dialer.system
	}
	e.blank = http.Request{Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
	e.all = semaphore.NewWeighted(int64(e.limits.Concurrent))
	e.pools.init(e.limits.Owners, e.newTransport)
	return e
}

// Close ends idle connections. Requests that run go on.
func (e *Egress) Close() error {
	e.pools.close()
	return nil
}

// Redirect says what to do with a redirect. The zero value follows it.
type Redirect uint8

const (
	Follow Redirect = iota // each hop is judged and signed like the first
	Fail                   // an error
	Manual                 // the redirect itself is the response
)

// Request is what to ask.
type Request struct {
	Owner    Owner
	Method   string // "" means GET
	URL      string
	Header   [][2]string
	Body     io.Reader // nil means none. It may be read until the response's body is closed, and is not closed
	Length   int64     // bytes of Body; -1 means unknown, and the body goes out in chunks
	Redirect Redirect
	Limits   Limits              // narrows those of Options, where a field is set
	Observe  func(agent.HTTPUse) // called once for each hop when it has ended, by any goroutine; may be nil
}

// Response is what came back. Its caller closes Body.
type Response struct {
	Status     int
	StatusText string
	Header     [][2]string // names in lower case, sorted; without those about the connection, and about an encoding that was undone
	URL        string      // of the last hop, as it was before secrets went in
	Redirected bool
	Body       io.ReadCloser // decoded and cleaned; its errors are agent.Errors
}

// Get returns the first value of a header, whose name is in lower case.
func (r *Response) Get(name string) string {
	for _, h := range r.Header {
		if h[0] == name {
			return h[1]
		}
	}
	return ""
}
