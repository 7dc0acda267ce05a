package vault_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/backup"
	"github.com/skep-dev/skep/store/engine"
	"github.com/skep-dev/skep/vault"
)

// Who can write to the data directory and has no key gains nothing: records that were put in one another's place or were edited
// are refused, with the store's own API for a pen.
func TestEditedRecordsAreRefused(t *testing.T) {
	other := agent.App("other")
	for name, edit := range map[string]func(t *testing.T, r *rig, s *store.Secret, values map[int][]byte){
		"value of another secret": func(t *testing.T, r *rig, s *store.Secret, values map[int][]byte) {
			_, b, err := r.st.SealedSecret(t.Context(), app, "b")
			if err != nil {
				t.Fatal(err)
			}
			values[2] = b[1]
		},
		"value of another app": func(t *testing.T, r *rig, s *store.Secret, values map[int][]byte) {
			_, b, err := r.st.SealedSecret(t.Context(), other, "a", 2)
			if err != nil {
				t.Fatal(err)
			}
			values[2] = b[2]
		},
		"value of another version": func(t *testing.T, r *rig, s *store.Secret, values map[int][]byte) {
			_, b, err := r.st.SealedSecret(t.Context(), app, "a", 1)
			if err != nil {
				t.Fatal(err)
			}
			values[2] = b[1]
		},
		"older version made current": func(_ *testing.T, _ *rig, s *store.Secret, _ map[int][]byte) { s.Version = 1 },
		"truncated to its head":      func(_ *testing.T, _ *rig, _ *store.Secret, values map[int][]byte) { values[2] = values[2][:3] },
		"last byte cut off": func(_ *testing.T, _ *rig, _ *store.Secret, values map[int][]byte) {
			values[2] = values[2][:len(values[2])-1]
		},
		"value's own key flipped": func(_ *testing.T, _ *rig, _ *store.Secret, values map[int][]byte) { values[2][10] ^= 1 },
		"text flipped":            func(_ *testing.T, _ *rig, _ *store.Secret, values map[int][]byte) { values[2][len(values[2])-20] ^= 1 },
		"length of the key huge":  func(_ *testing.T, _ *rig, _ *store.Secret, values map[int][]byte) { values[2][0] = 0xff },
		"bound to another host": func(t *testing.T, _ *rig, s *store.Secret, _ map[int][]byte) {
			s.Bindings = *bindings(t, "https://evil.example")
		},
		"bound to another place": func(t *testing.T, _ *rig, s *store.Secret, _ map[int][]byte) {
			s.Bindings = *bindings(t, "https://api.example/** query:q")
		},
		"another kind": func(_ *testing.T, _ *rig, s *store.Secret, _ map[int][]byte) {
			s.Kind, s.Versions[1].Kind = agent.SecretBasic, agent.SecretBasic
		},
		"another kind of one version": func(_ *testing.T, _ *rig, s *store.Secret, _ map[int][]byte) { s.Versions[1].Kind = agent.SecretBasic },
		"seal of another secret": func(t *testing.T, r *rig, s *store.Secret, _ map[int][]byte) {
			b, err := r.st.Secret(t.Context(), app, "b")
			if err != nil {
				t.Fatal(err)
			}
			s.Seal, s.Bindings = b.Seal, b.Bindings
		},
		"seal cut off": func(_ *testing.T, _ *rig, s *store.Secret, _ map[int][]byte) { s.Seal.Data = nil },
		"value as a seal": func(_ *testing.T, _ *rig, s *store.Secret, values map[int][]byte) {
			n := int(values[2][2])<<8 | int(values[2][3])
			s.Seal.Data = values[2][4 : 4+n]
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			ctx := t.Context()
			if _, _, err := r.st.CreateApp(ctx, agent.AppInfo{Name: other, Weight: 1}, store.Once{}); err != nil {
				t.Fatal(err)
			}
			for _, a := range []agent.App{app, other} {
				for range 2 {
					_, err := r.v.Set(ctx, by, a, "a", vault.Put{Value: []byte(canary), Bindings: bindings(t, "https://api.example/**")})
					if err != nil {
						t.Fatal(err)
					}
				}
			}
			r.set("b", "the value of another")
			s, values, err := r.st.SealedSecret(ctx, app, "a", 2)
			if err != nil {
				t.Fatal(err)
			}
			edit(t, r, &s, values)
			if _, err = r.st.SaveSecret(ctx, s, values); err != nil {
				t.Fatal(err)
			}
			r.start() // nothing is in memory
			m, err := r.v.Material(ctx, app, "a")
			if err == nil {
				t.Fatalf("it was opened: %s", m.Value)
			}
			wantKind(t, err, agent.Internal, "secret a is not as the vault stored it")
			// A change must not bless what was edited, unless only the value was.
			if _, err := r.v.Change(ctx, by, app, "a", vault.Patch{}); err == nil {
				if _, err := r.v.Material(ctx, app, "a"); err == nil {
					t.Error("a change sealed what was edited")
				}
			}
			if got := r.value("b"); got != "the value of another" {
				t.Errorf("b is %q", got)
			}
			if err := r.v.Delete(ctx, by, app, "a"); err != nil {
				t.Error(err)
			}
		})
	}
}

