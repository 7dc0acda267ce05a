package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/host/egress"
	"github.com/skep-dev/skep/host/grant"
	grantagent "github.com/skep-dev/skep/host/grant/agent"
	"github.com/skep-dev/skep/internal/telemetry"
	"github.com/skep-dev/skep/vault/inject"
	"github.com/skep-dev/skep/vault/scrub"
)

// outbound makes one request of a cell: it is judged by the cell's authority, shown to the app's outbound handler if there is
// one, and given its secrets on the way out. It is a Client of host/grant/http and an egress.Guard.
type outbound struct {
	r    *Runtime
	job  *job
	auth *grant.Authority
	box  *BoxWay // of a sandbox, whose request it is; nil of a cell

	mu   sync.Mutex
	now  agent.Request // where the request goes, of the last hop
	used []string      // secrets that went into the last hop
}

// Do makes the request.
func (o *outbound) Do(ctx context.Context, req *egress.Request) (*egress.Response, error) {
	ctx, span := o.r.opts.Tracer.Start(ctx, "http", trace.WithSpanKind(trace.SpanKindClient))
	defer span.End()
	res, err := o.do(ctx, req)
	if span.IsRecording() {
		o.mu.Lock()
		to := o.now
		o.mu.Unlock()
		span.SetAttributes(semconv.HTTPRequestMethodKey.String(to.Method), semconv.ServerAddress(to.Host), semconv.URLPath(to.Path))
		if err != nil {
			span.SetAttributes(attribute.String("error.type", agent.KindOf(err).String()))
			span.SetStatus(codes.Error, agent.AsError(err).Msg)
		} else {
			span.SetAttributes(semconv.HTTPResponseStatusCode(res.Status))
		}
	}
	return res, err
}

// do counts the bytes of both bodies, before they are passed on, and makes the request by the way that the app wants.
func (o *outbound) do(ctx context.Context, req *egress.Request) (*egress.Response, error) {
	info, err := o.r.App(ctx, o.job.App)
	if err != nil {
		return nil, err
	}
	out := *req
	switch whole, inMemory := req.Body.(interface{ Len() int }); {
	case req.Body == nil:
	case inMemory:
		if err := o.job.traffic(int64(whole.Len()), 0); err != nil {
			return nil, err
		}
	default: // it counts as it goes: what a guest says of its length may be anything
		out.Body = &counted{Reader: req.Body, count: func(n int64) error { return o.job.traffic(n, 0) }}
	}
	var res *egress.Response
	if info.Outbound != "" && info.Outbound != o.job.Agent {
		res, err = o.pass(ctx, info.Outbound, &out)
	} else {
		res, err = o.send(ctx, &out)
	}
	if err != nil {
		return nil, err
	}
	res.Body = &counted{Reader: res.Body, Closer: res.Body, count: func(n int64) error { return o.job.traffic(0, n) }}
	return res, nil
}

// send lets the request out.
func (o *outbound) send(ctx context.Context, req *egress.Request) (*egress.Response, error) {
	req.Owner, req.Header = egress.Owner{App: o.job.App, Agent: o.job.Agent}, o.header(ctx, req.Header)
	req.Observe = func(u agent.HTTPUse) { o.observe(ctx, u) }
	way := o.r.opts.Egress
	if o.box != nil {
		way = o.box.egress
	}
	res, err := way.Do(ctx, o, req)
	if err != nil {
		return nil, err
	}
	if res.Status == http.StatusUnauthorized {
		o.mu.Lock()
		used := slices.Clone(o.used)
		o.mu.Unlock()
		for _, name := range used {
			o.r.injector.Rejected(o.job.App, name)
		}
	}
	return res, nil
}

// header adds the place in the trace, unless the guest says one.
func (o *outbound) header(ctx context.Context, h [][2]string) [][2]string {
	t := telemetry.Traceparent(ctx)
	if t == "" || slices.ContainsFunc(h, func(f [2]string) bool { return strings.EqualFold(f[0], "traceparent") }) {
		return h
	}
	return append(h[:len(h):len(h)], [2]string{"traceparent", t})
}

