package gateway

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/guard"
	"github.com/skep-dev/skep/gateway/leak"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/vault/scrub"
)

// shipment is a request on its way to a provider.
type shipment struct {
	wire.Call
	codec   wire.Codec // of the provider
	pass    bool       // bytes are passed as they are, both ways
	decode  bool       // but not those of the answer, which guard looks at as it comes
	guard   *guard.Guard
	told    bool // the client was told of the fault, by the provider's own words
	from    wire.Origin
	request *http.Request
	clean   *scrub.Scrubber
	call    *call
	record  *recording
	last    func(*wire.Fault) []byte // the last frame of a stream that breaks; the codec's unless set
	cancel  context.CancelCauseFunc
	silence *time.Timer // ends a call that is silent for too long; it runs while something is waited for
	idle    time.Duration
	late    atomic.Pointer[error] // why it ends then
}

// prepare makes a request as the provider wants it.
func (x *exchange) prepare(c *choice, from wire.Origin) (*shipment, error) {
	s := &shipment{codec: x.g.codecs[c.speaks], from: from}
	if s.codec == nil {
		return nil, agent.Errorf(agent.Invalid, "this server does not speak %s", c.speaks)
	}
	to := wire.Target{Model: c.model, Origin: from, Now: x.g.o.Now()}
	s.pass = x.in != nil && c.speaks == x.protocol && !x.foreign(from) && c.effort == ""
	prompt := x.guard(true, c)
	if prompt == nil { // else the body may become another
		to.Parsed = x.peek.Parsed
	}
	s.guard = x.guard(false, c)
	if s.guard != nil && x.peek.Stream && s.pass {
		r, err := x.canonical()
		if err != nil {
			return nil, err
		}
		s.decode, s.pass = true, !r.Array
	}
	if s.pass {
		if prompt != nil && x.op == wire.Embed && hasTokens(gjson.GetBytes(x.in.Body, "input")) {
			return nil, &agent.Error{
				Kind: agent.Invalid, Msg: "the input is tokens, which the guardrails of this app cannot look at", Hint: "send it as text",
			}
		}
		body, found := x.clearBody(prompt)
		if found != nil {
			return nil, x.guarded(c, found, "prompt")
		}
		var err error
		s.Call, err = s.codec.Patch(x.op, x.in.Path, x.in.Query, x.in.Header, body, to)
		return s, err
	}
	r, err := x.canonical()
	if err != nil {
		return nil, err
	}
	r, found := x.clearRequest(prompt, r)
	if found != nil {
		return nil, x.guarded(c, found, "prompt")
	}
	if c.effort != "" && r.Reasoning == nil {
		with := *r
		with.Reasoning = &wire.Reasoning{Effort: c.effort}
		r = &with
	}
	s.Call, err = s.codec.Encode(x.op, r, to)
	return s, err
}

// foreign reports whether the request carries opaque data of another origin than it goes to, which must not be passed on.
func (x *exchange) foreign(to wire.Origin) bool {
	if !x.peek.Signed {
		return false
	}
	for _, call := range x.peek.Calls {
		if o := x.originOf(call); o != nil && !o.Fits(to) {
			return true
		}
	}
	return false
}

// passes reports whether the bytes of the answer are passed as they are.
func (s *shipment) passes() bool { return s.pass && !s.decode }

// request makes the HTTP request of a shipment. The key goes in here, at the last step.
func (x *exchange) request(p *provider, k *key, s *shipment) (*http.Request, *scrub.Scrubber, error) {
	h := s.Header
	if h == nil {
		h = make(http.Header, 8)
	}
	for name, v := range p.Header {
		h.Set(name, v)
	}
	if h["Content-Type"] == nil {
		h["Content-Type"] = []string{"application/json"}
	}
	h["Accept-Encoding"] = []string{"identity"}
	if h["User-Agent"] == nil {
		h["User-Agent"] = []string{"skep"}
	}
	var clean *scrub.Scrubber
	if k != nil {
		value, err := x.secret(p, k.Secret)
		if err != nil {
			return nil, nil, err
		}
		clean = p.health.use(k, value)
		switch {
		case p.Auth == "":
			s.codec.Key(h, value)
		case strings.EqualFold(p.Auth, "Authorization"):
			h["Authorization"] = []string{"Bearer " + value}
		default:
			h.Set(p.Auth, value)
		}
	}
	u := &url.URL{Scheme: p.base.Scheme, Host: p.base.Host, Path: p.base.Path + s.Path, RawQuery: s.Query}
	if strings.Contains(u.Path, "%") { // the codec has escaped what is a name
		plain, err := url.PathUnescape(u.Path)
		if err != nil {
			return nil, nil, agent.Errorf(agent.Invalid, "the name of the model cannot be in a path")
		}
		u.Path, u.RawPath = plain, u.Path
	}
	body := s.Body
	r := &http.Request{
		Method: http.MethodPost, URL: u, Host: u.Host, Header: h, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: sentBody{bytes.NewReader(body)}, ContentLength: int64(len(body)),
		GetBody: func() (io.ReadCloser, error) { return sentBody{bytes.NewReader(body)}, nil },
	}
	return r, clean, nil
}

