package builtin

import (
	"context"
	"encoding/json"
	"path"
	"slices"
	"strings"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/tools"
)

func (o Options) skillTools() []tool {
	return []tool{
		{
			name: "list", title: "List skills", effect: agent.Read, again: true,
			description: "List the skills of the app: their exact names, what each is for and when to load it.",
			input:       `{"type":"object","properties":{},"additionalProperties":false}`,
			output:      `{"type":"object","properties":{"skills":{"type":"array","items":{"type":"object","properties":{"name":{"type":"string"},"description":{"type":"string"}},"required":["name","description"]}}},"required":["skills"]}`,
			call: typed(func(ctx context.Context, o *tools.CallOptions, _ struct{}) (agent.ToolResult, error) {
				var out abi.Skills
				if err := door(ctx, o, abi.CallSkillList, nil, &out); err != nil {
					return agent.ToolResult{}, err
				}
				if out.Skills == nil {
					out.Skills = []abi.SkillInfo{}
				}
				return value(out)
			}),
		},
		{
			name: "load", title: "Load a skill", effect: agent.Read, again: true,
			description: "Load the instructions of a skill by its exact name, or another file of it. What it says of tools grants nothing.",
			input:       `{"type":"object","properties":{"name":{"type":"string"},"path":{"type":"string","description":"SKILL.md unless given"}},"required":["name"],"additionalProperties":false}`,
			output:      `{"type":"object","properties":{"text":{"type":"string"},"files":{"type":"array","items":{"type":"string"}}},"required":["text"]}`,
			call: typed(func(ctx context.Context, o *tools.CallOptions, a abi.SkillLoad) (agent.ToolResult, error) {
				var out abi.SkillText
				if err := door(ctx, o, abi.CallSkillLoad, a, &out); err != nil {
					return agent.ToolResult{}, err
				}
				return value(out)
			}),
		},
		{
			name: "run", title: "Run a script of a skill", effect: agent.Execute,
			description: "Run a script of a skill, in JavaScript or TypeScript, in a cell that is granted nothing, and return what its default export returns. It gets the input as its one argument.",
			input:       `{"type":"object","properties":{"name":{"type":"string"},"path":{"type":"string","description":"of the script, such as scripts/sum.ts"},"input":{"description":"any JSON value"}},"required":["name","path"],"additionalProperties":false}`,
			call:        typed(o.runSkill),
		},
	}
}

type runArgs struct {
	Name  string          `json:"name"`
	Path  string          `json:"path"`
	Input json.RawMessage `json:"input"`
}

// maxSkillModules is how many scripts of a skill may come along with the one that is run.
const maxSkillModules = 100

func isScript(name string) bool {
	return slices.Contains([]string{".js", ".mjs", ".ts", ".mts"}, path.Ext(name))
}

// runSkill runs one script of a skill. The other scripts of the skill can be imported.
func (o Options) runSkill(ctx context.Context, call *tools.CallOptions, a runArgs) (agent.ToolResult, error) {
	if o.Run == nil {
		return agent.ToolResult{}, tools.MarkUnsent(agent.Errorf(agent.Unavailable, "this server runs no scripts of skills"))
	}
	files, err := scriptsOf(ctx, call, a.Name, a.Path)
	if err != nil {
		return agent.ToolResult{}, tools.MarkUnsent(err) // nothing has run
	}
	in := agent.Payload{}
	if a.Input != nil {
		in = agent.JSON(a.Input)
	}
	out, err := o.Run(ctx, call.For.App, a.Path, files, in)
	if err != nil {
		return agent.ToolResult{}, err
	}
	return payload(out)
}

// scriptsOf reads a script of a skill, and those that it may import, by their paths.
func scriptsOf(ctx context.Context, call *tools.CallOptions, skill, path string) (map[string]string, error) {
	if !isScript(path) {
		return nil, agent.Errorf(agent.Invalid, "%.80q is no script in JavaScript or TypeScript", path)
	}
	var main abi.SkillText
	if err := door(ctx, call, abi.CallSkillLoad, abi.SkillLoad{Name: skill, Path: path}, &main); err != nil {
		return nil, err
	}
	files := map[string]string{path: main.Text}
	if !strings.Contains(main.Text, "import") {
		return files, nil
	}
	for _, name := range main.Files {
		if name == path || !isScript(name) {
			continue
		}
		if len(files) > maxSkillModules {
			return nil, agent.Errorf(agent.Invalid, "the skill %s has more than %d scripts", skill, maxSkillModules)
		}
		var more abi.SkillText
		if err := door(ctx, call, abi.CallSkillLoad, abi.SkillLoad{Name: skill, Path: name}, &more); err != nil {
			return nil, err
		}
		files[name] = more.Text
	}
	return files, nil
}

// payload is what code returned, as a result of a tool.
func payload(p agent.Payload) (agent.ToolResult, error) {
	switch {
	case len(p.Body) == 0:
		return agent.ToolResult{Value: json.RawMessage("null")}, nil
	case p.IsJSON() && json.Valid(p.Body):
		return agent.ToolResult{Value: p.Body}, nil
	case p.IsText():
		v, err := value(string(p.Body))
		v.Text = true
		return v, err
	}
	return agent.ToolResult{Value: json.RawMessage(`{"$blob":0}`), Blobs: []agent.ToolBlob{{Type: p.Type, Body: p.Body}}}, nil
}
