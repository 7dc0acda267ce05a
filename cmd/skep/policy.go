package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
	"github.com/skep-dev/skep/tools/policy"
)

func newPolicy(c *cli) *cobra.Command {
	cmd := shelf(&cobra.Command{
		Use:   "policy",
		Short: "Say which calls of tools are allowed, asked about or denied",
		Long: `An app's policy is a short file of rules. Of all that match a call, deny wins over ask, and ask over allow; where none does, the tool's effect
decides. Nothing can allow what is on the floor, such as deleting a whole system. docs/guide/policy.md tells how to write one.`,
		Example: `  skep policy show > policy.yaml
  skep policy test policy.yaml
  skep policy set policy.yaml
  skep policy explain shell.run 'git status && rm -rf build'`,
	})
	cmd.AddCommand(newPolicyShow(c), newPolicySet(c), newPolicyTest(c), newPolicyExplain(c), newPolicyLint(c), newPolicyHistory(c), newPolicyImport(c))
	return cmd
}

func newPolicyShow(c *cli) *cobra.Command {
	var revision int
	cmd := &cobra.Command{
		Use:     "show",
		Short:   "Print the policy that holds, or a former one",
		Example: "  skep policy show\n  skep policy show --revision 3",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			p, err := cl.Policy(cmd.Context(), revision)
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(p)
			}
			if p.Revision == 0 {
				c.notef("the app has set no policy; this is the default\n")
			}
			c.printf("%s", p.Text)
			return nil
		},
	}
	cmd.Flags().IntVar(&revision, "revision", 0, "a former one, as skep policy history lists them")
	return cmd
}

func newPolicySet(c *cli) *cobra.Command {
	revision := -1
	cmd := &cobra.Command{
		Use:   "set FILE",
		Short: "Set the policy, once its examples come out",
		Long: `Set the app's policy from a file, or from standard input for -. It holds from the next call on, for runs that are under way, too. One whose
examples do not come out is refused. The last 20 are kept.`,
		Example: "  skep policy set policy.yaml\n  skep policy show --revision 3 | skep policy set -",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := c.readPolicy(args[0])
			if err != nil {
				return err
			}
			cl, err := c.client()
			if err != nil {
				return err
			}
			var was *int
			if revision >= 0 {
				was = &revision
			}
			p, err := cl.SetPolicy(cmd.Context(), text, was)
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(p)
			}
			c.printf("set the policy, revision %d\n", p.Revision)
			if l, err := cl.LintPolicy(cmd.Context(), client.PolicyText{}); err == nil && len(l.Findings) > 0 {
				c.notef("skep policy lint has %d remarks\n", len(l.Findings))
			}
			return nil
		},
	}
	cmd.Flags().IntVar(&revision, "if-revision", -1, "only when the policy is at this `REVISION`")
	return cmd
}

// readPolicy reads a policy and parses it, so that mistakes are told where no server is needed to find them.
func (c *cli) readPolicy(name string) (string, error) {
	text, err := c.readText(name)
	if err != nil {
		return "", err
	}
	if _, err := policy.Parse(text, policyFile(name)); err != nil {
		return "", err
	}
	return string(text), nil
}

func (c *cli) readText(name string) (text []byte, err error) {
	if name == "-" {
		text, err = io.ReadAll(io.LimitReader(c.stdin, policy.MaxText+1))
	} else {
		text, err = os.ReadFile(name)
	}
	if err != nil {
		return nil, &agent.Error{Kind: agent.Invalid, Msg: "read the file", Err: err}
	}
	return text, nil
}

func policyFile(name string) string {
	if name == "-" {
		return "policy"
	}
	return filepath.Base(name)
}

// policyText is the file that is named, or nothing for the app's own.
func (c *cli) policyText(args []string) (client.PolicyText, error) {
	if len(args) == 0 {
		return client.PolicyText{}, nil
	}
	text, err := c.readPolicy(args[0])
	return client.PolicyText{Text: text, File: policyFile(args[0])}, err
}

