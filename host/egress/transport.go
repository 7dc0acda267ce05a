package egress

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"
)

// Transport returns a transport for requests that code of ours makes, often and many at once, to places that whoever runs an app has named. The addresses it
// dials are checked as those of Do; the rest of what Do does is for its user to do: to put URLs into their form with Parse, to judge and sign requests, to
// bound bodies and times, and to follow no redirect. It speaks HTTP/1.1, and keeps as many idle connections to a host as idle says. Whoever asked for it
// closes its idle connections at the end.
func (e *Egress) Transport(idle int) *http.Transport {
	var one http.Protocols
	one.SetHTTP1(true)
	secure := &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: e.roots, NextProtos: []string{"http/1.1"}, ClientSessionCache: tls.NewLRUClientSessionCache(idlePerPool),
	}
	within := func(ctx context.Context) context.Context { return &attempt{ctx, &e.limits} }
	return &http.Transport{
		DialContext: func(ctx context.Context, network, to string) (net.Conn, error) {
			return e.dialer.connectTo(within(ctx), network, to)
		},
		DialTLSContext: func(ctx context.Context, _, to string) (net.Conn, error) {
			return e.dialer.connectTLS(within(ctx), to, secure)
		},
		DisableCompression:     true,
		MaxIdleConns:           4 * idle,
		MaxIdleConnsPerHost:    idle,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: e.limits.ResponseHeader,
		ReadBufferSize:         16 << 10,
		Protocols:              &one,
	}
}
