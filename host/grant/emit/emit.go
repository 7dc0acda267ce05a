// Package emit grants events of the agent's own. Every agent has it where there is a log to write to.
package emit

import (
	"context"
	"encoding/json"
	"sync/atomic"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/grant"
)

const (
	// MaxName is the most bytes in an event's name.
	MaxName = 128
	// MaxData is the most bytes in an event's data. Larger things belong in a file.
	MaxData = 256 << 10
)

// Sink keeps one event. It may block to slow a guest down, until ctx ends.
type Sink func(ctx context.Context, name string, data json.RawMessage) error

// New returns the handler of abi.CallEmit, which passes on at most limit events of one cell.
func New(limit int64, sink Sink) grant.Handler {
	var n atomic.Int64
	return grant.JSON(func(ctx context.Context, in abi.Emit) (grant.None, error) {
		switch {
		case in.Name == "":
			return grant.None{}, agent.Errorf(agent.Invalid, "an event needs a name")
		case len(in.Name) > MaxName:
			return grant.None{}, agent.Errorf(agent.Invalid, "an event's name has %d bytes, more than %d", len(in.Name), MaxName)
		case len(in.Data) > MaxData:
			return grant.None{}, agent.Errorf(agent.Invalid, "the data of event %q has %d bytes, more than %d", in.Name, len(in.Data), MaxData)
		}
		if n.Add(1) > limit {
			return grant.None{}, agent.Exceeded(agent.LimitEvents, "more than %d events", limit)
		}
		return grant.None{}, sink(ctx, in.Name, in.Data)
	})
}

// Refused returns a handler for code that runs where no log is.
func Refused(where string) grant.Handler {
	return grant.JSON(func(context.Context, abi.Emit) (grant.None, error) {
		return grant.None{}, agent.Errorf(agent.Denied, "there is no event log in %s: return the value, or log it", where)
	})
}
