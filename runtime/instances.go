package runtime

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host"
	"github.com/skep-dev/skep/runtime/durable"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/instance"
)

// InstanceCall asks for a call of an instance's method, in a turn of its own. Limits may lower what the agent has, never raise it.
type InstanceCall struct {
	Agent, Key, Function string
	Input                agent.Payload
	Limits               agent.Limits
	Once                 string // names the call, so that one made again within a day has no second effect; empty for none

	// Each, unless it is nil, gets what the method yields as it comes, each item as JSON, after the commit of what the method did before.
	// The result is then JSON of what the method returns. Each must not block; an error of it ends the call. Such a call has no Once.
	Each func(item json.RawMessage) error
}

// CallInstance calls a method of an instance, which is made when it is not there.
func (r *Runtime) CallInstance(ctx context.Context, app agent.App, req InstanceCall) (host.Result, error) {
	return r.callInstance(ctx, app, req, 0)
}

// Instances returns one page of an agent's instances in the order of keys.
func (r *Runtime) Instances(ctx context.Context, app agent.App, name string, p agent.Page) ([]agent.Instance, string, error) {
	a, err := r.store.Agent(ctx, app, name)
	if err != nil {
		return nil, "", err
	}
	list, next, err := r.store.Instances().List(ctx, app, a.ID, p)
	if err != nil {
		return nil, "", err
	}
	out := make([]agent.Instance, len(list))
	for i, info := range list {
		if out[i], err = r.tell(ctx, name, info); err != nil {
			return nil, "", err
		}
	}
	return out, next, nil
}

// tell returns an instance as it is seen from outside.
func (r *Runtime) tell(ctx context.Context, name string, info instance.Info) (agent.Instance, error) {
	out := agent.Instance{
		Agent: name, Key: info.ID.Key, Created: info.Created, Updated: info.Updated, State: info.State, LogBytes: info.LogBytes,
		Alarms: info.Alarms, Outbox: info.Outbox, Children: info.Children, Commits: info.Fence.Head, Waiting: r.keeper.Waiting(info.ID),
		Sockets: r.sockets.Count(info.ID),
	}
	if info.Parent != (instance.ID{}) {
		parent, err := r.nameOf(ctx, info.Parent)
		if err != nil {
			return out, err
		}
		out.Parent = &parent
	}
	return out, nil
}

func (r *Runtime) nameOf(ctx context.Context, id instance.ID) (agent.InstanceName, error) {
	name, err := r.store.AgentName(ctx, id.App, id.Agent)
	if agent.KindOf(err) == agent.NotFound {
		name, err = string(id.Agent), nil // an agent that was deleted
	}
	return agent.InstanceName{Agent: name, Key: id.Key}, err
}

// existing returns an instance that is there.
func (r *Runtime) existing(ctx context.Context, app agent.App, name, key string) (instance.Info, error) {
	a, err := r.store.Agent(ctx, app, name)
	if err != nil {
		return instance.Info{}, err
	}
	id := instance.ID{App: app, Agent: a.ID, Key: key}
	if err := id.Check(); err != nil {
		return instance.Info{}, err
	}
	info, err := r.keeper.Store().Info(ctx, id)
	if errors.Is(err, instance.ErrGone) {
		err = &agent.Error{Kind: agent.NotFound, Err: err, Msg: "agent " + name + " has no instance " + quoted(key), Hint: "an instance is made by its first call"}
	}
	return info, err
}

// InspectInstance returns all that is known of one instance but its state.
func (r *Runtime) InspectInstance(ctx context.Context, app agent.App, name, key string) (agent.Instance, error) {
	info, err := r.existing(ctx, app, name, key)
	if err != nil {
		return agent.Instance{}, err
	}
	out, err := r.tell(ctx, name, info)
	if err != nil {
		return out, err
	}
	if code, err := r.keeper.Store().Load(ctx, info.ID, keyCode); err != nil {
		return out, err
	} else if len(code) > 0 {
		out.Version = agent.Digest(code[0].Value.Body)
	}
	shared, _, err := loadShared(ctx, func(ctx context.Context, keys ...string) ([]agent.StateEntry, error) {
		return r.keeper.Store().Load(ctx, info.ID, keys...)
	})
	if err != nil {
		return out, err
	}
	out.Shared = shared.State
	children, err := r.keeper.Store().Children(ctx, info.ID, instance.ID{}, 0)
	if err != nil {
		return out, err
	}
	for _, id := range children {
		child, err := r.nameOf(ctx, id)
		if err != nil {
			return out, err
		}
		out.Own = append(out.Own, child)
	}
	return out, nil
}

