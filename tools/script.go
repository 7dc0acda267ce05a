package tools

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/tools/code"
	"github.com/skep-dev/skep/tools/policy"
)

// CheckScript looks for calls of an app's tools in a script that cannot be right: js is the bundled script, at finds places in the author's own.
func (c *Catalogue) CheckScript(ctx context.Context, app agent.App, js []byte, at func(line, column int) (agent.Pos, bool)) ([]code.Finding, error) {
	x, err := c.indexOf(ctx, app)
	if err != nil {
		return nil, err
	}
	return code.Check(js, at, x.list, x.names), nil
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
