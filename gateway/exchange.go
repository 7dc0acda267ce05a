package gateway

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/vault/scrub"
)

// exchange is one request, from who asks to the answer. One goroutine works on it.
type exchange struct {
	g        *Gateway
	ctx      context.Context // of who asks: when it ends, they have gone
	who      Caller
	op       wire.Op
	protocol agent.Protocol // of the client; NoProtocol for one that has the canonical form
	codec    wire.Codec     // of the client; nil for one that has the canonical form
	in       *Request       // nil likewise
	retry    int
	peek     wire.Peek
	asked    *wire.Request // the canonical form, once it was needed
	book     *book
	plan     *plan
	to       front
	cleared  cleared
	cached   string // hit or miss; "" without a cache
	logged   logging
	answered *call // the call whose answer was told whole

	attempts int    // calls to providers that were made
	call     string // id of the last one
	began    time.Time
	content  bool // something of the answer has gone to the client
	reasked  bool // an answer was no good, and it was asked again
	last     failure
}

// failure is the last fault, and what it looked like.
type failure struct {
	fault *wire.Fault
	c     *choice
	body  []byte // of an answer in the protocol that the client speaks; nil when there was none
	typ   string // of body
}

// errBroken ends a stream after the client was told why.
var errBroken = errors.New("the stream broke")

// Serve answers a request of an HTTP client, errors too. It returns an error when the answer could not be brought to its end: then the connection
// must be cut, so that nobody takes what came for the whole.
func (g *Gateway) Serve(ctx context.Context, who Caller, r *Request, to Sink) error {
	codec := g.codecs[r.Protocol]
	if codec == nil {
		return agent.Errorf(agent.NotFound, "this server does not speak %s", r.Protocol)
	}
	x := &exchange{g: g, ctx: ctx, who: who, op: r.Op, protocol: r.Protocol, codec: codec, in: r, retry: r.retry(), began: g.o.Now()}
	if x.who.Session == "" {
		x.who.Session = clientSession(r.Header)
	}
	f := &httpFront{x: x, out: out{sink: to}}
	x.to = f
	defer x.writeLog()
	p := chunks.Get().(*[]byte)
	f.buf = (*p)[:0]
	err := x.serve()
	if cap(f.buf) <= keptBytes {
		*p = f.buf[:cap(f.buf)]
		chunks.Put(p)
	}
	if err == nil || errors.Is(err, errBroken) || f.out.begun {
		return err
	}
	return f.refuse(err)
}

// place is the path with the query, which says in some protocols what form a stream has.
func (r *Request) place() string {
	if r.Query == "" || r.Protocol != agent.GeminiProtocol {
		return r.Path
	}
	return r.Path + "?" + r.Query
}

// retry is how often the client has tried before, as OpenAI's and Anthropic's SDKs tell it.
func (r *Request) retry() int {
	n, err := strconv.Atoi(r.Header.Get("X-Stainless-Retry-Count"))
	if err != nil {
		return 0
	}
	return max(n, 0)
}

// Refuse answers a request with an error in the dialect of a protocol.
func (g *Gateway) Refuse(p agent.Protocol, err error, to Sink) error {
	codec := g.codecs[p]
	if codec == nil {
		return err
	}
	f := &httpFront{x: &exchange{g: g, codec: codec}, out: out{sink: to}}
	return f.refuse(err)
}

func (x *exchange) serve() error {
	r := x.in
	if len(r.Body) > MaxBody {
		return agent.Exceeded(agent.LimitInput, "the request is larger than %d bytes", MaxBody)
	}
	var err error
	if x.book, err = x.g.book(x.ctx, x.who.App); err != nil {
		return err
	}
	if r.Op == wire.List || r.Op == wire.Describe {
		return x.serveModels()
	}
	if x.peek, err = x.codec.Peek(r.Op, r.place(), r.Body); err != nil {
		return err
	}
	if r.Op == wire.Count {
		return x.count()
	}
	if err := x.startLog(); err != nil {
		return err
	}
	return x.run(x.peek.Model)
}