// alone tells whether a file is looked at without a server: there is none to ask, or it does not answer.
func alone(t client.PolicyText, err error) bool {
	k := agent.KindOf(err)
	return err != nil && t.Text != "" && (k == agent.Unavailable || k == agent.Unauthenticated || k == agent.NotFound || k == agent.Invalid)
}

func newPolicyTest(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "test [FILE]",
		Short: "Run the examples of a policy",
		Long: `Run the examples of the app's policy, or of a file: match and not_match of its rules, and its tests. The effects of tools are those of the app
where a server answers; else tools are not classified, which counts as execute.`,
		Example: "  skep policy test\n  skep policy test policy.yaml",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := c.policyText(args)
			if err != nil {
				return err
			}
			out, err := withServer(c, cmd.Context(), t, (*client.Client).TestPolicy, func(p *policy.Policy) client.PolicyTested {
				l := client.PolicyTested{Examples: p.Examples(), Failed: []client.PolicyFailure{}}
				for _, f := range p.Test() {
					l.Failed = append(l.Failed, client.PolicyFailure(f))
				}
				return l
			})
			if err != nil {
				return err
			}
			if c.json {
				if err := c.printJSON(out); err != nil {
					return err
				}
			} else {
				for _, f := range out.Failed {
					c.printf("%s: %s is %s, and should be %s%s\n", plain(f.From), plain(f.Example), f.Got, f.Want, inBrackets(or(f.Reason, f.Rule)))
				}
				if len(out.Failed) == 0 {
					c.printf("%d examples come out\n", out.Examples)
				}
			}
			if n := len(out.Failed); n > 0 {
				return &agent.Error{Kind: agent.Failed, Msg: fmt.Sprintf("%d of %d examples do not come out", n, out.Examples)}
			}
			return nil
		},
	}
}

func inBrackets(s string) string {
	if s == "" {
		return ""
	}
	return " (" + plain(s) + ")"
}

// withServer asks the server about a policy. A file is looked at here when there is none.
func withServer[T any](c *cli, ctx context.Context, t client.PolicyText, ask func(*client.Client, context.Context, client.PolicyText) (T, error), here func(*policy.Policy) T) (out T, err error) {
	cl, err := c.client()
	if err == nil {
		out, err = ask(cl, ctx, t)
	}
	if !alone(t, err) || ctx.Err() != nil {
		return out, err
	}
	p, err := policy.Parse([]byte(t.Text), t.File)
	if err != nil {
		return out, err
	}
	c.notef("no server answers, so the app's tools are not known\n")
	return here(p), nil
}

func newPolicyLint(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "lint [FILE]",
		Short: "Look for what is probably not meant in a policy",
		Long: `Look in the app's policy, or in a file, for rules that can never match one of the app's tools, rules that others make useless, misspelt names,
and patterns that match less, or more, than they seem to.`,
		Example: "  skep policy lint policy.yaml",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := c.policyText(args)
			if err != nil {
				return err
			}
			out, err := withServer(c, cmd.Context(), t, (*client.Client).LintPolicy, func(p *policy.Policy) client.PolicyLinted {
				l := client.PolicyLinted{Findings: []client.PolicyFinding{}}
				for _, f := range p.Lint(nil) {
					l.Findings = append(l.Findings, client.PolicyFinding(f))
				}
				return l
			})
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(out)
			}
			for _, f := range out.Findings {
				c.printf("%s: %s\n  %s\n", plain(f.From), plain(f.Rule), plain(f.Message))
				if f.Hint != "" {
					c.printf("  %s\n", plain(f.Hint))
				}
			}
			if len(out.Findings) == 0 {
				c.printf("nothing to remark; compared with %d tools\n", out.Tools)
			}
			return nil
		},
	}
}

