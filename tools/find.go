package tools

import (
	"context"
	"slices"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/tools/code"
)

// index is what is made of an app's list, as long as it is this one.
type index struct {
	print  string
	list   []agent.Tool // nobody changes it
	names  *code.Names
	finder *code.Finder
}

// indexOf returns the index of an app's tools as they are now.
func (c *Catalogue) indexOf(ctx context.Context, app agent.App) (*index, error) {
	list, print, err := c.all(ctx, app)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	kept := c.indices[app]
	c.mu.Unlock()
	if kept != nil && kept.print == print {
		return kept, nil
	}
	names := code.NewNames(list)
	kept = &index{print, list, names, code.NewFinder(list, names)}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.indices[app] = kept
	return kept, nil
}

// granted picks the tools of a list that somebody may call.
func granted(list []agent.Tool, may func(name string) bool) []agent.Tool {
	if may == nil {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), func(t agent.Tool) bool { return !may(t.Name) })
}

// Search finds the tools that granted picks by what they are called and what they do, best first.
func (c *Catalogue) Search(ctx context.Context, app agent.App, q abi.ToolQuery, may func(name string) bool) (abi.Tools, error) {
	x, err := c.indexOf(ctx, app)
	if err != nil {
		return abi.Tools{}, err
	}
	return x.finder.Search(q, may)
}

// List lists them by name.
func (c *Catalogue) List(ctx context.Context, app agent.App, q abi.ToolQuery, may func(name string) bool) (abi.Tools, error) {
	x, err := c.indexOf(ctx, app)
	if err != nil {
		return abi.Tools{}, err
	}
	return code.List(granted(x.list, may), x.names, q)
}

// Describe declares them in TypeScript.
func (c *Catalogue) Describe(ctx context.Context, app agent.App, q abi.ToolQuery, may func(name string) bool) (string, error) {
	x, err := c.indexOf(ctx, app)
	if err != nil {
		return "", err
	}
	return code.Describe(granted(x.list, may), x.names, q)
}

// Check returns an Invalid error that says what is wrong with a call's arguments by the tool's schema.
func (c *Catalogue) Check(t agent.Tool, args []byte) error {
	return c.validator.Validate(t.Input, args)
}
