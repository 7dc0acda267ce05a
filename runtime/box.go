package runtime

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver/link"
)

// Boxes makes and keeps the sandboxes that agents work in: a keeper.Keeper, by way of what is wired.
type Boxes interface {
	// Open returns the sandbox of want.For when it is ready, and makes it when there is none.
	Open(ctx context.Context, want BoxWant) (Box, error)
	// Get returns one that is there, when it is ready.
	Get(ctx context.Context, app agent.App, id agent.SandboxID) (Box, error)
	// Release has what is whose deleted. That it will be is stored when Release returns; what is not there is released.
	Release(ctx context.Context, app agent.App, whose string) error
}

// BoxWant says which sandbox is wanted, and for whom.
type BoxWant struct {
	App         agent.App
	Agent       string
	For         string // run/ID, or agent/ID of a pet
	Session     agent.SessionID
	Run         agent.RunID
	Keep        agent.SandboxKeep
	Environment agent.Environment
	Trace       string // traceparent
}

// Box is a sandbox that was opened: its driver waits over connections that are lost.
type Box interface {
	link.Driver
	Record() agent.Sandbox
}

// Whose sandboxes are, as BoxWant.For says it.
const (
	forRun   = "run/"
	forAgent = "agent/"
)

// boxOf says whose sandbox the run of an agent works in.
func boxOf(a *agent.Agent, run agent.RunID) string {
	if a.Sandbox.Keep == agent.Pet {
		return forAgent + string(a.ID)
	}
	return forRun + string(run)
}

func errNoBoxes() error {
	return &agent.Error{
		Kind: agent.Invalid, Msg: agent.SandboxUnavailable + ": this server has no provider of sandboxes",
		Hint: "start it where Docker or Podman runs: skep sandbox providers says what it has found",
	}
}

// checkSandbox checks what an agent's record says of its sandbox.
func (r *Runtime) checkSandbox(ctx context.Context, app agent.App, u *agent.SandboxUse) error {
	if err := u.Check(); err != nil || u == nil {
		return err
	}
	if r.opts.Boxes == nil {
		return errNoBoxes()
	}
	_, err := r.store.Environment(ctx, app, u.Environment)
	if agent.KindOf(err) == agent.NotFound && err != nil {
		e := *agent.AsError(err)
		e.Hint = cmp.Or(e.Hint, "make it first: skep environment create NAME --image IMAGE")
		return &e
	}
	return err
}

// BoxGone reports whether what a sandbox is for is no more: its run has ended, or its agent was deleted.
func (r *Runtime) BoxGone(ctx context.Context, sb agent.Sandbox) (bool, error) {
	gone := func(err error) (bool, error) {
		if agent.KindOf(err) == agent.NotFound {
			return true, nil
		}
		return false, err
	}
	if id, is := strings.CutPrefix(sb.For, forRun); is {
		run, err := r.store.Run(ctx, sb.App, agent.RunID(id))
		if err != nil {
			return gone(err)
		}
		return run.Status.Terminal(), nil
	}
	if id, is := strings.CutPrefix(sb.For, forAgent); is {
		a, err := r.store.Agent(ctx, sb.App, sb.Agent)
		if err != nil {
			return gone(err)
		}
		return string(a.ID) != id, nil
	}
	return false, nil
}

// BoxInUse reports whether the run that uses a sandbox is under way, though it may wait for a person for long.
func (r *Runtime) BoxInUse(ctx context.Context, sb agent.Sandbox) (bool, error) {
	run, err := r.store.Run(ctx, sb.App, sb.Run)
	if agent.KindOf(err) == agent.NotFound {
		return false, nil
	}
	return err == nil && !run.Status.Terminal(), err
}

// boxEnded sees to the sandbox of a run that has ended: one of its own is deleted, in one that the agent keeps the CLI stops. What a crash leaves
// undone here is found by the keeper, which asks BoxGone, or by the next run in the sandbox.
func (r *Runtime) boxEnded(run agent.Run) {
	u := r.boxes.leave(run.ID)
	if u == nil {
		return
	}
	r.flying.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), endBox)
		defer cancel()
		var err error
		if u.pet {
			err = r.interruptTurns(ctx, run.App, u.id, slices.Sorted(maps.Keys(u.turns)))
		} else {
			err = r.opts.Boxes.Release(ctx, run.App, forRun+string(run.ID))
		}
		if err != nil {
			r.log.WarnContext(ctx, "the sandbox of a run that has ended is left to the next sweep", "run", run.ID, "error", err)
		}
	})
}
