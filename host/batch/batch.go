// Package batch makes the calls of guests that speak package abi's frames, and writes the answers as guests read them.
package batch

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
)

// maxParallel bounds how many calls of a batch run at a time.
const maxParallel = 64

// Run makes the requests at once and returns their replies in order. Replies that together exceed the cell's memory limit
// are refused.
func Run(c *cell.Cell, rs []abi.Request) []abi.Reply {
	for range rs {
		c.CountCall()
	}
	done := c.Wait()
	first := c.Number(len(rs))
	calls := func(ctx context.Context, i int) ([]byte, error) {
		return c.Env().Calls(cell.WithNumber(ctx, first+uint64(i)), rs[i].Name, rs[i].Input)
	}
	replies := all(c.Context(), calls, len(rs), c.Env().Limits.Memory)
	done()
	return replies
}

func all(ctx context.Context, call func(context.Context, int) ([]byte, error), n int, room int64) []abi.Reply {
	replies := make([]abi.Reply, n)
	var next, total atomic.Int64
	var wg sync.WaitGroup
	for range min(n, maxParallel) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				out, err := call(ctx, int(i))
				if total.Add(int64(len(out))) > room {
					out, err = nil, agent.Exceeded(agent.LimitMemory, "the replies of the batch exceed the memory limit of %d bytes", room)
				}
				replies[i] = Reply(out, err)
			}
		})
	}
	wg.Wait()
	return replies
}

// Reply turns what the host answered into what the guest reads.
func Reply(out []byte, err error) abi.Reply {
	if err == nil {
		return abi.Reply{Status: abi.OK, Output: out}
	}
	e := agent.AsError(err)
	body, err := json.Marshal(abi.ErrorBody{Kind: e.Kind.String(), Message: e.Msg, Limit: e.Limit.String(), Hint: e.Hint})
	if err != nil {
		body = nil
	}
	return abi.Reply{Status: abi.Status(e.Kind) + 1, Output: body}
}
