package policy

import (
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
)

func TestConvert(t *testing.T) {
	for _, c := range []struct {
		program, in string
		want, left  []string
	}{
		{"claude-code", `{
  // a comment
  "permissions": {
    "allow": ["Bash(git log:*)", "Bash(npm run test *)", "Read(//srv/**)", "mcp__github__create_issue", "mcp__memory", "WebFetch(domain:example.com)", "WebSearch", "Edit(src/**)",],
    "ask": ["Bash(git push *)"],
    "deny": ["Read(./.env)", "Bash(curl *)"],
    "defaultMode": "acceptEdits"
  }
}`,
			[]string{"modify: allow", "- allow shell.run(git log *)", "- allow shell.run(npm run test *)", "- allow fs.{read_*,list_*,search_*,directory_*,get_*}(path=/srv/**)", "- allow github.create_issue", "- allow memory.*", "- allow http.{get,request}(url=*://example.com/**)", "- ask shell.run(git push *)", "(path=**/.env)", "- deny shell.run(curl *)"},
			[]string{"allow WebSearch: there is no tool", "allow Edit(src/**): the path is relative"}},
		{"opencode", `{"permission": {"edit": "deny", "bash": {"*": "ask", "git *": "allow", "rm *": "deny", "*m *": "allow"}, "webfetch": "ask", "doom_loop": "ask", "github_*": "ask"}}`,
			[]string{"execute: ask", "- deny fs.{write_*,edit_*,create_*,move_*}", "- allow shell.run(git *)", "- deny shell.run(rm *)", "- ask http.{get,request}", "- ask github.*"},
			[]string{"doom_loop: there is no tool", "deny rm * wins here"}},
		{"codex", `# rules
prefix_rule(
    pattern = ["gh", "pr", ["view", "list"]],
    decision = "prompt",  # ask
    justification = "Others: see it",
    match = ["gh pr view 7", ["gh", "pr", "list"]],
    not_match = ["gh issue list"],
)
prefix_rule(pattern=["rm"], decision="forbidden")
`,
			[]string{"- rule: ask shell.run(gh pr {view,list} *)", `because: "Others: see it"`, `- shell.run: "gh pr list"`, "- deny shell.run(rm *)"}, nil},
	} {
		out, err := Convert(c.program, []byte(c.in), Names{})
		if err != nil {
			t.Errorf("%s: %v", c.program, err)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(out.Text, w) {
				t.Errorf("%s: no %q in\n%s", c.program, w, out.Text)
			}
		}
		for _, w := range c.left {
			if !strings.Contains(strings.Join(out.Left, "\n"), w) {
				t.Errorf("%s: no %q in %q", c.program, w, out.Left)
			}
		}
		p, err := Parse([]byte(out.Text), "policy")
		if err != nil {
			t.Fatal(err)
		}
		if failed := p.Test(); len(failed) > 0 {
			t.Errorf("%s: %+v", c.program, failed)
		}
	}
	for program, in := range map[string]string{"claude-code": "x", "opencode": "{}", "codex": "prefix_rule(", "other": "{}"} {
		if _, err := Convert(program, []byte(in), Names{}); agent.KindOf(err) != agent.Invalid || err == nil {
			t.Errorf("%s: %v", program, err)
		}
	}
}

// A default that is no verdict is left out, whatever it holds.
func TestConvertDefaults(t *testing.T) {
	for _, in := range []string{
		`{"permission":"allow\nunattended: ask"}`, `{"permission":{"*":"allow\nunattended: ask"}}`, `{"permission":{"bash":{"*":"allow\nunattended: ask"}}}`,
		`{"permission":{"bash":{"*":"maybe"}}}`,
	} {
		out, err := Convert("opencode", []byte(in), Names{})
		if err != nil || len(out.Left) != 1 || !strings.Contains(out.Text, "\nexecute: ask\n") || strings.Contains(out.Text, "\nunattended") {
			t.Errorf("%s: %v %+v", in, err, out)
		}
	}
}

func FuzzConvert(f *testing.F) {
	f.Add("claude-code", `{"permissions":{"allow":["Bash(git log:*)","Read(//x)"],"deny":["mcp__a__b"]}}`)
	f.Add("opencode", `{"permission":{"bash":{"*":"ask","git *":"allow"},"edit":"deny"}}`)
	f.Add("codex", `prefix_rule(pattern=["git",["a","b"]],decision="prompt",justification="x",match=["git a"])`)
	f.Fuzz(func(t *testing.T, program, in string) {
		out, err := Convert(program, []byte(in), Names{})
		if err == nil {
			if _, err := Parse([]byte(out.Text), "policy"); err != nil {
				t.Fatal(err)
			}
		} else if k := agent.KindOf(err); k != agent.Invalid && k != agent.Internal {
			t.Fatal(err)
		}
	})
}
