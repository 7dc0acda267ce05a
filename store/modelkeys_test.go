package store_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/kv"
	"github.com/skep-dev/skep/store/memkv"
)

func hashOf(value string) [32]byte { return sha256.Sum256([]byte(value)) }

func TestModelKeys(t *testing.T) {
	onBoth(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		k := agent.ModelKey{ID: "K1", Name: "laptop", App: app, Models: []string{"@cheap"}, User: "u", Hint: "skm_"}
		if err := s.PutModelKey(ctx, k, hashOf("one")); err != nil {
			t.Fatal(err)
		}
		got := must(s.ModelKeyByHash(ctx, hashOf("one")))(t)
		if k.Created = got.Created; k.Created.IsZero() || cmp.Diff(k, got) != "" {
			t.Errorf("%+v", got)
		}
		_, err := s.ModelKeyByHash(ctx, hashOf("two"))
		wantKind(t, err, agent.Unauthenticated)
		other := agent.ModelKey{ID: "K2", Name: "other", App: app}
		wantKind(t, s.PutModelKey(ctx, other, hashOf("one")), agent.Exists) // a value is one key's
		wantKind(t, s.PutModelKey(ctx, k, hashOf("two")), agent.Exists)
		wantKind(t, s.PutModelKey(ctx, agent.ModelKey{ID: "K3", App: "nowhere"}, hashOf("three")), agent.NotFound)
		wantKind(t, s.PutModelKey(ctx, agent.ModelKey{ID: "a/b", App: app}, hashOf("three")), agent.Invalid)
		if err := s.PutModelKey(ctx, other, hashOf("two")); err != nil {
			t.Fatal(err)
		}
		list, next, err := s.ModelKeys(ctx, app, agent.Page{Limit: 1})
		if err != nil || len(list) != 1 || list[0].ID != "K1" || next == "" {
			t.Errorf("%+v %q %v", list, next, err)
		}
		changed, err := s.ChangeModelKey(ctx, app, "K1", func(k *agent.ModelKey) error {
			k.Disabled, k.Name, k.ID, k.App, k.Run = true, "new", "X", "nowhere", "R"
			return nil
		})
		if err != nil || changed.ID != "K1" || changed.App != app || changed.Name != "new" || changed.Run != "" {
			t.Errorf("%+v %v", changed, err)
		}
		_, err = s.ModelKeyByHash(ctx, hashOf("one"))
		wantKind(t, err, agent.Unauthenticated)
		if err := s.Verify(ctx); err != nil {
			t.Fatal(err)
		}
		_, err = s.DeleteModelKeys(ctx, app, "K2", "K9")
		wantKind(t, err, agent.NotFound)
		must(s.ModelKeyByHash(ctx, hashOf("two")))(t) // all or none
		if gone := must(s.DeleteModelKeys(ctx, app, "K2", "K1", "K2"))(t); len(gone) != 2 {
			t.Errorf("%+v", gone)
		}
		_, err = s.ModelKeyByHash(ctx, hashOf("two"))
		wantKind(t, err, agent.Unauthenticated)
		if err := s.PutModelKey(ctx, other, hashOf("two")); err != nil { // and may be used again
			t.Error(err)
		}
		if err := s.Verify(ctx); err != nil {
			t.Error(err)
		}
	})
}

