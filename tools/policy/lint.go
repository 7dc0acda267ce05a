package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/skep-dev/skep/agent"
)

// Finding is something in a policy that is probably not meant.
type Finding struct {
	From    string `json:"from"` // "policy:12"
	Rule    string `json:"rule"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// Lint looks for rules that can never match one of the tools, rules that others make useless, misspelt names, and patterns that match less, or
// more, than they seem to. No tools means that they are not known.
func (p *Policy) Lint(tools []agent.Tool) []Finding {
	l := &linter{p: p, tools: tools}
	for _, t := range tools {
		l.names = append(l.names, t.Name)
		if t.Server != "" && !slices.Contains(l.servers, t.Server) {
			l.servers = append(l.servers, t.Server)
		}
	}
	l.rules(p.rules, nil)
	l.budgets(p.budgets, p.rules)
	for i := range p.agents {
		l.rules(p.agents[i].rules, p.rules)
		l.budgets(p.agents[i].budgets, slices.Concat(p.rules, p.agents[i].rules))
	}
	for i := range p.hooks {
		l.pattern(&rule{text: p.hooks[i].Text, from: p.hooks[i].From, pattern: p.hooks[i].on, verdict: agent.Ask})
	}
	return l.out
}

type linter struct {
	p              *Policy
	tools          []agent.Tool
	names, servers []string
	out            []Finding
}

func (l *linter) add(r *rule, hint, format string, args ...any) {
	l.out = append(l.out, Finding{From: r.from, Rule: r.text, Message: fmt.Sprintf(format, args...), Hint: hint})
}

func (l *linter) rules(rules, outer []*rule) {
	all := slices.Concat(outer, rules)
	for i, r := range rules {
		l.pattern(r)
		for _, o := range all[:len(outer)+i] {
			if o.text == r.text {
				l.add(r, "take one out", "it is there already, at %s", o.from)
			}
		}
		for _, o := range all {
			if o != r && o.verdict < r.verdict && broader(&o.pattern, &r.pattern) {
				l.add(r, fmt.Sprintf("%s wins over %s wherever both match", o.verdict, r.verdict), "it never decides: %s, at %s, is about the same calls", o.text, o.from)
				break
			}
		}
	}
}

// budgets looks at budgets among the rules that hold where they do.
func (l *linter) budgets(list []*Budget, rules []*rule) {
	for _, b := range list {
		l.pattern(b.rule)
		for _, r := range rules {
			if r.verdict == agent.Deny && broader(&r.pattern, &b.rule.pattern) {
				l.add(b.rule, "take one out", "it counts nothing: %s, at %s, denies the same calls", r.text, r.from)
				break
			}
		}
		for _, o := range list {
			if o != b && o.Per == b.Per && o.Limit <= b.Limit && o.Then <= b.Then && broader(&o.rule.pattern, &b.rule.pattern) {
				l.add(b.rule, "take one out, or make it smaller", "it is never reached: %s, at %s, is reached before", o.Text, o.From)
				break
			}
		}
	}
}

// broader tells whether a is about every call that b is about. It may miss some.
func broader(a, b *Pattern) bool {
	switch {
	case a.graded || b.graded:
		if !a.graded || !b.graded || a.effect != b.effect || a.orMore != b.orMore {
			return a.tool != nil && a.tool.any && len(a.preds) == 0 && a.command == nil
		}
	case !a.tool.any && a.tool.text != b.tool.text && !(b.tool.lit && a.tool.plain(b.tool.text, true)) && !(strings.HasSuffix(a.tool.text, ".*") && strings.HasPrefix(b.tool.text, a.tool.text[:len(a.tool.text)-1])):
		return false
	}
	if a.command != nil && (b.command == nil || a.command.text != b.command.text) {
		return false
	}
	for _, pa := range a.preds {
		if !slices.ContainsFunc(b.preds, func(pb pred) bool { return pa.text == pb.text }) {
			return false
		}
	}
	return true
}

// pattern looks at one rule.
func (l *linter) pattern(r *rule) {
	p := &r.pattern
	var about []agent.Tool
	if !p.graded && len(l.tools) > 0 {
		for _, t := range l.tools {
			if p.names(&scene{name: t.Name, ascii: ascii(t.Name), call: Call{Tool: t}, effect: t.Effect.Grade()}, agent.Allow) {
				about = append(about, t)
			}
		}
		if len(about) == 0 {
			l.unknownTool(r)
		} else {
			l.arguments(r, about)
		}
	}
	for i := range p.preds {
		if g := p.preds[i].glob; g != nil && g.kind == urlGlob {
			_, rest, _ := strings.Cut(g.text, "://")
			if host, _, slash := strings.Cut(rest, "/"); strings.HasSuffix(host, "*") && host != "*" && !slash || strings.HasSuffix(host, ".*") {
				l.add(r, "write the host to its end, as in https://api.github.com/**", "%s matches hosts of others, such as %s.example.org", g.text, strings.TrimRight(host, ".*"))
			}
		}
	}
	if c := p.command; c != nil {
		l.command(r, c)
	}
}

func (l *linter) command(r *rule, c *commandPattern) {
	last := c.words[len(c.words)-1]
	switch first := c.words[0]; {
	case first.star && r.verdict == agent.Allow && len(c.words) > 1:
		l.add(r, "name the program first", "it allows every program whose words end like this")
	case first.star && r.verdict == agent.Allow:
	case r.verdict == agent.Allow && slices.Contains([]string{"bash", "sh", "zsh", "env", "xargs", "timeout", "nohup", "eval"}, first.text):
		l.add(r, "write rules for the commands that it runs", "what %s runs is judged by itself, so this allows nothing more", first.text)
	case r.verdict != agent.Allow && !last.star && !last.flag && !strings.HasSuffix(last.text, "*"):
		l.add(r, fmt.Sprintf("write (%s *)", c.text), "it is about %s only when nothing follows", c.text)
	case r.verdict == agent.Deny && first.glob.lit && slices.Contains([]string{"rm", "curl", "wget", "sudo"}, first.text):
		l.add(r, "deny or ask by default (execute: ask), and allow what is needed", "what %s does can be done by other programs, too: a list of what is denied is never complete", first.text)
	}
}

func (l *linter) unknownTool(r *rule) {
	text := r.pattern.tool.text
	hint := ""
	server, method, _ := strings.Cut(text, ".")
	if r.pattern.tool.lit {
		if near := nearest(text, l.names); near != "" {
			hint = "did you mean " + near + "?"
		}
	}
	if hint == "" && !slices.Contains(l.servers, server) && !strings.ContainsAny(server, "*?{") {
		if near := nearest(server, l.servers); near != "" {
			hint = "did you mean " + near + "." + method + "?"
		} else {
			hint = "there is no server " + server
		}
	}
	l.add(r, hint, "no tool is called %s, so it never matches", text)
}

// arguments looks whether any of the tools has the arguments that a rule is about.
func (l *linter) arguments(r *rule, about []agent.Tool) {
	for i := range r.pattern.preds {
		name := r.pattern.preds[i].path[0]
		if name == "*" {
			continue
		}
		var all []string
		found := false
		for _, t := range about {
			s := &scene{policy: l.p, call: Call{Tool: t}}
			for k := range s.properties() {
				all = append(all, k)
			}
			found = found || s.declares(name)
		}
		if !found {
			hint := ""
			slices.Sort(all)
			if near := nearest(name, all); near != "" {
				hint = "did you mean " + near + "?"
			} else if all = slices.Compact(all); len(all) > 0 && len(all) < 12 {
				hint = "there are " + strings.Join(all, ", ")
			}
			l.add(r, hint, "no tool of %s has an argument %s, so it never matches", r.pattern.tool.text, name)
		}
	}
	if r.pattern.command == nil {
		return
	}
	for _, t := range about {
		s := &scene{policy: l.p, call: Call{Tool: t}}
		if s.takesCommand() || !s.knows || slices.ContainsFunc(l.p.commands, func(c commandArg) bool { return c.tool.plain(t.Name, true) && c.name != "" }) {
			return
		}
	}
	l.add(r, "name the argument under commands:, as in commands: {"+about[0].Name+": ARGUMENT}, or write (ARGUMENT="+r.pattern.command.text+")", "no tool of %s has an argument that is a command", r.pattern.tool.text)
}
