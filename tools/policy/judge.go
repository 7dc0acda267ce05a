package policy

import (
	"fmt"
	"strings"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/tools/shell"
)

// rule is one line of a policy.
type rule struct {
	verdict agent.Verdict
	text    string // as it stands
	from    string // file:line
	server  string // of its tools, where that is one; skips most rules
	pattern Pattern
	because string
	hold    time.Duration
	count   int

	match, notMatch []example
}

// floorRule is Decision.Rule of what no rule can change.
const floorRule = "floor"

// Judge says what becomes of a call.
func (p *Policy) Judge(c Call) agent.Decision {
	s := p.scene(c)
	return p.judge(s, nil)
}

// raise is a reason to ask though a rule allows.
type raise struct{ rule, from, reason string }

// note is told of each rule that was looked at, for Explain.
type note func(r *rule, t truth)

func (p *Policy) judge(s *scene, see note) agent.Decision {
	d := agent.Decision{Effect: s.effect}
	if s.bad != nil {
		d.Rule, d.Reason = floorRule, "the arguments cannot be judged: "+s.bad.Error()
		return d
	}
	if reason := p.floor(s); reason != "" {
		d.Rule, d.Reason = floorRule, reason
		return d
	}
	var denied *rule
	var asks, allows []*rule
	var raised []raise
	look := func(rules []*rule) {
		for _, r := range rules {
			if r.server != "" && s.ascii && !prefixFold(s.name, r.server) {
				if see != nil {
					see(r, no)
				}
				continue
			}
			t := r.pattern.eval(s, r.verdict)
			if see != nil {
				see(r, t)
			}
			switch {
			case t == no:
			case r.verdict == agent.Allow:
				allows = append(allows, r)
			case r.verdict == agent.Deny && t >= unclear:
				if denied == nil {
					denied = r
					d.Reason = r.reason("the policy denies it")
					if t == unclear {
						d.Reason = r.reason("the policy denies it") + " (the call cannot be compared with this rule, which counts as what it denies)"
					}
				}
			case r.verdict == agent.Deny:
				raised = append(raised, raise{r.text, r.from, "it may be what this rule denies, which the call does not tell"})
			case t == maybe:
				raised = append(raised, raise{r.text, r.from, "it may be what this rule asks about"})
			default:
				asks = append(asks, r)
			}
		}
	}
	look(p.rules)
	def := p.defaults
	for i := range p.agents {
		if sec := &p.agents[i]; sec.name.plain(s.call.Agent, false) {
			def.override(sec.defaults)
			look(sec.rules)
		}
	}
	if denied != nil {
		d.Rule, d.From = denied.text, denied.from
		return d
	}
	p.weigh(s, &d, def, asks, allows, raised)
	if d.Verdict == agent.Ask && s.call.Unattended && p.unattended == agent.Deny {
		d.Verdict, d.Hold, d.Count, d.Timeout = agent.Deny, 0, 0, 0
		d.Reason += "; nobody can be asked here, and the policy denies what would have to be (unattended)"
	}
	return d
}

