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

// Target is what is called: a function of an agent, or a method of one of its instances.
type Target struct {
	Agent, Function string
	Key             string // of the instance; empty for a function
	Child           bool   // the instance is the caller's own
	Send            bool   // the call is a message, and has no answer
}

// Call calls a function or a method, as a caller of the given depth would.
type Call func(ctx context.Context, to Target, input agent.Payload, depth int) (agent.Payload, error)

// New returns the handler of abi.CallAgent for a cell that may do what auth says, itself called depth agents deep: 0 when a
// person or program called it. Instances of its own agent it may call without a grant.
func New(auth *grant.Authority, depth int, call Call) grant.Handler {
	return grant.JSON(func(ctx context.Context, in abi.AgentCall) (abi.AgentResult, error) {
		if in.Agent == "" && in.Key != "" {
			in.Agent = auth.Agent
		}
		if err := agent.CheckName("agent", in.Agent); err != nil {
			return abi.AgentResult{}, err
		}
		switch {
		case in.Function == "":
			return abi.AgentResult{}, agent.Errorf(agent.Invalid, "a call of agent %q must name a function", in.Agent)
		case in.Key == "" && (in.Child || in.Send):
			return abi.AgentResult{}, agent.Errorf(agent.Invalid, "a message, or a call of an instance of one's own, must name the instance's key")
		}
		if in.Key == "" || in.Agent != auth.Agent {
			if err := auth.CallAgent(ctx, in.Agent); err != nil {
				return abi.AgentResult{}, err
			}
		}
		if depth+1 > MaxDepth {
			return abi.AgentResult{}, agent.Errorf(agent.Exhausted,
				"agents call each other more than %d deep: %q is about to call %q; is there a cycle?", MaxDepth, auth.Agent, in.Agent)
		}
		if in.Type == "" {
			in.Type = agent.TypeJSON
		}
		to := Target{Agent: in.Agent, Function: in.Function, Key: in.Key, Child: in.Child, Send: in.Send}
		out, err := call(ctx, to, agent.Payload{Type: in.Type, Body: in.Input}, depth+1)
		if err != nil {
			return abi.AgentResult{}, err
		}
		return abi.AgentResult{Type: out.Type, Output: out.Body}, nil
	})
}
