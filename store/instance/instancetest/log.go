package instancetest

import (
	"fmt"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/instance"
)

func testLogs(t *testing.T, rig Rig) {
	o := acquire(t, rig.Store, "k")
	l := instance.OwnLog("l")
	same(t, []string(nil), o.log(l))
	want := []string{}
	for i := range 20 {
		res := o.commit(instance.Batch{Events: []instance.Append{emit("l", i), emit("m", i), emit("l", -i)}})
		same(t, []int64{int64(2*i + 1), int64(i + 1), int64(2*i + 2)}, res.Events)
		want = append(want, fmt.Sprintf("%d %q", 2*i+1, fmt.Sprint(i)), fmt.Sprintf("%d %q", 2*i+2, fmt.Sprint(-i)))
	}
	same(t, want, o.log(l))
	got := []string{}
	for after := int64(0); ; {
		evs, err := o.s.ReadLog(ctx, o.id, l, after, 7)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range evs {
			if after++; e.Seq != after || e.Time.IsZero() || e.Kind != agent.EventEmit || e.Name != "n" {
				t.Fatalf("event %+v", e)
			}
			got = append(got, fmt.Sprintf("%d %s", e.Seq, e.Data))
		}
		if len(evs) < 7 {
			break
		}
	}
	same(t, want, got)
	if evs, err := o.s.ReadLog(ctx, o.id, l, 1000, 0); err != nil || len(evs) > 0 {
		t.Error(evs, err)
	}
	_, err := o.s.ReadLog(ctx, o.id, l, -1, 0)
	wantKind(t, err, agent.Invalid)
	_, err = o.s.ReadLog(ctx, name("none"), l, 0, 0)
	wantIs(t, err, instance.ErrGone)
	other := acquire(t, rig.Store, "k2")
	same(t, []string(nil), other.log(l))
}

// Sessions' logs are shared with who else appends to them, and belong to one instance.
func testSessions(t *testing.T, rig Rig) {
	o, other := acquire(t, rig.Store, "k"), acquire(t, rig.Store, "other")
	rig.AddSession("01SESSION", o.id)
	l := instance.SessionLog("01SESSION")
	b := instance.Batch{Events: []instance.Append{{Log: l, Event: event("a")}, {Log: l, Event: event("b")}, emit("l", "own")}}
	same(t, []int64{1, 2, 1}, o.commit(b).Events)
	same(t, []int64{3, 4, 2}, o.commit(b).Events)
	same(t, []string{`1 "a"`, `2 "b"`, `3 "a"`, `4 "b"`}, o.log(l))
	other.refuseKind(instance.Batch{Events: []instance.Append{{Log: l, Event: event("no")}}}, agent.Conflict)
	o.refuseKind(instance.Batch{Events: []instance.Append{{Log: instance.SessionLog("01NONE"), Event: event("no")}}}, agent.NotFound)
	wantKind(t, o.s.Trim(ctx, o.id, o.f, l, 2), agent.Invalid)
	if err := o.s.Delete(ctx, o.id, o.f); err != nil {
		t.Fatal(err)
	}
	same(t, []string{`1 "a"`, `2 "b"`, `3 "a"`, `4 "b"`}, acquire(t, rig.Store, "k").log(l))
}

func (o *owner) refuseKind(b instance.Batch, kind agent.Kind) {
	o.t.Helper()
	b.ID = instance.NewBatchID()
	was := o.info()
	_, err := o.s.Commit(ctx, o.id, o.f, &b)
	wantKind(o.t, err, kind)
	same(o.t, was, o.info())
}

func testJournal(t *testing.T, rig Rig) {
	o := acquire(t, rig.Store, "k")
	e := func(run agent.RunID, data string) instance.Entry { return instance.Entry{Run: run, Data: []byte(data)} }
	same(t, []int64{1, 1, 2}, o.commit(instance.Batch{Journal: []instance.Entry{e("R1", "a"), e("R2", "\x00\xff"), e("R1", "")}}).Journal)
	same(t, []int64{2}, o.commit(instance.Batch{Journal: []instance.Entry{e("R2", "c")}}).Journal)
	same(t, []string{"1 a", "2 "}, o.journal("R1"))
	same(t, []string{"1 \x00\xff", "2 c"}, o.journal("R2"))
	same(t, []string(nil), o.journal("R3"))
	es, err := o.s.ReadJournal(ctx, o.id, "R2", 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	same(t, []instance.Entry{{Run: "R2", Seq: 2, Data: []byte("c")}}, es)
}

func testTrim(t *testing.T, rig Rig) {
	o := acquire(t, rig.Store, "k")
	trim := func(l instance.Log, before int64) {
		t.Helper()
		if err := o.s.Trim(ctx, o.id, o.f, l, before); err != nil {
			t.Fatal(err)
		}
	}
	l := instance.OwnLog("l")
	trim(l, 10)
	full := instance.Batch{}
	for i := range instance.MaxOps {
		full.Events = append(full.Events, emit("l", i))
	}
	o.commit(full)
	o.commit(full)
	was := o.info().LogBytes
	trim(l, 0)
	trim(l, 999)
	same(t, []string{`999 "498"`, `1000 "499"`}, o.log(l))
	if now := o.info(); now.Fence != o.f || now.LogBytes >= was || now.LogBytes <= 0 {
		t.Errorf("%d bytes are left of %d at %v", now.LogBytes, was, now.Fence)
	}
	trim(l, 500)
	trim(l, 5000)
	same(t, []string(nil), o.log(l))
	same(t, []int64{1001}, o.commit(instance.Batch{Events: []instance.Append{emit("l", "x")}}).Events)
	same(t, []string{`1001 "x"`}, o.log(l))

	o.commit(instance.Batch{Journal: []instance.Entry{{Run: "R", Data: []byte("a")}, {Run: "R", Data: []byte("b")}}})
	trim(instance.Journal("R"), 2)
	same(t, []string{"2 b"}, o.journal("R"))
	trim(instance.Journal("R"), 3)
	same(t, []string(nil), o.journal("R"))
	same(t, []int64{1}, o.commit(instance.Batch{Journal: []instance.Entry{{Run: "R"}}}).Journal)
}
