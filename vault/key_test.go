package vault_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/memkv"
	"github.com/skep-dev/skep/vault"
	"github.com/skep-dev/skep/vault/kek/kektest"
)

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestMissingAndWrongKeys(t *testing.T) {
	r := newRig(t)
	path := strings.TrimPrefix(r.key, "file:")
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("%v %v", st, err)
	}
	// A store without secrets starts with any key.
	good := r.key
	r.key = "file:" + filepath.Join(t.TempDir(), "another.key")
	r.start()
	r.key = good
	r.start()
	r.set("a", canary)
	id := r.keysUsed()

	r.key = "file:" + writeFile(t, "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n")
	err = r.open(r.options())
	for want := range id {
		wantKind(t, err, agent.Invalid, want, good, r.key)
	}
	for _, text := range []string{"", "short", canary, strings.Repeat("A", 100)} {
		r.key = "file:" + writeFile(t, text)
		wantKind(t, r.open(r.options()), agent.Invalid, good, "does not hold a key")
	}

	r.key = good
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	wantKind(t, r.open(r.options()), agent.Invalid, "there is no file "+path)
	if _, err := os.Stat(path); err == nil {
		t.Error("a new key was put in the place of the missing one")
	}
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	// A key that was moved is the same key.
	moved := filepath.Join(t.TempDir(), "moved")
	if err := os.Rename(path, moved); err != nil {
		t.Fatal(err)
	}
	r.key = "file:" + moved
	r.start()
	if r.value("a") != canary {
		t.Error("the value is another")
	}
}

// A key that is lost takes its secrets with it, and nothing else: neither secrets under another key, nor any when it turns up again.
func TestLostKey(t *testing.T) {
	r := newRig(t)
	if r.v.NewKey() != r.key {
		t.Errorf("the new key is %q, not %q", r.v.NewKey(), r.key)
	}
	r.set("gone", canary)
	path := strings.TrimPrefix(r.key, "file:")
	var lost string
	for id := range r.keysUsed() {
		lost = id
	}
	o := r.options()
	o.LostKeys = []string{lost}
	if err := r.open(o); err != nil || r.value("gone") != canary || r.v.NewKey() != "" {
		t.Fatalf("the key is there: %v, new key %q", err, r.v.NewKey())
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	wantKind(t, r.open(r.options()), agent.Invalid, "there is no file "+path)
	o = r.options()
	o.LostKeys = []string{"file-0000000000000000"}
	wantKind(t, r.open(o), agent.Invalid, "there is no file "+path)
	if _, err := os.Stat(path); err == nil {
		t.Error("a new key was put in the place of the missing one")
	}
	o.LostKeys = []string{lost}
	r.trail = nil
	if err := r.open(o); err != nil {
		t.Fatal(err)
	}
	if _, err := r.v.Get(t.Context(), app, "gone"); agent.KindOf(err) != agent.NotFound {
		t.Errorf("the secret: %v", err)
	}
	if len(r.trail) != 1 || r.trail[0].Action != "secret.delete" || r.trail[0].Name != "gone" || !strings.Contains(r.trail[0].Detail, lost) {
		t.Errorf("the audit: %+v", r.trail)
	}
	r.set("new", canary)
	if err := r.open(o); err != nil || r.value("new") != canary {
		t.Errorf("started again: %v", err)
	}
}

func TestKeyInTheDataDirectoryIsRefused(t *testing.T) {
	r := newRig(t)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(r.dir, link); err != nil {
		t.Fatal(err)
	}
	away := filepath.Join(t.TempDir(), "away")
	if err := os.WriteFile(filepath.Join(r.dir, "k"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(r.dir, "k"), away); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		filepath.Join(r.dir, "k"), filepath.Join(r.dir, "deep", "er", "k"), filepath.Join(link, "k2"), away, r.dir,
		filepath.Join(r.dir, "x", "..", "k3"),
	} {
		for _, scheme := range []string{"file:", "age:"} {
			r.key = scheme + path
			wantKind(t, r.open(r.options()), agent.Invalid, "is in the data directory "+r.dir)
		}
	}
	r.key = "file:" + r.dir + "-beside/k" // begins with the same letters
	r.start()
}

func TestKeysThatAreNone(t *testing.T) {
	r := newRig(t)
	open := writeFile(t, "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n")
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	for source, says := range map[string]string{
		"nonsense":                       "no such kind of key",
		"file:":                          "no such kind of key",
		"gcp-kms://x":                    "no such kind of key",
		"file:relative":                  "is not absolute",
		"file:" + open:                   "chmod 600",
		"file:" + t.TempDir():            "not a file",
		"file:/proc/nowhere/k":           "cannot be made",
		"age:/does/not/exist":            "there is no file",
		"age:" + writeFile(t, canary):    "does not hold age identities",
		"hcvault://h/transit/k":          "not the address of a transit key",
		"hcvault://u:p@h/transit/keys/k": "a name or a password",
		"hcvault://h/transit/keys/k":     "VAULT_TOKEN",
		"hcvault://h/../keys/k":          "not the address of a transit key",
		"hcvault://h/t/keys/k?x=1":       "not the address of a transit key",
		"aws-kms://arn:aws:kms:x":        "does not name a key",
		"aws-kms://arn:aws:kms:eu-west-1:123456789012:key/k": "AWS_ACCESS_KEY_ID",
	} {
		r.key = source
		err := r.open(r.options())
		if err == nil {
			t.Errorf("%s is taken", source)
			continue
		}
		wantKind(t, err, agent.KindOf(err), says)
		if k := agent.KindOf(err); k == agent.Internal {
			t.Errorf("%s: %v", source, err)
		}
	}
}

// Where the default key cannot be had, a server without secrets starts all the same, and says why it takes none.
func TestNoPlaceForTheDefaultKey(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", "/proc/nowhere")
	r := newRig(t)
	r.key = ""
	var log bytes.Buffer
	o := r.options()
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	if err := r.open(o); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "no secrets can be kept") {
		t.Errorf("the log says %s", log.String())
	}
	_, err := r.v.Set(t.Context(), by, app, "a", vault.Put{Value: []byte(canary)})
	wantKind(t, err, agent.Invalid, "cannot be made", "--vault-key")
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	r.start()
	r.set("a", canary)
	t.Setenv("XDG_CONFIG_HOME", "/proc/nowhere")
	wantKind(t, r.open(r.options()), agent.Invalid)
}

