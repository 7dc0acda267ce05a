package instancetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/instance"
)

// newRun makes a run in a session that it makes as well, when it is told to.
func newRun(o *owner, id agent.RunID, in agent.SessionID, session bool) instance.RunEdit {
	e := instance.RunEdit{Run: agent.Run{App: app, ID: id, Session: in, Function: "f", Input: agent.Text("in"), Created: at(5)}}
	if session {
		e.Session = &agent.Session{App: app, ID: in, Key: o.id.Key, Title: "t", Created: at(4)}
	}
	return e
}

// status changes a run as it is stored.
func status(rig Rig, id agent.RunID, from, to agent.RunStatus) instance.RunEdit {
	run, _ := rig.Run(id)
	run.App, run.ID, run.Status = app, id, to
	return instance.RunEdit{From: from, Run: run}
}

func ofRun(log instance.Log, run agent.RunID, data any) instance.Append {
	a := instance.Append{Log: log, Event: event(data)}
	a.Event.Run = run
	return a
}

func (rig Rig) run(t *testing.T, id agent.RunID) agent.Run {
	t.Helper()
	run, err := rig.Run(id)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// One commit makes a session, its run and their first events, and later ones take the run to its end.
func testRuns(t *testing.T, rig Rig) {
	o := acquire(t, rig.Store, "k")
	log := instance.SessionLog("S1")
	first := newRun(o, "R1", "S1", true)
	second := newRun(o, "R2", "S1", false)
	second.Run.Status, second.Run.FirstSeq = agent.Waiting, 77
	res := o.commit(instance.Batch{
		State: []agent.StateEdit{set("a", "1")}, Runs: []instance.RunEdit{first, second}, Journal: []instance.Entry{{Run: "R1"}},
		Events: []instance.Append{{Log: log, Event: event("message")}, emit("l", 1), ofRun(log, "R1", "queued"), ofRun(log, "R1", "more")},
	})
	same(t, []int64{1, 1, 2, 3}, res.Events)
	same(t, []string{`1 "message"`, `2 "queued"`, `3 "more"`}, o.log(log))
	got := rig.run(t, "R1")
	want := first.Run
	want.Agent, want.FirstSeq, want.Status = got.Agent, 2, agent.Queued
	same(t, want, got)
	if r := rig.run(t, "R2"); got.Agent == "" || r.FirstSeq != 77 || r.Status != agent.Waiting {
		t.Errorf("%+v", r)
	}
	se, err := rig.Session("S1")
	if err != nil {
		t.Fatal(err)
	}
	same(t, agent.Session{App: app, ID: "S1", Agent: got.Agent, Key: "k", Title: "t", Created: at(4), LastSeq: 3}, se)

	// Made in a later commit, in a session of which others appended to the log.
	rig.AddSession("S2", o.id)
	o.commit(instance.Batch{Events: []instance.Append{{Log: instance.SessionLog("S2"), Event: event("before")}}})
	third := newRun(o, "R3", "S2", false)
	third.Run.Created = time.Time{}
	third.Run.Agent, third.Run.Parent = got.Agent, &agent.RunParent{Run: "R1", Call: 3}
	o.commit(instance.Batch{Runs: []instance.RunEdit{third}, Events: []instance.Append{ofRun(instance.SessionLog("S2"), "R3", "queued")}})
	if r := rig.run(t, "R3"); r.FirstSeq != 2 || r.Agent != got.Agent || r.Created.IsZero() || *r.Parent != *third.Run.Parent {
		t.Errorf("%+v", r)
	}

	// From one status to the next, twice in one batch as well; what a run is made with stays.
	out := agent.Payload{Type: agent.TypeBytes, Body: []byte{0, 255}}
	running := status(rig, "R1", agent.Queued, agent.Running)
	running.Run.Lives, running.Run.Started = 1, at(6)
	waiting := running
	waiting.From, waiting.Run.Status = agent.Running, agent.Waiting
	waiting.Run.Wait = &agent.RunWait{For: "event", Name: "paid", Call: 4, Until: at(1000)}
	o.commit(instance.Batch{Runs: []instance.RunEdit{running, waiting}})
	want.Status, want.Lives, want.Started, want.Wait = agent.Waiting, 1, at(6), waiting.Run.Wait
	same(t, want, rig.run(t, "R1"))
	ended := status(rig, "R1", agent.Waiting, agent.Completed)
	ended.Run.Output, ended.Run.Ended, ended.Run.Wait, ended.Run.Usage.CPU = &out, at(7), nil, 9
	changed := ended
	changed.Run.Agent, changed.Run.Session, changed.Run.Function, changed.Run.Plugin = "other", "S2", "g", agent.DigestOf(nil)
	changed.Run.Input, changed.Run.Created, changed.Run.FirstSeq = agent.Text("out"), at(9), 99
	o.commit(instance.Batch{Runs: []instance.RunEdit{changed}, Events: []instance.Append{ofRun(log, "R1", "completed")}})
	same(t, ended.Run, rig.run(t, "R1"))
	if r := ended.Run; r.FirstSeq != 2 || r.Session != "S1" {
		t.Errorf("%+v", r)
	}
}

// What a run is not, or may not be, refuses the batch as a whole.
func testRunsRefused(t *testing.T, rig Rig) {
	o, other := acquire(t, rig.Store, "k"), acquire(t, rig.Store, "k2")
	rig.AddSession("S0", other.id)
	o.commit(instance.Batch{Runs: []instance.RunEdit{newRun(o, "R1", "S1", true), newRun(o, "R2", "S1", false)}})
	o.commit(instance.Batch{Runs: []instance.RunEdit{status(rig, "R2", agent.Queued, agent.RunFailed)}})
	was, se := rig.run(t, "R1"), must(rig.Session("S1"))(t)
	refuse := func(o *owner, kind agent.Kind, edits ...instance.RunEdit) {
		t.Helper()
		ok := newRun(o, "R9", "S9", true)
		o.refuseKind(instance.Batch{
			Runs: append([]instance.RunEdit{ok}, edits...), State: []agent.StateEdit{set("a", "bad")},
			Events: []instance.Append{ofRun(instance.SessionLog("S9"), "R9", 1), emit("l", 1)},
		}, kind)
		same(t, was, rig.run(t, "R1"))
		same(t, se, must(rig.Session("S1"))(t))
		if r, err := rig.Run("R9"); agent.KindOf(err) != agent.NotFound || err == nil {
			t.Fatalf("a refused batch left %+v, %v", r, err)
		}
		if s, err := rig.Session("S9"); agent.KindOf(err) != agent.NotFound || err == nil {
			t.Fatalf("a refused batch left %+v, %v", s, err)
		}
		same(t, []string(nil), o.state(agent.StateRange{}))
	}
	for _, from := range []agent.RunStatus{agent.Running, agent.Waiting, agent.Paused, agent.Uncertain} {
		refuse(o, agent.Conflict, status(rig, "R1", from, agent.Running))
	}
	refuse(o, agent.Conflict, status(rig, "R1", agent.Queued, agent.Running), status(rig, "R1", agent.Queued, agent.Waiting))
	refuse(o, agent.Conflict, status(rig, "R2", agent.Running, agent.Completed)) // it has ended
	refuse(o, agent.NotFound, status(rig, "none", agent.Running, agent.Completed))
	refuse(o, agent.Exists, newRun(o, "R1", "S1", false))
	refuse(o, agent.Exists, newRun(o, "R3", "S1", true))
	refuse(o, agent.NotFound, newRun(o, "R3", "none", false))
	refuse(o, agent.Conflict, newRun(o, "R3", "S0", false)) // a session of another instance
	refuse(other, agent.Conflict, status(rig, "R1", agent.Queued, agent.Running))
	for spoil, kind := range map[string]agent.Kind{
		"app": agent.Invalid, "id": agent.Invalid, "session": agent.Invalid, "ended": agent.Invalid, "key": agent.Invalid, "other": agent.Invalid,
		"session app": agent.Invalid, "agent": agent.Conflict, "session agent": agent.Conflict,
	} {
		e := newRun(o, "R3", "S3", true)
		switch spoil {
		case "app":
			e.Run.App = "other"
		case "id":
			e.Run.ID = "a/b"
		case "session":
			e.Run.Session, e.Session.ID = "", ""
		case "ended":
			e.Run.Status = agent.Completed
		case "key":
			e.Session.Key = "k2"
		case "other":
			e.Session.ID = "S4"
		case "session app":
			e.Session.App = "other"
		case "agent":
			e.Run.Agent = "nobody"
		case "session agent":
			e.Session.Agent = "nobody"
		}
		refuse(o, kind, e)
	}
	made := status(rig, "R1", agent.Queued, agent.Running)
	made.Session = newRun(o, "R1", "S1", true).Session
	refuse(o, agent.Invalid, made)
	refuse(o, agent.Invalid, status(rig, "R1", agent.Queued, agent.UnknownStatus))
	refuse(o, agent.Invalid, status(rig, "R2", agent.RunFailed, agent.Running))
}

// A batch that is sent twice makes its runs once, and one that is called off makes none.
func testRunsTwice(t *testing.T, rig Rig) {
	o := acquire(t, rig.Store, "k")
	log := instance.SessionLog("S1")
	b := instance.Batch{
		ID: instance.NewBatchID(), Runs: []instance.RunEdit{newRun(o, "R1", "S1", true)}, Events: []instance.Append{ofRun(log, "R1", 1)},
	}
	first, err := o.s.Commit(ctx, o.id, o.f, &b)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []instance.Fence{o.f, first.Fence} {
		res, err := o.s.Commit(ctx, o.id, f, &b)
		if err != nil {
			t.Fatal(err)
		}
		same(t, first, res)
	}
	same(t, []string{`1 "1"`}, o.log(log))
	o.f = first.Fence
	o.commit(instance.Batch{Runs: []instance.RunEdit{status(rig, "R1", agent.Queued, agent.Running)}})
	lost := instance.Batch{ID: instance.NewBatchID(), Runs: []instance.RunEdit{status(rig, "R1", agent.Running, agent.Completed)}}
	out, f, err := o.s.Resolve(ctx, o.id, o.f, lost.ID)
	if err != nil || out != instance.NotLanded {
		t.Fatal(out, err)
	}
	_, err = o.s.Commit(ctx, o.id, o.f, &lost)
	wantIs(t, err, instance.ErrFenced)
	if s := rig.run(t, "R1").Status; s != agent.Running {
		t.Errorf("the run is %s", s)
	}
	o.f = f
	o.commit(instance.Batch{Runs: lost.Runs})
}

// questions returns n of them, whose arguments are size bytes each.
func questions(n, size int) (out []agent.Approval) {
	for i := range n {
		out = append(out, agent.Approval{
			ID: agent.NewApprovalID("R", uint64(i+1)), App: app, Call: uint64(i + 1), Created: at(1), Expires: at(2),
			Calls: []agent.ApprovalCall{{Tool: "a.b", Args: json.RawMessage(`"` + strings.Repeat("x", size-2) + `"`)}},
		})
	}
	return out
}

// sameAsks compares what is too long to be compared byte by byte.
func sameAsks(t *testing.T, want, got []agent.Approval) {
	t.Helper()
	if !reflect.DeepEqual(want, got) {
		t.Errorf("%d questions are not the %d that were asked", len(got), len(want))
	}
}

// A run's questions are kept while it has not ended: as many as it may have, and longer than their arguments are shown.
func testAsks(t *testing.T, rig Rig) {
	o := acquire(t, rig.Store, "k")
	made := newRun(o, "R1", "S1", true)
	made.Run.Asks = questions(1, 20)
	o.commit(instance.Batch{Runs: []instance.RunEdit{made}})
	sameAsks(t, made.Run.Asks, rig.run(t, "R1").Asks)
	many := questions(agent.MaxAsks, agent.MaxShownArgs+4<<10)
	from := agent.Queued
	for _, asks := range [][]agent.Approval{many, many[1:], nil, many[:2]} {
		e := status(rig, "R1", from, agent.Waiting)
		e.Run.Asks, from = asks, agent.Waiting
		o.commit(instance.Batch{Runs: []instance.RunEdit{e}, Journal: []instance.Entry{{Run: "R1", Data: make([]byte, instance.MaxData)}}})
		sameAsks(t, asks, rig.run(t, "R1").Asks)
	}
	e := status(rig, "R1", agent.Waiting, agent.Waiting)
	e.Run.Asks = questions(agent.MaxAsks+1, 20)
	_, err := o.s.Commit(ctx, o.id, o.f, &instance.Batch{ID: instance.NewBatchID(), Runs: []instance.RunEdit{e}})
	wantKind(t, err, agent.Invalid)
	e = status(rig, "R1", agent.Waiting, agent.RunCancelled)
	e.Run.Asks = many
	o.commit(instance.Batch{Runs: []instance.RunEdit{e}})
	sameAsks(t, nil, rig.run(t, "R1").Asks)
}

// Events and what runs take and return may be much larger than a commit.
func testLarge(t *testing.T, rig Rig) {
	o := acquire(t, rig.Store, "k")
	text := func(n int) json.RawMessage {
		return append(append([]byte{'"'}, bytes.Repeat([]byte("x"), n-2)...), '"')
	}
	made := newRun(o, "R1", "S1", true)
	made.Run.Input.Body = text(3 << 20)
	log := instance.SessionLog("S1")
	b := instance.Batch{Runs: []instance.RunEdit{made}}
	sizes := []int{instance.MaxInline, instance.MaxInline + 1, instance.MaxData + 1, 5 << 20, 300, 8 << 10}
	for i, n := range sizes {
		l := log
		if i%2 == 1 {
			l = instance.OwnLog("l")
		}
		b.Events = append(b.Events, instance.Append{Log: l, Event: agent.Event{Kind: agent.EventEmit, Data: text(n)}})
	}
	o.commit(b)
	evs := append(must(o.s.ReadLog(ctx, o.id, log, 0, 0))(t), must(o.s.ReadLog(ctx, o.id, instance.OwnLog("l"), 0, 0))(t)...)
	if len(evs) != len(sizes) {
		t.Fatalf("%d events", len(evs))
	}
	for i, at := range []int{0, 2, 4, 1, 3, 5} {
		if !bytes.Equal(evs[i].Data, text(sizes[at])) {
			t.Errorf("an event of %d bytes came back with %d", sizes[at], len(evs[i].Data))
		}
	}
	ended := status(rig, "R1", agent.Queued, agent.Completed)
	ended.Run.Output = &agent.Payload{Type: agent.TypeText, Body: text(4 << 20)}
	o.commit(instance.Batch{Runs: []instance.RunEdit{ended}, Events: []instance.Append{ofRun(log, "R1", "completed")}})
	r := rig.run(t, "R1")
	if !bytes.Equal(r.Input.Body, text(3<<20)) || r.Output == nil || !bytes.Equal(r.Output.Body, text(4<<20)) {
		t.Errorf("a run's input and output came back with other bytes")
	}
}

func testJournals(t *testing.T, rig Rig) {
	o, other := acquire(t, rig.Store, "k"), acquire(t, rig.Store, "k2")
	list := func(after agent.RunID, limit int) []agent.RunID {
		t.Helper()
		return must(o.s.Journals(ctx, o.id, after, limit))(t)
	}
	same(t, []agent.RunID(nil), list("", 0))
	want := []agent.RunID{}
	b := instance.Batch{}
	for i := range 10 {
		id := agent.RunID(fmt.Sprintf("R%02d", i))
		want = append(want, id)
		for range 1 + i*10 {
			b.Journal = append(b.Journal, instance.Entry{Run: id})
		}
	}
	o.commit(b)
	o.commit(instance.Batch{Events: []instance.Append{emit("l", 1)}})
	other.commit(instance.Batch{Journal: []instance.Entry{{Run: "R0"}}})
	same(t, want, list("", 0))
	same(t, want[:3], list("", 3))
	same(t, want[3:5], list("R02", 2))
	same(t, want[3:], list("R020", 0))
	same(t, []agent.RunID(nil), list("R09", 0))
	for _, l := range want[:4] {
		if err := o.s.Trim(ctx, o.id, o.f, instance.Journal(l), 1<<62); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.s.Trim(ctx, o.id, o.f, instance.Journal("R04"), 3); err != nil {
		t.Fatal(err)
	}
	same(t, want[4:], list("", 0))
	_, err := o.s.Journals(ctx, name("none"), "", 0)
	wantIs(t, err, instance.ErrGone)
	_, err = o.s.Journals(ctx, o.id, "", -1)
	wantKind(t, err, agent.Invalid)
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