// weigh decides among rules that ask, rules that allow, and the default.
func (p *Policy) weigh(s *scene, d *agent.Decision, def defaults, asks, allows []*rule, raised []raise) {
	verdict, name := def.of(s.call.Tool.Effect)
	blanket := (*rule)(nil)
	var commands []*rule
	for _, r := range allows {
		if r.pattern.command != nil {
			commands = append(commands, r)
		} else if blanket == nil {
			blanket = r
		}
	}
	line := s.judgedCommand()
	if line != nil {
		for _, doubt := range line.script.Doubts {
			if doubt.Kind == shell.Opaque {
				raised = append(raised, raise{floorRule, "", doubt.Reason})
			}
		}
	}
	plain := func(reason string) {
		d.Verdict, d.Rule, d.From, d.Reason = verdict, name, p.file, reason
	}
	switch {
	case blanket != nil && len(asks) == 0:
		d.Verdict, d.Rule, d.From, d.Reason = agent.Allow, blanket.text, blanket.from, blanket.reason("the policy allows it")
	case blanket != nil:
		d.Verdict = agent.Ask
	case line != nil && (len(commands) > 0 || len(asks) > 0):
		cover := s.cover(commands)
		raised = append(raised, cover.raised...)
		open := s.openFor(asks, cover)
		switch {
		case open == "" && len(asks) > 0:
			d.Verdict = agent.Ask
		case open == "":
			r := cover.first
			d.Verdict, d.Rule, d.From, d.Reason = agent.Allow, r.text, r.from, r.reason("the policy allows each of its commands")
		default:
			plain(fmt.Sprintf("no rule is about %s, and %s", clip(open), byDefault(s.call.Tool.Effect, verdict)))
			if d.Verdict == agent.Allow && len(asks) > 0 {
				d.Verdict = agent.Ask
			}
			if d.Verdict == agent.Ask {
				raised = append([]raise{{d.Rule, d.From, d.Reason}}, raised...)
			}
		}
	case len(asks) > 0:
		d.Verdict = agent.Ask
	default:
		plain("no rule is about it, and " + byDefault(s.call.Tool.Effect, verdict))
		if verdict == agent.Ask {
			raised = append([]raise{{d.Rule, d.From, d.Reason}}, raised...)
		}
	}
	if d.Verdict == agent.Deny || d.Verdict == agent.Allow && len(raised) == 0 {
		return
	}
	p.ask(d, asks, raised)
}

// ask makes a decision a question. An approval holds for further calls only when the one rule that says for how long is all that asks.
func (p *Policy) ask(d *agent.Decision, asks []*rule, raised []raise) {
	d.Verdict, d.Timeout = agent.Ask, p.timeout
	var rules, reasons []string
	add := func(rule, reason string) {
		for i, r := range rules {
			if r == rule {
				if !strings.Contains(reasons[i], reason) && len(reasons[i]) < 500 {
					reasons[i] += "; " + reason
				}
				return
			}
		}
		rules, reasons = append(rules, rule), append(reasons, reason)
	}
	d.From = ""
	for _, r := range asks {
		add(r.text, r.reason("the policy asks about it"))
		if d.From == "" {
			d.From = r.from
		}
	}
	for _, r := range raised {
		add(r.rule, r.reason)
		if d.From == "" {
			d.From = r.from
		}
	}
	d.Rule, d.Reason = strings.Join(rules, " + "), strings.Join(reasons, "; ")
	if len(asks) == 1 && len(raised) == 0 {
		d.Hold, d.Count = asks[0].hold, asks[0].count
	}
}

func (r *rule) reason(otherwise string) string {
	if r.because != "" {
		return r.because
	}
	return otherwise
}

// of returns the verdict of an effect, and what the default is called.
func (d *defaults) of(e agent.Effect) (agent.Verdict, string) {
	if e == agent.Unclassified && !d.has[e] {
		return d.verdict[agent.Execute], "default execute"
	}
	if int(e) >= len(d.verdict) {
		return agent.Deny, "default " + e.String()
	}
	return d.verdict[e], "default " + e.String()
}

func (d *defaults) override(by defaults) {
	for i, has := range by.has {
		if has {
			d.verdict[i], d.has[i] = by.verdict[i], true
		}
	}
}

// byDefault says what an effect means for a call that no rule is about.
func byDefault(e agent.Effect, v agent.Verdict) string {
	what := "execute"
	switch e {
	case agent.Read:
		what = "only read"
	case agent.Modify:
		what = "modify"
	case agent.ModifyExecute:
		what = "modify for good"
	case agent.Unclassified:
		return fmt.Sprintf("nobody has said what the tool can do: that counts as execute, for which the default is to %s", v)
	}
	return fmt.Sprintf("the default for tools that can %s is to %s", what, v)
}

// judgedCommand is the command of a call whose commands are judged part by part: of a tool that may do more than modify, or that a rule or the
// policy says it of.
func (s *scene) judgedCommand() *commandLine {
	line := s.command()
	if line == nil || !s.positional && !line.forced && s.effect < agent.ModifyExecute {
		return nil
	}
	return line
}

