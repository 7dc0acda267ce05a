package client

import (
	"context"
	"time"

	"github.com/skep-dev/skep/agent"
)

// Secret is a new token with its secret, which is shown this once.
type Secret struct {
	agent.Token
	Secret string `json:"secret"`
}

// NewToken is a token to make. The zero fields stand for an owner's, for every app, for ever.
type NewToken struct {
	Name    string     `json:"name"`
	Role    agent.Role `json:"role,omitempty"`
	App     agent.App  `json:"app,omitempty"`
	Expires time.Time  `json:"expires,omitzero"`
}

// CreateToken makes a token.
func (c *Client) CreateToken(ctx context.Context, t NewToken) (out Secret, err error) {
	return out, c.do(ctx, "POST", path("tokens"), once(), t, &out)
}

// Tokens lists tokens, newest first.
func (c *Client) Tokens(ctx context.Context, p agent.Page) (List[agent.Token], error) {
	return get[List[agent.Token]](ctx, c, path("tokens")+pageQuery(p).encode())
}

// DeleteTokens deletes tokens, all or none.
func (c *Client) DeleteTokens(ctx context.Context, ids ...agent.TokenID) error {
	return c.do(ctx, "POST", path("tokens", "delete"), nil, map[string]any{"ids": ids}, nil)
}
