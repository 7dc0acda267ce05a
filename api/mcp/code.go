package mcp

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/runtime"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/tools/code"
	"github.com/skep-dev/skep/tools/program"
)

// The tools of code mode. Names of other tools have a dot.
const (
	toolExecute   = "execute"
	toolProgram   = "program"
	toolSearch    = "search"
	toolDescribe  = "describe"
	toolRunResult = "run_result"
)

const executeText = `Runs a TypeScript or JavaScript script that calls tools. Write statements that may await and return, one function, or a module with a default
export. Tools are called as await tools.SERVER.METHOD({...}); several at once with Promise.all. A result is the tool's structured value, else its parsed
JSON, else its text; a failed call throws an error with kind and message. The script has no network and no files besides tools; input is the value given
as input. Only what it returns is shown, so do loops, filters and sums in the script, and return little. Find tools with search, and their types with
describe, before. Calls that need a person's approval make the script wait; nothing is done twice.`

const programText = `Runs a bounded program, which is JSON: steps that list, read, search, compare, repeat and decide by calling tools that only read, and change sets
of calls that may change things, which a person approves as a whole and which are taken back as a whole when one fails. For those who should not write
code; execute can do more. It is checked before its first step. Find tools with search before.`

// codeTools lists the tools of code mode.
func (d *door) codeTools(c content) {
	add := func(name, title, text, schema string, readOnly bool, handle sdk.ToolHandler) {
		yes, no := true, false
		a := &sdk.ToolAnnotations{Title: title, ReadOnlyHint: readOnly, IdempotentHint: readOnly, DestructiveHint: &yes, OpenWorldHint: &yes}
		if readOnly {
			a.DestructiveHint, a.OpenWorldHint = &no, &no
		}
		c.tools[name] = list(&sdk.Tool{Name: name, Title: title, Description: text, InputSchema: json.RawMessage(schema), Annotations: a}, handle)
	}
	add(toolExecute, "Run a script", strings.ReplaceAll(executeText, "\n", " "), `{"type":"object","properties":{
		"code":{"type":"string","description":"the script"},
		"input":{"description":"any JSON value, which the script has as input"},
		"tools":{"type":"array","items":{"type":"string"},"description":"only these: names, or SERVER.*; all that are granted unless given"}},
		"required":["code"],"additionalProperties":false}`, false, d.runs(d.startCode, d.codeResult))
	if schema, err := program.ArgsSchema(); err == nil && d.h.o.Tools != nil {
		add(toolProgram, "Run a program", strings.ReplaceAll(programText, "\n", " "), string(schema), false, d.runs(d.startProgram, d.codeResult))
	}
	add(toolSearch, "Search tools", "Finds tools by what they are called and what they do, best first: name, effect, and the first sentence of what each does.",
		`{"type":"object","properties":{
		"query":{"type":"string","description":"words"},
		"server":{"type":"string","description":"only tools of this server"},
		"effect":{"type":"string","enum":["read","modify","modify_execute","execute"],"description":"only tools that do no more than this"},
		"limit":{"type":"integer","minimum":1,"maximum":100,"description":"10 unless given"}},
		"required":["query"],"additionalProperties":false}`, true, d.search)
	add(toolDescribe, "Declare tools", "Declares tools in TypeScript, as a script of execute calls them.", `{"type":"object","properties":{
		"names":{"type":"array","items":{"type":"string"},"minItems":1,"maxItems":100,"description":"names of tools, or SERVER.*"},
		"level":{"type":"string","enum":["names","signatures","compact","full"],"description":"how much is said of each; compact unless given"}},
		"required":["names"],"additionalProperties":false}`, true, d.describeTools)
	add(toolRunResult, "Result of a run", "Waits for a run that has not ended when its call did, because it waited for a person or took long, and returns its result.",
		`{"type":"object","properties":{"run":{"type":"string","description":"the run's id"}},"required":["run"],"additionalProperties":false}`, true,
		d.runs(d.oldRun, d.codeResult))
}

