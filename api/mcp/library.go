package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/plugins"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/tools"
)

// maxPassed is how many prompts, resources and templates of one server are passed on, each.
const maxPassed = 1000

// library lists prompts and resources of the servers that the agent is granted the tools for: getting one is a call of that tool.
func (d *door) library(ctx context.Context, c content, all []agent.Tool) error {
	for _, t := range all {
		if !granted(c.agent, t.Name) || t.Method != tools.PromptsGet && t.Method != tools.ResourcesRead {
			continue
		}
		has, err := d.h.o.Tools.Contents(ctx, d.key.app, t.Server)
		if err != nil {
			if ctx.Err() != nil {
				return err
			}
			continue // which its status says
		}
		if t.Method == tools.PromptsGet {
			d.passPrompts(c, t, has.Prompts[:min(len(has.Prompts), maxPassed)])
			continue
		}
		meta := sdk.Meta{"dev.skep/server": t.Server}
		for _, r := range has.Resources[:min(len(has.Resources), maxPassed)] {
			if _, taken := c.resources[r.URI]; taken || !passes(r.URI, false) {
				continue
			}
			res := &sdk.Resource{URI: r.URI, Name: cmp.Or(r.Name, r.URI), Title: r.Title, Description: r.Description, MIMEType: r.Type, Size: r.Size, Meta: meta}
			c.resources[r.URI] = list(res, d.passResource(t.Name))
		}
		for _, r := range has.Templates[:min(len(has.Templates), maxPassed)] {
			if _, taken := c.templates[r.URI]; taken || !passes(r.URI, true) {
				continue
			}
			res := &sdk.ResourceTemplate{URITemplate: r.URI, Name: cmp.Or(r.Name, r.URI), Title: r.Title, Description: r.Description, MIMEType: r.Type, Meta: meta}
			c.templates[r.URI] = list(res, d.passResource(t.Name))
		}
	}
	return nil
}

// passes reports whether a URI of a server upstream, or a template of some, can be listed here: it has a scheme of its own, which is not ours, and is one that
// the SDK takes.
func passes(uri string, template bool) bool {
	scheme, _, ok := strings.Cut(uri, ":")
	if !ok || strings.ContainsRune(scheme, '{') || strings.EqualFold(scheme, "skep") {
		return false
	}
	m := &plugins.MCP{Resources: []plugins.MCPResource{{URI: uri, Name: "x", Function: "f"}}}
	if template {
		m = &plugins.MCP{Templates: []plugins.MCPTemplate{{URI: uri, Name: "x", Function: "f"}}}
	}
	return m.Check([]string{"f"}) == nil
}

func (d *door) passPrompts(c content, t agent.Tool, prompts []agent.Prompt) {
	for _, p := range prompts {
		whole := agent.ToolName(t.Server, p.Name)
		shown := toolName(whole)
		if _, taken := c.prompts[shown]; taken {
			shown = hashedName(whole)
		}
		prompt := &sdk.Prompt{Name: shown, Title: p.Title, Description: p.Description, Meta: sdk.Meta{"dev.skep/server": t.Server}}
		for _, a := range p.Arguments {
			prompt.Arguments = append(prompt.Arguments, &sdk.PromptArgument{Name: a.Name, Title: a.Title, Description: a.Description, Required: a.Required})
		}
		c.prompts[shown] = list[*sdk.Prompt, sdk.PromptHandler](prompt, d.passPrompt(t.Name, p.Name))
	}
}

// passPrompt answers prompts/get with what a run returns that calls the tool for it.
func (d *door) passPrompt(tool, prompt string) sdk.PromptHandler {
	return func(ctx context.Context, req *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
		p := req.Params
		res := &sdk.GetPromptResult{}
		args := map[string]any{"name": prompt}
		if len(p.Arguments) > 0 {
			args["arguments"] = p.Arguments
		}
		call := &sdk.CallToolParamsRaw{Meta: p.Meta, Name: p.Name, Arguments: encode(args), InputResponses: p.InputResponses, RequestState: p.RequestState}
		asks, err := d.passed(ctx, &sdk.CallToolRequest{Session: req.Session, Params: call, Extra: req.Extra}, tool, res)
		if asks != nil {
			return &sdk.GetPromptResult{InputRequests: asks.InputRequests, RequestState: asks.RequestState}, nil
		}
		if err == nil && res.Messages == nil {
			res.Messages = []*sdk.PromptMessage{}
		}
		return res, err
	}
}

