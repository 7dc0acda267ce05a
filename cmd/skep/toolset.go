package main

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/egress"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/tools"
	"github.com/skep-dev/skep/tools/builtin"
	"github.com/skep-dev/skep/tools/mcp"
	"github.com/skep-dev/skep/tools/openapi"
	"github.com/skep-dev/skep/vault"
	"github.com/skep-dev/skep/vault/inject"
)

// toolset is where tools come from. rt is set before anything is called.
type toolset struct {
	*tools.Catalogue

	st      *store.Store
	rt      *runtime.Runtime
	vault   *vault.Vault
	inject  *inject.Injector
	oauth   *mcp.OAuth
	outs    []*egress.Egress // of its own
	auditor func(ctx context.Context, app agent.App, e agent.Event) error
}

// openTools returns the catalogue of a server's tools. Close it before what it is made of.
func openTools(st *store.Store, o serveOptions, public *egress.Egress, secrets *vault.Vault, audit func(context.Context, agent.App, agent.Event) error) (*toolset, error) {
	t := &toolset{st: st, vault: secrets, auditor: audit}
	t.inject = inject.New(secrets, &inject.Options{Exchange: exchanger{public}})
	guard, err := filepath.Abs(o.dir)
	if err != nil {
		return nil, err
	}
	out, err := o.egress.options(o.log)
	if err != nil {
		return nil, err
	}
	private := t.way(out, egress.Limits{}, true)
	long, longPrivate := t.way(out, mcp.Limits(), false), t.way(out, mcp.Limits(), true)

	t.oauth = mcp.NewOAuth(mcp.OAuthOptions{Tokens: toolTokens{secrets}, Egress: long, Private: longPrivate, Secret: t.secret})
	speaks := &mcp.Options{
		Log: o.log, Version: version, Dir: filepath.Join(o.dir, "tools"), Egress: long, Private: longPrivate, Secret: t.secret, OAuth: t.oauth,
	}
	openMCP := func(ctx context.Context, s agent.ToolServer, changed func()) (tools.Source, error) {
		return mcp.Open(ctx, s, speaks, changed)
	}
	own := builtin.Options{
		Agents: t.agents, Declared: t.declared, Run: t.run,
		Call: func(ctx context.Context, app agent.App, name, key, function string, in agent.Payload, depth int) (agent.Payload, error) {
			return t.rt.CallTool(ctx, app, name, key, function, in, depth)
		},
		DeleteFile: func(ctx context.Context, app agent.App, session agent.SessionID, path string) error {
			return st.DeleteFile(ctx, app, session, path, store.AnyRev)
		},
	}
	t.Catalogue = tools.New(st, &tools.Options{
		Log: o.log, BuiltIns: builtin.Names(), Guard: []string{guard},
		Openers: tools.Openers{
			agent.MCPStdio: openMCP, agent.MCPHTTP: openMCP, agent.MCPSSE: openMCP,
			agent.OpenAPI: openapi.Opener(openapi.Options{
				Egress: public, Private: private, Sign: t.sign,
				Document: func(ctx context.Context, d agent.Digest) ([]byte, error) { return st.Blob(ctx, d) },
			}),
			agent.AgentTools: builtin.FunctionsOpener(own), agent.BuiltIn: builtin.Opener(own),
		},
		Hook: func(ctx context.Context, app agent.App, name, function string, in []byte) ([]byte, error) {
			res, err := t.rt.Call(ctx, app, runtime.CallRequest{Agent: name, Function: function, Input: agent.JSON(in)})
			return res.Output.Body, err
		},
	})
	return t, nil
}

