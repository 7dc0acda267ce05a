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
