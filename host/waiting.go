package host

import (
	"context"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/cell"
	"github.com/skep-dev/skep/host/script"
)

// A script that waits can be suspended to bytes, and go on in another cell, process or week. See script.Waiting.
type (
	Waiting     = script.Waiting
	Pending     = script.Pending
	PendingCall = script.PendingCall
	Delivery    = script.Delivery
	Suspension  = script.Suspension
)

// Number returns, of the context of a host call, the number that a call with Waiting gave it; 0 when it gave none, as to what
// leaves no trace in the code.
func Number(ctx context.Context) uint64 { return cell.Number(ctx) }

// WithNumber is for those who answer host calls of cells in another process.
func WithNumber(ctx context.Context, n uint64) context.Context { return cell.WithNumber(ctx, n) }

// suspends runs a call that may be suspended.
func suspends(ctx context.Context, g guest, c Call) (Result, error) {
	s, ok := g.(scriptGuest)
	if !ok {
		return Result{}, errNotSuspended()
	}
	res, err := s.agent.Run(ctx, scriptCall(ctx, c))
	return Result{Output: res.Output, Usage: res.Usage, Suspended: res.Suspended}, err
}

func errNotSuspended() error {
	return &agent.Error{
		Kind: agent.Invalid, Msg: "the code cannot be suspended: it waits inside a synchronous call",
		Hint: "only calls of functions in JavaScript or TypeScript can; others go on by being run again from their journal",
	}
}
