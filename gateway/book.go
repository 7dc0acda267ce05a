package gateway

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway/guard"
	"github.com/skep-dev/skep/host/egress"
)

// maxBooks is how many apps' records are kept in memory.
const maxBooks = 4096

// book is what an app has, made ready. It does not change; how providers fare does, and goes from one book to the next.
type book struct {
	stamp     Stamp
	providers map[string]*provider
	ordered   []*provider // by name
	routes    map[string]*agent.ModelRoute
	patterns  []pattern // of the models that lead to routes, by the routes' names
	guards    *guard.Set
}

type pattern struct {
	text  string
	route *agent.ModelRoute
}

// provider is a record made ready.
type provider struct {
	agent.Provider
	base   *url.URL // its path has no slash at the end
	target agent.Request
	broken error // why no call can go to it
	health *health

	once   sync.Once // of a script
	script http.RoundTripper
	failed error
}

// book returns the records of an app.
func (g *Gateway) book(ctx context.Context, app agent.App) (*book, error) {
	stamp, err := g.o.Records.Stamp(ctx, app)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	was := g.books[app]
	g.mu.Unlock()
	if was != nil && was.stamp == stamp {
		return was, nil
	}
	providers, routes, err := g.o.Records.Read(ctx, app)
	if err != nil {
		return nil, err
	}
	guards, err := g.guards(ctx, app)
	if err != nil {
		return nil, err
	}
	b := &book{stamp: stamp, guards: guards, providers: map[string]*provider{}, routes: map[string]*agent.ModelRoute{}}
	g.mu.Lock()
	defer g.mu.Unlock()
	if was = g.books[app]; was == nil {
		was = &book{}
	}
	for _, r := range providers {
		p := was.providers[r.Name]
		if p == nil || p.Revision != r.Revision || !p.Created.Equal(r.Created) {
			p = newProvider(r)
		}
		b.providers[r.Name] = p
		b.ordered = append(b.ordered, p)
	}
	slices.SortFunc(b.ordered, func(x, y *provider) int { return strings.Compare(x.Name, y.Name) })
	slices.SortFunc(routes, func(x, y agent.ModelRoute) int { return strings.Compare(x.Name, y.Name) })
	for i := range routes {
		r := &routes[i]
		b.routes[r.Name] = r
		for _, m := range r.Models {
			b.patterns = append(b.patterns, pattern{m, r})
		}
	}
	if len(g.books) >= maxBooks {
		clear(g.books)
	}
	g.books[app] = b
	return b, nil
}

func newProvider(r agent.Provider) *provider {
	p := &provider{Provider: r, health: newHealth(r.Keys)}
	if r.Script != "" {
		p.base = &url.URL{Scheme: "http", Host: "script.invalid"}
		return p
	}
	u, target, err := egress.Parse(http.MethodPost, r.URL)
	if err != nil {
		p.broken = agent.Wrap(agent.KindOf(err), err, "the provider "+r.Name+" has no URL that can be called")
		return p
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	u.RawPath = ""
	p.base, p.target = u, target
	return p
}

// way returns what takes calls to the provider.
func (g *Gateway) way(ctx context.Context, p *provider) (http.RoundTripper, error) {
	switch {
	case p.broken != nil:
		return nil, p.broken
	case p.Script != "":
		if g.o.Script == nil {
			return nil, agent.Errorf(agent.Unavailable, "this server has no scripted providers")
		}
		p.once.Do(func() { p.script, p.failed = g.o.Script(context.WithoutCancel(ctx), p.Provider) })
		return p.script, p.failed
	}
	out := g.o.Public
	if p.Private {
		out = g.o.Private
	}
	if out == nil {
		return nil, &agent.Error{
			Kind: agent.Unavailable, Msg: "this server makes no calls to the address of the provider " + p.Name,
			Hint: "whoever runs the server can allow it",
		}
	}
	return out, nil
}

// speaks returns the protocol in which a request of a client in p is passed to the provider, or NoProtocol when it speaks none that fits.
func (p *provider) speaks(client agent.Protocol) agent.Protocol {
	if slices.Contains(p.Protocols, client) {
		return client
	}
	if client != agent.NoProtocol && !client.Chats() {
		return agent.NoProtocol
	}
	for _, s := range p.Protocols {
		if s.Chats() {
			return s
		}
	}
	return agent.NoProtocol
}

// serves reports whether the provider says that it has a model.
func (p *provider) serves(model string) bool {
	return slices.ContainsFunc(p.Models, func(m string) bool { return agent.Glob(m, model) })
}

func anyGlob(patterns []string, text string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return agent.Glob(p, text) })
}
