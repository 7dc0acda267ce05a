package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/faultkv"
	"github.com/skep-dev/skep/store/instance"
	"github.com/skep-dev/skep/store/kv"
	"github.com/skep-dev/skep/store/memkv"
)

// whole returns what is seen of an instance.
func whole(t *testing.T, s *store.Store, id instance.ID) []any {
	t.Helper()
	ctx, in := t.Context(), s.Instances()
	state, _, err := in.Scan(ctx, id, agent.StateRange{})
	events, err2 := in.ReadLog(ctx, id, instance.OwnLog("l"), 0, 0)
	entries, err3 := in.ReadJournal(ctx, id, "R", 0, 0)
	alarms, err4 := in.Alarms(ctx, id, "", 0)
	due, err5 := in.Due(ctx, time.Now(), "", 0)
	out, _, err6 := in.Outgoing(ctx, "", 0)
	runs, _, err7 := s.Runs(ctx, app, store.RunFilter{}, agent.Page{})
	live, err8 := s.Unfinished(ctx)
	sessions, _, err9 := s.Sessions(ctx, app, "a", agent.Page{})
	if err := errors.Join(err, err2, err3, err4, err5, err6, err7, err8, err9); err != nil {
		t.Fatal(err)
	}
	return []any{state, events, entries, alarms, due.Alarms, out, runs, live, sessions}
}

// turnOf has a part of each kind.
func turnOf(id instance.ID, n int) *instance.Batch {
	return &instance.Batch{
		ID: instance.NewBatchID(), State: []agent.StateEdit{set("n", fmt.Sprint(n))},
		Events:  []instance.Append{{Log: instance.OwnLog("l"), Event: events(1)[0]}},
		Journal: []instance.Entry{{Run: "R", Data: fmt.Append(nil, n)}},
		Alarms:  []instance.AlarmEdit{{Alarm: instance.Alarm{Name: fmt.Sprint(n), At: epoch}}},
		Outbox:  []instance.Send{{To: id, Data: fmt.Append(nil, n)}},
	}
}

func turnRun(id instance.ID, n int) agent.RunID {
	return agent.RunID(fmt.Sprintf("R-%s-%06d", id.Key, n))
}

// withRun adds a run to the nth turn, in a session that the first one makes, and ends the run of the turn before.
func withRun(b *instance.Batch, id instance.ID, n int) *instance.Batch {
	se := agent.SessionID("S-" + id.Key)
	made := instance.RunEdit{Run: agent.Run{App: app, ID: turnRun(id, n), Session: se}}
	if n == 1 {
		made.Session = &agent.Session{App: app, ID: se, Key: id.Key}
	} else {
		b.Runs = append(b.Runs, instance.RunEdit{From: agent.Queued, Run: agent.Run{App: app, ID: turnRun(id, n-1), Status: agent.Completed}})
	}
	b.Runs = append(b.Runs, made)
	b.Events = append(b.Events, instance.Append{
		Log: instance.SessionLog(se), Event: agent.Event{Kind: agent.EventRunQueued, Run: made.Run.ID, Data: fmt.Append(nil, n)},
	})
	return b
}

// A commit whose every operation on the database fails in every way is there whole or not at all, the error says which or that it
// is unknown, and Resolve tells the truth, if need be after a restart.
func TestInstanceCommitFaults(t *testing.T) {
	for _, kind := range []faultkv.Kind{faultkv.View, faultkv.Get, faultkv.Scan, faultkv.Apply} {
		for _, f := range []faultkv.Fault{{}, {Took: true}, {Crash: true}, {Took: true, Crash: true}} {
			if f.Took && kind != faultkv.Apply {
				continue
			}
			f.Err = faultkv.ErrFault
			for n := 1; ; n++ {
				if n > 100 {
					t.Fatal("the commit never gets through")
				}
				if done := instanceFault(t, kind, n, f); done {
					break
				}
			}
		}
	}
}

