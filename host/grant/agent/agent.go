// Package agent grants calls of other agents of the same app.
package agent

import (
	"context"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/grant"
)

// MaxDepth is how deep agents may call each other. It ends cycles.
const MaxDepth = 8

// Call calls a function of the agent called name, as a caller of the given depth would.
type Call func(ctx context.Context, name, function string, input agent.Payload, depth int) (agent.Payload, error)

// New returns the handler of abi.CallAgent for a cell that may do what auth says, itself called depth agents deep: 0 when a
// person or program called it.
func New(auth *grant.Authority, depth int, call Call) grant.Handler {
	return grant.JSON(func(ctx context.Context, in abi.AgentCall) (abi.AgentResult, error) {
		if err := agent.CheckName("agent", in.Agent); err != nil {
			return abi.AgentResult{}, err
		}
		if in.Function == "" {
			return abi.AgentResult{}, agent.Errorf(agent.Invalid, "a call of agent %q must name a function", in.Agent)
		}
		if err := auth.CallAgent(ctx, in.Agent); err != nil {
			return abi.AgentResult{}, err
		}
		if depth+1 > MaxDepth {
			return abi.AgentResult{}, agent.Errorf(agent.Exhausted,
				"agents call each other more than %d deep: %q is about to call %q; is there a cycle?", MaxDepth, auth.Agent, in.Agent)
		}
		if in.Type == "" {
			in.Type = agent.TypeJSON
		}
		out, err := call(ctx, in.Agent, in.Function, agent.Payload{Type: in.Type, Body: in.Input}, depth+1)
		if err != nil {
			return abi.AgentResult{}, err
		}
		return abi.AgentResult{Type: out.Type, Output: out.Body}, nil
	})
}
