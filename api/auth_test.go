package api

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/api/client"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/memkv"
)

func TestTokens(t *testing.T) {
	var shift atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(shift.Load())) }
	r, ctx := start(t, &Options{Now: now}), context.Background()
	forever, err := r.c.CreateToken(ctx, client.NewToken{Name: "forever"})
	if err != nil || !regexp.MustCompile(`^skep_[0-9A-Za-z]{43}$`).MatchString(forever.Secret) {
		t.Fatalf("%+v %v", forever, err)
	}
	short, err := r.c.CreateToken(ctx, client.NewToken{Name: "short", Expires: now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	as := func(secret string) error {
		_, err := client.New(r.url, secret, nil).Agents(ctx, agent.Page{})
		return err
	}
	for _, secret := range []string{forever.Secret, short.Secret, forever.Secret, short.Secret} { // looked up, then remembered
		if err := as(secret); err != nil {
			t.Fatal(err)
		}
	}
	shift.Store(int64(time.Hour))
	if e := wantKind(t, as(short.Secret), agent.Unauthenticated); !strings.Contains(e.Msg, "expired") {
		t.Errorf("%+v", e)
	}
	list, err := r.c.Tokens(ctx, agent.Page{})
	if err != nil || len(list.Items) != 3 {
		t.Errorf("%+v %v", list, err)
	}
	wantKind(t, r.c.DeleteTokens(ctx, forever.ID, "nobody"), agent.NotFound)
	if err := as(forever.Secret); err != nil {
		t.Error("after a deletion that failed:", err)
	}
	if res := r.do("DELETE", "/v1/tokens/"+string(forever.ID), ""); res.StatusCode != 204 {
		t.Errorf("%s", res.Status)
	}
	wantKind(t, as(forever.Secret), agent.Unauthenticated)
}

// A lookup that began before a deletion must not bring the token back.
func TestDeletionBeatsLookup(t *testing.T) {
	r := start(t, nil)
	made, err := r.c.CreateToken(context.Background(), client.NewToken{Name: "x"})
	if err != nil {
		t.Fatal(err)
	}
	ts := r.s.tokens
	hash, gen := secretHash(made.Secret), ts.gen
	if _, err := ts.remove(context.Background(), "", made.ID); err != nil {
		t.Fatal(err)
	}
	ts.keep(hash, made.Token, gen)
	if _, found := ts.known[hash]; found {
		t.Error("the token came back")
	}
}

func TestEnsureOwnerToken(t *testing.T) {
	ctx := context.Background()
	open := func() *store.Store {
		st, err := store.Open(ctx, memkv.New(), t.TempDir(), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { st.Close() })
		return st
	}
	st, path := open(), filepath.Join(t.TempDir(), "owner.token")
	if created, err := EnsureOwnerToken(ctx, st, path); !created || err != nil {
		t.Fatal(created, err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	known := func(st *store.Store) bool {
		_, err := st.TokenByHash(ctx, secretHash(strings.TrimSpace(string(b))))
		return err == nil
	}
	if !known(st) {
		t.Error("the token is not known")
	}
	if created, err := EnsureOwnerToken(ctx, st, path); created || err != nil {
		t.Error("second start:", created, err)
	}

	fresh := open() // the data was lost, the file was not
	if created, err := EnsureOwnerToken(ctx, fresh, path); created || err != nil || !known(fresh) {
		t.Error("fresh store:", created, err)
	}
	list, _, err := st.Tokens(ctx, "", agent.Page{})
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	other := agent.Token{ID: agent.NewTokenID(time.Now()), Name: "other"}
	if err := st.PutToken(ctx, other, [32]byte{1}, store.Once{}); err != nil {
		t.Fatal(err)
	}
	if _, err := st.DeleteTokens(ctx, "", list[0].ID); err != nil { // on purpose: it stays deleted
		t.Fatal(err)
	}
	if _, err := EnsureOwnerToken(ctx, st, path); err != nil || known(st) {
		t.Error("a deleted token came back", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if created, err := EnsureOwnerToken(ctx, st, path); !created || err != nil {
		t.Error("lost file:", created, err)
	}
	if err := os.WriteFile(path, []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := EnsureOwnerToken(ctx, open(), path); err == nil {
		t.Error("junk was taken for a token")
	}
}
