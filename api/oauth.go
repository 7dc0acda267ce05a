package api

import (
	"context"
	"net/url"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/tools/mcp"
)

// callbackPath is where authorization servers send people back to.
const callbackPath = "/oauth/callback"

// authorizeFor says for whom Skep is authorized.
type authorizeFor struct {
	Mine bool `json:"mine,omitempty" doc:"for the calls of runs that this token starts, instead of for all of the app"`
}

// toolAuthorization says how it stands with a server that Skep has to be authorized with.
type toolAuthorization struct {
	Authorized bool      `json:"authorized"`
	At         time.Time `json:"at,omitzero" doc:"when a person did that"`
	Scopes     []string  `json:"scopes,omitempty" doc:"that were granted"`
	URL        string    `json:"url,omitempty" doc:"that a person is to open"`
	Expires    time.Time `json:"expires,omitzero" doc:"when the URL is worth nothing any more"`
}

type authorizeRequest struct {
	Name string       `path:"name"`
	Host string       `meta:"host"`
	Body authorizeFor `body:"json" default:"{}"`
}

// oauthOf returns who authorizes Skep, the record, and for which user.
func (s *Server) oauthOf(ctx context.Context, name string, mine bool) (*mcp.OAuth, agent.ToolServer, string, error) {
	c, err := s.catalogue()
	if err != nil {
		return nil, agent.ToolServer{}, "", err
	}
	r, err := c.Server(ctx, appOf(ctx), name)
	if err == nil && s.o.OAuth == nil {
		err = agent.Errorf(agent.NotFound, "this server keeps no authorizations")
	}
	user := ""
	if mine {
		user = string(requestOf(ctx).token.ID)
	}
	return s.o.OAuth, r, user, err
}

// ownersAuthorization refuses a developer what all of an app would share.
func ownersAuthorization(ctx context.Context, mine bool) error {
	if mine || requestOf(ctx).token.Role == agent.Owner {
		return nil
	}
	return &agent.Error{
		Kind: agent.Denied, Msg: "a developer's token may not authorize Skep for all of the app",
		Hint: "authorize it for yourself, with mine (skep tools authorize NAME --mine), or ask an owner",
	}
}

func (s *Server) authorizeTools(ctx context.Context, q authorizeRequest) (toolAuthorization, error) {
	a, r, user, err := s.oauthOf(ctx, q.Name, q.Body.Mine)
	if err == nil {
		err = ownersAuthorization(ctx, q.Body.Mine)
	}
	if err != nil {
		return toolAuthorization{}, err
	}
	page, until, err := a.Begin(ctx, r, user, s.baseURL(q.Host)+callbackPath)
	if err != nil {
		return toolAuthorization{}, err
	}
	out, err := authorizationOf(ctx, a, r, user)
	if err != nil {
		return out, err
	}
	out.URL, out.Expires = page, until
	return out, s.audit(ctx, "tools.authorize", r.Name, "begun for "+whose(user))
}

func whose(user string) string {
	if user == "" {
		return "all of the app"
	}
	return "token " + user
}

type authorizationRequest struct {
	Name string `path:"name"`
	Mine bool   `query:"mine" doc:"this token's own, instead of the app's"`
}

func authorizationOf(ctx context.Context, a *mcp.OAuth, r agent.ToolServer, user string) (toolAuthorization, error) {
	st, err := a.State(ctx, r, user)
	return toolAuthorization{Authorized: st.Authorized, At: st.At, Scopes: st.Scopes}, err
}

func (s *Server) toolAuthorization(ctx context.Context, q authorizationRequest) (toolAuthorization, error) {
	a, r, user, err := s.oauthOf(ctx, q.Name, q.Mine)
	if err != nil {
		return toolAuthorization{}, err
	}
	return authorizationOf(ctx, a, r, user)
}

func (s *Server) forgetAuthorization(ctx context.Context, q authorizationRequest) (nothing, error) {
	a, r, user, err := s.oauthOf(ctx, q.Name, q.Mine)
	if err == nil {
		err = ownersAuthorization(ctx, q.Mine)
	}
	if err == nil {
		err = a.Forget(ctx, r, user)
	}
	if err != nil {
		return nothing{}, err
	}
	return nothing{}, s.audit(ctx, "tools.unauthorize", r.Name, "of "+whose(user))
}

// callbackRequest is what an authorization server sends a person back with (RFC 6749, section 4.1.2; RFC 9207).
type callbackRequest struct {
	State       string `query:"state"`
	Code        string `query:"code"`
	Issuer      string `query:"iss"`
	Error       string `query:"error"`
	Description string `query:"error_description"`
	Accept      string `header:"Accept" doc:"text/html or application/json"`
}

// authorized says what has been authorized.
type authorized struct {
	App    agent.App `json:"app"`
	Server string    `json:"server"`
}

// oauthCallback ends an authorization. Who comes here is known by the state alone, which is good once and for ten minutes.
func (s *Server) oauthCallback(ctx context.Context, q callbackRequest) (raw, error) {
	if s.o.OAuth == nil {
		return raw{}, agent.Errorf(agent.NotFound, "this server keeps no authorizations")
	}
	v := url.Values{}
	for name, value := range map[string]string{"state": q.State, "code": q.Code, "iss": q.Issuer, "error": q.Error, "error_description": q.Description} {
		if value != "" {
			v.Set(name, value)
		}
	}
	done, err := s.o.OAuth.Finish(ctx, v)
	if err == nil {
		err = s.auditOf(ctx, done.App, "tools.authorized", done.Server, "for "+whose(done.User))
	}
	page := approveView{Title: "Authorized.", Done: "Skep may now use server " + done.Server + " of app " + string(done.App) + ". You can close this page."}
	return s.approveReply(ctx, q.Accept, page, authorized{done.App, done.Server}, err)
}

// forgetTools deletes all authorizations with a server that is no more.
func (s *Server) forgetTools(ctx context.Context, r agent.ToolServer) error {
	if s.o.OAuth == nil || r.OAuth == nil {
		return nil
	}
	return s.o.OAuth.ForgetAll(ctx, r)
}
