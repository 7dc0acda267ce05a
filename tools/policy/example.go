package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/skep-dev/skep/agent"
)

// example is a call that stands in a policy.
type example struct {
	text string
	from string
	tool string
	args json.RawMessage
	line *string // a command in place of arguments
}

// test is an example with the verdict that it has to have.
type test struct {
	example
	want agent.Verdict
}

func (r *reader) examples(n ast.Node) (out []example, f *fault) {
	list, f := r.items(n, "examples")
	for _, e := range list {
		one, f := r.example(e)
		if f != nil {
			return nil, f
		}
		out = append(out, one)
	}
	return out, f
}

// example reads "TOOL", "TOOL {JSON}", "TOOL: COMMAND" or "TOOL: {ARGUMENT: VALUE}".
func (r *reader) example(n ast.Node) (example, *fault) {
	e := example{from: r.from(n)}
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		list, f := r.pairs(n, "an example")
		if f != nil {
			return e, f
		}
		if len(list) != 1 {
			return e, r.at(n, "an example is one call: write TOOL: COMMAND, or TOOL: {ARGUMENT: VALUE}")
		}
		e.tool = list[0].key
		switch v := list[0].value.(type) {
		case *ast.MappingNode, *ast.MappingValueNode:
			if e.args, f = r.jsonOf(v); f != nil {
				return e, f
			}
			e.text = e.tool + " " + string(e.args)
		case *ast.NullNode:
			e.text = e.tool
		default:
			text, f := r.text(v, "a command")
			if f != nil {
				return e, f
			}
			e.line, e.text = &text, e.tool+": "+text
		}
	default:
		text, f := r.text(n, "an example")
		if f != nil {
			return e, f
		}
		tool, args, _ := strings.Cut(strings.TrimSpace(text), " ")
		e.tool, e.text = tool, text
		if args = strings.TrimSpace(args); args != "" {
			if e.args = json.RawMessage(args); !json.Valid(e.args) {
				return e, r.wrong(n, &agent.Error{Kind: agent.Invalid, Msg: "the arguments of the example are no JSON", Hint: "write " + tool + ": COMMAND, " + tool + ": {ARGUMENT: VALUE}, or " + tool + ` {"ARGUMENT": "VALUE"}`})
			}
		}
	}
	if !strings.Contains(e.tool, ".") {
		return e, r.at(n, "%s is no tool: an example is a call of SERVER.TOOL", clip(e.tool))
	}
	return e, nil
}

// tests reads lists of examples by the verdict they have to have.
func (r *reader) tests(n ast.Node) *fault {
	list, f := r.pairs(n, "tests")
	for _, kv := range list {
		var want agent.Verdict
		if want.UnmarshalText([]byte(kv.key)) != nil {
			return r.unknown(kv, []string{"allow", "ask", "deny"})
		}
		examples, f := r.examples(kv.value)
		if f != nil {
			return f
		}
		for _, e := range examples {
			r.p.tests = append(r.p.tests, test{e, want})
		}
	}
	return f
}

// Failure is an example of a policy that does not come out as it says.
type Failure struct {
	From    string `json:"from"`    // where the example stands: "policy:12"
	Example string `json:"example"` // the call
	Rule    string `json:"rule,omitempty"`
	Want    string `json:"want"`
	Got     string `json:"got"`
	Reason  string `json:"reason,omitempty"`
}

// call makes an example a call. Its effect is that of the tool, where that is among tools.
func (p *Policy) call(e example, tools []agent.Tool) Call {
	c := Call{Tool: agent.Tool{Name: e.tool}, Args: e.args}
	for _, t := range tools {
		if t.Name == e.tool {
			c.Tool = t
		}
	}
	if e.line != nil {
		name := "command"
		for _, arg := range p.commands {
			if arg.tool.plain(e.tool, true) && arg.name != "" {
				name = arg.name
				break
			}
		}
		c.Args, _ = json.Marshal(map[string]string{name: *e.line})
	}
	return c
}

// Test runs the examples that stand in the policy: match and not_match of rules, and tests. The effects of tools are those of the given ones; others
// are unclassified.
func (p *Policy) Test(tools ...agent.Tool) []Failure {
	var out []Failure
	for _, r := range p.allRules() {
		for _, e := range r.match {
			if got := p.hits(r, p.call(e, tools)); got != yes {
				out = append(out, Failure{From: e.from, Example: e.text, Rule: r.text, Want: "match", Got: got.String()})
			}
		}
		for _, e := range r.notMatch {
			if got := p.hits(r, p.call(e, tools)); got != no {
				out = append(out, Failure{From: e.from, Example: e.text, Rule: r.text, Want: "no match", Got: got.String()})
			}
		}
	}
	for _, t := range p.tests {
		if d := p.Judge(p.call(t.example, tools)); d.Verdict != t.want {
			out = append(out, Failure{From: t.from, Example: t.text, Rule: d.Rule, Want: t.want.String(), Got: d.Verdict.String(), Reason: d.Reason})
		}
	}
	return out
}

