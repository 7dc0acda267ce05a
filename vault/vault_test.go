package vault_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/kv"
	"github.com/skep-dev/skep/store/memkv"
	"github.com/skep-dev/skep/vault"
)

const (
	app    = agent.DefaultApp
	canary = "canary-6c1f0e9b-Zß/+?"
)

var by = vault.By{Token: "TOKEN", Request: "REQUEST"}

// rig is a vault whose server can be stopped and started again. db and dir stay.
type rig struct {
	t     testing.TB
	db    kv.DB
	dir   string // data directory
	key   string // source
	st    *store.Store
	v     *vault.Vault
	trail []agent.Change
	env   map[string]string
}

func newRig(t testing.TB) *rig {
	r := &rig{t: t, db: memkv.New(), dir: filepath.Join(t.TempDir(), "data"), env: map[string]string{}}
	r.key = "file:" + filepath.Join(t.TempDir(), "vault.key")
	r.start()
	return r
}

func (r *rig) options() *vault.Options {
	return &vault.Options{
		Key: r.key, Dir: r.dir, Env: func(name string) string { return r.env[name] },
		Audit: func(_ context.Context, _ agent.App, c agent.Change) error { r.trail = append(r.trail, c); return nil },
	}
}

// open starts over and returns what Open says.
func (r *rig) open(o *vault.Options) error {
	r.t.Helper()
	r.stop()
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		r.t.Fatal(err)
	}
	var err error
	if r.st, err = store.Open(r.t.Context(), r.db, r.dir, nil); err != nil {
		r.t.Fatal(err)
	}
	st := r.st
	r.t.Cleanup(func() { st.Close() })
	r.v, err = vault.Open(r.t.Context(), r.st, o)
	return err
}

func (r *rig) start() {
	r.t.Helper()
	if err := r.open(r.options()); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) stop() {
	if r.v != nil {
		r.v.Close()
	}
	if r.st != nil {
		if err := r.st.Verify(r.t.Context()); err != nil {
			r.t.Errorf("verify: %v", err)
		}
		r.st.Close()
	}
}

func (r *rig) set(name, value string) vault.Info {
	r.t.Helper()
	info, err := r.v.Set(r.t.Context(), by, app, name, vault.Put{Value: []byte(value)})
	if err != nil {
		r.t.Fatal(err)
	}
	return info
}

func (r *rig) value(name string) string {
	r.t.Helper()
	m, err := r.v.Material(r.t.Context(), app, name)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(m.Value)
}

func wantKind(t testing.TB, err error, kind agent.Kind, says ...string) {
	t.Helper()
	if err == nil || agent.KindOf(err) != kind {
		t.Fatalf("error is %v (%v), want %v", err, agent.KindOf(err), kind)
	}
	text := err.Error() + " " + agent.AsError(err).Hint
	for _, s := range says {
		if !strings.Contains(text, s) {
			t.Errorf("error does not say %q: %s", s, text)
		}
	}
	if strings.Contains(text, canary) {
		t.Errorf("the value is in an error: %s", text)
	}
}

