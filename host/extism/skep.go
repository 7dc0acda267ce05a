package extism

import (
	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/batch"
	"github.com/skep-dev/skep/host/cell"
)

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
	r := batch.Reply(c.AskNext(name, in))
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
	replies := batch.Run(c, requests)
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
