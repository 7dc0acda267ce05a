package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway"
	"github.com/skep-dev/skep/gateway/chat"
	"github.com/skep-dev/skep/gateway/embed"
	"github.com/skep-dev/skep/gateway/gemini"
	"github.com/skep-dev/skep/gateway/limit"
	"github.com/skep-dev/skep/gateway/message"
	"github.com/skep-dev/skep/gateway/price"
	"github.com/skep-dev/skep/gateway/response"
	"github.com/skep-dev/skep/gateway/script"
	"github.com/skep-dev/skep/gateway/upstream"
	"github.com/skep-dev/skep/gateway/wire"
	"github.com/skep-dev/skep/host/egress"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/ledger"
	"github.com/skep-dev/skep/vault"
)

// modelCodecs are the protocols of models that the server speaks.
func modelCodecs() []wire.Codec {
	return []wire.Codec{chat.Codec, response.Codec, message.Codec, gemini.Codec, embed.Codec}
}

const (
	idleModels  = 256       // connections to a provider that are kept while nobody uses them
	maxLimits   = 4096      // apps whose limits are kept in memory
	auditModels = time.Hour // how often the use of a provider's key is written to the audit log; the ledger has each call
)

// modelGateway is the gateway with what it is made of.
type modelGateway struct {
	*gateway.Gateway

	st     *store.Store
	vault  *vault.Vault
	prices *price.Table
	audit  func(ctx context.Context, app agent.App, e agent.Event) error
	outs   []*egress.Egress
	ways   []*upstream.Transport

	mu     sync.Mutex
	told   map[keyUse]time.Time
	limits map[agent.App]knownLimits
	log    *slog.Logger
}

type keyUse struct {
	app                    agent.App
	provider, secret, host string
	version                int
}

type knownLimits struct {
	version int64
	list    []agent.ModelLimit
}

