package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

// grantFlags name grants on the command line.
type grantFlags struct {
	verb string // grant or revoke

	http, secrets, agents, models, tools []string
	state                                string
}

// register adds flags that begin with verb, which is grant or revoke.
func (f *grantFlags) register(flags *pflag.FlagSet, verb string) {
	f.verb = verb
	say := func(grant, revoke string) string {
		if verb == "grant" {
			return grant + "; may be given more than once"
		}
		return revoke + "; may be given more than once"
	}
	flags.StringArrayVar(&f.http, verb+"-http", nil, say("`TARGET` it may request, such as \"GET https://api.example.com/v1/**\"", "`TARGET` it may no longer request"))
	flags.StringArrayVar(&f.secrets, verb+"-secret", nil, say("secret `NAME[=TARGET]` it may use, narrowed to a target if one is given", "secret `NAME` it may no longer use"))
	flags.StringSliceVar(&f.agents, verb+"-agent", nil, say("`NAME` of another agent it may call", "`NAME` of an agent it may no longer call"))
	flags.StringSliceVar(&f.models, verb+"-model", nil, say("`NAME` of a model route it may use", "`NAME` of a model route it may no longer use"))
	flags.StringSliceVar(&f.tools, verb+"-tool", nil, say("`NAME` of a tool it may call, or SERVER.*", "`NAME` of a tool it may no longer call"))
	stateWords := "let it keep no state"
	if verb == "grant" {
		stateWords = "let it keep state, of at most `[=SIZE]` if one is given: --grant-state=64MB"
	}
	flags.Var((*stateFlag)(&f.state), verb+"-state", stateWords)
	flags.Lookup(verb + "-state").NoOptDefVal = anyState
}

// anyState is the value of a --grant-state without a size.
const anyState = "true"

// stateFlag is a flag whose value may be left out. Its type keeps pflag from printing anyState as a value to write.
type stateFlag string

func (s *stateFlag) String() string     { return string(*s) }
func (s *stateFlag) Set(v string) error { *s = stateFlag(v); return nil }
func (s *stateFlag) Type() string       { return "bool" }

// oneName takes one argument. A second one may be a size that was meant for --grant-state, which takes it behind "=" alone.
func (f *grantFlags) oneName(cmd *cobra.Command, args []string) error {
	if len(args) == 2 && f.state == anyState {
		return fmt.Errorf("a size of state is written with a sign between: --grant-state=%s", args[1])
	}
	return cobra.ExactArgs(1)(cmd, args)
}

// grants returns what the flags name.
func (f *grantFlags) grants() (g agent.Grants, err error) {
	for _, s := range f.http {
		s, limits, err := f.cutLimits(s)
		if err != nil {
			return g, err
		}
		t, err := agent.ParseTarget(s)
		if err != nil {
			return g, err
		}
		g.HTTP = append(g.HTTP, agent.HTTPGrant{Allow: t, Limits: limits})
	}
	byName := map[string]int{}
	for _, s := range f.secrets {
		s, limits, err := f.cutLimits(s)
		if err != nil {
			return g, err
		}
		name, target, narrowed := strings.Cut(s, "=")
		i, seen := byName[name]
		if !seen {
			i = len(g.Secrets)
			byName[name] = i
			g.Secrets = append(g.Secrets, agent.SecretGrant{Name: name, Limits: limits})
		}
		if seen && limits != g.Secrets[i].Limits {
			return g, usageError("secret %s is named with different limits", name)
		}
		if seen && narrowed != (len(g.Secrets[i].To) > 0) {
			return g, usageError("secret %s is named both with a target and without one", name)
		}
		if narrowed {
			t, err := agent.ParseTarget(target)
			if err != nil {
				return g, err
			}
			g.Secrets[i].To = append(g.Secrets[i].To, t)
		}
	}
	for _, l := range []struct {
		names []string
		to    *[]agent.NamedGrant
	}{{f.agents, &g.Agents}, {f.models, &g.Models}, {f.tools, &g.Tools}} {
		for _, s := range l.names {
			name, limits, err := f.cutLimits(s)
			if err != nil {
				return g, err
			}
			*l.to = append(*l.to, agent.NamedGrant{Name: name, Limits: limits})
		}
	}
	switch f.state {
	case "":
	case anyState:
		g.State = &agent.StateGrant{}
	default:
		g.State = &agent.StateGrant{}
		if g.State.Bytes, err = parseSize(f.state); err != nil {
			return g, usageError("--grant-state=%s: write a size such as 64MB", f.state)
		}
	}
	return g, g.Check()
}

