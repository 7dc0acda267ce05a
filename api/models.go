package api

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/gateway"
	"github.com/skep-dev/skep/gateway/script"
	"github.com/skep-dev/skep/store"
)

// maxProvider is the most bytes of a request that may hold a script, which is escaped there.
const maxProvider = 4 << 20

// modelRoutes are the endpoints of records about models. The models themselves are asked at those of aiRoutes.
func (s *Server) modelRoutes() []route {
	return []route{
		{method: "GET", path: "/v1/models", id: "listModels", summary: "List what may be asked for: routes, and models that providers say they have", endpoint: handle(s.listModels)},

		{method: "PUT", path: "/v1/models/providers/{name}", id: "putProvider", summary: "Set a provider of models", owner: "set providers of models", endpoint: handle(s.putProvider), limit: maxProvider},
		{method: "GET", path: "/v1/models/providers", id: "listProviders", summary: "List providers of models, by name", endpoint: handle(providerSpace.page(s))},
		{method: "GET", path: "/v1/models/providers/{name}", id: "getProvider", summary: "Show a provider of models", endpoint: handle(providerSpace.show(s))},
		{method: "DELETE", path: "/v1/models/providers/{name}", id: "deleteProvider", summary: "Delete a provider of models", status: 204, owner: "delete providers of models", endpoint: handle(providerSpace.drop(s))},
		{method: "GET", path: "/v1/models/providers/{name}/record", id: "recordProvider", summary: "Record calls to a provider from now on, as lines of a script that tells its answers again", owner: "record calls to providers", endpoint: handle(s.recordProvider), media: []string{typeNDJSON}},

		{method: "PUT", path: "/v1/models/routes/{name}", id: "putModelRoute", summary: "Set a route to models", endpoint: handle(s.putModelRoute)},
		{method: "GET", path: "/v1/models/routes", id: "listModelRoutes", summary: "List routes to models, by name", endpoint: handle(routeSpace.page(s))},
		{method: "GET", path: "/v1/models/routes/{name}", id: "getModelRoute", summary: "Show a route to models", endpoint: handle(routeSpace.show(s))},
		{method: "DELETE", path: "/v1/models/routes/{name}", id: "deleteModelRoute", summary: "Delete a route to models", status: 204, endpoint: handle(routeSpace.drop(s))},

		{method: "PUT", path: "/v1/models/limits/{name}", id: "putModelLimit", summary: "Set a limit of requests, tokens or spending", owner: "set limits of models", endpoint: handle(s.putModelLimit)},
		{method: "GET", path: "/v1/models/limits", id: "listModelLimits", summary: "List limits, by name", endpoint: handle(limitSpace.page(s))},
		{method: "GET", path: "/v1/models/limits/{name}", id: "getModelLimit", summary: "Show a limit", endpoint: handle(limitSpace.show(s))},
		{method: "GET", path: "/v1/models/limits/{name}/use", id: "getModelLimitUse", summary: "Show what is used of a limit now, and by whom", endpoint: handle(s.getModelLimitUse)},
		{method: "DELETE", path: "/v1/models/limits/{name}", id: "deleteModelLimit", summary: "Delete a limit", status: 204, owner: "delete limits of models", endpoint: handle(s.deleteModelLimit)},

		{method: "PUT", path: "/v1/models/guardrails/{name}", id: "putGuardrail", summary: "Set a guardrail, which looks at what goes to models and comes from them", owner: "set guardrails", endpoint: handle(s.putGuardrail)},
		{method: "GET", path: "/v1/models/guardrails", id: "listGuardrails", summary: "List guardrails, by name", endpoint: handle(guardSpace.page(s))},
		{method: "GET", path: "/v1/models/guardrails/{name}", id: "getGuardrail", summary: "Show a guardrail", endpoint: handle(guardSpace.show(s))},
		{method: "DELETE", path: "/v1/models/guardrails/{name}", id: "deleteGuardrail", summary: "Delete a guardrail", status: 204, owner: "delete guardrails", endpoint: handle(guardSpace.drop(s))},

		{method: "GET", path: "/v1/models/logging", id: "getModelLogging", summary: "Show what is kept of what models are asked", endpoint: handle(s.getModelLogging)},
		{method: "PUT", path: "/v1/models/logging", id: "putModelLogging", summary: "Say how long what models are asked and answer is kept", owner: "keep what models are asked", endpoint: handle(s.putModelLogging)},
		{method: "GET", path: "/v1/models/log", id: "listModelLogs", summary: "List what models were asked, newest first, without the texts", owner: "read what models were asked", endpoint: handle(s.listModelLogs)},
		{method: "GET", path: "/v1/models/log/{id}", id: "getModelLog", summary: "Show what a model was asked, and what it answered", owner: "read what models were asked", endpoint: handle(s.getModelLog)},

		{method: "POST", path: "/v1/models/keys", id: "createModelKey", summary: "Make a virtual key, which is good for models alone; its value is shown this once", status: 201, owner: "make keys of models", endpoint: handle(s.createModelKey)},
		{method: "GET", path: "/v1/models/keys", id: "listModelKeys", summary: "List virtual keys, oldest first, without their values", endpoint: handle(s.listModelKeys)},
		{method: "GET", path: "/v1/models/keys/{id}", id: "getModelKey", summary: "Show a virtual key, without its value", endpoint: handle(s.getModelKey)},
		{method: "PATCH", path: "/v1/models/keys/{id}", id: "updateModelKey", summary: "Change a virtual key", owner: "change keys of models", endpoint: handle(s.updateModelKey)},
		{method: "DELETE", path: "/v1/models/keys/{id}", id: "deleteModelKey", summary: "Delete a virtual key", status: 204, owner: "delete keys of models", endpoint: handle(s.deleteModelKey)},
	}
}

