package runtime

import (
	"cmp"
	"context"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
)

// AppPatch changes the fields that are set.
type AppPatch struct {
	Weight   *int         `json:"weight,omitempty" doc:"share of the processors beside other apps, from 1 to 1000"`
	Outbound *string      `json:"outbound,omitempty" doc:"agent whose fetch handler sees each outbound request of the app's agents; empty for none"`
	Quota    *agent.Quota `json:"quota,omitempty" doc:"replaced as a whole"`
}

// App returns the app of that name. It is asked for each request, so it reads no disk.
func (r *Runtime) App(ctx context.Context, name agent.App) (agent.AppInfo, error) {
	return r.records.app(ctx, r.store, name)
}

// weight returns an app's share of the processors: 0, which counts as the least, of an app that is not there.
func (r *Runtime) weight(ctx context.Context, name agent.App) int {
	info, err := r.App(ctx, name)
	if err != nil {
		return 0
	}
	return info.Weight
}

// CreateApp makes an app. A weight of 0 means 1. It tells whether this was a repetition of the same request.
func (r *Runtime) CreateApp(ctx context.Context, a agent.AppInfo, once store.Once) (agent.AppInfo, bool, error) {
	name := a.Name
	a.Weight = cmp.Or(a.Weight, agent.MinWeight)
	a, replayed, err := r.store.CreateApp(ctx, a, once)
	r.records.edited(name)
	return a, replayed, err
}

// UpdateApp changes an app. Calls that begin after it has returned see the change.
func (r *Runtime) UpdateApp(ctx context.Context, name agent.App, patch AppPatch) (agent.AppInfo, error) {
	a, err := r.store.UpdateApp(ctx, name, func(a *agent.AppInfo) error {
		agent.Set(&a.Weight, patch.Weight)
		agent.Set(&a.Outbound, patch.Outbound)
		agent.Set(&a.Quota, patch.Quota)
		return nil
	})
	r.records.edited(name)
	return a, err
}

// DeleteApp deletes an app in which nothing is left.
func (r *Runtime) DeleteApp(ctx context.Context, name agent.App) error {
	err := r.store.DeleteApp(ctx, name)
	r.records.edited(name)
	if err == nil && r.opts.Tools != nil {
		r.opts.Tools.Forget(name)
	}
	return err
}

// Audit adds events to an app's audit log. They are durable when it returns, and their followers see them.
func (r *Runtime) Audit(ctx context.Context, app agent.App, events ...agent.Event) error {
	return r.append(ctx, store.AuditLog(app), events)
}
