package runtime

import (
	"context"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
)

const (
	maxConfig      = 64 << 10 // bytes of an agent's settings, names included
	maxDescription = 4 << 10
)

// AgentPatch changes the fields that are set. Config, Grants and Limits are replaced as a whole.
type AgentPatch struct {
	Description *string            `json:"description,omitempty"`
	Plugin      *string            `json:"plugin,omitempty"`
	Config      *map[string]string `json:"config,omitempty"`
	Grants      *agent.Grants      `json:"grants,omitempty"`
	Limits      *agent.Limits      `json:"limits,omitempty"`
}

// CreateAgent stores an agent, whose ID and times it sets. It tells whether this was a repetition of the same request.
func (r *Runtime) CreateAgent(ctx context.Context, a agent.Agent, once store.Once) (agent.Agent, bool, error) {
	if err := r.checkAgent(ctx, &a); err != nil {
		return agent.Agent{}, false, err
	}
	now := time.Now().UTC()
	a.ID, a.Created, a.Updated = agent.NewAgentID(now), now, now
	a, replayed, err := r.store.CreateAgent(ctx, a, once)
	r.records.forgetAgents(a.App, a.Name)
	return a, replayed, err
}

// UpdateAgent changes an agent. Calls that begin after it has returned see the change; runs keep the code they began with.
func (r *Runtime) UpdateAgent(ctx context.Context, app agent.App, name string, patch AgentPatch) (agent.Agent, error) {
	if patch.Plugin != nil {
		if err := r.checkRef(ctx, app, *patch.Plugin); err != nil {
			return agent.Agent{}, err
		}
	}
	a, err := r.store.UpdateAgent(ctx, app, name, func(a *agent.Agent) error {
		set(&a.Description, patch.Description)
		set(&a.Plugin, patch.Plugin)
		set(&a.Config, patch.Config)
		set(&a.Grants, patch.Grants)
		set(&a.Limits, patch.Limits)
		a.Updated = time.Now().UTC()
		return r.checkFields(a)
	})
	r.records.forgetAgents(app, name)
	return a, err
}

// DeleteAgents deletes all the named agents or none. Their queued runs fail when their turn comes.
func (r *Runtime) DeleteAgents(ctx context.Context, app agent.App, names ...string) error {
	err := r.store.DeleteAgents(ctx, app, names...)
	r.records.forgetAgents(app, names...)
	return err
}

func set[T any](field *T, v *T) {
	if v != nil {
		*field = *v
	}
}

func (r *Runtime) checkAgent(ctx context.Context, a *agent.Agent) error {
	if err := agent.CheckName("agent", a.Name); err != nil {
		return err
	}
	if err := r.checkFields(a); err != nil {
		return err
	}
	return r.checkRef(ctx, a.App, a.Plugin)
}

func (r *Runtime) checkRef(ctx context.Context, app agent.App, ref string) error {
	if ref == "" {
		return agent.Errorf(agent.Invalid, "an agent needs a plugin: the name of one, or name@version")
	}
	_, err := r.store.Plugin(ctx, app, ref)
	if err != nil && agent.KindOf(err) == agent.NotFound {
		e := *agent.AsError(err)
		e.Hint = "upload it first: skep push FILE --name NAME"
		return &e
	}
	return err
}

// checkFields checks what needs no look into the store, and puts grants in order.
func (r *Runtime) checkFields(a *agent.Agent) error {
	if len(a.Description) > maxDescription {
		return agent.Errorf(agent.Invalid, "the description has %d bytes, more than %d", len(a.Description), maxDescription)
	}
	size := 0
	for k, v := range a.Config {
		if k == "" {
			return agent.Errorf(agent.Invalid, "a setting in config has no name")
		}
		size += len(k) + len(v)
	}
	if size > maxConfig {
		return agent.Errorf(agent.Invalid, "config has %d bytes, more than %d", size, maxConfig)
	}
	if err := a.Grants.Check(); err != nil {
		return err
	}
	return a.Limits.Check(r.opts.MaxLimits)
}
