package extism

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

// skep lists the calls of package abi's module. Like Extism's own, they free the blocks that they are passed; the reply is
// the guest's to free.
func skep() []function {
	return []function{{"skep_call", "II", "I", skepCall}, {"skep_batch", "I", "I", skepBatch}}
}

func skepCall(c *cell.Cell, g *guest, a []uint64) {
	name := g.take(c, a[0])
	in := []byte(g.take(c, a[1]))
	if name == "" || len(name) > abi.MaxName {
		c.Fail(agent.Errorf(agent.Failed, "skep_call: the call's name is empty, or longer than %d bytes", abi.MaxName))
	}
	r := reply(c.Ask(name, in))
	c.Spend(int64(len(r.Output)))
	a[0] = g.alloc(c, uint64(1+len(r.Output)))
	b := g.heap.block(a[0])
	b[0] = byte(r.Status)
	copy(b[1:], r.Output)
}

func skepBatch(c *cell.Cell, g *guest, a []uint64) {
	requests, err := abi.DecodeRequests([]byte(g.take(c, a[0])))
	if err != nil {
		c.Fail(agent.Errorf(agent.Failed, "skep_batch: %v", err))
	}
	for range requests {
		c.CountCall()
	}
	done := c.Wait()
	replies := askAll(c.Context(), c.Env().Calls, requests, c.Env().Limits.Memory)
	done()
	size := 0
	for _, r := range replies {
		size += 5 + len(r.Output)
	}
	c.Spend(int64(size))
	a[0] = g.alloc(c, uint64(size))
	b := g.heap.block(a[0])[:0]
	for _, r := range replies {
		b = abi.AppendReply(b, r)
	}
}

// askAll makes the requests at once and returns their replies in order. Outputs that together exceed room are refused.
func askAll(ctx context.Context, calls func(context.Context, string, []byte) ([]byte, error), rs []abi.Request, room int64) []abi.Reply {
	replies := make([]abi.Reply, len(rs))
	var next, total atomic.Int64
	var wg sync.WaitGroup
	for range min(len(rs), maxParallel) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(rs)); i = next.Add(1) - 1 {
				out, err := calls(ctx, rs[i].Name, rs[i].Input)
				if total.Add(int64(len(out))) > room {
					out, err = nil, agent.Exceeded(agent.LimitMemory, "the replies of the batch exceed the memory limit of %d bytes", room)
				}
				replies[i] = reply(out, err)
			}
		})
	}
	wg.Wait()
	return replies
}

// reply turns what the host answered into what the guest reads.
func reply(out []byte, err error) abi.Reply {
	if err == nil {
		return abi.Reply{Status: abi.OK, Output: out}
	}
	e := agent.AsError(err)
	body, err := json.Marshal(abi.ErrorBody{Kind: e.Kind.String(), Message: e.Msg, Limit: e.Limit.String()})
	if err != nil {
		body = nil
	}
	return abi.Reply{Status: abi.Status(e.Kind) + 1, Output: body}
}
