package client

import (
	"context"
	"encoding/json"

	"github.com/skep-dev/skep/agent"
)

// NewSession is a session to open.
type NewSession struct {
	Agent string `json:"agent"`
	Key   string `json:"key,omitempty"`
	Title string `json:"title,omitempty"`
}

// CreateSession opens a session.
func (c *Client) CreateSession(ctx context.Context, s NewSession) (out agent.Session, err error) {
	return out, c.do(ctx, "POST", path("sessions"), once(), s, &out)
}

// Sessions lists sessions, newest first; with agentName only those with that agent.
func (c *Client) Sessions(ctx context.Context, agentName string, p agent.Page) (List[agent.Session], error) {
	q := pageQuery(p)
	q["agent"] = agentName
	return get[List[agent.Session]](ctx, c, path("sessions")+q.encode())
}

// Session returns a session.
func (c *Client) Session(ctx context.Context, id agent.SessionID) (agent.Session, error) {
	return get[agent.Session](ctx, c, path("sessions", string(id)))
}

// Send sends a message, which starts a run. An empty role means "user".
func (c *Client) Send(ctx context.Context, id agent.SessionID, m agent.Message) (out agent.Run, err error) {
	in := struct {
		Role    string          `json:"role,omitempty"`
		Content json.RawMessage `json:"content"`
	}{m.Role, m.Content}
	return out, c.do(ctx, "POST", path("sessions", string(id), "messages"), once(), in, &out)
}

// NewRun is a run to start. Without a session it gets one of its own. Input is any JSON value; nil means null.
type NewRun struct {
	Agent    string          `json:"agent,omitempty"`
	Function string          `json:"function,omitempty"`
	Session  agent.SessionID `json:"session,omitempty"`
	Key      string          `json:"key,omitempty"`
	Input    json.RawMessage `json:"input,omitempty"`
}

// StartRun starts a run and returns while it is queued.
func (c *Client) StartRun(ctx context.Context, r NewRun) (out agent.Run, err error) {
	return out, c.do(ctx, "POST", path("runs"), once(), r, &out)
}

// RunFilter picks runs; zero fields pick all.
type RunFilter struct {
	Agent   string
	Session agent.SessionID
	Status  agent.RunStatus
}

// Runs lists runs, newest first. A page may be short before the end: only an empty Next ends the list.
func (c *Client) Runs(ctx context.Context, f RunFilter, p agent.Page) (List[agent.Run], error) {
	q := pageQuery(p)
	q["agent"], q["session"] = f.Agent, string(f.Session)
	if f.Status != agent.UnknownStatus {
		q["status"] = f.Status.String()
	}
	return get[List[agent.Run]](ctx, c, path("runs")+q.encode())
}

// Run returns a run.
func (c *Client) Run(ctx context.Context, id agent.RunID) (agent.Run, error) {
	return get[agent.Run](ctx, c, path("runs", string(id)))
}

// CancelRuns cancels runs and returns them, ended, in the order of ids. Runs that had ended before stay as they are.
func (c *Client) CancelRuns(ctx context.Context, ids ...agent.RunID) ([]agent.Run, error) {
	var out List[agent.Run]
	err := c.do(ctx, "POST", path("runs", "cancel"), nil, map[string]any{"ids": ids}, &out)
	return out.Items, err
}

// Code is code to run: sealed and once, or, when it has tools, as a durable run of an agent. Language is "ts" (the default), "js" or, without
// tools, "python".
type Code struct {
	Code     string            `json:"code"`
	Language string            `json:"language,omitempty"`
	Files    map[string]string `json:"files,omitempty"`
	Function string            `json:"function,omitempty"`
	Input    json.RawMessage   `json:"input,omitempty"`
	Config   map[string]string `json:"config,omitempty"`
	Limits   agent.Limits      `json:"limits,omitzero"`

	Tools   []string        `json:"tools,omitzero"`    // that it may call: names, SERVER.*, or *
	Agent   string          `json:"agent,omitempty"`   // that it runs for; "code" unless given
	Session agent.SessionID `json:"session,omitempty"` // of that agent; a new one unless given
	Wait    *int            `json:"wait,omitempty"`    // seconds that the answer waits for the run's end; 60 unless given
	Tokens  int             `json:"max_tokens,omitempty"`
}

// CodeResult is what code returned, printed and cost. What is below Usage is of code with tools, which may not have ended.
type CodeResult struct {
	Output *agent.Payload  `json:"output"` // nil when it failed or has not ended
	Logs   []agent.LogLine `json:"logs"`
	Usage  agent.Usage     `json:"usage"`

	Run     agent.RunID      `json:"run,omitempty"`
	Session agent.SessionID  `json:"session,omitempty"`
	Status  agent.RunStatus  `json:"status,omitzero"`
	Error   *agent.RunError  `json:"error,omitempty"`
	Calls   []agent.ToolUse  `json:"calls,omitempty"`
	Asks    []agent.Approval `json:"approvals,omitempty"`
	More    int              `json:"more,omitempty"`
	Reply   json.RawMessage  `json:"reply,omitempty"` // with Tokens: all that a model is to know, in place of what is above
}

// RunCode runs code. Of code without tools nothing is kept.
func (c *Client) RunCode(ctx context.Context, code Code) (out CodeResult, err error) {
	var h header
	if code.Tools != nil || code.Agent != "" {
		h = once()
	}
	return out, c.do(ctx, "POST", path("code"), h, code, &out)
}

// Ready returns nil when the server takes requests.
func (c *Client) Ready(ctx context.Context) error {
	return c.do(ctx, "GET", "/readyz", nil, nil, nil)
}
