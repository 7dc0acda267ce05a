package mcp

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/egress"
)

const (
	maxPending = 1000             // authorizations that wait for a person
	pendingFor = 10 * time.Minute // that one may take
)

// pending is an authorization that a person has been sent off for.
type pending struct {
	rec      agent.ToolServer
	user     string
	verifier string // of PKCE
	issuer   string
	says     bool // the server says that it names itself in what comes back (RFC 9207)
	grant    grant
	until    time.Time
}

// Authorized says whose authorization with what server has come about.
type Authorized struct {
	App    agent.App
	Server string
	User   string // empty when all of the app share it
}

// Begin begins an authorization: it returns the URL that a person is to open, and until when. redirect is the URL of Skep that they are sent back to, with a query
// for Finish. Nothing of it outlives the process; after ten minutes it is over.
func (a *OAuth) Begin(ctx context.Context, rec agent.ToolServer, user, redirect string) (page string, until time.Time, err error) {
	if rec.Kind != agent.MCPHTTP && rec.Kind != agent.MCPSSE || rec.OAuth == nil {
		return "", until, &agent.Error{
			Kind: agent.Invalid, Msg: "server " + rec.Name + " is none that Skep is authorized with", Hint: "that is for servers by http and sse whose record has oauth",
		}
	}
	hc, err := a.http(rec)
	if err != nil {
		return "", until, err
	}
	e := a.entry(rec, user)
	a.mu.Lock()
	c := e.challenge
	a.mu.Unlock()
	if !c.there {
		if c, err = probe(ctx, hc, rec); err != nil {
			return "", until, err
		}
	}
	resource, err := discover(ctx, hc, rec, c.metadata)
	if err != nil {
		return "", until, err
	}
	meta, err := serverOf(ctx, hc, rec, resource.AuthorizationServers[0])
	if err != nil {
		return "", until, err
	}
	e.mu.Lock()
	old, err := a.load(ctx, e, rec, user)
	e.mu.Unlock()
	if err != nil {
		return "", until, err
	}
	who, err := a.register(ctx, hc, rec, meta, old, redirect)
	if err != nil {
		return "", until, err
	}
	p := &pending{
		rec: rec, user: user, verifier: rand.Text() + rand.Text(), issuer: meta.Issuer, says: meta.AuthorizationResponseIssParameterSupported,
		until: a.o.Now().Add(pendingFor),
		grant: grant{URL: rec.URL, Issuer: meta.Issuer, Resource: resource.Resource, TokenURL: meta.TokenEndpoint, Client: who},
	}
	p.grant.Scopes = scopes(rec, c, resource, meta, old)
	state := rand.Text()
	if err := a.await(state, p); err != nil {
		return "", until, err
	}
	page, err = address(meta.AuthorizationEndpoint, p, state, redirect)
	return page, p.until, err
}

// address is the authorization request (RFC 6749, section 4.1.1).
func address(endpoint string, p *pending, state, redirect string) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return "", agent.Errorf(agent.Unavailable, "the authorization server of %s has no page for authorization", p.rec.Name)
	}
	sum := sha256.Sum256([]byte(p.verifier))
	q := u.Query()
	q.Set("response_type", "code")
	q.Set("client_id", p.grant.Client.ID)
	q.Set("redirect_uri", redirect)
	q.Set("state", state)
	q.Set("code_challenge", base64.RawURLEncoding.EncodeToString(sum[:]))
	q.Set("code_challenge_method", "S256")
	q.Set("resource", p.grant.Resource)
	if len(p.grant.Scopes) > 0 {
		q.Set("scope", strings.Join(p.grant.Scopes, " "))
	}
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// await keeps a pending authorization, and drops those that are over.
func (a *OAuth) await(state string, p *pending) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.o.Now()
	for s, other := range a.pending {
		if now.After(other.until) {
			delete(a.pending, s)
		}
	}
	if len(a.pending) >= maxPending {
		return &agent.Error{Kind: agent.Exhausted, Msg: "too many authorizations are under way", After: time.Minute}
	}
	a.pending[state] = p
	return nil
}

