package instancetest

import (
	"context"
	"errors"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/instance"
)

func testAcquire(t *testing.T, rig Rig) {
	s := rig.Store
	_, err := s.Info(ctx, name("k"))
	wantIs(t, err, instance.ErrGone)
	o := acquire(t, s, "k")
	if o.f.Epoch != 1 || o.f.Head != 0 {
		t.Errorf("a new instance is at %v", o.f)
	}
	o.commit(instance.Batch{State: []agent.StateEdit{set("a", "1")}})
	again := acquire(t, s, "k")
	same(t, instance.Fence{Epoch: 2, Head: 1}, again.f)
	same(t, []string{"a=1@1"}, again.state(agent.StateRange{}))
	if i := again.info(); i.Created.IsZero() || i.Updated.Before(i.Created) || i.Fence != again.f {
		t.Errorf("%+v", i)
	}
	_, err = s.Acquire(ctx, instance.ID{App: app, Agent: "01NOBODY", Key: "k"}, instance.ID{})
	wantIs(t, err, instance.ErrGone)
}

func testFence(t *testing.T, rig Rig) {
	o := acquire(t, rig.Store, "k")
	o.commit(instance.Batch{})
	o.commit(instance.Batch{State: []agent.StateEdit{set("a", "1")}})
	good := o.f
	for _, f := range []instance.Fence{
		{}, {Epoch: good.Epoch, Head: good.Head - 1}, {Epoch: good.Epoch, Head: good.Head + 1}, {Epoch: good.Epoch - 1, Head: good.Head},
		{Epoch: good.Epoch + 1, Head: good.Head}, {Epoch: good.Epoch + 1, Head: 0}, {Epoch: -1, Head: -1},
	} {
		o.f = f
		o.refuse(instance.Batch{State: []agent.StateEdit{set("a", "bad")}}, instance.ErrFenced)
		wantIs(t, o.s.Trim(ctx, o.id, f, instance.OwnLog("l"), 1), instance.ErrFenced)
		wantIs(t, o.s.Delete(ctx, o.id, f), instance.ErrFenced)
	}
	o.f = good
	o.commit(instance.Batch{})
	same(t, []string{"a=1@2"}, o.state(agent.StateRange{}))
}

// An owner that was deposed commits nothing, whatever it knows.
func testZombie(t *testing.T, rig Rig) {
	old := acquire(t, rig.Store, "k")
	last := instance.Batch{ID: instance.NewBatchID(), Events: []instance.Append{emit("l", "old")}}
	before := old.f
	res, err := old.s.Commit(ctx, old.id, old.f, &last)
	if err != nil {
		t.Fatal(err)
	}
	old.f = res.Fence
	now := acquire(t, rig.Store, "k")
	old.refuse(instance.Batch{Events: []instance.Append{emit("l", "zombie")}}, instance.ErrFenced)
	for range 3 {
		now.commit(instance.Batch{Events: []instance.Append{emit("l", "new")}})
		old.f.Head = now.f.Head // it may guess the head, but never the epoch
		old.refuse(instance.Batch{Events: []instance.Append{emit("l", "zombie")}}, instance.ErrFenced)
	}
	for _, f := range []instance.Fence{before, res.Fence} {
		_, err = old.s.Commit(ctx, old.id, f, &last)
		wantIs(t, err, instance.ErrFenced)
		_, _, err = old.s.Resolve(ctx, old.id, f, last.ID)
		wantIs(t, err, instance.ErrFenced)
	}
	same(t, []string{`1 "old"`, `2 "new"`, `3 "new"`, `4 "new"`}, now.log(instance.OwnLog("l")))
}

func testResubmit(t *testing.T, rig Rig) {
	o := acquire(t, rig.Store, "k")
	to := acquire(t, rig.Store, "to")
	o.commit(instance.Batch{Events: []instance.Append{emit("l", 1)}})
	b := instance.Batch{
		ID: instance.NewBatchID(), State: []agent.StateEdit{set("a", "1")}, Alarms: []instance.AlarmEdit{alarm("wake", 5)},
		Events: []instance.Append{emit("l", 2), emit("m", 3), emit("l", 4)}, Journal: []instance.Entry{{Run: "R", Data: []byte("j")}},
		Outbox: []instance.Send{{To: to.id}, {To: o.id}, {To: to.id}},
		Inbox:  []instance.Mark{{Peer: to.id, Seq: 1}},
	}
	first, err := o.s.Commit(ctx, o.id, o.f, &b)
	if err != nil {
		t.Fatal(err)
	}
	same(t, []int64{2, 1, 3}, first.Events)
	same(t, []int64{1}, first.Journal)
	if n := first.Outbox; len(n) != 3 || n[2] != n[0]+1 {
		t.Errorf("messages %v", n)
	}
	was := o.info()
	for _, f := range []instance.Fence{o.f, first.Fence} {
		res, err := o.s.Commit(ctx, o.id, f, &b)
		if err != nil {
			t.Fatal(err)
		}
		same(t, first, res)
	}
	same(t, was, o.info())
	same(t, []string{`1 "1"`, `2 "2"`, `3 "4"`}, o.log(instance.OwnLog("l")))
	other := instance.Batch{ID: b.ID, Events: []instance.Append{emit("l", 2)}}
	_, err = o.s.Commit(ctx, o.id, first.Fence, &other)
	wantKind(t, err, agent.Invalid)
	o.f = first.Fence
	o.commit(instance.Batch{}) // now it is no longer the newest
	_, err = o.s.Commit(ctx, o.id, first.Fence, &b)
	wantIs(t, err, instance.ErrFenced)
}

