package runtime

import (
	"context"
	"errors"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
)

// ownState is one owner's state as a cell's door reaches it.
type ownState struct {
	store *store.Store
	owner store.Owner
	place *place // that the cell works for; others of the agent see at once what it changes
}

func (s ownState) Get(ctx context.Context, keys []string) ([]agent.StateEntry, error) {
	return s.store.State(ctx, s.owner, keys...)
}

func (s ownState) List(ctx context.Context, r agent.StateRange) ([]agent.StateEntry, string, error) {
	return s.store.ListState(ctx, s.owner, r)
}

func (s ownState) Edit(ctx context.Context, bounds agent.StateGrant, edits []agent.StateEdit) (int64, error) {
	if err := s.place.gate(ctx); err != nil {
		return 0, err
	}
	return s.store.EditState(ctx, s.owner, bounds, edits...)
}

// ListState returns one page of an agent's state, the After of the next page, and what the whole state holds.
func (r *Runtime) ListState(ctx context.Context, app agent.App, name string, q agent.StateRange) (list []agent.StateEntry, next string, size agent.StateSize, err error) {
	o, _, err := r.stateOf(ctx, app, name)
	if err != nil {
		return nil, "", size, err
	}
	if list, next, err = r.store.ListState(ctx, o, q); err != nil {
		return nil, "", size, err
	}
	size, err = r.store.StateSize(ctx, o)
	return list, next, size, err
}

// State returns one key of an agent's state.
func (r *Runtime) State(ctx context.Context, app agent.App, name, key string) (agent.StateEntry, error) {
	o, _, err := r.stateOf(ctx, app, name)
	if err != nil {
		return agent.StateEntry{}, err
	}
	got, err := r.store.State(ctx, o, key)
	if err == nil && len(got) == 0 {
		err = agent.Errorf(agent.NotFound, "there is no key %.80q in the state of agent %q", key, name)
	}
	if err != nil {
		return agent.StateEntry{}, err
	}
	return got[0], nil
}

// EditState makes edits of an agent's state in one commit and returns the version of the keys that were set. Whoever edits from
// outside is held to what the agent was granted, and an agent that was granted nothing can only have keys deleted.
func (r *Runtime) EditState(ctx context.Context, app agent.App, name string, edits ...agent.StateEdit) (int64, error) {
	o, grant, err := r.stateOf(ctx, app, name)
	if err != nil {
		return 0, err
	}
	for _, e := range edits {
		if grant == nil && e.Act == agent.StateSet {
			return 0, &agent.Error{
				Kind: agent.Conflict, Msg: "agent " + name + " was granted no state", Hint: "skep agent update " + name + " --grant-state",
			}
		}
	}
	bounds := agent.StateGrant{}
	if grant != nil {
		bounds = *grant
	}
	return r.store.EditState(ctx, o, bounds.Or(), edits...)
}

func (r *Runtime) stateOf(ctx context.Context, app agent.App, name string) (store.Owner, *agent.StateGrant, error) {
	a, err := r.store.Agent(ctx, app, name)
	return store.AgentState(app, a.ID), a.Grants.State, err
}

// dropRetry is how long the removal of what deleted agents have left rests after a failure.
const dropRetry = time.Minute

// dropStates removes the states and instances of deleted agents and the documents of deleted apps, those of before this process first,
// until ctx ends.
func (r *Runtime) dropStates(ctx context.Context) {
	for {
		var again <-chan time.Time
		err := errors.Join(r.store.DropStates(ctx), r.store.DropInstances(ctx), r.store.DropDocs(ctx))
		if err != nil && !errors.Is(err, context.Canceled) {
			r.log.WarnContext(ctx, "states and instances of deleted agents, or documents of deleted apps, were not removed and will be later", "error", err)
			again = time.After(dropRetry)
		}
		select {
		case <-ctx.Done():
			return
		case <-r.disowned:
		case <-again:
		}
	}
}

// sweepEvery is how often virtual keys are deleted whose run has ended, which nobody can use meanwhile, and calls of models that are kept no longer.
const sweepEvery = time.Hour

// sweepModels deletes the virtual keys of runs that have ended and the calls of models that are kept no longer, those of before this process first,
// until ctx ends.
func (r *Runtime) sweepModels(ctx context.Context) {
	every := time.NewTicker(sweepEvery)
	defer every.Stop()
	for {
		if err := r.sweepAll(ctx); err != nil && ctx.Err() == nil {
			r.log.WarnContext(ctx, "keys of runs that have ended, or old calls of models, were not deleted and will be later", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}

func (r *Runtime) sweepAll(ctx context.Context) error {
	for page := (agent.Page{Limit: agent.MaxPage}); ; {
		list, next, err := r.store.Apps(ctx, page)
		if err != nil {
			return err
		}
		for _, a := range list {
			for _, sweep := range []func(context.Context, agent.App) error{r.store.SweepModelKeys, r.store.SweepModelLogs} {
				if err := sweep(ctx, a.Name); err != nil && agent.KindOf(err) != agent.NotFound { // the app was deleted meanwhile
					return err
				}
			}
		}
		if page.After = next; next == "" {
			return nil
		}
	}
}