// canonical is the request in canonical form.
func (x *exchange) canonical() (*wire.Request, error) {
	if x.asked != nil {
		return x.asked, nil
	}
	path := x.in.Path
	if x.in.Query != "" { // in which form a stream shall come is in it
		path += "?" + x.in.Query
	}
	r, err := x.codec.Decode(x.op, path, x.in.Header, x.in.Body)
	if err != nil {
		return nil, err
	}
	if err := x.fillItems(r); err != nil {
		return nil, err
	}
	x.restore(r)
	x.asked = r
	return r, nil
}

// run finds candidates for model and asks them until one answers.
func (x *exchange) run(model string) error {
	pl, err := x.resolve(model)
	if err != nil {
		return err
	}
	if x.who.Use != nil {
		if err := x.who.Use(x.ctx, pl.asked()); err != nil {
			return err
		}
	}
	x.plan = pl
	pl.stick(x.originOf(x.peek.Last))
	k, keep := x.cacheKey()
	if x.cached == "miss" {
		if done, err := x.fromCache(k); done {
			return err
		}
		if keep && !x.peek.Stream && x.takesKept() { // a stream would have to be silent until all of it is there
			wait, ended := x.g.flights.join(k)
			if wait == nil {
				defer ended()
			} else {
				select {
				case <-wait:
				case <-x.ctx.Done():
				}
				if done, err := x.fromCache(k); done { // else it failed, or its client went: that is no answer to this one
					return err
				}
			}
		}
	}
	for hops := 0; ; hops++ {
		err := x.tryAll()
		route, ok := instead(err)
		if !ok {
			if err == nil && keep && hops == 0 {
				x.toCache(k)
			}
			return err
		}
		if hops == 3 {
			return agent.Errorf(agent.Exhausted, "limits lead from route to route, the last one to %s", route)
		}
		saved := x.who.Models // the limit's maker decides where it leads, not the key
		x.who.Models = nil
		pl, err := x.resolve(route)
		x.who.Models = saved
		if err != nil {
			return err
		}
		x.plan = pl
	}
}

// tryAll asks the candidates of the plan.
func (x *exchange) tryAll() error {
	until := x.began.Add(x.plan.deadline)
	for {
		if x.gone() {
			return ownFaultOf(agent.ClientAbort, 499, errGone.Error())
		}
		c, k, wait := x.next()
		if c == nil {
			if wait.IsZero() || !x.pause(wait, until) {
				return x.giveUp(wait)
			}
			continue
		}
		if x.attempts >= x.plan.attempts || !x.g.o.Now().Before(until) {
			c.p.health.left()
			return x.giveUp(time.Time{})
		}
		done, err := x.try(x.ctx, c, k, until)
		if done {
			return err
		}
	}
}

func ownFaultOf(class agent.FaultClass, status int, msg string) *wire.Fault {
	return &wire.Fault{Class: class, Status: status, Message: msg, Own: true}
}

// next returns the candidate and the key to ask next. Without one, it returns when there may be one; zero for never.
func (x *exchange) next() (*choice, *key, time.Time) {
	now := x.g.o.Now()
	var wait time.Time
	later := func(t time.Time) {
		if !t.IsZero() && (wait.IsZero() || t.Before(wait)) {
			wait = t
		}
	}
	for _, c := range x.plan.choices {
		if c.dead != nil {
			continue
		}
		if c.spent {
			if c.left <= 0 {
				continue
			}
			if now.Before(c.again) {
				later(c.again)
				continue
			}
			if x.fresh(c, now) { // others come first
				continue
			}
			clear(c.tried) // a key that had to rest may be used once more
		}
		c.p.health.renewed(now, func(secret string) string {
			v, err := x.secret(c.p, secret)
			if err != nil {
				return ""
			}
			return v
		})
		k, next, ok := c.p.health.pick(now, c.first, c.tried, x.g.random())
		if !ok {
			if x.retry == 0 {
				later(next)
			}
			continue
		}
		if ok, next := c.p.health.admit(now); !ok {
			if x.last.fault == nil {
				x.last.fault = &wire.Fault{
					Class: agent.Overloaded, Status: http.StatusServiceUnavailable, Type: "overloaded_error", Own: true, After: next.Sub(now),
					Message: "the provider " + c.p.Name + " failed several times in a row, and is left alone for a while",
				}
			}
			continue
		}
		c.spent = false
		return c, k, time.Time{}
	}
	return nil, nil, wait
}

