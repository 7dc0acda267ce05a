package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/badgerkv"
	"github.com/skep-dev/skep/store/kv"
	"github.com/skep-dev/skep/store/memkv"
)

const app = agent.DefaultApp

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// clock is a time that tests move.
type clock struct{ t time.Time }

func (c *clock) now() time.Time { return c.t }

func openStore(t testing.TB, db kv.DB, dir string, o *store.Options) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), db, dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// memStore returns a new store in memory.
func memStore(t testing.TB) *store.Store { return openStore(t, memkv.New(), t.TempDir(), nil) }

func openBadger(t testing.TB, dir string) *badgerkv.DB {
	t.Helper()
	db, err := badgerkv.Open(filepath.Join(dir, "kv"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// onBoth runs a test on a store over each database.
func onBoth(t *testing.T, test func(t *testing.T, s *store.Store)) {
	t.Run("memkv", func(t *testing.T) { test(t, memStore(t)) })
	t.Run("badgerkv", func(t *testing.T) {
		dir := t.TempDir()
		test(t, openStore(t, openBadger(t, dir), dir, nil))
	})
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func wantKind(t *testing.T, err error, want agent.Kind) {
	t.Helper()
	if err == nil || agent.KindOf(err) != want {
		t.Fatalf("error is %v (%s), want one of kind %s", err, agent.KindOf(err), want)
	}
}

func wantCorrupt(t *testing.T, err error, what string) {
	t.Helper()
	var c *store.CorruptError
	if !errors.As(err, &c) || !strings.Contains(c.What, what) {
		t.Fatalf("error is %v, want damage at %s", err, what)
	}
}

func addAgent(t testing.TB, s *store.Store, name string) agent.Agent {
	t.Helper()
	a, _, err := s.CreateAgent(t.Context(), agent.Agent{App: app, Name: name, Plugin: "p"}, store.Once{})
	return must(a, err)(t)
}

func addSession(t testing.TB, s *store.Store, name string) agent.Session {
	t.Helper()
	se, _, err := s.CreateSession(t.Context(), agent.Session{App: app, Agent: name}, store.Once{})
	return must(se, err)(t)
}

func addRun(t testing.TB, s *store.Store, se agent.Session) agent.Run {
	t.Helper()
	run, _, _, err := s.CreateRun(t.Context(), store.NewRun{
		Run:    agent.Run{App: app, Session: se.ID, Agent: se.Agent, Function: "f", Input: agent.JSON([]byte(`{"a": 1}`))},
		Events: []agent.Event{{Kind: agent.EventRunQueued, Data: json.RawMessage(`{"function":"f"}`)}},
	}, store.Once{})
	return must(run, err)(t)
}

func events(n int) []agent.Event {
	out := make([]agent.Event, n)
	for i := range out {
		out[i] = agent.Event{Time: epoch, Kind: agent.EventEmit, Name: "n", Data: json.RawMessage(fmt.Sprintf(`{"i": %d, "s": "<&>"}`, i))}
	}
	return out
}

func TestPlugins(t *testing.T) {
	onBoth(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		put := func(name, version, code string) (agent.Plugin, bool, error) {
			return s.PutPlugin(ctx, agent.Plugin{
				App: app, Name: name, Version: version, Digest: agent.DigestOf([]byte(code)), Kind: agent.Script, Main: "main.ts",
				Exports: []string{"f"},
			}, store.Once{})
		}
		a1, replayed, err := put("a", "1.0.0", "one")
		if err != nil || replayed || a1.Created.IsZero() {
			t.Fatal(a1, replayed, err)
		}
		a2, _, err := put("a", "2.0.0", "two")
		if err != nil {
			t.Fatal(err)
		}
		b1, _, err := put("b", "1.0.0", "one")
		if err != nil {
			t.Fatal(err)
		}
		again, replayed, err := put("a", "1.0.0", "one")
		if diff := cmp.Diff(a1, again); err != nil || !replayed || diff != "" {
			t.Errorf("the same again: replayed %v, %v, (-first +again):\n%s", replayed, err, diff)
		}
		_, _, err = put("a", "1.0.0", "other")
		wantKind(t, err, agent.Exists)

		for ref, want := range map[string]agent.Plugin{"a": a2, "a@1.0.0": a1, "b": b1, string(a1.Digest): a1} {
			got, err := s.Plugin(ctx, app, ref)
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%s: %v (-want +got):\n%s", ref, err, diff)
			}
		}
		for _, ref := range []string{"", "c", "a@3", "a/../b", string(agent.DigestOf(nil)), strings.Repeat("x", 5000)} {
			_, err := s.Plugin(ctx, app, ref)
			wantKind(t, err, agent.NotFound)
		}
		list, next, err := s.Plugins(ctx, app, agent.Page{})
		if diff := cmp.Diff([]agent.Plugin{b1, a2, a1}, list); err != nil || next != "" || diff != "" {
			t.Errorf("%q, %v (-want +got):\n%s", next, err, diff)
		}
		_, _, err = put("A B", "1", "x")
		wantKind(t, err, agent.Invalid)
		_, _, err = put("a", "", "x")
		wantKind(t, err, agent.Invalid)
	})
}

func TestAgents(t *testing.T) {
	onBoth(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		a := addAgent(t, s, "a")
		b := addAgent(t, s, "b")
		_, _, err := s.CreateAgent(ctx, agent.Agent{App: app, Name: "a"}, store.Once{})
		wantKind(t, err, agent.Exists)

		got, err := s.UpdateAgent(ctx, app, "a", func(a *agent.Agent) error {
			a.Description, a.Name, a.ID = "new", "other", "other"
			return nil
		})
		if err != nil || got.Description != "new" || got.Name != "a" || got.ID != a.ID || got.Updated.Before(a.Updated) {
			t.Errorf("after the update: %+v, %v", got, err)
		}
		if read, err := s.Agent(ctx, app, "a"); err != nil || !cmp.Equal(got, read) {
			t.Errorf("read %+v, %v; want %+v", read, err, got)
		}
		refused := agent.Errorf(agent.Denied, "no")
		if _, err := s.UpdateAgent(ctx, app, "b", func(a *agent.Agent) error { a.Plugin = "q"; return refused }); !errors.Is(err, refused) {
			t.Errorf("a refused update returned %v", err)
		}

		wantKind(t, s.DeleteAgents(ctx, app, "b", "c"), agent.NotFound)
		if read, err := s.Agent(ctx, app, "b"); err != nil || !cmp.Equal(b, read) {
			t.Errorf("b is %+v, %v after a deletion that failed", read, err)
		}
		if err := s.DeleteAgents(ctx, app, "a", "b", "a"); err != nil {
			t.Fatal(err)
		}
		_, err = s.Agent(ctx, app, "a")
		wantKind(t, err, agent.NotFound)
		a = addAgent(t, s, "a")
		list, _, err := s.Agents(ctx, app, agent.Page{})
		if err != nil || len(list) != 1 || list[0].ID != a.ID {
			t.Errorf("agents are %v, %v", list, err)
		}
		if list, _, err := s.Agents(ctx, "elsewhere", agent.Page{}); err != nil || list == nil || len(list) != 0 {
			t.Errorf("agents of an empty app are %v, %v", list, err)
		}
		if err := s.Verify(ctx); err != nil {
			t.Error(err)
		}
	})
}

func TestSessions(t *testing.T) {
	onBoth(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		_, _, err := s.CreateSession(ctx, agent.Session{App: app, Agent: "a"}, store.Once{})
		wantKind(t, err, agent.NotFound)
		addAgent(t, s, "a")
		addAgent(t, s, "b")
		s1, s2, s3 := addSession(t, s, "a"), addSession(t, s, "b"), addSession(t, s, "a")
		if _, err := s.Append(ctx, store.SessionLog(app, s1.ID), events(3)); err != nil {
			t.Fatal(err)
		}
		s1.LastSeq = 3
		if got, err := s.Session(ctx, app, s1.ID); err != nil || !cmp.Equal(s1, got) {
			t.Errorf("session is %+v, %v; want %+v", got, err, s1)
		}
		for name, want := range map[string][]agent.Session{"": {s3, s2, s1}, "a": {s3, s1}, "b": {s2}, "c": {}, "a/b": {}} {
			got, _, err := s.Sessions(ctx, app, name, agent.Page{})
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("sessions of %q: %v (-want +got):\n%s", name, err, diff)
			}
		}
		_, _, err = s.CreateSession(ctx, s1, store.Once{})
		wantKind(t, err, agent.Exists)
		_, err = s.Session(ctx, app, agent.NewSessionID(time.Now()))
		wantKind(t, err, agent.NotFound)
	})
}

