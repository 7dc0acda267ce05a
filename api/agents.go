package api

import (
	"context"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
)

// newAgent is what a caller says of an agent to create.
type newAgent struct {
	Name        string            `json:"name"`
	Plugin      string            `json:"plugin" doc:"name for the newest version, or name@version to pin one"`
	Description string            `json:"description,omitempty"`
	Config      map[string]string `json:"config,omitempty" doc:"plain settings the code may read; never secrets"`
	Grants      agent.Grants      `json:"grants,omitzero"`
	Limits      agent.Limits      `json:"limits,omitzero"`
}

type createAgentRequest struct {
	Once store.Once `once:"-"`
	Body newAgent   `body:"json"`
}

func (s *Server) createAgent(ctx context.Context, q createAgentRequest) (made[agent.Agent], error) {
	b := q.Body
	a, replayed, err := s.rt.CreateAgent(ctx, agent.Agent{
		App: s.app, Name: b.Name, Plugin: b.Plugin, Description: b.Description, Config: b.Config, Grants: b.Grants, Limits: b.Limits,
	}, q.Once)
	return made[agent.Agent]{a, replayed}, err
}

func (s *Server) listAgents(ctx context.Context, q pageQuery) (list[agent.Agent], error) {
	return listOf(s.st.Agents(ctx, s.app, q.page()))
}

type agentRequest struct {
	Name string `path:"name"`
}

func (s *Server) getAgent(ctx context.Context, q agentRequest) (agent.Agent, error) {
	return s.st.Agent(ctx, s.app, q.Name)
}

type updateAgentRequest struct {
	Name string             `path:"name"`
	Body runtime.AgentPatch `body:"json"`
}

func (s *Server) updateAgent(ctx context.Context, q updateAgentRequest) (agent.Agent, error) {
	return s.rt.UpdateAgent(ctx, s.app, q.Name, q.Body)
}

func (s *Server) deleteAgent(ctx context.Context, q agentRequest) (nothing, error) {
	return nothing{}, s.rt.DeleteAgents(ctx, s.app, q.Name)
}

type agentNames struct {
	Names []string `json:"names"`
}

type deleteAgentsRequest struct {
	Body agentNames `body:"json"`
}

func (s *Server) deleteAgents(ctx context.Context, q deleteAgentsRequest) (nothing, error) {
	return nothing{}, s.rt.DeleteAgents(ctx, s.app, q.Body.Names...)
}