// way makes a way out for servers of tools, which is closed with t.
func (t *toolset) way(o egress.Options, limits egress.Limits, private bool) *egress.Egress {
	if o.Limits = limits; private {
		o.Allow = append(slices.Clip(o.Allow), netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0"))
	}
	out := egress.New(&o)
	t.outs = append(t.outs, out)
	return out
}

func (t *toolset) closeOuts() error {
	var err error
	for _, out := range t.outs {
		err = errors.Join(err, out.Close())
	}
	return err
}

// Close ends all servers.
func (t *toolset) Close() error { return errors.Join(t.Catalogue.Close(), t.closeOuts()) }

// agents lists the agents of an app that have code.
func (t *toolset) agents(ctx context.Context, app agent.App) ([]builtin.Agent, error) {
	var out []builtin.Agent
	page := agent.Page{Limit: agent.MaxPage}
	for {
		list, next, err := t.st.Agents(ctx, app, page)
		if err != nil {
			return nil, err
		}
		for _, a := range list {
			if a.Plugin == "" {
				continue
			}
			p, err := t.st.Plugin(ctx, app, a.Plugin)
			if err != nil {
				if agent.KindOf(err) == agent.NotFound {
					continue
				}
				return nil, err
			}
			functions := slices.DeleteFunc(slices.Clone(p.Exports), func(name string) bool { return abi.Reserved(name) || abi.Handler(name) || name == "fetch" })
			out = append(out, builtin.Agent{Name: a.Name, Description: a.Description, Functions: functions})
		}
		if page.After = next; next == "" {
			return out, nil
		}
	}
}

// declared lists the functions that an agent's plugin declares as tools.
func (t *toolset) declared(ctx context.Context, app agent.App, name string) ([]tools.Offer, error) {
	a, err := t.st.Agent(ctx, app, name)
	if err != nil || a.Plugin == "" {
		return nil, err
	}
	p, err := t.st.Plugin(ctx, app, a.Plugin)
	if err != nil {
		return nil, err
	}
	m, err := t.rt.Manifest(ctx, p)
	if err != nil {
		return nil, err
	}
	list := []tools.Offer{}
	for _, function := range slices.Sorted(maps.Keys(m.Tools)) {
		d := m.Tools[function]
		list = append(list, tools.Offer{Declared: d.Effect, Tool: agent.Tool{
			Method: function, Title: d.Title, Description: d.Description, Input: d.Input, Output: d.Output, Idempotent: d.Idempotent, Undo: d.Undo,
		}})
	}
	return list, nil
}

// run runs a script once, in a cell that is granted nothing.
func (t *toolset) run(ctx context.Context, app agent.App, file string, files map[string]string, in agent.Payload) (agent.Payload, error) {
	src := agent.Source{Kind: agent.Script, Main: file, Files: map[string][]byte{}}
	for name, text := range files {
		src.Files[name] = []byte(text)
	}
	res, err := t.rt.Code(ctx, app, runtime.CodeRequest{Source: src, Input: in})
	return res.Output, err
}

// sign puts the secrets that a record names into a request of its server, where they are bound to.
func (t *toolset) sign(ctx context.Context, s agent.ToolServer, allow func(string) error, r *http.Request, to agent.Request) (egress.Cleaner, error) {
	clean, err := t.inject.Sign(context.WithValue(ctx, exchangerKey{}, s.App), inject.Use{
		App: s.App, Agent: "tools:" + s.Name,
		Allow: func(_ context.Context, name string) error { return allow(name) },
		Audit: func(ctx context.Context, use agent.SecretUse) error { return t.used(ctx, s.App, use) },
	}, r, to)
	if clean == nil || err != nil {
		return nil, err
	}
	return clean, nil
}

func (t *toolset) used(ctx context.Context, app agent.App, use agent.SecretUse) error {
	b, err := json.Marshal(use)
	if err != nil {
		return err
	}
	return t.auditor(ctx, app, agent.Event{Kind: agent.EventSecretUsed, Data: b})
}

// secret returns a secret for a server that speaks MCP. to is the URL that it goes to, to which it must be bound in a header; a program gets it as its
// record says, which only an owner can write.
func (t *toolset) secret(ctx context.Context, app agent.App, name, to string) (string, error) {
	m, err := t.vault.Material(ctx, app, name)
	if err != nil {
		return "", err
	}
	defer clear(m.Value)
	if m.Secret.Kind != agent.SecretValue {
		return "", agent.Errorf(agent.Invalid, "the secret %q is of kind %s; a server of tools can be given those of kind value", name, m.Secret.Kind)
	}
	use := agent.SecretUse{Secret: name, Version: m.Secret.Version, Place: "environment", Agent: "tools"}
	if to != "" {
		_, req, err := egress.Parse(http.MethodPost, to)
		if err != nil {
			return "", err
		}
		bound := slices.ContainsFunc(m.Secret.Bindings, func(b agent.Binding) bool { return b.To.Has(req) })
		if !bound {
			return "", &agent.Error{
				Kind: agent.Denied, Msg: "the secret " + name + " may not go to " + req.Origin(), Hint: "bind it: skep secret bind " + name + " --to '" + req.Origin() + "/** header:authorization'",
			}
		}
		use.Method, use.Host, use.Path, use.Place = req.Method, req.Host, req.Path, "header"
	}
	value := strings.Clone(string(m.Value))
	return value, t.used(ctx, app, use)
}

// exchanger makes the requests that exchange a secret for a token. Where they go is said by the secret, which its owner set.
type exchanger struct{ out *egress.Egress }

type exchangerKey struct{} // of the app, in a context

func (e exchanger) Do(req *http.Request) (*http.Response, error) {
	app, _ := req.Context().Value(exchangerKey{}).(agent.App)
	return e.out.RoundTripper(exchangerGuard{}, egress.Owner{App: app, Agent: "tools"}).RoundTrip(req)
}

type exchangerGuard struct{}

func (exchangerGuard) Allow(context.Context, agent.Request) error { return nil }
func (exchangerGuard) Sign(context.Context, *http.Request, agent.Request) (egress.Cleaner, error) {
	return nil, nil
}
