package gateway

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
)

// call is one call to a provider, from before it leaves until its usage is written down.
type call struct {
	x       *exchange
	c       *choice
	k       *key
	id      string
	attempt int
	began   time.Time
	held    Held
	span    trace.Span
	ended   bool

	left     bool // something of it may have reached the provider
	sent     int
	received int
	first    time.Duration
	was      heard
}

// heard is what was read of an answer.
type heard struct {
	usage wire.Usage
	chars int
	whole bool // it came to its end
	stop  wire.Stop
	tier  string
}

// begin takes from the limits and writes down that the call is about to be made.
func (x *exchange) beginCall(ctx context.Context, c *choice, k *key) (*call, error) {
	in, most := estimate(&x.peek), x.peek.MaxTokens
	switch {
	case x.op != wire.Generate:
		most = 0
	case most <= 0:
		most = defaultOutput
	}
	l := &call{x: x, c: c, k: k, began: x.g.o.Now()}
	if x.g.o.Hold != nil && x.op != wire.Count {
		held, err := x.g.o.Hold(ctx, Hold{
			Caller: x.as(), Provider: &c.p.Provider, Model: c.model, Route: x.plan.name, Tokens: in + most, Input: in,
		})
		if err != nil {
			return nil, err
		}
		l.held = held
	}
	l.id = agent.NewModelCall(l.began)
	l.attempt = x.attempts + 1
	if x.g.o.Ledger != nil {
		e := l.event()
		e.Model.Source = agent.Partial
		e.Model.Tokens = agent.ModelTokens{Input: in} // what it counts for when this process is killed
		if x.g.o.Price != nil && x.op != wire.Count {
			e.Model.Micro, e.Model.Prices = x.g.o.Price(&c.p.Provider, c.model, e.Model.Tokens, "", l.began)
		}
		if err := x.g.o.Ledger.Begin(e); err != nil {
			if l.held != nil {
				l.held.Release()
			}
			return nil, err
		}
	}
	x.attempts++
	x.call = l.id
	if x.g.o.Tracer != nil {
		_, l.span = x.g.o.Tracer.Start(ctx, opName(x.op)+" "+c.model, trace.WithSpanKind(trace.SpanKindClient))
	}
	return l, nil
}

func opName(op wire.Op) string {
	switch op {
	case wire.Count:
		return "count_tokens"
	case wire.Embed:
		return "embeddings"
	case wire.Generate, wire.List, wire.Describe, wire.NoOp:
	}
	return "chat"
}

// as is the caller, counted for the user of the request.
func (x *exchange) as() Caller {
	who := x.who
	who.User = x.user()
	return who
}

func (l *call) event() agent.UsageEvent {
	u := &agent.ModelUse{
		Call: l.id, Provider: l.c.p.Name, Model: l.c.model, Route: l.x.plan.name, Protocol: l.c.speaks, Key: l.x.who.Key, User: l.x.user(), Attempt: l.attempt,
	}
	if l.k != nil {
		u.Secret = l.k.Secret
	}
	return agent.UsageEvent{
		Time: l.began, Kind: agent.UseModel, App: l.x.who.App, Agent: l.x.who.Agent, Session: l.x.who.Session, Run: l.x.who.Run, Function: l.c.model, Model: u,
	}
}

// content notes the moment of the first content.
func (l *call) content() {
	if l.first == 0 {
		l.first = max(l.x.g.o.Now().Sub(l.began), 1)
	}
}

// end writes down what the call used. f is nil when it succeeded. What comes after the first time changes nothing.
func (l *call) end(f *wire.Fault) {
	if l.ended {
		return
	}
	l.ended = true
	e := l.event()
	u := e.Model
	now := l.x.g.o.Now()
	e.Time, e.Wall, e.Sent, e.Received = now, now.Sub(l.began), int64(l.sent), int64(l.received)
	u.First = l.first
	e.Outcome = agent.Succeeded
	if f == nil {
		l.x.answered = l
	} else {
		u.Fault = f.Class
		e.Outcome = agent.OutcomeOf(errorOf(f))
	}
	u.Tokens, u.Source = l.tokens(f)
	if raw := l.was.usage.Raw; len(raw) > 0 && len(raw) <= agent.MaxRawUsage {
		u.Raw = string(raw)
	}
	switch {
	case u.Tokens == agent.ModelTokens{} && (f != nil || l.x.op == wire.Count):
		u.Micro = new(int64)
	case l.x.g.o.Price != nil:
		u.Micro, u.Prices = l.x.g.o.Price(&l.c.p.Provider, l.c.model, u.Tokens, l.was.tier, now)
	}
	if l.x.g.o.Ledger != nil {
		if err := l.x.g.o.Ledger.Append(e); err != nil {
			l.x.g.o.Log.Error("gateway: usage could not be written down", "call", l.id, "app", e.App, "err", err)
		}
	}
	if l.held != nil {
		if (u.Tokens == agent.ModelTokens{}) && f != nil {
			l.held.Release()
		} else {
			l.held.Settle(u.Tokens.Input+u.Tokens.Output, u.Micro)
		}
	}
	l.x.logged.row(&e)
	l.x.g.totals.add(l, u, e.Wall)
	if l.span != nil {
		l.endSpan(u, f)
	}
}

