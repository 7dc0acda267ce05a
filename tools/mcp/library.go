package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/tools"
)

// Bounds of what is taken of prompts and resources.
const (
	maxURI       = 8 << 10 // bytes
	maxArguments = 100     // of a prompt
)

// lister asks for one page of a list of a server, in which the entries stand under key.
type lister struct {
	what, key string
	page      func(ctx context.Context, l *link, cursor string) (any, error)
}

var (
	prompts = lister{"prompts", "prompts", func(ctx context.Context, l *link, cursor string) (any, error) {
		return l.session.ListPrompts(ctx, &mcp.ListPromptsParams{Cursor: cursor})
	}}
	resources = lister{"resources", "resources", func(ctx context.Context, l *link, cursor string) (any, error) {
		return l.session.ListResources(ctx, &mcp.ListResourcesParams{Cursor: cursor})
	}}
	templates = lister{"templates of resources", "resourceTemplates", func(ctx context.Context, l *link, cursor string) (any, error) {
		return l.session.ListResourceTemplates(ctx, &mcp.ListResourceTemplatesParams{Cursor: cursor})
	}}
)

// has tells what the server says that it has.
func (l *link) has() (tool, prompt, resource bool) {
	r := l.session.InitializeResult()
	if r == nil || r.Capabilities == nil {
		return true, false, false
	}
	c := r.Capabilities
	prompt, resource = c.Prompts != nil, c.Resources != nil
	return c.Tools != nil || !prompt && !resource, prompt, resource // some of old say nothing, and have tools
}

// all asks for all pages of a list, and returns its entries as the server wrote them. The SDK may still have a page from before, which its server allows.
func (l *link) all(ctx context.Context, of lister) (out []json.RawMessage, err error) {
	s := l.k.s
	ask := func(ctx context.Context, cursor string) (json.RawMessage, error) {
		t := &tap{}
		res, err := of.page(withTap(ctx, t), l, cursor)
		if raw := t.get(); raw != nil { // also when the SDK does not understand it
			return raw, nil
		}
		if err != nil {
			return nil, err
		}
		return json.Marshal(res)
	}
	take := func(raw json.RawMessage) (next string, err error) {
		var said map[string]json.RawMessage
		if err := json.Unmarshal(raw, &said); err != nil {
			return "", l.oddList(of.what, err)
		}
		var entries []json.RawMessage
		for field, to := range map[string]any{of.key: &entries, "nextCursor": &next} {
			if said[field] == nil {
				continue
			}
			if err := json.Unmarshal(said[field], to); err != nil {
				return "", l.oddList(of.what, err)
			}
		}
		if out = append(out, entries...); len(out) > s.o.Bounds.Tools {
			return "", agent.Errorf(agent.Exhausted, "server %s lists more than %d %s", s.rec.Name, s.o.Bounds.Tools, of.what)
		}
		return next, nil
	}
	if err := l.eachPage(ctx, of.what, ask, take); err != nil {
		return nil, err
	}
	return out, nil
}

// prompts lists them. What is wrong with one leaves it out.
func (l *link) prompts(ctx context.Context) (out []agent.Prompt, notes []string, err error) {
	raw, err := l.all(ctx, prompts)
	seen := map[string]bool{}
	for i, one := range raw {
		var p agent.Prompt
		err := json.Unmarshal(one, &p)
		switch {
		case err != nil:
			err = errors.New("it is not as MCP has it")
		case p.Name == "" || len(p.Name) > maxURI:
			err = fmt.Errorf("its name has %d bytes", len(p.Name))
		case seen[p.Name]:
			err = errors.New("there is another of that name before it")
		case len(p.Description) > l.k.s.o.Bounds.Description || len(p.Title) > l.k.s.o.Bounds.Description:
			err = fmt.Errorf("its description has more than %d bytes", l.k.s.o.Bounds.Description)
		case len(p.Arguments) > maxArguments:
			err = fmt.Errorf("it takes %d arguments, more than %d", len(p.Arguments), maxArguments)
		}
		if err != nil {
			notes = append(notes, fmt.Sprintf("prompt %s was left out: %v", calledOr(one, i), err))
			continue
		}
		seen[p.Name] = true
		out = append(out, p)
	}
	return out, notes, err
}