// Finish ends an authorization with the query that a person has brought back. A state is good for one Finish, whatever comes of it.
func (a *OAuth) Finish(ctx context.Context, q url.Values) (Authorized, error) {
	state := q.Get("state")
	a.mu.Lock()
	p := a.pending[state]
	delete(a.pending, state)
	a.mu.Unlock()
	if p == nil || a.o.Now().After(p.until) {
		return Authorized{}, &agent.Error{
			Kind: agent.Denied, Msg: "no authorization of that name is under way: it is over, was used before, or began on another server",
			Hint: "begin again: skep tools authorize NAME",
		}
	}
	if err := checkIssuer(p, q); err != nil {
		return Authorized{}, err
	}
	if code := q.Get("error"); code != "" {
		return Authorized{}, agent.Errorf(agent.Denied, "the authorization with server %s was refused: %s", p.rec.Name,
			kept(strings.TrimSpace(code+" "+q.Get("error_description")), 300))
	}
	if q.Get("code") == "" {
		return Authorized{}, agent.Errorf(agent.Invalid, "the authorization server of %s has sent no code", p.rec.Name)
	}
	g, err := a.exchange(ctx, p.rec, p.grant, url.Values{
		"grant_type": {"authorization_code"}, "code": {q.Get("code")}, "redirect_uri": {p.grant.Client.Redirect}, "code_verifier": {p.verifier},
	})
	if err != nil {
		return Authorized{}, err
	}
	g.At = a.o.Now().UTC()
	e := a.entry(p.rec, p.user)
	e.mu.Lock()
	err = a.save(ctx, e, p.rec, p.user, g)
	e.mu.Unlock()
	if err != nil {
		return Authorized{}, err
	}
	a.authorized(p.rec, p.user)
	return Authorized{p.rec.App, p.rec.Name, p.user}, nil
}

// checkIssuer makes sure that the server that was asked is the one that answers (RFC 9207, section 2.4).
func checkIssuer(p *pending, q url.Values) error {
	iss, there := q.Get("iss"), q.Has("iss")
	switch {
	case p.says && !there:
		return agent.Errorf(agent.Denied, "the authorization server of %s says that it names itself in its answer, and has not", p.rec.Name)
	case there && iss != p.issuer:
		return agent.Errorf(agent.Denied, "the answer is of authorization server %s, and %s was asked", kept(iss, 200), kept(p.issuer, 200))
	case there && !p.says:
		return agent.Errorf(agent.Denied, "the authorization server of %s names itself in its answer, and does not say that it does", p.rec.Name)
	}
	return nil
}

// probe asks a server without authorization, to be told where to get it.
func probe(ctx context.Context, hc *http.Client, rec agent.ToolServer) (challenge, error) {
	method, body := http.MethodGet, ""
	if rec.Kind == agent.MCPHTTP {
		method = http.MethodPost
		body = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` + legacyRevision + `","capabilities":{},"clientInfo":{"name":"skep","version":"1"}}}`
	}
	req, err := http.NewRequestWithContext(ctx, method, rec.URL, bytes.NewReader([]byte(body)))
	if err != nil {
		return challenge{}, agent.Wrap(agent.Invalid, err, "server "+rec.Name+" has a URL that is not valid")
	}
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Content-Type", "application/json")
	res, err := hc.Do(req)
	if err != nil {
		return challenge{}, unreachable("server "+rec.Name, err)
	}
	defer res.Body.Close()
	return challengeOf(res.Header), nil
}

// unreachable keeps what egress said.
func unreachable(what string, err error) error {
	var e *agent.Error
	if errors.As(err, &e) {
		return e
	}
	return agent.Wrap(agent.Unavailable, err, what+" cannot be reached")
}

// discover finds the metadata of the protected resource (RFC 9728, section 3): where the server says, at its path, at its root. A server without is
// its own authorization server (MCP 2025-03-26).
func discover(ctx context.Context, hc *http.Client, rec agent.ToolServer, at string) (*oauthex.ProtectedResourceMetadata, error) {
	u, err := url.Parse(rec.URL)
	if err != nil {
		return nil, agent.Wrap(agent.Invalid, err, "server "+rec.Name+" has a URL that is not valid")
	}
	origin := u.Scheme + "://" + u.Host
	tries := [][2]string{}
	if at != "" {
		tries = append(tries, [2]string{at, rec.URL})
	}
	tries = append(tries,
		[2]string{origin + "/.well-known/oauth-protected-resource/" + strings.TrimLeft(u.EscapedPath(), "/"), rec.URL},
		[2]string{origin + "/.well-known/oauth-protected-resource", origin})
	var first error
	for _, t := range tries {
		m, err := resourceOf(ctx, hc, t[0], t[1])
		switch {
		case err != nil:
			if first == nil {
				first = err
			}
		case m == nil:
		case len(m.AuthorizationServers) == 0:
			return nil, agent.Errorf(agent.Unavailable, "server %s names no authorization server", rec.Name)
		default:
			return m, nil
		}
	}
	if first != nil {
		return nil, agent.Wrap(agent.Unavailable, first, "server "+rec.Name+": what it says of its authorization cannot be used: "+kept(first.Error(), 300))
	}
	return &oauthex.ProtectedResourceMetadata{Resource: rec.URL, AuthorizationServers: []string{origin}}, nil
}

