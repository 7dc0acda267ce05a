package main

import (
	"context"

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
	var p pageFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: short,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := c.client()
			if err != nil {
				return err
			}
			items, err := collect(cmd.Context(), p.limit, func(ctx context.Context, page agent.Page) (client.List[T], error) {
				return list(cl, ctx, page)
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
