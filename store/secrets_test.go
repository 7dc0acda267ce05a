package store_test

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/memkv"
)

// newSecret is one at its first version.
func newSecret(name string) store.Secret {
	return store.Secret{
		Secret:   agent.Secret{App: app, Name: name, Kind: agent.SecretValue, Bindings: []agent.Binding{}, Version: 1},
		Last:     1,
		Versions: []agent.SecretVersion{{Version: 1, Kind: agent.SecretValue, Key: "k1"}},
		Seal:     store.SecretSeal{Key: "k1", Data: []byte("seal")},
	}
}

func addSecret(t testing.TB, s *store.Store, name string) store.Secret {
	t.Helper()
	if err := s.PutVaultKeys(t.Context(), store.VaultKeys{Current: "k1", Keys: []store.VaultKey{{ID: "k1", Source: "file:/k"}}}); err != nil {
		t.Fatal(err)
	}
	return must(s.SaveSecret(t.Context(), newSecret(name), map[int][]byte{1: []byte("sealed one")}))(t)
}

func TestSecrets(t *testing.T) {
	onBoth(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		one := addSecret(t, s, "a")
		if one.Rev != 1 || one.Created.IsZero() {
			t.Errorf("%+v", one)
		}
		_, err := s.SaveSecret(ctx, newSecret("a"), map[int][]byte{1: []byte("x")})
		wantKind(t, err, agent.Exists)

		two := one
		two.Version, two.Last = 2, 2
		two.Versions = append(two.Versions[:1:1], agent.SecretVersion{Version: 2, Kind: agent.SecretValue, Key: "k1"})
		two = must(s.SaveSecret(ctx, two, map[int][]byte{2: []byte("sealed two")}))(t)
		_, err = s.SaveSecret(ctx, one, nil)
		wantKind(t, err, agent.Conflict)
		got, sealed, err := s.SealedSecret(ctx, app, "a", 1, 2)
		if err != nil || string(sealed[1]) != "sealed one" || string(sealed[2]) != "sealed two" {
			t.Fatal(sealed, err)
		}
		if diff := cmp.Diff(two, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		// A version that is listed no more is gone, and its value with it.
		two.Versions = two.Versions[1:]
		two = must(s.SaveSecret(ctx, two, nil))(t)
		_, _, err = s.SealedSecret(ctx, app, "a", 1)
		wantKind(t, err, agent.NotFound)
		if _, sealed, err = s.SealedSecret(ctx, app, "a"); err != nil || string(sealed[2]) != "sealed two" {
			t.Error(sealed, err)
		}

		addSecret(t, s, "b")
		list, _, err := s.Secrets(ctx, app, agent.Page{})
		if err != nil || len(list) != 2 || list[0].Name != "b" {
			t.Error(list, err)
		}
		if all := must(s.AllSecrets(ctx))(t); len(all) != 2 {
			t.Error(all)
		}
		if err := s.Verify(ctx); err != nil {
			t.Error(err)
		}
		if err := s.DeleteSecret(ctx, app, "a"); err != nil {
			t.Fatal(err)
		}
		wantKind(t, s.DeleteSecret(ctx, app, "a"), agent.NotFound)
		_, err = s.SaveSecret(ctx, two, nil)
		wantKind(t, err, agent.Conflict)
		addSecret(t, s, "a")
		if err := s.Verify(ctx); err != nil {
			t.Error(err)
		}
	})
}

func TestSecretsThatCannotBe(t *testing.T) {
	db := memkv.New()
	s := openStore(t, db, t.TempDir(), nil)
	one := map[int][]byte{1: []byte("x")}
	_, err := s.SaveSecret(t.Context(), newSecret("a"), one)
	wantCorrupt(t, err, "meta/vault") // no key is known
	addSecret(t, s, "first")
	for name, edit := range map[string]func(sec *store.Secret, sealed map[int][]byte){
		"name":               func(sec *store.Secret, _ map[int][]byte) { sec.Name = "Not A Name" },
		"value too big":      func(_ *store.Secret, sealed map[int][]byte) { sealed[1] = bytes.Repeat([]byte("x"), 96<<10+1) },
		"value empty":        func(_ *store.Secret, sealed map[int][]byte) { sealed[1] = []byte{} },
		"version not listed": func(_ *store.Secret, sealed map[int][]byte) { sealed[2] = []byte("x") },
		"current not listed": func(sec *store.Secret, _ map[int][]byte) { sec.Version = 2 },
	} {
		sec, sealed := newSecret("a"), map[int][]byte{1: []byte("x")}
		edit(&sec, sealed)
		if _, err := s.SaveSecret(t.Context(), sec, sealed); err == nil || agent.KindOf(err) != agent.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	sec := newSecret("a")
	sec.App = "nowhere"
	_, err = s.SaveSecret(t.Context(), sec, one)
	wantKind(t, err, agent.NotFound)
	_, err = s.SaveSecret(t.Context(), newSecret("a"), nil)
	wantCorrupt(t, err, "sealed/default/a/")
	big := map[int][]byte{1: bytes.Repeat([]byte("x"), 96<<10)}
	if _, err := s.SaveSecret(t.Context(), newSecret("a"), big); err != nil {
		t.Error(err)
	}
	if err := s.Verify(t.Context()); err != nil {
		t.Error(err)
	}
}
