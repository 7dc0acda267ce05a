package builtin

import (
	"context"
	"encoding/json"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/tools"
)

// CLI is the server whose tools stand for what a command-line agent in a sandbox asks to be allowed. They do nothing: that they may be called is the answer,
// and the CLI does the rest itself.
const CLI = "cli"

const cliOutput = `{"type":"object","properties":{"allowed":{"type":"boolean"}},"required":["allowed"]}`

func cliTools() []tool {
	one := func(name, title string, effect agent.Effect, description, properties string) tool {
		return tool{
			name: name, title: title, effect: effect, again: true, hidden: true, description: description, output: cliOutput,
			input: `{"type":"object","properties":` + properties + `}`, call: allowed,
		}
	}
	return []tool{
		one("run", "Run a command in a sandbox", agent.Execute, "What a command-line agent in a sandbox asks before it runs a command.",
			`{"command":{"type":"string","description":"as a shell has it"},"cwd":{"type":"string"}}`),
		one("edit", "Change a file in a sandbox", agent.Modify, "What a command-line agent in a sandbox asks before it changes or makes files.",
			`{"path":{"type":"string"},"paths":{"type":"array","items":{"type":"string"}}}`),
		one("read", "Read a file in a sandbox", agent.Read, "What a command-line agent in a sandbox asks before it reads a file.",
			`{"path":{"type":"string"}}`),
		one("fetch", "Reach the network from a sandbox", agent.ModifyExecute, "What a command-line agent in a sandbox asks before it reaches a URL.",
			`{"url":{"type":"string"}}`),
		one("tool", "Use a tool of a command-line agent", agent.Execute, "What a command-line agent in a sandbox asks before it uses any other tool of its own.",
			`{"tool":{"type":"string"},"input":{}}`),
	}
}

func allowed(context.Context, *tools.CallOptions, json.RawMessage) (agent.ToolResult, error) {
	return value(map[string]bool{"allowed": true})
}