// resourceOf reads the metadata of a protected resource, or nothing when there is none at that place. It must be of the very resource that is meant
// (RFC 9728, section 3.3).
func resourceOf(ctx context.Context, hc *http.Client, at, resource string) (*oauthex.ProtectedResourceMetadata, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, err
	}
	res, err := hc.Do(req)
	if err != nil {
		return nil, unreachable(at, err)
	}
	defer res.Body.Close()
	switch {
	case res.StatusCode >= 400 && res.StatusCode < 500:
		return nil, nil
	case res.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s answers with status %d", kept(at, 200), res.StatusCode)
	}
	m := &oauthex.ProtectedResourceMetadata{}
	if err := json.NewDecoder(io.LimitReader(res.Body, maxToken)).Decode(m); err != nil {
		return nil, fmt.Errorf("%s is no JSON of that kind", kept(at, 200))
	}
	if m.Resource != resource {
		return nil, fmt.Errorf("it is of resource %s, not of %s", kept(m.Resource, 200), resource)
	}
	return m, nil
}

// serverOf reads the metadata of an authorization server.
func serverOf(ctx context.Context, hc *http.Client, rec agent.ToolServer, issuer string) (*oauthex.AuthServerMeta, error) {
	m, err := auth.GetAuthServerMetadata(ctx, issuer, hc)
	if err != nil {
		return nil, agent.Wrap(agent.Unavailable, err, "server "+rec.Name+": its authorization server "+kept(issuer, 200)+" cannot be used: "+kept(err.Error(), 300))
	}
	if m == nil { // MCP 2025-03-26, servers without metadata discovery
		m = &oauthex.AuthServerMeta{Issuer: issuer, AuthorizationEndpoint: issuer + "/authorize", TokenEndpoint: issuer + "/token", RegistrationEndpoint: issuer + "/register"}
	} else if !slices.Contains(m.CodeChallengeMethodsSupported, "S256") {
		return nil, agent.Errorf(agent.Unavailable, "server %s: its authorization server does not know PKCE with S256", rec.Name)
	}
	return m, nil
}

