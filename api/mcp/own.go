package mcp

//lint:file-ignore SA1019 clients of before 2026-07-28 still know logging, sampling and roots

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/internal/phrase"
	"github.com/skep-dev/skep/plugins"
)

// ownTool answers tools/call with what a function of the agent returns, as a run.
func (d *door) ownTool(t plugins.MCPTool) sdk.ToolHandler {
	check := agent.Tool{Name: t.Name, Input: t.Input, Digest: agent.DigestOf(t.Input)}
	return func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		args, err := object(req.Params.Arguments)
		if err != nil {
			return nil, err
		}
		in := asked{
			Method: "tools/call", Name: t.Name, Arguments: args, InputResponses: req.Params.InputResponses, ProgressToken: req.Params.GetProgressToken(),
			Client: clientOf(req),
		}
		for _, what := range t.Requires {
			if !in.Client.can(what) {
				return nil, lacks(t.Requires...)
			}
		}
		if d.h.o.Tools != nil {
			if err := d.h.o.Tools.Check(check, args); err != nil {
				return failed(err), nil
			}
		}
		f := &follower{door: d, req: req, watch: func(e agent.Event) { d.announced(ctx, e); d.closeStream(req, e) }}
		res, err := rounds(ctx, d, req, d.carry(req.Extra, "tools/call "+t.Name, args), &in, func(ctx context.Context, in asked) (json.RawMessage, *sdk.CallToolResult, error) {
			if f.run, err = d.start(ctx, t.Function, in); err != nil {
				return nil, failed(err), nil
			}
			var out agent.Payload
			res := f.follow(ctx, func(_ context.Context, _ *follower, run agent.Run) *sdk.CallToolResult {
				if run.Output != nil {
					out = *run.Output
				}
				return nil
			})
			if res != nil {
				return nil, res, nil
			}
			if !out.IsJSON() {
				return nil, &sdk.CallToolResult{Content: payloadContent(out)}, nil
			}
			return out.Body, nil, nil
		}, toolReply, func(asks sdk.InputRequestMap, state string) *sdk.CallToolResult {
			return &sdk.CallToolResult{InputRequests: asks, RequestState: state}
		})
		return res, err
	}
}

// rounds calls a function until it asks its client for nothing more. A client of 2026-07-28 makes the rounds itself, and carries the state
// between them; an older one is asked while it waits.
func rounds[R any, P sdk.Params](
	ctx context.Context, d *door, req *sdk.ServerRequest[P], carry carried, in *asked,
	call func(context.Context, asked) (out json.RawMessage, done R, err error), reply func(json.RawMessage) (R, error),
	ask func(sdk.InputRequestMap, string) R,
) (R, error) {
	var none R
	if state := stateOf(req.Params); state != "" {
		c, err := d.h.seal.open(state, carry)
		if err != nil {
			return none, err
		}
		carry = c
		if err := json.Unmarshal(c.State, &in.RequestState); err != nil {
			return none, err
		}
	}
	for {
		out, done, err := call(ctx, *in)
		if err != nil || out == nil {
			return done, err
		}
		r, err := needs(out)
		if err != nil {
			return none, protocolError(err)
		}
		if r == nil {
			return reply(out)
		}
		if missing := wants(r.Requests, in.Client); missing != nil {
			return none, lacks(missing...)
		}
		if carry.Round++; carry.Round > maxRounds {
			return none, protocolError(agent.Errorf(agent.Exhausted, "the function has asked for input %d times", maxRounds))
		}
		if req.ProtocolVersion() >= protocol2026 {
			state := ""
			if r.State != "" || carry.Round > 1 {
				carry.State = encode(r.State)
				state = d.h.seal.close(carry)
			}
			return ask(r.Requests, state), nil
		}
		if in.InputResponses, err = fulfil(ctx, req.Session, r.Requests); err != nil {
			return none, err
		}
		in.RequestState = r.State
	}
}

// stateOf returns the state that a request brings.
func stateOf(p any) string {
	switch p := p.(type) {
	case *sdk.CallToolParamsRaw:
		return p.RequestState
	case *sdk.GetPromptParams:
		return p.RequestState
	case *sdk.ReadResourceParams:
		return p.RequestState
	}
	return ""
}

