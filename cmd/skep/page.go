package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
)

// pageFlags bound a list.
type pageFlags struct{ limit int }

func (p *pageFlags) register(cmd *cobra.Command) {
	cmd.Flags().IntVar(&p.limit, "limit", 50, "most items to list; 0 lists all")
}

// table is how a list is shown to a person.
type table[T any] struct {
	what, hint string // what there is none of yet, and what makes one; empty for lists that are never empty
	header     []string
	row        func(T) []string
}

// listVerb is the verb that shows what list returns.
func listVerb[T any](
	c *cli, short string, list func(*client.Client, context.Context, agent.Page) (client.List[T], error), t table[T],
) *cobra.Command {
	return listOf(c, "list", short, func(cl *client.Client, ctx context.Context, _ []string, page agent.Page) (client.List[T], error) {
		return list(cl, ctx, page)
	}, t)
}

// listOf is the same for a list of what the verb's arguments name; use is the verb with them, each one word.
func listOf[T any](
	c *cli, use, short string, list func(*client.Client, context.Context, []string, agent.Page) (client.List[T], error), t table[T],
) *cobra.Command {
	var p pageFlags
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.ExactArgs(len(strings.Fields(use)) - 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			items, err := collect(cmd.Context(), p.limit, func(ctx context.Context, page agent.Page) (client.List[T], error) {
				return list(cl, ctx, args, page)
			})
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(items)
			}
			if len(items) == 0 && t.what != "" {
				c.printEmpty(t.what, t.hint)
				return nil
			}
			var rows [][]string
			for _, item := range items {
				rows = append(rows, t.row(item))
			}
			c.printTable(t.header, rows)
			return nil
		},
	}
	p.register(cmd)
	return cmd
}

// collect reads pages until there are limit items, or all of them when limit is 0. The result is never nil.
func collect[T any](ctx context.Context, limit int, list func(context.Context, agent.Page) (client.List[T], error)) ([]T, error) {
	all := []T{}
	page := agent.Page{Limit: agent.MaxPage}
	if limit > 0 {
		page.Limit = min(limit, agent.MaxPage)
	}
	for {
		got, err := list(ctx, page)
		if err != nil {
			return nil, err
		}
		all = append(all, got.Items...)
		if limit > 0 && len(all) >= limit {
			return all[:limit], nil
		}
		if got.Next == "" {
			return all, nil
		}
		page.After = got.Next
	}
}