func bindings(t testing.TB, texts ...string) *[]agent.Binding {
	t.Helper()
	bs := make([]agent.Binding, len(texts))
	for i, s := range texts {
		if err := bs[i].UnmarshalText([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	return &bs
}

func TestVersions(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	text := func(n int) string { return fmt.Sprintf("value number %d", n) }
	for n := 1; n <= 12; n++ {
		if info := r.set("key", text(n)); info.Version != n || info.Kind != agent.SecretValue {
			t.Fatalf("%+v", info)
		}
		if got := r.value("key"); got != text(n) {
			t.Fatalf("version %d is %q", n, got)
		}
	}
	info, err := r.v.Get(ctx, app, "key")
	if err != nil {
		t.Fatal(err)
	}
	var kept []int
	for _, v := range info.Versions {
		kept = append(kept, v.Version)
	}
	if diff := cmp.Diff([]int{3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, kept); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
	if info, err = r.v.Rollback(ctx, by, app, "key", 3); err != nil || info.Version != 3 || r.value("key") != text(3) {
		t.Fatalf("%+v %v", info, err)
	}
	r.start()
	if got := r.value("key"); got != text(3) {
		t.Errorf("after a restart the value is %q", got)
	}
	_, err = r.v.Rollback(ctx, by, app, "key", 2)
	wantKind(t, err, agent.NotFound, "no version 2", "3, 4, 5")
	// What follows a rollback is a new version, and the oldest goes.
	if info = r.set("key", text(13)); info.Version != 13 || len(info.Versions) != vault.Keep || info.Versions[0].Version != 4 {
		t.Errorf("%+v", info)
	}
	if err := r.v.Delete(ctx, by, app, "key"); err != nil {
		t.Fatal(err)
	}
	_, err = r.v.Material(ctx, app, "key")
	wantKind(t, err, agent.NotFound)
	if info = r.set("key", text(1)); info.Version != 1 {
		t.Errorf("a new secret of an old name: %+v", info)
	}
	if err := r.st.Verify(ctx); err != nil {
		t.Error(err)
	}
}

func TestChangeKeepsValue(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	about := "for the issues"
	info, err := r.v.Set(ctx, by, app, "gh", vault.Put{
		Value: []byte(canary), Description: &about, Bindings: bindings(t, "https://api.github.com/** query:b header:X header:x query:a"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Bindings[0].String(); got != "https://api.github.com/** header:x query:a query:b" {
		t.Errorf("places are not in order: %s", got)
	}
	if info, err = r.v.Change(ctx, by, app, "gh", vault.Patch{Bindings: bindings(t, "GET https://other.example")}); err != nil {
		t.Fatal(err)
	}
	if info.Version != 1 || info.Description != about || info.Bindings[0].String() != "GET https://other.example header:authorization" {
		t.Errorf("%+v", info)
	}
	r.start()
	m, err := r.v.Material(ctx, app, "gh")
	if err != nil || string(m.Value) != canary || m.Secret.Bindings[0].String() != info.Bindings[0].String() {
		t.Errorf("%+v %v", m, err)
	}
	if s := fmt.Sprintf("%v %+v %#v", m, m, m); strings.Contains(s, canary) || strings.Contains(s, fmt.Sprint([]byte(canary)[:4])[1:]) {
		t.Errorf("the value is printed: %s", s)
	}
	// A new value keeps the bindings.
	if info := r.set("gh", "another value"); len(info.Bindings) != 1 || info.Description != about {
		t.Errorf("%+v", info)
	}
	_, err = r.v.Set(ctx, by, app, "gh", vault.Put{Kind: agent.SecretBasic, Value: []byte(`{"username":"u","password":"` + canary + `"}`),
		Bindings: bindings(t, "https://api.github.com query:token")})
	wantKind(t, err, agent.Invalid, "Authorization header alone")
	_, err = r.v.Change(ctx, by, app, "none", vault.Patch{})
	wantKind(t, err, agent.NotFound)
}

func TestAudit(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	r.set("a", canary)
	steps := []error{
		func() error {
			_, err := r.v.Change(ctx, by, app, "a", vault.Patch{Bindings: bindings(t, "https://a.example")})
			return err
		}(),
		func() error { _, err := r.v.Rollback(ctx, by, app, "a", 1); return err }(),
		func() error { _, err := r.v.Rewrap(ctx, by, "file:"+filepath.Join(t.TempDir(), "k")); return err }(),
		r.v.Delete(ctx, by, app, "a"),
	}
	for _, err := range steps {
		if err != nil {
			t.Fatal(err)
		}
	}
	var actions []string
	for _, c := range r.trail {
		actions = append(actions, c.Action)
		if c.Token != by.Token || c.Request != by.Request || strings.Contains(fmt.Sprint(c), canary) {
			t.Errorf("%+v", c)
		}
	}
	want := []string{"secret.set", "secret.bind", "secret.rollback", "secret.rewrap", "secret.delete"}
	if diff := cmp.Diff(want, actions); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// Nothing is done that cannot be written down.
	r.v.Close()
	o := r.options()
	o.Audit = func(context.Context, agent.App, agent.Change) error { return agent.Errorf(agent.Unavailable, "full") }
	if err := r.open(o); err != nil {
		t.Fatal(err)
	}
	_, err := r.v.Set(ctx, by, app, "b", vault.Put{Value: []byte(canary)})
	wantKind(t, err, agent.Unavailable)
	_, err = r.v.Get(ctx, app, "b")
	wantKind(t, err, agent.NotFound)
}

func TestMaterialIsTheReceiversOwn(t *testing.T) {
	r := newRig(t)
	r.set("a", canary)
	for range 3 { // read, then from memory
		m, err := r.v.Material(t.Context(), app, "a")
		if err != nil || string(m.Value) != canary {
			t.Fatalf("%q %v", m.Value, err)
		}
		clear(m.Value)
	}
	p := vault.Put{Value: []byte(canary)}
	if _, err := r.v.Set(t.Context(), by, app, "a", p); err != nil || strings.Contains(string(p.Value), "c") {
		t.Errorf("what was set is still in memory: %q %v", p.Value, err)
	}
	r.v.Close()
	r.v.Close()
	_, err := r.v.Material(t.Context(), app, "a")
	wantKind(t, err, agent.Unavailable)
}

func TestManySecretsAreRead(t *testing.T) {
	r := newRig(t)
	const n = 300 // more than are kept in memory
	for i := range n {
		r.set(fmt.Sprint("s", i), fmt.Sprint("value of ", i))
	}
	for range 2 {
		for i := range n {
			if got := r.value(fmt.Sprint("s", i)); got != fmt.Sprint("value of ", i) {
				t.Fatalf("%d is %q", i, got)
			}
		}
	}
	list, next, err := r.v.List(t.Context(), app, agent.Page{Limit: 10})
	if err != nil || len(list) != 10 || next == "" || list[0].Name != "s299" {
		t.Errorf("%d %q %v", len(list), next, err)
	}
}

func TestConcurrentChanges(t *testing.T) {
	r := newRig(t)
	r.set("a", "value 0 of a")
	done := make(chan error)
	for i := range 8 {
		go func() {
			var err error
			for n := range 5 {
				if i%2 == 0 {
					_, err = r.v.Set(t.Context(), by, app, "a", vault.Put{Value: fmt.Appendf(nil, "value %d of a", 10*i+n)})
				} else {
					var m vault.Material
					if m, err = r.v.Material(t.Context(), app, "a"); err == nil && !strings.HasPrefix(string(m.Value), "value ") {
						err = fmt.Errorf("read %q", m.Value)
					}
				}
				if err != nil {
					break
				}
			}
			done <- err
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	info, err := r.v.Get(t.Context(), app, "a")
	if err != nil || info.Version != 21 {
		t.Fatalf("%+v %v", info, err)
	}
	held := r.value("a")
	r.start()
	if got := r.value("a"); got != held {
		t.Errorf("memory held %q, the store %q", held, got)
	}
}

func TestSizes(t *testing.T) {
	r := newRig(t)
	for n, ok := range map[int]bool{0: false, 5: false, 6: true, vault.MaxValue: true, vault.MaxValue + 1: false} {
		_, err := r.v.Set(t.Context(), by, app, "a", vault.Put{Value: []byte(strings.Repeat("x", n))})
		if ok != (err == nil) {
			t.Errorf("%d bytes: %v", n, err)
		}
		if !ok {
			wantKind(t, err, agent.Invalid)
		}
	}
	_, err := r.v.Set(t.Context(), by, app, "a", vault.Put{Value: []byte("short")})
	wantKind(t, err, agent.Invalid, "fewer than 6", "use a longer secret")
	many := make([]string, 65)
	for i := range many {
		many[i] = fmt.Sprintf("https://h%d.example", i)
	}
	_, err = r.v.Change(t.Context(), by, app, "a", vault.Patch{Bindings: bindings(t, many...)})
	wantKind(t, err, agent.Invalid, "65 bindings")
	if _, err = r.v.Change(t.Context(), by, app, "a", vault.Patch{Bindings: bindings(t, many[:64]...)}); err != nil {
		t.Error(err)
	}
	long := strings.Repeat("d", 1001)
	_, err = r.v.Change(t.Context(), by, app, "a", vault.Patch{Description: &long})
	wantKind(t, err, agent.Invalid, "description")
	_, err = r.v.Set(t.Context(), by, app, "Not A Name", vault.Put{Value: []byte(canary)})
	wantKind(t, err, agent.Invalid)
	_, err = r.v.Set(t.Context(), by, "nowhere", "a", vault.Put{Value: []byte(canary)})
	wantKind(t, err, agent.NotFound)
}

// encodings of the canary that must be nowhere.
func encodings() []string {
	out := []string{canary, fmt.Sprintf("%x", canary), fmt.Sprintf("%X", canary)}
	for i := range 3 {
		s := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("?", i) + canary))
		out = append(out, s[4:len(s)-4])
	}
	return out
}

// holdsCanary reports what of the canary a file holds.
func holdsCanary(b []byte) string {
	for _, s := range encodings() {
		if strings.Contains(string(b), s) {
			return s
		}
	}
	return ""
}
