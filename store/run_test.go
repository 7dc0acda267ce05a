package store_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/faultkv"
	"github.com/skep-dev/skep/store/memkv"
)

func TestRuns(t *testing.T) {
	onBoth(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		addAgent(t, s, "a")
		addAgent(t, s, "b")
		// One commit makes session, run and events.
		run, evs, _, err := s.CreateRun(ctx, store.NewRun{
			Run:     agent.Run{App: app, Agent: "a", Function: "f", Input: agent.JSON([]byte(`{ "exact":  "bytes" }`)), Plugin: agent.DigestOf(nil)},
			Session: &agent.Session{App: app, Agent: "a", Title: "t"},
			Events:  events(2),
		}, store.Once{})
		if err != nil {
			t.Fatal(err)
		}
		if run.Status != agent.Queued || len(evs) != 2 || evs[1].Seq != 2 || evs[1].Run != run.ID {
			t.Fatalf("run is %+v, events are %+v", run, evs)
		}
		if got, err := s.Run(ctx, app, run.ID); err != nil || !cmp.Equal(run, got) {
			t.Errorf("(-created +read), %v:\n%s", err, cmp.Diff(run, got))
		}
		if se, err := s.Session(ctx, app, run.Session); err != nil || se.LastSeq != 2 || se.Title != "t" {
			t.Errorf("session is %+v, %v", se, err)
		}

		out := agent.Payload{Type: agent.TypeBytes, Body: []byte{0, 1, 255}}
		ended, evs, err := s.UpdateRun(ctx, app, run.ID, events(1), func(r *agent.Run) error {
			r.Status, r.Output, r.Started, r.Ended, r.Agent = agent.Completed, &out, epoch, epoch, "other"
			return nil
		})
		if err != nil || ended.Agent != "a" || len(evs) != 1 || evs[0].Seq != 3 {
			t.Fatalf("run is %+v, events are %+v, %v", ended, evs, err)
		}
		if got, err := s.Run(ctx, app, run.ID); err != nil || !cmp.Equal(ended, got) {
			t.Errorf("(-updated +read), %v:\n%s", err, cmp.Diff(ended, got))
		}
		_, _, err = s.UpdateRun(ctx, app, run.ID, events(1), func(*agent.Run) error { return nil })
		wantKind(t, err, agent.Conflict)
		if _, last, err := s.Bounds(ctx, store.SessionLog(app, run.Session)); err != nil || last != 3 {
			t.Errorf("a refused update left %d events, %v", last, err)
		}
		_, _, err = s.UpdateRun(ctx, app, "none", nil, func(*agent.Run) error { return nil })
		wantKind(t, err, agent.NotFound)

		seA, seB := addSession(t, s, "a"), addSession(t, s, "b")
		r2, r3 := addRun(t, s, seA), addRun(t, s, seB)
		for name, c := range map[string]struct {
			f    store.RunFilter
			want []agent.RunID
		}{
			"all":             {store.RunFilter{}, []agent.RunID{r3.ID, r2.ID, run.ID}},
			"agent":           {store.RunFilter{Agent: "a"}, []agent.RunID{r2.ID, run.ID}},
			"session":         {store.RunFilter{Session: seB.ID}, []agent.RunID{r3.ID}},
			"queued":          {store.RunFilter{Status: agent.Queued}, []agent.RunID{r3.ID, r2.ID}},
			"queued of agent": {store.RunFilter{Status: agent.Queued, Agent: "a"}, []agent.RunID{r2.ID}},
			"completed":       {store.RunFilter{Status: agent.Completed}, []agent.RunID{run.ID}},
			"none":            {store.RunFilter{Session: seA.ID, Agent: "b"}, nil},
			"odd":             {store.RunFilter{Agent: "a/b"}, nil},
		} {
			list, next, err := s.Runs(ctx, app, c.f, agent.Page{})
			var got []agent.RunID
			for _, r := range list {
				got = append(got, r.ID)
			}
			if diff := cmp.Diff(c.want, got); err != nil || next != "" || diff != "" {
				t.Errorf("%s: %q, %v (-want +got):\n%s", name, next, err, diff)
			}
		}
		live, err := s.Unfinished(ctx)
		if diff := cmp.Diff([]agent.Run{r2, r3}, live); err != nil || diff != "" {
			t.Errorf("unfinished: %v (-want +got):\n%s", err, diff)
		}
		if err := s.Verify(ctx); err != nil {
			t.Error(err)
		}
	})
}

