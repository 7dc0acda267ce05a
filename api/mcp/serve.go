package mcp

//lint:file-ignore SA1019 clients of before 2026-07-28 still know logging, sampling and roots

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/plugins"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
)

// serve lists what an agent serves itself.
func (d *door) serve(c content, m *plugins.MCP) {
	for _, t := range m.Tools {
		tool := &sdk.Tool{Name: t.Name, Title: t.Title, Description: t.Description, InputSchema: t.Input}
		if t.Output != nil {
			tool.OutputSchema = t.Output
		}
		if a := t.Annotations; a != nil {
			tool.Annotations = &sdk.ToolAnnotations{
				Title: a.Title, ReadOnlyHint: a.ReadOnly != nil && *a.ReadOnly, IdempotentHint: a.Idempotent != nil && *a.Idempotent,
				DestructiveHint: a.Destructive, OpenWorldHint: a.OpenWorld,
			}
		}
		c.tools[t.Name] = list(tool, d.ownTool(t))
	}
	d.servePrompts(c, m)
	for _, r := range m.Resources {
		res := &sdk.Resource{URI: r.URI, Name: r.Name, Title: r.Title, Description: r.Description, MIMEType: r.Type, Size: r.Size}
		c.resources[r.URI] = list(res, d.ownResource(r.Function, func(string) (map[string]string, bool) { return nil, true }))
	}
	for _, t := range m.Templates {
		res := &sdk.ResourceTemplate{URITemplate: t.URI, Name: t.Name, Title: t.Title, Description: t.Description, MIMEType: t.Type}
		c.templates[t.URI] = list(res, d.ownResource(t.Function, t.Match))
	}
}

// servePrompts lists the prompts of an agent's code.
func (d *door) servePrompts(c content, m *plugins.MCP) {
	for _, p := range m.Prompts {
		prompt := &sdk.Prompt{Name: p.Name, Title: p.Title, Description: p.Description}
		for _, a := range p.Arguments {
			prompt.Arguments = append(prompt.Arguments, &sdk.PromptArgument{Name: a.Name, Title: a.Title, Description: a.Description, Required: a.Required})
		}
		c.prompts[p.Name] = list(prompt, d.ownPrompt(p))
	}
}

// serveOptions says what an agent's server can do.
func (d *door) serveOptions(o *sdk.ServerOptions, m *plugins.MCP) {
	o.Capabilities.Logging = &sdk.LoggingCapabilities{}
	o.Capabilities.Prompts = &sdk.PromptCapabilities{ListChanged: true}
	o.Capabilities.Resources = &sdk.ResourceCapabilities{ListChanged: true, Subscribe: true}
	o.SubscribeHandler = func(context.Context, *sdk.SubscribeRequest) error { return nil }
	o.UnsubscribeHandler = func(context.Context, *sdk.UnsubscribeRequest) error { return nil }
	if m.Complete != "" {
		o.CompletionHandler = d.ownCompletion
	}
}

// asked is what a function of an agent is given: the request, and who sends it.
type asked struct {
	Method         string               `json:"method"`
	Name           string               `json:"name,omitempty"` // of the tool or prompt
	URI            string               `json:"uri,omitempty"`  // of the resource
	Arguments      json.RawMessage      `json:"arguments,omitempty"`
	Variables      map[string]string    `json:"variables,omitempty"` // what the names of the template stand for
	InputResponses sdk.InputResponseMap `json:"inputResponses,omitempty"`
	RequestState   string               `json:"requestState,omitempty"` // as the function returned it
	ProgressToken  any                  `json:"progressToken,omitempty"`
	Ref            any                  `json:"ref,omitempty"`      // of a completion
	Argument       any                  `json:"argument,omitempty"` // of a completion
	Context        any                  `json:"context,omitempty"`  // of a completion
	Client         client               `json:"client"`
}

type client struct {
	Protocol     string                  `json:"protocolVersion"`
	Info         *sdk.Implementation     `json:"info,omitempty"`
	Capabilities *sdk.ClientCapabilities `json:"capabilities,omitempty"`
	Elicitation  bool                    `json:"elicitation"` // what it can be asked for
	Sampling     bool                    `json:"sampling"`
	Roots        bool                    `json:"roots"`
}

// clientOf tells who sends a request of any method.
func clientOf(req interface {
	ProtocolVersion() string
	ClientInfo() *sdk.Implementation
	ClientCapabilities() *sdk.ClientCapabilities
}) client {
	out := client{Protocol: req.ProtocolVersion(), Info: req.ClientInfo()}
	if c := req.ClientCapabilities(); c != nil {
		out.Capabilities = c
		out.Elicitation, out.Sampling = c.Elicitation != nil, c.Sampling != nil
		out.Roots = c.RootsV2 != nil || c.Roots.ListChanged
	}
	return out
}

// can reports whether the client can be asked for something.
func (c client) can(what string) bool {
	return map[string]bool{"elicitation": c.Elicitation, "sampling": c.Sampling, "roots": c.Roots}[what]
}

