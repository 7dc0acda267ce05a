package instancetest

import (
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/instance"
)

func del(key string) agent.StateEdit { return agent.StateEdit{Act: agent.StateDelete, Key: key} }

func check(key string, version int64) agent.StateEdit {
	return when(agent.StateEdit{Act: agent.StateCheck, Key: key}, version)
}

func testState(t *testing.T, rig Rig) {
	o := acquire(t, rig.Store, "k/é \x01")
	o.commit(instance.Batch{State: []agent.StateEdit{set("b", "1"), set("a/é", "1"), set("a", ""), set("b", "2")}})
	o.commit(instance.Batch{})
	o.commit(instance.Batch{State: []agent.StateEdit{set("c", "3"), del("a"), del("none"), set("d", "3"), del("d")}})
	same(t, []string{"a/é=1@1", "b=2@1", "c=3@3"}, o.state(agent.StateRange{}))
	same(t, []string{"c=3@3", "b=2@1", "a/é=1@1"}, o.state(agent.StateRange{Reverse: true, Limit: 1}))
	same(t, []string{"b=2@1"}, o.state(agent.StateRange{Start: "b", End: "c", Limit: 2}))
	same(t, []string{"a/é=1@1"}, o.state(agent.StateRange{Prefix: "a/"}))
	es, err := o.s.Load(ctx, o.id, "c", "none", "b")
	if err != nil {
		t.Fatal(err)
	}
	same(t, []agent.StateEntry{{Key: "c", Version: 3, Value: agent.Text("3")}, {Key: "b", Version: 1, Value: agent.Text("2")}}, es)
	same(t, agent.StateSize{Bytes: 9, Keys: 3}, o.info().State)
	other := acquire(t, rig.Store, "k")
	same(t, []string(nil), other.state(agent.StateRange{}))
	_, err = o.s.Load(ctx, name("none"), "a")
	wantIs(t, err, instance.ErrGone)
	_, _, err = o.s.Scan(ctx, name("none"), agent.StateRange{})
	wantIs(t, err, instance.ErrGone)
}

func testStateConflict(t *testing.T, rig Rig) {
	o := acquire(t, rig.Store, "k")
	o.commit(instance.Batch{State: []agent.StateEdit{set("a", "1"), set("b", "1")}})
	o.commit(instance.Batch{State: []agent.StateEdit{set("a", "2")}})
	for _, es := range [][]agent.StateEdit{
		{when(set("a", "x"), 1)}, {when(set("a", "x"), 0)}, {set("c", "x"), check("c", 3)}, {del("a"), check("a", 0)}, {check("none", 1)},
	} {
		o.refuseKind(instance.Batch{State: es}, agent.Conflict)
	}
	o.commit(instance.Batch{State: []agent.StateEdit{check("a", 2), check("none", 0), when(del("b"), 1), when(set("c", "3"), 0)}})
	same(t, []string{"a=2@2", "c=3@3"}, o.state(agent.StateRange{}))
}

func testStateBounds(t *testing.T, rig Rig) {
	o := acquire(t, rig.Store, "k")
	tight := agent.StateGrant{Bytes: 10, Keys: 2}
	o.commit(instance.Batch{Bounds: tight, State: []agent.StateEdit{set("a", "1234"), set("b", "1234")}})
	o.refuseKind(instance.Batch{Bounds: tight, State: []agent.StateEdit{set("a", "12345")}}, agent.Exhausted)
	o.refuseKind(instance.Batch{Bounds: tight, State: []agent.StateEdit{set("c", ""), del("b"), set("d", "")}}, agent.Exhausted)
	o.commit(instance.Batch{State: []agent.StateEdit{set("a", strings.Repeat("x", 100))}})
	o.commit(instance.Batch{Bounds: tight, State: []agent.StateEdit{set("a", "still more than allowed")}}) // it shrinks
	o.refuseKind(instance.Batch{Bounds: tight, State: []agent.StateEdit{set("b", "123456")}}, agent.Exhausted)
}

func testSnapshot(t *testing.T, rig Rig) {
	o := acquire(t, rig.Store, "k")
	same(t, instance.Snapshot{}, o.info().Snapshot)
	s := instance.Snapshot{Data: []byte("module, pages")}
	o.commit(instance.Batch{Snapshot: &s})
	o.commit(instance.Batch{})
	same(t, s, acquire(t, rig.Store, "k").info().Snapshot)
	o = acquire(t, rig.Store, "k")
	o.commit(instance.Batch{Snapshot: &instance.Snapshot{}})
	same(t, instance.Snapshot{}, o.info().Snapshot)
}
