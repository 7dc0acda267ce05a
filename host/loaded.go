package host

import (
	"context"
	"time"

	"github.com/skep-dev/skep/agent"
)

// Loaded tells that code was prepared, or loaded again after its image had gone, for whom, and what that cost. Of the usage, Wall
// is all of the time, CPU what code of its own ran in it, Memory what its image takes, and In the bytes of its source.
type Loaded struct {
	Who   Who
	Usage agent.Usage
	Err   error // why it was refused
}

// loadFor loads code and tells what that cost.
func (h *Host) loadFor(ctx context.Context, who Who, src agent.Source, progress func(Progress)) (guest, error) {
	start := time.Now()
	g, err := h.load(ctx, who, src, progress)
	if h.opts.Loaded == nil {
		return g, err
	}
	l := Loaded{Who: who, Usage: agent.Usage{Wall: time.Since(start)}, Err: err}
	for _, b := range src.Files {
		l.Usage.In += int64(len(b))
	}
	if err == nil {
		c := g.Cost()
		l.Usage.CPU, l.Usage.Fuel, l.Usage.Memory = c.CPU, c.Fuel, c.Memory
	}
	h.opts.Loaded(l)
	return g, err
}
