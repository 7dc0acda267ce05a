package runtime

import (
	"cmp"
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/plugins"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/tools/code"
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

// maxCodeTools is how many names a script's list of tools may have.
const maxCodeTools = 256

// codeMain is the file that a script of code mode is.
const codeMain = "main.ts"

// StartCode checks a script against the declarations of its tools and stores a run of it. What it finds wrong is an Invalid error with its place
// in the script, and nothing has been done.
func (r *Runtime) StartCode(ctx context.Context, app agent.App, req CodeRun, once store.Once) (agent.Run, bool, error) {
	req.Agent = cmp.Or(req.Agent, CodeAgent)
	if err := r.needCodeAgent(ctx, app, req.Agent); err != nil {
		return agent.Run{}, false, err
	}
	src, err := r.codeSource(ctx, app, req)
	if err != nil {
		return agent.Run{}, false, err
	}
	return r.startCode(ctx, app, req, src, once)
}

// codeSource returns what a script is run as, after it was checked.
func (r *Runtime) codeSource(ctx context.Context, app agent.App, req CodeRun) (agent.Source, error) {
	if len(req.Tools) > maxCodeTools {
		return agent.Source{}, agent.Errorf(agent.Invalid, "tools has %d entries, more than %d", len(req.Tools), maxCodeTools)
	}
	files := map[string][]byte{codeMain: []byte(code.Wrap(req.Text))}
	for name, text := range req.Files {
		if name == codeMain {
			return agent.Source{}, agent.Errorf(agent.Invalid, "files has %s, which is the name of the script itself", codeMain)
		}
		files[name] = []byte(text)
	}
	src := agent.Source{Kind: agent.Script, Main: codeMain, Files: files}
	if err := r.checkCode(ctx, app, req.Agent, src); err != nil {
		return src, inScript(src, err)
	}
	return src, nil
}

// codeFunction is what a script is, as a module.
const codeFunction = "default"

// startCode stores a run of a script that was checked.
func (r *Runtime) startCode(ctx context.Context, app agent.App, req CodeRun, src agent.Source, once store.Once) (agent.Run, bool, error) {
	digest, err := r.keepCode(ctx, src)
	if err != nil {
		return agent.Run{}, false, err
	}
	return r.start(ctx, app, RunRequest{
		Agent: req.Agent, Function: codeFunction, Session: req.Session, Input: req.Input, code: digest, tools: slices.Clone(req.Tools),
	}, once)
}

// keepCode stores a script.
func (r *Runtime) keepCode(ctx context.Context, src agent.Source) (agent.Digest, error) {
	body, err := plugins.Pack(src.Files)
	if err != nil {
		return "", err
	}
	digest, err := r.store.PutBlob(ctx, body)
	if err == nil {
		r.sources.put(digest, src)
	}
	return digest, err
}

// needCodeAgent makes the agent of scripts that name none, where it is not there yet.
func (r *Runtime) needCodeAgent(ctx context.Context, app agent.App, name string) error {
	_, _, err := r.records.agent(ctx, r.store, recordKey{app, name})
	if name != CodeAgent || agent.KindOf(err) != agent.NotFound || err == nil {
		return err
	}
	_, _, err = r.CreateAgent(ctx, agent.Agent{
		App: app, Name: CodeAgent, Description: "runs scripts of code mode that name no agent",
		Grants: agent.Grants{Tools: []agent.NamedGrant{{Name: "*"}}},
	}, store.Once{})
	if agent.KindOf(err) == agent.Exists {
		return nil
	}
	return err
}

// checkCode looks for what is wrong with a script before it does anything.
func (r *Runtime) checkCode(ctx context.Context, app agent.App, name string, src agent.Source) error {
	b, err := r.cells.Bundle(ctx, host.Who{App: app, Agent: name, Weight: r.weight(ctx, app)}, src)
	if err != nil || r.opts.Tools == nil {
		return err
	}
	found, err := r.opts.Tools.CheckScript(ctx, app, b.JS, b.At)
	if err != nil {
		return err
	}
	found = slices.DeleteFunc(found, func(f code.Finding) bool { return !f.Fatal })
	if len(found) == 0 {
		return nil
	}
	first := found[0]
	e := &agent.Error{Kind: agent.Invalid, Msg: first.Message, Hint: first.Hint, Pos: first.Pos}
	for _, more := range found[1:min(len(found), maxFindings)] {
		e.Msg += "\n" + more.Pos.String() + ": " + more.Message
	}
	return e
}

// maxFindings is how many mistakes of a script are told at once.
const maxFindings = 10

// placeRE finds places of a script in texts of ours.
var placeRE = regexp.MustCompile(`\bmain\.ts:(\d+):(\d+)`)

// inScript says an error's place in the script as its author wrote it, and not in the module that was made of it.
func inScript(src agent.Source, err error) error {
	e := agent.AsError(err)
	if e == nil || e.Kind != agent.Invalid && e.Pos.File != codeMain && e.Stack == "" {
		return err
	}
	_, at := code.Unwrap(string(src.Files[codeMain]))
	out := *e
	if out.Pos.File == codeMain {
		out.Pos = at(out.Pos)
	}
	places := func(text string) string {
		return placeRE.ReplaceAllStringFunc(text, func(place string) string {
			m := placeRE.FindStringSubmatch(place)
			line, _ := strconv.Atoi(m[1])
			column, _ := strconv.Atoi(m[2])
			return at(agent.Pos{File: codeMain, Line: line, Column: column}).String()
		})
	}
	if out.Stack = places(out.Stack); out.Kind == agent.Invalid { // else the message is the script's own
		out.Msg = places(out.Msg)
	}
	return &out
}

// ToolRun asks for a run that calls one tool.
type ToolRun struct {
	Agent   string // CodeAgent unless given
	Tool    string
	Args    json.RawMessage
	Session agent.SessionID
}

// callTool is the script of a run that calls one tool.
const callTool = `export default ({ tool, args }) => tools.call(tool, args);
`

// StartTool stores a run that calls one tool, with grants, policy, approval and journal as in a script. The run's output is the tool's
// result.
func (r *Runtime) StartTool(ctx context.Context, app agent.App, req ToolRun, once store.Once) (agent.Run, bool, error) {
	if r.opts.Tools == nil {
		return agent.Run{}, false, agent.Errorf(agent.Denied, "this server has no tools")
	}
	args, err := argsOf([]byte(req.Args))
	if err != nil {
		return agent.Run{}, false, err
	}
	tool, err := r.opts.Tools.Resolve(ctx, app, req.Tool)
	if err != nil {
		return agent.Run{}, false, err
	}
	name := cmp.Or(req.Agent, CodeAgent)
	if err := r.needCodeAgent(ctx, app, name); err != nil {
		return agent.Run{}, false, err
	}
	src := agent.Source{Kind: agent.Script, Main: codeMain, Files: map[string][]byte{codeMain: []byte(callTool)}}
	return r.startCode(ctx, app, CodeRun{
		Agent: name, Session: req.Session, Tools: []string{tool.Name}, Input: agent.JSON(encode(map[string]any{"tool": tool.Name, "args": args})),
	}, src, once)
}

// kindOf returns what kind of code a run is of.
func (r *Runtime) kindOf(ctx context.Context, run agent.Run) (agent.CodeKind, error) {
	if run.Code {
		return agent.Script, nil
	}
	p, err := r.records.plugin(ctx, r.store, recordKey{run.App, string(run.Plugin)})
	if err != nil {
		return agent.UnknownCode, err
	}
	return p.Kind, nil
}

// runCode runs a run's code in a cell.
func (r *Runtime) runCode(ctx context.Context, run agent.Run, c host.Call) (host.Result, error) {
	if !run.Code {
		return r.cells.Call(ctx, c)
	}
	src, err := r.sources.get(ctx, r, run.Plugin)
	if err != nil {
		return host.Result{}, err
	}
	res, err := r.cells.Eval(ctx, src, c)
	return res, inScript(src, err)
}

// codeImage stands for the code of scripts of code mode where images are named by code: their cells are made from the engine's own.
const codeImage agent.Digest = "code"

// imageOf names the code whose image a run's snapshots are of.
func (x *execution) imageOf() agent.Digest {
	if x.run.Code {
		return codeImage
	}
	return x.run.Plugin
}

// errNoCode says of an agent that it has no code of its own.
func errNoCode(a *agent.Agent) error {
	if a.Sandbox != nil && a.Sandbox.CLI != "" {
		return errNoFunctions(a)
	}
	return &agent.Error{
		Kind: agent.NotFound, Msg: "agent \"" + a.Name + "\" has no code of its own: it runs scripts that it is given",
		Hint: "skep code FILE --agent " + a.Name + " --tools '*'",
	}
}

// noPlugin stands for the code of an agent that has none.
var noPlugin = &agent.Plugin{Kind: agent.Script}