// arguments reads the arguments of one of our own tools, strictly.
func arguments(args json.RawMessage, v any) error {
	dec := json.NewDecoder(strings.NewReader(string(args)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return agent.Errorf(agent.Invalid, "the arguments do not fit the tool's schema: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

func (d *door) startCode(ctx context.Context, args json.RawMessage) (agent.Run, error) {
	var in struct {
		Code  string          `json:"code"`
		Input json.RawMessage `json:"input"`
		Tools []string        `json:"tools"`
	}
	if err := arguments(args, &in); err != nil {
		return agent.Run{}, err
	}
	if strings.TrimSpace(in.Code) == "" {
		return agent.Run{}, agent.Errorf(agent.Invalid, "code is empty: give the script to run")
	}
	req := runtime.CodeRun{Agent: d.key.Agent, Text: in.Code, Tools: in.Tools}
	if in.Input != nil {
		req.Input = agent.JSON(in.Input)
	}
	run, _, err := d.h.rt.StartCode(ctx, d.key.app, req, store.Once{})
	return run, err
}

func (d *door) startProgram(ctx context.Context, args json.RawMessage) (agent.Run, error) {
	var in struct {
		Program json.RawMessage `json:"program"`
		Input   json.RawMessage `json:"input"`
	}
	if err := arguments(args, &in); err != nil {
		return agent.Run{}, err
	}
	p, err := program.Parse(in.Program)
	if err != nil {
		return agent.Run{}, err
	}
	if _, err := p.Resolve(func(name string) (agent.Tool, error) { return d.h.o.Tools.Resolve(ctx, d.key.app, name) }); err != nil {
		return agent.Run{}, err
	}
	input, err := p.Input(in.Input)
	if err != nil {
		return agent.Run{}, err
	}
	run, _, err := d.h.rt.StartCode(ctx, d.key.app, runtime.CodeRun{
		Agent: d.key.Agent, Text: program.Runner(), Tools: p.Tools(), Input: agent.JSON(input),
	}, store.Once{})
	return run, err
}

// oldRun returns a run of the door's agent.
func (d *door) oldRun(ctx context.Context, args json.RawMessage) (agent.Run, error) {
	var in struct {
		Run agent.RunID `json:"run"`
	}
	if err := arguments(args, &in); err != nil {
		return agent.Run{}, err
	}
	run, err := d.h.st.Run(ctx, d.key.app, in.Run)
	if err == nil && run.Agent != d.key.Agent {
		err = agent.Errorf(agent.NotFound, "there is no run %q of agent %s", in.Run, d.key.Agent)
	}
	return run, err
}

// maxShown is how much of a script's result a model is shown, in bytes.
const maxShown = 24 << 10

// codeResult shows what a script returned.
func (d *door) codeResult(ctx context.Context, f *follower, run agent.Run) *sdk.CallToolResult {
	res := &sdk.CallToolResult{Meta: sdk.Meta{"dev.skep/run": string(run.ID)}, Content: d.returned(ctx, run)}
	if f.logs.Len() > 0 {
		res.Content = append(res.Content, &sdk.TextContent{Text: f.printed()})
	}
	return res
}

func (d *door) returned(ctx context.Context, run agent.Run) []sdk.Content {
	if run.Output == nil || len(run.Output.Body) == 0 {
		return []sdk.Content{&sdk.TextContent{Text: "The script returned nothing."}}
	}
	if !run.Output.IsJSON() {
		return payloadContent(*run.Output)
	}
	shown, notice := code.Cap(run.Output.Body, maxShown, "what run "+string(run.ID)+" returned")
	text := textOf(shown)
	if notice != "" {
		text += "\n[" + notice + "]"
	}
	return append([]sdk.Content{&sdk.TextContent{Text: text}}, d.artifacts(ctx, run.Session, run.Output.Body)...)
}

func (d *door) granted() func(name string) bool {
	a := d.now().agent
	return func(name string) bool { return granted(a, name) }
}

func (d *door) search(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	args, err := object(req.Params.Arguments)
	if err != nil {
		return nil, err
	}
	var in struct {
		Query  string `json:"query"`
		Server string `json:"server"`
		Effect string `json:"effect"`
		Limit  int    `json:"limit"`
	}
	if err := arguments(args, &in); err != nil {
		return failed(err), nil
	}
	if d.h.o.Tools == nil {
		return failed(agent.Errorf(agent.NotFound, "this server has no tools")), nil
	}
	found, err := d.h.o.Tools.Search(ctx, d.key.app, abi.ToolQuery{Query: in.Query, Server: in.Server, Effect: in.Effect, Limit: min(max(in.Limit, 0), 100)}, d.granted())
	if err != nil {
		return failed(err), nil
	}
	if len(found.Tools) == 0 {
		return textResult("No tool was found. Use other words, or fewer."), nil
	}
	return textResult(code.Index(found)), nil
}

func (d *door) describeTools(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	args, err := object(req.Params.Arguments)
	if err != nil {
		return nil, err
	}
	var in struct {
		Names []string `json:"names"`
		Level string   `json:"level"`
	}
	if err := arguments(args, &in); err != nil {
		return failed(err), nil
	}
	if len(in.Names) == 0 || len(in.Names) > 100 {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "names has 1 to 100 entries"}
	}
	if d.h.o.Tools == nil {
		return failed(agent.Errorf(agent.NotFound, "this server has no tools")), nil
	}
	text, err := d.h.o.Tools.Describe(ctx, d.key.app, abi.ToolQuery{Names: in.Names, Level: in.Level}, d.granted())
	if err != nil {
		return failed(err), nil
	}
	return textResult(text), nil
}

func textResult(text string) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}}
}

// instructions tell a model how to use what is behind the door.
func (d *door) instructions() string {
	switch d.key.Kind {
	case Tools:
		return "Tools of Skep. Calls run under the policy of their operator: some wait until a person has approved them, some are refused with a reason."
	case Code, All:
		return "Skep runs scripts that call tools. To use several tools, or one many times, find them with search, read their types with describe, and write one " +
			"script for execute: intermediate results stay there and cost nothing. Calls run under the policy of their operator: some wait until a person has " +
			"approved them, some are refused with a reason. A call that says its run has not ended is continued with run_result; do not make it again."
	}
	return ""
}
