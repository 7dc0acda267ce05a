// Package log grants console output. Every agent has it.
package log

import (
	"context"
	"sync/atomic"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/grant"
)

// Sink keeps one line. It may block to slow a guest down, until ctx ends.
type Sink func(ctx context.Context, line agent.LogLine) error

// New returns the handler of abi.CallLog, which passes on at most limit bytes of one cell's output, a byte for each line's
// end included.
func New(limit int64, sink Sink) grant.Handler {
	var n atomic.Int64
	return grant.JSON(func(ctx context.Context, in abi.Log) (grant.None, error) {
		line := agent.LogLine{Message: in.Message}
		if err := line.Level.UnmarshalText([]byte(in.Level)); err != nil {
			return grant.None{}, err
		}
		if n.Add(int64(len(in.Message))+1) > limit {
			return grant.None{}, agent.Exceeded(agent.LimitLog, "the code wrote more than %d bytes of console output", limit)
		}
		return grant.None{}, sink(ctx, line)
	})
}
