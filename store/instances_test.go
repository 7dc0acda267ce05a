package store_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/instance"
	"github.com/skep-dev/skep/store/instance/instancetest"
	"github.com/skep-dev/skep/store/kv"
	"github.com/skep-dev/skep/store/memkv"
	"github.com/skep-dev/skep/store/pebblekv"
)

// instanceRig returns the instances of a new store in db.
func instanceRig(t *testing.T, db kv.DB, dir string) instancetest.Rig {
	s := openStore(t, db, dir, nil)
	ctx := t.Context()
	names, removed := map[agent.AgentID]string{}, false
	return instancetest.Rig{
		Store: s.Instances(),
		AddAgent: func(id agent.AgentID) {
			names[id] = string(rune('a' + len(names)))
			if _, _, err := s.CreateAgent(ctx, agent.Agent{App: app, Name: names[id], ID: id}, store.Once{}); err != nil {
				t.Fatal(err)
			}
		},
		RemoveAgent: func(id agent.AgentID) {
			if err := s.DeleteAgents(ctx, app, names[id]); err != nil {
				t.Fatal(err)
			}
			if err := s.Verify(ctx); err != nil {
				t.Error(err)
			}
			removed = true
		},
		AddSession: func(id agent.SessionID, with instance.ID) {
			if _, _, err := s.CreateSession(ctx, agent.Session{App: app, Agent: names[with.Agent], ID: id, Key: with.Key}, store.Once{}); err != nil {
				t.Fatal(err)
			}
		},
		Session: func(id agent.SessionID) (agent.Session, error) { return s.Session(ctx, app, id) },
		Run:     func(id agent.RunID) (agent.Run, error) { return s.Run(ctx, app, id) },
		Check: func() error {
			if removed {
				dropAll(t, s, db)
			}
			return s.Verify(ctx)
		},
	}
}

