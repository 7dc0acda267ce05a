package store_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/memkv"
)

func box(id, whose string) agent.SandboxRecord {
	return agent.SandboxRecord{Sandbox: agent.Sandbox{
		ID: agent.SandboxID(id), App: app, For: whose, Generation: 1, State: agent.SandboxWanted, Environment: "e@1", Provider: "docker", Created: epoch,
	}}
}

// addSandboxes adds a sandbox that is somebody's, one that is nobody's, and what goes with them.
func addSandboxes(t *testing.T, s *store.Store, se agent.SessionID) {
	t.Helper()
	must(s.PutEnvironment(t.Context(), agent.Environment{App: app, Name: "e", Image: "x"}))(t)
	must(s.FreezeEnvironment(t.Context(), app, se, "e"))(t)
	for _, rec := range []agent.SandboxRecord{box("B1", "run/1"), box("B2", "")} {
		if err := s.PutSandbox(t.Context(), rec, 9); err != nil {
			t.Fatal(err)
		}
		must(s.AppendOnce(t.Context(), store.AuditLog(app), rec.Source(), 1, events(2)))(t)
	}
}

func TestSandboxes(t *testing.T) {
	onBoth(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		rec := box("B1", "run/é 1")
		rec.Handle, rec.Idle = "h", time.Minute
		if err := s.PutSandbox(ctx, rec, 3); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(rec, must(s.Sandbox(ctx, "B1"))(t)); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(rec, must(s.SandboxFor(ctx, app, "run/é 1"))(t)); diff != "" {
			t.Error(diff)
		}
		for _, id := range []agent.SandboxID{"B2", "", "a/b"} {
			_, err := s.Sandbox(ctx, id)
			wantKind(t, err, agent.NotFound)
		}
		_, err := s.SandboxFor(ctx, app, "run/2")
		wantKind(t, err, agent.NotFound)
		_, err = s.SandboxFor(ctx, "shop", "run/é 1")
		wantKind(t, err, agent.NotFound)
		wantKind(t, s.PutSandbox(ctx, box("B1", "run/2"), 3), agent.Exists)
		wantKind(t, s.PutSandbox(ctx, box("B2", "run/é 1"), 3), agent.Exists)
		wantKind(t, s.PutSandbox(ctx, box("a/b", "run/2"), 3), agent.Invalid)
		nowhere := box("B2", "run/2")
		nowhere.App = "nowhere"
		wantKind(t, s.PutSandbox(ctx, nowhere, 3), agent.NotFound)

		// Two that wait for who will have them, of which one is taken.
		for _, id := range []string{"B2", "B3"} {
			if err := s.PutSandbox(ctx, box(id, ""), 3); err != nil {
				t.Fatal(err)
			}
		}
		wantKind(t, s.PutSandbox(ctx, box("B4", ""), 3), agent.Exhausted)
		take := func(id agent.SandboxID, whose string) error {
			_, err := s.ChangeSandbox(ctx, id, func(rec *agent.SandboxRecord) error { rec.For = whose; return nil })
			return err
		}
		wantKind(t, take("B2", "run/é 1"), agent.Exists)
		if err := take("B2", "run/2"); err != nil {
			t.Fatal(err)
		}
		wantKind(t, take("B2", "run/3"), agent.Conflict)
		if got := must(s.SandboxFor(ctx, app, "run/2"))(t); got.ID != "B2" {
			t.Error(got)
		}
		if err := s.Verify(ctx); err != nil {
			t.Fatal(err)
		}
	})
}

// A deletion that was wanted is not taken back, frees whom the sandbox is for, and is all that lets a sandbox be forgotten.
func TestSandboxDeletion(t *testing.T) {
	onBoth(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		if err := s.PutSandbox(ctx, box("B1", "run/1"), 9); err != nil {
			t.Fatal(err)
		}
		wantKind(t, s.DropSandbox(ctx, "B1"), agent.Conflict)
		stop := errors.New("stop")
		if _, err := s.ChangeSandbox(ctx, "B1", func(rec *agent.SandboxRecord) error { rec.Handle = "x"; return stop }); !errors.Is(err, stop) {
			t.Fatal(err)
		}
		set := func(state agent.SandboxState) (agent.SandboxRecord, error) {
			return s.ChangeSandbox(ctx, "B1", func(rec *agent.SandboxRecord) error {
				rec.State, rec.ID, rec.App = state, "X", "Y"
				return nil
			})
		}
		if rec := must(set(agent.SandboxDeleting))(t); rec.ID != "B1" || rec.App != app || rec.Handle != "" {
			t.Error(rec)
		}
		must(set(agent.SandboxDeleting))(t)
		_, err := set(agent.SandboxReady)
		wantKind(t, err, agent.Conflict)
		_, err = s.SandboxFor(ctx, app, "run/1")
		wantKind(t, err, agent.NotFound)
		if err := s.PutSandbox(ctx, box("B2", "run/1"), 9); err != nil {
			t.Fatal("whom it was for cannot have another: ", err)
		}
		if err := s.Verify(ctx); err != nil {
			t.Error(err)
		}
		for range 2 {
			if err := s.DropSandbox(ctx, "B1"); err != nil {
				t.Error(err)
			}
		}
		_, err = set(agent.SandboxDeleting)
		wantKind(t, err, agent.NotFound)
		if got := must(s.SandboxFor(ctx, app, "run/1"))(t); got.ID != "B2" {
			t.Error(got)
		}
		if err := s.Verify(ctx); err != nil {
			t.Error(err)
		}
	})
}