func TestTokens(t *testing.T) {
	clk := &clock{epoch}
	s := openStore(t, memkv.New(), t.TempDir(), &store.Options{Now: clk.now})
	ctx := t.Context()
	put := func(id agent.TokenID, hash byte, expires time.Time) error {
		return s.PutToken(ctx, agent.Token{ID: id, Name: "n", Expires: expires}, [32]byte{hash}, store.Once{})
	}
	for i, id := range []agent.TokenID{"T1", "T2", "T3"} {
		if err := put(id, byte(i), epoch.Add(time.Duration(i)*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	wantKind(t, put("T1", 9, time.Time{}), agent.Exists)
	wantKind(t, put("T9", 1, time.Time{}), agent.Exists)
	if tok, err := s.TokenByHash(ctx, [32]byte{1}); err != nil || tok.ID != "T2" {
		t.Errorf("token is %v, %v", tok, err)
	}
	for _, hash := range []byte{0, 7} { // expired, unknown
		_, err := s.TokenByHash(ctx, [32]byte{hash})
		wantKind(t, err, agent.Unauthenticated)
	}
	clk.t = epoch.Add(time.Hour)
	_, err := s.TokenByHash(ctx, [32]byte{1})
	wantKind(t, err, agent.Unauthenticated)

	_, err = s.DeleteTokens(ctx, "", "T3", "T9")
	wantKind(t, err, agent.NotFound)
	if _, err := s.TokenByHash(ctx, [32]byte{2}); err != nil {
		t.Error(err)
	}
	if _, err := s.DeleteTokens(ctx, "", "T3", "T1"); err != nil {
		t.Fatal(err)
	}
	_, err = s.TokenByHash(ctx, [32]byte{2})
	wantKind(t, err, agent.Unauthenticated)
	list, _, err := s.Tokens(ctx, "", agent.Page{})
	if err != nil || len(list) != 1 || list[0].ID != "T2" {
		t.Errorf("tokens are %v, %v", list, err)
	}
	if err := s.Verify(ctx); err != nil {
		t.Error(err)
	}
}

func TestBlobs(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, memkv.New(), dir, nil)
	ctx := t.Context()
	d := must(s.PutBlob(ctx, []byte("hello")))(t)
	if d2, err := s.PutBlob(ctx, []byte("hello")); err != nil || d2 != d || d != agent.DigestOf([]byte("hello")) {
		t.Fatal(d, d2, err)
	}
	if b, err := s.Blob(ctx, d); err != nil || string(b) != "hello" {
		t.Fatal(string(b), err)
	}
	for _, d := range []agent.Digest{agent.DigestOf([]byte("other")), "", "sha256:../../../etc/passwd"} {
		_, err := s.Blob(ctx, d)
		wantKind(t, err, agent.NotFound)
	}
	file := filepath.Join(dir, "blobs", d.Hex()[:2], d.Hex()[2:])
	if err := os.WriteFile(file, []byte("hellp"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := s.Blob(ctx, d)
	wantCorrupt(t, err, string(d))
}

func TestClosed(t *testing.T) {
	s := memStore(t)
	addAgent(t, s, "a")
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.Agent(t.Context(), app, "a")
	wantKind(t, err, agent.Unavailable)
	_, _, err = s.CreateAgent(t.Context(), agent.Agent{App: app, Name: "b"}, store.Once{})
	wantKind(t, err, agent.Unavailable)
}

func TestOneProcess(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, memkv.New(), dir, nil)
	_, err := store.Open(context.Background(), memkv.New(), dir, nil)
	wantKind(t, err, agent.Unavailable)
	if !strings.Contains(err.Error(), dir) || agent.AsError(err).Hint == "" {
		t.Errorf("the error does not name the directory or say what to do: %v", err)
	}
	s.Close()
	openStore(t, memkv.New(), dir, nil)
}
