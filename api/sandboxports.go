package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/link"
	"github.com/skep-dev/skep/sandbox/keeper"
	"github.com/skep-dev/skep/sandbox/preview"
)

// portRoutes pass requests on to what listens within a sandbox.
func (s *Server) portRoutes() (rs []route) {
	rs = append(rs, route{
		method: "POST", path: "/v1/sandboxes/{id}/ports/{port}/link", id: "linkSandboxPort", status: 201,
		summary: "Make a link by which a browser sees what listens at a port of a sandbox", endpoint: handle(s.linkPort),
	})
	for _, m := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
		name := m[:1] + strings.ToLower(m[1:])
		rs = append(rs,
			route{method: m, path: "/v1/sandboxes/{id}/ports/{port}/http/{path}", id: "port" + name, summary: "Pass a request to what listens at a port of a sandbox",
				endpoint: handle(s.passPort), limit: maxPassed, media: []string{typeAny}},
			route{method: m, path: preview.Path + "{token}/{path}", id: "preview" + name, summary: "The same by a link, for browsers",
				endpoint: handle(s.preview), limit: maxPassed, media: []string{typeAny}, open: true})
	}
	return rs
}

// maxPassed bounds the body of a request that is passed on.
const maxPassed = 64 << 20

type passPortRequest struct {
	ID      agent.SandboxID `path:"id"`
	Port    int             `path:"port"`
	Method  string          `meta:"method"`
	URL     string          `meta:"url"`
	Headers [][2]string     `meta:"headers"`
	Body    []byte          `body:"raw"`
}

func (s *Server) passPort(ctx context.Context, q passPortRequest) (*stream, error) {
	b, err := s.box(ctx, q.ID)
	if err != nil {
		return nil, err
	}
	return s.pass(ctx, b, q.Port, q.Method, after(q.URL, 6), q.Headers, q.Body) // v1, sandboxes, the id, ports, the port, http
}

// after is what follows so many segments of a request target, query string and escapes as they were sent.
func after(target string, segments int) string {
	for range segments {
		_, target, _ = strings.Cut(strings.TrimPrefix(target, "/"), "/")
		target = "/" + target
	}
	return target
}

type linkPortInput struct {
	For time.Duration `json:"for,omitempty" doc:"how long it lasts, up to a day; an hour unless given"`
}

type linkPortRequest struct {
	ID   agent.SandboxID `path:"id"`
	Port int             `path:"port"`
	Host string          `meta:"host"`
	Body linkPortInput   `body:"json" default:"{}"`
}

func (s *Server) linkPort(ctx context.Context, q linkPortRequest) (preview.PortLink, error) {
	if _, err := s.sandbox(ctx, q.ID); err != nil {
		return preview.PortLink{}, err
	}
	links := preview.Links{Key: s.o.LinkKey, URL: s.baseURL(q.Host), Now: s.o.Now}
	l, err := links.Make(preview.Port{App: appOf(ctx), Sandbox: q.ID, Number: q.Port}, q.Body.For)
	if err != nil {
		return preview.PortLink{}, err
	}
	return l, s.audit(ctx, "sandbox.preview", string(q.ID), "port "+strconv.Itoa(q.Port))
}

type previewRequest struct {
	Token   string      `path:"token" doc:"of a link"`
	Method  string      `meta:"method"`
	URL     string      `meta:"url"`
	Headers [][2]string `meta:"headers"`
	Body    []byte      `body:"raw"`
}

// preview shows what listens in a sandbox. Its pages are kept from whatever else is at this server's origin: they run as of an origin of their own.
func (s *Server) preview(ctx context.Context, q previewRequest) (*stream, error) {
	links := preview.Links{Key: s.o.LinkKey, Now: s.o.Now}
	to, err := links.Open(q.Token)
	if err != nil {
		return nil, err
	}
	k, err := s.keeper()
	if err != nil {
		return nil, err
	}
	rec, err := s.st.Sandbox(ctx, to.Sandbox)
	if err != nil || rec.App != to.App {
		return nil, agent.Errorf(agent.NotFound, "the sandbox of this link is there no more")
	}
	if rec.State != agent.SandboxReady { // a page that is left open wakes nothing
		return nil, agent.Errorf(agent.Unavailable, "the sandbox of this link is %s", rec.State)
	}
	b, err := k.Get(ctx, to.App, to.Sandbox)
	if err != nil {
		return nil, err
	}
	out, err := s.pass(ctx, b, to.Number, q.Method, after(q.URL, 2), q.Headers, q.Body)
	if err == nil {
		out.header = append(out.header, [2]string{"Content-Security-Policy", "sandbox allow-scripts allow-forms allow-popups allow-modals allow-downloads"},
			[2]string{"Referrer-Policy", "no-referrer"}, [2]string{"X-Robots-Tag", "noindex, nofollow"}, [2]string{"Cache-Control", "no-store"})
	}
	return out, err
}