func (s *Server) listModels(ctx context.Context, _ empty) (list[gateway.ModelInfo], error) {
	if s.o.Models == nil {
		return list[gateway.ModelInfo]{}, errNoModels
	}
	all, err := s.o.Models.Models(ctx, gateway.Caller{App: appOf(ctx)})
	return listOf(all, "", err)
}

// modelSpace is one kind of records about models, with the endpoints that are the same for all kinds.
type modelSpace[T any] struct {
	docs store.Docs
	noun string
	meta func(*T) modelMeta
}

// modelMeta is what all such records have.
type modelMeta struct {
	name             *string
	app              *agent.App
	created, changed *time.Time
	revision         *int64
	check            func() error
}

var (
	providerSpace = modelSpace[agent.Provider]{store.Providers, "provider", func(p *agent.Provider) modelMeta {
		return modelMeta{&p.Name, &p.App, &p.Created, &p.Changed, &p.Revision, p.Check}
	}}
	routeSpace = modelSpace[agent.ModelRoute]{store.ModelRoutes, "route", func(r *agent.ModelRoute) modelMeta {
		return modelMeta{&r.Name, &r.App, &r.Created, &r.Changed, &r.Revision, r.Check}
	}}
	limitSpace = modelSpace[agent.ModelLimit]{store.ModelLimits, "limit", func(l *agent.ModelLimit) modelMeta {
		return modelMeta{&l.Name, &l.App, &l.Created, &l.Changed, &l.Revision, l.Check}
	}}
	guardSpace = modelSpace[agent.Guardrail]{store.Guardrails, "guardrail", func(g *agent.Guardrail) modelMeta {
		return modelMeta{&g.Name, &g.App, &g.Created, &g.Changed, &g.Revision, g.Check}
	}}
)

// put stores a record. Its revision is the one that it must have, or 0 for whatever is there.
func (sp modelSpace[T]) put(ctx context.Context, s *Server, name string, v T, detail string) (T, error) {
	var none T
	m := sp.meta(&v)
	*m.name, *m.app = name, appOf(ctx)
	if err := m.check(); err != nil {
		return none, err
	}
	want := *m.revision
	for try := 0; ; try++ {
		was, err := sp.read(ctx, s, name)
		if err != nil && agent.KindOf(err) != agent.NotFound {
			return none, err
		}
		old, rev := sp.meta(&was), want
		if want == 0 {
			rev = *old.revision
		}
		now := s.o.Now().UTC()
		*m.changed, *m.created, *m.revision = now, *old.created, 0
		if old.created.IsZero() {
			*m.created = now
		}
		rev, err = s.st.PutDoc(ctx, sp.docs, appOf(ctx), name, rev, v)
		if kind := agent.KindOf(err); err != nil && want == 0 && try < 10 && (kind == agent.Conflict || kind == agent.Exists) {
			continue // somebody else was quicker
		}
		if err != nil {
			return none, err
		}
		*m.revision = rev
		return v, s.audit(ctx, "model."+sp.noun+".put", name, detail)
	}
}

