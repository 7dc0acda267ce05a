package gateway

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/wire"
)

// choice is a candidate of a request, and how it fared in it.
type choice struct {
	p      *provider
	model  string
	effort string
	speaks agent.Protocol
	first  string // secret that is used before others

	tried map[*key]bool
	spent bool // not asked again before others were
	left  int  // how often it may be asked again when there is no other
	begun bool // it failed before, so left counts
	again time.Time
	dead  *wire.Fault // why it can't be asked at all
}

// plan is where a request may go.
type plan struct {
	route    *agent.ModelRoute // nil when a model was asked for
	name     string            // as @NAME, or ""
	choices  []*choice
	attempts int
	deadline time.Duration
}

// asked is what was asked for, as a caller's Models have it.
func (pl *plan) asked() string {
	if pl.route != nil {
		return pl.name
	}
	return pl.choices[0].p.Name + "/" + pl.choices[0].model
}

// Estimates: a token is bytesPerToken bytes of text, and an image or a file counts mediaTokens. A call that does not say how much may come is taken to
// ask for defaultOutput tokens.
const (
	bytesPerToken = 4
	mediaTokens   = 1000
	defaultOutput = 4096
)

func estimate(p *wire.Peek) int64 {
	return (int64(p.Text)+bytesPerToken-1)/bytesPerToken + int64(p.Media)*mediaTokens
}

// resolve finds out where a request goes.
func (x *exchange) resolve(model string) (*plan, error) {
	b, who := x.book, &x.who
	if name, ok := strings.CutPrefix(model, "@"); ok {
		r := b.routes[name]
		if r == nil {
			return nil, x.unknown(model)
		}
		if err := who.may(model); err != nil {
			return nil, err
		}
		return x.byRoute(r, "")
	}
	if name, rest, ok := strings.Cut(model, "/"); ok && rest != "" {
		if p := b.providers[name]; p != nil {
			return x.byProvider(p, rest)
		}
	}
	for _, p := range b.patterns {
		if agent.Glob(p.text, model) {
			if err := who.may("@" + p.route.Name); err != nil {
				return nil, err
			}
			return x.byRoute(p.route, model)
		}
	}
	var serving, open []*provider
	for _, p := range b.ordered {
		switch {
		case p.Disabled:
		case p.serves(model) && x.speaks(p) != agent.NoProtocol:
			serving = append(serving, p)
		case len(p.Models) == 0 && (x.protocol == agent.NoProtocol || slices.Contains(p.Protocols, x.protocol)):
			open = append(open, p)
		}
	}
	switch {
	case len(serving) == 1:
		return x.byProvider(serving[0], model)
	case len(serving) > 1:
		return nil, &agent.Error{
			Kind: agent.NotFound, Msg: fmt.Sprintf("more than one provider serves the model %.200q", model),
			Hint: fmt.Sprintf("ask for %s/%s, or make a route", serving[0].Name, model),
		}
	case len(open) == 1 && model != "":
		return x.byProvider(open[0], model)
	}
	return nil, x.unknown(model)
}

func (x *exchange) speaks(p *provider) agent.Protocol { return p.speaks(x.protocol) }

// may returns a Denied error unless what may be asked for has name.
func (c *Caller) may(name string) error {
	if c.Models == nil || anyGlob(c.Models, name) {
		return nil
	}
	return &agent.Error{
		Kind: agent.Denied, Msg: fmt.Sprintf("this key may not ask for %.200s", name), Hint: "it may ask for " + strings.Join(c.Models, ", "),
	}
}

// unknown is the error of a model that is not there. It names what there is.
func (x *exchange) unknown(model string) error {
	var names []string
	for _, m := range x.book.list(&x.who) {
		names = append(names, m.ID)
	}
	const most = 20
	hint := "there is no provider yet: skep provider add"
	if len(names) > 0 {
		more := ""
		if len(names) > most {
			names, more = names[:most], ", ..."
		}
		hint = "there are " + strings.Join(names, ", ") + more
	} else if len(x.book.ordered) > 0 {
		hint = "write PROVIDER/MODEL; there are the providers " + strings.Join(x.book.names(), ", ")
	}
	return &agent.Error{Kind: agent.NotFound, Msg: fmt.Sprintf("there is no model %.200q", model), Hint: hint}
}

func (b *book) names() []string {
	var names []string
	for _, p := range b.ordered {
		if !p.Disabled {
			names = append(names, p.Name)
		}
	}
	return names
}

