package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"reflect"
	"runtime/debug"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway"
	"github.com/skep-dev/skep/internal/telemetry"
)

// endpoint is a handler with its types forgotten.
type endpoint struct {
	in, out reflect.Type
	plan    plan
	call    func(ctx context.Context, src source, token agent.TokenID, body []byte) (any, error)
}

// handle makes an endpoint of a handler. Q is a request type (see plan). R is a struct for JSON, a made, a raw, a *content, a *stream,
// a *socket or an *instanceSocket.
func handle[Q, R any](f func(context.Context, Q) (R, error)) endpoint {
	e := endpoint{in: reflect.TypeFor[Q](), out: reflect.TypeFor[R](), plan: planOf(reflect.TypeFor[Q]())}
	p := &e.plan
	e.call = func(ctx context.Context, src source, token agent.TokenID, body []byte) (any, error) {
		var q Q
		if err := p.decode(reflect.ValueOf(&q).Elem(), src, token, body); err != nil {
			return nil, err
		}
		return f(ctx, q)
	}
	return e
}

// nothing is the result of a handler that answers with an empty body.
type nothing struct{}

// made is the result of a creation, which may be the replay of an earlier one with the same Idempotency-Key.
type made[T any] struct {
	value    T
	replayed bool
}

func (m made[T]) result() (any, bool) { return m.value, m.replayed }

// withStatus is a result with another status than the route's.
type withStatus struct {
	status int
	value  any
}

// raw is a result that is not JSON.
type raw struct {
	status      int // 0 means the route's
	contentType string
	header      [][2]string
	body        []byte
	stream      *stream // in place of all others, when the body comes in pieces
}

// request is the context of one request.
type request struct {
	context.Context
	id    string
	token agent.Token // the zero one on routes that need none
	app   agent.App   // that it is about

	ai     bool           // a request of the model gateway
	caller gateway.Caller // of it
	conn   net.Conn       // that it came by
}

type requestKey struct{}

func (r *request) Value(key any) any {
	if key == (requestKey{}) {
		return r
	}
	return r.Context.Value(key)
}

// requestOf returns the request that a handler's ctx is of.
func requestOf(ctx context.Context) *request { return ctx.Value(requestKey{}).(*request) }

// serve answers one request on a route.
func (s *Server) serve(l life, r *route, c *fiber.Ctx) (err error) {
	began := time.Now()
	req := &request{id: s.ids.next(), ai: r.ai, conn: c.Context().Conn()}
	ctx := telemetry.WithTraceparent(l.hard, string(c.Request().Header.Peek("Traceparent")))
	ctx, span := s.o.Tracer.Start(ctx, r.method+" "+r.path, trace.WithSpanKind(trace.SpanKindServer))
	req.Context = telemetry.With(ctx, slog.String("request", req.id))
	defer func() {
		if err != nil {
			err = s.fail(c, req, err)
		}
		s.note(r, c, req, time.Since(began))
		endSpan(span, r, c.Response().StatusCode(), req.id)
	}()
	out, err := guarded(func() (any, error) { return s.answer(req, r, c) })
	if err != nil {
		return err
	}
	return s.respond(l, r, c, req, out)
}

// endSpan tells how the request ended, in the terms of OpenTelemetry's conventions for HTTP servers.
func endSpan(span trace.Span, r *route, status int, id string) {
	if span.IsRecording() {
		span.SetAttributes(semconv.HTTPRequestMethodKey.String(r.method), semconv.HTTPRoute(r.path),
			semconv.HTTPResponseStatusCode(status), attribute.String("skep.request", id))
		if status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, http.StatusText(status))
		}
	}
	span.End()
}

// guarded turns a panic of f into an error.
func guarded(f func() (any, error)) (out any, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	return f()
}

func (s *Server) answer(req *request, r *route, c *fiber.Ctx) (any, error) {
	switch {
	case r.ai:
		if err := s.admitAI(req, r, c); err != nil {
			return nil, err
		}
	case !r.open:
		if err := s.admit(req, r, c); err != nil {
			return nil, err
		}
	}
	p := &r.endpoint.plan
	var body []byte
	if p.stream && int64(c.Request().Header.ContentLength()) > r.limit {
		return nil, tooLarge(r)
	}
	if p.json || p.raw {
		if err := checkContent(p, string(c.Request().Header.ContentType()), string(c.Request().Header.ContentEncoding()),
			c.Request().Header.ContentLength() == 0); err != nil {
			return nil, err
		}
		var err error
		if body, err = readBody(c, r); err != nil {
			return nil, err
		}
	}
	return r.endpoint.call(req, fiberSource{c}, req.token.ID, body)
}

func tooLarge(r *route) error {
	return &agent.Error{Kind: agent.Exhausted, Limit: r.limitKind, Msg: fmt.Sprintf("the body is larger than %d bytes", r.limit)}
}

// readBody returns the body as a slice of the caller's own.
func readBody(c *fiber.Ctx, r *route) ([]byte, error) {
	n := int64(c.Request().Header.ContentLength())
	if n > r.limit {
		return nil, tooLarge(r)
	}
	stream := c.Context().RequestBodyStream()
	if stream == nil || n == 0 {
		return nil, nil
	}
	var b []byte
	var err error
	if n > 0 {
		b = make([]byte, n)
		_, err = io.ReadFull(stream, b)
	} else if b, err = io.ReadAll(io.LimitReader(stream, r.limit+1)); int64(len(b)) > r.limit {
		return nil, tooLarge(r)
	}
	if err != nil {
		return nil, agent.Wrap(agent.Invalid, err, "the body ended before its declared length, or came too slowly")
	}
	return b, nil
}

