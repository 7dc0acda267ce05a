package client

import (
	"context"
	"encoding/json"
	"time"

	"github.com/skep-dev/skep/agent"
)

// NewToolServer is a server of tools to add. Which fields there are is said by its kind, as of agent.ToolServer.
type NewToolServer struct {
	Name        string            `json:"name"`
	Kind        agent.ServerKind  `json:"kind"`
	Description string            `json:"description,omitempty"`
	Command     []string          `json:"command,omitempty"`
	Env         map[string]string `json:"env,omitempty"`
	Dir         string            `json:"dir,omitempty"`
	URL         string            `json:"url,omitempty"`
	Header      map[string]string `json:"header,omitempty"`
	Private     bool              `json:"private,omitempty"`
	OAuth       *agent.ToolOAuth  `json:"oauth,omitempty"`
	Document    string            `json:"document,omitempty"` // text of an OpenAPI document
	Agent       string            `json:"agent,omitempty"`
	Trusted     bool              `json:"trusted,omitempty"`
	Only        []string          `json:"only,omitempty"`
	Timeout     time.Duration     `json:"timeout,omitempty"`
	Concurrency int               `json:"concurrency,omitempty"`
}

// ToolServerPatch changes the fields that are set.
type ToolServerPatch = agent.ToolServerPatch

// ToolServer is a server of tools and how it stands.
type ToolServer struct {
	agent.ToolServer
	Status agent.ToolStatus `json:"status"`
	Hints  []string         `json:"hints,omitempty"`
}

// AddToolServer adds a server, and asks it what it has. One that does not answer is added all the same; its status says why.
func (c *Client) AddToolServer(ctx context.Context, s NewToolServer) (out ToolServer, err error) {
	return out, c.do(ctx, "POST", path("tools", "servers"), nil, s, &out)
}

// ToolServers lists servers by name, the built-in ones among them.
func (c *Client) ToolServers(ctx context.Context, p agent.Page) (List[ToolServer], error) {
	return get[List[ToolServer]](ctx, c, path("tools", "servers")+pageQuery(p).encode())
}

// ToolServer returns a server.
func (c *Client) ToolServer(ctx context.Context, name string) (ToolServer, error) {
	return get[ToolServer](ctx, c, path("tools", "servers", name))
}

// UpdateToolServer changes a server.
func (c *Client) UpdateToolServer(ctx context.Context, name string, patch ToolServerPatch) (out ToolServer, err error) {
	return out, c.do(ctx, "PATCH", path("tools", "servers", name), nil, patch, &out)
}

// DeleteToolServer removes a server, and ends it.
func (c *Client) DeleteToolServer(ctx context.Context, name string) error {
	return c.do(ctx, "DELETE", path("tools", "servers", name), nil, nil, nil)
}

// RefreshToolServer asks a server anew what it has.
func (c *Client) RefreshToolServer(ctx context.Context, name string) (out ToolServer, err error) {
	return out, c.do(ctx, "POST", path("tools", "servers", name, "refresh"), nil, nil, &out)
}

// Prompts lists the prompts of a server. SERVER.prompts.get is the tool that gets one.
func (c *Client) Prompts(ctx context.Context, server string, p agent.Page) (List[agent.Prompt], error) {
	return get[List[agent.Prompt]](ctx, c, path("tools", "servers", server, "prompts")+pageQuery(p).encode())
}

// ResourceList is one page of resources. Templates, on the first, say how URIs look of resources that are in no list.
type ResourceList struct {
	Items     []agent.Resource `json:"items"`
	Next      string           `json:"next,omitempty"`
	Templates []agent.Resource `json:"templates,omitempty"`
}

// Resources lists the resources of a server. SERVER.resources.read is the tool that reads one.
func (c *Client) Resources(ctx context.Context, server string, p agent.Page) (ResourceList, error) {
	return get[ResourceList](ctx, c, path("tools", "servers", server, "resources")+pageQuery(p).encode())
}

// ToolFilter picks tools. Query asks for those that words speak of, best first, on one page.
type ToolFilter struct{ Server, Effect, Query string }

// ToolList is one page of tools, by name. Missing has the servers whose tools are not among them, on the first page.
type ToolList struct {
	Items   []agent.Tool       `json:"items"`
	Next    string             `json:"next"`
	Missing []agent.ToolStatus `json:"missing"`
}

// Tools lists tools.
func (c *Client) Tools(ctx context.Context, f ToolFilter, p agent.Page) (ToolList, error) {
	q := pageQuery(p)
	q["server"], q["effect"], q["q"] = f.Server, f.Effect, f.Query
	return get[ToolList](ctx, c, path("tools")+q.encode())
}

// ToolHints are what a server says of a tool's effect.
type ToolHints struct {
	ReadOnly    *bool `json:"read_only,omitempty"`
	Destructive *bool `json:"destructive,omitempty"`
	Idempotent  *bool `json:"idempotent,omitempty"`
	OpenWorld   *bool `json:"open_world,omitempty"`
}

// ToolDetail is a tool, and what helps to classify it.
type ToolDetail struct {
	agent.Tool
	Path    string       `json:"path"`
	Hints   *ToolHints   `json:"hints,omitempty"`
	Suggest agent.Effect `json:"suggest,omitempty"`
	Why     string       `json:"why,omitempty"`
}

// Tool returns a tool by its name.
func (c *Client) Tool(ctx context.Context, name string) (ToolDetail, error) {
	return get[ToolDetail](ctx, c, path("tools", name))
}

// ToolEffect is what an operator says of a tool; Unclassified takes it back.
type ToolEffect struct {
	Tool   string       `json:"tool"`
	Effect agent.Effect `json:"effect"`
}

type changedTools struct {
	Items []agent.Tool `json:"items"`
}

// ClassifyTools says what tools can do, all or none, and returns them as they are then.
func (c *Client) ClassifyTools(ctx context.Context, list ...ToolEffect) ([]agent.Tool, error) {
	var out changedTools
	err := c.do(ctx, "PUT", path("tools", "effects"), nil, list, &out)
	return out.Items, err
}

// PinTools accepts tools as they are now: names, or SERVER.* for all of a server.
func (c *Client) PinTools(ctx context.Context, names ...string) ([]agent.Tool, error) {
	var out changedTools
	err := c.do(ctx, "POST", path("tools", "pin"), nil, map[string][]string{"tools": names}, &out)
	return out.Items, err
}

// ToolCall asks for a call of a tool.
type ToolCall struct {
	Args    json.RawMessage `json:"args,omitempty"`
	Agent   string          `json:"agent,omitempty"`
	Session agent.SessionID `json:"session,omitempty"`
	Wait    *int            `json:"wait,omitempty"` // seconds, up to 300; 60 unless given
}

// CallTool calls a tool in a run of its own. The run may not have ended yet when it returns: its status says so, and Asks what a person is asked.
func (c *Client) CallTool(ctx context.Context, name string, call ToolCall) (out CodeResult, err error) {
	return out, c.do(ctx, "POST", path("tools", name, "call"), once(), call, &out)
}

// Declarations picks tools to declare. Level is names, signatures, compact or full; compact unless given.
type Declarations struct{ Level, Server, Effect, Agent string }

// ToolDeclarations declares tools in TypeScript.
func (c *Client) ToolDeclarations(ctx context.Context, d Declarations) (string, error) {
	var out struct {
		Text string `json:"text"`
	}
	q := query{"level": d.Level, "server": d.Server, "effect": d.Effect, "agent": d.Agent}
	err := c.do(ctx, "GET", path("tools", "declarations")+q.encode(), nil, nil, &out)
	return out.Text, err
}
