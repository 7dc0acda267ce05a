package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/memkv"
)

func TestAppRecords(t *testing.T) {
	clk := &clock{epoch}
	s := openStore(t, memkv.New(), t.TempDir(), &store.Options{Now: clk.now})
	ctx := t.Context()
	d := must(s.App(ctx, agent.DefaultApp))(t)
	if d.Weight != 1 || !d.Created.IsZero() {
		t.Errorf("the default app is %+v", d)
	}
	_, _, err := s.CreateApp(ctx, agent.AppInfo{Name: agent.DefaultApp, Weight: 1}, store.Once{})
	wantKind(t, err, agent.Exists)

	once := store.Once{Scope: "t", Key: "k", Request: agent.DigestOf([]byte("a"))}
	for i, replayed := range []bool{false, true} {
		a, again, err := s.CreateApp(ctx, agent.AppInfo{Name: "shop", Weight: 5}, once)
		if err != nil || again != replayed || a.Weight != 5 || !a.Created.Equal(epoch) {
			t.Errorf("creation %d: %+v %v %v", i, a, again, err)
		}
	}
	_, _, err = s.CreateApp(ctx, agent.AppInfo{Name: "shop", Weight: 5}, store.Once{})
	wantKind(t, err, agent.Exists)
	names := func() string {
		t.Helper()
		list, next, err := s.Apps(ctx, agent.Page{})
		if err != nil || next != "" {
			t.Fatal(next, err)
		}
		var out []string
		for _, a := range list {
			out = append(out, string(a.Name))
		}
		return strings.Join(out, " ")
	}
	if got := names(); got != "shop default" {
		t.Errorf("apps: %s", got)
	}
	clk.t = epoch.Add(time.Hour)
	d, err = s.UpdateApp(ctx, agent.DefaultApp, func(a *agent.AppInfo) error { a.Weight, a.Name = 9, "x"; return nil })
	if err != nil || d.Weight != 9 || d.Name != agent.DefaultApp || !d.Created.Equal(clk.t) {
		t.Errorf("%+v %v", d, err)
	}
	if got := names(); got != "default shop" { // it has a record now
		t.Errorf("apps: %s", got)
	}
	if got := must(s.App(ctx, agent.DefaultApp))(t); got.Weight != 9 {
		t.Errorf("%+v", got)
	}
	_, err = s.UpdateApp(ctx, "shop", func(a *agent.AppInfo) error { a.Weight = agent.MaxWeight + 1; return nil })
	wantKind(t, err, agent.Invalid)
	_, err = s.UpdateApp(ctx, "lost", func(*agent.AppInfo) error { return nil })
	wantKind(t, err, agent.NotFound)
	if err := s.Verify(ctx); err != nil {
		t.Error(err)
	}
}

func TestNothingInAnAppThatIsNotThere(t *testing.T) {
	s := openStore(t, memkv.New(), t.TempDir(), nil)
	ctx := t.Context()
	_, _, err := s.CreateAgent(ctx, agent.Agent{App: "lost", Name: "a"}, store.Once{})
	wantKind(t, err, agent.NotFound)
	_, _, err = s.PutPlugin(ctx, agent.Plugin{App: "lost", Name: "p", Version: "1", Digest: agent.DigestOf(nil)}, store.Once{})
	wantKind(t, err, agent.NotFound)
	wantKind(t, s.PutToken(ctx, agent.Token{ID: "T", Name: "t", App: "lost"}, [32]byte{1}, store.Once{}), agent.NotFound)
}