func newPolicyHistory(c *cli) *cobra.Command {
	list := func(cl *client.Client, ctx context.Context, _ []string, page agent.Page) (client.List[client.PolicyRevision], error) {
		return cl.PolicyHistory(ctx, page)
	}
	return listOf(c, "history", "List the policies that are kept, newest first", list, table[client.PolicyRevision]{
		what: "policies", hint: "skep policy set FILE sets one", header: []string{"REVISION", "SET", "BY", "SIZE", ""},
		row: func(r client.PolicyRevision) []string {
			current := ""
			if r.Current {
				current = "current"
			}
			return []string{strconv.Itoa(r.Revision), when(r.Created), plain(string(r.By)), size(int64(r.Bytes)), current}
		},
	})
}

func newPolicyExplain(c *cli) *cobra.Command {
	var file, by, effect string
	var unattended bool
	cmd := &cobra.Command{
		Use:   "explain TOOL [ARGS]",
		Short: "Tell what becomes of a call, and why",
		Long: `Tell what becomes of a call of a tool, and what each rule about that tool says of it. ARGS is an object in JSON; anything else is the command of a
tool that runs commands. Hooks, standing answers and pins are not looked at, and budgets are listed as they stand.`,
		Example: `  skep policy explain fs.write_file '{"path":"/etc/passwd"}'
  skep policy explain shell.run 'git status && rm -rf build'
  skep policy explain shell.run 'git push' --file policy.yaml`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := client.PolicyCall{Tool: args[0], Agent: by, Unattended: unattended}
			if len(args) > 1 {
				q.Args = callArgs(args[1])
			}
			if effect != "" {
				var e agent.Effect
				if err := e.UnmarshalText([]byte(effect)); err != nil {
					return err
				}
				q.Effect = &e
			}
			if file != "" {
				text, err := c.readPolicy(file)
				if err != nil {
					return err
				}
				q.PolicyText = client.PolicyText{Text: text, File: policyFile(file)}
			}
			out, err := withServer(c, cmd.Context(), q.PolicyText, func(cl *client.Client, ctx context.Context, _ client.PolicyText) (client.PolicyExplained, error) {
				return cl.ExplainPolicy(ctx, q)
			}, func(p *policy.Policy) client.PolicyExplained { return explainHere(p, q) })
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(out)
			}
			c.printExplained(q.Tool, out)
			return nil
		},
	}
	cmd.Flags().StringVar(&file, "file", "", "by the policy in this `FILE`, not by the app's")
	cmd.Flags().StringVar(&by, "agent", "", "`AGENT` that calls")
	cmd.Flags().StringVar(&effect, "effect", "", "effect of the tool, in place of its own: "+strings.Join(effects, ", "))
	cmd.Flags().BoolVar(&unattended, "unattended", false, "nobody can be asked")
	_ = cmd.RegisterFlagCompletionFunc("effect", cobra.FixedCompletions(effects, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// callArgs reads arguments: an object, or a command.
func callArgs(s string) json.RawMessage {
	if t := strings.TrimSpace(s); strings.HasPrefix(t, "{") && json.Valid([]byte(t)) {
		return json.RawMessage(t)
	}
	b, _ := json.Marshal(map[string]string{"command": s})
	return b
}

func explainHere(p *policy.Policy, q client.PolicyCall) client.PolicyExplained {
	call := policy.Call{Agent: q.Agent, Tool: agent.Tool{Name: q.Tool}, Args: q.Args, Unattended: q.Unattended}
	if q.Effect != nil {
		call.Tool.Effect = *q.Effect
	}
	steps, d := p.Explain(call)
	out := client.PolicyExplained{Decision: d, Steps: []client.PolicyStep{}, Parts: p.Parts(call)}
	for _, s := range steps {
		out.Steps = append(out.Steps, client.PolicyStep(s))
	}
	for _, b := range p.Budgets(call) {
		out.Budgets = append(out.Budgets, client.PolicyBudget{Budget: b.Text, From: b.From, Limit: b.Limit, Then: b.Then})
	}
	return out
}

func (c *cli) printExplained(tool string, out client.PolicyExplained) {
	d := out.Decision
	c.printf("%s  %s\n", d.Verdict, plain(tool))
	rows := [][2]string{{"effect", d.Effect.String()}, {"rule", plain(d.Rule) + inBrackets(d.From)}, {"reason", plain(d.Reason)}}
	if d.Hold > 0 || d.Count > 0 {
		rows = append(rows, [2]string{"approval", holdText(d)})
	}
	if d.Timeout > 0 {
		rows = append(rows, [2]string{"waits", howLong(d.Timeout)})
	}
	for _, p := range out.Parts {
		rows = append(rows, [2]string{"command", plain(p)})
	}
	for _, b := range out.Budgets {
		rows = append(rows, [2]string{"budget", plain(b.Budget) + inBrackets(b.From) + spentText(b)})
	}
	if !out.Known {
		rows = append(rows, [2]string{"note", "the app's tools have none of this name"})
	}
	for _, r := range rows {
		c.printf("%-9s %s\n", r[0], r[1])
	}
	if len(out.Steps) == 0 {
		return
	}
	c.printf("\n")
	var steps [][]string
	for _, s := range out.Steps {
		steps = append(steps, []string{plain(s.From), plain(s.Rule), s.Match, plain(s.Why)})
	}
	c.printTable([]string{"WHERE", "RULE", "MATCH", "WHY"}, steps)
}

// spentText says how much of a budget is spent, where that is known.
func spentText(b client.PolicyBudget) string {
	if b.Calls == nil {
		return ""
	}
	return fmt.Sprintf(": %d of %d spent", *b.Calls, b.Limit)
}

// holdText says how far an approval of the rule reaches.
func holdText(d agent.Decision) string {
	text := "holds"
	if d.Hold > 0 {
		text += " for " + howLong(d.Hold)
	}
	if d.Count > 0 {
		text += fmt.Sprintf(" for %d calls", d.Count)
	}
	return text
}

func newPolicyImport(c *cli) *cobra.Command {
	var from, out string
	var names policy.Names
	cmd := &cobra.Command{
		Use:   "import FILE --from PROGRAM",
		Short: "Make a policy of the rules of another program",
		Long: `Make a policy of settings.json of Claude Code, opencode.json, or a .rules file of Codex, and print it. What has no counterpart is listed. Nothing is
set: look at it, test it, and set it with skep policy set. FILE may be - for standard input.`,
		Example: `  skep policy import ~/.claude/settings.json --from claude-code > policy.yaml
  skep policy import opencode.json --from opencode --shell desktop-commander.start_process
  skep policy import default.rules --from codex | skep policy set -`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if from == "" {
				return &agent.Error{Kind: agent.Invalid, Msg: "whose rules are these?", Hint: "add --from " + strings.Join(policy.Programs, ", --from ")}
			}
			data, err := c.readText(args[0])
			if err != nil {
				return err
			}
			made, err := policy.Convert(from, data, names)
			if err != nil {
				return err
			}
			if out != "" {
				if err := os.WriteFile(out, []byte(made.Text), 0o644); err != nil {
					return &agent.Error{Kind: agent.Invalid, Msg: "write the policy", Err: err}
				}
			}
			if c.json {
				return c.printJSON(made)
			}
			if out == "" {
				c.printf("%s", made.Text)
			}
			c.notef("took over %d rules\n", made.Rules)
			for _, l := range made.Left {
				c.notef("not taken over: %s\n", plain(l))
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&from, "from", "", "`PROGRAM` whose rules they are: "+strings.Join(policy.Programs, ", "))
	flags.StringVarP(&out, "output", "o", "", "write the policy to this file")
	flags.StringVar(&names.Shell, "shell", "", "`TOOL` that runs commands; shell.run unless given")
	flags.StringVar(&names.Files, "files", "", "`SERVER` of files; fs unless given")
	flags.StringVar(&names.Web, "web", "", "`TOOL` that fetches a URL; http.{get,request} unless given")
	_ = cmd.RegisterFlagCompletionFunc("from", cobra.FixedCompletions(policy.Programs, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}
