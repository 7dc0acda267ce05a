package policy

import (
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
)

const budgetText = `
read: allow
modify: ask
budgets:
  - 20 effect:modify+ per run then ask for 30m count 5
  - 100 github.* per hour because their limit is for all
  - budget: 3 shell.run(git push *) per 2h
    because: others see it
    match: [{shell.run: git log && git push origin}]
    not_match: [{shell.run: git log}]
  - 0 mail.send(to=*@evil.com) per day
agents:
  bot*:
    budgets:
      - 5 github.* per hour then ask
  "*t":
    budgets: [7 github.* per hour]
`

func TestBudgets(t *testing.T) {
	p := mustParse(t, budgetText)
	of := func(c Call) string {
		var out []string
		for _, b := range p.Budgets(c) {
			out = append(out, b.Key)
		}
		return strings.Join(out, ", ")
	}
	for _, c := range []struct {
		call Call
		want string
	}{
		{call("github.list", agent.Read, ""), "github.* per hour"},
		{call("GitHub.list", agent.Read, ""), "github.* per hour"},
		{Call{Agent: "bot", Tool: agent.Tool{Name: "github.list", Effect: agent.Read}}, "github.* per hour, github.* per hour for bot"},
		{Call{Agent: "art", Tool: agent.Tool{Name: "github.list", Effect: agent.Read}}, "github.* per hour, github.* per hour for art"},
		{call("files.write", agent.Modify, ""), "effect:modify+ per run"},
		{call("files.read", agent.Read, ""), ""},
		{call("shell.run", agent.Read, `{"command":"ls; git push -f"}`), "shell.run(git push *) per 2h"},
		{call("shell.run", agent.Read, `{"command":"ls"}`), ""},
		{call("mail.send", agent.Read, `{"to":"a@evil.com"}`), "mail.send(to=*@evil.com) per day"},
		{call("mail.send", agent.Read, `{"to":["a@good.com","b@evil.com"]}`), "mail.send(to=*@evil.com) per day"},
		{call("mail.send", agent.Read, `{}`), "mail.send(to=*@evil.com) per day"}, // nobody knows
		{call("mail.send", agent.Read, `{"to":"a@good.com"}`), ""},
	} {
		if got := of(c.call); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.call.Tool.Name, c.call.Args, got, c.want)
		}
	}
	// Of two sections the stricter counts.
	for _, b := range p.Budgets(Call{Agent: "bot", Tool: agent.Tool{Name: "github.list"}}) {
		if strings.HasSuffix(b.Key, "for bot") && (b.Limit != 5 || b.Then != agent.Ask) {
			t.Errorf("%+v", b)
		}
	}
	if failed := p.Test(); len(failed) > 0 || p.Examples() != 2 {
		t.Errorf("%+v, %d", failed, p.Examples())
	}
}

func TestBeyond(t *testing.T) {
	p := mustParse(t, budgetText)
	write, push := p.budgets[0], p.budgets[2]
	allowed := agent.Decision{Verdict: agent.Allow, Rule: "allow a.b"}
	d := p.Beyond(allowed, []Budget{*write}, 0)
	if d.Verdict != agent.Ask || d.Rule != write.Text || d.Budget != write.Text || d.From != "policy:5" || d.Hold != 30*time.Minute || d.Count != 5 || d.Timeout != DefaultTimeout {
		t.Errorf("%+v", d)
	}
	d = p.Beyond(agent.Decision{Verdict: agent.Ask, Rule: "ask x.y", Hold: time.Hour, Count: 3, Reason: "so", Timeout: time.Minute}, []Budget{*write}, 0)
	if d.Verdict != agent.Ask || d.Rule != "ask x.y + "+write.Text || d.Hold != 0 || d.Count != 0 || d.Timeout != time.Minute || !strings.HasPrefix(d.Reason, "so; it is beyond the budget of 20 calls") {
		t.Errorf("%+v", d)
	}
	d = p.Beyond(allowed, []Budget{*write, *push}, 90*time.Second)
	if d.Verdict != agent.Deny || d.Rule != "3 shell.run(git push *) per 2h" || d.Budget != "" || d.From != "policy:7" ||
		d.Reason != "it is beyond the budget of 3 calls of shell.run(git push *) per 2h: others see it (there is room again in 1m30s)" {
		t.Errorf("%+v", d)
	}
	if d = p.Beyond(allowed, nil, 0); d.Verdict != agent.Allow {
		t.Errorf("%+v", d)
	}
}

func TestBudgetMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"many a.b per run":             `policy:2:5: a budget begins with a number of calls up to 1000000, not with "many"`,
		"-1 a.b per run":               "begins with a number",
		"5 a.b":                        "5 calls of a.b per what?",
		"5 a.b each run":               "5 calls of a.b per what?",
		"5 a.b per fortnight":          "per fortnight is no while",
		"5 a.b per 1ms":                "per 1ms is no while",
		"5 a.b per run then allow":     "then ask, or then deny, not then allow",
		"5 a.b per run for 5m":         "so it is for ask, not for deny",
		"5 a.b per run then ask maybe": "maybe follows the pattern a.b",
		"5 b per run":                  "b names no tool",
		"{because: x}":                 "a map with the keys budget",
		"{budget: 5 a.b per run, x: }": "there is no key x",
	} {
		if _, err := Parse([]byte("budgets:\n  - "+text+"\n"), "policy"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := Parse([]byte("budgets: [5 a.b per day, 6 a.b per day]"), "policy"); err == nil || !strings.Contains(err.Error(), "there is a budget of a.b per day already, at policy:1") {
		t.Error(err)
	}
}

func TestLintBudgets(t *testing.T) {
	p := mustParse(t, `
rules: [deny a.*]
budgets:
  - 5 a.b per day
  - 5 c.d per day
  - 3 c.* per day
  - 5 e.f per day
`)
	var got []string
	for _, f := range p.Lint([]agent.Tool{{Name: "a.b", Server: "a"}, {Name: "c.d", Server: "c"}}) {
		got = append(got, f.From+" "+f.Message)
	}
	all := strings.Join(got, "\n")
	for _, want := range []string{
		"policy:4 it counts nothing: deny a.*, at policy:2", "policy:5 it is never reached: 3 c.* per day, at policy:6", "policy:7 no tool is called e.f",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("%s is missing in\n%s", want, all)
		}
	}
	if len(got) != 3 {
		t.Error(all)
	}
}