// openModels returns the model gateway. Close it before what it is made of.
func openModels(st *store.Store, o serveOptions, secrets *vault.Vault, usage *ledger.Ledger, tracer trace.Tracer, audit func(context.Context, agent.App, agent.Event) error) (*modelGateway, error) {
	m := &modelGateway{st: st, vault: secrets, prices: price.Shipped(), audit: audit, told: map[keyUse]time.Time{}, limits: map[agent.App]knownLimits{}, log: o.log}
	out, err := o.egress.options(o.log)
	if err != nil {
		return nil, err
	}
	public := m.way(out)
	out.Allow = append(slices.Clip(out.Allow), netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0"))
	private := m.way(out)
	limiter := limit.New(usage, m.limitsOf, nil)
	m.Gateway = gateway.New(&gateway.Options{
		Log: o.log, Tracer: tracer, Codecs: modelCodecs(), Records: gateway.FromStore(st), Public: public, Private: private, Script: m.script, Secret: m.secret,
		Ledger: usage, Price: m.price, Refused: m.refused, Logging: m.logging, Logged: m.logged,
		Use: func(ctx context.Context, app agent.App, org bool, name string) ([]agent.LimitUse, error) {
			if org {
				app = limit.Org
			}
			return limiter.Use(ctx, app, name)
		},
		Hold: func(ctx context.Context, h gateway.Hold) (gateway.Held, error) {
			micro, _ := m.price(h.Provider, h.Model, agent.ModelTokens{Input: h.Input, Output: h.Tokens - h.Input}, "", time.Now())
			held, err := limiter.Hold(ctx, limit.Ask{
				App: h.App, Agent: h.Agent, Key: h.Key, User: h.User, Model: h.Provider.Name + "/" + h.Model, Route: h.Route, Tokens: h.Tokens, Micro: micro,
			})
			if other, ok := errors.AsType[*limit.Instead](err); ok {
				return nil, &gateway.Instead{Route: other.Route}
			}
			if err != nil {
				return nil, err
			}
			return held, nil
		},
	})
	return m, nil
}

func (m *modelGateway) way(o egress.Options) *upstream.Transport {
	out := egress.New(&o)
	t := upstream.New(out.Transport(idleModels))
	m.outs, m.ways = append(m.outs, out), append(m.ways, t)
	return t
}

// Close ends connections that nobody uses.
func (m *modelGateway) Close() error {
	err := m.Gateway.Close()
	for i, out := range m.outs {
		m.ways[i].CloseIdleConnections()
		err = errors.Join(err, out.Close())
	}
	return err
}

func (m *modelGateway) script(ctx context.Context, p agent.Provider) (http.RoundTripper, error) {
	text, err := m.st.Blob(ctx, p.Script)
	if err != nil {
		return nil, err
	}
	return script.New(text, modelCodecs())
}

func (m *modelGateway) price(p *agent.Provider, model string, tokens agent.ModelTokens, tier string, at time.Time) (*int64, string) {
	if p.Script != "" && p.Vendor == "" && len(p.Prices) == 0 {
		return new(int64), "" // what a script says costs nothing
	}
	q := price.Query{Vendor: p.Vendor, URL: p.URL, Name: p.Name, Model: model, Tokens: tokens, Time: at, Tier: tier, Overrides: p.Prices}
	micro, err := m.prices.Cost(q)
	if err != nil {
		return nil, m.prices.Version()
	}
	return micro, m.prices.VersionOf(q)
}

// secret returns a provider's key, which must be bound to the provider's address.
func (m *modelGateway) secret(ctx context.Context, app agent.App, provider, name, url string) (string, error) {
	mat, err := m.vault.Material(ctx, app, name)
	if err != nil {
		return "", err
	}
	defer clear(mat.Value)
	if mat.Secret.Kind != agent.SecretValue {
		return "", agent.Errorf(agent.Invalid, "the secret %q is of kind %s; a provider's key is of kind value", name, mat.Secret.Kind)
	}
	use := agent.SecretUse{Secret: name, Version: mat.Secret.Version, Place: "header", Agent: "model:" + provider, Method: http.MethodPost}
	if url != "" { // a provider with a script sends it nowhere
		_, to, err := egress.Parse(http.MethodPost, url)
		if err != nil {
			return "", err
		}
		below := to
		below.Path = strings.TrimSuffix(to.Path, "/") + "/x"
		if !slices.ContainsFunc(mat.Secret.Bindings, func(b agent.Binding) bool {
			return (b.To.Has(to) || b.To.Has(below)) && slices.ContainsFunc(b.In, func(p agent.Place) bool { return p.Kind == agent.PlaceHeader })
		}) {
			return "", &agent.Error{
				Kind: agent.Denied, Msg: "the secret " + name + " may not go to " + to.Origin(),
				Hint: "bind it: skep secret bind " + name + " --to '" + to.Origin() + "/** header:authorization'",
			}
		}
		use.Host, use.Path = to.Host, to.Path
	}
	if err := m.tell(ctx, app, provider, use); err != nil {
		return "", err
	}
	return strings.Clone(string(mat.Value)), nil
}

// tell writes the use of a key to the audit log, if that was not done lately.
func (m *modelGateway) tell(ctx context.Context, app agent.App, provider string, use agent.SecretUse) error {
	k, now := keyUse{app, provider, use.Secret, use.Host, use.Version}, time.Now()
	m.mu.Lock()
	fresh := now.Sub(m.told[k]) >= auditModels
	m.mu.Unlock()
	if !fresh {
		return nil
	}
	b, err := json.Marshal(use)
	if err == nil {
		err = m.audit(ctx, app, agent.Event{Kind: agent.EventSecretUsed, Data: b})
	}
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.told) >= 10_000 {
		clear(m.told)
	}
	m.told[k] = now
	return nil
}

// refused writes to the audit log that a provider refuses a key.
func (m *modelGateway) refused(app agent.App, provider, secret string, why agent.FaultClass, until time.Time) {
	b, err := json.Marshal(agent.Change{
		Action: "provider.key.refused", Name: provider, Detail: fmt.Sprintf("secret %s: %s; not used until %s", secret, why, until.UTC().Format(time.RFC3339)),
	})
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = m.audit(ctx, app, agent.Event{Kind: agent.EventChanged, Data: b}) // the log has it, too
}

// limitsOf returns the limits of an app, or of limit.Org those of all apps together, which are kept with the default app.
func (m *modelGateway) limitsOf(ctx context.Context, app agent.App) ([]agent.ModelLimit, error) {
	version := m.st.ModelsVersion() // of all apps, so one that was made anew never has what another had
	m.mu.Lock()
	known, ok := m.limits[app]
	m.mu.Unlock()
	if ok && known.version == version {
		return known.list, nil
	}
	of := cmp.Or(app, agent.DefaultApp)
	if _, err := m.st.DocsRev(ctx, store.ModelLimits, of); err != nil { // the app is there
		return nil, err
	}
	known = knownLimits{version: version}
	page := agent.Page{Limit: agent.MaxPage}
	for {
		next, err := m.st.Docs(ctx, store.ModelLimits, of, "", page, func(_ string, rev int64, data []byte) error {
			var l agent.ModelLimit
			err := json.Unmarshal(data, &l)
			if l.App, l.Revision = of, rev; (l.Each == agent.EachOrg) == (app == limit.Org) {
				known.list = append(known.list, l)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		if page.After = next; next == "" {
			break
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.limits) >= maxLimits {
		clear(m.limits)
	}
	m.limits[app] = known
	return known.list, nil
}
