// Package clienttest has a client of package http for tests. It asks servers on loopback, and those alone, through net/http,
// and allows everything until its grant is taken back.
package clienttest

import (
	"context"
	"errors"
	"net"
	nethttp "net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/egress"
	"github.com/skep-dev/skep/host/grant/http"
)

// Clients makes the clients of one test. Close it.
type Clients struct {
	Taken     atomic.Bool // the grant was taken back
	transport *nethttp.Transport
}

// New returns clients.
func New() *Clients {
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	return &Clients{transport: &nethttp.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if host, _, _ := net.SplitHostPort(addr); host != "127.0.0.1" {
			return nil, errors.New("a test may reach loopback only, not " + addr)
		}
		return dialer.DialContext(ctx, network, addr)
	}}}
}

// Close closes connections that are idle.
func (c *Clients) Close() { c.transport.CloseIdleConnections() }

// Client returns the client of one request.
func (c *Clients) Client() http.Client { return client{c} }

type client struct{ *Clients }

func (c client) Still(context.Context) error {
	if c.Taken.Load() {
		return agent.Errorf(agent.Denied, "the grant was taken back")
	}
	return nil
}

func (c client) Do(ctx context.Context, r *egress.Request) (*egress.Response, error) {
	if err := c.Still(ctx); err != nil {
		return nil, err
	}
	req, err := nethttp.NewRequestWithContext(ctx, r.Method, r.URL, r.Body)
	if err != nil {
		return nil, agent.Wrap(agent.Invalid, err, err.Error())
	}
	if req.Host == "" {
		return nil, agent.Errorf(agent.Invalid, "%.200q is not an absolute URL", r.URL)
	}
	req.ContentLength = r.Length
	for _, h := range r.Header {
		req.Header.Add(h[0], h[1])
	}
	out := &egress.Response{}
	peer := nethttp.Client{Transport: c.transport, CheckRedirect: func(*nethttp.Request, []*nethttp.Request) error {
		switch r.Redirect {
		case egress.Manual:
			return nethttp.ErrUseLastResponse
		case egress.Fail:
			return errors.New("the response is a redirect")
		}
		out.Redirected = true
		return nil
	}}
	res, err := peer.Do(req)
	if err != nil {
		return nil, agent.Wrap(agent.Unavailable, err, err.Error())
	}
	out.Status, out.URL, out.Body = res.StatusCode, res.Request.URL.String(), res.Body
	for name, values := range res.Header {
		for _, v := range values {
			out.Header = append(out.Header, [2]string{strings.ToLower(name), v})
		}
	}
	slices.SortStableFunc(out.Header, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
	return out, nil
}