func testResolve(t *testing.T, rig Rig) {
	o := acquire(t, rig.Store, "k")
	b := instance.Batch{ID: instance.NewBatchID(), Events: []instance.Append{emit("l", 1)}}
	at := o.f
	res, err := o.s.Commit(ctx, o.id, at, &b)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		out, f, err := o.s.Resolve(ctx, o.id, at, b.ID)
		if err != nil || out != instance.Landed || f != res.Fence {
			t.Fatal(out, f, err)
		}
	}
	// One that did not land never will, also when it arrives late.
	lost := instance.Batch{ID: instance.NewBatchID(), Events: []instance.Append{emit("l", "late")}}
	out, f, err := o.s.Resolve(ctx, o.id, res.Fence, lost.ID)
	if err != nil || out != instance.NotLanded {
		t.Fatal(out, err)
	}
	_, err = o.s.Commit(ctx, o.id, res.Fence, &lost)
	wantIs(t, err, instance.ErrFenced)
	if out, again, err := o.s.Resolve(ctx, o.id, res.Fence, lost.ID); err != nil || out != instance.NotLanded || again != f {
		t.Fatal(out, again, err)
	}
	if _, err = o.s.Commit(ctx, o.id, f, &lost); err != nil { // sent on purpose, it is a batch like any other
		t.Fatal(err)
	}
	same(t, []string{`1 "1"`, `2 "late"`}, o.log(instance.OwnLog("l")))
	_, _, err = o.s.Resolve(ctx, o.id, at, b.ID)
	wantIs(t, err, instance.ErrFenced)
	_, _, err = o.s.Resolve(ctx, name("none"), at, b.ID)
	wantIs(t, err, instance.ErrGone)
}

// A commit with one part that is refused leaves nothing of the others.
func testAtomic(t *testing.T, rig Rig) {
	o := acquire(t, rig.Store, "k")
	to := acquire(t, rig.Store, "to")
	o.commit(instance.Batch{State: []agent.StateEdit{set("a", "1")}, Inbox: []instance.Mark{{Peer: to.id, Seq: 1}}})
	full := instance.Batch{
		State: []agent.StateEdit{set("a", "2")}, Events: []instance.Append{emit("l", 1)}, Journal: []instance.Entry{{Run: "R"}},
		Alarms: []instance.AlarmEdit{alarm("wake", 5)}, Outbox: []instance.Send{{To: to.id}}, Children: []instance.Child{{ID: to.id}},
		Snapshot: &instance.Snapshot{Data: []byte("s")},
	}
	was := o.info()
	for _, spoil := range []func(*instance.Batch){
		func(b *instance.Batch) { b.State = append(b.State, when(set("b", ""), 7)) },
		func(b *instance.Batch) { b.Inbox = []instance.Mark{{Peer: to.id, Seq: 1}} },
		func(b *instance.Batch) { b.Sent = []instance.Mark{{Peer: to.id, Seq: 1}} },
		func(b *instance.Batch) {
			b.Events = append(b.Events, instance.Append{Log: instance.SessionLog("01NONE"), Event: event(1)})
		},
	} {
		b := full
		b.ID = instance.NewBatchID()
		spoil(&b)
		if _, err := o.s.Commit(ctx, o.id, o.f, &b); err == nil {
			t.Fatalf("%+v was accepted", b)
		}
		same(t, was, o.info())
		same(t, []string{"a=1@1"}, o.state(agent.StateRange{}))
		same(t, []string(nil), o.log(instance.OwnLog("l")))
		same(t, []string(nil), o.journal("R"))
		if as, _ := o.s.Alarms(ctx, o.id, "", 0); len(as) > 0 {
			t.Error(as)
		}
		if ms, _, _ := o.s.Outgoing(ctx, "", 0); len(ms) > 0 {
			t.Error(ms)
		}
	}
	o.commit(full)
}

func testCancelled(t *testing.T, rig Rig) {
	o := acquire(t, rig.Store, "k")
	done, cancel := context.WithCancel(ctx)
	cancel()
	_, err := o.s.Commit(done, o.id, o.f, &instance.Batch{ID: instance.NewBatchID()})
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if now := o.info().Fence; (err == nil) != (now != o.f) {
		t.Errorf("error %v, but the fence is %v", err, now)
	}
}
