package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

func newTools(c *cli) *cobra.Command {
	cmd := shelf(&cobra.Command{
		Use:     "tools",
		Aliases: []string{"tool"},
		Short:   "Add servers of tools, classify their tools, and call them",
		Long: `Tools are functions that agents and scripts of code mode can call: of MCP servers, of HTTP APIs that an OpenAPI document describes, of
other agents, and Skep's own. Each is called SERVER.METHOD and has an effect, by which the policy decides whether a call is made, asked
about or refused. What nobody has classified counts as execute.`,
		Example: `  skep tools add fs -- npx -y @modelcontextprotocol/server-filesystem /srv/files
  skep tools add shop --openapi https://shop.example.com/openapi.json --header 'Authorization=Bearer ${secret:shop}'
  skep tools list --server fs
  skep tools classify fs
  skep tools call fs.read_text_file '{"path":"/srv/files/a.txt"}'`,
	})
	cmd.AddCommand(newToolsAdd(c), newToolsImport(c), newToolsList(c), newToolsShow(c), newToolsCall(c), newToolsClassify(c), newToolsPin(c),
		newToolsStatus(c), newToolsRefresh(c), newToolsUpdate(c), newToolsRemove(c), newToolsDeclarations(c), newToolsAuthorize(c), newToolsPrompts(c), newToolsResources(c))
	return cmd
}

func newToolsList(c *cli) *cobra.Command {
	var f client.ToolFilter
	var p pageFlags
	cmd := &cobra.Command{
		Use:     "list [WORDS...]",
		Short:   "List tools by name, or those that words speak of, best first",
		Example: "  skep tools list\n  skep tools list --server github --effect unclassified\n  skep tools list read a file",
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			f.Query = strings.Join(args, " ")
			var missing []agent.ToolStatus
			items, err := collect(cmd.Context(), p.limit, func(ctx context.Context, page agent.Page) (client.List[agent.Tool], error) {
				l, err := cl.Tools(ctx, f, page)
				if page.After == "" {
					missing = l.Missing
				}
				return client.List[agent.Tool]{Items: l.Items, Next: l.Next}, err
			})
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(items)
			}
			for _, st := range missing {
				c.notef("server %s is %s: %s\n", st.Server, st.State, plain(st.Error))
			}
			if len(items) == 0 {
				if f.Query == "" {
					c.printEmpty("tools", "skep tools add NAME -- COMMAND adds a server of some")
				}
				return nil
			}
			var rows [][]string
			for _, t := range items {
				rows = append(rows, []string{plain(t.Name), effectText(t), t.By.String(), firstLine(t.Description)})
			}
			c.printTable([]string{"NAME", "EFFECT", "BY", "DESCRIPTION"}, rows)
			return nil
		},
	}
	p.register(cmd)
	cmd.Flags().StringVar(&f.Server, "server", "", "only tools of this server")
	cmd.Flags().StringVar(&f.Effect, "effect", "", "only tools of this effect: "+strings.Join(effects, ", "))
	_ = cmd.RegisterFlagCompletionFunc("server", flagValues(c, toolServers))
	_ = cmd.RegisterFlagCompletionFunc("effect", cobra.FixedCompletions(effects, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// effects are the names of all.
var effects = func() (out []string) {
	for e := agent.Unclassified; e <= agent.Execute; e++ {
		out = append(out, e.String())
	}
	return out
}()

func effectText(t agent.Tool) string {
	if t.Changed {
		return t.Effect.String() + " (changed)"
	}
	return t.Effect.String()
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return plain(clip(line))
}

// flagValues completes a flag's value.
func flagValues(c *cli, list completer) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		return c.complete(list)(cmd, nil, begun)
	}
}

func toolServers(ctx context.Context, cl *client.Client, _ []string) (out []string, err error) {
	l, err := cl.ToolServers(ctx, agent.Page{Limit: agent.MaxPage})
	for _, s := range l.Items {
		out = append(out, s.Name)
	}
	return out, err
}

func toolNames(ctx context.Context, cl *client.Client, _ []string) (out []string, err error) {
	l, err := cl.Tools(ctx, client.ToolFilter{}, agent.Page{Limit: agent.MaxPage})
	for _, t := range l.Items {
		out = append(out, t.Name)
	}
	return out, err
}

