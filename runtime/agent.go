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

// AgentPatch changes the fields that are set. Config, Grants, Limits and Quota are replaced as a whole; Grant adds to the grants and
// Revoke takes away from them, in that order, whatever they are by then.
type AgentPatch struct {
	Description *string            `json:"description,omitempty"`
	Plugin      *string            `json:"plugin,omitempty"`
	Config      *map[string]string `json:"config,omitempty"`
	Grants      *agent.Grants      `json:"grants,omitempty"`
	Limits      *agent.Limits      `json:"limits,omitempty"`
	Quota       *agent.Quota       `json:"quota,omitempty"`
	Sandbox     *agent.SandboxUse  `json:"sandbox,omitempty" doc:"replaced as a whole; one without an environment takes the agent's sandbox away"`
	Grant       *agent.Grants      `json:"grant,omitempty" doc:"added to the grants"`
	Revoke      *agent.Grants      `json:"revoke,omitempty" doc:"taken away from the grants, each with all that is within it"`

	// Judge, when set, sees the agent as it was and as it is to be, in the commit that changes it. Its error changes nothing. It may be
	// asked more than once.
	Judge func(was, now agent.Agent) error `json:"-"`
}

// CreateAgent stores an agent, whose ID and times it sets. It tells whether this was a repetition of the same request.
func (r *Runtime) CreateAgent(ctx context.Context, a agent.Agent, once store.Once) (agent.Agent, bool, error) {
	r.environments.RLock()
	defer r.environments.RUnlock()
	if err := r.checkAgent(ctx, &a); err != nil {
		return agent.Agent{}, false, err
	}
	now := time.Now().UTC()
	a.ID, a.Created, a.Updated = agent.NewAgentID(now), now, now
	defer r.records.changing.lock(a.App, a.Name)()
	defer r.touchTools(a.App)
	return r.store.CreateAgent(ctx, a, once)
}

// UpdateAgent changes an agent. When it has returned, cells that run see the grants as they are now, and calls that begin see all of
// the change. Runs keep the code they began with.
func (r *Runtime) UpdateAgent(ctx context.Context, app agent.App, name string, patch AgentPatch) (agent.Agent, error) {
	if patch.Plugin != nil {
		if err := r.checkRef(ctx, app, *patch.Plugin); err != nil {
			return agent.Agent{}, err
		}
	}
	if patch.Sandbox != nil && patch.Sandbox.Environment != "" {
		r.environments.RLock()
		defer r.environments.RUnlock()
		if err := r.checkSandbox(ctx, app, patch.Sandbox); err != nil {
			return agent.Agent{}, err
		}
	}
	defer r.records.changing.lock(app, name)()
	a, err := r.store.UpdateAgent(ctx, app, name, func(a *agent.Agent) error {
		was := *a
		agent.Set(&a.Description, patch.Description)
		agent.Set(&a.Plugin, patch.Plugin)
		agent.Set(&a.Config, patch.Config)
		agent.Set(&a.Grants, patch.Grants)
		agent.Set(&a.Limits, patch.Limits)
		agent.Set(&a.Quota, patch.Quota)
		if patch.Sandbox != nil {
			if a.Sandbox = patch.Sandbox; a.Sandbox.Environment == "" {
				a.Sandbox = nil
			}
		}
		if patch.Grant != nil {
			a.Grants = a.Grants.With(*patch.Grant)
		}
		if patch.Revoke != nil {
			var err error
			if a.Grants, err = a.Grants.Without(*patch.Revoke); err != nil {
				return err
			}
		}
		a.Updated = time.Now().UTC()
		if err := r.checkFields(a); err != nil || patch.Judge == nil {
			return err
		}
		return patch.Judge(was, *a)
	})
	if err == nil {
		r.records.changed(a)
		r.touchTools(app)
	}
	return a, err
}

// DeleteAgents deletes all the named agents or none. Their queued runs fail when their turn comes.
func (r *Runtime) DeleteAgents(ctx context.Context, app agent.App, names ...string) error {
	defer r.records.changing.lock(app, names...)()
	var ids []agent.AgentID
	for _, name := range names {
		if a, err := r.store.Agent(ctx, app, name); err == nil {
			ids = append(ids, a.ID)
		}
	}
	err := r.store.DeleteAgents(ctx, app, names...)
	if err == nil {
		r.records.gone(app, names...)
		r.touchTools(app)
		r.closeAgentSockets(app, ids)
		select {
		case r.disowned <- struct{}{}:
		default:
		}
	}
	return err
}

func (r *Runtime) checkAgent(ctx context.Context, a *agent.Agent) error {
	if err := agent.CheckName("agent", a.Name); err != nil {
		return err
	}
	if err := r.checkFields(a); err != nil {
		return err
	}
	if err := r.checkSandbox(ctx, a.App, a.Sandbox); err != nil {
		return err
	}
	return r.checkRef(ctx, a.App, a.Plugin)
}

func (r *Runtime) checkRef(ctx context.Context, app agent.App, ref string) error {
	if ref == "" { // it runs code that it is given
		return nil
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
	if err := a.Quota.Check(); err != nil {
		return err
	}
	if err := a.Sandbox.Check(); err != nil {
		return err
	}
	return a.Limits.Check(r.opts.MaxLimits)
}

// touchTools says that an app's agents or their code have changed, which may serve tools.
func (r *Runtime) touchTools(app agent.App) {
	if r.opts.Tools != nil {
		r.opts.Tools.Touch(app)
	}
}
