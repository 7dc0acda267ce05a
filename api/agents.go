package api

import (
	"context"
	"errors"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
)

// newAgent is what a caller says of an agent to create.
type newAgent struct {
	Name        string            `json:"name"`
	Plugin      string            `json:"plugin,omitempty" doc:"name for the newest version, or name@version to pin one; none for an agent that a CLI in its sandbox runs"`
	Description string            `json:"description,omitempty"`
	Config      map[string]string `json:"config,omitempty" doc:"plain settings the code may read; never secrets"`
	Grants      agent.Grants      `json:"grants,omitzero"`
	Limits      agent.Limits      `json:"limits,omitzero"`
	Quota       agent.Quota       `json:"quota,omitzero"`
	Sandbox     *agent.SandboxUse `json:"sandbox,omitempty"`
}

type createAgentRequest struct {
	Once store.Once `once:"-"`
	Body newAgent   `body:"json"`
}

func (s *Server) createAgent(ctx context.Context, q createAgentRequest) (made[agent.Agent], error) {
	b := q.Body
	a := agent.Agent{
		App: appOf(ctx), Name: b.Name, Plugin: b.Plugin, Description: b.Description, Config: b.Config, Grants: b.Grants, Limits: b.Limits, Quota: b.Quota, Sandbox: b.Sandbox,
	}
	if a.Plugin == "" && (a.Sandbox == nil || a.Sandbox.CLI == "") {
		return made[agent.Agent]{}, &agent.Error{Kind: agent.Invalid, Msg: `field "plugin" is missing`, Hint: "only an agent whose sandbox has a cli needs no code"}
	}
	if err := judge(requestOf(ctx).token, agent.Agent{}, a); err != nil {
		return made[agent.Agent]{}, err
	}
	a, replayed, err := s.rt.CreateAgent(ctx, a, q.Once)
	if err == nil && !replayed {
		err = s.audit(ctx, "agent.create", a.Name, difference(agent.Agent{}, a))
	}
	return made[agent.Agent]{a, replayed}, err
}

func (s *Server) listAgents(ctx context.Context, q pageQuery) (list[agent.Agent], error) {
	return listOf(s.st.Agents(ctx, appOf(ctx), q.page()))
}

type agentRequest struct {
	Name string `path:"name"`
}

func (s *Server) getAgent(ctx context.Context, q agentRequest) (agent.Agent, error) {
	return s.st.Agent(ctx, appOf(ctx), q.Name)
}

type updateAgentRequest struct {
	Name string             `path:"name"`
	Body runtime.AgentPatch `body:"json"`
}

func (s *Server) updateAgent(ctx context.Context, q updateAgentRequest) (agent.Agent, error) {
	var before agent.Agent
	q.Body.Judge = func(was, now agent.Agent) error {
		before = was
		return judge(requestOf(ctx).token, was, now)
	}
	a, err := s.rt.UpdateAgent(ctx, appOf(ctx), q.Name, q.Body)
	if err == nil {
		err = s.audit(ctx, "agent.update", a.Name, difference(before, a))
	}
	return a, err
}

func (s *Server) deleteAgent(ctx context.Context, q agentRequest) (nothing, error) {
	return nothing{}, s.removeAgents(ctx, q.Name)
}

type agentNames struct {
	Names []string `json:"names"`
}

type deleteAgentsRequest struct {
	Body agentNames `body:"json"`
}

func (s *Server) deleteAgents(ctx context.Context, q deleteAgentsRequest) (nothing, error) {
	return nothing{}, s.removeAgents(ctx, q.Body.Names...)
}

func (s *Server) removeAgents(ctx context.Context, names ...string) error {
	err := s.rt.DeleteAgents(ctx, appOf(ctx), names...)
	if err != nil {
		return err
	}
	for _, name := range names {
		err = errors.Join(err, s.audit(ctx, "agent.delete", name, ""))
	}
	return err
}

// agentGrants is what an agent may do, beside what its code asks for.
type agentGrants struct {
	Granted agent.Grants  `json:"granted"`
	Asked   *agent.Grants `json:"asked,omitempty" doc:"what the manifest of its plugin asks for"`
	Missing []string      `json:"missing" doc:"what is asked for and not granted, in words"`
	Words   []string      `json:"words" doc:"what is granted, in words"`
	Quota   []string      `json:"quota" doc:"what bounds it, in words"`
}

func (s *Server) agentGrants(ctx context.Context, q agentRequest) (agentGrants, error) {
	a, err := s.st.Agent(ctx, appOf(ctx), q.Name)
	if err != nil {
		return agentGrants{}, err
	}
	var p agent.Plugin
	if a.Plugin != "" { // else it runs only code that it is given
		if p, err = s.st.Plugin(ctx, a.App, a.Plugin); err != nil {
			return agentGrants{}, err
		}
	}
	out := agentGrants{
		Granted: a.Grants, Asked: p.Asks, Missing: []string{}, Words: append([]string{}, a.Grants.Words()...),
		Quota: append([]string{}, a.Quota.Words()...),
	}
	if p.Asks != nil {
		out.Missing = append(out.Missing, p.Asks.Beyond(a.Grants)...)
	}
	return out, nil
}
