package client

import (
	"context"
	"iter"

	"github.com/skep-dev/skep/agent"
)

// List is one page of a list, and the cursor of the next: "" after the last.
type List[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next"`
}

// All goes through every item of a list, page by page:
//
//	for run, err := range client.All(ctx, func(ctx context.Context, p agent.Page) (client.List[agent.Run], error) {
//		return c.Runs(ctx, client.RunFilter{Agent: "greeter"}, p)
//	}) { ... }
//
// An error ends it.
func All[T any](ctx context.Context, get func(context.Context, agent.Page) (List[T], error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		page := agent.Page{Limit: agent.MaxPage}
		for {
			l, err := get(ctx, page)
			if err != nil {
				var zero T
				yield(zero, err)
				return
			}
			for _, item := range l.Items {
				if !yield(item, nil) {
					return
				}
			}
			if l.Next == "" {
				return
			}
			page.After = l.Next
		}
	}
}

func get[T any](ctx context.Context, c *Client, target string) (v T, err error) {
	err = c.do(ctx, "GET", target, nil, nil, &v)
	return v, err
}
