package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/gofiber/fiber/v2"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/mcp"
)

// mcpRequest is a request of an MCP client (MCP, Streamable HTTP), which package mcp answers.
type mcpRequest struct {
	Mode    string      `query:"mode" doc:"what is listed: all, tools, or code for the tools of code mode"`
	Method  string      `meta:"method"`
	URL     string      `meta:"url"`
	Headers [][2]string `meta:"headers"`
	Body    []byte      `body:"raw"`
}

// mcpAgentRequest is one to an endpoint that names an agent.
type mcpAgentRequest struct {
	mcpRequest
	Agent string `path:"agent"`
}

func (s *Server) newMCP() *mcp.Handler {
	return mcp.New(s.rt, s.st, &mcp.Options{Log: s.o.Log, Version: s.o.Version, Key: s.o.MCPKey, Tools: s.o.Tools, Origins: s.o.Origins, Link: s.mcpLink, Patience: s.o.MCPWait})
}

// mcpLink makes a link for the person of an MCP client: it is shown to nobody else, and is good for one answer.
func (s *Server) mcpLink(ctx context.Context, who mcp.Caller, id agent.ApprovalID) (string, error) {
	l, err := s.makeLink(ctx, who.App, id, 0, who.URL, agent.Change{Token: who.Token.ID})
	return l.URL, err
}

// mcpRoutes are the endpoints of MCP. Those with a word come before the one with a name in its place.
func (s *Server) mcpRoutes(limit int64) (rs []route) {
	for _, e := range []struct {
		path, id, summary string
		kind              mcp.Kind
	}{
		{"/mcp", "mcp", "Talk MCP: the tools of the app, and code mode", mcp.All},
		{"/mcp/code", "mcpCode", "Talk MCP: code mode alone", mcp.Code},
		{"/mcp/code/{agent}", "mcpCodeOf", "Talk MCP: code mode of an agent", mcp.Code},
		{"/mcp/serve/{agent}", "mcpServe", "Talk MCP with what an agent serves itself", mcp.Serve},
		{"/mcp/{agent}", "mcpOf", "Talk MCP: the tools that an agent is granted, and code mode", mcp.All},
	} {
		for _, method := range []string{"POST", "GET", "DELETE"} {
			talk := handle(func(ctx context.Context, q mcpRequest) (raw, error) { return s.talkMCP(ctx, e.kind, "", q) })
			if strings.Contains(e.path, "{") {
				talk = handle(func(ctx context.Context, q mcpAgentRequest) (raw, error) {
					return s.talkMCP(ctx, e.kind, q.Agent, q.mcpRequest)
				})
			}
			rs = append(rs, route{
				method: method, path: e.path, id: e.id + method[:1] + strings.ToLower(method[1:]), summary: e.summary, endpoint: talk, limit: limit,
				media: []string{typeAny},
			})
		}
	}
	for _, path := range []string{metadataPath, metadataPath + "/{path}"} {
		rs = append(rs, route{method: "GET", path: path, id: "mcpMetadata" + strings.Repeat("Of", strings.Count(path, "{")), summary: "How clients of MCP get at tokens",
			endpoint: handle(s.mcpMetadata), open: true})
	}
	return rs
}

// talkMCP answers one request of a client: whole, or as a stream that goes on until it is answered or the client goes. A client that went
// shows when a heartbeat cannot be written to it.
func (s *Server) talkMCP(ctx context.Context, kind mcp.Kind, agentName string, q mcpRequest) (raw, error) {
	if kind == mcp.All {
		var err error
		if kind, err = mcp.ParseMode(q.Mode); err != nil {
			return raw{}, err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	r, err := mcpHTTP(ctx, q)
	if err != nil {
		cancel()
		return raw{}, err
	}
	who := mcp.Caller{Token: requestOf(ctx).token, App: appOf(ctx), URL: s.baseURL(r.Host)}
	p := newMCPPipe(ctx, s.mcp.Stop)
	ended := make(chan error, 1)
	go func() {
		_, err := guarded(func() (any, error) { return nil, s.mcp.Serve(p, r, who, mcp.Door{Kind: kind, Agent: agentName}) })
		p.end()
		ended <- err
	}()
	select {
	case err := <-ended:
		defer cancel()
		if err != nil && !p.wrote() {
			return raw{}, err
		}
		return p.whole(), nil
	case <-p.begun:
	}
	st := p.stream()
	st.close = func() {
		p.leave()
		cancel()
		<-ended
	}
	return raw{stream: st}, nil
}

// mcpHTTP makes a request of net/http.
func mcpHTTP(ctx context.Context, q mcpRequest) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, q.Method, "http://localhost"+q.URL, bytes.NewReader(q.Body))
	if err != nil {
		return nil, agent.Errorf(agent.Invalid, "the request target cannot be read")
	}
	r.RequestURI = q.URL
	for _, h := range q.Headers {
		r.Header.Add(h[0], h[1])
	}
	r.Host = r.Header.Get("Host")
	r.Header.Del("Host")
	return r, nil
}

// mcpPipe is the http.ResponseWriter of a request. What is written is kept until it is flushed; from then on it is a stream.
type mcpPipe struct {
	ctx    context.Context
	header http.Header
	begun  chan struct{} // closed when the head may be sent
	more   chan struct{} // has one when there is something to read
	room   chan struct{} // has one when something was read

	stopping func() // called when the server ends the stream

	mu     sync.Mutex
	status int
	began  bool
	buf    []byte
	ended  bool
	left   bool // nobody reads any more
}

// maxPiped is how much of a stream waits for its reader before its writer does.
const maxPiped = 1 << 20