func TestSandboxPages(t *testing.T) {
	onBoth(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		if _, _, err := s.CreateApp(ctx, agent.AppInfo{Name: "shop", Weight: 1}, store.Once{}); err != nil {
			t.Fatal(err)
		}
		var all, mine []agent.SandboxID
		for i := range 7 {
			rec := box(fmt.Sprint("B", i), "")
			if i%3 == 0 {
				rec.App = "shop"
			} else {
				mine = append(mine, rec.ID)
			}
			all = append(all, rec.ID)
			if err := s.PutSandbox(ctx, rec, 9); err != nil {
				t.Fatal(err)
			}
		}
		slices.Reverse(mine)
		of := box("B9", "")
		of.Agent = "a"
		if err := s.PutSandbox(ctx, of, 9); err != nil {
			t.Fatal(err)
		}
		if list, next, err := s.Sandboxes(ctx, app, "a", agent.Page{}); err != nil || next != "" || len(list) != 1 || list[0].ID != "B9" {
			t.Error(list, next, err)
		}
		mine, all = slices.Insert(mine, 0, "B9"), append(all, "B9")
		for _, limit := range []int{1, 2, 7} {
			var got []agent.SandboxID
			for page := (agent.Page{Limit: limit}); ; {
				list, next, err := s.Sandboxes(ctx, app, "", page)
				if err != nil {
					t.Fatal(err)
				}
				for _, sb := range list {
					got = append(got, sb.ID)
				}
				if page.After = next; next == "" {
					break
				}
			}
			if diff := cmp.Diff(mine, got); diff != "" {
				t.Errorf("in pages of %d: %s", limit, diff)
			}
			got = nil
			for page := (agent.Page{Limit: limit}); ; {
				list, next, err := s.AllSandboxes(ctx, page)
				if err != nil {
					t.Fatal(err)
				}
				for _, sb := range list {
					got = append(got, sb.ID)
				}
				if page.After = next; next == "" {
					break
				}
			}
			if diff := cmp.Diff(all, got); diff != "" {
				t.Errorf("in pages of %d: %s", limit, diff)
			}
		}
		_, _, err := s.Sandboxes(ctx, app, "", agent.Page{After: "x"})
		wantKind(t, err, agent.Invalid)
	})
}

// An app is not deleted under a sandbox of somebody's, while one that is being deleted outlives it.
func TestSandboxesOfDeletedApp(t *testing.T) {
	s := openStore(t, memkv.New(), t.TempDir(), nil)
	ctx := t.Context()
	if _, _, err := s.CreateApp(ctx, agent.AppInfo{Name: "shop", Weight: 1}, store.Once{}); err != nil {
		t.Fatal(err)
	}
	for _, rec := range []agent.SandboxRecord{box("B1", "run/1"), box("B2", "")} {
		rec.App = "shop"
		if err := s.PutSandbox(ctx, rec, 9); err != nil {
			t.Fatal(err)
		}
	}
	err := s.DeleteApp(ctx, "shop")
	wantKind(t, err, agent.Conflict)
	if want := `app "shop" is not empty: it has 1 sandboxes`; err.Error() != want {
		t.Errorf("%q", err)
	}
	if _, err := s.ChangeSandbox(ctx, "B1", func(rec *agent.SandboxRecord) error { rec.State = agent.SandboxDeleting; return nil }); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteApp(ctx, "shop"); err != nil {
		t.Fatal(err)
	}
	list, _, err := s.AllSandboxes(ctx, agent.Page{})
	if err != nil || len(list) != 2 {
		t.Errorf("%v %v", list, err)
	}
	// What waits in a pool cannot be had any more.
	_, err = s.ChangeSandbox(ctx, "B2", func(rec *agent.SandboxRecord) error { rec.For = "run/2"; return nil })
	wantKind(t, err, agent.NotFound)
	if err := s.DropSandbox(ctx, "B1"); err != nil {
		t.Error(err)
	}
	if err := s.Verify(ctx); err != nil {
		t.Error(err)
	}
}

// What a sandbox's checkpoint names is in a backup, and is missed when it is not there.
func TestSandboxCheckpoint(t *testing.T) {
	onBoth(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		body := strings.Repeat("tar ", 50_000)
		d, n, err := s.PutBlobFrom(ctx, strings.NewReader(body))
		if err != nil || n != int64(len(body)) {
			t.Fatal(n, err)
		}
		in := must(s.OpenBlob(ctx, d))(t)
		got := must(io.ReadAll(in))(t)
		if err := in.Close(); string(got) != body || err != nil {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		_, err = s.OpenBlob(ctx, agent.DigestOf([]byte("none")))
		wantKind(t, err, agent.NotFound)
		rec := box("B1", "agent/1")
		rec.Checkpoint = agent.SandboxCheckpoint{Digest: d, Manifest: must(s.PutBlob(ctx, []byte("{}")))(t), Created: epoch, Pending: true}
		if err := s.PutSandbox(ctx, rec, 9); err != nil {
			t.Fatal(err)
		}
		var named []agent.Digest
		if err := s.Export(ctx, func(r store.Record) error { named = append(named, r.Blobs...); return nil }); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(rec.Checkpoint.Blobs(), named); diff != "" {
			t.Error(diff)
		}
		if err := s.Verify(ctx); err != nil {
			t.Error(err)
		}
		must(s.ChangeSandbox(ctx, "B1", func(rec *agent.SandboxRecord) error {
			rec.Checkpoint.Digest = agent.DigestOf([]byte("none"))
			return nil
		}))(t)
		if err := s.Verify(ctx); err == nil {
			t.Error("a checkpoint that is not there is not missed")
		}
	})
}