// instanceFault makes the nth operation of that kind in a commit fail, and reports whether there was none.
func instanceFault(t *testing.T, kind faultkv.Kind, n int, f faultkv.Fault) (done bool) {
	t.Helper()
	ctx, dir, db := t.Context(), t.TempDir(), memkv.New()
	seen := -1 // counts while a commit is under way
	fault := faultkv.New(db, func(o faultkv.Op) faultkv.Fault {
		if seen < 0 || o.Kind != kind {
			return faultkv.Fault{}
		}
		if seen++; seen == n {
			return f
		}
		return faultkv.Fault{}
	})
	s := openStore(t, fault, dir, nil)
	in := s.Instances()
	id := instance.ID{App: app, Agent: addAgent(t, s, "a").ID, Key: "k"}
	at := must(in.Acquire(ctx, id, instance.ID{}))(t).Fence
	at = must(in.Commit(ctx, id, at, withRun(turnOf(id, 1), id, 1)))(t).Fence
	before := whole(t, s, id)
	b := withRun(turnOf(id, 2), id, 2)
	seen = 0
	res, err := in.Commit(ctx, id, at, b)
	reached := seen >= n
	seen = -1
	if err != nil && agent.KindOf(err) != agent.Unavailable {
		t.Fatalf("%d/%d %+v: %v", kind, n, f, err)
	}
	if errors.Is(err, instance.ErrUnknown) { // only a restart helps
		if _, _, err := in.Resolve(ctx, id, at, b.ID); agent.KindOf(err) != agent.Unavailable || errors.Is(err, instance.ErrUnknown) {
			t.Fatalf("Resolve says %v", err)
		}
	}
	if f.Crash && reached {
		s.Close()
		s = openStore(t, db, dir, nil)
		in = s.Instances()
	}
	if err == nil {
		if out, now, rerr := in.Resolve(ctx, id, at, b.ID); rerr != nil || out != instance.Landed || now != res.Fence {
			t.Fatalf("%d/%d %+v: %v %v %v", kind, n, f, out, now, rerr)
		}
	} else {
		out, now, rerr := in.Resolve(ctx, id, at, b.ID)
		if rerr != nil {
			t.Fatal(rerr)
		}
		if !errors.Is(err, instance.ErrUnknown) && out != instance.NotLanded {
			t.Fatalf("%d/%d %+v: %v, but it %s", kind, n, f, err, out)
		}
		if out == instance.NotLanded {
			if d := cmp.Diff(before, whole(t, s, id), cmpopts.EquateEmpty()); d != "" {
				t.Fatalf("%d/%d %+v left something:\n%s", kind, n, f, d)
			}
			if _, err := in.Commit(ctx, id, at, b); !errors.Is(err, instance.ErrFenced) {
				t.Fatalf("it landed late: %v", err)
			}
			must(in.Commit(ctx, id, now, b))(t)
		}
	}
	for i, part := range whole(t, s, id) {
		if want, got := 2, len(fmt.Sprintf("%v", part)); i > 0 && got == want {
			t.Fatalf("part %d is empty", i)
		}
	}
	if err := s.Verify(ctx); err != nil {
		t.Fatal(err)
	}
	return !reached
}

// A deletion that is stopped after any of its commits is finished by the next Acquire or by DropInstances, and is sound in between.
func TestInstanceDropStopped(t *testing.T) {
	for finish := range 2 {
		ctx, db, dir, fail := t.Context(), memkv.New(), t.TempDir(), 0
		fault := faultkv.New(db, func(o faultkv.Op) faultkv.Fault {
			if o.Kind == faultkv.Apply && fail > 0 {
				if fail--; fail == 0 {
					return faultkv.Fault{Err: kv.ErrFull}
				}
			}
			return faultkv.Fault{}
		})
		s := openStore(t, fault, dir, nil)
		in := s.Instances()
		id := instance.ID{App: app, Agent: addAgent(t, s, "a").ID, Key: "k"}
		at := must(in.Acquire(ctx, id, instance.ID{}))(t).Fence
		for range 3 {
			b := turnOf(id, 1)
			for i := range 400 {
				b.Events = append(b.Events, b.Events[0])
				b.Alarms = append(b.Alarms, instance.AlarmEdit{Alarm: instance.Alarm{Name: fmt.Sprint("x", i), At: epoch}})
				if len(b.Events)+len(b.Alarms) > 490 {
					break
				}
			}
			at = must(in.Commit(ctx, id, at, b))(t).Fence
		}
		fail = 2
		if err := in.Delete(ctx, id, at); agent.KindOf(err) != agent.Unavailable {
			t.Fatal(err)
		}
		for stops := 0; ; stops++ {
			if err := s.Verify(ctx); err != nil {
				t.Fatal(err)
			}
			if _, err := in.Info(ctx, id); !errors.Is(err, instance.ErrGone) {
				t.Fatal(err)
			}
			if d := must(in.Due(ctx, time.Now(), "", 0))(t); len(d.Alarms) > 0 {
				t.Fatal(d)
			}
			fail = 2
			var err error
			if finish == 0 {
				err = s.DropInstances(ctx)
			} else {
				_, err = in.Acquire(ctx, id, instance.ID{})
			}
			if err == nil {
				if stops < 2 {
					t.Errorf("%d stops are too few to tell anything", stops)
				}
				break
			}
		}
		if err := s.Verify(ctx); err != nil {
			t.Fatal(err)
		}
		for _, prefix := range []string{"inst-part/", "inst-due/", "inst-out/", "log/instance/", "log/journal/", "state/"} {
			if ks := keys(t, db, prefix); len(ks) > 0 {
				t.Errorf("%s is left", ks[0].Key)
			}
		}
	}
}