func newToolsShow(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:     "show TOOL|SERVER",
		Short:   "Show a tool with its schemas, or a server of tools",
		Example: "  skep tools show fs.read_file\n  skep tools show fs",
		Args:    cobra.ExactArgs(1),

		ValidArgsFunction: c.complete(toolNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			if !strings.Contains(args[0], ".") {
				s, err := cl.ToolServer(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return c.showServer(s)
			}
			t, err := cl.Tool(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(t)
			}
			again, changed := "", ""
			if t.Idempotent {
				again = "yes"
			}
			if t.Changed {
				changed = "since it was last looked at: skep tools pin " + t.Name + " accepts it"
			}
			c.printFields("name", plain(t.Name), "code", plain(t.Path), "effect", t.Effect.String(), "by", t.By.String(), "hints", hintText(t.Hints),
				"suggested", suggestion(t), "idempotent", again, "undo", t.Undo, "changed", changed, "digest", short(t.Digest),
				"input", compact(t.Input), "output", compact(t.Output))
			if t.Description != "" {
				fmt.Fprintf(c.stdout, "\n%s\n", plainText(t.Description))
			}
			return nil
		},
	}
}

// plainText is plain line by line.
func plainText(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	for i := range lines {
		lines[i] = plain(strings.TrimRight(lines[i], "\r"))
	}
	return strings.Join(lines, "\n")
}

func suggestion(t client.ToolDetail) string {
	if t.Effect != agent.Unclassified || t.Suggest == agent.Unclassified {
		return ""
	}
	return t.Suggest.String() + ", as " + t.Why
}

func hintText(h *client.ToolHints) string {
	if h == nil {
		return ""
	}
	var out []string
	for _, f := range []struct {
		name string
		v    *bool
	}{{"read only", h.ReadOnly}, {"destructive", h.Destructive}, {"idempotent", h.Idempotent}, {"open world", h.OpenWorld}} {
		if f.v != nil {
			out = append(out, f.name+": "+map[bool]string{true: "yes", false: "no"}[*f.v])
		}
	}
	return strings.Join(out, ", ")
}

func (c *cli) showServer(s client.ToolServer) error {
	if c.json {
		return c.printJSON(s)
	}
	st := s.Status
	trusted, private, count := "", "", strconv.Itoa(st.Tools)
	if s.Trusted && s.Kind != agent.BuiltIn {
		trusted = "yes: its hints are believed"
	}
	if s.Private {
		private = "it may lead to private addresses"
	}
	retry := ""
	if !st.Retry.IsZero() && st.State == agent.ServerFailed {
		retry = when(st.Retry)
	}
	c.printFields("name", s.Name, "kind", s.Kind.String(), "description", plain(s.Description), "command", strings.Join(s.Command, " "), "dir", s.Dir,
		"url", s.URL, "private", private, "agent", s.Agent, "only", strings.Join(s.Only, ", "), "trusted", trusted, "classified", classifiedText(s.ToolServer),
		"state", st.State.String(), "tools", count, "protocol", st.Protocol, "version", plain(st.Version), "error", plain(st.Error), "hint", plain(st.Hint), "retry", retry)
	for _, n := range st.Notes {
		c.notef("note: %s\n", plain(n))
	}
	if st.Stderr != "" {
		c.notef("the end of what it said on standard error:\n%s\n", plainText(st.Stderr))
	}
	for _, h := range s.Hints {
		c.notef("hint: %s\n", plain(h))
	}
	return nil
}

func classifiedText(s agent.ToolServer) string {
	if len(s.Effects) == 0 {
		return ""
	}
	return fmt.Sprintf("%d of its tools, by an operator", len(s.Effects))
}

func newToolsStatus(c *cli) *cobra.Command {
	cmd := listOf(c, "status", "Show servers of tools and how they stand", func(cl *client.Client, ctx context.Context, _ []string, page agent.Page) (client.List[client.ToolServer], error) {
		return cl.ToolServers(ctx, page)
	}, table[client.ToolServer]{
		what: "servers of tools", hint: "skep tools add NAME -- COMMAND adds one", header: []string{"NAME", "KIND", "STATE", "TOOLS", "TRUSTED", "ERROR"},
		row: func(s client.ToolServer) []string {
			trusted := ""
			if s.Trusted && s.Kind != agent.BuiltIn {
				trusted = "yes"
			}
			return []string{s.Name, s.Kind.String(), s.Status.State.String(), strconv.Itoa(s.Status.Tools), trusted, firstLine(s.Status.Error)}
		},
	})
	cmd.Aliases = []string{"servers"}
	return cmd
}