// passResource answers resources/read likewise.
func (d *door) passResource(tool string) sdk.ResourceHandler {
	return func(ctx context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		p := req.Params
		res := &sdk.ReadResourceResult{}
		call := &sdk.CallToolParamsRaw{Meta: p.Meta, Name: p.URI, Arguments: encode(map[string]string{"uri": p.URI}), InputResponses: p.InputResponses, RequestState: p.RequestState}
		asks, err := d.passed(ctx, &sdk.CallToolRequest{Session: req.Session, Params: call, Extra: req.Extra}, tool, res)
		if asks != nil {
			return &sdk.ReadResourceResult{InputRequests: asks.InputRequests, RequestState: asks.RequestState}, nil
		}
		if err == nil && len(res.Contents) == 0 {
			return nil, sdk.ResourceNotFoundError(p.URI)
		}
		return res, err
	}
}

// passed makes the run and reads its result into out. It returns the result that asks the client for something, or an error of the protocol, since there is no
// other way to tell of one.
func (d *door) passed(ctx context.Context, req *sdk.CallToolRequest, tool string, out any) (asks *sdk.CallToolResult, err error) {
	var bad error
	handle := d.runs(func(ctx context.Context, args json.RawMessage) (agent.Run, error) {
		run, _, err := d.h.rt.StartTool(ctx, d.key.app, runtime.ToolRun{Agent: d.key.Agent, Tool: tool, Args: args}, store.Once{})
		return run, err
	}, func(ctx context.Context, _ *follower, run agent.Run) *sdk.CallToolResult {
		var value json.RawMessage
		if run.Output != nil && run.Output.IsJSON() {
			value, bad = d.filled(ctx, run.Session, run.Output.Body)
		}
		if bad == nil {
			if bad = json.Unmarshal(value, out); bad != nil {
				bad = agent.Wrap(agent.Failed, bad, tool+" returned what MCP does not know")
			}
		}
		return &sdk.CallToolResult{}
	})
	res, err := handle(ctx, req)
	switch {
	case err != nil:
		return nil, err
	case bad != nil:
		return nil, protocolError(bad)
	case res.IsError:
		text := "the call failed"
		if len(res.Content) > 0 {
			if t, ok := res.Content[0].(*sdk.TextContent); ok {
				text = t.Text
			}
		}
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: text}
	case res.InputRequests != nil:
		return res, nil
	}
	return nil, nil
}

// filled is a result with the bytes of artifacts in their places, as MCP has them.
func (d *door) filled(ctx context.Context, session agent.SessionID, value []byte) (json.RawMessage, error) {
	if whole, err := d.whole(ctx, session, value); err != nil || whole != nil {
		value = whole
		if err != nil {
			return nil, err
		}
	}
	var v any
	if err := json.Unmarshal(value, &v); err != nil {
		return nil, agent.Wrap(agent.Failed, err, "the result is no JSON")
	}
	room := int64(maxRead)
	var bad error
	var fill func(v any) any
	fill = func(v any) any {
		if bad != nil {
			return nil
		}
		switch v := v.(type) {
		case map[string]any:
			if a, ok := artifactOf(v); ok { // or what its server has made look like one, so its size is not believed
				f, body, err := d.h.st.ReadFile(ctx, d.key.app, session, a.Path, 0, room)
				if err == nil && f.Size > room {
					err = agent.Errorf(agent.Exhausted, "what it holds has more than %d bytes; it is kept as %s", maxRead, fileURI(session, a.Path))
				}
				room, bad = room-int64(len(body)), err
				return body // base64 in JSON
			}
			for k := range v {
				v[k] = fill(v[k])
			}
		case []any:
			for i := range v {
				v[i] = fill(v[i])
			}
		}
		return v
	}
	v = fill(v)
	return encode(v), bad
}