func newMCPPipe(ctx context.Context, stopping func()) *mcpPipe {
	return &mcpPipe{ctx: ctx, stopping: stopping, header: http.Header{}, begun: make(chan struct{}), more: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

func (p *mcpPipe) Header() http.Header { return p.header }

func (p *mcpPipe) WriteHeader(status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.status == 0 {
		p.status = status
	}
}

func (p *mcpPipe) Write(b []byte) (int, error) {
	p.WriteHeader(http.StatusOK)
	for {
		p.mu.Lock()
		switch {
		case p.left || p.ended:
			p.mu.Unlock()
			return 0, io.ErrClosedPipe
		case len(p.buf) < maxPiped || !p.began:
			p.buf = append(p.buf, b...)
			p.mu.Unlock()
			poke(p.more)
			return len(b), nil
		}
		p.mu.Unlock()
		select {
		case <-p.room:
		case <-p.ctx.Done():
			return 0, p.ctx.Err()
		}
	}
}

// Flush begins the stream.
func (p *mcpPipe) Flush() { p.Begin() }

// Begin sends the head of the response, which must be complete.
func (p *mcpPipe) Begin() {
	p.WriteHeader(http.StatusOK)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.began && !p.left {
		p.began = true
		close(p.begun)
	}
}

func (p *mcpPipe) end() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	poke(p.more)
}

func (p *mcpPipe) leave() {
	p.mu.Lock()
	p.left = true
	p.mu.Unlock()
}

func (p *mcpPipe) wrote() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status != 0
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// whole is the response of a handler that has ended.
func (p *mcpPipe) whole() raw {
	p.mu.Lock()
	defer p.mu.Unlock()
	status, contentType, header := p.head()
	return raw{status: status, contentType: contentType, header: header, body: p.buf}
}

// head returns what is sent before the body. The caller holds p.mu.
func (p *mcpPipe) head() (status int, contentType string, header [][2]string) {
	if status = p.status; status == 0 {
		status = http.StatusOK
	}
	header = [][2]string{}
	for name, values := range p.header {
		switch name {
		case "Content-Type", "Content-Length", "Connection", "Transfer-Encoding":
			continue
		}
		for _, v := range values {
			if h := [2]string{name, v}; validHeader(h) {
				header = append(header, h)
			}
		}
	}
	return status, p.header.Get("Content-Type"), header
}

// stream is the response of a handler that goes on.
func (p *mcpPipe) stream() *stream {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := &stream{next: p.next}
	out.status, out.contentType, out.header = p.head()
	if strings.HasPrefix(out.contentType, typeSSE) {
		out.beat = []byte(":\n\n")
	}
	return out
}

func (p *mcpPipe) next(ctx context.Context) ([]byte, error) {
	for {
		p.mu.Lock()
		out, ended := p.buf, p.ended
		p.buf = nil
		p.mu.Unlock()
		if len(out) > 0 {
			poke(p.room)
			return out, nil
		}
		if ended {
			return nil, io.EOF
		}
		select {
		case <-p.more:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				p.stopping()
			}
			return nil, ctx.Err()
		}
	}
}

// metadataPath is where the metadata of an endpoint is found, before the endpoint's own path.
const metadataPath = "/.well-known/oauth-protected-resource"

// challenge is what a client of MCP is told that has brought no token that is good (MCP authorization; RFC 6750, RFC 9728): where it reads that
// tokens come from Skep itself, by hand.
func (s *Server) challenge(c *fiber.Ctx, err error) string {
	out := `Bearer realm="skep"`
	path := strings.Clone(c.Path())
	if path != "/mcp" && !strings.HasPrefix(path, "/mcp/") {
		return out
	}
	host := strings.Clone(string(c.Request().Host()))
	if validHost(host) {
		out += fmt.Sprintf(`, resource_metadata="%s%s%s"`, strings.Map(plainASCII, s.baseURL(host)), metadataPath, strings.Map(plainASCII, path))
	}
	if len(c.Request().Header.Peek("Authorization")) > 0 {
		out += `, error="invalid_token"`
		if e, ok := errors.AsType[*agent.Error](err); ok {
			out += ", error_description=" + strconv.QuoteToASCII(strings.Map(plainASCII, e.Msg))
		}
	}
	return out
}

func plainASCII(r rune) rune {
	if r < ' ' || r > '~' || r == '"' || r == '\\' {
		return -1
	}
	return r
}

func validHost(host string) bool {
	return host != "" && !strings.ContainsFunc(host, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && !slices.Contains([]rune(".-:[]"), r)
	})
}

// resourceMetadata describes an endpoint of MCP (RFC 9728). There is no authorization server: tokens are made by skep token create.
type resourceMetadata struct {
	Resource string   `json:"resource"`
	Name     string   `json:"resource_name"`
	Methods  []string `json:"bearer_methods_supported"`
	Docs     string   `json:"resource_documentation,omitempty"`
}

type resourceRequest struct {
	Headers [][2]string `meta:"headers"`
	URL     string      `meta:"url"`
}

func (s *Server) mcpMetadata(_ context.Context, q resourceRequest) (resourceMetadata, error) {
	host := "localhost"
	for _, h := range q.Headers {
		if http.CanonicalHeaderKey(h[0]) == "Host" && validHost(h[1]) {
			host = h[1]
		}
	}
	path, _, _ := strings.Cut(strings.TrimPrefix(q.URL, metadataPath), "?")
	if path == "" {
		path = "/mcp"
	}
	return resourceMetadata{Resource: s.baseURL(host) + path, Name: "Skep", Methods: []string{"header"}}, nil
}
