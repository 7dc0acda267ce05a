package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
	"github.com/skep-dev/skep/internal/phrase"
)

func newToolsClassify(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "classify [SERVER | TOOL EFFECT]",
		Short: "Say what tools can do",
		Long: `Say what tools can do: go through those that nobody has classified, or say it of one tool, or of those whose names begin so with * at the end.

  read            looks, and changes nothing
  modify          changes things in ways that can be undone
  modify_execute  changes things for good, or sets off what others run
  execute         runs what it is given

A classification pins a tool as it is: when its server changes it, each call is asked about until it is looked at again. unclassified takes
back what was said. With --json and no effect, what is unclassified is printed with what is suggested.`,
		Example: `  skep tools classify github
  skep tools classify github.create_issue modify
  skep tools classify 'github.get_*' read`,
		Args: cobra.MaximumNArgs(2),

		ValidArgsFunction: func(cmd *cobra.Command, before []string, begun string) ([]string, cobra.ShellCompDirective) {
			if len(before) == 1 {
				return effects, cobra.ShellCompDirectiveNoFileComp
			}
			return c.complete(toolNames)(cmd, before, begun)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			if len(args) == 2 {
				return c.classify(cmd.Context(), cl, args[0], args[1])
			}
			f := client.ToolFilter{Effect: agent.Unclassified.String()}
			if len(args) == 1 {
				if strings.Contains(args[0], ".") {
					return usageError("say what %s can do: one of %s", args[0], strings.Join(effects[1:], ", "))
				}
				if _, err := cl.ToolServer(cmd.Context(), args[0]); err != nil {
					return err
				}
				f.Server = args[0]
			}
			return c.walk(cmd.Context(), cl, f)
		},
	}
}

// classify says the effect of one tool, or of those that a pattern names.
func (c *cli) classify(ctx context.Context, cl *client.Client, pattern, text string) error {
	var e agent.Effect
	if err := e.UnmarshalText([]byte(text)); err != nil {
		return usageError("%s is no effect: use %s", text, strings.Join(effects, ", "))
	}
	list := []client.ToolEffect{{Tool: pattern, Effect: e}}
	if prefix, open := strings.CutSuffix(pattern, "*"); open {
		server, _, _ := strings.Cut(prefix, ".")
		all, err := toolsOf(ctx, cl, client.ToolFilter{Server: server})
		if err != nil {
			return err
		}
		list = nil
		for _, t := range all {
			if strings.HasPrefix(t.Name, prefix) {
				list = append(list, client.ToolEffect{Tool: t.Name, Effect: e})
			}
		}
		if len(list) == 0 {
			return &agent.Error{Kind: agent.NotFound, Msg: "there is no tool whose name begins with " + prefix, Hint: "skep tools list shows those that there are"}
		}
	}
	var out []agent.Tool
	for len(list) > 0 {
		n := min(len(list), agent.MaxPage)
		got, err := cl.ClassifyTools(ctx, list[:n]...)
		if err != nil {
			return err
		}
		out, list = append(out, got...), list[n:]
	}
	if c.json {
		return c.printJSON(out)
	}
	for _, t := range out {
		c.printf("%s is %s, by %s\n", plain(t.Name), t.Effect, t.By)
	}
	return nil
}

// toolsOf lists all tools that a filter picks.
func toolsOf(ctx context.Context, cl *client.Client, f client.ToolFilter) ([]agent.Tool, error) {
	return collect(ctx, 0, func(ctx context.Context, page agent.Page) (client.List[agent.Tool], error) {
		l, err := cl.Tools(ctx, f, page)
		return client.List[agent.Tool]{Items: l.Items, Next: l.Next}, err
	})
}

// classifyKeys are the keys of the walk.
var classifyKeys = map[string]agent.Effect{"r": agent.Read, "m": agent.Modify, "x": agent.ModifyExecute, "e": agent.Execute}

// walk goes through what is unclassified and asks a person.
func (c *cli) walk(ctx context.Context, cl *client.Client, f client.ToolFilter) error {
	list, err := toolsOf(ctx, cl, f)
	if err != nil {
		return err
	}
	if c.json {
		out := make([]client.ToolDetail, 0, len(list))
		for _, t := range list {
			d, err := cl.Tool(ctx, t.Name)
			if err != nil {
				return err
			}
			out = append(out, d)
		}
		return c.printJSON(out)
	}
	if len(list) == 0 {
		c.notef("no tool is unclassified\n")
		return nil
	}
	c.notef("%s unclassified. r read, m modify, x modify_execute, e execute; enter takes what is suggested, s skips, q ends.\n", countOf(len(list), "tool"))
	in, said := bufio.NewReader(c.stdin), 0
	for i, t := range list {
		d, err := cl.Tool(ctx, t.Name)
		if err != nil {
			return err
		}
		c.notef("\n%d/%d  %s\n", i+1, len(list), plain(t.Name))
		if t.Description != "" {
			c.notef("%s\n", indent(plainText(phrase.Clip(t.Description, 800))))
		}
		if h := hintText(d.Hints); h != "" {
			c.notef("    its server says: %s\n", h)
		}
		e, skip, err := c.askEffect(in, d)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if skip {
			continue
		}
		if _, err := cl.ClassifyTools(ctx, client.ToolEffect{Tool: t.Name, Effect: e}); err != nil {
			return err
		}
		said++
		c.printf("%s is %s\n", plain(t.Name), e)
	}
	c.notef("\nclassified %d of %d\n", said, len(list))
	return nil
}

// askEffect asks until it understands. io.EOF means that no more is wanted.
func (c *cli) askEffect(in *bufio.Reader, d client.ToolDetail) (e agent.Effect, skip bool, err error) {
	for {
		prompt := "[r/m/x/e/s/q]"
		if d.Suggest != agent.Unclassified {
			prompt += fmt.Sprintf(" (%s, as %s)", d.Suggest, plain(d.Why))
		}
		c.notef("    %s ", prompt)
		line, err := in.ReadString('\n')
		if err != nil && line == "" {
			return 0, false, io.EOF
		}
		key := strings.ToLower(strings.TrimSpace(line))
		if e, ok := classifyKeys[key]; ok {
			return e, false, nil
		}
		switch {
		case key == "q":
			return 0, false, io.EOF
		case key == "s", key == "" && d.Suggest == agent.Unclassified:
			return 0, true, nil
		case key == "":
			return d.Suggest, false, nil
		}
		if err := e.UnmarshalText([]byte(key)); err == nil && e != agent.Unclassified {
			return e, false, nil
		}
	}
}

func indent(s string) string { return "    " + strings.ReplaceAll(s, "\n", "\n    ") }
