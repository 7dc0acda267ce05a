package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
)

// newToken is what a caller says of a token to make.
type newToken struct {
	Name    string     `json:"name"`
	Role    agent.Role `json:"role,omitempty" doc:"owner unless given"`
	App     agent.App  `json:"app,omitempty" doc:"the one app it is good for; every app, or the maker's, unless given"`
	Expires time.Time  `json:"expires,omitzero" doc:"never, unless given"`
}

// tokenSecret is a new token with its secret.
type tokenSecret struct {
	agent.Token
	Secret string `json:"secret" doc:"shown this once"`
}

type createTokenRequest struct {
	Once store.Once `once:"-"`
	Body newToken   `body:"json"`
}

func (s *Server) createToken(ctx context.Context, q createTokenRequest) (tokenSecret, error) {
	now := s.o.Now().UTC()
	t := agent.Token{ID: agent.NewTokenID(now), Name: q.Body.Name, Created: now, Expires: q.Body.Expires, Role: q.Body.Role, App: q.Body.App}
	if err := agent.CheckName("token", t.Name); err != nil {
		return tokenSecret{}, err
	}
	if !t.Expires.IsZero() && !t.Expires.After(now) {
		return tokenSecret{}, agent.Errorf(agent.Invalid, "field %q is in the past", "expires")
	}
	if bound := requestOf(ctx).token.App; bound != "" {
		if t.App != "" && t.App != bound {
			return tokenSecret{}, agent.Errorf(agent.Denied, "this token is for app %q alone, so it makes none for %.80q", bound, t.App)
		}
		t.App = bound
	}
	secret := newSecret()
	if err := s.st.PutToken(ctx, t, secretHash(secret), q.Once); err != nil {
		return tokenSecret{}, err
	}
	return tokenSecret{t, secret}, s.auditToken(ctx, "token.create", t)
}

// auditToken writes to the audit log of the app that a token is bound to, the default one when it is to none.
func (s *Server) auditToken(ctx context.Context, action string, t agent.Token) error {
	detail := fmt.Sprintf("%s, role %s", t.ID, t.Role)
	if t.App == "" {
		detail += ", every app"
	}
	if !t.Expires.IsZero() {
		detail += ", expires " + t.Expires.UTC().Format(time.RFC3339)
	}
	return s.auditOf(ctx, cmp.Or(t.App, agent.DefaultApp), action, t.Name, detail)
}

func (s *Server) listTokens(ctx context.Context, q pageQuery) (list[agent.Token], error) {
	return listOf(s.st.Tokens(ctx, requestOf(ctx).token.App, q.page()))
}

type tokenRequest struct {
	ID agent.TokenID `path:"id"`
}

func (s *Server) deleteToken(ctx context.Context, q tokenRequest) (nothing, error) {
	return nothing{}, s.removeTokens(ctx, q.ID)
}

type tokenIDs struct {
	IDs []agent.TokenID `json:"ids"`
}

type deleteTokensRequest struct {
	Body tokenIDs `body:"json"`
}

func (s *Server) deleteTokens(ctx context.Context, q deleteTokensRequest) (nothing, error) {
	return nothing{}, s.removeTokens(ctx, q.Body.IDs...)
}

func (s *Server) removeTokens(ctx context.Context, ids ...agent.TokenID) error {
	gone, err := s.tokens.remove(ctx, requestOf(ctx).token.App, ids...)
	for _, t := range gone {
		s.rt.CloseSockets(t.ID)
		s.mcp.Forget(t.ID)
		err = errors.Join(err, s.auditToken(ctx, "token.delete", t))
	}
	return err
}
