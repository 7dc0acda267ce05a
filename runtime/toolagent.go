package runtime

import (
	"context"

	"github.com/skep-dev/skep/agent"
	grantagent "github.com/skep-dev/skep/host/grant/agent"
)

// CallTool calls a function of an agent, or a method of its instance when key is not "", as a tool: for a caller that makes it the depth-th of agents that
// wait for each other.
func (r *Runtime) CallTool(ctx context.Context, app agent.App, name, key, function string, in agent.Payload, depth int) (agent.Payload, error) {
	if depth > grantagent.MaxDepth {
		return agent.Payload{}, agent.Errorf(agent.Exhausted, "agents call each other more than %d deep: %q is about to be called; is there a cycle?", grantagent.MaxDepth, name)
	}
	if key == "" {
		res, err := r.call(ctx, app, CallRequest{Agent: name, Function: function, Input: in}, depth)
		return res.Output, err
	}
	res, err := r.callInstance(ctx, app, InstanceCall{Agent: name, Key: key, Function: function, Input: in}, depth)
	return res.Output, err
}