// sentBody is a request's body. It tells how much of it is left, by which a transport sees that it has all of it in memory.
type sentBody struct{ *bytes.Reader }

func (sentBody) Close() error { return nil }

// send makes one call to a provider and brings its answer to who asked.
func (x *exchange) send(parent context.Context, s *shipment, out http.RoundTripper, until time.Time) *wire.Fault {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	l := s.call
	p := l.c.p
	s.cancel, s.idle = cancel, orDefault(p.Idle, defaultIdle)
	wait, cause := orDefault(p.Headers, defaultHeaders), errHeaders
	if left := until.Sub(x.g.o.Now()); left < wait {
		wait, cause = left, errDeadline
	}
	s.late.Store(&cause)
	s.silence = time.AfterFunc(wait, func() { cancel(*s.late.Load()) })
	defer s.silence.Stop()
	l.left, l.sent = true, len(s.Body)
	if x.g.watched(x.who.App, p.Name) {
		s.record = &recording{}
	}
	res, err := out.RoundTrip(s.request.WithContext(ctx))
	if err != nil {
		l.left = !unsent(err)
		return x.failed(s, cleaned(x.faultOf(ctx, p, err, false), s.clean), nil, "")
	}
	defer func() { cancel(nil); _ = res.Body.Close() }()
	s.silence.Stop()
	s.late.Store(&errIdle)
	if s.record != nil {
		s.record.status, s.record.header = res.StatusCode, res.Header
	}
	body, err := x.reader(s, res)
	if err != nil {
		return x.failed(s, &wire.Fault{Class: agent.ServerFault, Status: http.StatusBadGateway, Type: "upstream_error", Message: "the provider " + p.Name + ": " + err.Error()}, nil, "")
	}
	typ := res.Header.Get("Content-Type")
	if res.StatusCode >= 300 {
		return x.refused(ctx, s, res, body, typ)
	}
	sse := strings.HasPrefix(typ, "text/event-stream")
	switch {
	case s.passes() && x.peek.Stream && (sse || x.protocol == agent.GeminiProtocol):
		return x.passStream(ctx, s, res, body, typ, sse)
	case x.op == wire.Count && !s.pass:
		return x.translateCount(ctx, s, res, body)
	case s.passes():
		return x.passWhole(ctx, s, res, body)
	case sse:
		return x.translateStream(ctx, s, res, body)
	}
	return x.translateWhole(ctx, s, res, body)
}

func orDefault(d, or time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return or
}

// failed keeps what is told when nobody else can be asked.
func (x *exchange) failed(s *shipment, f *wire.Fault, body []byte, typ string) *wire.Fault {
	if f.Class != agent.ClientAbort {
		x.last = failure{f, s.call.c, body, typ}
	}
	return f
}

// reader reads a body: decoded, watched, counted and recorded.
func (x *exchange) reader(s *shipment, res *http.Response) (io.Reader, error) {
	var r io.Reader = &body{from: res.Body, s: s}
	switch enc := res.Header.Get("Content-Encoding"); enc {
	case "", "identity":
	case "gzip":
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, errors.New("its answer is not in the encoding that it says")
		}
		res.ContentLength, r = -1, z
	default:
		return nil, errors.New("its answer is in an encoding that was not asked for")
	}
	if s.record != nil {
		r = io.TeeReader(r, s.record)
	}
	return r, nil
}

// cleanBytes takes the key out of bytes: of a whole body, or of whole frames of a stream. A key whose pieces are in several frames is the affair of leak.
func (s *shipment) cleanBytes(b []byte) []byte { return s.clean.Bytes(b) }

