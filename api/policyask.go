package api

import (
	"context"
	"encoding/json"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/tools"
	"github.com/skep-dev/skep/tools/policy"
)

// policyText is a policy to look at in place of the one that holds.
type policyText struct {
	Text string `json:"text,omitempty" doc:"the app's own unless given"`
	File string `json:"file,omitempty" doc:"what to call it in answers; policy unless given"`
}

// policyAt parses it.
func (s *Server) policyAt(ctx context.Context, t policyText) (*policy.Policy, error) {
	if t.Text == "" {
		doc, _, err := s.policyNow(ctx)
		if err != nil {
			return nil, err
		}
		return policy.Parse([]byte(doc.Text), tools.PolicyName)
	}
	if t.File == "" || len(t.File) > 200 {
		t.File = tools.PolicyName
	}
	return policy.Parse([]byte(t.Text), t.File)
}

type testPolicyRequest struct {
	Body policyText `body:"json" default:"{}"`
}

// policyTested is what became of a policy's examples.
type policyTested struct {
	Examples int              `json:"examples"`
	Failed   []policy.Failure `json:"failed"`
}

func (s *Server) testPolicy(ctx context.Context, q testPolicyRequest) (policyTested, error) {
	p, err := s.policyAt(ctx, q.Body)
	if err != nil {
		return policyTested{}, err
	}
	known, err := s.knownTools(ctx, p.Examples() > 0)
	if err != nil {
		return policyTested{}, err
	}
	return policyTested{p.Examples(), append([]policy.Failure{}, p.Test(known...)...)}, nil
}

// policyLinted is what is probably not meant in a policy.
type policyLinted struct {
	Tools    int              `json:"tools" doc:"how many tools it was compared with"`
	Findings []policy.Finding `json:"findings"`
}

func (s *Server) lintPolicy(ctx context.Context, q testPolicyRequest) (policyLinted, error) {
	p, err := s.policyAt(ctx, q.Body)
	if err != nil {
		return policyLinted{}, err
	}
	known, err := s.knownTools(ctx, true)
	if err != nil {
		return policyLinted{}, err
	}
	return policyLinted{len(known), append([]policy.Finding{}, p.Lint(known)...)}, nil
}

type explainPolicy struct {
	policyText
	Tool       string          `json:"tool" doc:"SERVER.METHOD"`
	Args       json.RawMessage `json:"args,omitempty" doc:"an object; {} unless given"`
	Agent      string          `json:"agent,omitempty" doc:"who calls; nobody unless given"`
	Effect     *agent.Effect   `json:"effect,omitempty" doc:"as the tool's is unless given"`
	Unattended bool            `json:"unattended,omitempty" doc:"nobody can be asked"`
}

type explainPolicyRequest struct {
	Body explainPolicy `body:"json"`
}

// policyExplained is what becomes of a call, and why.
type policyExplained struct {
	Decision agent.Decision `json:"decision" doc:"by the policy alone: hooks, standing answers and pins are not looked at"`
	Steps    []policy.Step  `json:"steps" doc:"what each rule about the tool says of the call"`
	Parts    []string       `json:"parts,omitempty" doc:"the commands that the call's command line consists of"`
	Known    bool           `json:"known" doc:"the app has the tool"`
	Budgets  []tools.Spent  `json:"budgets,omitempty" doc:"those that the call would count for; the decision is as if there were room"`
}

func (s *Server) explainPolicy(ctx context.Context, q explainPolicyRequest) (policyExplained, error) {
	b := q.Body
	if b.Tool == "" {
		return policyExplained{}, agent.Errorf(agent.Invalid, `name a tool: {"tool": "SERVER.METHOD", "args": {}}`)
	}
	var p *policy.Policy
	var err error
	if b.Text == "" && s.o.Tools != nil {
		p, _, err = s.o.Tools.Policy(ctx, appOf(ctx)) // with what is guarded
	} else {
		p, err = s.policyAt(ctx, b.policyText)
	}
	if err != nil {
		return policyExplained{}, err
	}
	c := policy.Call{Agent: b.Agent, Tool: agent.Tool{Name: b.Tool}, Args: b.Args, Unattended: b.Unattended}
	known := false
	if s.o.Tools != nil {
		t, err := s.o.Tools.Resolve(ctx, appOf(ctx), b.Tool)
		if err == nil {
			c.Tool, known = t, true
		} else if agent.KindOf(err) != agent.NotFound && agent.KindOf(err) != agent.Unavailable {
			return policyExplained{}, err
		}
	}
	if b.Effect != nil {
		c.Tool.Effect = *b.Effect
	}
	steps, d := p.Explain(c)
	out := policyExplained{Decision: d, Steps: append([]policy.Step{}, steps...), Parts: p.Parts(c), Known: known}
	if s.o.Tools != nil {
		out.Budgets, err = s.o.Tools.Spent(ctx, appOf(ctx), p, c)
	}
	return out, err
}
