package policy

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
)

func mustParse(t testing.TB, text string) *Policy {
	t.Helper()
	p, err := Parse([]byte(text), "policy")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func call(tool string, effect agent.Effect, args string) Call {
	return Call{Tool: agent.Tool{Name: tool, Effect: effect}, Args: json.RawMessage(args)}
}

func TestDefault(t *testing.T) {
	p := mustParse(t, DefaultText)
	for effect, want := range map[agent.Effect]agent.Verdict{agent.Read: agent.Allow, agent.Modify: agent.Ask, agent.ModifyExecute: agent.Ask, agent.Execute: agent.Ask, agent.Unclassified: agent.Ask} {
		d := p.Judge(call("a.b", effect, ""))
		if d.Verdict != want || d.Effect != effect.Grade() {
			t.Errorf("%s: %+v", effect, d)
		}
		c := call("a.b", effect, "")
		c.Unattended = true
		if d := p.Judge(c); d.Verdict != want && d.Verdict != agent.Deny || d.Verdict == agent.Ask {
			t.Errorf("%s, unattended: %+v", effect, d)
		}
	}
	if d := Default().Judge(call("a.b", agent.Read, "")); d.Verdict != agent.Allow {
		t.Error(d)
	}
}

func TestDecision(t *testing.T) {
	p := mustParse(t, `
modify: ask
timeout: 2h
rules:
  - allow a.b
  - ask a.c(x=1) for 30m count 20 because it costs
  - deny a.d
  - rule: deny a.e
    because: nobody may
agents:
  bot*:
    modify: deny
    rules:
      - deny a.b
`)
	for _, c := range []struct {
		agent, tool, args string
		want              agent.Decision
	}{
		{"x", "a.b", "", agent.Decision{Verdict: agent.Allow, Effect: agent.Modify, Rule: "allow a.b", From: "policy:5", Reason: "the policy allows it"}},
		{"bot1", "a.b", "", agent.Decision{Effect: agent.Modify, Rule: "deny a.b", From: "policy:14", Reason: "the policy denies it"}},
		{"bot1", "a.z", "", agent.Decision{Effect: agent.Modify, Rule: "default modify", From: "policy", Reason: "no rule is about it, and the default for tools that can modify is to deny"}},
		{"x", "a.c", `{"x":1}`, agent.Decision{Verdict: agent.Ask, Effect: agent.Modify, Rule: "ask a.c(x=1) for 30m count 20", From: "policy:6", Reason: "it costs", Hold: 30 * time.Minute, Count: 20, Timeout: 2 * time.Hour}},
		{"x", "a.e", "", agent.Decision{Effect: agent.Modify, Rule: "deny a.e", From: "policy:8", Reason: "nobody may"}},
	} {
		q := call(c.tool, agent.Modify, c.args)
		q.Agent = c.agent
		if d := cmp.Diff(c.want, p.Judge(q)); d != "" {
			t.Errorf("%s %s: (-want +got)\n%s", c.agent, c.tool, d)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		"rules:\n  - alow a.b":                               `policy:2:5: a rule begins with allow, ask or deny, not with "alow"; allow is near`,
		"rules:\n  - allow":                                  "policy:2:5: allow what?",
		"rules:\n  - allow github":                           "github names no tool: write github.* for all",
		"rules:\n  - allow mcp__github__create":              "write github.create",
		"rules:\n  - allow a.b(x=1":                          "has no )",
		"rules:\n  - allow a.b(x==1)":                        "there is no ==: write x=1",
		"rules:\n  - allow a.b(x>many)":                      "compares with no number",
		"rules:\n  - allow a.b()":                            "the brackets of a.b() are empty",
		"rules:\n  - allow a.b(x={1,2)":                      "a { has no }",
		"rules:\n  - allow a.b for 30m":                      "for says how far an approval reaches",
		"rules:\n  - ask a.b for 30x":                        "is no duration up to 30d",
		"rules:\n  - ask a.b often":                          "often follows the pattern a.b",
		"rules:\n  - allow s.r(git log | cat *)":             "| joins commands",
		"rules:\n  - allow s.r(echo # x)":                    "a # after a blank begins a comment",
		"rules:\n  - 'allow effect:raed'":                    `there is no effect "raed"`,
		"rules: allow a.b":                                   "rules is a list: begin each line with a -",
		"rules:\n  - allow a.b: c":                           "a rule is a line, or a map",
		"ruls: []":                                           "policy:1:1: there is no key ruls: write rules",
		"read: yes":                                          "read is allow, ask or deny",
		"read: allow\nread: deny":                            "read",
		"unattended: allow":                                  "unattended is deny, or ask",
		"timeout: 90d":                                       "no duration up to 30d",
		"a: [":                                               "no YAML",
		"rules:\n  - rule: allow a.b\n    mach: []":          "there is no key mach: write match",
		"rules:\n  - rule: allow a.b\n    match: [b]":        "is no tool: an example is a call",
		"hooks:\n  - before a.*: shell x":                    "a hook calls agent",
		"hooks:\n  - during a.*: agent a.b":                  "begins with before or after",
		"hooks:\n  - before a.*: command [\"x\"]":            "with the whole path of a program",
		"hooks:\n  - before a.*: agent a.b\n    timeout: 2m": "no duration up to 1m",
		"writes: [x]":                                        "is no path",
		"agents:\n  bot:\n    ruls: []":                      "write rules",
		"tests:\n  alow: []":                                 "write allow",
		"---\na: 1\n---\nb: 2":                               "one document",
		"rules: &x []":                                       "rules is a list",
		strings.Repeat("(", 100):                             "nested more than 64 deep",
		strings.Repeat("x", MaxText+1):                       "bytes",
	} {
		_, err := Parse([]byte(text), "policy")
		if agent.KindOf(err) != agent.Invalid || err == nil {
			t.Errorf("%.60q: %v", text, err)
			continue
		}
		full := err.Error() + " " + agent.AsError(err).Hint
		if !strings.Contains(full, want) || !strings.HasPrefix(full, "policy:") {
			t.Errorf("%.60q: got %q, want %q", text, full, want)
		}
	}
}

func TestPattern(t *testing.T) {
	for _, c := range []struct {
		pattern, tool, args string
		want                bool
	}{
		{"fs.write(path=/tmp/**)", "fs.write", `{"path":"/tmp/x"}`, true},
		{"fs.write(path=/tmp/**)", "fs.write", `{"path":"/tmp/../x"}`, false},
		{"fs.write", "fs.write", ``, true},
		{"fs.*", "fs.write", `{"a":1,"a":2}`, false},
		{"shell.run(git *)", "shell.run", `{"command":"git a && git b"}`, true},
		{"shell.run(git *)", "shell.run", `{"command":"git a && rm b"}`, false},
		{"shell.run(git *)", "shell.run", `{"command":"git -c a=b log"}`, false},
		{"shell.run(git -c *)", "shell.run", `{"command":"git -c a=b log"}`, true},
		{"shell.run(sudo apt install *)", "shell.run", `{"command":"sudo apt install x"}`, true},
		{"shell.run(sudo *)", "shell.run", `{"command":"sudo apt install x"}`, false},
		{"shell.run(python3 -m pytest *)", "shell.run", `{"command":"python3 -m pytest -q"}`, true},
		{"a.b(x='a, b')", "a.b", `{"x":"a, b"}`, true},
		{"a.b(x={p,q}*)", "a.b", `{"x":"qq"}`, true},
		{`a.b(x="*")`, "a.b", `{"x":"y"}`, false},
		{`a.b(x=1,y>=2)`, "a.b", `{"x":1,"y":2}`, true},
		{`a.b(x.y=1)`, "a.b", `{"x":[{"y":1},{"y":2}]}`, false},
	} {
		p, err := ParsePattern(c.pattern)
		if err != nil {
			t.Errorf("%s: %v", c.pattern, err)
		} else if p.Match(c.tool, json.RawMessage(c.args)) != c.want {
			t.Errorf("%s: %s %s: not %v", c.pattern, c.tool, c.args, c.want)
		}
	}
	for _, s := range []string{"effect:read", "", "a.b x", "a.b(", "x"} {
		if _, err := ParsePattern(s); agent.KindOf(err) != agent.Invalid || err == nil {
			t.Errorf("%q: %v", s, err)
		}
	}
	if (Pattern{}).Match("a.b", nil) {
		t.Error("an empty pattern matches")
	}
}

func TestSchema(t *testing.T) {
	p := mustParse(t, "modify: allow\nrules:\n  - deny a.*(path=/etc/**)\n  - allow a.*(force!=true)\n")
	tool := agent.Tool{Name: "a.b", Effect: agent.Modify, Input: json.RawMessage(`{"properties":{"x":{},"force":{"default":true}}}`)}
	if d := p.Judge(Call{Tool: tool}); d.Verdict != agent.Allow || d.Rule != "default modify" {
		t.Errorf("an argument that the tool does not have: %+v", d)
	}
	tool.Input = json.RawMessage(`{"properties":{"path":{}}}`)
	if d := p.Judge(Call{Tool: tool}); d.Verdict != agent.Ask {
		t.Errorf("an argument that the tool has: %+v", d)
	}
	tool.Input = json.RawMessage(`{"properties":{"force":{"default":false}}}`)
	if d := p.Judge(Call{Tool: tool}); d.Verdict != agent.Allow || d.Rule != "allow a.*(force!=true)" {
		t.Errorf("an argument with a harmless default: %+v", d)
	}
}

func TestExamples(t *testing.T) {
	p := mustParse(t, `
rules:
  - rule: deny shell.run(git push *)
    match:
      - shell.run: git push origin
      - shell.run: ls && git push
      - 'shell.run {"command": "git push"}'
    not_match:
      - shell.run: git pull
      - shell.run: git push x
  - rule: allow fs.write(path=/tmp/**)
    match:
      - fs.write: {path: /tmp/x, n: [1, true, null]}
      - fs.write: {path: /etc/x}
tests:
  deny:
    - shell.run: git push
    - shell.run: git pull
  allow: ["fs.read"]
`)
	var got []string
	for _, f := range p.Test(agent.Tool{Name: "fs.read", Effect: agent.Read}) {
		got = append(got, fmt.Sprintf("%s %s: %s, not %s", f.From, f.Example, f.Got, f.Want))
	}
	want := []string{"policy:10 shell.run: git push x: match, not no match", `policy:14 fs.write {"path":"/etc/x"}: no match, not match`, "policy:18 shell.run: git pull: ask, not deny"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if n := p.Examples(); n != 10 {
		t.Errorf("%d examples", n)
	}
}

func TestLint(t *testing.T) {
	tools := []agent.Tool{
		{Name: "github.create_issue", Server: "github", Input: json.RawMessage(`{"properties":{"owner":{},"title":{}}}`)},
		{Name: "shell.run", Server: "shell", Input: json.RawMessage(`{"properties":{"line":{}}}`)},
	}
	p := mustParse(t, `
rules:
  - allow github.create_isue
  - allow githb.create_issue
  - allow github.create_issue(ownr=acme)
  - allow shell.run(git *)
  - allow github.create_issue(owner=x)
  - deny github.*
  - deny github.*
  - allow web.fetch(url=https://api.github.com*)
  - deny effect:execute
agents:
  bot:
    rules:
      - allow nothing.here
hooks:
  - before gitub.*: agent a.b
`)
	var got []string
	for _, f := range p.Lint(tools) {
		got = append(got, f.From+" "+f.Message+" | "+f.Hint)
	}
	all := strings.Join(got, "\n")
	for _, want := range []string{
		"policy:3 no tool is called github.create_isue, so it never matches | did you mean github.create_issue?",
		"policy:4 no tool is called githb.create_issue, so it never matches | did you mean github.create_issue?",
		"policy:5 no tool of github.create_issue has an argument ownr, so it never matches | did you mean owner?",
		"policy:6 no tool of shell.run has an argument that is a command | name the argument under commands:",
		"policy:7 it never decides: deny github.*, at policy:8, is about the same calls",
		"policy:9 it is there already, at policy:8",
		"policy:10 https://api.github.com* matches hosts of others",
		"policy:15 no tool is called nothing.here, so it never matches | there is no server nothing",
		"policy:17 no tool is called gitub.*, so it never matches | did you mean github.*?",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in\n%s", want, all)
		}
	}
	if got := mustParse(t, "rules:\n  - allow a.b(git status *)\n").Lint(nil); len(got) > 0 {
		t.Error(got)
	}
}

func TestExplain(t *testing.T) {
	p := mustParse(t, "rules:\n  - allow shell.run(git *)\n  - deny shell.run(rm *)\n  - deny fs.*(path=/etc/**)\n  - ask shell.run(git push *, cwd=/prod/**)\n")
	steps, d := p.Explain(call("shell.run", agent.Execute, `{"command":"git log; rm x","cwd":"/work"}`))
	var got []string
	for _, s := range steps {
		got = append(got, fmt.Sprintf("%s: %s (%s)", s.Rule, s.Match, s.Why))
	}
	want := []string{"allow shell.run(git *): match (it is about git log)", "deny shell.run(rm *): match (it is about rm x)", "ask shell.run(git push *, cwd=/prod/**): no match (cwd=/prod/** does not hold: cwd is /work)"}
	if diff := cmp.Diff(want, got); diff != "" || d.Verdict != agent.Deny {
		t.Errorf("%+v %s", d, diff)
	}
}

func TestHooks(t *testing.T) {
	p := mustParse(t, "hooks:\n  - before shell.*: agent guard.check\n  - after *: command [\"/bin/x\", \"a b\"]\n    timeout: 10s\n  - before shell.run(rm *): agent guard.rm\n")
	got := p.Hooks(Before, call("shell.run", agent.Execute, `{"command":"ls"}`))
	if len(got) != 1 || got[0].Agent != "guard" || got[0].Function != "check" || got[0].Timeout != DefaultHookTimeout {
		t.Errorf("%+v", got)
	}
	if got := p.Hooks(Before, call("shell.run", agent.Execute, `{"command":"ls; rm x"}`)); len(got) != 2 {
		t.Errorf("%+v", got)
	}
	got = p.Hooks(After, call("a.b", agent.Read, ``))
	if len(got) != 1 || len(got[0].Command) != 2 || got[0].Timeout != 10*time.Second || !p.Commands() {
		t.Errorf("%+v", got)
	}
}

// TestGuide holds the guide's policies to what they say.
func TestGuide(t *testing.T) {
	b, err := os.ReadFile("../../docs/guide/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, block := range strings.Split(string(b), "```yaml\n")[1:] {
		text, _, _ := strings.Cut(block, "```")
		p := mustParse(t, text)
		for _, f := range p.Test() {
			t.Errorf("%+v", f)
		}
		n += p.Examples()
	}
	if n != 8 {
		t.Errorf("%d examples", n)
	}
}

// hundred is a policy of 100 rules, as an app with ten servers might have.
func hundred(tb testing.TB) *Policy {
	var b strings.Builder
	b.WriteString("rules:\n")
	for i := range 100 {
		switch i % 5 {
		case 0:
			fmt.Fprintf(&b, "  - allow server%d.get_*\n", i/10)
		case 1:
			fmt.Fprintf(&b, "  - deny server%d.write(path=/etc/**)\n", i/10)
		case 2:
			fmt.Fprintf(&b, "  - ask server%d.create(owner=acme%d) for 30m\n", i/10, i)
		case 3:
			fmt.Fprintf(&b, "  - allow server%d.run(tool%d *)\n", i/10, i)
		case 4:
			fmt.Fprintf(&b, "  - deny *.delete_%d\n", i)
		}
	}
	return mustParse(tb, b.String())
}

func BenchmarkJudge(b *testing.B) {
	p := hundred(b)
	for name, c := range map[string]Call{
		"args":    call("server3.write", agent.Modify, `{"path":"/tmp/x/y.txt","content":"hello","mode":420}`),
		"command": call("server9.run", agent.Execute, `{"command":"tool93 build --all && tool98 test ./..."}`),
		"plain":   call("server9.other", agent.Read, `{}`),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.Judge(c)
			}
		})
	}
}