// fulfil asks a client of before 2026-07-28 for what a function needs, all at once.
func fulfil(ctx context.Context, s *sdk.ServerSession, asks sdk.InputRequestMap) (sdk.InputResponseMap, error) {
	out := sdk.InputResponseMap{}
	var mu sync.Mutex
	var work sync.WaitGroup
	var first error
	for id, ask := range asks {
		work.Go(func() {
			got, err := fulfilOne(ctx, s, ask)
			mu.Lock()
			defer mu.Unlock()
			if err != nil && first == nil {
				first = fmt.Errorf("the client did not answer %s: %w", phrase.Clip(id, 80), err)
			}
			out[id] = got
		})
	}
	work.Wait()
	return out, first
}

func fulfilOne(ctx context.Context, s *sdk.ServerSession, ask sdk.InputRequest) (sdk.InputResponse, error) {
	switch p := ask.(type) {
	case *sdk.ElicitParams:
		return s.Elicit(ctx, p)
	case *sdk.CreateMessageWithToolsParams:
		return s.CreateMessageWithTools(ctx, p)
	case *sdk.ListRootsParams:
		return s.ListRoots(ctx, p)
	}
	return nil, agent.Errorf(agent.Invalid, "unknown kind of request %T", ask)
}

// toolReply makes a result of what a function returned: a result of MCP as it is, text as text, any other value as structured content.
func toolReply(out json.RawMessage) (*sdk.CallToolResult, error) {
	out = bytes.TrimSpace(out)
	if isObject(out) {
		var fields map[string]json.RawMessage
		if json.Unmarshal(out, &fields) == nil && (isArray(fields["content"]) || fields["structuredContent"] != nil || fields["resultType"] != nil) {
			res := &sdk.CallToolResult{}
			if err := json.Unmarshal(out, res); err != nil {
				return failed(agent.Errorf(agent.Failed, "the function returned what is no result of MCP: %s", err)), nil
			}
			if res.Content == nil && fields["structuredContent"] != nil {
				res.Content = []sdk.Content{&sdk.TextContent{Text: string(fields["structuredContent"])}}
			}
			if fields["structuredContent"] != nil {
				res.StructuredContent = fields["structuredContent"]
			}
			return res, nil
		}
	}
	res := &sdk.CallToolResult{Content: []sdk.Content{}}
	switch {
	case len(out) == 0 || string(out) == "null":
	case isObject(out):
		res.StructuredContent = out
		fallthrough
	default:
		res.Content = []sdk.Content{&sdk.TextContent{Text: textOf(out)}}
	}
	return res, nil
}

func isArray(b []byte) bool { return len(b) > 0 && b[0] == '[' }

// closeStream ends the stream of an answer at emit("mcp.close_stream"), which has the client connect again (SEP-1699).
func (d *door) closeStream(req *sdk.CallToolRequest, e agent.Event) {
	if e.Kind == agent.EventEmit && e.Name == "mcp.close_stream" && req.Extra != nil && req.Extra.CloseSSEStream != nil {
		req.Extra.CloseSSEStream(sdk.CloseSSEStreamArgs{RetryAfter: closeRetry})
	}
}

// ownPrompt answers prompts/get.
func (d *door) ownPrompt(p plugins.MCPPrompt) sdk.PromptHandler {
	return func(ctx context.Context, req *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
		for _, a := range p.Arguments {
			if _, given := req.Params.Arguments[a.Name]; a.Required && !given {
				return nil, rpcError(agent.Errorf(agent.Invalid, "prompt %s needs the argument %s", p.Name, a.Name))
			}
		}
		args := encode(req.Params.Arguments)
		in := asked{
			Method: "prompts/get", Name: p.Name, Arguments: args, InputResponses: req.Params.InputResponses,
			Client: clientOf(req),
		}
		carry := d.carry(req.Extra, "prompts/get "+p.Name, args)
		return rounds(ctx, d, req, carry, &in, func(ctx context.Context, in asked) (json.RawMessage, *sdk.GetPromptResult, error) {
			out, err := d.call(ctx, p.Function, in)
			return out, nil, protocolError(err)
		}, promptReply, func(asks sdk.InputRequestMap, state string) *sdk.GetPromptResult {
			return &sdk.GetPromptResult{InputRequests: asks, RequestState: state}
		})
	}
}

