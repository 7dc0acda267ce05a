package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
	"github.com/skep-dev/skep/internal/visible"
)

func newApprovals(c *cli) *cobra.Command {
	var p pageFlags
	var filter client.ApprovalFilter
	cmd := &cobra.Command{
		Use:     "approvals",
		Aliases: []string{"approval"},
		Short:   "List, show and answer what waits for a person",
		Long: `List the calls of tools that the policy asks a person about, oldest first. Their runs wait, and hold no memory meanwhile. A question that nobody
answers in time is refused.`,
		Example: `  skep approvals
  skep approvals show 01JQ8...-7
  skep approvals approve 01JQ8...-7
  skep approvals approve --all-of 01JQ8... --scope run
  skep approvals deny 01JQ8...-7 --reason "not on a Friday"
  skep approvals watch`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return noVerb(cmd, args[0])
			}
			return c.listApprovals(cmd.Context(), filter, p.limit)
		},
	}
	cmd.SuggestionsMinimumDistance = 2
	p.register(cmd)
	registerFilter(cmd, &filter)
	cmd.AddCommand(newApprovalsShow(c), newApprovalsAnswer(c, true), newApprovalsAnswer(c, false), newApprovalsLink(c), newApprovalsWatch(c))
	return cmd
}

func registerFilter(cmd *cobra.Command, f *client.ApprovalFilter) {
	cmd.Flags().StringVar((*string)(&f.Run), "run", "", "only questions of this run")
	cmd.Flags().StringVar(&f.Agent, "agent", "", "only questions of this agent's runs")
}

// sayAnswered says what was answered, and to which question.
func (c *cli) sayAnswered(id agent.ApprovalID, allow bool) {
	word := "denied"
	if allow {
		word = "approved"
	}
	c.printf("%s %s\n", word, id)
}

func (c *cli) listApprovals(ctx context.Context, filter client.ApprovalFilter, limit int) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	items, err := collect(ctx, limit, func(ctx context.Context, page agent.Page) (client.List[agent.Approval], error) {
		return cl.Approvals(ctx, filter, page)
	})
	if err != nil {
		return err
	}
	if c.json {
		return c.printJSON(items)
	}
	if len(items) == 0 {
		fmt.Fprintln(c.stderr, "nothing waits for a person")
		return nil
	}
	var rows [][]string
	for _, a := range items {
		age, id := howLong(time.Since(a.Created).Round(time.Second)), string(a.ID)
		for _, call := range shownCalls(a) {
			rows = append(rows, append([]string{id, age, a.Agent}, call...))
			id, age, a.Agent = "", "", "" // one question about several calls
		}
	}
	c.printTable([]string{"ID", "AGE", "AGENT", "TOOL", "EFFECT", "WHY", "ARGUMENTS"}, rows)
	return nil
}

// maxListed is how many calls of one question a list shows.
const maxListed = 5

// shownCalls are the tool, the effect, the reason and the arguments of each call, on one line each.
func shownCalls(a agent.Approval) (out [][]string) {
	if a.Asks != nil {
		return [][]string{{visible.Text(a.Asks.Server), "question", visible.Cut(visible.Text(a.Asks.Message), 80), ""}}
	}
	for i, call := range a.Calls {
		if i == maxListed && len(a.Calls) > maxListed+1 {
			return append(out, []string{fmt.Sprintf("and %d more", len(a.Calls)-i), "", "", ""})
		}
		why := visible.Text(call.Decision.Reason)
		if call.Decision.Rule != "" {
			why = visible.Text(call.Decision.Rule) + ": " + why
		}
		tool := visible.Text(call.Tool)
		if call.Undo {
			tool = "undo: " + tool
		}
		out = append(out, []string{tool, call.Decision.Effect.String(), visible.Cut(why, 80), visible.Line(call.Args, 80)})
	}
	return out
}

func newApprovalsShow(c *cli) *cobra.Command {
	full := false
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show all that a question is about",
		Long: `Show all that a question is about. Arguments are shown out of the bytes that would be sent; characters that cannot be seen, or that change how
others are seen, are written as \u and their number. Of arguments that are longer than 16 KiB only the beginning is shown, unless --full is given.`,
		Args: cobra.ExactArgs(1),

		ValidArgsFunction: c.complete(approvalIDs),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			a, err := cl.Approval(cmd.Context(), agent.ApprovalID(args[0]))
			if err != nil {
				return err
			}
			if full {
				if err := wholeArguments(cmd.Context(), cl, &a); err != nil {
					return err
				}
			}
			if c.json {
				return c.printJSON(a)
			}
			c.printApproval(a)
			return nil
		},
	}
	cmd.Flags().BoolVar(&full, "full", false, "show all of arguments that are long")
	return cmd
}