// coverage is what rules that allow say of a command, part by part.
type coverage struct {
	by      []*rule // of each command; nil where none is
	first   *rule
	missing []int // commands that no rule is about
	raised  []raise
}

// cover finds, for each command, a rule that allows it. What a command does beyond its name has to be named by the rule.
func (s *scene) cover(rules []*rule) coverage {
	line := s.command()
	if line == nil {
		return coverage{missing: []int{-1}}
	}
	script := line.script
	c := coverage{by: make([]*rule, len(script.Commands))}
	fixed := make([]int, len(script.Commands))
	for i := range script.Commands {
		cmd := &script.Commands[i]
		for _, r := range rules {
			if r.pattern.command.covers(cmd) {
				if c.by[i] == nil {
					c.by[i] = r
				}
				fixed[i] = max(fixed[i], r.pattern.command.fixed)
			}
		}
		if c.by[i] == nil && cmd.Parent >= 0 && fixed[cmd.Parent] > cmd.At { // the rule writes out what the wrapper runs
			c.by[i], fixed[i] = c.by[cmd.Parent], fixed[cmd.Parent]-cmd.At
		}
		if c.by[i] == nil && !cmd.Wrapper {
			c.missing = append(c.missing, i)
		}
		if c.first == nil {
			c.first = c.by[i]
		}
	}
	if c.first == nil {
		c.missing = append(c.missing, -1)
	}
	for _, d := range script.Doubts {
		if d.Kind == shell.Opaque || !s.named(script, rules, d) {
			c.raised = append(c.raised, raise{floorRule, "", d.Reason})
		}
	}
	for _, w := range script.Writes {
		if !s.mayWrite(script, w) {
			c.raised = append(c.raised, raise{"writes", s.policy.file, "it writes to " + clip(w.Text)})
		}
	}
	return c
}

// named tells whether a rule that covers the command, or its wrapper, names the word that a doubt is about.
func (s *scene) named(script *shell.Script, rules []*rule, d shell.Doubt) bool {
	for i := d.Command; i >= 0; i = script.Commands[i].Parent {
		for _, r := range rules {
			if p := r.pattern.command; p.names(d.Word) && p.covers(&script.Commands[i]) {
				return true
			}
		}
	}
	return false
}

// openFor returns the text of a command that neither a rule that allows nor one that asks is about; "" for none.
func (s *scene) openFor(asks []*rule, c coverage) string {
	script := s.command().script
	for _, r := range asks {
		if r.pattern.command == nil {
			return ""
		}
	}
	covered := func(i int) bool {
		for _, r := range asks {
			for j := i; j >= 0; j = script.Commands[j].Parent {
				if r.pattern.command.matches(&script.Commands[j]) == yes {
					return true
				}
			}
		}
		return false
	}
	for _, i := range c.missing {
		switch {
		case i < 0 && len(asks) > 0 && len(script.Commands) > 0:
		case i < 0:
			return "the command"
		case !covered(i):
			return script.Commands[i].Text()
		}
	}
	return ""
}

// mayWrite tells whether a redirection writes where nobody has to be asked: below the folder it starts in, to the terminal or nowhere, or where the
// policy says.
func (s *scene) mayWrite(script *shell.Script, w shell.Word) bool {
	if !w.Known || w.Text == "" {
		return false
	}
	switch w.Text {
	case "/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty", "-":
		return true
	}
	for _, g := range s.policy.writes {
		if g.surely(w.Text) {
			return true
		}
	}
	if script.Moves || climbs(w.Text) || strings.ContainsAny(w.Text, "\\%$:") || w.Text[0] == '/' || w.Text[0] == '~' {
		return false
	}
	for part := range strings.SplitSeq(w.Text, "/") {
		if strings.HasPrefix(part, ".") && part != "." {
			return false
		}
	}
	return true
}

func prefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}
