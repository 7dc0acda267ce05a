package runtime

import (
	"context"

	"github.com/skep-dev/skep/agent"
)

// DeleteEnvironment deletes an environment of sandboxes. One that an agent names is a Conflict. Sandboxes and sessions that have it keep their revision.
func (r *Runtime) DeleteEnvironment(ctx context.Context, app agent.App, name string) error {
	r.environments.Lock()
	defer r.environments.Unlock()
	user, err := r.agentWith(ctx, app, name)
	if err != nil {
		return err
	}
	if user != "" {
		return &agent.Error{
			Kind: agent.Conflict, Msg: "environment " + name + " is that of agent " + user, Hint: "give the agent another one first: skep agent update " + user + " --environment NAME",
		}
	}
	return r.store.DeleteEnvironment(ctx, app, name)
}

// agentWith returns the name of an agent whose sandboxes are of an environment, or "".
func (r *Runtime) agentWith(ctx context.Context, app agent.App, environment string) (string, error) {
	for page := (agent.Page{}); ; {
		all, next, err := r.store.Agents(ctx, app, page)
		if err != nil {
			return "", err
		}
		for _, a := range all {
			if a.Sandbox == nil {
				continue
			}
			if name, _, err := agent.SplitEnvironment(a.Sandbox.Environment); err == nil && name == environment {
				return a.Name, nil
			}
		}
		if page.After = next; next == "" {
			return "", nil
		}
	}
}
