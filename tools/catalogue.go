package tools

import (
	"context"
	"log/slog"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
)

// Options of a Catalogue. A zero field means the default.
type Options struct {
	Log     *slog.Logger
	Openers Openers
	// Hook calls a function of an agent of the app, as a hook, with JSON in and out.
	Hook func(ctx context.Context, app agent.App, name, function string, in []byte) ([]byte, error)
}

// Catalogue is the tools of all apps. It is safe for concurrent use. Close it.
type Catalogue struct {
	store *store.Store
	opts  Options
}

// New returns a catalogue of what st has records of. It starts no server before it is needed.
func New(st *store.Store, o *Options) *Catalogue {
	c := &Catalogue{store: st}
	if o != nil {
		c.opts = *o
	}
	return c
}

// Close ends all sources.
func (c *Catalogue) Close() error { return nil }

// Tools lists an app's tools, sorted by name: the same bytes as long as nothing has changed. Servers that cannot be reached are
// left out, and their status says why.
func (c *Catalogue) Tools(ctx context.Context, app agent.App) ([]agent.Tool, error) {
	return nil, nil
}

// Resolve finds a tool by its name, or by the identifiers that declarations write in place of it. What is not there is a NotFound error that says which
// names come near, and what is wrong with the server if that is it.
func (c *Catalogue) Resolve(ctx context.Context, app agent.App, name string) (agent.Tool, error) {
	return agent.Tool{}, agent.Errorf(agent.NotFound, "there is no tool %q", name)
}

// Judge says what becomes of a call: by hooks, the floor, the app's policy, standing allowances, and by whether the tool is as it was
// pinned. An allowance that allows it is used up by one. It writes nothing else.
func (c *Catalogue) Judge(ctx context.Context, t agent.Tool, call agent.ToolCall) (agent.Decision, error) {
	return agent.Decision{Verdict: agent.Deny, Reason: "there is no policy"}, nil
}

// Check returns an Invalid error that says what is wrong with a call's arguments by the tool's schema.
func (c *Catalogue) Check(t agent.Tool, args []byte) error { return nil }

// Call calls a tool, as many of a server's at once as its record says; others wait.
func (c *Catalogue) Call(ctx context.Context, t agent.Tool, o *CallOptions, args []byte) (agent.ToolResult, error) {
	return agent.ToolResult{}, agent.Errorf(agent.NotFound, "there is no tool %q", t.Name)
}

// Allow keeps a standing answer.
func (c *Catalogue) Allow(ctx context.Context, a agent.Allowance) (agent.Allowance, error) {
	return a, nil
}

// Search finds the tools that granted picks by what they are called and what they do, best first.
func (c *Catalogue) Search(ctx context.Context, app agent.App, q abi.ToolQuery, granted func(name string) bool) (abi.Tools, error) {
	return abi.Tools{}, nil
}

// List lists them by name.
func (c *Catalogue) List(ctx context.Context, app agent.App, q abi.ToolQuery, granted func(name string) bool) (abi.Tools, error) {
	return abi.Tools{}, nil
}

// Describe declares them in TypeScript.
func (c *Catalogue) Describe(ctx context.Context, app agent.App, q abi.ToolQuery, granted func(name string) bool) (string, error) {
	return "", nil
}
