package api

import (
	"context"
	"time"

	"github.com/skep-dev/skep/agent"
)

// environmentInput is what a caller says of an environment.
type environmentInput struct {
	Description string            `json:"description,omitempty"`
	Image       string            `json:"image" doc:"as the provider knows it; skep image build makes one"`
	Provider    string            `json:"provider,omitempty" doc:"docker, podman or kubernetes; the server's first unless given"`
	Runtime     string            `json:"runtime,omitempty" doc:"of the provider's, such as runsc; its own unless given"`
	Packages    []string          `json:"packages,omitempty" doc:"that the image has to have: deb:NAME, npm:NAME@VERSION, or npm:NAME for any version; no sandbox is made of one that lacks them"`
	Setup       string            `json:"setup,omitempty" doc:"a script for sh, run in the workspace before any work"`
	Variables   map[string]string `json:"variables,omitempty" doc:"of what runs in a sandbox; plain, never secrets"`
	Network     []agent.Target    `json:"network,omitempty" doc:"what may be reached besides models, of what the agent is granted; nothing unless given"`
	Requires    []string          `json:"requires,omitempty" doc:"capabilities that have to be enforced"`
	Size        agent.SandboxSize `json:"size,omitzero"`
	Idle        time.Duration     `json:"idle,omitempty" doc:"a sandbox that nobody has used for so long is stopped or deleted; 30 minutes unless given"`
	Life        time.Duration     `json:"life,omitempty" doc:"the longest that a sandbox is there; 24 hours unless given, and no end for a pet"`
}

type environmentRequest struct {
	Name string `path:"name" doc:"NAME for the newest revision, or NAME@REVISION"`
}

type putEnvironmentRequest struct {
	Name string           `path:"name"`
	Body environmentInput `body:"json"`
}

// putEnvironment makes the next revision. Sessions that have begun stay with theirs.
func (s *Server) putEnvironment(ctx context.Context, q putEnvironmentRequest) (agent.Environment, error) {
	b := q.Body
	env := agent.Environment{
		Name: q.Name, App: appOf(ctx), Description: b.Description, Image: b.Image, Provider: b.Provider, Runtime: b.Runtime, Packages: b.Packages, Setup: b.Setup,
		Variables: b.Variables, Network: b.Network, Requires: b.Requires, Size: b.Size, Idle: b.Idle, Life: b.Life,
	}
	if err := s.knownEnvironment(ctx, env); err != nil {
		return agent.Environment{}, err
	}
	env, err := s.st.PutEnvironment(ctx, env)
	if err != nil {
		return agent.Environment{}, err
	}
	return env, s.audit(ctx, "environment.put", env.Ref(), env.Image)
}

func (s *Server) getEnvironment(ctx context.Context, q environmentRequest) (agent.Environment, error) {
	return s.st.Environment(ctx, appOf(ctx), q.Name)
}

func (s *Server) listEnvironments(ctx context.Context, q pageQuery) (list[agent.Environment], error) {
	return listOf(s.st.Environments(ctx, appOf(ctx), q.page()))
}

type environmentRevisionsRequest struct {
	Name string `path:"name"`
	pageQuery
}

func (s *Server) listRevisions(ctx context.Context, q environmentRevisionsRequest) (list[agent.Environment], error) {
	all, next, err := s.st.EnvironmentRevisions(ctx, appOf(ctx), q.Name, q.page())
	if err == nil && len(all) == 0 {
		_, err = s.st.Environment(ctx, appOf(ctx), q.Name) // there is none of that name
	}
	return listOf(all, next, err)
}

// deleteEnvironment deletes it, unless an agent names it. Sandboxes and sessions that have it keep their revision.
func (s *Server) deleteEnvironment(ctx context.Context, q environmentRequest) (nothing, error) {
	if err := s.rt.DeleteEnvironment(ctx, appOf(ctx), q.Name); err != nil {
		return nothing{}, err
	}
	return nothing{}, s.audit(ctx, "environment.delete", q.Name, "")
}