// What was read of a key, and a version that was taken, are not good any more once an app has gone.
func TestModelKeyGoesWithItsApp(t *testing.T) {
	onBoth(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		for range 2 {
			if _, _, err := s.CreateApp(ctx, agent.AppInfo{Name: "shop", Weight: 1}, store.Once{}); err != nil {
				t.Fatal(err)
			}
			if err := s.PutModelKey(ctx, agent.ModelKey{ID: "K1", App: "shop"}, hashOf("one")); err != nil {
				t.Fatal(err)
			}
			must(s.ModelKeyByHash(ctx, hashOf("one")))(t)
			was := s.ModelsVersion()
			if _, err := s.PutDoc(ctx, store.Skills, "shop", "s", 0, agent.Skill{Name: "s"}); err != nil || s.ModelsVersion() != was {
				t.Errorf("a skill changes the version: %v", err)
			}
			if _, err := s.PutDoc(ctx, store.Providers, "shop", "p", 0, agent.Provider{Name: "p"}); err != nil || s.ModelsVersion() == was {
				t.Errorf("a provider does not change the version: %v", err)
			}
			was = s.ModelsVersion()
			if err := s.DeleteApp(ctx, "shop"); err != nil || s.ModelsVersion() == was {
				t.Fatal("deleting an app does not change the version: ", err)
			}
			_, err := s.ModelKeyByHash(ctx, hashOf("one"))
			wantKind(t, err, agent.Unauthenticated)
			if err := s.DropDocs(ctx); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestModelKeyExpires(t *testing.T) {
	c := &clock{time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)}
	s := openStore(t, memkv.New(), t.TempDir(), &store.Options{Now: c.now})
	if err := s.PutModelKey(t.Context(), agent.ModelKey{ID: "K", App: app, Expires: c.t.Add(time.Hour)}, hashOf("v")); err != nil {
		t.Fatal(err)
	}
	c.t = c.t.Add(time.Hour - 1)
	must(s.ModelKeyByHash(t.Context(), hashOf("v")))(t)
	c.t = c.t.Add(1)
	_, err := s.ModelKeyByHash(t.Context(), hashOf("v"))
	wantKind(t, err, agent.Unauthenticated)
}

// A key of a run is good for nothing from the commit on that ends the run, and after a restart.
func TestModelKeyDiesWithItsRun(t *testing.T) {
	db, dir := memkv.New(), t.TempDir()
	s := openStore(t, db, dir, nil)
	ctx := t.Context()
	addAgent(t, s, "a")
	se := addSession(t, s, "a")
	runs := []agent.Run{addRun(t, s, se), addRun(t, s, se)}
	for i, run := range runs {
		k := agent.ModelKey{ID: fmt.Sprintf("K%d", i), App: app, Run: run.ID}
		if err := s.PutModelKey(ctx, k, hashOf(k.ID)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.PutModelKey(ctx, agent.ModelKey{ID: "K9", App: app, Run: "NOBODY"}, hashOf("K9")); err != nil {
		t.Fatal(err)
	}
	must(s.ModelKeyByHash(ctx, hashOf("K0")))(t)
	_, _, err := s.UpdateRun(ctx, app, runs[0].ID, nil, func(r *agent.Run) error { r.Status = agent.RunCancelled; return nil })
	if err != nil {
		t.Fatal(err)
	}
	check := func(s *store.Store) {
		t.Helper()
		_, err := s.ModelKeyByHash(ctx, hashOf("K0"))
		wantKind(t, err, agent.Unauthenticated)
		_, err = s.ModelKeyByHash(ctx, hashOf("K9"))
		wantKind(t, err, agent.Unauthenticated)
		must(s.ModelKeyByHash(ctx, hashOf("K1")))(t)
	}
	check(s)
	s.Close()
	s = openStore(t, db, dir, nil) // as after a kill
	check(s)
	if err := s.SweepModelKeys(ctx, app); err != nil {
		t.Fatal(err)
	}
	list, _, err := s.ModelKeys(ctx, app, agent.Page{})
	if err != nil || len(list) != 1 || list[0].ID != "K1" {
		t.Errorf("%+v %v", list, err)
	}
	if err := s.Verify(ctx); err != nil {
		t.Error(err)
	}
}

// Keys of an app that is deleted are good for nothing at once, and go with it.
func TestModelKeysOfDeletedApp(t *testing.T) {
	db := memkv.New()
	s := openStore(t, db, t.TempDir(), nil)
	ctx := t.Context()
	if _, _, err := s.CreateApp(ctx, agent.AppInfo{Name: "shop", Weight: 1}, store.Once{}); err != nil {
		t.Fatal(err)
	}
	for i := range 1500 {
		id := fmt.Sprint("K", i)
		if err := s.PutModelKey(ctx, agent.ModelKey{ID: id, App: "shop"}, hashOf(id)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.DeleteApp(&countdown{Context: ctx, left: 1}, "shop"); err != nil {
		t.Fatal(err)
	}
	_, err := s.ModelKeyByHash(ctx, hashOf("K7"))
	wantKind(t, err, agent.Unauthenticated)
	for {
		err := s.DropDocs(&countdown{Context: ctx, left: 4})
		if verr := s.Verify(ctx); verr != nil {
			t.Fatal(verr)
		}
		if err == nil {
			break
		}
		if !errors.Is(err, errCut) {
			t.Fatal(err)
		}
	}
	if n := len(keys(t, db, "model-key/")) + len(keys(t, db, "doc/")); n != 0 {
		t.Errorf("%d records are left", n)
	}
}

func TestModelKeyIsMissed(t *testing.T) {
	db := memkv.New()
	s := openStore(t, db, t.TempDir(), nil)
	ctx := t.Context()
	if err := s.PutModelKey(ctx, agent.ModelKey{ID: "K", App: app}, hashOf("v")); err != nil {
		t.Fatal(err)
	}
	for _, prefix := range []string{"model-key/", "doc/"} {
		c := keys(t, db, prefix)[0]
		apply(t, db, kv.Change{Key: c.Key, Delete: true})
		wantCorrupt(t, s.Verify(ctx), "")
		apply(t, db, c)
		if err := s.Verify(ctx); err != nil {
			t.Error(err)
		}
	}
}

func TestDocsRev(t *testing.T) {
	s := memStore(t)
	ctx := t.Context()
	rev := func() int64 { t.Helper(); return must(s.DocsRev(ctx, store.Providers, app))(t) }
	if rev() != 0 {
		t.Error("there is one")
	}
	must(s.PutDoc(ctx, store.Providers, app, "p", 0, agent.Provider{Name: "p"}))(t)
	first := rev()
	must(s.PutDoc(ctx, store.ModelRoutes, app, "r", 0, agent.ModelRoute{Name: "r"}))(t)
	if rev() != first {
		t.Error("another space counts")
	}
	must(s.PutDoc(ctx, store.Providers, app, "p", store.AnyRev, agent.Provider{Name: "p"}))(t)
	second := rev()
	if err := s.DeleteDoc(ctx, store.Providers, app, "p", store.AnyRev); err != nil {
		t.Fatal(err)
	}
	if third := rev(); first <= 0 || second <= first || third <= second {
		t.Error(first, second, third)
	}
	_, err := s.DocsRev(ctx, store.Providers, "nowhere")
	wantKind(t, err, agent.NotFound)
}
