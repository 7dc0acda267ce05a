package grant

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/skep-dev/skep/agent"
)

// Subject is for whom a cell works.
type Subject struct {
	App     agent.App
	Agent   string
	ID      agent.AgentID
	Session agent.SessionID // of a run; empty for stateless calls
	Run     agent.RunID     // empty for stateless calls
}

// Rates counts uses of grants over all cells of an agent. Take takes one use of what, or returns an Exhausted error that says
// when the next may be taken.
type Rates interface {
	Take(s Subject, what string, r agent.Rate) error
}

// Refused writes down one refusal, where the agent's author and the operator see it.
type Refused func(ctx context.Context, r agent.Refusal)

// maxRefusals is how many refusals of one cell are written down. The last one says that there may be more.
const maxRefusals = 20

// Authority is the one place where grants are checked. It belongs to one cell and judges by the grants of the cell's agent as
// they are at the time of each question, so that narrowing them stops cells that run. What more than one grant allows counts for
// the limits of each, so their order says nothing. It is safe for concurrent use.
type Authority struct {
	Subject
	grants  func() agent.Grants
	rates   Rates
	refused Refused

	count func(grant string, most int64) bool // takes one use within a call or run, of which there may be most

	mu       sync.Mutex
	used     map[string]int64 // by grant, for limits per call
	refusals int
}

// NewAuthority returns the authority of one cell. rates and refused may be nil.
func NewAuthority(s Subject, grants func() agent.Grants, rates Rates, refused Refused) *Authority {
	a := &Authority{Subject: s, grants: grants, rates: rates, refused: refused, used: map[string]int64{}}
	a.count = a.countHere
	return a
}

// CountBy has count take the uses for limits per call, which a run has that goes on in other cells. It is called before anything is judged.
func (a *Authority) CountBy(count func(grant string, most int64) bool) { a.count = count }

func (a *Authority) countHere(grant string, most int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.used[grant] >= most {
		return false
	}
	a.used[grant]++
	return true
}

// HTTP allows one request, and counts it.
func (a *Authority) HTTP(ctx context.Context, r agent.Request) error {
	what := r.Method + " " + r.URL()
	list, allowed := a.grants().HTTP, false
	for _, g := range list {
		if !g.Allow.Has(r) {
			continue
		}
		allowed = true
		if err := a.take(ctx, "http", what, g.Allow.String(), g.Limits); err != nil {
			return err
		}
	}
	if !allowed {
		return a.refuse(ctx, "http", what, a.why(list, r), fmt.Sprintf("skep agent update %s --grant-http %q", a.Agent, r.Method+" "+r.Origin()+"/**"))
	}
	return nil
}

// StillHTTP reports whether a request that was allowed is allowed still, with the secrets that went into it. It counts nothing.
func (a *Authority) StillHTTP(ctx context.Context, r agent.Request, secrets ...string) error {
	now := a.grants()
	if !slices.ContainsFunc(now.HTTP, func(g agent.HTTPGrant) bool { return g.Allow.Has(r) }) {
		return a.refuse(ctx, "http", r.Method+" "+r.URL(), "the grant was taken back", "")
	}
	for _, name := range secrets {
		if !slices.ContainsFunc(now.Secrets, func(g agent.SecretGrant) bool { return g.Name == name && g.Has(r) }) {
			return a.refuse(ctx, "secret", name, fmt.Sprintf("the grant of the secret %q, which is in the request, was taken back", name), "")
		}
	}
	return nil
}

// why says what about the request no grant allows.
func (a *Authority) why(list []agent.HTTPGrant, r agent.Request) string {
	if len(list) == 0 {
		return "no host is granted to " + a.name()
	}
	any := r
	for _, g := range list {
		t := g.Allow
		if any.Path, t.Path = "/", ""; t.Has(any) {
			return fmt.Sprintf("the path %.200s is not granted to %s on %s", r.Path, a.name(), r.Host)
		}
	}
	for _, g := range list {
		t := g.Allow
		if t.Path, t.Methods = "", nil; t.Has(any) {
			return fmt.Sprintf("the method %.40s is not granted to %s on %s", r.Method, a.name(), r.Host)
		}
	}
	return fmt.Sprintf("%s is not granted to %s", r.Origin(), a.name())
}

