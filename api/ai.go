package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"net/http"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway"
	"github.com/skep-dev/skep/gateway/httpfront"
)

// aiPrefix is before the paths of models' protocols.
const aiPrefix = "/ai"

// aiRequest is a request in some protocol of models, which package gateway answers.
type aiRequest struct {
	URL     string      `meta:"url"`
	Headers [][2]string `meta:"headers"`
	Body    []byte      `body:"raw"`
}

// aiLookup is one without a body.
type aiLookup struct {
	URL     string      `meta:"url"`
	Headers [][2]string `meta:"headers"`
}

// aiRoutes are the endpoints of models. What a path is for, and in which protocol, is httpfront.Find's to say.
func (s *Server) aiRoutes() (rs []route) {
	ask := func(path, id, summary string) {
		rs = append(rs, route{
			method: "POST", path: aiPrefix + path, id: id, summary: summary, ai: true, limit: gateway.MaxBody, media: []string{typeAny},
			endpoint: handle(func(ctx context.Context, q aiRequest) (raw, error) { return s.talkAI(ctx, "POST", q) }),
		})
	}
	look := func(path, id, summary string) {
		rs = append(rs, route{
			method: "GET", path: aiPrefix + path, id: id, summary: summary, ai: true, media: []string{typeAny},
			endpoint: handle(func(ctx context.Context, q aiLookup) (raw, error) {
				return s.talkAI(ctx, "GET", aiRequest{URL: q.URL, Headers: q.Headers})
			}),
		})
	}
	for _, at := range []struct{ path, id string }{{"/v1", ""}, {"", "Short"}} {
		ask(at.path+"/chat/completions", "aiChat"+at.id, "Ask a model: OpenAI chat completions")
		ask(at.path+"/responses", "aiResponses"+at.id, "Ask a model: OpenAI responses")
		ask(at.path+"/responses/input_tokens", "aiInputTokens"+at.id, "Count the tokens of a request: OpenAI responses")
		ask(at.path+"/embeddings", "aiEmbeddings"+at.id, "Make vectors of texts: OpenAI embeddings")
		look(at.path+"/models", "aiModels"+at.id, "List models, in the form of who asks")
		look(at.path+"/models/{path}", "aiModel"+at.id, "Show a model, in the form of who asks")
	}
	ask("/v1/messages", "aiMessages", "Ask a model: Anthropic messages")
	ask("/v1/messages/count_tokens", "aiCountTokens", "Count the tokens of a request: Anthropic messages")
	ask("/v1beta/models/{path}", "aiGemini", "Ask a model or count tokens: Gemini")
	look("/v1beta/models", "aiGeminiModels", "List models: Gemini")
	look("/v1beta/models/{path}", "aiGeminiModel", "Show a model: Gemini")
	for _, at := range []struct{ path, id string }{{"", "aiProbe"}, {"/", "aiProbeRoot"}} {
		rs = append(rs, route{method: "HEAD", path: aiPrefix + at.path, id: at.id, summary: "Find out whether there is a model gateway", endpoint: handle(s.probeAI), open: true})
	}
	return rs
}

func (s *Server) probeAI(context.Context, empty) (raw, error) {
	if s.o.Models == nil {
		return raw{}, errNoModels
	}
	return raw{}, nil
}

type empty struct{}

var errNoModels = agent.Errorf(agent.NotFound, "this server has no model gateway")

// talkAI answers one request: whole, or as a stream.
func (s *Server) talkAI(ctx context.Context, method string, q aiRequest) (raw, error) {
	if s.o.Models == nil {
		return raw{}, errNoModels
	}
	target, query, _ := strings.Cut(q.URL, "?")
	header := headerOf(q.Headers)
	path := strings.TrimPrefix(target, aiPrefix)
	protocol, op := httpfront.Find(method, path, header)
	r := &gateway.Request{Protocol: protocol, Op: op, Path: path, Query: query, Header: header, Body: q.Body}
	req := requestOf(ctx)
	ctx, cancel := context.WithCancel(ctx)
	stop := watchGone(req.conn, cancel)
	p := newAIPipe(req.conn, mayStream(q.URL, q.Body), func(p *aiPipe) error { return s.o.Models.Serve(ctx, req.caller, r, p) })
	if !p.begin() {
		stop()
		cancel()
		if p.err != nil && !p.wrote {
			return raw{}, p.err
		}
		return p.whole(), nil
	}
	return raw{stream: &stream{
		status: p.status, contentType: p.header.Get("Content-Type"), header: headerList(p.header), body: p,
		close: func() {
			cancel()
			p.stop()
			stop()
		},
	}}, nil
}

