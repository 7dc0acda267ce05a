package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/skep-dev/skep/agent"
)

// Budget is how many calls that a pattern is about may be made in a while, and what becomes of those beyond. Who counts is who judges: a policy
// knows no past.
type Budget struct {
	Text  string        // as it stands
	From  string        // file:line
	Key   string        // what is counted together; it does not say how many, so that a budget that is changed goes on counting
	Limit int           // calls
	Per   time.Duration // 0 means in a run
	Then  agent.Verdict // of calls beyond: Deny or Ask
	rule  *rule
}

// maxBudget is the most calls that a budget may have.
const maxBudget = 1_000_000

// per are the words for how long a budget is.
var per = map[string]time.Duration{"run": 0, "minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour}

// parseBudget reads a line: N PATTERN per run|minute|hour|day|DURATION [then ask|deny] [for DURATION] [count N] [because TEXT].
func parseBudget(line string) (*Budget, error) {
	line = strings.TrimSpace(line)
	number, rest, _ := strings.Cut(line, " ")
	b := &Budget{Then: agent.Deny, rule: &rule{text: line, verdict: agent.Deny}}
	var err error
	if b.Limit, err = strconv.Atoi(number); err != nil || b.Limit < 0 || b.Limit > maxBudget {
		return nil, agent.Errorf(agent.Invalid, "a budget begins with a number of calls up to %d, not with %q: write 20 github.* per hour", maxBudget, clip(number))
	}
	if b.rule.pattern, rest, err = parsePattern(rest); err != nil {
		return nil, err
	}
	word, rest := cutWord(rest)
	unit, rest := cutWord(rest)
	if word != "per" || unit == "" {
		return nil, agent.Errorf(agent.Invalid, "%d calls of %s per what? Write per run, per minute, per hour, per day or per 10m", b.Limit, b.rule.pattern.text)
	}
	known := false
	if b.Per, known = per[unit]; !known {
		if b.Per, err = duration(unit, maxHold); err != nil || b.Per < time.Second {
			return nil, agent.Errorf(agent.Invalid, "per %s is no while: write per run, per minute, per hour, per day, or per 90s, 30m, 12h or 7d", clip(unit))
		}
	}
	if then, more := cutWord(rest); then == "then" {
		verb, more := cutWord(more)
		if b.Then.UnmarshalText([]byte(verb)) != nil || b.Then == agent.Allow {
			return nil, agent.Errorf(agent.Invalid, "calls beyond a budget are asked about or denied: write then ask, or then deny, not then %s", clip(verb))
		}
		rest = more
	}
	b.rule.verdict = b.Then
	if err := b.rule.options(strings.TrimSpace(rest)); err != nil {
		return nil, err
	}
	b.Text, b.Key = b.rule.text, b.rule.pattern.text+" per "+b.while()
	return b, nil
}

func cutWord(s string) (word, rest string) {
	word, rest, _ = strings.Cut(strings.TrimLeft(s, " \t"), " ")
	return word, rest
}

func (b *Budget) while() string {
	for word, d := range per {
		if d == b.Per {
			return word
		}
	}
	return long(b.Per)
}

// budgets reads a list of budgets: lines, or maps of a line with because and examples.
func (r *reader) budgets(n ast.Node) (out []*Budget, f *fault) {
	list, f := r.items(n, "budgets")
	for _, e := range list {
		one, f := r.budget(e)
		if f != nil {
			return nil, f
		}
		if i := slices.IndexFunc(out, func(b *Budget) bool { return b.Key == one.Key }); i >= 0 {
			return nil, r.at(e, "there is a budget of %s already, at %s: keep one", one.Key, out[i].From)
		}
		out = append(out, one)
	}
	return out, f
}

func (r *reader) budget(n ast.Node) (*Budget, *fault) {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return r.budgetWith(n)
	}
	text, f := r.text(n, "a budget")
	if f != nil {
		return nil, f
	}
	b, err := parseBudget(text)
	if err != nil {
		return nil, r.wrong(n, err)
	}
	b.From, b.rule.from = r.from(n), r.from(n)
	return b, nil
}