// resources lists them, or templates of them.
func (l *link) resources(ctx context.Context, of lister) (out []agent.Resource, notes []string, err error) {
	raw, err := l.all(ctx, of)
	seen := map[string]bool{}
	for i, one := range raw {
		var said struct {
			agent.Resource
			Template string      `json:"uriTemplate"`
			MIMEType string      `json:"mimeType"`
			Size     json.Number `json:"size"`
		}
		err := json.Unmarshal(one, &said)
		r := said.Resource
		r.Type = said.MIMEType
		size, _ := said.Size.Int64()
		r.Size = max(size, 0)
		if of.key == templates.key {
			r.URI = said.Template
		}
		switch {
		case err != nil:
			err = errors.New("it is not as MCP has it")
		case r.URI == "" || len(r.URI) > maxURI:
			err = fmt.Errorf("its URI has %d bytes", len(r.URI))
		case seen[r.URI]:
			err = errors.New("there is another of that URI before it")
		case len(r.Description) > l.k.s.o.Bounds.Description || len(r.Title)+len(r.Name) > l.k.s.o.Bounds.Description:
			err = fmt.Errorf("its description has more than %d bytes", l.k.s.o.Bounds.Description)
		}
		if err != nil {
			notes = append(notes, fmt.Sprintf("resource %s was left out: %v", calledOr(one, i), err))
			continue
		}
		seen[r.URI] = true
		out = append(out, r)
	}
	return out, notes, err
}

// Contents is tools.Library's.
func (s *source) Contents(ctx context.Context) (c tools.Contents, notes []string, err error) {
	k, err := s.keeper(ctx, "")
	if err != nil {
		return c, nil, err
	}
	l, release, err := k.use(ctx)
	if err != nil {
		return c, nil, err
	}
	defer release()
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout(), agent.Errorf(agent.Unavailable, "server %s did not list what it has within %s", s.rec.Name, s.timeout()))
	defer cancel()
	_, prompt, resource := l.has()
	note := func(what string, more []string, err error) {
		notes = append(notes, more...)
		if err != nil {
			notes = append(notes, fmt.Sprintf("its %s are not listed: %s", what, agent.AsError(l.listError(ctx, err)).Msg))
		}
	}
	if prompt {
		list, more, err := l.prompts(ctx)
		c.Prompts = list
		note("prompts", more, err)
	}
	if resource {
		list, more, err := l.resources(ctx, resources)
		c.Resources = list
		note("resources", more, err)
		list, more, err = l.resources(ctx, templates)
		c.Templates = list
		if _, unknown := l.rpcError(err); !unknown { // many have none, and say that they do not know the question
			note("templates of resources", more, err)
		}
	}
	if len(notes) > maxNotes {
		notes = append(notes[:maxNotes], fmt.Sprintf("and %d more", len(notes)-maxNotes))
	}
	return c, notes, nil
}

// checkURI refuses what cannot name a resource.
func checkURI(uri string) error {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme == "" || len(uri) > maxURI {
		return agent.Errorf(agent.Invalid, "%.200q is no URI of a resource: write it as resources.list does, such as file:///notes/a.md", uri)
	}
	return nil
}

// own are the tools that stand for what the server has besides its own. One that the server has a tool of is not among them.
func (l *link) own(taken func(method string) bool) (out []tools.Offer) {
	_, prompt, resource := l.has()
	for _, t := range ownTools {
		if t.prompts && !prompt || !t.prompts && !resource || taken(t.name) {
			continue
		}
		out = append(out, tools.Offer{
			Declared: agent.Read, Own: true, Tool: agent.Tool{
				Method: t.name, Title: t.title, Description: t.description, Input: json.RawMessage(t.input), Output: json.RawMessage(t.output), Idempotent: true,
			},
		})
	}
	return out
}