// Allow judges one hop. One that may change the world leaves after the commit of all before it.
func (o *outbound) Allow(ctx context.Context, to agent.Request) error {
	if o.box != nil {
		if err := o.box.within(to); err != nil {
			return err
		}
	}
	if err := o.auth.HTTP(ctx, to); err != nil {
		return err
	}
	if !safe(to.Method) {
		if err := o.job.place.gate(ctx); err != nil {
			return err
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.now, o.used = to, nil
	return nil
}

// Still judges again where the request goes and which secrets are in it, by the grants as they are now.
func (o *outbound) Still(ctx context.Context) error {
	o.mu.Lock()
	to, used := o.now, o.used // which is added to, and never changed
	o.mu.Unlock()
	if to.Host == "" { // it has not been allowed yet
		return nil
	}
	return o.auth.StillHTTP(ctx, to, used...)
}

// Sign puts secrets into one hop. What went in is taken out of all that the cell says from now on.
func (o *outbound) Sign(ctx context.Context, req *http.Request, to agent.Request) (egress.Cleaner, error) {
	clean, err := o.r.injector.Sign(context.WithValue(ctx, exchangeKey{}, o.job.App), inject.Use{
		App: o.job.App, Agent: o.job.Agent, Run: o.job.Run,
		Allow: func(ctx context.Context, name string) error { return o.auth.Secret(ctx, name, to) },
		Audit: o.audit,
	}, req, to)
	if clean == nil || err != nil {
		return nil, err
	}
	o.job.secrets.Add(clean)
	return clean, nil
}

// audit writes a use of a secret down before the secret leaves.
func (o *outbound) audit(ctx context.Context, use agent.SecretUse) error {
	ev := agent.Event{Kind: agent.EventSecretUsed, Data: encode(use)}
	if err := o.r.Audit(ctx, o.job.App, ev); err != nil {
		return err
	}
	o.mu.Lock()
	o.used = append(o.used, use.Secret)
	o.mu.Unlock()
	o.job.sinks.event(ctx, ev)
	return nil
}

// observe tells of one hop that has ended.
func (o *outbound) observe(ctx context.Context, use agent.HTTPUse) {
	use.Agent, use.Run = o.job.Agent, o.job.Run
	outcome := fmt.Sprintf("%dxx", use.Status/100)
	if use.Status == 0 {
		outcome = "failed"
	}
	o.r.stats.egress.add(outcome)
	o.r.stats.sent.Add(use.Sent)
	o.r.stats.received.Add(use.Received)
	o.job.sinks.event(ctx, agent.Event{Kind: agent.EventHTTP, Data: encode(use)})
}

// HeaderAgent tells an outbound handler whose request it is shown. Nobody else sets it in a request to a fetch handler.
const HeaderAgent = "Skep-Agent"

// maxPassed is the most bytes of a body that an outbound handler is shown.
const maxPassed = 8 << 20

// pass has the app's outbound handler answer the request, which the agent must be granted all the same. Placeholders of secrets
// stay what they are: the handler may send them on where it is granted to.
func (o *outbound) pass(ctx context.Context, handler string, req *egress.Request) (*egress.Response, error) {
	u, to, err := egress.Parse(req.Method, req.URL)
	if err != nil {
		return nil, err
	}
	if err := o.Allow(ctx, to); err != nil {
		return nil, err
	}
	if o.job.depth+1 > grantagent.MaxDepth {
		return nil, agent.Errorf(agent.Exhausted, "agents call each other more than %d deep: is the outbound handler %q in a cycle?",
			grantagent.MaxDepth, handler)
	}
	header := slices.DeleteFunc(slices.Clone(req.Header), func(h [2]string) bool { return strings.EqualFold(h[0], HeaderAgent) })
	in := host.Request{Method: to.Method, URL: u.String(), Header: append(header, [2]string{HeaderAgent, o.job.Agent})}
	if req.Body != nil {
		if in.Body, err = io.ReadAll(io.LimitReader(req.Body, maxPassed+1)); err != nil {
			return nil, agent.Wrap(agent.Invalid, err, "the request's body could not be read")
		}
		if len(in.Body) > maxPassed {
			return nil, agent.Exceeded(agent.LimitHTTP, "the request's body has more than %d bytes, the most that the outbound handler %q is shown",
				maxPassed, handler)
		}
	}
	res, err := o.r.fetch(ctx, o.job.App, handler, in, o.job.depth+1, nil)
	if err != nil {
		e := *agent.AsError(err)
		e.Msg = fmt.Sprintf("the app's outbound handler %q refused the request: %s", handler, e.Msg)
		return nil, &e
	}
	return &egress.Response{
		Status: res.Status, Header: res.Header, URL: u.String(), Body: io.NopCloser(bytes.NewReader(res.Body)),
	}, nil
}

// counted is a body whose bytes are counted before anybody has them.
type counted struct {
	io.Reader
	io.Closer
	count func(n int64) error
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	if n > 0 {
		if refused := c.count(int64(n)); refused != nil {
			return 0, refused
		}
	}
	return n, err
}

func (c *counted) Close() error {
	if c.Closer == nil {
		return nil
	}
	return c.Closer.Close()
}

// exchange makes the requests that exchange secrets for tokens, each app's on connections of its own.
type exchange struct{ egress *egress.Egress }

type exchangeKey struct{} // of the app, in a context

func (e exchange) Do(req *http.Request) (*http.Response, error) {
	app, _ := req.Context().Value(exchangeKey{}).(agent.App)
	return e.egress.RoundTripper(exchangeGuard{}, egress.Owner{App: app}).RoundTrip(req)
}

// exchangeGuard lets through what exchanges a secret for a token: where that goes is said by the secret, which its owner set.
type exchangeGuard struct{}

func (exchangeGuard) Allow(context.Context, agent.Request) error { return nil }
func (exchangeGuard) Sign(context.Context, *http.Request, agent.Request) (egress.Cleaner, error) {
	return nil, nil
}

// newInjector returns what puts secrets into requests, or nil when there is no way out for any.
func newInjector(o *Options) *inject.Injector {
	if o.Egress == nil {
		return nil
	}
	return inject.New(o.Secrets, &inject.Options{Exchange: exchange{o.Egress}})
}

// cleanJSON takes secrets out of a JSON value, which stays one.
func cleanJSON(secrets *scrub.Set, data json.RawMessage) json.RawMessage {
	out := secrets.Bytes(data)
	if bytes.Equal(out, data) || json.Valid(out) {
		return out
	}
	return json.RawMessage(`"` + scrub.Mark + `"`)
}

// cleanError takes secrets out of what a caller learns of an error.
func cleanError(secrets *scrub.Set, err error) error {
	var e *agent.Error
	if secrets.Scrubber() == nil || !errors.As(err, &e) {
		return err
	}
	clean := *e
	clean.Msg, clean.Hint, clean.Stack = secrets.String(e.Msg), secrets.String(e.Hint), secrets.String(e.Stack)
	if e.Err != nil {
		clean.Err = errors.New(secrets.String(e.Err.Error()))
	}
	return &clean
}

// cleaned wraps sinks so that no secret that went out of the cell is in what the cell says.
func (s sinks) cleaned(secrets *scrub.Set) sinks {
	out := sinks{event: s.event}
	out.line = func(ctx context.Context, line agent.LogLine) error {
		line.Message = secrets.String(line.Message)
		return s.line(ctx, line)
	}
	out.emit = func(ctx context.Context, name string, data json.RawMessage) error {
		return s.emit(ctx, secrets.String(name), cleanJSON(secrets, data))
	}
	return out
}

// safe reports whether a request changes nothing (RFC 9110, section 9.2.1), so that it may leave before what led to it is durable.
func safe(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions:
		return true
	}
	return false
}
