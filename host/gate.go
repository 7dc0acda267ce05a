package host

import (
	"context"
	"sync/atomic"

	"github.com/skep-dev/skep/agent"
)

// gate bounds how many cells live at once and how many calls wait for one.
type gate struct {
	places  chan struct{}
	waiting atomic.Int64
	most    int64
}

func newGate(cells, waiting int) *gate {
	return &gate{places: make(chan struct{}, cells), most: int64(waiting)}
}

// enter waits for a place and returns the function that gives it back.
func (g *gate) enter(ctx context.Context) (leave func(), err error) {
	select {
	case g.places <- struct{}{}:
		return g.leave, nil
	default:
	}
	defer g.waiting.Add(-1)
	if g.waiting.Add(1) > g.most {
		return nil, &agent.Error{
			Kind: agent.Unavailable, Limit: agent.LimitConcurrency, Msg: "too many calls are waiting for a cell",
			Hint: "try again in a moment",
		}
	}
	select {
	case g.places <- struct{}{}:
		return g.leave, nil
	case <-ctx.Done():
		return nil, agent.Wrap(agent.Cancelled, context.Cause(ctx), "the call was cancelled before a cell was free")
	}
}

func (g *gate) leave() { <-g.places }

func (g *gate) count() (cells, waiting int) { return len(g.places), int(g.waiting.Load()) }
