package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/egress"
)

// Tokens keeps what authorizations have brought, as it is given, in a place that guests cannot name. user is empty for what all of an app share.
type Tokens interface {
	// Load returns what was saved, or a NotFound error.
	Load(ctx context.Context, app agent.App, server, user string) ([]byte, error)
	Save(ctx context.Context, app agent.App, server, user string, b []byte) error
	// Delete forgets it, and is no error when there is none.
	Delete(ctx context.Context, app agent.App, server, user string) error
	// DeleteAll forgets what there is of all users of a server.
	DeleteAll(ctx context.Context, app agent.App, server string) error
}

// OAuthOptions of an OAuth.
type OAuthOptions struct {
	Tokens          Tokens
	Egress, Private *egress.Egress                                                            // as in Options
	Secret          func(ctx context.Context, app agent.App, name, to string) (string, error) // as in Options
	Now             func() time.Time                                                          // nil means time.Now
}

// OAuth authorizes Skep with servers (MCP 2026-07-28, authorization): with PKCE (RFC 7636), protected resource metadata (RFC 9728), metadata of the
// authorization server (RFC 8414, OpenID Connect Discovery), resource indicators (RFC 8707) and issuer identification (RFC 9207). A client is one that
// was registered before, a client id metadata document, or registered on the way (RFC 7591), in this order. It is safe for concurrent use.
type OAuth struct {
	o OAuthOptions

	mu      sync.Mutex
	entries map[entryKey]*entry
	pending map[string]*pending // by state
	watch   map[*source]struct{}
}

type entryKey struct {
	app          agent.App
	server, user string
}

// entry is what is known of one user's authorization with one server. mu is held while tokens are refreshed.
type entry struct {
	mu     sync.Mutex
	loaded bool
	grant  *grant // nil when there is none

	// The rest is guarded by OAuth.mu.
	generation int
	challenge  challenge
}

// grant is what Tokens keep.
type grant struct {
	URL      string    `json:"url"` // of the server; it is sent to no other
	Issuer   string    `json:"issuer"`
	Resource string    `json:"resource"`
	TokenURL string    `json:"token_url"`
	Client   client    `json:"client"`
	Scopes   []string  `json:"scopes,omitempty"`
	Access   string    `json:"access,omitempty"`
	Refresh  string    `json:"refresh,omitempty"`
	Expires  time.Time `json:"expires,omitzero"`
	At       time.Time `json:"at,omitzero"` // when a person agreed
}

// client is Skep as an authorization server knows it.
type client struct {
	ID       string `json:"id"`
	Secret   string `json:"secret,omitempty"`
	Method   string `json:"method"`             // client_secret_basic, client_secret_post or none
	Redirect string `json:"redirect,omitempty"` // that it is registered with
	Made     bool   `json:"made,omitempty"`     // registered on the way
}

// challenge is what a server said when it refused.
type challenge struct {
	there    bool
	metadata string   // URL of the protected resource metadata
	scopes   []string // that it wants
}

// needsAuth is the error of a server that a person has to authorize Skep with.
type needsAuth struct {
	err  *agent.Error
	more bool // for something that it was asked for; the rest goes on
}

func (e *needsAuth) Error() string { return e.err.Error() }
func (e *needsAuth) Unwrap() error { return e.err }

// NewOAuth returns an OAuth that knows what its Tokens know.
func NewOAuth(o OAuthOptions) *OAuth {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &OAuth{o: o, entries: map[entryKey]*entry{}, pending: map[string]*pending{}, watch: map[*source]struct{}{}}
}

func (a *OAuth) entry(rec agent.ToolServer, user string) *entry {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := entryKey{rec.App, rec.Name, user}
	e := a.entries[k]
	if e == nil {
		e = &entry{}
		a.entries[k] = e
	}
	return e
}

// load returns the grant for a record, or nil. e.mu is held.
func (a *OAuth) load(ctx context.Context, e *entry, rec agent.ToolServer, user string) (*grant, error) {
	if !e.loaded {
		b, err := a.o.Tokens.Load(ctx, rec.App, rec.Name, user)
		if err != nil && agent.KindOf(err) != agent.NotFound {
			return nil, err
		}
		if err == nil {
			g := &grant{}
			if err := json.Unmarshal(b, g); err != nil {
				return nil, agent.Wrap(agent.Internal, err, "what is kept of the authorization with server "+rec.Name+" cannot be read")
			}
			e.grant = g
		}
		e.loaded = true
	}
	if e.grant != nil && e.grant.URL != rec.URL {
		return nil, nil // the record is of another server by now
	}
	return e.grant, nil
}

func (a *OAuth) save(ctx context.Context, e *entry, rec agent.ToolServer, user string, g *grant) error {
	b, err := json.Marshal(g)
	if err != nil {
		return err
	}
	if err := a.o.Tokens.Save(ctx, rec.App, rec.Name, user, b); err != nil {
		return err
	}
	e.grant, e.loaded = g, true
	return nil
}

// has reports whether a user has an authorization of their own.
func (a *OAuth) has(ctx context.Context, rec agent.ToolServer, user string) bool {
	e := a.entry(rec, user)
	e.mu.Lock()
	defer e.mu.Unlock()
	g, err := a.load(ctx, e, rec, user)
	return err == nil && g != nil
}

// generation counts a user's authorizations.
func (a *OAuth) generation(rec agent.ToolServer, user string) int {
	e := a.entry(rec, user)
	a.mu.Lock()
	defer a.mu.Unlock()
	return e.generation
}

