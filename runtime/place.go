package runtime

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/skep-dev/skep/abi"
	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/host/grant"
	grantagent "github.com/skep-dev/skep/host/grant/agent"
	"github.com/skep-dev/skep/host/grant/sql"
	"github.com/skep-dev/skep/runtime/durable"
	"github.com/skep-dev/skep/store/instance"
)

// self answers who the code is.
func self(j *job) grant.Handler {
	return grant.JSON(func(context.Context, struct{}) (abi.Self, error) {
		s := abi.Self{Agent: j.Agent, Session: string(j.Session), Run: string(j.Run), Version: string(j.plugin)}
		if j.place != nil {
			s.Key = j.place.id.Key
		}
		return s, nil
	})
}

// addInstance gives a cell's door what belongs to its instance, beside its storage.
func (r *Runtime) addInstance(handlers map[string]grant.Handler, auth *grant.Authority, j *job) {
	p := j.place
	handlers[abi.CallTurnLeave], handlers[abi.CallTurnEnter] = grant.JSON(p.leaveTurn), grant.JSON(p.enterTurn)
	handlers[abi.CallStart] = r.starts(auth, j.Agent, false, inTurns(p))
	r.addSockets(handlers, j)
	sql.Add(handlers, sqlOf{r, j})
	handlers[abi.CallAlarmSet] = grant.JSON(func(ctx context.Context, in abi.AlarmSet) (abi.Alarm, error) {
		t, err := p.turn(ctx)
		if err != nil {
			return abi.Alarm{}, err
		}
		code, err := r.records.plugin(ctx, r.store, recordKey{j.App, string(j.plugin)})
		if err != nil {
			return abi.Alarm{}, err
		}
		if len(in.Payload) > 0 {
			in.Payload = abi.Raw(cleanJSON(j.secrets, json.RawMessage(in.Payload))) // whoever may list alarms sees it
		}
		return r.setAlarm(ctx, t, code, in, j.now())
	})
	handlers[abi.CallAlarmList] = grant.JSON(func(ctx context.Context, in abi.AlarmList) (abi.Alarms, error) {
		t, err := p.turn(ctx)
		if err != nil {
			return abi.Alarms{}, err
		}
		return listAlarms(ctx, t.Alarms, in)
	})
	handlers[abi.CallAlarmCancel] = grant.JSON(func(ctx context.Context, in abi.AlarmCancel) (abi.AlarmCancelled, error) {
		t, err := p.turn(ctx)
		if err != nil {
			return abi.AlarmCancelled{}, err
		}
		there, err := cancelAlarm(ctx, t, in.Name)
		return abi.AlarmCancelled{Cancelled: there}, err
	})
	handlers[abi.CallChildDelete] = grant.JSON(func(ctx context.Context, in abi.ChildDelete) (grant.None, error) {
		t, err := p.turn(ctx)
		if err != nil {
			return grant.None{}, err
		}
		if in.Agent == "" {
			in.Agent = j.Agent
		}
		id, _, err := r.instanceOf(ctx, j.App, in.Agent, in.Key)
		if err != nil {
			return grant.None{}, err
		}
		return grant.None{}, r.deleteChild(ctx, t, id)
	})
}

// now is the time as the cell sees it.
func (j *job) now() time.Time {
	if j.clock != nil {
		return j.clock()
	}
	return time.Now()
}

// storageBounds is how much an instance may keep: what its agent's state grant says, or the default where it has none.
func storageBounds(g agent.Grants) agent.StateGrant {
	if g.State != nil {
		return g.State.Or()
	}
	return agent.StateGrant{}.Or()
}

// storage is the instance's state as its code reaches it: without the keys that are ours.
type storage struct{ *place }

func (s storage) Get(ctx context.Context, keys []string) ([]agent.StateEntry, error) {
	t, err := s.turn(ctx)
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		if err := notOurs(key); err != nil {
			return nil, err
		}
	}
	return t.Get(ctx, keys...)
}

func (s storage) List(ctx context.Context, q agent.StateRange) ([]agent.StateEntry, string, error) {
	t, err := s.turn(ctx)
	if err != nil {
		return nil, "", err
	}
	return t.List(ctx, withoutOurs(q))
}

func (s storage) Edit(ctx context.Context, bounds agent.StateGrant, edits []agent.StateEdit) (int64, error) {
	t, err := s.turn(ctx)
	if err != nil {
		return 0, err
	}
	for _, e := range edits {
		if err := notOurs(e.Key); err != nil {
			return 0, err
		}
	}
	return t.Edit(ctx, bounds, edits...)
}

// pastSystem is the first key behind those that are ours.
const pastSystem = "\x01"

func withoutOurs(q agent.StateRange) agent.StateRange {
	if q.Start < pastSystem {
		q.Start = pastSystem
	}
	return q
}

func notOurs(key string) error {
	if strings.HasPrefix(key, system) {
		return agent.Errorf(agent.Invalid, "keys of an instance's storage do not begin with a NUL character")
	}
	return nil
}