func (sp modelSpace[T]) read(ctx context.Context, s *Server, name string) (v T, err error) {
	rev, err := s.st.Doc(ctx, sp.docs, appOf(ctx), name, &v)
	*sp.meta(&v).revision = rev
	return v, err
}

// show returns the endpoint that shows a record.
func (sp modelSpace[T]) show(s *Server) func(context.Context, modelRequest) (T, error) {
	return func(ctx context.Context, q modelRequest) (T, error) { return sp.read(ctx, s, q.Name) }
}

// page returns the endpoint that lists records by name.
func (sp modelSpace[T]) page(s *Server) func(context.Context, pageQuery) (list[T], error) {
	return func(ctx context.Context, q pageQuery) (list[T], error) {
		var all []T
		next, err := s.st.Docs(ctx, sp.docs, appOf(ctx), "", q.page(), func(name string, rev int64, data []byte) error {
			var v T
			if err := json.Unmarshal(data, &v); err != nil {
				return fmt.Errorf("%s %s: %w", sp.noun, name, err)
			}
			*sp.meta(&v).revision = rev
			all = append(all, v)
			return nil
		})
		return listOf(all, next, err)
	}
}

// drop returns the endpoint that deletes a record.
func (sp modelSpace[T]) drop(s *Server) func(context.Context, modelRequest) (nothing, error) {
	return func(ctx context.Context, q modelRequest) (nothing, error) {
		if err := s.st.DeleteDoc(ctx, sp.docs, appOf(ctx), q.Name, store.AnyRev); err != nil {
			return nothing{}, err
		}
		return nothing{}, s.audit(ctx, "model."+sp.noun+".delete", q.Name, "")
	}
}

type modelRequest struct {
	Name string `path:"name"`
}

// providerInput is what a caller says of a provider.
type providerInput struct {
	Description string              `json:"description,omitempty"`
	URL         string              `json:"url,omitempty" doc:"base URL, as the vendor's own SDK takes it"`
	Protocols   []agent.Protocol    `json:"protocols,omitempty" doc:"how it is spoken to, best first"`
	Keys        []agent.ProviderKey `json:"keys,omitempty" doc:"names of secrets, one of which is used for each call"`
	Auth        string              `json:"auth,omitempty" doc:"header that takes the key: Authorization, as Bearer, or another; as the protocol has it unless given"`
	Header      map[string]string   `json:"header,omitempty" doc:"sent with each call"`
	Models      []string            `json:"models,omitempty" doc:"names of what it serves, or patterns with *"`
	Private     bool                `json:"private,omitempty" doc:"its address may be private, where the operator allows that"`
	Headers     time.Duration       `json:"headers,omitempty" doc:"longest wait until an answer begins"`
	Idle        time.Duration       `json:"idle,omitempty" doc:"longest silence within a stream"`
	Script      agent.Digest        `json:"script,omitempty" doc:"blob with the turns of a scripted provider; instead of url"`
	Turns       string              `json:"turns,omitempty" doc:"the turns of a scripted provider, as text: it is kept as the blob that script names"`
	Disabled    bool                `json:"disabled,omitempty"`
	Prices      []agent.ModelPrice  `json:"prices,omitempty" doc:"in millionths of a dollar for a million tokens; before those of the price table"`
	Vendor      string              `json:"vendor,omitempty" doc:"its name in the price table; by URL and name unless given"`
	Revision    int64               `json:"revision,omitempty" doc:"that it must have; whatever is there unless given"`
}

type putProviderRequest struct {
	Name string        `path:"name"`
	Body providerInput `body:"json"`
}

