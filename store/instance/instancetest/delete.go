package instancetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/instance"
)

// furnish gives an instance more of everything than one part of a removal takes.
func furnish(o *owner, to *owner) {
	o.t.Helper()
	for i := range 4 {
		b := instance.Batch{}
		for j := range instance.MaxOps {
			n := i*instance.MaxOps + j
			switch i {
			case 0:
				b.State = append(b.State, set(fmt.Sprint("k", n), "v"))
			case 1:
				b.Events = append(b.Events, emit("l", n))
			case 2:
				b.Alarms = append(b.Alarms, alarm(fmt.Sprint("a", n), int64(n)))
			case 3:
				b.Outbox = append(b.Outbox, send(to, fmt.Sprint(n)))
			}
		}
		o.commit(b)
	}
	o.commit(instance.Batch{
		Journal: []instance.Entry{{Run: "R"}}, Inbox: []instance.Mark{{Peer: to.id, Seq: 1}}, Snapshot: &instance.Snapshot{Data: []byte("s")},
	})
}

// empty checks that an instance that was made anew has nothing of its former life.
func empty(o *owner) {
	o.t.Helper()
	i := o.info()
	same(o.t, instance.Info{ID: o.id, Fence: o.f, Created: i.Created, Updated: i.Updated}, i)
	same(o.t, []string(nil), o.state(agent.StateRange{}))
	same(o.t, []string(nil), o.log(instance.OwnLog("l")))
	same(o.t, []string(nil), o.journal("R"))
	if got, wake := due(o.t, o.s, at(1e9), 0); len(got) > 0 || !wake.IsZero() {
		o.t.Error(got, wake)
	}
	if ms := outgoing(o.t, o.s, 0); len(ms) > 0 {
		o.t.Error(ms)
	}
}

func testDelete(t *testing.T, rig Rig) {
	o, other := acquire(t, rig.Store, "k"), acquire(t, rig.Store, "k2")
	other.commit(instance.Batch{State: []agent.StateEdit{set("stays", "v")}})
	furnish(o, other)
	if err := o.s.Delete(ctx, o.id, o.f); err != nil {
		t.Fatal(err)
	}
	_, err := o.s.Info(ctx, o.id)
	wantIs(t, err, instance.ErrGone)
	_, err = o.s.Commit(ctx, o.id, o.f, &instance.Batch{ID: instance.NewBatchID()})
	wantIs(t, err, instance.ErrGone)
	wantIs(t, o.s.Delete(ctx, o.id, o.f), instance.ErrGone)
	wantIs(t, o.s.Trim(ctx, o.id, o.f, instance.OwnLog("l"), 2), instance.ErrGone)
	_, _, err = o.s.Resolve(ctx, o.id, o.f, instance.NewBatchID())
	wantIs(t, err, instance.ErrGone)
	again := acquire(t, rig.Store, "k")
	empty(again)
	o.refuse(instance.Batch{}, instance.ErrFenced)
	again.commit(instance.Batch{})
	same(t, []string{"stays=v@1"}, other.state(agent.StateRange{}))
}

// A deletion and commits that meet it: each commit happened before or not at all, and nothing of it is left.
func testDeleteRace(t *testing.T, rig Rig) {
	for round := range 10 {
		o := acquire(t, rig.Store, "k")
		var all sync.WaitGroup
		var commitErr, deleteErr error
		all.Go(func() {
			f := o.f
			for i := range 20 {
				res, err := o.s.Commit(ctx, o.id, f, &instance.Batch{
					ID: instance.NewBatchID(), State: []agent.StateEdit{set(fmt.Sprint(i), "v")}, Alarms: []instance.AlarmEdit{alarm("a", 1)},
				})
				if err != nil {
					commitErr = err
					return
				}
				f = res.Fence
			}
		})
		all.Go(func() {
			for range round + 1 {
				info, err := o.s.Info(ctx, o.id)
				if err != nil {
					deleteErr = err
					return
				}
				if deleteErr = o.s.Delete(ctx, o.id, info.Fence); deleteErr == nil || !errors.Is(deleteErr, instance.ErrFenced) {
					return
				}
			}
		})
		all.Wait()
		switch {
		case deleteErr == nil && commitErr == nil: // all commits came first
		case deleteErr == nil:
			wantIs(t, commitErr, instance.ErrGone)
		default:
			wantIs(t, deleteErr, instance.ErrFenced)
			if commitErr != nil {
				t.Fatal(commitErr)
			}
			o = acquire(t, rig.Store, "k")
			if err := o.s.Delete(ctx, o.id, o.f); err != nil {
				t.Fatal(err)
			}
		}
		empty(acquire(t, rig.Store, "k"))
	}
}

func testRemoveAgent(t *testing.T, rig Rig) {
	rig.AddAgent("01OTHER")
	other, err := rig.Store.Acquire(ctx, instance.ID{App: app, Agent: "01OTHER", Key: "k"}, instance.ID{})
	if err != nil {
		t.Fatal(err)
	}
	o := acquire(t, rig.Store, "k")
	furnish(o, o)
	acquire(t, rig.Store, "k2")
	rig.RemoveAgent(agentID)
	_, err = o.s.Commit(ctx, o.id, o.f, &instance.Batch{ID: instance.NewBatchID()})
	wantIs(t, err, instance.ErrGone)
	_, err = o.s.Acquire(ctx, o.id, instance.ID{})
	wantIs(t, err, instance.ErrGone)
	_, err = o.s.Info(ctx, o.id)
	wantIs(t, err, instance.ErrGone)
	_, _, err = o.s.List(ctx, app, agentID, agent.Page{})
	wantIs(t, err, instance.ErrGone)
	if got, wake := due(t, o.s, at(1e9), 0); len(got) > 0 || !wake.IsZero() {
		t.Error(got, wake)
	}
	if ms := outgoing(t, o.s, 0); len(ms) > 0 {
		t.Error(ms)
	}
	if i, err := o.s.Info(ctx, other.ID); err != nil || i.Fence != other.Fence {
		t.Error(i, err)
	}
}

func testList(t *testing.T, rig Rig) {
	s := rig.Store
	list, next, err := s.List(ctx, app, agentID, agent.Page{})
	if err != nil || len(list) > 0 || next != "" {
		t.Fatal(list, next, err)
	}
	want := []instance.Info{}
	for _, key := range []string{"\x00", "a", "a/b", "a0", "b", "é"} {
		o := acquire(t, s, key)
		o.commit(instance.Batch{
			State: []agent.StateEdit{set("k", key)}, Alarms: []instance.AlarmEdit{alarm("x", 1)}, Children: []instance.Child{{ID: name("child")}},
			Events: []instance.Append{emit("l", 1)}, Outbox: []instance.Send{send(o, "")},
		})
		want = append(want, o.info())
	}
	for _, limit := range []int{0, 1, 4, 6, agent.MaxPage} {
		got, p := []instance.Info{}, agent.Page{Limit: limit}
		for {
			list, next, err := s.List(ctx, app, agentID, p)
			if err != nil {
				t.Fatal(err)
			}
			if got = append(got, list...); next == "" {
				break
			}
			p.After = next
		}
		same(t, want, got)
	}
	_, _, err = s.List(ctx, app, "01NOBODY", agent.Page{})
	wantIs(t, err, instance.ErrGone)
}
