package runtime

import (
	"context"
	_ "embed"
	"strings"

	"github.com/skep-dev/skep/agent"
)

// worker is the script that is run for agents whose work a CLI does.
//
//go:embed worker.ts
var worker []byte

// worksByCLI reports whether an agent has no code, and a CLI that works in a sandbox.
func worksByCLI(rec record) bool {
	return rec.plugin == noPlugin && rec.agent.Sandbox != nil && rec.agent.Sandbox.CLI != ""
}

// workerCode returns the script for a run of an agent whose work a CLI does, and the function of it; "" for other agents. Such an agent has no functions of
// its own.
func (r *Runtime) workerCode(ctx context.Context, rec record, function string) (agent.Digest, error) {
	if !worksByCLI(rec) {
		return "", nil
	}
	if function != "" && function != codeFunction && function != "onMessage" {
		return "", errNoFunctions(rec.agent)
	}
	return r.keepCode(ctx, agent.Source{Kind: agent.Script, Main: codeMain, Files: map[string][]byte{codeMain: worker}})
}

// asWorker returns the error of a run as who has given a CLI its task is to see it: of the kind of what has failed. The code that threw it is ours.
func (x *execution) asWorker(err error) error {
	e := agent.AsError(err)
	if !x.run.Code || !worksByCLI(x.rec) || e == nil || e.Kind != agent.Failed || e.Given == agent.Internal {
		return err
	}
	return &agent.Error{Kind: e.Given, Msg: strings.TrimPrefix(e.Msg, "SkepError: "), Hint: e.Hint, Err: err}
}

func errNoFunctions(a *agent.Agent) error {
	return &agent.Error{
		Kind: agent.Invalid, Msg: "agent \"" + a.Name + "\" has no functions that could be called: " + a.Sandbox.CLI + " does its work, in a sandbox",
		Hint: "give it a task: skep run " + a.Name + " \"TASK\"",
	}
}