// dropAll removes what agents that were deleted have left, and checks that nothing is.
func dropAll(t *testing.T, s *store.Store, db kv.DB) {
	if err := s.DropInstances(t.Context()); err != nil {
		t.Error(err)
	}
	for _, prefix := range []string{"inst-gone/", "inst-due/", "inst-out/", "inst-part/", "inst/default/01AGENT", "inst-agent/default/01AGENT", "state/", "log/instance", "log/journal"} {
		if ks := keys(t, db, prefix); len(ks) > 0 {
			t.Errorf("%d keys are left, the first is %s", len(ks), ks[0].Key)
		}
	}
	if err := s.Verify(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestInstances(t *testing.T) {
	t.Run("memkv", func(t *testing.T) {
		t.Parallel()
		instancetest.Run(t, func(t *testing.T) instancetest.Rig { return instanceRig(t, memkv.New(), t.TempDir()) })
	})
	t.Run("badgerkv", func(t *testing.T) {
		t.Parallel()
		instancetest.Run(t, func(t *testing.T) instancetest.Rig {
			dir := t.TempDir()
			return instanceRig(t, openBadger(t, dir), dir)
		})
	})
	t.Run("pebblekv", func(t *testing.T) {
		t.Parallel()
		instancetest.Run(t, func(t *testing.T) instancetest.Rig {
			dir := t.TempDir()
			db, err := pebblekv.Open(filepath.Join(dir, "kv"), nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { db.Close() })
			return instanceRig(t, db, dir)
		})
	})
}

// patience is a context that is cancelled once it has been asked that often.
type patience struct {
	context.Context
	left int
}

func (p *patience) Err() error {
	if p.left == 0 {
		return context.Canceled
	}
	p.left--
	return nil
}

// addInstances makes an instance of one agent that has a part of every kind, another that was deleted in part, and one of a second
// agent.
func addInstances(t *testing.T, s *store.Store, id, other agent.AgentID) {
	t.Helper()
	ctx, in := t.Context(), s.Instances()
	blob, err := s.PutBlob(ctx, []byte("pages"))
	if err != nil {
		t.Fatal(err)
	}
	k1, k2 := instance.ID{App: app, Agent: id, Key: "k/1"}, instance.ID{App: app, Agent: id, Key: "k2"}
	for _, i := range []instance.ID{k1, {App: app, Agent: other, Key: "k"}} {
		f := must(in.Acquire(ctx, i, instance.ID{}))(t).Fence
		b := instance.Batch{
			ID: instance.NewBatchID(), State: []agent.StateEdit{set("k", "v")},
			Events:   []instance.Append{{Log: instance.OwnLog("l"), Event: events(1)[0]}, {Log: instance.OwnLog("l"), Event: events(1)[0]}},
			Journal:  []instance.Entry{{Run: "R", Data: []byte("x"), Blobs: []agent.Digest{blob}}, {Run: "R"}},
			Alarms:   []instance.AlarmEdit{{Alarm: instance.Alarm{Name: "a/é", At: epoch, Data: []byte("d")}}},
			Outbox:   []instance.Send{{To: k2, Data: []byte("m")}, {To: k2}},
			Inbox:    []instance.Mark{{Peer: k2, Seq: 1}},
			Children: []instance.Child{{ID: instance.ID{App: app, Agent: i.Agent, Key: "child"}}},
			Snapshot: &instance.Snapshot{Blobs: []agent.Digest{blob}, Data: []byte("s")},
		}
		must(in.Commit(ctx, i, f, &b))(t)
	}
	// Of this one the deletion is stopped after its mark.
	f := must(in.Acquire(ctx, k2, instance.ID{}))(t).Fence
	b := instance.Batch{ID: instance.NewBatchID(), Alarms: []instance.AlarmEdit{{Alarm: instance.Alarm{Name: "a", At: epoch}}}, Outbox: []instance.Send{{To: k1}}}
	f = must(in.Commit(ctx, k2, f, &b))(t).Fence
	if err := in.Delete(&patience{ctx, 1}, k2, f); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// An export names the blobs of snapshots and journals.
func TestInstanceExport(t *testing.T) {
	s := memStore(t)
	addInstances(t, s, addAgent(t, s, "a").ID, addAgent(t, s, "b").ID)
	found := map[string]int{}
	err := s.Export(t.Context(), func(r store.Record) error {
		for _, d := range r.Blobs {
			prefix, _, _ := strings.Cut(string(r.Key), "/default/")
			if d != agent.DigestOf([]byte("pages")) {
				t.Errorf("%s names %s", r.Key, d)
			}
			found[prefix]++
		}
		return nil
	})
	if d := cmp.Diff(map[string]int{"inst": 2, "log/journal": 2}, found); d != "" || err != nil {
		t.Error(d, err)
	}
}

// A commit that names a blob which is not stored is refused.
func TestInstanceMissingBlob(t *testing.T) {
	s := memStore(t)
	in := s.Instances()
	id := instance.ID{App: app, Agent: addAgent(t, s, "a").ID, Key: "k"}
	f := must(in.Acquire(t.Context(), id, instance.ID{}))(t).Fence
	none := []agent.Digest{agent.DigestOf([]byte("none"))}
	for _, b := range []instance.Batch{{Snapshot: &instance.Snapshot{Blobs: none}}, {Journal: []instance.Entry{{Run: "R", Blobs: none}}}} {
		b.ID = instance.NewBatchID()
		_, err := in.Commit(t.Context(), id, f, &b)
		wantKind(t, err, agent.Invalid)
	}
}

// The key of an alarm says whose it is and sorts by time; no other bytes are taken for one.
func FuzzDueKey(f *testing.F) {
	f.Add(int64(0), "k/1", "a/é", "inst-due/0000000000000000/default/A/k/n")
	f.Add(int64(1e15), "\x00", "~", "inst-due/")
	f.Fuzz(func(t *testing.T, ms int64, k, name, other string) {
		if at, id, name, err := store.ParseDue(store.Key(other)); err == nil && string(store.DueKey(at, id, name)) != other {
			t.Errorf("%q is read as %s %v %q", other, at, id, name)
		}
		ms &= 1<<48 - 1
		if k == "" || name == "" {
			return
		}
		id, at := instance.ID{App: app, Agent: "A", Key: k}, time.UnixMilli(ms).UTC()
		key := store.DueKey(at, id, name)
		at2, id2, name2, err := store.ParseDue(key)
		if err != nil || !at2.Equal(at) || id2 != id || name2 != name {
			t.Errorf("%q is read as %s %v %q, %v", key, at2, id2, name2, err)
		}
		if later := store.DueKey(at.Add(time.Millisecond), instance.ID{App: app, Agent: "A", Key: "!"}, "!"); later <= key {
			t.Errorf("%q sorts behind %q", key, later)
		}
	})
}