func (s *Server) putProvider(ctx context.Context, q putProviderRequest) (agent.Provider, error) {
	b := q.Body
	p := agent.Provider{
		Description: b.Description, URL: b.URL, Protocols: b.Protocols, Keys: b.Keys, Auth: b.Auth, Header: b.Header, Models: b.Models, Private: b.Private,
		Headers: b.Headers, Idle: b.Idle, Script: b.Script, Disabled: b.Disabled, Prices: b.Prices, Vendor: b.Vendor, Revision: b.Revision,
	}
	if b.Turns != "" {
		if b.Script != "" {
			return agent.Provider{}, agent.Errorf(agent.Invalid, `fields "script" and "turns" say the same: give one`)
		}
		if err := script.Check([]byte(b.Turns)); err != nil {
			return agent.Provider{}, err
		}
		var err error
		if p.Script, err = s.st.PutBlob(ctx, []byte(b.Turns)); err != nil {
			return agent.Provider{}, err
		}
		if len(p.Protocols) == 0 {
			p.Protocols = agent.Protocols()
		}
	}
	detail := p.URL
	if p.Script != "" {
		detail = "script " + string(p.Script)
	}
	for _, k := range p.Keys {
		detail += ", key " + k.Secret
	}
	out, err := providerSpace.put(ctx, s, q.Name, p, detail)
	if err == nil && s.o.Models != nil {
		s.o.Models.Reset(out.App, out.Name)
	}
	return out, err
}

// routeInput is what a caller says of a route.
type routeInput struct {
	Description string             `json:"description,omitempty"`
	Candidates  []agent.Candidate  `json:"candidates,omitempty" doc:"which are asked in their order, until one answers"`
	Models      []string           `json:"models,omitempty" doc:"names that clients ask for and that lead here; patterns with *"`
	Weighted    bool               `json:"weighted,omitempty" doc:"the first candidate is drawn by weight"`
	Attempts    int                `json:"attempts,omitempty" doc:"calls to providers for one request; 3 unless given"`
	Deadline    time.Duration      `json:"deadline,omitempty" doc:"of all attempts until the first content"`
	FailOver    []agent.FaultClass `json:"fail_over,omitempty" doc:"further faults after which the next candidate is asked: context_length, content"`
	Cache       time.Duration      `json:"cache,omitempty" doc:"how long an answer to the same request is good; none is kept unless given"`
	CacheTools  bool               `json:"cache_tools,omitempty" doc:"also for requests that offer tools"`
	Revision    int64              `json:"revision,omitempty" doc:"that it must have; whatever is there unless given"`
}

type putModelRouteRequest struct {
	Name string     `path:"name"`
	Body routeInput `body:"json"`
}

func (s *Server) putModelRoute(ctx context.Context, q putModelRouteRequest) (agent.ModelRoute, error) {
	b := q.Body
	r := agent.ModelRoute{
		Name: q.Name, Description: b.Description, Candidates: b.Candidates, Models: b.Models, Weighted: b.Weighted, Attempts: b.Attempts, Deadline: b.Deadline,
		FailOver: b.FailOver, Cache: b.Cache, CacheTools: b.CacheTools, Revision: b.Revision,
	}
	if err := r.Check(); err != nil {
		return agent.ModelRoute{}, err
	}
	var words []string
	for _, c := range r.Candidates {
		_, err := s.st.Doc(ctx, store.Providers, appOf(ctx), c.Provider, nil)
		if e := agent.AsError(err); e != nil {
			if e.Kind == agent.NotFound {
				return agent.ModelRoute{}, &agent.Error{Kind: agent.Invalid, Msg: e.Msg + `, which field "candidates" names`, Hint: "add the provider first"}
			}
			return agent.ModelRoute{}, err
		}
		words = append(words, strings.TrimSuffix(c.Provider+"/"+c.Model, "/"))
	}
	return routeSpace.put(ctx, s, q.Name, r, strings.Join(words, ", "))
}

// limitInput is what a caller says of a limit.
type limitInput struct {
	Each     agent.LimitEach `json:"each,omitempty" doc:"whose use is counted together: app, agent, key, user, or org for all apps; app unless given"`
	Match    []string        `json:"match,omitempty" doc:"only agents or users with these names, or keys with these ids; patterns with *"`
	Models   []string        `json:"models,omitempty" doc:"only calls of these: @ROUTE or PROVIDER/MODEL, with *"`
	Window   time.Duration   `json:"window" doc:"a minute to 31 days; from a day on whole days in UTC, today included"`
	Requests int64           `json:"requests,omitempty" doc:"no bound unless given"`
	Tokens   int64           `json:"tokens,omitempty" doc:"input and output; no bound unless given"`
	Spend    int64           `json:"spend,omitempty" doc:"in millionths of a dollar; no bound unless given"`
	Unpriced int64           `json:"unpriced,omitempty" doc:"with spend: what a call counts for whose price is not known; such calls are refused unless given"`
	Instead  string          `json:"instead,omitempty" doc:"route as @NAME that is asked when the limit is reached; a refusal unless given"`
	Revision int64           `json:"revision,omitempty" doc:"that it must have; whatever is there unless given"`
}