// Walks begin at a mark that follows what was cleared, and that what is set in the past moves back.
func TestInstanceMarks(t *testing.T) {
	ctx, db := t.Context(), memkv.New()
	from := ""
	fault := faultkv.New(db, func(o faultkv.Op) faultkv.Fault {
		if o.Kind == faultkv.Scan && (strings.HasPrefix(string(o.Key), "inst-due/") || strings.HasPrefix(string(o.Key), "inst-out/")) {
			from = string(o.Key)
		}
		return faultkv.Fault{}
	})
	s := openStore(t, fault, t.TempDir(), nil)
	in := s.Instances()
	id := instance.ID{App: app, Agent: addAgent(t, s, "a").ID, Key: "k"}
	at := must(in.Acquire(ctx, id, instance.ID{}))(t).Fence
	commit := func(b instance.Batch) instance.Result {
		t.Helper()
		b.ID = instance.NewBatchID()
		res := must(in.Commit(ctx, id, at, &b))(t)
		at = res.Fence
		return res
	}
	alarm := func(name string, at time.Time) instance.AlarmEdit {
		return instance.AlarmEdit{Alarm: instance.Alarm{Name: name, At: at}}
	}
	begins := func(want time.Time) {
		t.Helper()
		must(in.Due(ctx, epoch.Add(48*time.Hour), "", 0))(t) // moves the mark
		must(in.Due(ctx, epoch.Add(48*time.Hour), "", 0))(t)
		if key := fmt.Sprintf("inst-due/%016x/", want.UnixMilli()); from != key {
			t.Errorf("the walk begins at %s, not at %s", from, key)
		}
	}
	commit(instance.Batch{Alarms: []instance.AlarmEdit{alarm("a", epoch), alarm("b", epoch.Add(time.Hour)), alarm("c", epoch.Add(72*time.Hour))}})
	begins(epoch)
	gone := alarm("a", epoch)
	gone.Clear = true
	commit(instance.Batch{Alarms: []instance.AlarmEdit{gone}})
	begins(epoch.Add(time.Hour))
	commit(instance.Batch{Alarms: []instance.AlarmEdit{alarm("d", epoch.Add(-time.Hour))}})
	begins(epoch.Add(-time.Hour))
	gone.Name = "b"
	commit(instance.Batch{Alarms: []instance.AlarmEdit{gone, alarm("d", epoch.Add(60*time.Hour))}})
	begins(epoch.Add(60 * time.Hour))

	var sent []instance.Mark
	for range 4 {
		b := instance.Batch{}
		for range 300 {
			b.Outbox = append(b.Outbox, instance.Send{To: id})
		}
		for _, seq := range commit(b).Outbox {
			sent = append(sent, instance.Mark{Peer: id, Seq: seq})
		}
	}
	for range 3 {
		commit(instance.Batch{Sent: sent[:400]})
		sent = sent[400:]
	}
	for range 2 {
		if ms, _, err := in.Outgoing(ctx, "", 0); err != nil || len(ms) > 0 {
			t.Fatal(len(ms), err)
		}
	}
	if want := fmt.Sprintf("inst-out/%016x", 1201); from != want {
		t.Errorf("the walk begins at %s, not at %s", from, want)
	}
	if err := s.Verify(ctx); err != nil {
		t.Error(err)
	}
}

// A commit that waits for its turn when its caller leaves did not happen; one that has begun is answered.
func TestInstanceCommitLeaves(t *testing.T) {
	hold, entered := make(chan struct{}), make(chan struct{}, 100)
	on := false
	s := openStore(t, faultkv.New(memkv.New(), func(o faultkv.Op) faultkv.Fault {
		if on && o.Kind == faultkv.Apply {
			entered <- struct{}{}
			return faultkv.Fault{Before: hold}
		}
		return faultkv.Fault{}
	}), t.TempDir(), nil)
	in := s.Instances()
	a := addAgent(t, s, "a").ID
	one, two := instance.ID{App: app, Agent: a, Key: "1"}, instance.ID{App: app, Agent: a, Key: "2"}
	f1 := must(in.Acquire(t.Context(), one, instance.ID{}))(t).Fence
	f2 := must(in.Acquire(t.Context(), two, instance.ID{}))(t).Fence
	on = true
	begun, leave := context.WithCancel(t.Context())
	first, second := make(chan error), make(chan error)
	go func() { _, err := in.Commit(begun, one, f1, turnOf(one, 1)); first <- err }()
	<-entered
	b2 := turnOf(two, 1)
	go func() { _, err := in.Commit(begun, two, f2, b2); second <- err }()
	waitFor(t, func() bool { return store.Waiting(s) == 1 })
	leave()
	if err := <-second; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(hold)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if out, _, err := in.Resolve(t.Context(), two, f2, b2.ID); err != nil || out != instance.NotLanded {
		t.Error(out, err)
	}
}
