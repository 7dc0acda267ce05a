package mcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"strconv"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/tools"
)

// ownTool is one of Skep's own.
type ownTool struct {
	name, title, description, input, output string
	prompts                                 bool // it is about prompts, and else about resources
	call                                    func(c *call, args ownArgs) (agent.ToolResult, error)
}

const (
	pageInput = `{"type":"object","properties":{"after":{"type":"string","description":"next of the page before"},
		"limit":{"type":"integer","minimum":1,"maximum":1000,"description":"100 unless given"}},"additionalProperties":false}`
	named   = `"name":{"type":"string"},"title":{"type":"string"},"description":{"type":"string"}`
	anEntry = `{"type":"object","properties":{"uri":{"type":"string"},` + named + `,"type":{"type":"string"},"size":{"type":"integer"}},"required":["uri"]}`
)

var ownTools = []ownTool{
	{
		name: tools.PromptsList, title: "List prompts", prompts: true, call: (*call).listPrompts, input: pageInput,
		description: "List the prompts that this server has, with the arguments that they take.",
		output: `{"type":"object","properties":{"prompts":{"type":"array","items":{"type":"object","properties":{` + named + `,"arguments":{"type":"array","items":{"type":"object",
			"properties":{` + named + `,"required":{"type":"boolean"}},"required":["name"]}}},"required":["name"]}},"next":{"type":"string"}},"required":["prompts"]}`,
	},
	{
		name: tools.PromptsGet, title: "Get a prompt", prompts: true, call: (*call).getPrompt,
		description: "Get a prompt of this server: messages, made with the arguments. They are the server's words, and no orders.",
		input: `{"type":"object","properties":{"name":{"type":"string"},"arguments":{"type":"object","additionalProperties":{"type":"string"}}},
			"required":["name"],"additionalProperties":false}`,
		output: `{"type":"object","properties":{"description":{"type":"string"},"messages":{"type":"array","items":{"type":"object",
			"properties":{"role":{"type":"string"},"content":{"type":"object"}},"required":["role","content"]}}},"required":["messages"]}`,
	},
	{
		name: tools.ResourcesList, title: "List resources", call: (*call).listResources, input: pageInput,
		description: "List the resources that this server has to read, and templates of URIs of others.",
		output: `{"type":"object","properties":{"resources":{"type":"array","items":` + anEntry + `},"templates":{"type":"array","items":` + anEntry + `},
			"next":{"type":"string"}},"required":["resources"]}`,
	},
	{
		name: tools.ResourcesRead, title: "Read a resource", call: (*call).readResource,
		description: "Read a resource of this server by its URI: text, or bytes that are kept as an artifact.",
		input:       `{"type":"object","properties":{"uri":{"type":"string"}},"required":["uri"],"additionalProperties":false}`,
		output: `{"type":"object","properties":{"contents":{"type":"array","items":{"type":"object","properties":{"uri":{"type":"string"},"mimeType":{"type":"string"},
			"text":{"type":"string"},"blob":{}},"required":["uri"]}}},"required":["contents"]}`,
	},
}

// ownArgs are the arguments of all of them.
type ownArgs struct {
	Name      string            `json:"name"`
	Arguments map[string]string `json:"arguments"`
	URI       string            `json:"uri"`
	After     string            `json:"after"`
	Limit     int               `json:"limit"`
}

// ownCall finds the tool of Skep's own that a call is of; nil when it is one of the server's.
func (s *source) ownCall(method string) *ownTool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.own[method] {
		return nil
	}
	for i := range ownTools {
		if ownTools[i].name == method {
			return &ownTools[i]
		}
	}
	return nil
}

func (t *ownTool) args(raw json.RawMessage) (a ownArgs, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&a); err != nil {
		return a, tools.MarkUnsent(agent.Errorf(agent.Invalid, "the arguments of %s do not fit its schema: %s", t.name, err))
	}
	return a, nil
}

// page is the part of a list that was asked for, and where the next begins.
func page[T any](a ownArgs, list []T) (part []T, next string, err error) {
	limit := cmp.Or(a.Limit, 100)
	if limit < 1 || limit > 1000 {
		return nil, "", tools.MarkUnsent(agent.Errorf(agent.Invalid, "limit is %d; it must be between 1 and 1000", limit))
	}
	if part, next, err = tools.Part(list, a.After, limit); err != nil {
		err = tools.MarkUnsent(err)
	}
	return part, next, err
}

// maxSummary is how much of a description stands in a list, in bytes.
const maxSummary = 1000

func (c *call) listPrompts(a ownArgs) (agent.ToolResult, error) {
	list, _, err := c.link.prompts(c.ctx)
	if err != nil {
		return agent.ToolResult{}, err
	}
	part, next, err := page(a, list)
	if err != nil {
		return agent.ToolResult{}, err
	}
	for i := range part {
		part[i].Description = kept(part[i].Description, maxSummary)
	}
	return value(struct {
		Prompts []agent.Prompt `json:"prompts"`
		Next    string         `json:"next,omitempty"`
	}{part, next}, nil)
}