func newToolsRefresh(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "refresh SERVER",
		Short: "Ask a server of tools anew what it has",
		Args:  cobra.ExactArgs(1),

		ValidArgsFunction: c.complete(toolServers),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			s, err := cl.RefreshToolServer(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.showServer(s)
		},
	}
}

func newToolsRemove(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:     "remove SERVER...",
		Aliases: []string{"rm", "delete"},
		Short:   "Remove servers of tools, and end them",
		Args:    cobra.MinimumNArgs(1),

		ValidArgsFunction: c.completeMany(toolServers),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			for _, name := range args {
				if err := cl.DeleteToolServer(cmd.Context(), name); err != nil {
					return err
				}
				if !c.json {
					c.printf("removed server %s\n", name)
				}
			}
			if c.json {
				return c.printJSON(map[string]any{"removed": args})
			}
			return nil
		},
	}
}

func newToolsCall(c *cli) *cobra.Command {
	var call client.ToolCall
	var session string
	var detach, quiet bool
	cmd := &cobra.Command{
		Use:   "call TOOL [ARGS]",
		Short: "Call a tool in a run of its own, and print its result",
		Long: `Call a tool in a durable run of its own, with the grants of an agent and under the app's policy, and print its result. Where a person
has to approve the call, the run waits, and goes on when skep approvals approve has answered. Ctrl-C cancels it.

` + inputHelp,
		Example: `  skep tools call fs.list_directory '{"path":"/srv/files"}'
  skep tools call http.get '{"url":"https://api.example.com"}' --agent fetcher`,
		Args: cobra.RangeArgs(1, 2),

		ValidArgsFunction: c.complete(toolNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			input, err := c.jsonInput(args[1:])
			if err != nil {
				return err
			}
			call.Args, call.Session, call.Wait = input, agent.SessionID(session), new(int)
			cl, err := c.client()
			if err != nil {
				return err
			}
			started, err := cl.CallTool(cmd.Context(), args[0], call)
			if err != nil {
				return err
			}
			if detach {
				if c.json {
					return c.printJSON(started)
				}
				c.printf("%s\n", started.Run)
				return nil
			}
			events := c.stderr
			if c.json {
				events = c.stdout
			}
			return c.follow(cmd.Context(), cl, agent.Run{ID: started.Run, Session: started.Session}, attachment{events: events, quiet: quiet, owned: true})
		},
	}
	cmd.Flags().StringVar(&call.Agent, "agent", "", "`AGENT` for whom it is called; \"code\", which is made when it is needed, unless given")
	cmd.Flags().StringVar(&session, "session", "", "session to run in; a new one unless given")
	cmd.Flags().BoolVarP(&detach, "detach", "d", false, "print the run's id and leave it running")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print the result only")
	return cmd
}

func newToolsPin(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "pin TOOL|SERVER...",
		Short: "Accept tools as they are now, after their servers have changed them",
		Long: `Tools of MCP servers are pinned as they are when their server is added or trusted, and when they are classified. Each call of one that
has changed since is asked about, until it is pinned anew. skep tools show TOOL shows what it says now.`,
		Example: "  skep tools pin github.create_issue\n  skep tools pin github",
		Args:    cobra.MinimumNArgs(1),

		ValidArgsFunction: c.completeMany(toolNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			names := slices.Clone(args)
			for i, n := range names {
				if !strings.Contains(n, ".") {
					names[i] = n + ".*"
				}
			}
			list, err := cl.PinTools(cmd.Context(), names...)
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(list)
			}
			c.printf("pinned %s\n", countOf(len(list), "tool"))
			return nil
		},
	}
}

func newToolsDeclarations(c *cli) *cobra.Command {
	var d client.Declarations
	cmd := &cobra.Command{
		Use:     "declarations",
		Short:   "Print tools as TypeScript, as code mode shows them to a model",
		Example: "  skep tools declarations --level signatures\n  skep tools declarations --agent planner > tools.d.ts",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			text, err := cl.ToolDeclarations(cmd.Context(), d)
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(map[string]any{"text": text, "bytes": len(text)})
			}
			return c.printBytes(agent.Payload{Type: agent.TypeText, Body: []byte(text)})
		},
	}
	cmd.Flags().StringVar(&d.Level, "level", "", "names, signatures, compact or full; compact unless given")
	cmd.Flags().StringVar(&d.Server, "server", "", "only tools of this server")
	cmd.Flags().StringVar(&d.Effect, "effect", "", "only tools up to this effect")
	cmd.Flags().StringVar(&d.Agent, "agent", "", "only tools that this `AGENT` is granted")
	return cmd
}

func countOf(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
