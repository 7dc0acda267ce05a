package keeper

import (
	"context"
	"errors"
	"fmt"

	"github.com/skep-dev/skep/agent"
)

// ErrLost is in the chain of an error about a box that is not there any more: it went away, was stopped or was deleted. Open makes another, with nothing of
// what was in it but what is kept of a pet.
var ErrLost = errors.New("the box is gone")

// errFenced is in the chain of an error about a sandbox that is not where it was when a step of its life began: someone else has changed it meanwhile.
var errFenced = errors.New("fenced")

func fenced(sb *agent.Sandbox) error {
	if sb.State == agent.SandboxDeleting {
		return &agent.Error{Kind: agent.Conflict, Msg: fmt.Sprintf("sandbox %s is being deleted", sb.ID), Err: errors.Join(errFenced, ErrLost)}
	}
	return &agent.Error{
		Kind: agent.Conflict, Msg: fmt.Sprintf("sandbox %s was changed meanwhile: it is %s, of generation %d", sb.ID, sb.State, sb.Generation), Err: errFenced, Hint: "try again",
	}
}

// lostError says that the box of a sandbox has gone.
func lostError(sb *agent.Sandbox, why string) *agent.Error {
	return &agent.Error{
		Kind: agent.Unavailable, Msg: fmt.Sprintf("sandbox %s was lost: %s", sb.ID, why), Err: ErrLost,
		Hint: "what was in it is gone, but for what is kept of a pet; the next use makes it anew",
	}
}

// stored returns what a record says of why its sandbox failed or was lost.
func stored(rec *agent.SandboxRecord) error {
	e := &agent.Error{Kind: agent.Unavailable, Msg: fmt.Sprintf("sandbox %s is %s", rec.ID, rec.State)}
	if rec.Error != nil {
		e.Kind, e.Msg, e.Hint = rec.Error.Kind, rec.Error.Msg, rec.Error.Hint
	}
	if rec.State == agent.SandboxLost {
		e.Err = ErrLost
	}
	return e
}

// waited returns the error of a wait that ctx has ended.
func waited(ctx context.Context, what string) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &agent.Error{Kind: agent.Unavailable, Msg: "there was not enough time to wait for " + what, Err: ctx.Err(), Hint: "try again"}
	}
	return &agent.Error{Kind: agent.Cancelled, Msg: "waiting for " + what + " was cancelled", Err: ctx.Err()}
}

// typed gives an error a kind: ctx may have ended in something that says no more than that.
func typed(ctx context.Context, err error, what string) error {
	var e *agent.Error
	switch {
	case err == nil || errors.As(err, &e):
		return err
	case ctx.Err() != nil:
		return waited(ctx, what)
	}
	return agent.Wrap(agent.Internal, err, "internal error")
}

// passing reports whether an error of a provider or of the store may not come again, so that it says nothing of the sandbox.
func passing(err error) bool {
	switch agent.KindOf(err) {
	case agent.Unavailable, agent.Internal, agent.Cancelled, agent.Conflict:
		return true
	}
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// alreadyOver is the error of a server that ends.
func alreadyOver() error {
	return &agent.Error{Kind: agent.Unavailable, Msg: "the server is stopping", Hint: "try again when it is there again"}
}
