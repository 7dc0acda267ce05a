package client

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/skep-dev/skep/agent"
)

// Policy is a policy of an app. Revision 0 is that of an app that has set none.
type Policy struct {
	Revision int           `json:"revision"`
	Text     string        `json:"text"`
	By       agent.TokenID `json:"by,omitempty"`
	Created  time.Time     `json:"created,omitzero"`
}

// PolicyRevision is a policy without its text.
type PolicyRevision struct {
	Revision int           `json:"revision"`
	By       agent.TokenID `json:"by,omitempty"`
	Created  time.Time     `json:"created"`
	Bytes    int           `json:"bytes"`
	Current  bool          `json:"current,omitempty"`
}

// PolicyText is a policy to look at; an empty one stands for the app's own. File is what it is called in answers.
type PolicyText struct {
	Text string `json:"text,omitempty"`
	File string `json:"file,omitempty"`
}

// PolicyFailure is an example of a policy that does not come out as it says.
type PolicyFailure struct {
	From    string `json:"from"`
	Example string `json:"example"`
	Rule    string `json:"rule,omitempty"`
	Want    string `json:"want"`
	Got     string `json:"got"`
	Reason  string `json:"reason,omitempty"`
}

// PolicyTested is what became of a policy's examples.
type PolicyTested struct {
	Examples int             `json:"examples"`
	Failed   []PolicyFailure `json:"failed"`
}

// PolicyFinding is something in a policy that is probably not meant.
type PolicyFinding struct {
	From    string `json:"from"`
	Rule    string `json:"rule"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// PolicyLinted is what was found, and with how many tools the policy was compared.
type PolicyLinted struct {
	Tools    int             `json:"tools"`
	Findings []PolicyFinding `json:"findings"`
}

// PolicyCall is a call to be judged. Effect is that of the tool unless it is given.
type PolicyCall struct {
	PolicyText
	Tool       string          `json:"tool"`
	Args       json.RawMessage `json:"args,omitempty"`
	Agent      string          `json:"agent,omitempty"`
	Effect     *agent.Effect   `json:"effect,omitempty"`
	Unattended bool            `json:"unattended,omitempty"`
}

// PolicyStep is what one rule said of a call.
type PolicyStep struct {
	Rule    string        `json:"rule"`
	From    string        `json:"from"`
	Verdict agent.Verdict `json:"verdict"`
	Match   string        `json:"match"`
	Why     string        `json:"why,omitempty"`
}

// PolicyExplained is what becomes of a call, and why.
type PolicyExplained struct {
	Decision agent.Decision `json:"decision"`
	Steps    []PolicyStep   `json:"steps"`
	Parts    []string       `json:"parts,omitempty"`
	Known    bool           `json:"known"`
	Budgets  []PolicyBudget `json:"budgets,omitempty"`
}

// PolicyBudget is a budget that a call would count for. Calls is how many count now; nil for a budget of runs, or where no server was asked.
type PolicyBudget struct {
	Budget string        `json:"budget"`
	From   string        `json:"from"`
	Limit  int           `json:"limit"`
	Then   agent.Verdict `json:"then"`
	Calls  *int          `json:"calls,omitempty"`
}

// Policy returns the app's policy; revision is a former one, or 0 for the one that holds.
func (c *Client) Policy(ctx context.Context, revision int) (Policy, error) {
	q := query{}
	if revision != 0 {
		q["revision"] = strconv.Itoa(revision)
	}
	return get[Policy](ctx, c, path("policy")+q.encode())
}

// SetPolicy replaces the app's policy. was is the revision that it has to have, or nil for any.
func (c *Client) SetPolicy(ctx context.Context, text string, was *int) (out Policy, err error) {
	return out, c.do(ctx, "PUT", path("policy"), nil, map[string]any{"text": text, "revision": was}, &out)
}

// PolicyHistory lists the policies that are kept, newest first.
func (c *Client) PolicyHistory(ctx context.Context, p agent.Page) (List[PolicyRevision], error) {
	return get[List[PolicyRevision]](ctx, c, path("policy", "history")+pageQuery(p).encode())
}

// TestPolicy runs the examples of a policy.
func (c *Client) TestPolicy(ctx context.Context, t PolicyText) (out PolicyTested, err error) {
	return out, c.do(ctx, "POST", path("policy", "test"), nil, t, &out)
}

// LintPolicy looks for what is probably not meant in a policy.
func (c *Client) LintPolicy(ctx context.Context, t PolicyText) (out PolicyLinted, err error) {
	return out, c.do(ctx, "POST", path("policy", "lint"), nil, t, &out)
}

// ExplainPolicy tells what becomes of a call, and why.
func (c *Client) ExplainPolicy(ctx context.Context, q PolicyCall) (out PolicyExplained, err error) {
	return out, c.do(ctx, "POST", path("policy", "explain"), nil, q, &out)
}
