package builtin

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/tools"
)

// agents has one tool of each agent of an app that has code.
type agents struct {
	opts Options
	app  agent.App
}

func (s *agents) Close() error { return nil }

func (s *agents) Status() agent.ToolStatus { return agent.ToolStatus{State: agent.ServerReady} }

func (s *agents) Tools(ctx context.Context) ([]tools.Offer, error) {
	list, err := s.opts.Agents(ctx, s.app)
	if err != nil {
		return nil, err
	}
	out := make([]tools.Offer, 0, len(list))
	for _, a := range list {
		if len(a.Functions) == 0 {
			continue
		}
		input, err := json.Marshal(map[string]any{
			"type": "object", "required": []string{"function"}, "additionalProperties": false,
			"properties": map[string]any{
				"function": map[string]any{"enum": a.Functions},
				"input":    map[string]any{"description": "any JSON value: the function's one argument"},
				"key":      map[string]any{"type": "string", "description": "of the agent's instance whose method it is; a fresh cell unless given"},
			},
		})
		if err != nil {
			return nil, err
		}
		description := fmt.Sprintf("Call a function of the agent %s.", a.Name)
		if a.Description != "" {
			description += " " + strings.TrimSpace(a.Description)
		}
		out = append(out, tools.Offer{Declared: agent.Execute, Tool: agent.Tool{Method: a.Name, Description: description, Input: input}})
	}
	return out, nil
}

type agentArgs struct {
	Function string          `json:"function"`
	Input    json.RawMessage `json:"input"`
	Key      string          `json:"key"`
}

func (s *agents) Call(ctx context.Context, method string, raw json.RawMessage, o *tools.CallOptions) (agent.ToolResult, error) {
	var a agentArgs
	if err := decode(raw, &a); err != nil {
		return agent.ToolResult{}, tools.MarkUnsent(err)
	}
	if err := notSelf(method, o); err != nil {
		return agent.ToolResult{}, err
	}
	return callAgent(ctx, s.opts, s.app, method, a.Key, a.Function, a.Input, o)
}

func notSelf(name string, o *tools.CallOptions) error {
	if o != nil && o.For.Agent == name {
		return tools.MarkUnsent(&agent.Error{
			Kind: agent.Denied, Msg: fmt.Sprintf("the agent %s cannot call itself as a tool", name), Hint: "call the function directly",
		})
	}
	return nil
}

func callAgent(ctx context.Context, opts Options, app agent.App, name, key, function string, input json.RawMessage, o *tools.CallOptions) (agent.ToolResult, error) {
	depth := 0
	if o != nil {
		depth = o.Depth
	}
	in := agent.Payload{}
	if len(input) > 0 {
		in = agent.JSON(input)
	}
	out, err := opts.Call(ctx, app, name, key, function, in, depth+1)
	if err != nil {
		return agent.ToolResult{}, err
	}
	return payload(out)
}

// FunctionsOpener opens servers of kind AgentTools.
func FunctionsOpener(o Options) tools.Opener {
	return func(_ context.Context, s agent.ToolServer, _ func()) (tools.Source, error) {
		return &functions{opts: o, app: s.App, agent: s.Agent, since: time.Now()}, nil
	}
}

// functions are those of one agent that its plugin declares as tools.
type functions struct {
	opts  Options
	app   agent.App
	agent string
	since time.Time
}

func (s *functions) Close() error { return nil }

func (s *functions) Status() agent.ToolStatus {
	return agent.ToolStatus{State: agent.ServerReady, Since: s.since}
}

func (s *functions) Tools(ctx context.Context) ([]tools.Offer, error) {
	list, err := s.opts.Declared(ctx, s.app, s.agent)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, &agent.Error{
			Kind: agent.NotFound, Msg: fmt.Sprintf("the plugin of the agent %s declares no tools", s.agent),
			Hint: `declare them in skep.json: {"tools": {"FUNCTION": {"description": "...", "effect": "read"}}}`,
		}
	}
	return list, nil
}

// Call calls a function. What was not declared cannot be called, though the code may have it.
func (s *functions) Call(ctx context.Context, method string, args json.RawMessage, o *tools.CallOptions) (agent.ToolResult, error) {
	list, err := s.Tools(ctx)
	if err != nil {
		return agent.ToolResult{}, tools.MarkUnsent(err)
	}
	if !slices.ContainsFunc(list, func(t tools.Offer) bool { return t.Method == method }) {
		return agent.ToolResult{}, tools.MarkUnsent(agent.Errorf(agent.NotFound, "the agent %s declares no tool %q", s.agent, method))
	}
	if err := notSelf(s.agent, o); err != nil {
		return agent.ToolResult{}, err
	}
	return callAgent(ctx, s.opts, s.app, s.agent, "", method, args, o)
}