func FuzzParsePolicy(f *testing.F) {
	f.Add(DefaultText)
	f.Add("rules:\n  - rule: ask shell.run(git push *) for 30m count 3 because x\n    match: [{shell.run: git push}]\nagents: {bot: {read: deny, rules: [deny a.b(x.y!=1)]}}\nhooks:\n  - before a.*: agent a.b\n    timeout: 3s\ntests: {deny: [a.b]}\ncommands: {a.b: line}\nwrites: [/tmp/**]\n")
	f.Add("rules: [*x, &y z, !!str q]\n? a\n: b\n<<: {c: d}\n")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse([]byte(text), "policy")
		if err != nil {
			if agent.KindOf(err) != agent.Invalid {
				t.Fatal(err)
			}
			return
		}
		p.Test()
		p.Lint([]agent.Tool{{Name: "a.b", Server: "a"}})
		p.Judge(call("a.b", agent.Execute, `{"command":"git push; ls","path":"/x"}`))
	})
}

func FuzzJudge(f *testing.F) {
	p := mustParse(f, "rules:\n  - deny fs.*(path=/etc/**)\n  - allow fs.*(path=/tmp/**)\n  - deny fs.*(n>3, a.b=x, url=https://*.x.com/**)\n  - allow fs.*(git *)\n  - deny fs.*(rm -rf *)\n  - deny fs.*(*=secret)\n").Guard("/var/lib/skep")
	for _, a := range readAttacks(f) {
		if len(a.call.Args) < 4096 {
			f.Add([]byte(a.call.Args))
		}
	}
	f.Fuzz(func(t *testing.T, args []byte) {
		c := Call{Tool: agent.Tool{Name: "fs.run", Effect: agent.Execute}, Args: args}
		d := p.Judge(c)
		if d.Rule == "" || d.Reason == "" {
			t.Fatalf("%+v", d)
		}
		if !json.Valid(args) && len(strings.TrimSpace(string(args))) > 0 && d.Verdict != agent.Deny {
			t.Fatalf("%q is no JSON: %+v", args, d)
		}
		p.Explain(c)
	})
}
