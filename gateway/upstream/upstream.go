// Package upstream takes requests to providers by HTTP/1.1. An exchange runs on the goroutine of who makes it, which writes the request and reads the answer
// itself: http.Transport has two goroutines for each connection, and waking them costs more than all else that a call of a model does here.
package upstream

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Transport keeps connections and makes exchanges by them. It follows no redirects, asks for no compression and knows no proxies. It is safe for concurrent use,
// but a response's body is for one goroutine at a time; cancelling the request's context ends a read of it.
type Transport struct {
	plain, secure func(ctx context.Context, network, addr string) (net.Conn, error)
	perHost, most int           // idle connections to a host, and to all
	rest          time.Duration // for how long a connection is kept idle
	head          int64         // most bytes of a response's head

	mu    sync.Mutex
	idle  map[place][]*conn // the one used last at the end
	count int               // of idle
	sweep *time.Timer       // while there are idle ones
}

// place is where a connection leads.
type place struct {
	secure bool
	addr   string // with a port
}

// What is taken where a http.Transport does not say it.
const (
	defaultPerHost = 2
	defaultMost    = 1024
	defaultRest    = 90 * time.Second
	defaultHead    = 1 << 20
)

// New returns a transport that connects as t does, with DialContext and DialTLSContext, and keeps as many connections for as long. It starts nothing.
func New(t *http.Transport) *Transport {
	own := &Transport{
		plain: t.DialContext, secure: t.DialTLSContext, perHost: t.MaxIdleConnsPerHost, most: t.MaxIdleConns, rest: t.IdleConnTimeout,
		head: t.MaxResponseHeaderBytes, idle: map[place][]*conn{},
	}
	if own.plain == nil {
		own.plain = new(net.Dialer).DialContext
	}
	if own.perHost <= 0 {
		own.perHost = defaultPerHost
	}
	if own.most <= 0 {
		own.most = defaultMost
	}
	if own.rest <= 0 {
		own.rest = defaultRest
	}
	if own.head <= 0 {
		own.head = defaultHead
	}
	return own
}

// RoundTrip is http.RoundTripper's. A connection that turns out to be closed before anything of the request was written is replaced by another; whatever may have
// reached the provider is not sent again.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	to := place{addr: r.URL.Host}
	switch r.URL.Scheme {
	case "http":
	case "https":
		to.secure = true
	default:
		return nil, failed(r, errors.New("upstream: the scheme "+r.URL.Scheme+" is not spoken"))
	}
	if r.URL.Port() == "" {
		port := "80"
		if to.secure {
			port = "443"
		}
		to.addr = net.JoinHostPort(r.URL.Hostname(), port)
	}
	for {
		c, err := t.connection(r.Context(), to)
		if err != nil {
			return nil, failed(r, err)
		}
		res, err := c.exchange(r)
		switch {
		case err == nil:
			return res, nil
		case c.since.IsZero() || c.wrote > 0 || r.GetBody == nil || r.Context().Err() != nil:
			return nil, err
		}
		again := *r
		if again.Body, err = r.GetBody(); err != nil {
			return nil, err
		}
		r = &again
	}
}

// failed closes the body of a request that is not sent.
func failed(r *http.Request, err error) error {
	if r.Body != nil {
		_ = r.Body.Close()
	}
	return err
}

// connection returns an idle connection that is still open, or a new one.
func (t *Transport) connection(ctx context.Context, to place) (*conn, error) {
	for {
		c := t.take(to)
		if c == nil {
			break
		}
		if time.Since(c.since) < t.rest && c.alive() {
			return c, nil
		}
		_ = c.Conn.Close()
	}
	dial := t.plain
	if to.secure {
		dial = t.secure
	}
	if dial == nil {
		return nil, errors.New("upstream: there is no way to " + to.addr + " by TLS")
	}
	nc, err := dial(ctx, "tcp", to.addr)
	if err != nil {
		return nil, err
	}
	return newConn(t, to, nc), nil
}

// take takes the idle connection that was used last, whose memory is the warmest.
func (t *Transport) take(to place) *conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.idle[to]
	if len(list) == 0 {
		return nil
	}
	last := len(list) - 1
	c := list[last]
	list[last] = nil
	t.idle[to] = list[:last]
	t.count--
	return c
}

// put keeps a connection for the next exchange, or closes it where enough are kept.
func (t *Transport) put(c *conn) {
	if !t.kept(c) {
		_ = c.Conn.Close()
	}
}

// kept puts a connection among the idle ones, if there is room.
func (t *Transport) kept(c *conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.idle[c.to]
	if t.count >= t.most || len(list) >= t.perHost {
		return false
	}
	c.since = time.Now()
	t.idle[c.to] = append(list, c)
	t.count++
	if t.sweep == nil {
		t.sweep = time.AfterFunc(t.rest, t.drop)
	}
	return true
}

// drop closes connections that have been idle for too long.
func (t *Transport) drop() {
	var old []*conn
	defer func() { closeAll(old) }()
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	soonest := t.rest
	for to, list := range t.idle {
		n := 0
		for n < len(list) && now.Sub(list[n].since) >= t.rest {
			n++
		}
		old = append(old, list[:n]...)
		t.count -= n
		if list = slices.Delete(list, 0, n); len(list) == 0 {
			delete(t.idle, to)
			continue
		}
		t.idle[to] = list
		soonest = min(soonest, t.rest-now.Sub(list[0].since))
	}
	if t.sweep == nil { // CloseIdleConnections was quicker
		return
	}
	if t.count == 0 {
		t.sweep = nil
		return
	}
	t.sweep.Reset(soonest)
}

// CloseIdleConnections closes the connections that nobody uses.
func (t *Transport) CloseIdleConnections() {
	var old []*conn
	defer func() { closeAll(old) }()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, list := range t.idle {
		old = append(old, list...)
	}
	clear(t.idle)
	t.count = 0
	if t.sweep != nil {
		t.sweep.Stop()
		t.sweep = nil
	}
}

// closeAll closes connections. mu is not held: to end TLS, something is written, for which a provider may let us wait.
func closeAll(list []*conn) {
	for _, c := range list {
		_ = c.Conn.Close()
	}
}