// DeleteInstances ends instances with all that is theirs: state, alarms, children, connections, runs that wait.
func (r *Runtime) DeleteInstances(ctx context.Context, app agent.App, name string, keys ...string) error {
	var ids []instance.ID
	for _, key := range keys {
		info, err := r.existing(ctx, app, name, key)
		if err != nil {
			return err
		}
		if info.Parent != (instance.ID{}) {
			parent, err := r.nameOf(ctx, info.Parent)
			if err != nil {
				return err
			}
			return agent.Errorf(agent.Conflict, "instance %q is a child of %s %q, which alone can end it", key, parent.Agent, parent.Key)
		}
		ids = append(ids, info.ID)
	}
	for _, id := range ids {
		if err := r.keeper.Delete(ctx, id, r.endInstance); err != nil && !errors.Is(err, instance.ErrGone) {
			return err
		}
	}
	return nil
}

// endInstance ends what an instance has beside its state, in its last turn.
func (r *Runtime) endInstance(ctx context.Context, t *durable.Turn) error {
	name, err := r.nameOf(ctx, t.ID())
	if err != nil {
		return err
	}
	for _, status := range []agent.RunStatus{agent.Waiting, agent.Paused, agent.Uncertain, agent.Queued} {
		for page := (agent.Page{}); ; {
			runs, next, err := r.store.Runs(ctx, t.ID().App, store.RunFilter{Agent: name.Agent, Status: status}, page)
			if err != nil {
				return err
			}
			for _, run := range runs {
				se, err := r.store.Session(ctx, run.App, run.Session)
				if err != nil {
					return err
				}
				if se.Key == name.Key {
					if err := r.endRunOf(ctx, t, run); err != nil {
						return err
					}
				}
			}
			if page.After = next; next == "" {
				break
			}
		}
	}
	r.closeSockets(t.ID())
	return nil
}

// Alarms lists an instance's alarms, then its dead letters, in the order of names.
func (r *Runtime) Alarms(ctx context.Context, app agent.App, name, key, after string, limit int) ([]agent.Alarm, string, error) {
	info, err := r.existing(ctx, app, name, key)
	if err != nil {
		return nil, "", err
	}
	page, err := listAlarms(ctx, func(ctx context.Context, after string, limit int) ([]instance.Alarm, error) {
		return r.keeper.Store().Alarms(ctx, info.ID, after, limit)
	}, abi.AlarmList{After: after, Limit: limit})
	out := make([]agent.Alarm, len(page.Alarms))
	for i, a := range page.Alarms {
		out[i] = alarmOf(a)
	}
	return out, page.After, err
}

// deadScan is how many instances a page of dead letters looks at before it ends short.
const deadScan = 10_000

// DeadLetters lists the dead letters of all instances of an agent, in the order of keys and names. A page ends with all of one instance.
func (r *Runtime) DeadLetters(ctx context.Context, app agent.App, name string, p agent.Page) (out []agent.Alarm, next string, err error) {
	a, err := r.store.Agent(ctx, app, name)
	if err != nil {
		return nil, "", err
	}
	limit := cmp.Or(p.Limit, agent.DefaultPage)
	p.Limit = agent.MaxPage
	for seen := 0; ; {
		list, more, err := r.store.Instances().List(ctx, app, a.ID, p)
		if err != nil {
			return nil, "", err
		}
		for i, info := range list {
			if info.Alarms > 0 {
				if out, err = r.deadOf(ctx, info.ID, out); err != nil {
					return nil, "", err
				}
			}
			last := i == len(list)-1 && more == ""
			if seen++; !last && (len(out) >= limit || seen >= deadScan) {
				return out, info.ID.Key, nil
			}
		}
		if p.After = more; more == "" {
			return out, "", nil
		}
	}
}

// deadOf appends the dead letters of an instance.
func (r *Runtime) deadOf(ctx context.Context, id instance.ID, out []agent.Alarm) ([]agent.Alarm, error) {
	list, err := r.keeper.Store().Alarms(ctx, id, deadAlarm, maxDead)
	if err != nil {
		return nil, err
	}
	for _, a := range list {
		if !strings.HasPrefix(a.Name, deadAlarm) {
			break
		}
		w, err := wireAlarm(a)
		if err != nil {
			return nil, err
		}
		dead := alarmOf(w)
		dead.Key = id.Key
		out = append(out, dead)
	}
	return out, nil
}

func alarmOf(a abi.Alarm) agent.Alarm {
	return agent.Alarm{
		Name: a.Name, Method: a.Method, Payload: json.RawMessage(a.Payload), At: time.UnixMilli(a.At).UTC(), Every: time.Duration(a.Every) * time.Millisecond,
		Cron: a.Cron, Zone: a.Zone, Attempt: a.Attempt, Dead: a.Dead, Error: a.Error,
	}
}

