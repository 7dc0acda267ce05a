package client

import (
	"context"
	"time"
)

// ToolAuthorization says how it stands with a server of tools that Skep has to be authorized with.
type ToolAuthorization struct {
	Authorized bool      `json:"authorized"`
	At         time.Time `json:"at,omitzero"`
	Scopes     []string  `json:"scopes,omitempty"`
	URL        string    `json:"url,omitempty"` // that a person is to open
	Expires    time.Time `json:"expires,omitzero"`
}

// authorizePath says with mine in the query whose authorization is meant; one that begins says it in its body.
func authorizePath(server string, mine bool) string {
	q := query{}
	if mine {
		q["mine"] = "true"
	}
	return path("tools", "servers", server, "authorize") + q.encode()
}

// AuthorizeTools begins to authorize Skep with a server: for all of the app, or with mine for what this token starts. A person is to open the URL.
func (c *Client) AuthorizeTools(ctx context.Context, server string, mine bool) (out ToolAuthorization, err error) {
	return out, c.do(ctx, "POST", authorizePath(server, false), nil, map[string]bool{"mine": mine}, &out)
}

// ToolAuthorization says whether Skep is authorized.
func (c *Client) ToolAuthorization(ctx context.Context, server string, mine bool) (ToolAuthorization, error) {
	return get[ToolAuthorization](ctx, c, authorizePath(server, mine))
}

// ForgetToolAuthorization deletes what Skep was given.
func (c *Client) ForgetToolAuthorization(ctx context.Context, server string, mine bool) error {
	return c.do(ctx, "DELETE", authorizePath(server, mine), nil, nil, nil)
}