// cutLimits splits a grant from the limits behind it: "POST https://api.example.com/mail per_call=1 per_day=200".
func (f *grantFlags) cutLimits(s string) (grant string, limits agent.Rate, err error) {
	grant, list, some := strings.Cut(s, " per_")
	if !some {
		return s, limits, nil
	}
	if f.verb != "grant" {
		return "", limits, usageError("--%s-...: %q has a limit, which is not taken away by itself: grant the same without it", f.verb, s)
	}
	for field := range strings.FieldsSeq("per_" + list) {
		name, value, _ := strings.Cut(field, "=")
		to := map[string]*int64{"per_call": &limits.PerCall, "per_minute": &limits.PerMinute, "per_day": &limits.PerDay}[name]
		if to == nil {
			return "", limits, usageError("%q is no limit of a grant: they are per_call=N, per_minute=N and per_day=N", field)
		}
		if *to, err = strconv.ParseInt(value, 10, 64); err != nil || *to < 1 {
			return "", limits, usageError("%q: write a number from 1, such as %s=10", field, name)
		}
	}
	return strings.TrimSpace(grant), limits, nil
}

// readGrants reads a file of grants, as JSON.
func readGrants(name string) (g agent.Grants, err error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return g, agent.Wrap(agent.Invalid, err, "read grants")
	}
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.DisallowUnknownFields()
	if err := d.Decode(&g); err != nil {
		return g, &agent.Error{
			Kind: agent.Invalid, Msg: name + ": " + err.Error(),
			Hint: `grants are such as {"http": ["GET https://api.example.com/**"], "secrets": ["key"], "agents": [], "models": [], "tools": [], "state": {}}`,
		}
	}
	return g, g.Check()
}

// accept shows what a plugin asks for, and asks whether that is to be granted.
func (c *cli) accept(p agent.Plugin, yes bool) (agent.Grants, error) {
	if p.Asks == nil || p.Asks.Empty() {
		c.printf("%s@%s asks for nothing\n", p.Name, p.Version)
		return agent.Grants{}, nil
	}
	c.printf("%s@%s asks to\n", p.Name, p.Version)
	c.printWords(p.Asks.Words())
	if yes {
		return *p.Asks, nil
	}
	ok, err := c.confirm("grant this?")
	if err == nil && !ok {
		err = agent.Errorf(agent.Cancelled, "nothing was granted, and nothing was changed")
	}
	return *p.Asks, err
}

func (c *cli) printWords(words []string) {
	for _, w := range words {
		c.printf("  %s\n", w)
	}
}

// hintAsked tells on standard error what an agent's code asks for and was not granted.
func (c *cli) hintAsked(name string, asks *agent.Grants, granted agent.Grants) {
	if asks == nil {
		return
	}
	missing := asks.Beyond(granted)
	if len(missing) == 0 {
		return
	}
	c.notef("%s asks for more than it was granted:\n", name)
	for _, w := range missing {
		c.notef("  %s\n", w)
	}
	c.notef("to grant that: skep agent update %s --grant-asked\n", name)
}

func newAgentGrants(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "grants NAME",
		Short: "Show in words what an agent may do, and what its code asks for",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			g, err := cl.Grants(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(g)
			}
			a, err := cl.Agent(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			c.printGrants(a, g)
			return nil
		},
	}
}

func (c *cli) printGrants(a agent.Agent, g client.AgentGrants) {
	if len(g.Words) == 0 {
		c.printf("%s may reach nothing outside its cell\n", a.Name)
	} else {
		c.printf("%s may\n", a.Name)
		c.printWords(g.Words)
	}
	if len(g.Missing) > 0 {
		c.printf("asks for, not granted\n")
		c.printWords(g.Missing)
	}
	bounds := g.Quota
	if l := limitsText(a.Limits); l != "" {
		bounds = append(bounds, "each call: "+l)
	}
	if len(bounds) > 0 {
		c.printf("bounded by\n")
		c.printWords(bounds)
	}
}
