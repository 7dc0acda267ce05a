package mcp_test

import (
	"context"
	"testing"

	"github.com/skep-dev/skep/agent"
)

// secret is a vault of one secret, which may go to one place.
func secret(t *testing.T, name, to, value string) func(context.Context, agent.App, string, string) (string, error) {
	return func(_ context.Context, app agent.App, n, at string) (string, error) {
		if app != "default" || n != name || at != to {
			t.Errorf("secret %s of app %s is asked for, for %q", n, app, at)
		}
		return value, nil
	}
}
