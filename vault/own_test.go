package vault_test

import (
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/vault"
)

// TestOwn: what Skep keeps for itself is nobody's to name, list, change or delete.
func TestOwn(t *testing.T) {
	r := newRig(t)
	const name = "oauth:git:"
	for _, value := range []string{canary, canary + "2"} {
		if err := r.v.SetOwn(t.Context(), app, name, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	r.set("github", canary)
	r.start() // it is still there
	if b, err := r.v.Own(t.Context(), app, name); err != nil || string(b) != canary+"2" {
		t.Fatalf("got %q, %v", b, err)
	}
	list, _, err := r.v.List(t.Context(), app, agent.Page{Limit: 10})
	if err != nil || len(list) != 1 || list[0].Name != "github" {
		t.Errorf("listed are %v, %v", list, err)
	}
	for _, name := range []string{"own:oauth:git:", "oauth:git:"} {
		_, err := r.v.Get(t.Context(), app, name)
		wantKind(t, err, agent.NotFound)
		_, err = r.v.Material(t.Context(), app, name)
		wantKind(t, err, agent.NotFound)
		wantKind(t, r.v.Delete(t.Context(), by, app, name), agent.NotFound)
		_, err = r.v.Change(t.Context(), by, app, name, vault.Patch{})
		wantKind(t, err, agent.NotFound)
		_, err = r.v.Rollback(t.Context(), by, app, name, 1)
		wantKind(t, err, agent.NotFound)
		_, err = r.v.Set(t.Context(), by, app, name, vault.Put{Value: []byte(canary)})
		wantKind(t, err, agent.Invalid)
		g := agent.Grants{Secrets: []agent.SecretGrant{{Name: name}}}
		wantKind(t, g.Check(), agent.Invalid)
	}
	if n, err := r.v.DeleteAllOwn(t.Context(), app, "oauth:git:"); n != 1 || err != nil {
		t.Errorf("deleted are %d, %v", n, err)
	}
	_, err = r.v.Own(t.Context(), app, name)
	wantKind(t, err, agent.NotFound)
}