func (x *exchange) byProvider(p *provider, model string) (*plan, error) {
	if err := x.who.may(p.Name + "/" + model); err != nil {
		return nil, err
	}
	switch {
	case p.Disabled:
		return nil, agent.Errorf(agent.Unavailable, "the provider %s is disabled", p.Name)
	case len(p.Models) > 0 && !p.serves(model):
		return nil, &agent.Error{
			Kind: agent.NotFound, Msg: fmt.Sprintf("the provider %s does not serve the model %.200q", p.Name, model),
			Hint: "it serves " + strings.Join(p.Models, ", "),
		}
	}
	speaks := x.speaks(p)
	if speaks == agent.NoProtocol {
		return nil, agent.Errorf(agent.Invalid, "the provider %s does not speak %s", p.Name, x.protocol)
	}
	return &plan{choices: []*choice{{p: p, model: model, speaks: speaks}}, attempts: defaultAttempts, deadline: defaultDeadline}, nil
}

// byRoute lists the candidates of a route that fit. asked is the model that was asked for, unless it was the route.
func (x *exchange) byRoute(r *agent.ModelRoute, asked string) (*plan, error) {
	pl := &plan{route: r, name: "@" + r.Name, attempts: defaultAttempts, deadline: defaultDeadline}
	if r.Attempts > 0 {
		pl.attempts = min(r.Attempts, maxAttempts)
	}
	if r.Deadline > 0 {
		pl.deadline = r.Deadline
	}
	var weights []int
	for i := range r.Candidates {
		c := &r.Candidates[i]
		p := x.book.providers[c.Provider]
		if p == nil || p.Disabled {
			continue
		}
		model := c.Model
		if model == "" {
			model = asked
		}
		speaks := x.speaks(p)
		if model == "" || speaks == agent.NoProtocol {
			continue
		}
		if c.When != nil {
			fits, err := x.fits(c.When)
			if err != nil {
				return nil, err
			}
			if !fits {
				continue
			}
		}
		pl.choices = append(pl.choices, &choice{p: p, model: model, effort: c.Effort, speaks: speaks})
		weights = append(weights, weight(c.Weight))
	}
	if len(pl.choices) == 0 {
		return nil, &agent.Error{
			Kind: agent.Invalid, Msg: fmt.Sprintf("no candidate of the route @%s fits this request", r.Name),
			Hint: "its providers are disabled or gone, speak no protocol that fits, or its conditions do not hold",
		}
	}
	if r.Weighted {
		total := 0
		for _, w := range weights {
			total += w
		}
		draw := int(x.g.random() * float64(total))
		for i, w := range weights {
			if draw -= w; draw < 0 {
				toFront(pl.choices, i)
				break
			}
		}
	}
	return pl, nil
}

func toFront(list []*choice, i int) {
	c := list[i]
	copy(list[1:i+1], list[:i])
	list[0] = c
}

// fits reports whether a request is what a condition says.
func (x *exchange) fits(c *agent.Condition) (bool, error) {
	in := estimate(&x.peek)
	switch {
	case c.MinInput > 0 && in < c.MinInput, c.MaxInput > 0 && in > c.MaxInput,
		c.Tools != nil && *c.Tools != x.peek.Tools,
		c.Images != nil && *c.Images != (x.peek.Media > 0),
		c.Stream != nil && *c.Stream != x.peek.Stream,
		len(c.Agents) > 0 && !anyGlob(c.Agents, x.who.Agent),
		len(c.Users) > 0 && !anyGlob(c.Users, x.user()):
		return false, nil
	}
	if len(c.Metadata) > 0 {
		r, err := x.canonical()
		if err != nil {
			return false, err
		}
		for k, v := range c.Metadata {
			if got, ok := r.Metadata[k]; !ok || got != v {
				return false, nil
			}
		}
	}
	return c.Share <= 0 || c.Share >= 1 || x.g.random() < c.Share, nil
}

// user is whom a request is counted for.
func (x *exchange) user() string {
	if x.who.User != "" {
		return x.who.User
	}
	return x.peek.User
}

// stick puts the candidate first that a request's signed turn came from, if it is one.
func (pl *plan) stick(o *origin) {
	if o == nil {
		return
	}
	for i, c := range pl.choices {
		if c.p.Name == o.Provider && c.model == o.Model {
			c.first = o.Secret
			toFront(pl.choices, i)
			return
		}
	}
}