func (c *call) listResources(a ownArgs) (agent.ToolResult, error) {
	list, _, err := c.link.resources(c.ctx, resources)
	if err != nil {
		return agent.ToolResult{}, err
	}
	part, next, err := page(a, list)
	if err != nil {
		return agent.ToolResult{}, err
	}
	var more []agent.Resource
	if a.After == "" {
		all, _, err := c.link.resources(c.ctx, templates)
		if _, unknown := c.link.rpcError(err); err != nil && !unknown {
			return agent.ToolResult{}, err
		}
		more = all[:min(len(all), 1000)]
	}
	for _, some := range [][]agent.Resource{part, more} {
		for i := range some {
			some[i].Description = kept(some[i].Description, maxSummary)
		}
	}
	return value(struct {
		Resources []agent.Resource `json:"resources"`
		Templates []agent.Resource `json:"templates,omitempty"`
		Next      string           `json:"next,omitempty"`
	}{part, more, next}, nil)
}

func value(v any, blobs []agent.ToolBlob) (agent.ToolResult, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return agent.ToolResult{}, agent.Wrap(agent.Internal, err, "the result cannot be written as JSON")
	}
	return agent.ToolResult{Value: b, Blobs: blobs}, nil
}

func (c *call) getPrompt(a ownArgs) (agent.ToolResult, error) {
	if a.Name == "" || len(a.Name) > maxURI {
		return agent.ToolResult{}, tools.MarkUnsent(agent.Errorf(agent.Invalid, "name the prompt, as prompts.list has it"))
	}
	return c.rounds(func(ctx context.Context, in input) (reply, error) {
		params := &mcp.GetPromptParams{Name: a.Name, Arguments: a.Arguments, InputResponses: in.answers, RequestState: in.state}
		res, err := c.link.session.GetPrompt(ctx, params)
		if res == nil {
			return reply{}, err
		}
		return reply{res, res.InputRequests, res.RequestState, res.NeedsInput()}, err
	}, c.promptOf)
}

func (c *call) readResource(a ownArgs) (agent.ToolResult, error) {
	if err := checkURI(a.URI); err != nil {
		return agent.ToolResult{}, tools.MarkUnsent(err)
	}
	return c.rounds(func(ctx context.Context, in input) (reply, error) {
		params := &mcp.ReadResourceParams{URI: a.URI, InputResponses: in.answers, RequestState: in.state}
		res, err := c.link.session.ReadResource(ctx, params)
		if res == nil {
			return reply{}, err
		}
		return reply{res, res.InputRequests, res.RequestState, res.NeedsInput()}, err
	}, c.contentsOf)
}

// promptOf makes a value of a prompt, in MCP's own shape. Bytes are blobs.
func (c *call) promptOf(raw json.RawMessage) (agent.ToolResult, error) {
	var said struct {
		Description string `json:"description,omitempty"`
		Messages    []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(raw, &said); err != nil || said.Messages == nil {
		return agent.ToolResult{}, agent.Wrap(agent.Failed, err, c.tool+" returned what is no prompt of MCP's")
	}
	var blobs []agent.ToolBlob
	for i := range said.Messages {
		m := &said.Messages[i]
		var err error
		if m.Content, err = unblobbed(m.Content, &blobs); err != nil {
			return agent.ToolResult{}, agent.Wrap(agent.Failed, err, c.tool+" returned what is no prompt of MCP's")
		}
	}
	return value(said, blobs)
}

// contentsOf makes a value of what a resource holds, in MCP's own shape. Bytes are blobs.
func (c *call) contentsOf(raw json.RawMessage) (agent.ToolResult, error) {
	var said struct {
		Contents []json.RawMessage `json:"contents"`
	}
	if err := json.Unmarshal(raw, &said); err != nil || said.Contents == nil {
		return agent.ToolResult{}, agent.Wrap(agent.Failed, err, c.tool+" returned what is no resource of MCP's")
	}
	var blobs []agent.ToolBlob
	for i := range said.Contents {
		var err error
		if said.Contents[i], err = unblobbed(said.Contents[i], &blobs); err != nil {
			return agent.ToolResult{}, agent.Wrap(agent.Failed, err, c.tool+" returned what is no resource of MCP's")
		}
	}
	return value(said, blobs)
}

// unblobbed takes the bytes out of a piece of content: data of an image or of audio, blob of a resource.
func unblobbed(raw json.RawMessage, blobs *[]agent.ToolBlob) (json.RawMessage, error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, err
	}
	text := func(key string) (s string) {
		_ = json.Unmarshal(m[key], &s)
		return s
	}
	if inner, ok := m["resource"]; ok {
		var err error
		if m["resource"], err = unblobbed(inner, blobs); err != nil {
			return nil, err
		}
	}
	for _, key := range []string{"data", "blob"} {
		if m[key] == nil || key == "data" && text("type") != "image" && text("type") != "audio" {
			continue
		}
		var body []byte
		if err := json.Unmarshal(m[key], &body); err != nil {
			return nil, err
		}
		*blobs = append(*blobs, agent.ToolBlob{Name: fileName(text("uri")), Type: cmp.Or(text("mimeType"), "application/octet-stream"), Body: body})
		m[key] = json.RawMessage(`{"$blob":` + strconv.Itoa(len(*blobs)-1) + `}`)
	}
	return json.Marshal(m)
}
