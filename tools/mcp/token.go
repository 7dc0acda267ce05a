package mcp

import (
	"context"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
)

// maxToken is how much is read of a token endpoint's answer, in bytes.
const maxToken = 1 << 20

// tokenError is the answer of a token endpoint that gives none (RFC 6749, section 5.2).
type tokenError struct {
	code string
	err  *agent.Error
}

func (e *tokenError) Error() string { return e.err.Error() }
func (e *tokenError) Unwrap() error { return e.err }

// final reports whether the same request will never bring a token.
func (e *tokenError) final() bool {
	return e.code == "invalid_grant" || e.code == "invalid_client" || e.code == "unauthorized_client"
}

// refresh trades the refresh token for another access token (RFC 6749, section 6).
func (a *OAuth) refresh(ctx context.Context, rec agent.ToolServer, g *grant) (*grant, error) {
	return a.exchange(ctx, rec, *g, url.Values{"grant_type": {"refresh_token"}, "refresh_token": {g.Refresh}})
}

// exchange asks the token endpoint, and returns the grant with what it gave.
func (a *OAuth) exchange(ctx context.Context, rec agent.ToolServer, g grant, form url.Values) (*grant, error) {
	hc, err := a.http(rec)
	if err != nil {
		return nil, err
	}
	form.Set("resource", g.Resource) // RFC 8707
	c := g.Client
	if c.Method != "client_secret_basic" {
		form.Set("client_id", c.ID)
	}
	if c.Method == "client_secret_post" {
		form.Set("client_secret", c.Secret)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.TokenURL, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, agent.Wrap(agent.Unavailable, err, "the authorization server of "+rec.Name+" has a token endpoint that is not valid")
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	if c.Method == "client_secret_basic" {
		req.SetBasicAuth(url.QueryEscape(c.ID), url.QueryEscape(c.Secret)) // RFC 6749, section 2.3.1
	}
	res, err := hc.Do(req)
	if err != nil {
		return nil, unreachable("the authorization server of "+rec.Name, err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxToken))
	if err != nil {
		return nil, unreachable("the authorization server of "+rec.Name, err)
	}
	return a.granted(rec, g, res, b)
}

// granted reads the answer of a token endpoint (RFC 6749, sections 5.1 and 5.2).
func (a *OAuth) granted(rec agent.ToolServer, g grant, res *http.Response, b []byte) (*grant, error) {
	var said struct {
		Access    string          `json:"access_token"`
		Type      string          `json:"token_type"`
		ExpiresIn json.RawMessage `json:"expires_in"`
		Refresh   string          `json:"refresh_token"`
		Scope     *string         `json:"scope"`
		Error     string          `json:"error"`
		Detail    string          `json:"error_description"`
	}
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	bad := json.Unmarshal(b, &said)
	if res.StatusCode != http.StatusOK || said.Error != "" {
		e := &agent.Error{Kind: agent.Unavailable, Msg: "the authorization server of " + rec.Name + " gives no token: status " + strconv.Itoa(res.StatusCode)}
		if said.Error != "" {
			e.Kind, e.Msg = agent.Denied, "the authorization server of "+rec.Name+" gives no token: "+kept(strings.TrimSpace(said.Error+" "+said.Detail), 300)
		}
		return nil, &tokenError{said.Error, e}
	}
	if bad != nil || said.Access == "" || said.Type != "" && !strings.EqualFold(said.Type, "bearer") || strings.ContainsFunc(said.Access, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, agent.Errorf(agent.Unavailable, "the authorization server of %s answers with something that is no bearer token (%s)", rec.Name, kept(kind, 100))
	}
	g.Access, g.Expires = said.Access, time.Time{}
	if said.Refresh != "" {
		g.Refresh = said.Refresh
	}
	if n, err := strconv.ParseInt(strings.Trim(string(said.ExpiresIn), `"`), 10, 32); err == nil && n > 0 {
		g.Expires = a.o.Now().Add(time.Duration(n) * time.Second).UTC()
	}
	if said.Scope != nil {
		g.Scopes = strings.Fields(*said.Scope)
	}
	return &g, nil
}