// room tells a client what the app's limits leave, in the place of what the provider's account has. With a stream it is what they leave while it comes.
func (l *call) room(h http.Header) {
	limits, ok := l.held.(Lefter)
	if !ok {
		return
	}
	left := limits.Left()
	if left.RequestsOf > 0 {
		h["X-Ratelimit-Limit-Requests"] = []string{strconv.FormatInt(left.RequestsOf, 10)}
		h["X-Ratelimit-Remaining-Requests"] = []string{strconv.FormatInt(left.Requests, 10)}
		delete(h, "X-Ratelimit-Reset-Requests")
	}
	if left.TokensOf > 0 {
		h["X-Ratelimit-Limit-Tokens"] = []string{strconv.FormatInt(left.TokensOf, 10)}
		h["X-Ratelimit-Remaining-Tokens"] = []string{strconv.FormatInt(left.Tokens, 10)}
		delete(h, "X-Ratelimit-Reset-Tokens")
	}
}

// tokens is what the call used, and who says so. What a provider told of a whole answer stands as it is, zeros too. Of one that ended early the input
// stands and the output is at least what came of it. A call that the provider refused used nothing.
func (l *call) tokens(f *wire.Fault) (agent.ModelTokens, agent.UseSource) {
	told := l.was.usage
	final := told.Known && (l.was.whole || l.was.stop != wire.StopUnknown)
	out := (int64(l.was.chars) + bytesPerToken - 1) / bytesPerToken
	switch {
	case l.x.op == wire.Count:
		return agent.ModelTokens{}, agent.FromProvider
	case final && f == nil:
		return told.Tokens, agent.FromProvider
	case final:
		return told.Tokens, agent.Partial
	case f != nil && !l.left:
		return agent.ModelTokens{}, agent.FromProvider
	case f == nil:
		return agent.ModelTokens{Input: estimate(&l.x.peek), Output: max(out, told.Tokens.Output)}, agent.Estimated
	case told.Known:
		t := told.Tokens
		t.Output = max(t.Output, out)
		return t, agent.Partial
	}
	return agent.ModelTokens{Input: estimate(&l.x.peek), Output: out}, agent.Partial
}

func (l *call) endSpan(u *agent.ModelUse, f *wire.Fault) {
	if l.span.IsRecording() {
		l.span.SetAttributes(
			attribute.String("gen_ai.operation.name", opName(l.x.op)), attribute.String("gen_ai.provider.name", u.Provider),
			attribute.String("gen_ai.request.model", u.Model), attribute.Int64("gen_ai.usage.input_tokens", u.Tokens.Input),
			attribute.Int64("gen_ai.usage.output_tokens", u.Tokens.Output),
			attribute.Int64("gen_ai.usage.cache_read.input_tokens", u.Tokens.CacheRead),
			attribute.Int64("gen_ai.usage.cache_creation.input_tokens", u.Tokens.CacheWrite+u.Tokens.CacheWrite1h),
			attribute.String("skep.model.call", l.id), attribute.String("skep.model.route", u.Route), attribute.Int("skep.model.attempt", u.Attempt),
		)
		if f != nil {
			l.span.SetAttributes(attribute.String("error.type", f.Class.String()))
			if f.Class != agent.ClientAbort {
				l.span.SetStatus(codes.Error, f.Class.String())
			}
		}
	}
	l.span.End()
}

// instead returns the route that a limit names, if err is of one.
func instead(err error) (string, bool) {
	e, ok := errors.AsType[*Instead](err)
	if !ok {
		return "", false
	}
	return e.Route, true
}