// listAlarms lists the code's alarms and its dead letters, in the order of names.
func listAlarms(ctx context.Context, list func(context.Context, string, int) ([]instance.Alarm, error), in abi.AlarmList) (abi.Alarms, error) {
	out := abi.Alarms{Alarms: []abi.Alarm{}}
	switch {
	case in.Limit == 0:
		in.Limit = 100
	case in.Limit < 0 || in.Limit > instance.MaxPage:
		return out, agent.Errorf(agent.Invalid, "limit is %d; it must be between 1 and %d", in.Limit, instance.MaxPage)
	}
	// Living ones come first, so a page ends in one family or the other; After says in which.
	family, after := authorAlarm, in.After
	if rest, ok := strings.CutPrefix(in.After, deadAlarm); ok {
		family, after = deadAlarm, rest
	} else if rest, ok := strings.CutPrefix(in.After, authorAlarm); ok {
		after = rest
	}
	for {
		page, err := list(ctx, family+after, in.Limit-len(out.Alarms))
		if err != nil {
			return out, err
		}
		ended := len(page) < in.Limit-len(out.Alarms)
		for _, a := range page {
			if !strings.HasPrefix(a.Name, family) {
				ended = true
				break
			}
			w, err := wireAlarm(a)
			if err != nil {
				return out, err
			}
			out.Alarms = append(out.Alarms, w)
			after = w.Name
		}
		switch {
		case !ended:
			out.After = family + after
			return out, nil
		case family == deadAlarm:
			return out, nil
		}
		family, after = deadAlarm, ""
		if len(out.Alarms) == in.Limit {
			out.After = family
			return out, nil
		}
	}
}

// cancelAlarm takes back an alarm of the code's, or drops a dead letter.
func cancelAlarm(ctx context.Context, t *durable.Turn, name string) (bool, error) {
	for _, family := range []string{authorAlarm, deadAlarm} {
		if len(name) > maxAlarmName {
			break
		}
		_, there, err := t.Alarm(ctx, family+name)
		if err != nil {
			return false, err
		}
		if there {
			return true, t.SetAlarm(ctx, instance.AlarmEdit{Clear: true, Alarm: instance.Alarm{Name: family + name}})
		}
	}
	return false, nil
}

// callFrom is a cell's call of another agent, or of an instance.
func (r *Runtime) callFrom(ctx context.Context, j *job, to grantagent.Target, in agent.Payload, depth int) (agent.Payload, error) {
	if to.Key == "" {
		if err := j.place.gate(ctx); err != nil { // it may change the world
			return agent.Payload{}, err
		}
		res, err := r.call(ctx, j.App, CallRequest{Agent: to.Agent, Function: to.Function, Input: in}, depth)
		return res.Output, err
	}
	if j.place == nil {
		if to.Child || to.Send {
			return agent.Payload{}, agent.Errorf(agent.Denied, "a call that belongs to no instance has no instances of its own and sends no messages")
		}
		res, err := r.callInstance(ctx, j.App, InstanceCall{Agent: to.Agent, Key: to.Key, Function: to.Function, Input: in}, depth)
		return res.Output, err
	}
	if !to.Child && !to.Send && j.place.run == nil {
		if err := j.place.gate(ctx); err != nil {
			return agent.Payload{}, err
		}
		return r.callOther(ctx, j, to, in, depth)
	}
	id, _, err := r.instanceOf(ctx, j.App, to.Agent, to.Key)
	if err != nil {
		return agent.Payload{}, err
	}
	t, err := j.place.turn(ctx)
	if err != nil {
		return agent.Payload{}, err
	}
	if to.Child {
		if err := r.makeChild(ctx, t, id); err != nil {
			return agent.Payload{}, err
		}
	}
	if to.Send {
		return agent.Payload{}, r.send(ctx, t, id, to.Function, in)
	}
	if j.place.run != nil {
		return agent.Payload{}, j.place.run.callInstance(ctx, t, id, to, in, depth)
	}
	if err := t.Commit(ctx); err != nil {
		return agent.Payload{}, err
	}
	return r.callOther(ctx, j, to, in, depth)
}

// callOther calls an instance for a cell that waits for the answer.
func (r *Runtime) callOther(ctx context.Context, j *job, to grantagent.Target, in agent.Payload, depth int) (agent.Payload, error) {
	res, err := r.callInstance(durable.Holding(ctx, j.place.id), j.App, InstanceCall{Agent: to.Agent, Key: to.Key, Function: to.Function, Input: in}, depth)
	return res.Output, err
}

// makeChild registers an instance as a child and makes it, unless it is one already.
func (r *Runtime) makeChild(ctx context.Context, t *durable.Turn, id instance.ID) error {
	switch info, err := r.keeper.Store().Info(ctx, id); {
	case err == nil && info.Parent == t.ID():
		return nil
	case err == nil:
		return agent.Errorf(agent.Conflict, "instance %q is there already, and is not a child of %q", id.Key, t.ID().Key)
	case agent.KindOf(err) != agent.NotFound:
		return err
	}
	if err := t.Child(ctx, instance.Child{ID: id}); err != nil {
		return err
	}
	if err := t.Commit(ctx); err != nil { // it is on the list before it is made, so that none is ever lost
		return err
	}
	child, err := r.keeper.Enter(durable.Holding(ctx, t.ID()), id, durable.Entry{Parent: t.ID()})
	if err != nil {
		return err
	}
	return child.Leave(ctx)
}

// deleteChild ends an instance that is the caller's own.
func (r *Runtime) deleteChild(ctx context.Context, t *durable.Turn, id instance.ID) error {
	info, err := r.keeper.Store().Info(ctx, id)
	if agent.KindOf(err) == agent.NotFound {
		return t.Child(ctx, instance.Child{Remove: true, ID: id})
	}
	if err != nil {
		return err
	}
	if info.Parent != t.ID() {
		return agent.Errorf(agent.Denied, "instance %q is not a child of %q", id.Key, t.ID().Key)
	}
	if err := t.Commit(ctx); err != nil { // what is deleted stays so, whatever becomes of the turn
		return err
	}
	return t.DeleteChild(ctx, id, r.endInstance)
}
