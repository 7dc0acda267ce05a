// Package program checks bounded programs: JSON that lists, reads, searches, compares, repeats and decides by calling tools, and changes things
// only in change sets that are approved as a whole and taken back as a whole. Models that should not write code can write these. A program is
// run by the script runner.ts, as a run of code mode, so all that holds for scripts holds for it.
package program

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/skep-dev/skep/agent"
)

// Bounds of a program as it is written.
const (
	MaxBytes   = 256 << 10
	MaxWritten = 500 // steps
	MaxDepth   = 8   // blocks within blocks
	MaxNesting = 64  // of JSON values
)

// Bounds of a program that runs.
const (
	MaxSteps  = 1000      // that are run
	MaxRounds = 200       // of one repeat
	MaxCalls  = 256       // of one change set
	MaxText   = 1 << 20   // characters of a text that a template makes
	MaxOutput = 256 << 10 // bytes of what is returned
	maxLines  = 20_000    // of a text that is compared
	maxEdits  = 1000      // lines that a diff looks for; more are shown as one change
)

//go:embed runner.ts
var runner string

//go:embed schema.json
var schema []byte

// Runner is the script that runs programs: a module with a default export, which takes Program.Input.
func Runner() string { return runner }

// Schema is the JSON Schema (2020-12) of a program. It says what the parts are; Parse checks besides that references lead somewhere.
func Schema() []byte { return bytes.Clone(schema) }

// ArgsSchema is the JSON Schema of a tool that takes a program and its input.
func ArgsSchema() (json.RawMessage, error) {
	var whole map[string]json.RawMessage
	if err := json.Unmarshal(schema, &whole); err != nil {
		return nil, err
	}
	defs := whole["$defs"] // which are referred to from the root
	delete(whole, "$defs")
	delete(whole, "$schema")
	return json.Marshal(map[string]any{
		"type": "object", "required": []string{"program"}, "additionalProperties": false, "$defs": defs,
		"properties": map[string]any{
			"program": whole, "input": map[string]string{"description": "any JSON value; the program refers to it as ${input}"},
		},
	})
}

// Program is a program that Parse found to be right. It does not change.
type Program struct {
	text    json.RawMessage
	calls   []Call
	written int
}

// Call is a place of a program that calls a tool.
type Call struct {
	At     string // JSON Pointer (RFC 6901) of it in the program
	Tool   string
	Change bool // it is in a change set
}

// Calls lists the places that call tools, in the order in which they stand.
func (p *Program) Calls() []Call { return p.calls }

// Steps is how many steps are written in it.
func (p *Program) Steps() int { return p.written }

// Tools lists the tools that it names, sorted, each once.
func (p *Program) Tools() []string {
	names := []string{}
	for _, c := range p.calls {
		names = append(names, c.Tool)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// CheckEffects returns an Invalid error that names each step that would change something outside of a change set; effect says what a tool
// can do, and its error ends the check.
func (p *Program) CheckEffects(effect func(tool string) (agent.Effect, error)) error {
	var wrong []string
	for _, c := range p.calls {
		e, err := effect(c.Tool)
		if err != nil {
			if known := agent.AsError(err); known.Kind == agent.NotFound {
				return &agent.Error{Kind: agent.Invalid, Msg: c.At + "/tool: " + known.Msg, Hint: known.Hint, Err: err}
			}
			return err
		}
		if !c.Change && e.Grade() != agent.Read {
			wrong = append(wrong, fmt.Sprintf("%s/tool: the effect of %s is %s, and outside of a change_set tools only read", c.At, c.Tool, e))
		}
	}
	return mistakes(wrong, "put such calls into a change_set, which a person approves as a whole")
}

// Resolve is CheckEffects with the tools that there are, which resolve finds by name. It returns the effects of those that the program names.
func (p *Program) Resolve(resolve func(name string) (agent.Tool, error)) (map[string]agent.Effect, error) {
	effects := map[string]agent.Effect{}
	return effects, p.CheckEffects(func(name string) (agent.Effect, error) {
		if e, ok := effects[name]; ok {
			return e, nil
		}
		t, err := resolve(name)
		if err == nil && t.Name != name {
			err = agent.Errorf(agent.NotFound, "the name of this tool is %s", t.Name)
		}
		if err == nil {
			effects[name] = t.Effect
		}
		return t.Effect, err
	})
}

// Input is what Runner takes: the program and its input, nil for null.
func (p *Program) Input(input json.RawMessage) (json.RawMessage, error) {
	if input == nil {
		input = json.RawMessage("null")
	}
	return json.Marshal(map[string]any{
		"program": p.text, "input": input, "tools": p.Tools(),
		"limits": map[string]int{
			"steps": MaxSteps, "rounds": MaxRounds, "calls": MaxCalls, "text": MaxText, "output": MaxOutput, "lines": maxLines, "edits": maxEdits,
		},
	})
}

// maxMistakes is how many mistakes are told at once.
const maxMistakes = 10

func mistakes(all []string, hint string) error {
	switch len(all) {
	case 0:
		return nil
	case 1:
		return &agent.Error{Kind: agent.Invalid, Msg: "the program is not right at " + all[0], Hint: hint}
	}
	head := fmt.Sprintf("the program is not right at %d places:", len(all))
	if len(all) > maxMistakes {
		all = append(all[:maxMistakes:maxMistakes], "...")
	}
	return &agent.Error{Kind: agent.Invalid, Msg: head + "\n" + strings.Join(all, "\n"), Hint: hint}
}