// body is a response's body.
type body struct {
	from io.Reader
	s    *shipment
}

func (b *body) Read(p []byte) (int, error) {
	b.s.silence.Reset(b.s.idle)
	n, err := b.from.Read(p)
	b.s.silence.Stop() // a client that is slow to take it is not the provider's silence
	b.s.call.received += n
	return n, err
}

// refused reads an answer that is an error.
func (x *exchange) refused(ctx context.Context, s *shipment, res *http.Response, r io.Reader, typ string) *wire.Fault {
	text, err := io.ReadAll(io.LimitReader(r, maxFault))
	text = s.cleanBytes(text)
	s.call.left = false
	if err != nil {
		if f := x.faultOf(ctx, s.call.c.p, err, false); f.Class == agent.ClientAbort {
			return f
		}
	}
	if res.StatusCode < 400 {
		return x.failed(s, &wire.Fault{
			Class: agent.ServerFault, Status: http.StatusBadGateway, Type: "upstream_error", Message: "the provider " + s.call.c.p.Name + " leads elsewhere, where it is not followed",
		}, nil, "")
	}
	f := s.codec.DecodeFault(res.StatusCode, res.Header, text)
	if f.Message == "" {
		f.Message = "the provider " + s.call.c.p.Name + " answered " + strconv.Itoa(res.StatusCode) + " " + http.StatusText(res.StatusCode)
	}
	if !s.pass || !strings.HasPrefix(typ, "application/json") || f.Class == agent.AuthFault {
		text = nil // what the provider's key is, is none of the client's business
	}
	return x.failed(s, cleaned(f, s.clean), text, typ)
}

// whole reads a body that is not streamed.
func (x *exchange) whole(ctx context.Context, s *shipment, res *http.Response, r io.Reader) ([]byte, *wire.Fault) {
	var buf bytes.Buffer
	if n := res.ContentLength; n > 0 && n <= MaxAnswer {
		buf.Grow(int(n) + bytes.MinRead)
	}
	_, err := buf.ReadFrom(io.LimitReader(r, MaxAnswer+1))
	switch {
	case err != nil:
		return nil, x.failed(s, x.faultOf(ctx, s.call.c.p, err, true), nil, "")
	case buf.Len() > MaxAnswer:
		return nil, x.failed(s, &wire.Fault{Class: agent.InvalidRequest, Status: http.StatusBadGateway, Message: "the answer is larger than may be"}, nil, "")
	}
	return s.cleanBytes(buf.Bytes()), nil
}

// recording keeps the beginning of a body.
type recording struct {
	status int
	header http.Header
	body   bytes.Buffer
	more   bool
}

func (r *recording) Write(p []byte) (int, error) {
	n := min(len(p), MaxRecord-r.body.Len())
	r.body.Write(p[:n])
	r.more = r.more || n < len(p)
	return len(p), nil
}

// recorded are the header fields that a cassette keeps.
var recorded = []string{"Content-Type", "Retry-After", "Retry-After-Ms", "X-Should-Retry", "Request-Id", "X-Request-Id"}

func (r *recording) done(tell func(Exchange), s *shipment) {
	c := s.call
	e := Exchange{
		App: c.x.who.App, Provider: c.c.p.Name, Model: c.c.model, Protocol: c.c.speaks, Stream: c.x.peek.Stream, Op: c.x.op, Path: s.Path, Status: r.status, Header: http.Header{},
		Request: s.Body, Body: r.body.Bytes(), Truncated: r.more,
	}
	if s.Query != "" {
		e.Path += "?" + s.Query
	}
	if len(e.Request) > MaxRecord {
		e.Request, e.Truncated = e.Request[:MaxRecord], true
	}
	framed := strings.HasPrefix(r.header.Get("Content-Type"), "text/event-stream")
	if framed || e.Stream && c.c.speaks == agent.GeminiProtocol {
		e.Body = leak.Bytes(s.clean, func() wire.Meter { return s.codec.Meter(true) }, framed, e.Body)
	}
	e.Request, e.Body = s.cleanBytes(e.Request), s.cleanBytes(e.Body)
	for name, vs := range r.header {
		if !slices.Contains(recorded, name) {
			continue
		}
		for _, v := range vs {
			e.Header.Add(name, s.clean.String(v))
		}
	}
	tell(e)
}
