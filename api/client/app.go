package client

import (
	"context"

	"github.com/skep-dev/skep/agent"
)

// NewApp is an app to make. A weight of 0 means 1.
type NewApp struct {
	Name   agent.App   `json:"name"`
	Weight int         `json:"weight,omitempty"`
	Quota  agent.Quota `json:"quota,omitzero"`
}

// AppPatch changes the fields that are set.
type AppPatch struct {
	Weight   *int         `json:"weight,omitempty"`
	Outbound *string      `json:"outbound,omitempty"`
	Quota    *agent.Quota `json:"quota,omitempty"`
}

// CreateApp makes an app.
func (c *Client) CreateApp(ctx context.Context, a NewApp) (out agent.AppInfo, err error) {
	return out, c.do(ctx, "POST", path("apps"), once(), a, &out)
}

// Apps lists the apps that the token is good for, newest first.
func (c *Client) Apps(ctx context.Context, p agent.Page) (List[agent.AppInfo], error) {
	return get[List[agent.AppInfo]](ctx, c, path("apps")+pageQuery(p).encode())
}

// App returns the app of that name.
func (c *Client) App(ctx context.Context, name agent.App) (agent.AppInfo, error) {
	return get[agent.AppInfo](ctx, c, path("apps", string(name)))
}

// UpdateApp changes an app.
func (c *Client) UpdateApp(ctx context.Context, name agent.App, patch AppPatch) (out agent.AppInfo, err error) {
	return out, c.do(ctx, "PATCH", path("apps", string(name)), nil, patch, &out)
}

// DeleteApp deletes an app in which nothing is left.
func (c *Client) DeleteApp(ctx context.Context, name agent.App) error {
	return c.do(ctx, "DELETE", path("apps", string(name)), nil, nil, nil)
}