// respond writes a handler's result.
func (s *Server) respond(l life, r *route, c *fiber.Ctx, req *request, out any) error {
	s.mark(c, req)
	status := r.status
	if w, ok := out.(withStatus); ok {
		status, out = w.status, w.value
	}
	if m, ok := out.(interface{ result() (any, bool) }); ok {
		var replayed bool
		if out, replayed = m.result(); replayed {
			c.Set("Idempotent-Replayed", "true")
		}
	}
	switch out := out.(type) {
	case nothing:
		c.Status(status)
		return nil
	case raw:
		if out.stream != nil {
			return s.respond(l, r, c, req, out.stream)
		}
		for _, h := range out.header {
			c.Response().Header.Add(h[0], h[1])
		}
		if out.contentType != "" && validHeader([2]string{"Content-Type", out.contentType}) {
			c.Response().Header.SetContentType(out.contentType)
		}
		if out.status != 0 {
			status = out.status
		}
		c.Status(status)
		c.Response().SetBodyRaw(out.body)
		return nil
	case *content:
		return s.respondContent(c, out)
	case *stream:
		c.Status(cmp.Or(out.status, http.StatusOK))
		if out.header == nil {
			c.Set("Cache-Control", "no-store")
		}
		c.Set("X-Accel-Buffering", "no") // nginx would hold events back
		for _, h := range out.header {
			c.Response().Header.Add(h[0], h[1])
		}
		if out.contentType != "" {
			c.Response().Header.SetContentType(out.contentType)
		}
		c.Response().ImmediateHeaderFlush = out.body == nil
		c.Context().SetBodyStream(s.newStreamBody(l, out, c.Context().Conn()), -1)
		return nil
	case *socket:
		return s.upgrade(l, c, req, out)
	case *instanceSocket:
		return s.upgradeInstance(l, c, out)
	}
	b, err := encodeJSON(out)
	if err != nil {
		return fmt.Errorf("encode response: %w", err)
	}
	c.Response().Header.SetContentType(typeJSON)
	c.Status(status)
	c.Response().SetBodyRaw(b)
	return nil
}

// mark names the request in its response.
func (s *Server) mark(c *fiber.Ctx, req *request) {
	c.Response().Header.Set("Request-Id", req.id)
	if t := telemetry.Traceparent(req); t != "" {
		c.Response().Header.Set("Traceparent", t)
	}
}

// fail is the one place that turns an error into a response.
func (s *Server) fail(c *fiber.Ctx, req *request, err error) error {
	p := problemOf(err, req.id)
	level := slog.LevelDebug
	if p.Kind == agent.Internal {
		level = slog.LevelError
	}
	s.o.Log.Log(req, level, "api: request failed", "method", strings.Clone(c.Method()),
		"path", loggedPath(strings.Clone(c.Path())), "status", p.Status, "err", err)

	if req.ai && s.failAI(c, req, err) {
		s.linger(c)
		return nil
	}
	c.Response().ResetBody()
	s.mark(c, req)
	switch {
	case p.Status == http.StatusUnauthorized:
		c.Set("WWW-Authenticate", s.challenge(c, err))
	case p.worthRetrying():
		c.Set("Retry-After", p.retryAfter())
	}
	c.Status(p.Status)
	c.Response().Header.SetContentType(typeProblem)
	c.Response().SetBodyRaw(p.encode())
	s.linger(c)
	return nil
}

// linger closes the connection of a refused request after the response, when what is left of the body is not worth reading.
func (s *Server) linger(c *fiber.Ctx) {
	if n := c.Request().Header.ContentLength(); n > maxUnread || n == -1 {
		if lc, ok := c.Context().Conn().(*conn); ok {
			c.Response().Header.SetConnectionClose()
			lc.lingerOnClose()
		}
	}
}

// refuse answers requests that reached no route: errors of fiber, of fasthttp and of the guard.
func (s *Server) refuse(c *fiber.Ctx, err error) error {
	if fe, ok := errors.AsType[*fiber.Error](err); ok {
		switch fe.Code {
		case http.StatusNotFound:
			err = agent.Errorf(agent.NotFound, "there is nothing at %s %.200q", c.Method(), loggedPath(c.Path()))
		case http.StatusMethodNotAllowed:
			err = invalidAs(fe.Code, fmt.Sprintf("%s is not a method of this resource", c.Method()), "see the Allow header")
		case http.StatusInternalServerError:
		default:
			err = invalidAs(fe.Code, "the request was refused: "+fasthttp.StatusMessage(fe.Code), "")
		}
	} else if _, ok := errors.AsType[*agent.Error](err); !ok { // a request that cannot be parsed
		err = agent.Wrap(agent.Invalid, err, "the request is not valid HTTP")
	}
	id := s.ids.next()
	return s.fail(c, &request{Context: telemetry.With(context.Background(), slog.String("request", id)), id: id}, err)
}

// note counts and logs a request that was answered.
func (s *Server) note(r *route, c *fiber.Ctx, req *request, took time.Duration) {
	status := c.Response().StatusCode()
	s.metrics.note(r.index, status, took)
	if s.o.Log.Enabled(req, slog.LevelDebug) {
		s.o.Log.DebugContext(req, "api: request", "operation", r.id, "status", status, "took", took)
	}
}