// scopes are those that are asked for: the record's, or those that the server wants, with those that were granted before.
func scopes(rec agent.ToolServer, c challenge, r *oauthex.ProtectedResourceMetadata, m *oauthex.AuthServerMeta, old *grant) []string {
	want := slices.Clone(rec.OAuth.Scopes)
	if len(want) == 0 {
		want = slices.Clone(c.scopes)
	} else {
		want = append(want, c.scopes...)
	}
	if len(want) == 0 {
		want = slices.Clone(r.ScopesSupported)
	}
	if slices.Contains(m.ScopesSupported, "offline_access") {
		want = append(want, "offline_access")
	}
	if old != nil && old.Issuer == m.Issuer && len(want) > 0 {
		want = append(slices.Clone(old.Scopes), want...)
	}
	var out []string
	for _, s := range want {
		if s != "" && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// register finds the client that Skep is for an authorization server.
func (a *OAuth) register(ctx context.Context, hc *http.Client, rec agent.ToolServer, m *oauthex.AuthServerMeta, old *grant, redirect string) (client, error) {
	c := client{ID: rec.OAuth.ClientID, Method: "none", Redirect: redirect}
	switch {
	case c.ID != "":
		return a.registered(ctx, rec, c, m, old)
	case rec.OAuth.Metadata != "" && m.ClientIDMetadataDocumentSupported:
		c.ID = rec.OAuth.Metadata
		return c, nil
	case old != nil && old.Issuer == m.Issuer && old.Client.Made && old.Client.Redirect == redirect:
		return old.Client, nil
	case m.RegistrationEndpoint == "":
		return c, &agent.Error{
			Kind: agent.Unavailable, Msg: fmt.Sprintf("the authorization server of %s registers no clients by itself", rec.Name),
			Hint: "register Skep with it, with the redirect URL " + redirect + ", and set oauth.client_id in the server's record",
		}
	}
	kind := "web"
	if u, err := url.Parse(redirect); err == nil && (u.Hostname() == "localhost" || strings.HasPrefix(u.Hostname(), "127.") || u.Hostname() == "::1") {
		kind = "native"
	}
	res, err := oauthex.RegisterClient(ctx, m.RegistrationEndpoint, &oauthex.ClientRegistrationMetadata{
		RedirectURIs: []string{redirect}, ClientName: "Skep", GrantTypes: []string{"authorization_code", "refresh_token"},
		ResponseTypes: []string{"code"}, ApplicationType: kind,
	}, hc)
	if err != nil {
		return c, agent.Wrap(agent.Unavailable, err, "the authorization server of "+rec.Name+" does not register Skep: "+kept(err.Error(), 300))
	}
	c.ID, c.Secret, c.Made, c.Method = res.ClientID, res.ClientSecret, true, res.TokenEndpointAuthMethod
	switch {
	case c.Method == "" && c.Secret == "":
		c.Method = "none"
	case c.Method == "":
		c.Method = "client_secret_basic" // RFC 7591, section 2
	case c.Method != "none" && c.Method != "client_secret_basic" && c.Method != "client_secret_post":
		return c, agent.Errorf(agent.Unavailable, "the authorization server of %s wants %s, which Skep does not know", rec.Name, kept(c.Method, 100))
	}
	return c, nil
}

// registered is a client that was registered before. Its secret goes to the authorization server that it went to first, and to no other.
func (a *OAuth) registered(ctx context.Context, rec agent.ToolServer, c client, m *oauthex.AuthServerMeta, old *grant) (client, error) {
	if rec.OAuth.ClientSecret == "" {
		return c, nil
	}
	if old != nil && old.Client.ID == c.ID && old.Issuer != m.Issuer {
		return c, &agent.Error{
			Kind: agent.Denied, Msg: fmt.Sprintf("server %s now names another authorization server, %s in place of %s, which would be told the client's secret", rec.Name, kept(m.Issuer, 200), old.Issuer),
			Hint: "if that is right, delete the server's record and make it again",
		}
	}
	if err := agent.CheckName("secret", rec.OAuth.ClientSecret); err != nil {
		return c, err
	}
	if a.o.Secret == nil {
		return c, agent.Errorf(agent.Unavailable, "there is no vault for the client's secret")
	}
	secret, err := a.o.Secret(ctx, rec.App, rec.OAuth.ClientSecret, m.TokenEndpoint)
	if err != nil {
		return c, err
	}
	c.Secret, c.Method = secret, "client_secret_basic" // what RFC 8414 has when nothing is said
	if slices.Contains(m.TokenEndpointAuthMethodsSupported, "client_secret_post") && !slices.Contains(m.TokenEndpointAuthMethodsSupported, c.Method) {
		c.Method = "client_secret_post"
	}
	return c, nil
}

// http is the client for authorization with a record's server.
func (a *OAuth) http(rec agent.ToolServer) (*http.Client, error) {
	way := a.o.Egress
	if rec.Private {
		way = a.o.Private
	}
	if way == nil {
		return nil, agent.Errorf(agent.Unavailable, "there is no way out to server %s", rec.Name)
	}
	return &http.Client{
		Transport: way.RoundTripper(open{rec}, egress.Owner{App: rec.App, Agent: "tools/" + rec.Name}), Timeout: 30 * time.Second,
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if len(via) > 3 || req.Method != http.MethodGet || via[0].Method != http.MethodGet {
				return http.ErrUseLastResponse
			}
			return nil
		},
	}, nil
}

// open is the guard of requests that hold no secret of a record's. What is not on this machine or the record's own server is spoken to by TLS.
type open struct{ rec agent.ToolServer }

func (o open) Allow(_ context.Context, r agent.Request) error {
	if r.Scheme == "https" {
		return nil
	}
	if o.rec.Private {
		_, own, err := egress.Parse(http.MethodGet, o.rec.URL)
		if err == nil && own.Origin() == r.Origin() || r.Host == "localhost" || strings.HasPrefix(r.Host, "127.") || r.Host == "::1" {
			return nil
		}
	}
	return agent.Errorf(agent.Denied, "%s is not https", kept(r.Origin(), 200))
}

func (open) Sign(context.Context, *http.Request, agent.Request) (egress.Cleaner, error) {
	return nil, nil
}