// budgetWith reads a budget with examples.
func (r *reader) budgetWith(n ast.Node) (b *Budget, f *fault) {
	list, f := r.pairs(n, "a budget")
	if f != nil {
		return nil, f
	}
	for _, kv := range list {
		if kv.key == "budget" {
			if b, f = r.budget(kv.value); f != nil {
				return nil, f
			}
		}
	}
	if b == nil {
		return nil, r.at(n, "a budget is a line, or a map with the keys budget, because, match and not_match")
	}
	for _, kv := range list {
		if kv.key == "budget" {
			continue
		}
		if f := r.about(b.rule, kv, "budget"); f != nil {
			return nil, f
		}
	}
	return b, nil
}

// about reads what stands beside the line of a rule or a budget.
func (r *reader) about(to *rule, kv pair, what string) (f *fault) {
	switch kv.key {
	case "because":
		to.because, f = r.text(kv.value, "because")
	case "match":
		to.match, f = r.examples(kv.value)
	case "not_match":
		to.notMatch, f = r.examples(kv.value)
	default:
		f = r.unknown(kv, []string{what, "because", "match", "not_match"})
	}
	return f
}

// Budgets are those that a call counts for: one that may be what a budget is about counts. Those of agents count the calls of each agent by itself.
func (p *Policy) Budgets(c Call) []Budget {
	if !p.hasBudgets() {
		return nil
	}
	s := p.scene(c)
	if s.bad != nil {
		return nil // the floor denies it
	}
	var out []Budget
	add := func(list []*Budget, each string) {
		for _, b := range list {
			if b.rule.pattern.eval(s, b.rule.verdict) == no {
				continue
			}
			one := *b
			if each != "" {
				one.Key += " for " + each
			}
			i := slices.IndexFunc(out, func(o Budget) bool { return o.Key == one.Key })
			switch {
			case i < 0:
				out = append(out, one)
			case one.Limit < out[i].Limit, one.Limit == out[i].Limit && one.Then < out[i].Then: // two sections that an agent belongs to: the stricter counts
				out[i] = one
			}
		}
	}
	add(p.budgets, "")
	for i := range p.agents {
		if sec := &p.agents[i]; sec.name.plain(c.Agent, false) {
			add(sec.budgets, c.Agent)
		}
	}
	return out
}

func (p *Policy) hasBudgets() bool {
	return len(p.budgets) > 0 || slices.ContainsFunc(p.agents, func(s section) bool { return len(s.budgets) > 0 })
}

// Beyond is what becomes of a call that is beyond budgets, of which d was decided before. again is how long it is until there is room; 0 where
// nobody knows.
func (p *Policy) Beyond(d agent.Decision, over []Budget, again time.Duration) agent.Decision {
	if len(over) == 0 || d.Verdict == agent.Deny {
		return d
	}
	var rules, reasons []string
	worst, from := agent.Ask, ""
	for _, b := range over {
		worst = min(worst, b.Then)
	}
	for _, b := range over {
		if b.Then != worst {
			continue
		}
		rules = append(rules, b.Text)
		if from == "" {
			from = b.From
		}
		why := fmt.Sprintf("it is beyond the budget of %s of %s per %s", calls(b.Limit), b.rule.pattern.text, b.while())
		if b.rule.because != "" {
			why += ": " + b.rule.because
		}
		reasons = append(reasons, why)
	}
	if again > 0 {
		reasons[len(reasons)-1] += fmt.Sprintf(" (there is room again in %s)", max(again.Round(time.Second), time.Second))
	}
	budget := strings.Join(rules, " + ")
	was := d
	d.Verdict, d.Rule, d.From, d.Reason, d.Hold, d.Count, d.Timeout = worst, budget, from, strings.Join(reasons, "; "), 0, 0, 0
	if worst == agent.Deny {
		return d
	}
	d.Budget, d.Timeout = budget, p.timeout
	if was.Verdict == agent.Ask {
		d.Rule, d.From, d.Reason, d.Timeout = was.Rule+" + "+d.Rule, was.From, was.Reason+"; "+d.Reason, was.Timeout
	} else if len(over) == 1 {
		d.Hold, d.Count = over[0].rule.hold, over[0].rule.count
	}
	return d
}

func calls(n int) string {
	if n == 1 {
		return "1 call"
	}
	return strconv.Itoa(n) + " calls"
}