// lacks is the error for a client that cannot be asked for what is needed.
func lacks(what ...string) error {
	need := &sdk.ClientCapabilities{}
	for _, w := range what {
		switch w {
		case "elicitation":
			need.Elicitation = &sdk.ElicitationCapabilities{}
		case "sampling":
			need.Sampling = &sdk.SamplingCapabilities{}
		case "roots":
			need.RootsV2 = &sdk.RootCapabilities{}
		}
	}
	return &jsonrpc.Error{
		Code: sdk.CodeMissingRequiredClientCapabilities, Message: "the client has not declared a capability that this needs: " + strings.Join(what, ", "),
		Data: encode(sdk.MissingRequiredClientCapabilityData{RequiredCapabilities: need}),
	}
}

// replied is what a function returned that asks its client for something (resultType input_required).
type replied struct {
	Requests sdk.InputRequestMap `json:"inputRequests"`
	State    string              `json:"requestState"`
}

// needs returns what a function asks the client for; nil when it asks for nothing.
func needs(out []byte) (*replied, error) {
	var probe struct {
		Type string `json:"resultType"`
	}
	if !isObject(out) || json.Unmarshal(out, &probe) != nil || probe.Type != "input_required" {
		return nil, nil
	}
	var r replied
	if err := json.Unmarshal(out, &r); err != nil {
		return nil, agent.Errorf(agent.Failed, "the function's inputRequests cannot be read: %s", err)
	}
	return &r, nil
}

// wants names the capabilities that requests need.
func wants(requests sdk.InputRequestMap, c client) (missing []string) {
	for _, r := range requests {
		what := ""
		switch r.(type) {
		case *sdk.ElicitParams:
			what = "elicitation"
		case *sdk.ListRootsParams:
			what = "roots"
		default:
			what = "sampling"
		}
		if !c.can(what) && !slices.Contains(missing, what) {
			missing = append(missing, what)
		}
	}
	slices.Sort(missing)
	return missing
}

// maxRounds is how often one call may ask its client.
const maxRounds = 10

// start begins a run of a function.
func (d *door) start(ctx context.Context, function string, in asked) (agent.Run, error) {
	run, _, err := d.h.rt.StartRun(ctx, d.key.app, runtime.RunRequest{Agent: d.key.Agent, Function: function, Input: agent.JSON(encode(in))}, store.Once{})
	return run, err
}

// call calls a function of which nobody follows what it does.
func (d *door) call(ctx context.Context, function string, in asked) (json.RawMessage, error) {
	res, err := d.h.rt.Call(ctx, d.key.app, runtime.CallRequest{Agent: d.key.Agent, Function: function, Input: agent.JSON(encode(in))})
	if err != nil {
		return nil, err
	}
	if !res.Output.IsJSON() {
		if res.Output.IsText() {
			return encode(string(res.Output.Body)), nil
		}
		return nil, agent.Errorf(agent.Failed, "function %s returned %s, not a value of JSON", function, res.Output.Type)
	}
	return res.Output.Body, nil
}

// followLog tells clients what the agent announces: emit("mcp.changed", "tools" | "prompts" | "resources") and
// emit("mcp.updated", URI), in any call of it.
func (d *door) followLog(ctx context.Context) {
	a, err := d.h.st.Agent(ctx, d.key.app, d.key.Agent)
	if err != nil {
		return
	}
	log := store.AgentLog(d.key.app, a.ID)
	_, end, err := d.h.st.Bounds(ctx, log)
	if err != nil {
		return
	}
	sub, err := d.h.rt.Subscribe(ctx, log, end)
	if err != nil {
		return
	}
	defer sub.Close()
	for {
		events, err := sub.Next(ctx)
		if err != nil {
			return
		}
		for _, e := range events {
			d.announced(ctx, e.Event)
		}
	}
}

// announced tells the clients of one thing that an agent announces.
func (d *door) announced(ctx context.Context, e agent.Event) {
	var what string
	if e.Kind != agent.EventEmit || json.Unmarshal(e.Data, &what) != nil {
		return
	}
	switch e.Name {
	case "mcp.changed":
		d.again(what)
	case "mcp.updated":
		_ = d.server.ResourceUpdated(ctx, &sdk.ResourceUpdatedNotificationParams{URI: what}) // to those who listen
	}
}

// again tells clients that a list has changed, by putting one of its entries there anew.
func (d *door) again(what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch what {
	case "tools":
		for _, one := range d.content.tools {
			d.server.AddTool(one.entry, one.handle)
			return
		}
	case "prompts":
		for _, one := range d.content.prompts {
			d.server.AddPrompt(one.entry, one.handle)
			return
		}
	case "resources":
		for _, one := range d.content.resources {
			d.server.AddResource(one.entry, one.handle)
			return
		}
	}
}

// protocolError returns err as what the SDK sends as an error of the protocol; nil for nil.
func protocolError(err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return e
	}
	return rpcError(err)
}