// token returns a token for the record's server, or "" when there is none. refused is one that the server has just refused, in whose place another is
// asked for.
func (a *OAuth) token(ctx context.Context, s *source, user, refused string) (string, error) {
	e := a.entry(s.rec, user)
	e.mu.Lock()
	defer e.mu.Unlock()
	g, err := a.load(ctx, e, s.rec, user)
	if err != nil || g == nil {
		return "", err
	}
	stale := !g.Expires.IsZero() && a.o.Now().After(g.Expires.Add(-30*time.Second))
	if g.Access != "" && g.Access != refused && !stale {
		return g.Access, nil
	}
	if g.Refresh == "" {
		if refused == "" {
			return g.Access, nil // its clock may be another
		}
		return "", nil
	}
	next, err := a.refresh(ctx, s.rec, g)
	var spent *tokenError
	switch {
	case errors.As(err, &spent) && spent.final():
		next = &grant{At: g.At, URL: g.URL, Issuer: g.Issuer, Resource: g.Resource, TokenURL: g.TokenURL, Client: g.Client, Scopes: g.Scopes}
	case err != nil:
		return "", err
	}
	if err := a.save(context.WithoutCancel(ctx), e, s.rec, user, next); err != nil {
		return "", err
	}
	return next.Access, nil
}

// wanted notes why a server refused, for the authorization to come, and returns the error that says so.
func (a *OAuth) wanted(rec agent.ToolServer, user string, h http.Header, had, more bool) error {
	c := challengeOf(h)
	e := a.entry(rec, user)
	a.mu.Lock()
	e.challenge = c
	a.mu.Unlock()
	out := &agent.Error{
		Kind: agent.Denied, Msg: "server " + rec.Name + " wants Skep to be authorized by a person", Hint: "skep tools authorize " + rec.Name,
	}
	if had {
		out.Msg = "server " + rec.Name + " does not take Skep's authorization any more"
		if more {
			out.Msg = "server " + rec.Name + " wants Skep to be authorized for more: " + kept(strings.Join(c.scopes, " "), 500)
		}
	}
	return &needsAuth{out, more}
}

// insufficient reports whether a refusal asks for more scopes (RFC 6750, section 3.1).
func insufficient(h http.Header) bool {
	cs, err := oauthex.ParseWWWAuthenticate(h.Values("Www-Authenticate"))
	return err == nil && slices.ContainsFunc(cs, func(c oauthex.Challenge) bool {
		return c.Scheme == "bearer" && c.Params["error"] == "insufficient_scope"
	})
}

func challengeOf(h http.Header) challenge {
	out := challenge{there: true}
	cs, err := oauthex.ParseWWWAuthenticate(h.Values("Www-Authenticate"))
	if err != nil {
		return out
	}
	for _, c := range cs {
		if u := c.Params["resource_metadata"]; out.metadata == "" {
			out.metadata = u
		}
		if c.Scheme == "bearer" && out.scopes == nil {
			out.scopes = strings.Fields(c.Params["scope"])
		}
	}
	return out
}

// Forget deletes what is kept of a user's authorization with a server.
func (a *OAuth) Forget(ctx context.Context, rec agent.ToolServer, user string) error {
	e := a.entry(rec, user)
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := a.o.Tokens.Delete(ctx, rec.App, rec.Name, user); err != nil {
		return err
	}
	e.grant, e.loaded = nil, true
	return nil
}

// ForgetAll deletes what is kept of all users' authorizations with a server.
func (a *OAuth) ForgetAll(ctx context.Context, rec agent.ToolServer) error {
	if err := a.o.Tokens.DeleteAll(ctx, rec.App, rec.Name); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for k := range a.entries { // who holds one still goes on with it to the end of its request
		if k.app == rec.App && k.server == rec.Name {
			delete(a.entries, k)
		}
	}
	return nil
}

// ForgetApp drops what is known of an app that was deleted. What was kept of it went with the app.
func (a *OAuth) ForgetApp(app agent.App) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.entries, func(k entryKey, _ *entry) bool { return k.app == app })
	maps.DeleteFunc(a.pending, func(_ string, p *pending) bool { return p.rec.App == app })
}

// State says how it stands with an authorization.
type State struct {
	Authorized bool
	At         time.Time // when a person agreed
	Scopes     []string
}

// State says whether Skep is authorized with a server for a user, or with an empty one for all of the app.
func (a *OAuth) State(ctx context.Context, rec agent.ToolServer, user string) (State, error) {
	e := a.entry(rec, user)
	e.mu.Lock()
	defer e.mu.Unlock()
	g, err := a.load(ctx, e, rec, user)
	if err != nil || g == nil || g.Access == "" && g.Refresh == "" {
		return State{}, err
	}
	return State{true, g.At, slices.Clone(g.Scopes)}, nil
}

// follow has a source told when its server was authorized.
func (a *OAuth) follow(s *source) (stop func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watch[s] = struct{}{}
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.watch, s)
	}
}

// authorized notes a new authorization.
func (a *OAuth) authorized(rec agent.ToolServer, user string) {
	e := a.entry(rec, user)
	a.mu.Lock()
	defer a.mu.Unlock()
	e.generation++
	e.challenge = challenge{}
	for s := range a.watch {
		if s.rec.App == rec.App && s.rec.Name == rec.Name {
			s.work.Go(s.changed)
		}
	}
}