// fresh reports whether a candidate other than c can be asked that has not failed.
func (x *exchange) fresh(c *choice, now time.Time) bool {
	for _, o := range x.plan.choices {
		if o == c || o.dead != nil || o.spent || o.p.health.isOpen(now) {
			continue
		}
		if _, _, ok := o.p.health.pick(now, "", o.tried, 0); ok {
			return true
		}
	}
	return false
}

// pause waits until t, if that is soon enough. It reports whether it is worth going on.
func (x *exchange) pause(t, until time.Time) bool {
	d := t.Sub(x.g.o.Now())
	if d > maxWait || !t.Before(until) || x.attempts >= x.plan.attempts {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-x.ctx.Done():
	}
	return true
}

// giveUp is the error when nobody is left to ask. wait is when there would be again, if known.
func (x *exchange) giveUp(wait time.Time) error {
	f := x.last.fault
	if f == nil {
		for _, c := range x.plan.choices {
			if c.dead != nil {
				return c.dead
			}
		}
		f = &wire.Fault{Class: agent.Overloaded, Status: http.StatusServiceUnavailable, Type: "overloaded_error", Own: true, Message: "no key of the provider can be used"}
		if !wait.IsZero() {
			f.Class, f.Status, f.Type, f.Message = agent.RateLimited, http.StatusTooManyRequests, "rate_limit_error", "the provider limits how often it is asked"
		} else if p := x.plan.choices[0].p; len(p.Keys) > 0 {
			if p.health.spent(x.g.o.Now()) { // as it was told when they were tried
				f.Class, f.Status, f.Type = agent.QuotaExhausted, http.StatusTooManyRequests, "insufficient_quota"
				f.Message = fmt.Sprintf("the account of the provider %s has no credit left, by each key that it has here", p.Name)
				return f
			}
			f.Message = fmt.Sprintf("the provider %s refused every key that it has here", p.Name)
		}
	}
	if !wait.IsZero() && f.After == 0 && (f.Own || f.Class == agent.RateLimited) {
		f.After = max(wait.Sub(x.g.o.Now()), 0)
	}
	return f
}

// try asks one candidate. done says that it is over: the client has got its answer, or err.
func (x *exchange) try(ctx context.Context, c *choice, k *key, until time.Time) (done bool, err error) {
	release := true // of the place that next took
	defer func() {
		if release {
			c.p.health.left()
		}
	}()
	from := wire.Origin{Protocol: c.speaks.String(), Provider: c.p.Name, Model: c.model}
	if k != nil {
		from.Secret = k.Secret
	}
	s, err := x.prepare(c, from)
	if f, ok := errors.AsType[*wire.Fault](err); ok && f.Class == agent.ContentFault {
		if err := x.refusedPrompt(c, f); err != nil {
			return true, err
		}
		c.dead = f
		return !x.overContent(), f
	}
	if err != nil {
		if agent.KindOf(err) != agent.Invalid {
			return true, err
		}
		c.dead = ownFault(err)
		return false, nil
	}
	out, err := x.g.way(ctx, c.p)
	if err == nil {
		s.request, s.clean, err = x.request(c.p, k, s)
	}
	if err != nil {
		c.dead = ownFault(err)
		return false, nil
	}
	l, err := x.beginCall(ctx, c, k)
	if err != nil {
		return true, err
	}
	s.call, s.from = l, from
	x.logged.sent(s)
	var f *wire.Fault
	defer func() {
		if !l.ended { // a panic
			l.end(&wire.Fault{Class: agent.ServerFault})
		}
	}()
	f = x.send(ctx, s, out, until)
	l.end(f)
	x.note(ctx, s, f)
	release = false
	switch {
	case f == nil:
		c.p.health.succeeded(k)
		return true, nil
	case f.Class == agent.ClientAbort:
		c.p.health.left()
		return true, f
	}
	act := x.actionFor(f)
	x.judge(c, k, f, act)
	if x.content {
		if !s.told {
			x.to.broken(f, s.last)
		}
		return true, errBroken
	}
	if !act.other && act.same == 0 {
		c.dead = f
		return true, f
	}
	return false, nil
}

