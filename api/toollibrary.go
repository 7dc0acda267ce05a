package api

import (
	"context"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/tools"
)

type listContentsRequest struct {
	pageQuery
	Name string `path:"name"`
}

// resourceList is one page of resources, and on the first the templates of others.
type resourceList struct {
	Items     []agent.Resource `json:"items"`
	Next      string           `json:"next,omitempty" doc:"cursor of the next page; absent on the last"`
	Templates []agent.Resource `json:"templates,omitempty" doc:"how URIs of resources look that are in no list (RFC 6570); on the first page"`
}

// contentsOf is what a server has besides tools.
func (s *Server) contentsOf(ctx context.Context, name string) (tools.Contents, error) {
	c, err := s.catalogue()
	if err != nil {
		return tools.Contents{}, err
	}
	return c.Contents(ctx, appOf(ctx), name)
}

// pageOf is a part of a list in the order of its server.
func pageOf[T any](all []T, q pageQuery) (part []T, next string, err error) {
	limit, err := limitOf(q.Limit)
	if err != nil {
		return nil, "", err
	}
	return tools.Part(all, q.After, limit)
}

func (s *Server) listPrompts(ctx context.Context, q listContentsRequest) (list[agent.Prompt], error) {
	has, err := s.contentsOf(ctx, q.Name)
	if err != nil {
		return list[agent.Prompt]{}, err
	}
	part, next, err := pageOf(has.Prompts, q.pageQuery)
	return list[agent.Prompt]{part, next}, err
}

func (s *Server) listResources(ctx context.Context, q listContentsRequest) (resourceList, error) {
	has, err := s.contentsOf(ctx, q.Name)
	if err != nil {
		return resourceList{}, err
	}
	part, next, err := pageOf(has.Resources, q.pageQuery)
	out := resourceList{Items: part, Next: next}
	if q.After == "" {
		out.Templates = has.Templates
	}
	return out, err
}
