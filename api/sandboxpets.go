package api

import (
	"context"
	"encoding/json"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/sandbox/checkpoint"
	"github.com/skep-dev/skep/sandbox/keeper"
)

// petRoutes are what is done with a sandbox that an agent keeps, as a whole.
func (s *Server) petRoutes() []route {
	return []route{
		{method: "POST", path: "/v1/sandboxes/{id}/recreate", id: "recreateSandbox", summary: "Make a pet anew, in its environment's newest revision, with nothing but its checkpoint", endpoint: handle(s.recreateSandbox)},
		{method: "POST", path: "/v1/sandboxes/{id}/hibernate", id: "hibernateSandbox", summary: "Keep the checkpoint of a pet alone, until its next use", endpoint: handle(s.hibernateSandbox)},
		{method: "POST", path: "/v1/sandboxes/{id}/reset", id: "resetSandbox", summary: "Delete all that is kept of a pet", endpoint: handle(s.resetSandbox)},
		{method: "GET", path: "/v1/sandboxes/{id}/checkpoint", id: "getSandboxCheckpoint", summary: "Show what the newest checkpoint of a pet has", endpoint: handle(s.getCheckpoint)},
	}
}

func (s *Server) recreateSandbox(ctx context.Context, q sandboxRequest) (agent.Sandbox, error) {
	return s.withPet(ctx, q.ID, "sandbox.recreate", (*keeper.Keeper).Recreate)
}

func (s *Server) hibernateSandbox(ctx context.Context, q sandboxRequest) (agent.Sandbox, error) {
	return s.withPet(ctx, q.ID, "sandbox.hibernate", func(k *keeper.Keeper, ctx context.Context, app agent.App, id agent.SandboxID, _ agent.Environment) (agent.Sandbox, error) {
		return k.Hibernate(ctx, app, id)
	})
}

func (s *Server) resetSandbox(ctx context.Context, q sandboxRequest) (agent.Sandbox, error) {
	return s.withPet(ctx, q.ID, "sandbox.reset", (*keeper.Keeper).Reset)
}

// withPet has do change a pet, whose next environment is what the record of its agent names now, and writes that down.
func (s *Server) withPet(
	ctx context.Context, id agent.SandboxID, action string,
	do func(*keeper.Keeper, context.Context, agent.App, agent.SandboxID, agent.Environment) (agent.Sandbox, error),
) (agent.Sandbox, error) {
	sb, err := s.sandbox(ctx, id)
	if err != nil {
		return sb, err
	}
	a, err := s.st.Agent(ctx, sb.App, sb.Agent)
	if err != nil {
		return sb, err
	}
	if a.Sandbox == nil {
		return sb, agent.Errorf(agent.Conflict, "agent %s has no environment any more, so that its sandbox can only be deleted", a.Name)
	}
	env, err := s.st.Environment(ctx, sb.App, a.Sandbox.Environment)
	if err != nil {
		return sb, err
	}
	k, err := s.keeper()
	if err != nil {
		return sb, err
	}
	now, err := do(k, ctx, sb.App, id, env)
	if err != nil {
		return sb, err
	}
	return now, s.audit(ctx, action, string(id), now.Environment)
}

func (s *Server) getCheckpoint(ctx context.Context, q sandboxRequest) (m checkpoint.Manifest, err error) {
	sb, err := s.sandbox(ctx, q.ID)
	if err != nil {
		return m, err
	}
	if sb.Checkpoint.Manifest == "" {
		return m, &agent.Error{Kind: agent.NotFound, Msg: "sandbox " + string(sb.ID) + " has no checkpoint", Hint: "skep sandbox recreate and skep sandbox hibernate take one of a pet"}
	}
	b, err := s.st.Blob(ctx, sb.Checkpoint.Manifest)
	if err != nil {
		return m, err
	}
	return m, json.Unmarshal(b, &m)
}
