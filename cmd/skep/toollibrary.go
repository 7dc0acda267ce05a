package main

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
	"github.com/skep-dev/skep/tools"
)

func newToolsPrompts(c *cli) *cobra.Command {
	var who string
	var p pageFlags
	cmd := &cobra.Command{
		Use:   "prompts SERVER [NAME [ARGS]]",
		Short: "List the prompts of an MCP server, or get one",
		Long: `List the prompts of an MCP server, or get one: messages that it makes with ARGS, an object of texts. Getting one is a call of the tool
SERVER.prompts.get, with the grants of an agent and under the app's policy.`,
		Example: "  skep tools prompts github\n  skep tools prompts github review '{\"file\":\"main.go\"}'",
		Args:    cobra.RangeArgs(1, 3),

		ValidArgsFunction: c.complete(toolServers),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				call := map[string]any{"name": args[1]}
				if len(args) > 2 {
					var in map[string]string
					if err := json.Unmarshal([]byte(args[2]), &in); err != nil {
						return &agent.Error{Kind: agent.Invalid, Msg: "the arguments of a prompt are an object of texts", Hint: `write '{"file":"main.go"}'`}
					}
					call["arguments"] = in
				}
				return c.readLibrary(cmd.Context(), agent.ToolName(args[0], tools.PromptsGet), call, who)
			}
			cl, err := c.client()
			if err != nil {
				return err
			}
			items, err := collect(cmd.Context(), p.limit, func(ctx context.Context, page agent.Page) (client.List[agent.Prompt], error) {
				return cl.Prompts(ctx, args[0], page)
			})
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(items)
			}
			if len(items) == 0 {
				c.printEmpty("prompts", "skep tools list --server "+args[0]+" shows its tools")
				return nil
			}
			var rows [][]string
			for _, p := range items {
				var takes []string
				for _, a := range p.Arguments {
					if !a.Required {
						a.Name = "[" + a.Name + "]"
					}
					takes = append(takes, plain(a.Name))
				}
				rows = append(rows, []string{plain(p.Name), strings.Join(takes, " "), firstLine(or(p.Description, p.Title))})
			}
			c.printTable([]string{"NAME", "ARGUMENTS", "DESCRIPTION"}, rows)
			return nil
		},
	}
	p.register(cmd)
	cmd.Flags().StringVar(&who, "agent", "", "`AGENT` for whom it is got; \"code\", which is made when it is needed, unless given")
	return cmd
}

func newToolsResources(c *cli) *cobra.Command {
	var who string
	var p pageFlags
	cmd := &cobra.Command{
		Use:   "resources SERVER [URI]",
		Short: "List the resources of an MCP server, or read one",
		Long: `List the resources of an MCP server, and templates of URIs of others, or read one. Reading is a call of the tool SERVER.resources.read, with the
grants of an agent and under the app's policy. What is no text is kept as a file of the run's session.`,
		Example: "  skep tools resources docs\n  skep tools resources docs docs://guide/start",
		Args:    cobra.RangeArgs(1, 2),

		ValidArgsFunction: c.complete(toolServers),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return c.readLibrary(cmd.Context(), agent.ToolName(args[0], tools.ResourcesRead), map[string]any{"uri": args[1]}, who)
			}
			cl, err := c.client()
			if err != nil {
				return err
			}
			var templates []agent.Resource
			items, err := collect(cmd.Context(), p.limit, func(ctx context.Context, page agent.Page) (client.List[agent.Resource], error) {
				l, err := cl.Resources(ctx, args[0], page)
				if page.After == "" {
					templates = l.Templates
				}
				return client.List[agent.Resource]{Items: l.Items, Next: l.Next}, err
			})
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(map[string]any{"resources": items, "templates": templates})
			}
			if len(items)+len(templates) == 0 {
				c.printEmpty("resources", "skep tools list --server "+args[0]+" shows its tools")
				return nil
			}
			var rows [][]string
			for i, r := range append(items, templates...) {
				kind := r.Type
				if i >= len(items) {
					kind = strings.TrimSpace("template " + kind)
				}
				rows = append(rows, []string{plain(r.URI), plain(kind), firstLine(or(or(r.Title, r.Name), r.Description))})
			}
			c.printTable([]string{"URI", "TYPE", "NAME"}, rows)
			return nil
		},
	}
	p.register(cmd)
	cmd.Flags().StringVar(&who, "agent", "", "`AGENT` for whom it is read; \"code\", which is made when it is needed, unless given")
	return cmd
}

// readLibrary calls a tool that reads, and prints what it returns.
func (c *cli) readLibrary(ctx context.Context, tool string, args map[string]any, who string) error {
	body, err := json.Marshal(args)
	if err != nil {
		return err
	}
	cl, err := c.client()
	if err != nil {
		return err
	}
	started, err := cl.CallTool(ctx, tool, client.ToolCall{Args: body, Agent: who, Wait: new(int)})
	if err != nil {
		return err
	}
	return c.follow(ctx, cl, agent.Run{ID: started.Run, Session: started.Session}, attachment{events: c.stderr, quiet: true, owned: true})
}
