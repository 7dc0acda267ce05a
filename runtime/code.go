package runtime

import (
	"context"
	"encoding/json"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
)

// CodeAgent is the agent that scripts of code mode run for when they name none. It is made when it is first needed, with a grant of
// every tool of its app: what its calls may do is for the policy to say.
const CodeAgent = "code"

// CodeRun asks for a run of a script of code mode. Text is the script: a module with a default export, one function, or statements that
// may await and return.
type CodeRun struct {
	Agent   string // CodeAgent unless given
	Text    string
	Files   map[string]string // further modules that it imports
	Tools   []string          // of those that the agent is granted: names, or SERVER.*; nil means all
	Input   agent.Payload
	Session agent.SessionID // one of its own unless given
}

// StartCode checks a script against the declarations of its tools and stores a run of it. What it finds wrong is an Invalid error with its place
// in the script, and nothing has been done.
func (r *Runtime) StartCode(ctx context.Context, app agent.App, req CodeRun, once store.Once) (agent.Run, bool, error) {
	return agent.Run{}, false, agent.Errorf(agent.Unavailable, "there is no code mode yet")
}

// ToolRun asks for a run that calls one tool.
type ToolRun struct {
	Agent   string // CodeAgent unless given
	Tool    string
	Args    json.RawMessage
	Session agent.SessionID
}

// StartTool stores a run that calls one tool, with grants, policy, approval and journal as in a script. The run's output is the tool's
// result.
func (r *Runtime) StartTool(ctx context.Context, app agent.App, req ToolRun, once store.Once) (agent.Run, bool, error) {
	return agent.Run{}, false, agent.Errorf(agent.Unavailable, "there is no code mode yet")
}
