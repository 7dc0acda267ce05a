package client

import (
	"context"
	"encoding/json"

	"github.com/skep-dev/skep/agent"
)

// Program is a bounded program to run. Input is any JSON value; nil means null.
type Program struct {
	Program json.RawMessage `json:"program"`
	Input   json.RawMessage `json:"input,omitempty"`
	Agent   string          `json:"agent,omitempty"` // that it runs for; "code" unless given
	Session agent.SessionID `json:"session,omitempty"`
	Wait    *int            `json:"wait,omitempty"` // seconds that the answer waits for the run's end; 60 unless given
	Tokens  int             `json:"max_tokens,omitempty"`
}

// CheckedProgram is what is known of a program before it runs.
type CheckedProgram struct {
	Steps int `json:"steps"`
	Tools []struct {
		Name   string       `json:"name"`
		Effect agent.Effect `json:"effect"`
	} `json:"tools"`
}

// RunProgram runs a program, which is checked before.
func (c *Client) RunProgram(ctx context.Context, p Program) (out CodeResult, err error) {
	return out, c.do(ctx, "POST", path("programs"), once(), p, &out)
}

// CheckProgram checks a program against the tools that the app has, and runs nothing.
func (c *Client) CheckProgram(ctx context.Context, text json.RawMessage) (out CheckedProgram, err error) {
	return out, c.do(ctx, "POST", path("programs", "check"), nil, map[string]any{"program": text}, &out)
}
