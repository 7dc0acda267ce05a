package egress

import (
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/skep-dev/skep/agent"
)

// call is one Do, from its start to the end of the response's body.
type call struct {
	egress  *Egress
	guard   Guard
	req     *Request
	limits  *Limits
	host    string // of the first hop, as the header Host says it
	pool    *pool
	ctx     context.Context
	cancel  context.CancelCauseFunc
	attempt attempt // ctx, for the dialer
	trace   httptrace.ClientTrace
	watch   watch
	body    *upload // nil without a body
	bare    bool    // a redirect took the body away
	crossed bool    // a redirect went to another origin
	cleaner Cleaner
	hop     hop
	early   atomic.Int64 // informational responses, of all hops

	stop func() bool // of what ends the call when the caller's context ends
	once sync.Once
}

// Do makes a request and returns when the header of its response is there. Canceling ctx ends the request and cuts both bodies.
// All its errors are agent.Errors: Invalid for what can be sent to nobody, Denied by the guard or for the address, Exhausted
// over a limit, Unavailable when the other side fails, and Cancelled. They hold neither a query nor a header's value.
func (e *Egress) Do(ctx context.Context, g Guard, r *Request) (*Response, error) {
	c := &call{egress: e, guard: g, req: r, limits: &e.limits}
	if r.Limits != (Limits{}) {
		narrow := r.Limits.within(e.limits)
		c.limits = &narrow
	}
	if len(r.URL) > c.limits.URL {
		return nil, agent.Exceeded(agent.LimitHTTP, "the URL has %d bytes, more than %d", len(r.URL), c.limits.URL)
	}
	u, to, err := Parse(r.Method, r.URL)
	if err != nil {
		return nil, err
	}
	header, err := requestHeader(r.Header, u.Host, c.limits)
	if err != nil {
		return nil, err
	}
	c.host = u.Host
	if c.body, err = newUpload(c, r); err != nil {
		return nil, err
	}
	if err := g.Allow(ctx, to); err != nil {
		return nil, err
	}
	c.pool = e.pools.take(r.Owner)
	if err := e.admit(ctx, c.pool, c.limits); err != nil {
		e.pools.give(c.pool)
		return nil, err
	}
	c.start(ctx)
	res, err := c.run(u, to, header)
	if err != nil {
		e.log.DebugContext(ctx, "outbound request", "app", r.Owner.App, "agent", r.Owner.Agent, "method", to.Method, "url", to.URL(), "error", err)
		c.end(err)
		return nil, err
	}
	return res, nil
}

func (c *call) start(ctx context.Context) {
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	c.attempt = attempt{Context: c.ctx, limits: c.limits}
	c.trace = httptrace.ClientTrace{WroteRequest: c.wrote, Got1xxResponse: c.informational}
	c.watch.start(c)
	c.stop = context.AfterFunc(ctx, func() { c.end(causeOf(ctx)) })
}

// cut ends the call from outside, with a reason.
func (c *call) cut(err error) {
	c.cancel(err)
	c.end(err)
}

func (c *call) wrote(i httptrace.WroteRequestInfo) {
	if i.Err == nil {
		c.watch.await(waitHeader, c.limits.Header)
	}
}

// end gives back what the call holds, once. It may run while the body is read.
func (c *call) end(err error) {
	c.once.Do(func() {
		c.stop()
		c.watch.stop()
		c.cancel(errEnded)
		c.hop.end(c.req, err)
		c.egress.all.Release(1)
		c.pool.slots.Release(1)
		c.egress.pools.give(c.pool)
	})
}

var errEnded = &agent.Error{Kind: agent.Cancelled, Msg: "the response's body is closed"}

// informational counts the responses before the response.
func (c *call) informational(int, textproto.MIMEHeader) error {
	if c.early.Add(1) > int64(c.limits.Informational) {
		err := agent.Exceeded(agent.LimitHTTP, "more than %d informational responses came before the response", c.limits.Informational)
		return c.fail(err)
	}
	return nil
}

// run goes from hop to hop until there is a response to return.
func (c *call) run(u *url.URL, to agent.Request, header http.Header) (*Response, error) {
	for n := 0; ; n++ {
		res, err := c.exchange(u, to, header)
		if err != nil {
			return nil, err
		}
		location := redirectOf(res)
		if location == "" || c.req.Redirect == Manual {
			return c.response(res, u, to, n > 0)
		}
		if c.req.Redirect == Fail {
			_ = res.Body.Close()
			return nil, &agent.Error{
				Kind: agent.Invalid, Msg: to.Host + " redirects the request, and redirects are to be errors",
				Hint: "ask for redirects to be followed, or to be the response",
			}
		}
		if n == c.limits.Redirects {
			_ = res.Body.Close()
			return nil, agent.Exceeded(agent.LimitHTTP, "the request was redirected more than %d times", c.limits.Redirects)
		}
		u, to, err = c.redirect(res, u, to, location)
		c.drain(res)
		if err != nil {
			return nil, err
		}
		header = c.headerAgain()
		if err := c.guard.Allow(c.ctx, to); err != nil {
			return nil, orCause(c.ctx, err)
		}
		c.hop.end(c.req, nil)
	}
}