// Secret allows one use of a secret in a request that HTTP has allowed, and counts it.
func (a *Authority) Secret(ctx context.Context, name string, r agent.Request) error {
	for _, g := range a.grants().Secrets {
		switch {
		case g.Name != name:
		case !g.Has(r):
			return a.refuse(ctx, "secret", name, fmt.Sprintf("the secret %q is granted to %s, but not for %s", name, a.name(), r.Origin()), "")
		default:
			return a.take(ctx, "secret", name, name, g.Limits)
		}
	}
	return a.refuse(ctx, "secret", name, fmt.Sprintf("the secret %q is not granted to %s", name, a.name()),
		fmt.Sprintf("skep agent update %s --grant-secret %s", a.Agent, name))
}

// CallAgent allows one call of another agent, and counts it.
func (a *Authority) CallAgent(ctx context.Context, name string) error {
	return a.named(ctx, "call", "agent", a.grants().Agents, name)
}

// Model allows one use of a model route, and counts it.
func (a *Authority) Model(ctx context.Context, name string) error {
	return a.named(ctx, "use", "model", a.grants().Models, name)
}

// Tool allows one call of a tool, and counts it.
func (a *Authority) Tool(ctx context.Context, name string) error {
	return a.named(ctx, "call", "tool", a.grants().Tools, name)
}

// MayModel reports whether a model is granted. It counts and writes nothing.
func (a *Authority) MayModel(name string) bool {
	return slices.ContainsFunc(a.grants().Models, func(g agent.NamedGrant) bool { return g.Has(name) })
}

// MayTool reports whether a tool is granted. It counts and writes nothing.
func (a *Authority) MayTool(name string) bool {
	return slices.ContainsFunc(a.grants().Tools, func(g agent.NamedGrant) bool { return g.Has(name) })
}

func (a *Authority) named(ctx context.Context, verb, kind string, list []agent.NamedGrant, name string) error {
	allowed := false
	for _, g := range list {
		if !g.Has(name) {
			continue
		}
		allowed = true
		if err := a.take(ctx, kind, name, g.Name, g.Limits); err != nil {
			return err
		}
	}
	if !allowed {
		return a.refuse(ctx, kind, name, fmt.Sprintf("no grant to %s %s %q: add %q to grants.%ss of %s", verb, kind, clip(name), clip(name), kind, a.name()),
			fmt.Sprintf("skep agent update %s --grant-%s %s", a.Agent, kind, clip(name)))
	}
	return nil
}

// State returns the bounds of the agent's state, or refuses it.
func (a *Authority) State(ctx context.Context) (agent.StateGrant, error) {
	s := a.grants().State
	if s == nil {
		return agent.StateGrant{}, a.refuse(ctx, "state", "state", "no state is granted to "+a.name(), fmt.Sprintf("skep agent update %s --grant-state", a.Agent))
	}
	return s.Or(), nil
}

// take counts one use of a grant.
func (a *Authority) take(ctx context.Context, kind, what, grant string, r agent.Rate) error {
	if r == (agent.Rate{}) {
		return nil
	}
	key := kind + " " + grant
	if r.PerCall > 0 && !a.count(key, r.PerCall) {
		err := agent.Exceeded(agent.LimitRate, "the grant of %s %.200s is for %d uses within one call or run", kind, grant, r.PerCall)
		a.write(ctx, kind, what, err.Error())
		return err
	}
	if a.rates == nil || r.PerMinute == 0 && r.PerDay == 0 {
		return nil
	}
	err := a.rates.Take(a.Subject, key, r)
	if err != nil {
		a.write(ctx, kind, what, agent.AsError(err).Msg)
	}
	return err
}

func (a *Authority) refuse(ctx context.Context, kind, what, reason, hint string) error {
	a.write(ctx, kind, what, reason)
	return &agent.Error{Kind: agent.Denied, Msg: reason, Hint: hint}
}

func (a *Authority) write(ctx context.Context, kind, what, reason string) {
	a.mu.Lock()
	a.refusals++
	n := a.refusals
	a.mu.Unlock()
	if a.refused == nil || n > maxRefusals {
		return
	}
	if n == maxRefusals {
		reason += "; further refusals of this cell are not written down"
	}
	a.refused(ctx, agent.Refusal{Agent: a.Agent, Run: a.Run, Grant: kind, What: printable(what), Reason: reason})
}

func (a *Authority) name() string {
	if a.Agent == "" {
		return "code that runs once"
	}
	return `agent "` + a.Agent + `"`
}

// printable cuts what a guest wrote to what a log may hold.
func printable(s string) string {
	if len(s) > 500 {
		s = s[:500] + "..."
	}
	return strings.ToValidUTF8(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, s), "")
}
