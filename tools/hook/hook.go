// Package hook runs the hooks of a policy: programs, and functions of agents, that are told of calls of tools. A hook before a call may deny it,
// have a person asked, or annotate it; it never allows. One after a call may annotate it, or withhold its result. A hook that fails denies.
package hook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/internal/phrase"
	"github.com/skep-dev/skep/tools/policy"
)

// Input is what a hook is told, as JSON: on its standard input, or as the input of its function.
type Input struct {
	Hook   string          `json:"hook"` // "before" or "after"
	App    agent.App       `json:"app"`
	Agent  string          `json:"agent"`
	Run    agent.RunID     `json:"run,omitempty"`
	Tool   string          `json:"tool"`
	Effect agent.Effect    `json:"effect"`
	Args   json.RawMessage `json:"args"`
	Result json.RawMessage `json:"result,omitempty"` // after
	Error  string          `json:"error,omitempty"`  // after: that the call failed with
}

// Answer is what a hook says: on its standard output, or as the result of its function. No answer at all is {"decision":"pass"}.
type Answer struct {
	Decision string `json:"decision"` // "pass", "ask" or "deny"; pass unless given
	Reason   string `json:"reason,omitempty"`
	Note     string `json:"note,omitempty"` // for the record, and for who is asked
}

// MaxAnswer is the most bytes that a hook may answer, maxText the most of its reason or note that are kept.
const (
	MaxAnswer = 64 << 10
	maxText   = 2 << 10
)

// Outcome is what the hooks of one call said together.
type Outcome struct {
	Verdict agent.Verdict // Allow: none objects. Ask: one wants a person to be asked. Deny: one denies, or failed
	Rule    string        // "hook " and its line, of the one that decided; empty for Allow
	From    string        // where it stands in the policy
	Reason  string
	Notes   []string
}

// Call calls a function of an agent, with JSON in and out.
type Call func(ctx context.Context, agent, function string, in []byte) ([]byte, error)

// Run runs hooks one after another until one denies. An error is that of ctx only: a hook that fails, or takes too long, denies. call may be nil
// where no hook is a function of an agent.
func Run(ctx context.Context, hooks []policy.Hook, in Input, call Call) (Outcome, error) {
	out := Outcome{Verdict: agent.Allow}
	if len(hooks) == 0 {
		return out, nil
	}
	if len(in.Args) == 0 {
		in.Args = json.RawMessage("{}")
	}
	body, err := json.Marshal(in)
	if err != nil {
		return out, agent.Wrap(agent.Invalid, err, "the call cannot be told to hooks: its arguments are no JSON")
	}
	for _, h := range hooks {
		a, err := one(ctx, h, body, call)
		if ctx.Err() != nil {
			return Outcome{}, ctx.Err()
		}
		if err != nil {
			a = Answer{Decision: "deny", Reason: fmt.Sprintf("the hook failed, which denies: %s", err)}
		}
		if a.Note != "" {
			out.Notes = append(out.Notes, clip(a.Note))
		}
		verdict := agent.Allow
		switch {
		case a.Decision == "deny", a.Decision == "ask" && h.When == policy.After: // it is too late to ask
			verdict = agent.Deny
		case a.Decision == "ask":
			verdict = agent.Ask
		}
		if verdict < out.Verdict {
			out.Verdict, out.Rule, out.From, out.Reason = verdict, "hook "+h.Text, h.From, clip(a.Reason)
			if out.Reason == "" {
				out.Reason = "the hook said no more than " + a.Decision
			}
		}
		if out.Verdict == agent.Deny {
			break
		}
	}
	return out, nil
}

// one runs a hook within its time.
func one(ctx context.Context, h policy.Hook, body []byte, call Call) (Answer, error) {
	limit := h.Timeout
	if limit <= 0 {
		limit = policy.DefaultHookTimeout
	}
	timed, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var said []byte
	var err error
	switch {
	case len(h.Command) > 0:
		said, err = run(timed, h.Command, body)
	case call == nil:
		err = errors.New("no agents can be called here")
	default:
		said, err = call(timed, h.Agent, h.Function, body)
	}
	if timed.Err() != nil && ctx.Err() == nil {
		return Answer{}, fmt.Errorf("it took longer than %s", limit)
	}
	if err != nil {
		return Answer{}, err
	}
	return parse(said)
}

// parse reads an answer. A decision that is not known is an error, and so is one by a name that is not known: a misspelt denial must not pass.
func parse(said []byte) (Answer, error) {
	var a Answer
	text := strings.TrimSpace(string(said))
	if text == "" || text == "null" {
		return a, nil
	}
	if len(text) > MaxAnswer {
		return a, fmt.Errorf("it answered more than %d bytes", MaxAnswer)
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&a); err != nil {
		return a, fmt.Errorf(`its answer is not {"decision": "pass", "ask" or "deny", "reason", "note"}: %s`, clip(err.Error()))
	}
	if d.More() {
		return a, errors.New("it answered more than one JSON value")
	}
	switch a.Decision {
	case "", "pass", "ask", "deny":
		return a, nil
	}
	return a, fmt.Errorf("its decision is %q: a hook says pass, ask or deny", clip(a.Decision))
}

func clip(s string) string { return strings.TrimSpace(phrase.Clip(s, maxText)) }
