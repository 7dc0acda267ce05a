package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/fasthttp/websocket"
	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/internal/ws"
	"github.com/skep-dev/skep/runtime"
)

// Subprotocols of WebSockets: browsers cannot set headers, so a page offers protocolSkep and its token behind protocolToken, and gets the first.
const (
	protocolSkep  = "skep"
	protocolToken = "skep.token."
)

// maxQueryTokenLife is how long a token may live that is given in a URL, which others write down.
const maxQueryTokenLife = time.Hour

type instanceSocketRequest struct {
	instanceRequest
	Hello     bool          `query:"hello" doc:"true sends nothing of the state before the client's frame skep_hello"`
	Upgrade   string        `header:"Upgrade" doc:"websocket"`
	Origin    string        `header:"Origin"`
	Protocols string        `header:"Sec-WebSocket-Protocol" doc:"where headers cannot be set: skep, skep.token.TOKEN"`
	Query     string        `query:"token" doc:"a token that lives for at most an hour, where neither can be set"`
	Host      string        `meta:"host"`
	URL       string        `meta:"url"`
	Header    [][2]string   `meta:"headers"`
	Token     agent.TokenID `meta:"token"`
}

// instanceSocket is a result that turns the connection into a WebSocket with an instance.
type instanceSocket struct{ k *runtime.Socket }

func (s *Server) instanceSocket(ctx context.Context, q instanceSocketRequest) (*instanceSocket, error) {
	if err := s.mayUpgrade(q.Upgrade, q.Origin, q.Host); err != nil {
		return nil, err
	}
	k, err := s.rt.OpenSocket(ctx, appOf(ctx), runtime.SocketRequest{
		Agent: q.Name, Key: q.Key, URL: "http://" + q.Host + withoutToken(q.URL), Header: slices.DeleteFunc(q.Header, isCredential), Token: q.Token, Hello: q.Hello,
	})
	return &instanceSocket{k}, err
}

// agentSocket is instanceSocket under the path that clients of Cloudflare's package "agents" use. They write names in kebab case, so
// that the agent my_agent is asked for as my-agent.
func (s *Server) agentSocket(ctx context.Context, q instanceSocketRequest) (*instanceSocket, error) {
	out, err := s.instanceSocket(ctx, q)
	if snake := strings.ReplaceAll(q.Name, "-", "_"); agent.KindOf(err) == agent.NotFound && err != nil && snake != q.Name {
		q.Name = snake
		if out, err := s.instanceSocket(ctx, q); err == nil {
			return out, nil
		}
	}
	return out, err
}

// mayUpgrade refuses what is no WebSocket, and pages of other origins.
func (s *Server) mayUpgrade(upgrade, origin, host string) error {
	if !strings.EqualFold(upgrade, "websocket") {
		return invalidAs(http.StatusUpgradeRequired, "this is a WebSocket", "connect with a WebSocket client")
	}
	if _, from, _ := strings.Cut(origin, "://"); origin != "" && from != host && !slices.Contains(s.o.Origins, origin) {
		return agent.Errorf(agent.Denied, "web pages from %.80q may not connect here", origin)
	}
	return nil
}

func isCredential(h [2]string) bool {
	switch strings.ToLower(h[0]) {
	case "authorization", "cookie", "proxy-authorization", "sec-websocket-protocol":
		return true
	}
	return false
}

// withoutToken takes the token out of a URL that code is shown.
func withoutToken(target string) string {
	path, query, there := strings.Cut(target, "?")
	if !there {
		return target
	}
	v, err := url.ParseQuery(query)
	if err != nil {
		return path
	}
	v.Del("token")
	if len(v) == 0 {
		return path
	}
	return path + "?" + v.Encode()
}

// socketAuthorization returns the Authorization header that a WebSocket's request stands for.
func (s *Server) socketAuthorization(c *fiber.Ctx) (header string, inURL bool) {
	h := &c.Request().Header
	if a := string(h.Peek("Authorization")); a != "" {
		return a, false
	}
	for p := range strings.SplitSeq(string(h.Peek("Sec-WebSocket-Protocol")), ",") {
		if token, ok := strings.CutPrefix(strings.TrimSpace(p), protocolToken); ok {
			return "Bearer " + token, false
		}
	}
	if token := string(c.Request().URI().QueryArgs().Peek("token")); token != "" {
		return "Bearer " + token, true
	}
	return "", false
}

// mayBeInURL refuses a token that lives for long: a URL is written down by proxies and browsers.
func (s *Server) mayBeInURL(t agent.Token) error {
	if !t.Expires.IsZero() && t.Expires.Sub(s.o.Now()) <= maxQueryTokenLife {
		return nil
	}
	return &agent.Error{
		Kind: agent.Unauthenticated, Msg: "a token in a URL must expire within an hour",
		Hint: "make one with an expiry for this, or offer the subprotocols skep and skep.token.TOKEN, or send an Authorization header",
	}
}

// upgradeInstance does the handshake. The connection is then taken out of the hands of the HTTP server, whose buffers and goroutine
// would stay with it, and is served by a goroutine of its own.
func (s *Server) upgradeInstance(l life, c *fiber.Ctx, k *instanceSocket) error {
	handshake := websocket.FastHTTPUpgrader{
		Subprotocols: []string{protocolSkep}, CheckOrigin: func(*fasthttp.RequestCtx) bool { return true }, // was checked
	}
	own, ok := c.Context().Conn().(*conn)
	if err := handshake.Upgrade(c.Context(), func(*websocket.Conn) {}); err != nil || !ok {
		return invalidAs(http.StatusUpgradeRequired, "the WebSocket handshake is not valid", "see RFC 6455, section 4.1")
	}
	s.sockets.Add(1)
	own.ifUnused(s.sockets.Done)
	c.Context().Hijack(func(nc net.Conn) {
		if !own.use() {
			return
		}
		early := buffered(nc)
		raw, err := own.detach()
		if err != nil {
			s.sockets.Done()
			return
		}
		if len(early) > 0 {
			raw = &earlyConn{Conn: raw, early: early}
		}
		go func() { // Run waits for it by s.sockets
			defer s.sockets.Done()
			k.k.Serve(l.soft, l.hard, func(control func(ws.Frame)) *ws.Conn {
				return ws.Server(raw, &ws.Options{
					Max: runtime.MaxSocketFrame, Heartbeat: s.o.Heartbeat, Silence: s.o.Silence, Stall: stallTimeout, Linger: lingerTime, Control: control,
				})
			})
		}()
	})
	return nil
}

// buffered returns what the HTTP server has read of the connection beyond the request.
func buffered(nc net.Conn) []byte {
	if nc.SetReadDeadline(time.Unix(1, 0)) != nil {
		return nil
	}
	var b bytes.Buffer
	_, err := io.Copy(&b, nc)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return nil // the connection will tell again
	}
	_ = nc.SetReadDeadline(time.Time{})
	return b.Bytes()
}

// earlyConn gives its reader first what was read before.
type earlyConn struct {
	net.Conn
	early []byte
}

func (c *earlyConn) Read(p []byte) (int, error) {
	if len(c.early) > 0 {
		n := copy(p, c.early)
		c.early = c.early[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

func (c *earlyConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