// exchange makes one hop: it signs, sends, and waits for the header of the response.
func (c *call) exchange(u *url.URL, to agent.Request, header http.Header) (*http.Response, error) {
	c.hop.begin(to)
	sent := *u
	req := c.egress.blank.WithContext(httptrace.WithClientTrace(&c.attempt, &c.trace)) // a copy
	req.Method, req.URL, req.Header = to.Method, &sent, header
	if req.Header.Get("Range") == "" {
		req.Header["Accept-Encoding"] = acceptEncoding
	} else {
		req.Header["Accept-Encoding"] = identity
	}
	c.body.attach(req)
	before := req.Body
	cleaner, err := c.guard.Sign(c.ctx, req, to)
	if err != nil {
		return nil, orCause(c.ctx, err)
	}
	if cleaner != nil {
		c.cleaner = both(c.cleaner, cleaner)
	}
	if err := checkSigned(req, u, to); err != nil {
		return nil, err
	}
	c.watch.hop()
	if req.Body == before {
		c.body.again(req)
	}
	res, err := c.pool.transport.RoundTrip(req)
	c.watch.answered()
	if err != nil {
		return nil, c.exchangeError(c.ctx, to.Host, err)
	}
	c.hop.answered(res.StatusCode)
	if res.StatusCode < 200 {
		_ = res.Body.Close()
		return nil, unavailable(nil, to.Host, "the host changed protocols unasked")
	}
	return res, nil
}

// checkSigned makes sure that what was judged is what is sent.
func checkSigned(req *http.Request, u *url.URL, to agent.Request) error {
	if req.Method != to.Method || req.URL.Scheme != u.Scheme || req.URL.Host != u.Host || req.URL.User != nil || req.URL.Opaque != "" ||
		req.URL.EscapedPath() != to.Path || req.Host != "" && req.Host != u.Host {
		return agent.Errorf(agent.Internal, "the signed request goes elsewhere than the one that was judged")
	}
	for name, values := range req.Header {
		for _, v := range values {
			if !isValue(v) {
				return agent.Errorf(agent.Invalid, "the value of header %.60s holds a control character once its secret is in", name)
			}
		}
	}
	req.TransferEncoding, req.Trailer, req.Close = nil, nil, false
	return nil
}

// response makes the last hop's answer the call's.
func (c *call) response(res *http.Response, u *url.URL, to agent.Request, redirected bool) (*Response, error) {
	codings := codingsOf(res, to.Method)
	if res.ContentLength > c.limits.ResponseBytes && to.Method != http.MethodHead {
		_ = res.Body.Close()
		return nil, c.bodyTooLarge(to.Host)
	}
	header, err := c.responseHeader(res.Header, to.Host, len(codings) > 0)
	if err != nil {
		_ = res.Body.Close()
		return nil, err
	}
	out := &Response{
		Status: res.StatusCode, StatusText: c.statusText(res.Status), Header: header, URL: c.clean(urlText(u, to)), Redirected: redirected,
	}
	if res.Body == http.NoBody {
		out.Body = http.NoBody
		c.end(nil)
		return out, nil
	}
	out.Body = c.download(res.Body, to.Host, codings)
	return out, nil
}

func (c *call) bodyTooLarge(host string) error {
	return agent.Exceeded(agent.LimitHTTP, "%s: the response's body has more than %d bytes", host, c.limits.ResponseBytes)
}

// drain reads what is left of a short body, so that its connection can be used again.
func (c *call) drain(res *http.Response) {
	c.watch.await(waitBody, c.limits.Idle)
	if res.ContentLength >= 0 && res.ContentLength <= 4<<10 {
		_, _ = io.CopyN(io.Discard, res.Body, res.ContentLength)
	}
	_ = res.Body.Close()
}

// cleaners is a Cleaner for the secrets of several hops.
type cleaners [2]Cleaner

func both(a, b Cleaner) Cleaner {
	if a == nil {
		return b
	}
	return cleaners{a, b}
}

func (c cleaners) Reader(r io.Reader) io.Reader { return c[1].Reader(c[0].Reader(r)) }
func (c cleaners) String(s string) string       { return c[1].String(c[0].String(s)) }

func itoa(n int) string { return strconv.Itoa(n) }