// promptReply makes a prompt of what a function returned: one of MCP as it is, or text, which is a message of the user.
func promptReply(out json.RawMessage) (*sdk.GetPromptResult, error) {
	var text string
	if json.Unmarshal(out, &text) == nil {
		return &sdk.GetPromptResult{Messages: []*sdk.PromptMessage{{Role: "user", Content: &sdk.TextContent{Text: text}}}}, nil
	}
	res := &sdk.GetPromptResult{}
	if err := json.Unmarshal(out, res); err != nil {
		return nil, rpcError(agent.Errorf(agent.Failed, "the function returned what is no prompt of MCP: %s", err))
	}
	if res.Messages == nil {
		res.Messages = []*sdk.PromptMessage{}
	}
	return res, nil
}

// ownResource answers resources/read.
func (d *door) ownResource(function string, match func(uri string) (map[string]string, bool)) sdk.ResourceHandler {
	return func(ctx context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		uri := req.Params.URI
		values, ok := match(uri)
		if !ok {
			return nil, sdk.ResourceNotFoundError(uri)
		}
		in := asked{
			Method: "resources/read", URI: uri, Variables: values, InputResponses: req.Params.InputResponses,
			Client: clientOf(req),
		}
		carry := d.carry(req.Extra, "resources/read "+uri, nil)
		return rounds(ctx, d, req, carry, &in, func(ctx context.Context, in asked) (json.RawMessage, *sdk.ReadResourceResult, error) {
			out, err := d.call(ctx, function, in)
			return out, nil, protocolError(err)
		}, func(out json.RawMessage) (*sdk.ReadResourceResult, error) { return resourceReply(uri, out) },
			func(asks sdk.InputRequestMap, state string) *sdk.ReadResourceResult {
				return &sdk.ReadResourceResult{InputRequests: asks, RequestState: state}
			})
	}
}

// resourceReply makes the contents of a resource of what a function returned: contents of MCP as they are, text as text, null for what
// is not there, any other value as JSON.
func resourceReply(uri string, out json.RawMessage) (*sdk.ReadResourceResult, error) {
	out = bytes.TrimSpace(out)
	if len(out) == 0 || string(out) == "null" {
		return nil, sdk.ResourceNotFoundError(uri)
	}
	var text string
	if json.Unmarshal(out, &text) == nil {
		return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: uri, Text: text}}}, nil
	}
	var fields map[string]json.RawMessage
	if isObject(out) && json.Unmarshal(out, &fields) == nil && isArray(fields["contents"]) {
		res := &sdk.ReadResourceResult{}
		if err := json.Unmarshal(out, res); err != nil {
			return nil, rpcError(agent.Errorf(agent.Failed, "the function returned what is no resource of MCP: %s", err))
		}
		return res, nil
	}
	return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: uri, MIMEType: agent.TypeJSON, Text: string(out)}}}, nil
}

// ownCompletion answers completion/complete.
func (d *door) ownCompletion(ctx context.Context, req *sdk.CompleteRequest) (*sdk.CompleteResult, error) {
	m := d.now().own
	if m == nil || m.Complete == "" {
		return &sdk.CompleteResult{Completion: sdk.CompletionResultDetails{Values: []string{}}}, nil
	}
	in := asked{
		Method: "completion/complete", Ref: req.Params.Ref, Argument: req.Params.Argument,
		Client: clientOf(req),
	}
	if req.Params.Context != nil { // a nil pointer would be shown as null
		in.Context = req.Params.Context
	}
	out, err := d.call(ctx, m.Complete, in)
	if err != nil {
		return nil, protocolError(err)
	}
	res := &sdk.CompleteResult{}
	if isArray(bytes.TrimSpace(out)) {
		err = json.Unmarshal(out, &res.Completion.Values)
	} else {
		err = json.Unmarshal(out, res)
	}
	if err != nil {
		return nil, rpcError(agent.Errorf(agent.Failed, "the function returned what is no completion: %s", err))
	}
	if v := res.Completion.Values; len(v) > maxValues {
		res.Completion.Values, res.Completion.HasMore, res.Completion.Total = v[:maxValues], true, max(res.Completion.Total, len(v))
	} else if v == nil {
		res.Completion.Values = []string{}
	}
	return res, nil
}

// closeRetry is when a client connects again whose stream was ended.
const closeRetry = 10 * time.Millisecond

// maxValues is how many completions MCP allows.
const maxValues = 100