// wholeArguments puts all of the arguments in place of what a question shows of them.
func wholeArguments(ctx context.Context, cl *client.Client, a *agent.Approval) (err error) {
	for i := range a.Calls {
		call := &a.Calls[i]
		if agent.DigestOf(call.Args) == call.ArgsDigest {
			continue
		}
		if call.Args, err = cl.ApprovalArguments(ctx, a.ID, i+1); err != nil {
			return err
		}
	}
	return nil
}

func (c *cli) printApproval(a agent.Approval) {
	c.printFields("id", string(a.ID), "title", visible.Text(a.Title), "agent", visible.Text(a.Agent), "run", string(a.Run), "session", string(a.Session),
		"asked", when(a.Created)+", "+howLong(time.Since(a.Created).Round(time.Second))+" ago", "refused", when(a.Expires)+" unless it is answered")
	for i, call := range a.Calls {
		fmt.Fprintln(c.stdout)
		switch n, of := a.Position(i); {
		case call.Undo:
			fmt.Fprintf(c.stdout, "undo of call %d: it is made only if a later call fails\n", n)
		case of > 1:
			fmt.Fprintf(c.stdout, "call %d of %d\n", n, of)
		}
		c.printFields("tool", visible.Text(call.Tool), "effect", call.Decision.Effect.String(), "why", visible.Text(call.Decision.Reason),
			"rule", ruleText(call.Decision), "notes", visible.Text(strings.Join(call.Decision.Notes, "; ")),
			"definition", string(call.Digest), "digest", string(call.ArgsDigest))
		text, warning := shownArgs(a.ID, call)
		fmt.Fprintf(c.stdout, "arguments:\n%s\n", text)
		if warning != "" {
			fmt.Fprintf(c.stdout, "%s\n", warning)
		}
	}
	if q := a.Asks; q != nil {
		fmt.Fprintf(c.stdout, "\n%s asks:\n%s\n", visible.Text(q.Server), visible.Block(q.Message))
		if q.URL != "" {
			fmt.Fprintf(c.stdout, "open yourself, if you know it: %s\n", visible.Text(q.URL))
		}
		if len(q.Schema) > 0 {
			fmt.Fprintf(c.stdout, "answer with skep approvals approve %s --content OBJECT; its schema:\n%s\n", a.ID, visible.JSON(q.Schema))
		}
	}
}

// ruleText is a rule and where it stands.
func ruleText(d agent.Decision) string {
	if d.From == "" || d.From == "default" {
		return visible.Text(d.Rule)
	}
	return visible.Text(d.Rule + ", at " + d.From)
}

// shownArgs shows a call's arguments, and says when these are not all of the bytes that would be sent.
func shownArgs(id agent.ApprovalID, call agent.ApprovalCall) (text, warning string) {
	var beginning string
	switch {
	case agent.DigestOf(call.Args) == call.ArgsDigest:
		return visible.JSON(call.Args), ""
	case json.Unmarshal(call.Args, &beginning) == nil:
		return visible.Block(beginning), "this is only the beginning: skep approvals show --full " + string(id) + " shows all"
	}
	return visible.JSON(call.Args), "what is shown is not what would be sent: do not approve it"
}

// answerFlags are what an answer may say.
type answerFlags struct {
	reason, scope, pattern, content string
	all                             string
	count                           int
	lasts                           time.Duration
}

func (f answerFlags) answer(allow bool) (agent.ApprovalAnswer, error) {
	a := agent.ApprovalAnswer{Allow: allow, Reason: f.reason, Pattern: f.pattern, Count: f.count, For: f.lasts}
	if f.scope != "" {
		if err := a.Scope.UnmarshalText([]byte(f.scope)); err != nil {
			return a, usageError("--scope %s: use once, run or pattern", f.scope)
		}
	}
	if f.pattern != "" && f.scope == "" {
		a.Scope = agent.ScopePattern
	}
	if f.content != "" {
		if !json.Valid([]byte(f.content)) {
			return a, badJSON(f.content)
		}
		a.Content = json.RawMessage(f.content)
	}
	return a, nil
}