// pass makes a request of what listens at a port within a sandbox, and streams the answer. Neither credentials of this server go there, nor cookies.
func (s *Server) pass(ctx context.Context, b *keeper.Box, port int, method, target string, headers [][2]string, body []byte) (*stream, error) {
	if err := preview.CheckPort(port); err != nil {
		return nil, err
	}
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return nil, agent.Errorf(agent.Invalid, "the path of the request cannot be passed on")
	}
	u.Scheme, u.Host = "http", "localhost:"+strconv.Itoa(port)
	ctx, cancel := context.WithCancel(ctx)
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		cancel()
		return nil, agent.Errorf(agent.Invalid, "the request cannot be passed on: %s", err)
	}
	passed, _ := forwarded(headers)
	for _, h := range passed {
		switch textproto.CanonicalMIMEHeaderKey(h[0]) {
		case "Host", "Cookie", "Content-Length":
		default:
			req.Header.Add(h[0], h[1])
		}
	}
	way := &http.Transport{
		DisableKeepAlives: true, DisableCompression: true, ResponseHeaderTimeout: portTimeout,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dialPort(ctx, b, port) },
	}
	res, err := way.RoundTrip(req)
	if err != nil {
		cancel()
		if e := agent.AsError(err); e != nil && e.Kind != agent.Internal {
			return nil, err
		}
		return nil, &agent.Error{Kind: agent.Unavailable, Msg: "port " + strconv.Itoa(port) + " of the sandbox did not answer", Err: err}
	}
	out := s.piped(ctx, "a preview", res.Header.Get("Content-Type"), func(ctx context.Context, w io.Writer) error {
		defer res.Body.Close()
		_, err := io.Copy(w, res.Body)
		return err
	})
	out.status = res.StatusCode
	for name, values := range res.Header {
		if hopByHop(name) {
			continue
		}
		switch name {
		case "Content-Type", "Content-Length", "Set-Cookie", "Request-Id", "Traceparent", "Content-Security-Policy", "Cache-Control":
			continue
		}
		for _, v := range values {
			out.header = append(out.header, [2]string{name, v})
		}
	}
	ended := out.close
	out.close = func() { cancel(); ended() }
	return out, nil
}

// portTimeout is how long what listens in a sandbox may take until it answers.
const portTimeout = time.Minute

// dialPort opens a connection to a port within a sandbox.
func dialPort(ctx context.Context, b link.Driver, port int) (net.Conn, error) {
	st, err := b.Stream()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		if err := b.Do(ctx, driver.DoPort, driver.PortArgs{Port: port, Stream: st.Args()}, nil); err != nil {
			cancel(err) // no stream will come
		}
	}()
	conn, err := st.Conn(ctx)
	if err != nil {
		_ = st.Close()
		if why := context.Cause(ctx); why != nil && !errors.Is(why, context.Canceled) {
			err = why
		}
		return nil, err
	}
	return portConn{conn}, nil
}

// portConn is a stream as net/http takes it. It has no deadlines of its own: requests have a context.
type portConn struct{ link.Conn }

func (portConn) LocalAddr() net.Addr              { return portAddr{} }
func (portConn) RemoteAddr() net.Addr             { return portAddr{} }
func (portConn) SetDeadline(time.Time) error      { return nil }
func (portConn) SetReadDeadline(time.Time) error  { return nil }
func (portConn) SetWriteDeadline(time.Time) error { return nil }

type portAddr struct{}

func (portAddr) Network() string { return "sandbox" }
func (portAddr) String() string  { return "sandbox" }