// Examples is how many examples stand in the policy.
func (p *Policy) Examples() int {
	n := len(p.tests)
	for _, r := range p.allRules() {
		n += len(r.match) + len(r.notMatch)
	}
	return n
}

// allRules are the rules and the budgets, those for agents last.
func (p *Policy) allRules() []*rule {
	all := slices.Clone(p.rules)
	budgets := func(list []*Budget) {
		for _, b := range list {
			all = append(all, b.rule)
		}
	}
	budgets(p.budgets)
	for i := range p.agents {
		all = append(all, p.agents[i].rules...)
		budgets(p.agents[i].budgets)
	}
	return all
}

// hits tells whether a rule is about a call. One that allows has to be about all of it.
func (p *Policy) hits(r *rule, c Call) truth {
	s := p.scene(c)
	if s.bad != nil {
		return no
	}
	t := r.pattern.eval(s, r.verdict)
	if r.verdict == agent.Allow && t == yes && r.pattern.command != nil {
		if cover := s.cover([]*rule{r}); len(cover.missing)+len(cover.raised) > 0 {
			return no
		}
	}
	return t
}

func (t truth) String() string {
	switch t {
	case yes:
		return "match"
	case maybe:
		return "may match"
	case unclear:
		return "cannot be compared"
	}
	return "no match"
}

// Step is what one rule said of a call.
type Step struct {
	Rule    string        `json:"rule"`
	From    string        `json:"from"`
	Verdict agent.Verdict `json:"verdict"`
	Match   string        `json:"match"` // "match", "may match", "cannot be compared", "no match"
	Why     string        `json:"why,omitempty"`
}

// Explain tells what each rule says of a call, and what becomes of it. Rules about other tools are left out.
func (p *Policy) Explain(c Call) ([]Step, agent.Decision) {
	s := p.scene(c)
	var steps []Step
	d := p.judge(s, func(r *rule, t truth) {
		if !r.pattern.names(s, r.verdict) {
			return
		}
		if t == yes && r.verdict == agent.Allow && r.pattern.command != nil && !p.touches(s, r) {
			t = no
		}
		steps = append(steps, Step{Rule: r.text, From: r.from, Verdict: r.verdict, Match: t.String(), Why: p.why(s, r)})
	})
	return steps, d
}

// touches tells whether a rule that allows is about any of the commands.
func (p *Policy) touches(s *scene, r *rule) bool {
	line := s.command()
	if line == nil {
		return false
	}
	for i := range line.script.Commands {
		if r.pattern.command.covers(&line.script.Commands[i]) {
			return true
		}
	}
	return false
}

// why says what a rule found in a call.
func (p *Policy) why(s *scene, r *rule) string {
	for i := range r.pattern.preds {
		pr := &r.pattern.preds[i]
		have := pr.eval(s, r.verdict)
		if have == yes {
			continue
		}
		found, _ := s.args.find(pr.path, nil)
		if len(found) == 0 {
			return fmt.Sprintf("the call has no argument %s", pr.name)
		}
		return fmt.Sprintf("%s does not hold: %s is %s", pr.text, pr.name, clip(found[0].text))
	}
	if r.pattern.command == nil {
		return ""
	}
	line := s.command()
	if line == nil {
		return "the call has no command"
	}
	var hit []string
	for i := range line.script.Commands {
		c := &line.script.Commands[i]
		if r.verdict == agent.Allow && r.pattern.command.covers(c) || r.verdict != agent.Allow && r.pattern.command.matches(c) != no {
			hit = append(hit, clip(c.Text()))
		}
	}
	if len(hit) == 0 {
		return "it is about none of the commands"
	}
	return "it is about " + strings.Join(hit, ", ")
}

// Parts lists what the command of a call is judged by, for Explain; none for a call without a command.
func (p *Policy) Parts(c Call) []string {
	s := p.scene(c)
	line := s.command()
	if s.bad != nil || line == nil {
		return nil
	}
	var out []string
	for i := range line.script.Commands {
		out = append(out, line.script.Commands[i].Text())
	}
	return out
}
