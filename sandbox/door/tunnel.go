package door

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/egress"
)

// connect answers a CONNECT: it becomes the server that the box thinks it speaks to by TLS, so that each request in the tunnel is judged.
func (d *Door) connect(w http.ResponseWriter, r *http.Request) {
	what := "CONNECT " + r.RequestURI
	to, err := connectTo(r)
	if err == nil {
		err = d.reach(r.Context(), to)
	}
	if err == nil && !take(d.proxied) {
		err = full("connections by the proxy", MaxConnections)
	}
	if err != nil {
		d.refuse(w, r, what, err)
		return
	}
	defer give(d.proxied)
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		d.refuse(w, r, what, agent.Wrap(agent.Internal, err, "the connection cannot be made a tunnel"))
		return
	}
	defer conn.Close()
	defer context.AfterFunc(r.Context(), func() { _ = conn.Close() })()
	d.tunnel(r.Context(), conn, buf.Reader, to)
}

// connectTo reads what a CONNECT is for (RFC 9110, section 9.3.6). The header Host is not looked at.
func connectTo(r *http.Request) (agent.Request, error) {
	bad := func(msg string) (agent.Request, error) {
		return agent.Request{}, &agent.Error{Kind: agent.Invalid, Msg: msg, Hint: "write CONNECT HOST:PORT HTTP/1.1"}
	}
	switch _, port, err := net.SplitHostPort(r.RequestURI); {
	case strings.ContainsAny(r.RequestURI, "/?#@"), err != nil, port == "":
		return bad("a CONNECT names a host and a port, and nothing else")
	case r.ContentLength != 0 || len(r.TransferEncoding) > 0:
		return bad("a CONNECT has no body")
	}
	_, to, err := egress.Parse(http.MethodGet, "https://"+r.RequestURI+"/")
	to.Method, to.Path = http.MethodConnect, ""
	return to, err
}

func (d *Door) reach(ctx context.Context, to agent.Request) error {
	if d.o.Way == nil {
		return errNoWay()
	}
	return d.o.Way.Reach(ctx, to)
}

func errNoWay() error { return agent.Errorf(agent.Denied, "this sandbox can reach nothing outside") }

// handshakeRecord is the first byte of TLS (RFC 8446, section 5.1).
const handshakeRecord = 0x16

// tunnel serves what comes after a CONNECT was let in, until the client has gone. in has what the client sent early.
func (d *Door) tunnel(ctx context.Context, conn net.Conn, in *bufio.Reader, to agent.Request) {
	_ = conn.SetDeadline(time.Now().Add(handshake))
	if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection Established\r\n\r\n"); err != nil {
		return
	}
	first, err := in.Peek(1)
	if err != nil {
		return
	}
	if first[0] != handshakeRecord {
		err := &agent.Error{
			Kind: agent.Denied, Msg: "what is in the tunnel to " + to.Host + " is not TLS, and only TLS goes through", Hint: "ask the proxy for an http:// URL whole, without CONNECT",
		}
		d.tell(ctx, "CONNECT "+net.JoinHostPort(to.Host, to.Port), err)
		_, _ = io.WriteString(conn, "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"+text(err))
		return
	}
	secure := tls.Server(&readAhead{Conn: conn, in: in}, &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if h.ServerName != "" && !strings.EqualFold(h.ServerName, to.Host) {
				return nil, agent.Errorf(agent.Denied, "the tunnel is to %s, not to %.200q", to.Host, h.ServerName)
			}
			return d.ca.certificate(to.Host)
		},
	})
	if err := secure.HandshakeContext(ctx); err != nil {
		d.o.Log.DebugContext(ctx, "a TLS handshake of a sandbox", "sandbox", d.o.Box, "host", to.Host, "error", err)
		return
	}
	_ = conn.SetDeadline(time.Time{})
	l := &single{conn: &tunnelled{Conn: secure, to: to, gone: make(chan struct{})}, closed: make(chan struct{})}
	_ = d.tunnels.Serve(l) // it ends with the connection
}

// readAhead is a connection of which a part was read ahead.
type readAhead struct {
	net.Conn
	in *bufio.Reader
}

func (c *readAhead) Read(p []byte) (int, error) { return c.in.Read(p) }

// tunnelled is a connection of a client within a tunnel.
type tunnelled struct {
	*tls.Conn
	to   agent.Request
	once sync.Once
	gone chan struct{} // closed with it
}

func (c *tunnelled) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { close(c.gone) })
	return err
}

// single is a listener that has one connection. Accept waits for its end.
type single struct {
	conn   *tunnelled
	taken  bool
	once   sync.Once
	closed chan struct{}
}

func (l *single) Accept() (net.Conn, error) {
	if !l.taken {
		l.taken = true
		return l.conn, nil
	}
	select {
	case <-l.conn.gone:
	case <-l.closed:
	}
	return nil, net.ErrClosed
}

func (l *single) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *single) Addr() net.Addr { return l.conn.LocalAddr() }

type targetKey struct{}

// withTarget tells the requests of a tunnel where it leads.
func withTarget(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, targetKey{}, c.(*tunnelled).to)
}

// within answers a request within a tunnel. It must be for where the tunnel leads, by its target as well as by its header.
func (d *Door) within(w http.ResponseWriter, r *http.Request) {
	defer d.recover(r)
	to := r.Context().Value(targetKey{}).(agent.Request)
	origin := to.Origin()
	raw := r.RequestURI
	if strings.HasPrefix(raw, "/") {
		raw = origin + raw
	}
	what := r.Method + " " + raw
	_, got, err := egress.Parse(r.Method, raw)
	if err == nil && r.Host != "" {
		var host agent.Request
		if _, host, err = egress.Parse(http.MethodGet, "https://"+r.Host+"/"); err == nil && host.Origin() != origin {
			got = host
		}
	}
	if err == nil && got.Origin() != origin {
		err = agent.Errorf(agent.Denied, "the tunnel is to %s, and the request for %s", origin, got.Origin())
	}
	if err != nil {
		d.refuse(w, r, what, err)
		return
	}
	ctx, leave, err := d.enter(r.Context())
	if err != nil {
		answer(w, err)
		return
	}
	defer leave()
	d.forward(w, r.WithContext(ctx), raw)
}