func TestAgeIdentity(t *testing.T) {
	x, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	pq, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"X25519": x.String(), "hybrid": pq.String()} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.key = "age:" + writeFile(t, "# made by age-keygen\n"+text+"\n")
			r.start()
			r.set("a", canary)
			r.start()
			if r.value("a") != canary {
				t.Error("the value is another")
			}
			known, err := r.st.VaultKeys(t.Context())
			if err != nil || len(known.Keys) != 1 || !strings.HasPrefix(known.Current, "age-") {
				t.Fatalf("%+v %v", known, err)
			}
			// A new identity beside the old one in the same file still opens it, wherever it stands.
			fresh, err := age.GenerateX25519Identity()
			if err != nil {
				t.Fatal(err)
			}
			r.key = "age:" + writeFile(t, fresh.String()+"\n"+text+"\n")
			r.start()
			if r.value("a") != canary {
				t.Error("the value is another")
			}
			mine := r.key
			r.key = "age:" + writeFile(t, fresh.String()+"\n")
			wantKind(t, r.open(r.options()), agent.Invalid, known.Current, "no key in this store was encrypted to an identity")
			// And from there to a file, and to the new identity.
			r.key = mine
			r.start()
			for _, next := range []string{"file:" + filepath.Join(t.TempDir(), "k"), "age:" + writeFile(t, fresh.String())} {
				if _, err := r.v.Rewrap(t.Context(), by, next); err != nil {
					t.Fatal(err)
				}
				r.key = next
				r.start()
				if r.value("a") != canary {
					t.Error("the value is another")
				}
			}
		})
	}
}

// A commit that fails while the first key is remembered leaves a store that starts.
func TestOpenCutOff(t *testing.T) {
	st, err := store.Open(t.Context(), memkv.New(), t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o := &vault.Options{Key: "file:" + filepath.Join(t.TempDir(), "k")}
	if _, err := vault.Open(ctx, st, o); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := vault.Open(t.Context(), st, o); err != nil {
		t.Error(err)
	}
}

// From a file to a transit engine and back, as an operator would move, with the engine away for a while.
func TestTransitKey(t *testing.T) {
	e := kektest.NewTransit("hvs.token")
	server := httptest.NewServer(e)
	defer server.Close()
	r := newRig(t)
	r.set("a", canary)
	source := "hcvault://" + strings.TrimPrefix(server.URL, "http://") + "/sub/transit/keys/skep"
	_, err := r.v.Rewrap(t.Context(), by, source)
	wantKind(t, err, agent.Denied, "was not told to send its token")
	r.env["VAULT_ADDR"], r.env["VAULT_TOKEN"] = server.URL, "hvs.token"
	done, err := r.v.Rewrap(t.Context(), by, source)
	if err != nil || done.Versions != 1 || !strings.HasPrefix(done.Key, "hcvault-") {
		t.Fatalf("%+v %v", done, err)
	}
	file := r.key
	r.key = source
	r.start()
	if r.value("a") != canary {
		t.Error("the value is another")
	}
	before := e.Seen()
	for range 3 {
		r.value("a")
	}
	if e.Seen() != before {
		t.Error("the engine is asked for a value that is in memory")
	}

	// An engine that is away, or that refuses, stops the start and says so; one of that name with another key does, too.
	e.SetStatus(503)
	wantKind(t, r.open(r.options()), agent.Unavailable, "cannot serve")
	e.SetStatus(0)
	r.env["VAULT_TOKEN"] = "hvs.other"
	err = r.open(r.options())
	wantKind(t, err, agent.Invalid, "refused")
	if hint := agent.AsError(err).Hint; !strings.Contains(hint, "credentials") || strings.Contains(hint, "lost") {
		t.Errorf("the hint is %q", hint)
	}
	r.env["VAULT_TOKEN"] = "hvs.token"
	e.Replace()
	wantKind(t, r.open(r.options()), agent.Invalid, "is not the key that this store's secrets are under")
	e.Restore()
	r.start()
	if _, err := r.v.Rewrap(t.Context(), by, file); err != nil {
		t.Fatal(err)
	}
	r.key = file
	server.Close()
	r.start()
	if r.value("a") != canary {
		t.Error("the value is another")
	}
}
