package gateway

import (
	"context"
	"net/http"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/guard"
	"github.com/skep-dev/skep/gateway/wire"
)

// guards returns the guardrails of an app, made ready. A server that cannot read them makes no calls.
func (g *Gateway) guards(ctx context.Context, app agent.App) (*guard.Set, error) {
	from, ok := g.o.Records.(Guarded)
	if !ok {
		return nil, nil
	}
	list, err := from.Guardrails(ctx, app)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return guard.New(list)
}

// guard returns what looks at the prompts of calls to a candidate, or at their answers; nil when nothing does.
func (x *exchange) guard(prompt bool, c *choice) *guard.Guard {
	if x.book == nil || x.book.guards == nil || !prompt && x.op != wire.Generate {
		return nil
	}
	names := []string{c.p.Name + "/" + c.model}
	if x.plan.name != "" {
		names = append(names, x.plan.name)
	}
	return x.book.guards.Pick(prompt, x.who.Agent, names, agent.Glob)
}

// cleared is a prompt after guardrails have looked at it: the same one is not looked at twice.
type cleared struct {
	mark string
	body []byte
	r    *wire.Request
}

// clearBody is the body of the request without what guardrails take out of it.
func (x *exchange) clearBody(g *guard.Guard) ([]byte, *guard.Found) {
	if g == nil {
		return x.in.Body, nil
	}
	if mark := g.Mark(); x.cleared.mark != mark {
		x.cleared = cleared{mark: mark}
	}
	if x.cleared.body == nil {
		body, found := g.JSON(x.in.Body)
		if found != nil {
			return nil, found
		}
		x.cleared.body = body
	}
	return x.cleared.body, nil
}

// clearRequest is clearBody of the canonical form.
func (x *exchange) clearRequest(g *guard.Guard, r *wire.Request) (*wire.Request, *guard.Found) {
	if g == nil {
		return r, nil
	}
	if mark := g.Mark(); x.cleared.mark != mark {
		x.cleared = cleared{mark: mark}
	}
	if x.cleared.r == nil {
		clear, found := g.Request(r)
		if found != nil {
			return nil, found
		}
		x.cleared.r = clear
	}
	return x.cleared.r, nil
}

// hasTokens reports whether the input of a request for vectors has numbers of tokens in the place of texts.
func hasTokens(input gjson.Result) bool {
	if input.IsArray() {
		return slices.ContainsFunc(input.Array(), hasTokens)
	}
	return input.Exists() && input.Type != gjson.String
}

// guarded is the fault of a request whose prompt or answer has in it what must not be there. It does not tell what.
func (x *exchange) guarded(c *choice, found *guard.Found, what string) *wire.Fault {
	x.g.o.Log.Info("gateway: a guardrail refused", "app", x.who.App, "guardrail", found.Guardrail, "found", found.As, "in", what, "provider", c.p.Name, "model", c.model, "key", x.who.Key)
	return &wire.Fault{
		Class: agent.ContentFault, Status: http.StatusBadRequest, Own: true, Type: "invalid_request_error", Code: "content_filter",
		Message: "the " + what + " is refused: " + found.Error(),
	}
}

// refusedPrompt writes down that a prompt was refused, so that no call was made.
func (x *exchange) refusedPrompt(c *choice, f *wire.Fault) error {
	return x.uncalled(c, func(e *agent.UsageEvent) {
		e.Outcome, e.Model.Fault, e.Model.Source = agent.OutcomeOf(errorOf(f)), f.Class, agent.FromProvider
	})
}

// uncalled writes down what was answered without a call to a provider, which costs nothing.
func (x *exchange) uncalled(c *choice, set func(*agent.UsageEvent)) error {
	now := x.g.o.Now()
	l := &call{x: x, c: c, id: agent.NewModelCall(now), attempt: x.attempts + 1, began: now}
	x.call = l.id
	e := l.event()
	e.Model.Micro = new(int64)
	set(&e)
	x.logged.row(&e)
	if x.g.o.Ledger == nil {
		return nil
	}
	if err := x.g.o.Ledger.Begin(e); err != nil {
		return err
	}
	return x.g.o.Ledger.Append(e)
}

// overContent reports whether the route asks another candidate after a refusal for what is said.
func (x *exchange) overContent() bool {
	return x.plan.route != nil && slices.Contains(x.plan.route.FailOver, agent.ContentFault)
}

// clearWhole looks at a passed answer that is whole.
func (x *exchange) clearWhole(s *shipment, b []byte) ([]byte, *wire.Fault) {
	if s.guard == nil {
		return b, nil
	}
	if !gjson.ValidBytes(b) {
		return nil, &wire.Fault{
			Class: agent.ServerFault, Status: http.StatusBadGateway, Type: "upstream_error", Message: "the answer of the provider " + s.call.c.p.Name + " is not valid JSON, so that no guardrail can look at it",
		}
	}
	out, found := s.guard.JSON(b)
	if found != nil {
		return nil, x.guarded(s.call.c, found, "answer")
	}
	return out, nil
}