// CancelAlarms takes alarms back and drops dead letters, all or none. One that is not there is a NotFound error.
func (r *Runtime) CancelAlarms(ctx context.Context, app agent.App, name, key string, alarms ...string) error {
	t, err := r.enterExisting(ctx, app, name, key)
	if err != nil {
		return err
	}
	defer t.Abandon()
	for _, a := range alarms {
		there, err := cancelAlarm(ctx, t, a)
		if err != nil {
			return err
		}
		if !there {
			return agent.Errorf(agent.NotFound, "instance %q has no alarm %.140q", key, a)
		}
	}
	return r.leave(ctx, t)
}

// RetryAlarm sets a dead letter to be due now, with all its attempts.
func (r *Runtime) RetryAlarm(ctx context.Context, app agent.App, name, key, alarm string) (agent.Alarm, error) {
	t, err := r.enterExisting(ctx, app, name, key)
	if err != nil {
		return agent.Alarm{}, err
	}
	defer t.Abandon()
	if len(alarm) > maxAlarmName {
		alarm = alarm[:maxAlarmName]
	}
	dead, there, err := t.Alarm(ctx, deadAlarm+alarm)
	if err != nil {
		return agent.Alarm{}, err
	}
	if !there {
		return agent.Alarm{}, agent.Errorf(agent.NotFound, "instance %q has no alarm %.140q that failed for the last time", key, alarm)
	}
	d, err := decodeAlarm(dead)
	if err != nil {
		return agent.Alarm{}, err
	}
	d.Attempt, d.Error, d.Every, d.Cron, d.Zone = 0, "", 0, "", "" // one that repeats has its next time already
	again := instance.Alarm{Name: authorAlarm + alarm, At: time.Now(), Data: d.encode()}
	if _, there, err = t.Alarm(ctx, again.Name); err != nil {
		return agent.Alarm{}, err
	} else if there {
		again.Name = authorAlarm + d.madeUpName(again.At)
	}
	if err := t.SetAlarm(ctx, instance.AlarmEdit{Clear: true, Alarm: instance.Alarm{Name: dead.Name}}); err != nil {
		return agent.Alarm{}, err
	}
	if err := t.SetAlarm(ctx, instance.AlarmEdit{Alarm: again}); err != nil {
		return agent.Alarm{}, err
	}
	w, err := wireAlarm(again)
	if err != nil {
		return agent.Alarm{}, err
	}
	return alarmOf(w), r.leave(ctx, t)
}

// enterExisting enters a turn of an instance that is there.
func (r *Runtime) enterExisting(ctx context.Context, app agent.App, name, key string) (*durable.Turn, error) {
	info, err := r.existing(ctx, app, name, key)
	if err != nil {
		return nil, err
	}
	return r.enter(ctx, info.ID, durable.Entry{Exists: true}, r.opts.Limits)
}

// ListStorage returns one page of an instance's own state.
func (r *Runtime) ListStorage(ctx context.Context, app agent.App, name, key string, q agent.StateRange) ([]agent.StateEntry, string, error) {
	info, err := r.existing(ctx, app, name, key)
	if err != nil {
		return nil, "", err
	}
	return r.keeper.Store().Scan(ctx, info.ID, withoutOurs(q))
}

// Storage returns one key of it.
func (r *Runtime) Storage(ctx context.Context, app agent.App, name, key, stateKey string) (agent.StateEntry, error) {
	info, err := r.existing(ctx, app, name, key)
	if err != nil {
		return agent.StateEntry{}, err
	}
	if err := notOurs(stateKey); err != nil {
		return agent.StateEntry{}, err
	}
	got, err := r.keeper.Store().Load(ctx, info.ID, stateKey)
	if err == nil && len(got) == 0 {
		err = agent.Errorf(agent.NotFound, "there is no key %.80q in the storage of instance %q", stateKey, key)
	}
	if err != nil {
		return agent.StateEntry{}, err
	}
	return got[0], nil
}

// EditStorage changes an instance's state, in a turn without a cell.
func (r *Runtime) EditStorage(ctx context.Context, app agent.App, name, key string, edits ...agent.StateEdit) (int64, error) {
	rec, err := r.records.resolve(ctx, r.store, app, name)
	if err != nil {
		return 0, err
	}
	t, err := r.enterExisting(ctx, app, name, key)
	if err != nil {
		return 0, err
	}
	defer t.Abandon()
	in := storage{placeIn(t)}
	version, err := in.Edit(ctx, storageBounds(rec.agent.Grants), edits)
	if err != nil {
		return 0, err
	}
	return version, r.leave(ctx, t)
}

// SubscribeInstance follows an instance's own events: what it emitted, its state as it changed, alarms.
func (r *Runtime) SubscribeInstance(ctx context.Context, app agent.App, name, key string, after int64) (*Subscription, error) {
	info, err := r.existing(ctx, app, name, key)
	if err != nil {
		return nil, err
	}
	return r.Subscribe(ctx, store.InstanceLog(info.ID, ownEvents), after)
}
