package store_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/instance"
	"github.com/skep-dev/skep/store/kv"
	"github.com/skep-dev/skep/store/memkv"
)

// keys returns what db holds under prefix.
func keys(t *testing.T, db kv.DB, prefix string) (out []kv.Change) {
	t.Helper()
	err := db.View(t.Context(), func(r kv.Reader) error {
		return r.Scan([]byte(prefix), kv.PrefixEnd([]byte(prefix)), false, func(k, v []byte) error {
			out = append(out, kv.Change{Key: bytes.Clone(k), Value: bytes.Clone(v)})
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func apply(t *testing.T, db kv.DB, cs ...kv.Change) {
	t.Helper()
	if err := db.Apply(t.Context(), cs); err != nil {
		t.Fatal(err)
	}
}

// fullStore holds at least one record of every kind.
func fullStore(t *testing.T, db kv.DB) *store.Store {
	t.Helper()
	s := openStore(t, db, t.TempDir(), nil)
	ctx := t.Context()
	for _, v := range []string{"1", "2"} {
		if _, err := s.PutBlob(ctx, []byte(v)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.PutPlugin(ctx, agent.Plugin{App: app, Name: "p", Version: v, Digest: agent.DigestOf([]byte(v))}, store.Once{}); err != nil {
			t.Fatal(err)
		}
	}
	a := addAgent(t, s, "a")
	gone := addAgent(t, s, "gone")
	edit(t, s, store.AgentState(app, a.ID), set("k", "v"), set("k/é", ""))
	edit(t, s, store.AgentState(app, gone.ID), set("k", "v"))
	addInstances(t, s, a.ID, gone.ID)
	if err := s.DeleteAgents(ctx, app, "gone"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(ctx, store.AgentLog(app, a.ID), events(2)); err != nil {
		t.Fatal(err)
	}
	se, _, err := s.CreateSession(ctx, agent.Session{App: app, Agent: "a"}, store.Once{Scope: "s", Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	addRun(t, s, se)
	ended := addRun(t, s, se)
	_, _, err = s.UpdateRun(ctx, app, ended.ID, events(2), func(r *agent.Run) error { r.Status = agent.Completed; return nil })
	if err != nil {
		t.Fatal(err)
	}
	waiting := addRun(t, s, addSession(t, s, "a"))
	_, _, err = s.UpdateRun(ctx, app, waiting.ID, events(1), func(r *agent.Run) error {
		r.Status, r.Asks = agent.Waiting, asks(2, 100)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	addSecret(t, s, "secret")
	if err := s.PutToken(ctx, agent.Token{ID: "T1", Name: "n"}, [32]byte{1}, store.Once{Scope: "t", Key: "k"}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.CreateApp(ctx, agent.AppInfo{Name: "shop", Weight: 2}, store.Once{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(ctx, store.AuditLog("shop"), events(2)); err != nil {
		t.Fatal(err)
	}
	addDocs(t, s, "shop", se.ID)
	addSandboxes(t, s, se.ID)
	day := agent.UsageDay(time.Now())
	err = s.FoldUsage(ctx, store.UsageMark{}, store.UsageMark{Segment: 1, Offset: 100}, []agent.UsageRow{
		{Day: day, App: app, Agent: "a", Kind: agent.UseCall, Events: 3}, {Day: day, App: app, Agent: "-", Kind: agent.UseCode, Events: 1},
	}, []store.GrantUses{{Day: day, App: app, Agent: "a", Grant: "http x", Uses: 2}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Verify(ctx); err != nil {
		t.Fatal(err)
	}
	return s
}

// Verify finds any record that is damaged, at any of some bytes, or lost, and names it or what misses it.
func TestVerifyFindsAnyDamage(t *testing.T) {
	db := memkv.New()
	s := fullStore(t, db)
	all := keys(t, db, "")
	if len(all) < 40 {
		t.Fatalf("only %d records", len(all))
	}
	for _, c := range all {
		for i := 0; i < len(c.Value); i += 1 + len(c.Value)/40 {
			bad := bytes.Clone(c.Value)
			bad[i] ^= 1 << (i % 8)
			apply(t, db, kv.Change{Key: c.Key, Value: bad})
			if err := s.Verify(t.Context()); err == nil || !strings.Contains(err.Error(), string(c.Key)) {
				t.Errorf("a flipped bit in byte %d of %s: %v", i, c.Key, err)
			}
		}
		apply(t, db, kv.Change{Key: c.Key, Value: c.Value[:len(c.Value)-1]})
		wantCorrupt(t, s.Verify(t.Context()), string(c.Key))
		apply(t, db, kv.Change{Key: c.Key, Delete: true})
		if err := s.Verify(t.Context()); err == nil {
			t.Errorf("loss of %s is not noticed", c.Key)
		}
		apply(t, db, c)
	}
	// A good record at another's place.
	for _, c := range all[1:] {
		apply(t, db, kv.Change{Key: c.Key, Value: all[0].Value})
		wantCorrupt(t, s.Verify(t.Context()), string(c.Key))
		apply(t, db, c)
	}
	if err := s.Verify(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// What is lost is an error for who reads it, and not an absence.
func TestReadersMissWhatIsLost(t *testing.T) {
	db := memkv.New()
	s := fullStore(t, db)
	ctx := t.Context()
	runs, _, err := s.Runs(ctx, app, store.RunFilter{}, agent.Page{})
	if err != nil || len(runs) != 3 {
		t.Fatal(runs, err)
	}
	waiting, runs := runs[0], runs[1:]
	se := runs[0].Session
	log := store.SessionLog(app, se)
	events := "log/session/default/" + string(se) + "/event/"
	read := func(after int64) error { _, err := s.Read(ctx, log, after, 0); return err }
	one := agent.Page{Limit: 1}
	a := must(s.Agent(ctx, app, "a"))(t)
	state := store.AgentState(app, a.ID)
	in := s.Instances()
	k1 := instance.ID{App: app, Agent: a.ID, Key: "k/1"}
	of := "default/" + string(a.ID) + "/k.2f1"
	commit := func(b instance.Batch) error {
		info, err := in.Info(ctx, k1)
		if err == nil {
			b.ID = instance.NewBatchID()
			_, err = in.Commit(ctx, k1, info.Fence, &b)
		}
		return err
	}
	add := instance.Append{Log: instance.OwnLog("l"), Event: agent.Event{Kind: agent.EventEmit}}
	readLog := func() error { _, err := in.ReadLog(ctx, k1, instance.OwnLog("l"), 0, 0); return err }
	readJournal := func() error { _, err := in.ReadJournal(ctx, k1, "R", 0, 0); return err }
	due := func() error { _, err := in.Due(ctx, time.Now(), "", 0); return err }
	outgoing := func() error { _, _, err := in.Outgoing(ctx, "", 0); return err }
	for _, c := range []struct {
		lost string
		read func() error
	}{
		{"inst/" + of, func() error { _, err := in.Info(ctx, k1); return err }},
		{"inst/" + of, func() error { _, err := in.Acquire(ctx, k1, instance.ID{}); return err }},
		{"inst/" + of, func() error { _, err := in.Load(ctx, k1, "k"); return err }},
		{"log/instance/" + of + "/l/head", readLog},
		{"log/instance/" + of + "/l/head", func() error { return commit(instance.Batch{Events: []instance.Append{add}}) }},
		{"log/instance/" + of + "/l/event/0000000000000001", readLog},
		{"log/instance/" + of + "/l/event/0000000000000002", readLog},
		{"log/instance/" + of + "/l/event/0000000000000002", func() error { return commit(instance.Batch{Events: []instance.Append{add}}) }},
		{"log/journal/" + of + "/R/head", readJournal},
		{"log/journal/" + of + "/R/event/0000000000000001", readJournal},
		{"log/journal/" + of + "/R/event/0000000000000002", readJournal},
		{"log/journal/" + of + "/R/head", func() error { _, err := in.Journals(ctx, k1, "", 0); return err }},
		{"state/instance/" + of + "/head", func() error { _, err := in.Load(ctx, k1, "none"); return err }},
		{"state/instance/" + of + "/head", func() error { return commit(instance.Batch{State: []agent.StateEdit{set("new", "")}}) }},
		{"inst-part/" + of + "/alarm/a.2f~c3~a9", due},
		{"inst-mark/due", due},
		{"inst-mark/out", outgoing},
		{"inst-part/" + of + "/to/" + string(a.ID) + "/k2/tail", outgoing},
		{"inst-agent/default/" + string(a.ID), func() error { _, _, err := in.List(ctx, app, a.ID, agent.Page{}); return err }},
		{events + "0000000000000001", func() error { return read(0) }},
		{events + "0000000000000002", func() error { return read(0) }},
		{events + "0000000000000002", func() error { return read(1) }},
		{events + "0000000000000004", func() error { return read(0) }},
		{events + "0000000000000004", func() error { return read(3) }},
		{events + "0000000000000004", func() error { _, err := s.Append(ctx, log, []agent.Event{{}}); return err }},
		{"log/session/default/" + string(se) + "/head", func() error { return read(0) }},
		{"log/session/default/" + string(se) + "/head", func() error { _, err := s.Session(ctx, app, se); return err }},
		{"log/session/default/" + string(se) + "/head", func() error { _, err := s.Append(ctx, log, []agent.Event{{}}); return err }},
		{"rec/agents/default/a", func() error { _, err := s.Agent(ctx, app, "a"); return err }},
		{"rec/agents/default/a", func() error { _, _, err := s.Agents(ctx, app, agent.Page{}); return err }},
		{"rec/agents/default/a", func() error {
			_, _, err := s.CreateAgent(ctx, agent.Agent{App: app, Name: "a"}, store.Once{})
			return err
		}},
		{"rec/plugins/default/p@1", func() error { _, err := s.Plugin(ctx, app, "p@1"); return err }},
		{"rec/plugins/default/p@2", func() error { _, err := s.Plugin(ctx, app, "p"); return err }},
		{"rec/sessions/default/" + string(se), func() error { _, err := s.Session(ctx, app, se); return err }},
		{"rec/runs/default/" + string(runs[0].ID), func() error { _, err := s.Run(ctx, app, runs[0].ID); return err }},
		{"rec/runs/default/" + string(runs[1].ID), func() error { _, err := s.Unfinished(ctx); return err }},
		{"rec/runs/default/" + string(waiting.ID), func() error {
			_, _, err := s.Runs(ctx, app, store.RunFilter{Status: agent.Waiting}, one)
			return err
		}},
		{"ord/runs/default/0000000000000003", func() error { _, _, err := s.Runs(ctx, app, store.RunFilter{}, one); return err }},
		{"ord/runs/default/0000000000000001", func() error { _, _, err := s.Runs(ctx, app, store.RunFilter{}, agent.Page{}); return err }},
		{"head/runs/default", func() error { _, _, err := s.Runs(ctx, app, store.RunFilter{}, agent.Page{}); return err }},
		{"state/agent/default/" + string(a.ID) + "/head", func() error { _, err := s.State(ctx, state, "none"); return err }},
		{"state/agent/default/" + string(a.ID) + "/head", func() error { _, _, err := s.ListState(ctx, state, agent.StateRange{}); return err }},
		{"state/agent/default/" + string(a.ID) + "/head", func() error { _, err := s.EditState(ctx, state, wide, set("new", "")); return err }},
		{"rec/secrets/default/secret", func() error { _, err := s.Secret(ctx, app, "secret"); return err }},
		{"rec/secrets/default/secret", func() error { _, _, err := s.Secrets(ctx, app, agent.Page{}); return err }},
		{"sealed/default/secret/0000000000000001", func() error { _, _, err := s.SealedSecret(ctx, app, "secret"); return err }},
		{"meta/vault", func() error { _, err := s.SaveSecret(ctx, must(s.Secret(ctx, app, "secret"))(t), nil); return err }},
		{"rec/tokens/-/T1", func() error { _, err := s.TokenByHash(ctx, [32]byte{1}); return err }},
	} {
		was := keys(t, db, c.lost)
		if len(was) != 1 {
			t.Fatalf("%d records at %s", len(was), c.lost)
		}
		apply(t, db, kv.Change{Key: was[0].Key, Delete: true})
		store.Forget(s)
		wantCorrupt(t, c.read(), c.lost)
		apply(t, db, was[0])
	}
}

// A flipped bit never gives a wrong value, even where the database itself does not notice.
func TestReadersNoticeFlippedBits(t *testing.T) {
	db := memkv.New()
	s := fullStore(t, db)
	c := keys(t, db, "rec/agents/default/a")[0]
	for i := range c.Value {
		bad := bytes.Clone(c.Value)
		bad[i] ^= 0x10
		apply(t, db, kv.Change{Key: c.Key, Value: bad})
		_, err := s.Agent(t.Context(), app, "a")
		wantCorrupt(t, err, "rec/agents/default/a")
	}
}

func TestDamagedBlobOfRecord(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, memkv.New(), dir, nil)
	addAgent(t, s, "a")
	body := bytes.Repeat([]byte("x"), 200_000)
	run, _, _, err := s.CreateRun(t.Context(), store.NewRun{
		Run:     agent.Run{App: app, Agent: "a", Input: agent.Payload{Type: agent.TypeText, Body: body}},
		Session: &agent.Session{App: app, Agent: "a"},
	}, store.Once{})
	if err != nil {
		t.Fatal(err)
	}
	d := agent.DigestOf(body).Hex()
	file := filepath.Join(dir, "blobs", d[:2], d[2:])
	bad := slices.Clone(body)
	bad[777] ^= 1
	if err := os.WriteFile(file, bad, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = s.Run(t.Context(), app, run.ID)
	wantCorrupt(t, err, string(run.ID))
	wantCorrupt(t, s.Verify(t.Context()), string(run.ID))
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	_, err = s.Run(t.Context(), app, run.ID)
	wantCorrupt(t, err, string(run.ID))
}