func TestDeleteApp(t *testing.T) {
	s := openStore(t, memkv.New(), t.TempDir(), nil)
	ctx := t.Context()
	wantKind(t, s.DeleteApp(ctx, agent.DefaultApp), agent.Conflict)
	wantKind(t, s.DeleteApp(ctx, "lost"), agent.NotFound)
	must2(s.CreateApp(ctx, agent.AppInfo{Name: "shop", Weight: 1}, store.Once{}))(t)
	must2(s.CreateAgent(ctx, agent.Agent{App: "shop", Name: "a"}, store.Once{}))(t)
	if err := s.PutToken(ctx, agent.Token{ID: "T", Name: "t", App: "shop"}, [32]byte{1}, store.Once{}); err != nil {
		t.Fatal(err)
	}
	left := func(want string) {
		t.Helper()
		err := s.DeleteApp(ctx, "shop")
		wantKind(t, err, agent.Conflict)
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	left("it has 1 agents, 1 tokens")
	if err := s.DeleteAgents(ctx, "shop", "a"); err != nil {
		t.Fatal(err)
	}
	left("it has 1 tokens")
	if _, err := s.DeleteTokens(ctx, "default", "T"); agent.KindOf(err) != agent.NotFound {
		t.Errorf("another app's token: %v", err)
	}
	if _, err := s.DeleteTokens(ctx, "shop", "T"); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteApp(ctx, "shop"); err != nil {
		t.Fatal(err)
	}
	_, err := s.App(ctx, "shop")
	wantKind(t, err, agent.NotFound)
	if err := s.Verify(ctx); err != nil {
		t.Error(err)
	}
}

// TestDeleteAppWithOwnSecrets deletes an app that has nothing but what nobody can see or delete: secrets of the server itself.
func TestDeleteAppWithOwnSecrets(t *testing.T) {
	s := openStore(t, memkv.New(), t.TempDir(), nil)
	ctx := t.Context()
	addSecret(t, s, "of-another-app")
	must2(s.CreateApp(ctx, agent.AppInfo{Name: "shop", Weight: 1}, store.Once{}))(t)
	for _, name := range []string{store.OwnSecret + "a", "key", store.OwnSecret + "b"} {
		one := newSecret(name)
		one.App = "shop"
		must(s.SaveSecret(ctx, one, map[int][]byte{1: []byte("sealed")}))(t)
	}
	err := s.DeleteApp(ctx, "shop")
	if wantKind(t, err, agent.Conflict); !strings.Contains(err.Error(), "it has 1 secrets") {
		t.Error(err)
	}
	if list, _, err := s.Secrets(ctx, "shop", agent.Page{}); err != nil || len(list) != 3 {
		t.Errorf("an app that stays has %d secrets, %v", len(list), err)
	}
	if err := s.DeleteSecret(ctx, "shop", "key"); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteApp(ctx, "shop"); err != nil {
		t.Fatal(err)
	}
	if err := s.Verify(ctx); err != nil {
		t.Error(err)
	}
	if all, err := s.AllSecrets(ctx); err != nil || len(all) != 1 {
		t.Errorf("there are %d secrets, %v", len(all), err)
	}
}

func TestTokensAreMadeOnce(t *testing.T) {
	dir, db := t.TempDir(), memkv.New()
	s := openStore(t, db, dir, nil)
	ctx := t.Context()
	once := store.Once{Scope: "t", Key: "k", Request: agent.DigestOf([]byte("a"))}
	if err := s.PutToken(ctx, agent.Token{ID: "T1", Name: "n"}, [32]byte{1}, once); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, db, dir, nil) // a restart forgets nothing
	err := s.PutToken(ctx, agent.Token{ID: "T2", Name: "n"}, [32]byte{2}, once)
	wantKind(t, err, agent.Conflict)
	if list, _, err := s.Tokens(ctx, "", agent.Page{}); err != nil || len(list) != 1 {
		t.Errorf("%+v %v", list, err)
	}
}

// Tokens that were stored before there were roles are owners' for every app.
func TestOldTokensAreOwners(t *testing.T) {
	s := openStore(t, memkv.New(), t.TempDir(), nil)
	ctx := t.Context()
	if err := s.PutToken(ctx, agent.Token{ID: "T1", Name: "n"}, [32]byte{1}, store.Once{}); err != nil {
		t.Fatal(err)
	}
	if got := must(s.TokenByHash(ctx, [32]byte{1}))(t); got.Role != agent.Owner || got.App != "" {
		t.Errorf("%+v", got)
	}
}

func TestAuditLogRecords(t *testing.T) {
	db := memkv.New()
	s := openStore(t, db, t.TempDir(), &store.Options{AgentLog: 5})
	ctx := t.Context()
	l := store.AuditLog("shop")
	if got := must(s.Read(ctx, l, 0, 0))(t); len(got) != 0 {
		t.Errorf("at first: %v", got)
	}
	for range 4 {
		if _, err := s.Append(ctx, l, []agent.Event{{Kind: agent.EventChanged}, {Kind: agent.EventSecretUsed}, {Kind: agent.EventRefused}}); err != nil {
			t.Fatal(err)
		}
	}
	got := must(s.Read(ctx, l, 0, 0))(t)
	if len(got) != 12 || got[0].Seq != 1 || got[11].Seq != 12 { // kept in full, unlike an agent's log
		t.Errorf("%d events", len(got))
	}
	if got := must(s.Read(ctx, store.AuditLog("default"), 0, 0))(t); len(got) != 0 {
		t.Errorf("another app's: %v", got)
	}
	if err := s.Verify(ctx); err != nil {
		t.Error(err)
	}
}

// must2 is must for creations.
func must2[T any](v T, _ bool, err error) func(testing.TB) T { return must(v, err) }