// judge tells the provider's health of a fault, and the candidate when it may be asked again.
func (x *exchange) judge(c *choice, k *key, f *wire.Fault, act action) {
	now := x.g.o.Now()
	if act.sick {
		c.p.health.failed(now)
	} else {
		c.p.health.left()
	}
	x.g.totals.fault(x.who.App, c.p.Name, f.Class)
	backoff := x.g.o.Backoff
	if !c.begun {
		c.begun, c.left = true, act.same
	} else {
		c.left = min(c.left-1, act.same)
	}
	pause := jitter(backoff << max(x.attempts-1, 0))
	if f.After > 0 {
		pause = f.After
	}
	c.spent = true
	if k != nil {
		if c.tried == nil {
			c.tried = map[*key]bool{}
		}
		switch act.key {
		case limitKey:
			c.tried[k] = true
			pause = max(c.p.health.limit(k, now, f.After, backoff), pause)
			if _, _, ok := c.p.health.pick(now, "", c.tried, 0); ok {
				c.spent = false // by another key
			}
		case refuseKey:
			c.tried[k] = true
			until, fresh := c.p.health.refuse(k, now, f.Class, f.After)
			if fresh {
				x.g.o.Log.Warn("gateway: a provider refuses a key", "app", x.who.App, "provider", c.p.Name, "secret", k.Secret, "why", f.Class, "until", until)
				if x.g.o.Refused != nil {
					x.g.o.Refused(x.who.App, c.p.Name, k.Secret, f.Class, until)
				}
			}
			if _, _, ok := c.p.health.pick(now, "", c.tried, 0); ok {
				c.spent = false
			}
		case keepKey:
		}
	}
	c.again = now.Add(pause)
	if pause > maxWait {
		c.left = 0
	}
	if !act.other {
		for _, o := range x.plan.choices {
			if o != c {
				o.dead = f
			}
		}
	}
}

func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

// gone reports whether who asked has gone.
func (x *exchange) gone() bool { return x.ctx.Err() != nil || x.to.gone() }

// secret is the value of a provider's key.
func (x *exchange) secret(p *provider, name string) (string, error) {
	if x.g.o.Secret == nil {
		return "", agent.Errorf(agent.Unavailable, "this server keeps no secrets")
	}
	return x.g.o.Secret(x.ctx, x.who.App, p.Name, name, p.URL)
}

// note tells what happened to whoever wants to know.
func (x *exchange) note(ctx context.Context, s *shipment, f *wire.Fault) {
	if s.record != nil {
		s.record.more = s.record.more || f != nil && f.Class == agent.ClientAbort && !s.call.was.whole // it is not the provider that ended there
		s.record.done(x.g.tell, s)
	}
	if f != nil {
		x.g.o.Log.DebugContext(ctx, "gateway: a call failed", "call", s.call.id, "provider", s.call.c.p.Name, "model", s.call.c.model, "class", f.Class, "status", f.Status, "msg", f.Message)
	}
}

// cleaned takes a key out of a fault.
func cleaned(f *wire.Fault, clean *scrub.Scrubber) *wire.Fault {
	if f == nil || clean == nil {
		return f
	}
	f.Message, f.Code, f.Type, f.Param = clean.String(f.Message), clean.String(f.Code), clean.String(f.Type), clean.String(f.Param)
	for _, vs := range f.Header {
		for i := range vs {
			vs[i] = clean.String(vs[i])
		}
	}
	return f
}