type putModelLimitRequest struct {
	Name string     `path:"name"`
	Body limitInput `body:"json"`
}

func (s *Server) putModelLimit(ctx context.Context, q putModelLimitRequest) (agent.ModelLimit, error) {
	b := q.Body
	if err := s.mayLimit(ctx, q.Name, b.Each); err != nil {
		return agent.ModelLimit{}, err
	}
	return limitSpace.put(ctx, s, q.Name, agent.ModelLimit{
		Each: b.Each, Match: b.Match, Models: b.Models, Window: b.Window, Requests: b.Requests, Tokens: b.Tokens, Spend: b.Spend, Unpriced: b.Unpriced,
		Instead: b.Instead, Revision: b.Revision,
	}, fmt.Sprintf("each %s in %s: %d requests, %d tokens, %d micro", b.Each, b.Window, b.Requests, b.Tokens, b.Spend))
}

// mayLimit refuses to have a limit of all apps together made, changed or deleted by who may speak for one app only.
func (s *Server) mayLimit(ctx context.Context, name string, each agent.LimitEach) error {
	if requestOf(ctx).token.App == "" {
		return nil
	}
	was, err := limitSpace.read(ctx, s, name)
	if err != nil && agent.KindOf(err) != agent.NotFound {
		return err
	}
	if each != agent.EachOrg && (err != nil || was.Each != agent.EachOrg) {
		return nil
	}
	return &agent.Error{Kind: agent.Denied, Msg: "a limit of all apps together is not for a token of one app", Hint: "use a token of an owner that is bound to no app"}
}

func (s *Server) getModelLimitUse(ctx context.Context, q modelRequest) (list[agent.LimitUse], error) {
	if s.o.Models == nil {
		return list[agent.LimitUse]{}, errNoModels
	}
	l, err := limitSpace.read(ctx, s, q.Name)
	if err != nil {
		return list[agent.LimitUse]{}, err
	}
	if l.Each == agent.EachOrg && requestOf(ctx).token.App != "" {
		return list[agent.LimitUse]{}, agent.Errorf(agent.Denied, "what all apps together have used is not for a token of one app")
	}
	used, err := s.o.Models.LimitUse(ctx, appOf(ctx), l.Each == agent.EachOrg, q.Name)
	return listOf(used, "", err)
}

func (s *Server) deleteModelLimit(ctx context.Context, q modelRequest) (nothing, error) {
	if err := s.mayLimit(ctx, q.Name, agent.EachApp); err != nil {
		return nothing{}, err
	}
	return limitSpace.drop(s)(ctx, q)
}

// guardInput is what a caller says of a guardrail.
type guardInput struct {
	Find     []string `json:"find,omitempty" doc:"what is built in: email, card, iban, phone, ip, key, jwt, private_key"`
	Patterns []string `json:"patterns,omitempty" doc:"regular expressions of RE2"`
	Words    []string `json:"words,omitempty" doc:"whole words, in any case"`
	Prompt   bool     `json:"prompt,omitempty" doc:"look at what goes to models"`
	Response bool     `json:"response,omitempty" doc:"look at what comes from them"`
	Block    bool     `json:"block,omitempty" doc:"refuse; what is found is replaced by [NAME] unless given"`
	Agents   []string `json:"agents,omitempty" doc:"only theirs; patterns with *"`
	Models   []string `json:"models,omitempty" doc:"only calls of these: @ROUTE or PROVIDER/MODEL, with *"`
	Revision int64    `json:"revision,omitempty" doc:"that it must have; whatever is there unless given"`
}

type putGuardrailRequest struct {
	Name string     `path:"name"`
	Body guardInput `body:"json"`
}

func (s *Server) putGuardrail(ctx context.Context, q putGuardrailRequest) (agent.Guardrail, error) {
	b := q.Body
	return guardSpace.put(ctx, s, q.Name, agent.Guardrail{
		Find: b.Find, Patterns: b.Patterns, Words: b.Words, Prompt: b.Prompt, Response: b.Response, Block: b.Block, Agents: b.Agents, Models: b.Models,
		Revision: b.Revision,
	}, fmt.Sprintf("find %s, %d patterns, %d words, block %t", strings.Join(b.Find, ","), len(b.Patterns), len(b.Words), b.Block))
}
