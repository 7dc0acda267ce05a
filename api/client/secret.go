package client

import (
	"context"
	"encoding/json"

	"github.com/skep-dev/skep/agent"
)

// NewSecret is a value to set: JSON text, or for a typed secret an object. What is nil or zero stays as it is.
type NewSecret struct {
	Value       json.RawMessage  `json:"value"`
	Kind        agent.SecretKind `json:"kind,omitempty"`
	Description *string          `json:"description,omitempty"`
	Bindings    *[]agent.Binding `json:"bindings,omitempty"`
}

// SecretPatch changes the fields that are set. Bindings are replaced as a whole.
type SecretPatch struct {
	Description *string          `json:"description,omitempty"`
	Bindings    *[]agent.Binding `json:"bindings,omitempty"`
}

// SecretDetail is a secret and which of its versions are kept, oldest first.
type SecretDetail struct {
	agent.Secret
	Versions []agent.SecretVersion `json:"versions"`
}

// Rewrapped tells what a re-wrap has done.
type Rewrapped struct {
	Key      string `json:"key"`
	Source   string `json:"source"`
	Secrets  int    `json:"secrets"`
	Versions int    `json:"versions"`
}

// SetSecret gives a secret a new value, which becomes its next version.
func (c *Client) SetSecret(ctx context.Context, name string, s NewSecret) (out SecretDetail, err error) {
	return out, c.do(ctx, "PUT", path("secrets", name), nil, s, &out)
}

// Secrets lists secrets, newest first.
func (c *Client) Secrets(ctx context.Context, p agent.Page) (List[agent.Secret], error) {
	return get[List[agent.Secret]](ctx, c, path("secrets")+pageQuery(p).encode())
}

// Secret returns what is known of a secret.
func (c *Client) Secret(ctx context.Context, name string) (SecretDetail, error) {
	return get[SecretDetail](ctx, c, path("secrets", name))
}

// UpdateSecret changes a secret, and not its value.
func (c *Client) UpdateSecret(ctx context.Context, name string, patch SecretPatch) (out SecretDetail, err error) {
	return out, c.do(ctx, "PATCH", path("secrets", name), nil, patch, &out)
}

// RollbackSecret makes a version that is kept the current one.
func (c *Client) RollbackSecret(ctx context.Context, name string, version int) (out SecretDetail, err error) {
	return out, c.do(ctx, "POST", path("secrets", name, "rollback"), nil, map[string]int{"version": version}, &out)
}

// RewrapSecrets puts every secret under the key that the server finds at key.
func (c *Client) RewrapSecrets(ctx context.Context, key string) (out Rewrapped, err error) {
	return out, c.do(ctx, "POST", path("secrets", "rewrap"), nil, map[string]string{"key": key}, &out)
}

// DeleteSecret deletes a secret with all its versions.
func (c *Client) DeleteSecret(ctx context.Context, name string) error {
	return c.do(ctx, "DELETE", path("secrets", name), nil, nil, nil)
}