func newApprovalsAnswer(c *cli, allow bool) *cobra.Command {
	var f answerFlags
	cmd := &cobra.Command{
		Use:     "deny ID...",
		Aliases: []string{"refuse"},
		Short:   "Refuse calls; the code is told, with the reason",
		Example: "  skep approvals deny 01JQ8...-7 --reason \"not on a Friday\"\n  skep approvals deny --all-of 01JQ8...",

		ValidArgsFunction: c.completeMany(approvalIDs),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := f.answer(allow)
			if err != nil {
				return err
			}
			cl, err := c.client()
			if err != nil {
				return err
			}
			ids, err := f.questions(cmd.Context(), cl, args)
			if err != nil {
				return err
			}
			runs, err := cl.AnswerApprovals(cmd.Context(), ids, a)
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(runs)
			}
			for _, id := range ids {
				c.sayAnswered(id, allow)
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.all, "all-of", "", "all open questions of this `RUN`, together")
	flags.StringVar(&f.reason, "reason", "", "why, for the log, and for the code when it is refused")
	if !allow {
		return cmd
	}
	cmd.Use, cmd.Aliases, cmd.Short = "approve ID...", []string{"allow"}, "Allow calls, once or further ones like them, too"
	cmd.Long = `Allow calls. They are made once, with exactly the arguments that were asked about. --scope run allows what the same run asks of the same
tools from now on, too; --scope pattern what a pattern matches, for so many calls and so long, by the same agent.`
	cmd.Example = `  skep approvals approve 01JQ8...-7
  skep approvals approve --all-of 01JQ8... --scope run
  skep approvals approve 01JQ8...-7 --pattern 'fs.write_file(path=/tmp/**)' --count 20 --for 30m`
	flags.StringVar(&f.scope, "scope", "", "what it covers: once, run or pattern; once unless given")
	flags.StringVar(&f.pattern, "pattern", "", "what is allowed, as in a rule of the policy")
	flags.IntVar(&f.count, "count", 0, "with --pattern: for how many calls, 1 to 1000")
	flags.DurationVar(&f.lasts, "for", 0, "with --pattern: for how long, such as 30m")
	flags.StringVar(&f.content, "content", "", "answer to a question of a tool's server: the `OBJECT` that it asks for, as JSON")
	_ = cmd.RegisterFlagCompletionFunc("scope", cobra.FixedCompletions([]string{"once", "run", "pattern"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// questions are those that the arguments name, or all of a run.
func (f answerFlags) questions(ctx context.Context, cl *client.Client, args []string) ([]agent.ApprovalID, error) {
	switch {
	case f.all == "" && len(args) == 0:
		return nil, usageError("name questions, or a run with --all-of")
	case f.all != "" && len(args) > 0:
		return nil, usageError("name either questions or a run with --all-of")
	}
	var ids []agent.ApprovalID
	for _, arg := range args {
		ids = append(ids, agent.ApprovalID(arg))
	}
	if f.all == "" {
		return ids, nil
	}
	open, err := collect(ctx, 0, func(ctx context.Context, page agent.Page) (client.List[agent.Approval], error) {
		return cl.Approvals(ctx, client.ApprovalFilter{Run: agent.RunID(f.all)}, page)
	})
	for _, a := range open {
		ids = append(ids, a.ID)
	}
	if err == nil && len(ids) == 0 {
		err = &agent.Error{Kind: agent.NotFound, Msg: "run " + f.all + " waits for no answer", Hint: "skep approvals lists what does"}
	}
	return ids, err
}

func newApprovalsLink(c *cli) *cobra.Command {
	var lasts time.Duration
	cmd := &cobra.Command{
		Use:   "link ID",
		Short: "Print a link by which a person can answer a question, once",
		Long: `Print a link. Whoever opens it sees what is asked and can allow it once or refuse it, without a token. It can do nothing else, works once, and
ends after 15 minutes unless --expires says otherwise, or with the question. The server's --public-url is what it begins with.`,
		Example: "  skep approvals link 01JQ8...-7 --expires 1h",
		Args:    cobra.ExactArgs(1),

		ValidArgsFunction: c.complete(approvalIDs),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			l, err := cl.LinkApproval(cmd.Context(), agent.ApprovalID(args[0]), lasts)
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(l)
			}
			c.printf("%s\n", l.URL)
			c.notef("it works once, until %s; whoever has it can answer\n", when(l.Expires))
			return nil
		},
	}
	cmd.Flags().DurationVar(&lasts, "expires", 0, "how long it lasts, such as 1h; up to a day, and no longer than the question; 15m unless given")
	return cmd
}

// approvalIDs lists the open questions.
func approvalIDs(ctx context.Context, cl *client.Client, _ []string) (out []string, err error) {
	l, err := cl.Approvals(ctx, client.ApprovalFilter{}, agent.Page{Limit: agent.MaxPage})
	for _, a := range l.Items {
		out = append(out, string(a.ID))
	}
	return out, err
}