// mayStream reports whether the answer to a request may be a stream: no protocol has one without this word in the path or in the body, where JSON may spell it
// with escapes.
func mayStream(url string, body []byte) bool {
	return strings.Contains(url, "stream") || strings.Contains(url, "%") || bytes.Contains(body, []byte("stream")) || bytes.Contains(body, []byte(`\u`))
}

// headerOf is a list of fields as package net/http has it.
func headerOf(list [][2]string) http.Header {
	h := make(http.Header, len(list))
	values := make([]string, len(list)) // one array for all
	for i, f := range list {
		name := http.CanonicalHeaderKey(f[0])
		if was := h[name]; was != nil {
			h[name] = append(was, f[1])
			continue
		}
		values[i] = f[1]
		h[name] = values[i : i+1 : i+1]
	}
	return h
}

// admitAI finds out who asks: with a virtual key, which is good for models alone, or with a token.
func (s *Server) admitAI(req *request, r *route, c *fiber.Ctx) error {
	if s.o.Models == nil {
		return errNoModels
	}
	value, inURL := aiKey(c)
	if value == "" {
		return &agent.Error{
			Kind: agent.Unauthenticated, Msg: "this needs a key", Hint: "make one with skep model key create, and send it as the protocol has it, or as Authorization: Bearer KEY",
		}
	}
	asked := string(c.Request().Header.Peek(headerApp))
	if asked == "" && !r.passes() {
		asked = string(c.Request().URI().QueryArgs().Peek("app"))
	}
	if strings.HasPrefix(value, tokenPrefix) && !inURL { // tokens stay out of URLs, which are logged
		tok, err := s.tokens.authenticate(req, "Bearer "+value)
		switch {
		case err == nil:
			req.token = tok
			if req.app, err = scope(tok, agent.App(asked), r); err != nil {
				return err
			}
			req.caller = gateway.Caller{App: req.app}
			_, err = s.rt.App(req, req.app)
			return err
		case agent.KindOf(err) != agent.Unauthenticated:
			return err
		}
	}
	k, err := s.st.ModelKeyByHash(req, sha256.Sum256([]byte(value)))
	if err != nil {
		return err
	}
	if asked != "" && agent.App(asked) != k.App {
		return agent.Errorf(agent.Denied, "this key is for app %q alone, not for %.80q", k.App, asked)
	}
	req.app = k.App
	req.caller = gateway.Caller{App: k.App, Agent: k.Agent, Session: k.Session, Run: k.Run, User: k.User, Key: k.ID}
	if len(k.Models) > 0 {
		req.caller.Models = k.Models
	}
	return nil
}

// aiKey is the key of a request, wherever the protocols have it.
func aiKey(c *fiber.Ctx) (value string, inURL bool) {
	if v := httpfront.HeaderKey(func(name string) string { return string(c.Request().Header.Peek(name)) }); v != "" {
		return v, false
	}
	return string(c.Request().URI().QueryArgs().Peek("key")), true
}

// failAI tells a client of the model gateway of an error, as its protocol has it. It reports whether it did.
func (s *Server) failAI(c *fiber.Ctx, req *request, err error) bool {
	if s.o.Models == nil {
		return false
	}
	header := http.Header{}
	if v := c.Request().Header.Peek("Anthropic-Version"); len(v) > 0 {
		header.Set("Anthropic-Version", string(v))
	}
	protocol, _ := httpfront.Find(c.Method(), strings.TrimPrefix(string(c.Request().URI().PathOriginal()), aiPrefix), header)
	p := &aiPipe{}
	err = s.o.Models.Refuse(protocol, err, p)
	if err != nil || !p.wrote {
		return false
	}
	c.Response().ResetBody()
	s.mark(c, req)
	out := p.whole()
	for _, h := range out.header {
		c.Response().Header.Set(h[0], h[1])
	}
	c.Response().Header.SetContentType(out.contentType)
	c.Status(out.status)
	c.Response().SetBodyRaw(out.body)
	return true
}
