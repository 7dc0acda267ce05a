package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/tools/hook"
	"github.com/skep-dev/skep/tools/policy"
)

// PolicyName is the name of the document of an app's policy.
const PolicyName = "policy"

// PolicyText is that document.
type PolicyText struct {
	Text string `json:"text"`
}

// policyOf is a policy that was parsed, of a document; empty is of none. Its revision would not tell: those of an app that is made anew under the name of
// one that was deleted begin again.
type policyOf struct {
	raw    json.RawMessage
	parsed *policy.Policy
}

// Policy returns an app's policy, and the revision of its document: 0 and the default where there is none.
func (c *Catalogue) Policy(ctx context.Context, app agent.App) (*policy.Policy, int64, error) {
	var raw json.RawMessage
	rev, err := c.store.Doc(ctx, store.Policies, app, PolicyName, &raw)
	if err != nil && agent.KindOf(err) != agent.NotFound {
		return nil, 0, err
	}
	if err != nil {
		rev, raw = 0, nil
	}
	c.mu.Lock()
	kept, ok := c.policies[app]
	c.mu.Unlock()
	if ok && bytes.Equal(kept.raw, raw) {
		return kept.parsed, rev, nil
	}
	p := policy.Default()
	if rev != 0 {
		var doc PolicyText
		if err := json.Unmarshal(raw, &doc); err != nil {
			return nil, 0, agent.Wrap(agent.Internal, err, "the policy cannot be read")
		}
		if p, err = policy.Parse([]byte(doc.Text), PolicyName); err != nil {
			return nil, 0, err
		}
	}
	if len(c.opts.Guard) > 0 {
		p = p.Guard(c.opts.Guard...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.policies[app] = policyOf{raw, p}
	return p, rev, nil
}

// pinRule is the rule of a call that is asked about because its tool has changed.
const pinRule = "pin"

// Judge says what becomes of a call: by the floor, hooks, the app's policy, standing allowances, and by whether the tool is as it was
// pinned. An allowance that allows it is used up by one, and it counts for the budgets that it is within, unless it is denied. It writes nothing else.
// tally is that of the call's work.
func (c *Catalogue) Judge(ctx context.Context, t agent.Tool, call agent.ToolCall, tally *Tally) (agent.Decision, error) {
	p, _, err := c.Policy(ctx, call.App)
	if err != nil {
		return agent.Decision{}, err
	}
	asked := policy.Call{Agent: call.Agent, Tool: t, Args: call.Args}
	d := p.Judge(asked)
	if d.Verdict == agent.Deny {
		return d, nil
	}
	if hooks := p.Hooks(policy.Before, asked); len(hooks) > 0 {
		said, err := hook.Run(ctx, hooks, hook.Input{
			Hook: policy.Before.String(), App: call.App, Agent: call.Agent, Run: call.Run, Tool: t.Name, Effect: t.Effect.Grade(), Args: call.Args,
		}, c.hookOf(call.App))
		if err != nil {
			return agent.Decision{}, err
		}
		d.Notes = append(d.Notes, said.Notes...)
		if said.Verdict < d.Verdict {
			d.Verdict, d.Rule, d.From, d.Reason = said.Verdict, said.Rule, said.From, said.Reason
			d.Hold, d.Count = 0, 0
		}
		if d.Verdict == agent.Deny {
			return d, nil
		}
	}
	if budgets := p.Budgets(asked); len(budgets) > 0 {
		over, again, err := c.spend(ctx, budgets, call, tally)
		if err != nil {
			return agent.Decision{}, err
		}
		if d = p.Beyond(d, over, again); d.Verdict == agent.Deny {
			return d, nil
		}
	}
	if t.Changed {
		d.Verdict, d.Rule, d.From, d.Hold, d.Count = agent.Ask, pinRule, "", 0, 0
		d.Reason = fmt.Sprintf("what %s says of itself has changed since it was last looked at, or it is new: skep tools show %s shows it, and skep tools pin %s accepts it", t.Name, t.Name, t.Name)
		return d, nil // which nothing that was allowed before covers
	}
	if d.Verdict != agent.Ask {
		return d, nil
	}
	return c.allowed(ctx, p, d, t, call)
}

func (c *Catalogue) hookOf(app agent.App) hook.Call {
	return func(ctx context.Context, name, function string, in []byte) ([]byte, error) {
		if c.opts.Hook == nil {
			return nil, agent.Errorf(agent.Unavailable, "this server calls no agents as hooks")
		}
		return c.opts.Hook(ctx, app, name, function, in)
	}
}

// after runs the hooks that a result sets off. One of them can withhold it.
func (c *Catalogue) after(ctx context.Context, t agent.Tool, call agent.ToolCall, res agent.ToolResult) error {
	p, _, err := c.Policy(ctx, call.App)
	if err != nil {
		return err
	}
	hooks := p.Hooks(policy.After, policy.Call{Agent: call.Agent, Tool: t, Args: call.Args})
	if len(hooks) == 0 {
		return nil
	}
	said, err := hook.Run(ctx, hooks, hook.Input{
		Hook: policy.After.String(), App: call.App, Agent: call.Agent, Run: call.Run, Tool: t.Name, Effect: t.Effect.Grade(), Args: call.Args, Result: res.Value,
	}, c.hookOf(call.App))
	if err != nil {
		return err
	}
	if said.Verdict == agent.Allow {
		return nil
	}
	return agent.Errorf(agent.Denied, "%s was called, and what it returned is withheld by %s: %s", t.Name, said.Rule, said.Reason)
}

// allowed turns an ask into allow where a standing answer covers it.
func (c *Catalogue) allowed(ctx context.Context, by *policy.Policy, d agent.Decision, t agent.Tool, call agent.ToolCall) (agent.Decision, error) {
	type found struct {
		agent.Allowance
		name string
	}
	for {
		var fits []found
		err := c.allowances(ctx, call.App, call.Agent+"/", func(name string, a agent.Allowance) {
			if covers(by, a, d, t, call) {
				fits = append(fits, found{a, name})
			}
		})
		if err != nil || len(fits) == 0 {
			return d, err
		}
		best := fits[0]
		for _, f := range fits[1:] { // one that is not used up by it goes first
			if best.Left > 0 && f.Left == 0 {
				best = f
			}
		}
		switch best.Left {
		case 0:
		case 1:
			err = c.store.DeleteDoc(ctx, store.Allowances, call.App, best.name, best.Rev)
		default:
			rest := best.Allowance
			rest.Left--
			_, err = c.store.PutDoc(ctx, store.Allowances, call.App, best.name, best.Rev, rest)
		}
		if k := agent.KindOf(err); err != nil && ctx.Err() == nil && (k == agent.Conflict || k == agent.NotFound) {
			continue // another call has had it
		}
		if err != nil {
			return d, err
		}
		d.Verdict, d.Rule, d.From, d.Hold, d.Count = agent.Allow, "allowance "+best.ID, "", 0, 0
		d.Reason = fmt.Sprintf("%s has allowed it before, as %s", best.By, best.Pattern)
		return d, nil
	}
}

// covers reports whether a standing answer is one to this call.
func covers(by *policy.Policy, a agent.Allowance, d agent.Decision, t agent.Tool, call agent.ToolCall) bool {
	switch {
	case a.Agent != call.Agent || a.Run != "" && a.Run != call.Run:
		return false
	case a.Rule != "" && a.Rule != d.Rule, a.Budget != d.Budget && d.Budget != "":
		return false
	case !a.Until.IsZero() && !now().Before(a.Until):
		return false
	}
	p, err := policy.ParsePattern(a.Pattern)
	return err == nil && p.MatchCall(by, policy.Call{Agent: call.Agent, Tool: t, Args: call.Args})
}

// allowances calls each for those whose names, AGENT/ID, begin so.
func (c *Catalogue) allowances(ctx context.Context, app agent.App, prefix string, each func(name string, a agent.Allowance)) error {
	page := agent.Page{Limit: agent.MaxPage}
	for {
		next, err := c.store.Docs(ctx, store.Allowances, app, prefix, page, func(name string, rev int64, data []byte) error {
			var a agent.Allowance
			if err := json.Unmarshal(data, &a); err != nil {
				return agent.Wrap(agent.Internal, err, "a standing answer cannot be read")
			}
			a.Rev = rev
			each(name, a)
			return nil
		})
		if err != nil {
			return err
		}
		if page.After = next; next == "" {
			return nil
		}
	}
}

// maxAllowances is how many standing answers an agent may have.
const maxAllowances = 1000

// Allow keeps a standing answer, and drops those of the same agent whose time is over.
func (c *Catalogue) Allow(ctx context.Context, a agent.Allowance) (agent.Allowance, error) {
	if _, err := policy.ParsePattern(a.Pattern); err != nil {
		return agent.Allowance{}, err
	}
	if a.Agent == "" || a.Left < 0 {
		return agent.Allowance{}, agent.Errorf(agent.Invalid, "a standing answer is for an agent, and for calls from 1 up")
	}
	over := map[string]int64{}
	count, at := 0, now()
	if err := c.allowances(ctx, a.App, a.Agent+"/", func(name string, old agent.Allowance) {
		if count++; !old.Until.IsZero() && !at.Before(old.Until) {
			over[name] = old.Rev
		}
	}); err != nil {
		return agent.Allowance{}, err
	}
	for name, rev := range over {
		if err := c.store.DeleteDoc(ctx, store.Allowances, a.App, name, rev); err != nil && agent.KindOf(err) != agent.NotFound && agent.KindOf(err) != agent.Conflict {
			return agent.Allowance{}, err
		}
	}
	if count-len(over) >= maxAllowances {
		return agent.Allowance{}, &agent.Error{
			Kind: agent.Exhausted, Msg: fmt.Sprintf("the agent %s has %d standing answers, and more are not kept", a.Agent, maxAllowances), Hint: "write a rule of the policy instead",
		}
	}
	a.ID, a.Rev = string(agent.NewRunID(at)), 0
	if a.Created.IsZero() {
		a.Created = at
	}
	rev, err := c.store.PutDoc(ctx, store.Allowances, a.App, a.Agent+"/"+a.ID, 0, a)
	a.Rev = rev
	return a, err
}

// Allowances lists an agent's standing answers, oldest first; those of all agents when it is "".
func (c *Catalogue) Allowances(ctx context.Context, app agent.App, name string) ([]agent.Allowance, error) {
	out, prefix := []agent.Allowance{}, ""
	if name != "" {
		prefix = name + "/"
	}
	err := c.allowances(ctx, app, prefix, func(_ string, a agent.Allowance) {
		if a.Until.IsZero() || now().Before(a.Until) {
			out = append(out, a)
		}
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Disallow takes a standing answer back.
func (c *Catalogue) Disallow(ctx context.Context, app agent.App, name, id string) error {
	return c.store.DeleteDoc(ctx, store.Allowances, app, name+"/"+id, store.AnyRev)
}