// A whole secret under another's name is refused, too.
func TestRenamedSecretIsRefused(t *testing.T) {
	r := newRig(t)
	r.set("a", canary)
	s, values, err := r.st.SealedSecret(t.Context(), app, "a")
	if err != nil {
		t.Fatal(err)
	}
	s.Name, s.Rev = "b", 0
	if _, err := r.st.SaveSecret(t.Context(), s, values); err != nil {
		t.Fatal(err)
	}
	_, err = r.v.Material(t.Context(), app, "b")
	wantKind(t, err, agent.Internal, "secret b is not as the vault stored it")
}

// After every kind of use neither the data directory nor a log nor a backup holds a value in any form, whatever the database.
func TestDataDirectoryHoldsNoValue(t *testing.T) {
	for _, kind := range []engine.Kind{engine.Badger, engine.Pebble} {
		t.Run(kind.String(), func(t *testing.T) {
			ctx := t.Context()
			dir, keys := t.TempDir(), t.TempDir()
			db, err := engine.Open(dir, kind, nil)
			if err != nil {
				t.Fatal(err)
			}
			st, err := store.Open(ctx, db, dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			o := &vault.Options{Key: "file:" + filepath.Join(keys, "k"), Dir: dir, Log: slog.New(slog.NewTextHandler(&log, nil))}
			v, err := vault.Open(ctx, st, o)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range []vault.Put{
				{Value: []byte(canary)},
				{Value: []byte(strings.Repeat(canary, 1000))},
				{Kind: agent.SecretBasic, Value: mustJSON(t, map[string]string{"username": canary, "password": canary})},
			} {
				if _, err := v.Set(ctx, by, app, "a", p); err != nil {
					t.Fatal(err)
				}
				if _, err := v.Material(ctx, app, "a"); err != nil {
					t.Fatal(err)
				}
			}
			for _, bad := range []vault.Put{
				{Kind: agent.SecretOAuth, Value: []byte(canary)}, {Kind: agent.SecretAWS, Value: mustJSON(t, map[string]string{canary: canary})},
				{Kind: agent.SecretGitHub, Value: mustJSON(t, map[string]string{"app_id": "1", "installation_id": "2", "private_key": canary})},
				{Kind: agent.SecretOAuth, Value: mustJSON(t, map[string]string{"token_url": canary, "client_id": canary, "client_secret": canary})},
			} {
				_, err := v.Set(ctx, by, app, "b", bad)
				wantKind(t, err, agent.Invalid)
				if f := holdsCanary([]byte(err.Error() + agent.AsError(err).Hint)); f != "" {
					t.Errorf("an error holds %q: %v", f, err)
				}
			}
			if _, err := v.Rewrap(ctx, by, "file:"+filepath.Join(keys, "k2")); err != nil {
				t.Fatal(err)
			}
			var saved bytes.Buffer
			if _, err := backup.Write(ctx, st, &saved, backup.Manifest{}); err != nil {
				t.Fatal(err)
			}
			if err := st.Close(); err != nil {
				t.Fatal(err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			restored := filepath.Join(t.TempDir(), "restored")
			if _, _, err := backup.Restore(ctx, &saved, restored, &backup.Options{Engine: engine.Pebble}); err != nil {
				t.Fatal(err)
			}
			for _, d := range []string{dir, restored} {
				if files := grepCanary(t, d); files == 0 {
					t.Errorf("no file was looked at in %s", d)
				}
			}
			if f := holdsCanary(log.Bytes()); f != "" {
				t.Errorf("the log holds %q", f)
			}

			// With the key the restored store has its secrets, and without it nothing starts.
			db, err = engine.Open(restored, engine.Unknown, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if st, err = store.Open(ctx, db, restored, nil); err != nil {
				t.Fatal(err)
			}
			defer st.Close()
			_, err = vault.Open(ctx, st, &vault.Options{Key: "file:" + filepath.Join(keys, "k"), Dir: restored})
			wantKind(t, err, agent.Invalid, filepath.Join(keys, "k2"))
			if v, err = vault.Open(ctx, st, &vault.Options{Key: "file:" + filepath.Join(keys, "k2"), Dir: restored}); err != nil {
				t.Fatal(err)
			}
			m, err := v.Material(ctx, app, "a")
			if err != nil || m.Secret.Kind != agent.SecretBasic {
				t.Fatalf("%v %v", m, err)
			}
		})
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// grepCanary looks into every file below dir and returns how many those are.
func grepCanary(t *testing.T, dir string) (n int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if f := holdsCanary(b); f != "" {
			t.Errorf("%s holds %q", path, f)
		}
		n++
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
