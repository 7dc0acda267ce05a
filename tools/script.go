package tools

import (
	"encoding/json"
	"fmt"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/tools/code"
	"github.com/skep-dev/skep/tools/policy"
)

// Finding is something that is wrong with a script.
type Finding struct {
	Pos           agent.Pos
	Message, Hint string
	Fatal         bool
}

// WrapScript makes a script of code mode a module whose default export is called.
func WrapScript(text string) string { return code.Wrap(text) }

// CheckScript looks for calls of tools in a script that cannot be right: js is the bundled script, at finds places in the author's own.
func (c *Catalogue) CheckScript(list []agent.Tool, js []byte, at func(line, column int) (agent.Pos, bool)) []Finding {
	found := code.Check(js, at, list, code.NewNames(list))
	out := make([]Finding, len(found))
	for i, f := range found {
		out[i] = Finding(f)
	}
	return out
}

// CheckAnswer returns an Invalid error that says what is wrong with the answer to a question of a tool's server.
func (c *Catalogue) CheckAnswer(q agent.Question, content json.RawMessage) error {
	if len(q.Schema) == 0 {
		return nil
	}
	return c.validator.Validate(q.Schema, content)
}

// Covers returns an Invalid error unless a pattern of a standing answer covers a call that it is to answer.
func (c *Catalogue) Covers(pattern string, call agent.ApprovalCall) error {
	p, err := policy.ParsePattern(pattern)
	if err != nil {
		return err
	}
	args := call.Args
	if len(args) > 0 && args[0] == '"' { // too long to be there whole
		args = nil
	}
	if !p.Match(call.Tool, args) {
		return &agent.Error{
			Kind: agent.Invalid, Msg: fmt.Sprintf("the pattern %s does not cover the call of %s that is asked about", p, call.Tool), Hint: "write one that does, such as " + call.Tool,
		}
	}
	return nil
}