// A run that waits costs a start nothing, is found by its status, and comes back when it goes on.
func TestParkedRuns(t *testing.T) {
	ctx, db, seen := t.Context(), memkv.New(), 0
	s := openStore(t, faultkv.New(db, func(o faultkv.Op) faultkv.Fault {
		if strings.HasPrefix(string(o.Key), "rec/runs/") {
			seen++
		}
		return faultkv.Fault{}
	}), t.TempDir(), nil)
	addAgent(t, s, "a")
	se := addSession(t, s, "a")
	var ids []agent.RunID
	for range 6 {
		ids = append(ids, addRun(t, s, se).ID)
	}
	to := func(id agent.RunID, status agent.RunStatus) {
		t.Helper()
		if _, _, err := s.UpdateRun(ctx, app, id, nil, func(r *agent.Run) error { r.Status = status; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	listed := func(status agent.RunStatus, reads int, want ...agent.RunID) {
		t.Helper()
		var got []agent.RunID
		seen = 0
		var list []agent.Run
		var err error
		if status == agent.UnknownStatus {
			list, err = s.Unfinished(ctx)
		} else {
			list, _, err = s.Runs(ctx, app, store.RunFilter{Status: status}, agent.Page{})
		}
		for _, r := range list {
			got = append(got, r.ID)
		}
		if d := cmp.Diff(want, got); err != nil || d != "" || seen != reads {
			t.Errorf("%s: %v, %d records were read, want %d (-want +got):\n%s", status, err, seen, reads, d)
		}
		if err := s.Verify(ctx); err != nil {
			t.Error(err)
		}
	}
	to(ids[0], agent.Running)
	to(ids[1], agent.Waiting)
	to(ids[2], agent.Paused)
	to(ids[3], agent.Uncertain)
	to(ids[4], agent.Completed)
	listed(agent.UnknownStatus, 2, ids[0], ids[5])
	listed(agent.Waiting, 3, ids[1])
	listed(agent.Uncertain, 3, ids[3])
	listed(agent.Queued, 2, ids[5])
	to(ids[1], agent.Paused)
	to(ids[2], agent.Queued)
	to(ids[3], agent.RunFailed)
	listed(agent.UnknownStatus, 3, ids[0], ids[2], ids[5])
	listed(agent.Paused, 1, ids[1])
	listed(agent.Waiting, 1)
	to(ids[1], agent.RunCancelled)
	if ks := keys(t, db, "by/run-parked/"); len(ks) > 0 {
		t.Errorf("%s is left", ks[0].Key)
	}
}

func TestRunIsRefused(t *testing.T) {
	s := memStore(t)
	addAgent(t, s, "a")
	se := addSession(t, s, "a")
	create := func(n store.NewRun) error {
		_, _, _, err := s.CreateRun(t.Context(), n, store.Once{})
		return err
	}
	run := agent.Run{App: app, Agent: "a", Session: se.ID}
	other := run
	other.Session = agent.NewSessionID(epoch)
	wantKind(t, create(store.NewRun{Run: other}), agent.NotFound)
	other = run
	other.Agent = "b"
	wantKind(t, create(store.NewRun{Run: other}), agent.NotFound)
	other = run
	other.Status = agent.Completed
	wantKind(t, create(store.NewRun{Run: other}), agent.Invalid)
	wantKind(t, create(store.NewRun{Run: run, Session: &agent.Session{App: "elsewhere", Agent: "a"}}), agent.Invalid)
	// Nothing of a refused run is left behind.
	if runs, _, err := s.Runs(t.Context(), app, store.RunFilter{}, agent.Page{}); err != nil || len(runs) != 0 {
		t.Errorf("runs are %v, %v", runs, err)
	}
	if got, err := s.Session(t.Context(), app, se.ID); err != nil || got.LastSeq != 0 {
		t.Errorf("session is %+v, %v", got, err)
	}
}

// Bodies of every size come back byte for byte, at and past the size where they move to a blob.
func TestBodies(t *testing.T) {
	onBoth(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		addAgent(t, s, "a")
		for _, size := range []int{0, 1, 96 << 10, 96<<10 + 1, 300 << 10, 3 << 20} {
			body := bytes.Repeat([]byte{'x'}, size)
			data := json.RawMessage(`"` + string(body) + `"`)
			run, _, _, err := s.CreateRun(ctx, store.NewRun{
				Run:     agent.Run{App: app, Agent: "a", Input: agent.Payload{Type: agent.TypeText, Body: body}},
				Session: &agent.Session{App: app, Agent: "a"},
				Events:  []agent.Event{{Kind: agent.EventMessage, Data: data}},
			}, store.Once{})
			if err != nil {
				t.Fatal(size, err)
			}
			_, _, err = s.UpdateRun(ctx, app, run.ID, nil, func(r *agent.Run) error {
				r.Output = &agent.Payload{Type: agent.TypeBytes, Body: body}
				return nil
			})
			if err != nil {
				t.Fatal(size, err)
			}
			got, err := s.Run(ctx, app, run.ID)
			if err != nil || !bytes.Equal(got.Input.Body, body) || !bytes.Equal(got.Output.Body, body) || got.Input.Type != agent.TypeText {
				t.Errorf("a body of %d bytes: input has %d, output has %d, %v", size, len(got.Input.Body), len(got.Output.Body), err)
			}
			evs, err := s.Read(ctx, store.SessionLog(app, run.Session), 0, 0)
			if err != nil || len(evs) != 1 || !bytes.Equal(evs[0].Data, data) {
				t.Errorf("event data of %d bytes did not come back: %v", size, err)
			}
		}
		if err := s.Verify(ctx); err != nil {
			t.Error(err)
		}
	})
}

func TestOnce(t *testing.T) {
	clk := &clock{epoch}
	dir := t.TempDir()
	s := openStore(t, openBadger(t, dir), dir, &store.Options{Now: clk.now})
	ctx := t.Context()
	addAgent(t, s, "a")
	once := store.Once{Scope: "runs", Key: "k", Request: agent.DigestOf([]byte("request"))}
	create := func(o store.Once) (agent.Run, []agent.Event, bool, error) {
		return s.CreateRun(ctx, store.NewRun{
			Run: agent.Run{App: app, Agent: "a"}, Session: &agent.Session{App: app, Agent: "a"}, Events: events(1),
		}, o)
	}
	first, _, replayed, err := create(once)
	if err != nil || replayed {
		t.Fatal(replayed, err)
	}
	again, evs, replayed, err := create(once)
	if err != nil || !replayed || evs != nil || again.ID != first.ID || again.Session != first.Session {
		t.Errorf("again: %+v, %v, replayed %v, %v", again, evs, replayed, err)
	}
	other := once
	other.Request = agent.DigestOf([]byte("other"))
	_, _, _, err = create(other)
	wantKind(t, err, agent.Conflict)
	_, _, err = s.CreateSession(ctx, agent.Session{App: app, Agent: "a"}, once)
	wantKind(t, err, agent.Conflict)
	other = once
	other.Scope = "elsewhere"
	if _, _, replayed, err := create(other); err != nil || replayed {
		t.Errorf("the same key of another scope: replayed %v, %v", replayed, err)
	}

	// A key is kept 24 hours.
	clk.t = epoch.Add(store.OnceFor - 1e9)
	if _, _, replayed, err := create(once); err != nil || !replayed {
		t.Errorf("just before the end: replayed %v, %v", replayed, err)
	}
	clk.t = epoch.Add(store.OnceFor)
	second, _, replayed, err := create(once)
	if err != nil || replayed || second.ID == first.ID {
		t.Errorf("after the end: %v, replayed %v, %v", second.ID, replayed, err)
	}
	if err := s.Verify(ctx); err != nil {
		t.Error(err)
	}

	// What it made and is deleted is not made again.
	once.Scope = "agents"
	if _, _, err := s.CreateAgent(ctx, agent.Agent{App: app, Name: "b"}, once); err != nil {
		t.Fatal(err)
	}
	if _, replayed, err := s.CreateAgent(ctx, agent.Agent{App: app, Name: "b"}, once); err != nil || !replayed {
		t.Error(replayed, err)
	}
	if err := s.DeleteAgents(ctx, app, "b"); err != nil {
		t.Fatal(err)
	}
	_, _, err = s.CreateAgent(ctx, agent.Agent{App: app, Name: "b"}, once)
	wantKind(t, err, agent.Conflict)
}

// Keys whose time is over go away as new ones come.
func TestOnceIsForgotten(t *testing.T) {
	clk := &clock{epoch}
	db := memkv.New()
	s := openStore(t, db, t.TempDir(), &store.Options{Now: clk.now})
	addAgent(t, s, "a")
	add := func(key string) {
		t.Helper()
		_, _, err := s.CreateSession(t.Context(), agent.Session{App: app, Agent: "a"}, store.Once{Scope: "s", Key: key})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 40 {
		add(string(rune('A' + i)))
	}
	clk.t = epoch.Add(2 * store.OnceFor)
	for i := range 4 {
		add("new" + string(rune('A'+i)))
	}
	if n := len(keys(t, db, "once")); n != 8 {
		t.Errorf("%d records are left, want those of the 4 new keys", n)
	}
	if err := s.Verify(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestLog(t *testing.T) {
	onBoth(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		addAgent(t, s, "a")
		log := store.SessionLog(app, addSession(t, s, "a").ID)
		if first, last, err := s.Bounds(ctx, log); err != nil || first != 1 || last != 0 {
			t.Errorf("an empty log goes from %d to %d, %v", first, last, err)
		}
		var want []agent.Event
		for _, n := range []int{1, 0, 3, 2} {
			got, err := s.Append(ctx, log, events(n))
			if err != nil || len(got) != n {
				t.Fatal(got, err)
			}
			want = append(want, got...)
		}
		for _, c := range []struct {
			after     int64
			limit     int
			from, end int
		}{{0, 0, 0, 6}, {0, 2, 0, 2}, {4, 100, 4, 6}, {5, 1, 5, 6}, {6, 10, 6, 6}, {600, 10, 6, 6}} {
			got, err := s.Read(ctx, log, c.after, c.limit)
			if diff := cmp.Diff(want[c.from:c.end], got, cmpopts.EquateEmpty()); err != nil || diff != "" {
				t.Errorf("after %d limit %d: %v (-want +got):\n%s", c.after, c.limit, err, diff)
			}
		}
		for i, e := range want {
			if e.Seq != int64(i+1) {
				t.Errorf("event %d has number %d", i+1, e.Seq)
			}
		}
		_, err := s.Read(ctx, log, -1, 0)
		wantKind(t, err, agent.Invalid)
		for _, l := range []store.Log{store.SessionLog(app, "none"), store.AgentLog(app, "none"), store.SessionLog(app, "a/b"), {}} {
			_, err = s.Read(ctx, l, 0, 0)
			wantKind(t, err, agent.NotFound)
			_, err = s.Append(ctx, l, events(1))
			wantKind(t, err, agent.NotFound)
		}
		_, err = s.Append(ctx, log, events(store.MaxAppend+1))
		wantKind(t, err, agent.Invalid)
		if _, err = s.Append(ctx, log, events(store.MaxAppend)); err != nil {
			t.Errorf("as many events as are allowed: %v", err)
		}
	})
}

func TestAgentLogKeepsNewest(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, openBadger(t, dir), dir, &store.Options{AgentLog: 10})
	ctx := t.Context()
	log := store.AgentLog(app, addAgent(t, s, "a").ID)
	for _, c := range []struct{ add, first, last int }{{9, 1, 9}, {1, 1, 10}, {1, 2, 11}, {25, 27, 36}} {
		if _, err := s.Append(ctx, log, events(c.add)); err != nil {
			t.Fatal(err)
		}
		first, last, err := s.Bounds(ctx, log)
		if err != nil || first != int64(c.first) || last != int64(c.last) {
			t.Errorf("log goes from %d to %d, %v; want %d to %d", first, last, err, c.first, c.last)
		}
		got, err := s.Read(ctx, log, 0, 0)
		if err != nil || len(got) != c.last-c.first+1 || got[0].Seq != int64(c.first) {
			t.Errorf("read %d events, %v", len(got), err)
		}
		if err := s.Verify(ctx); err != nil {
			t.Error(err)
		}
	}
}
