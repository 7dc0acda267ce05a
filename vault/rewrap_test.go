package vault_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store/faultkv"
	"github.com/skep-dev/skep/vault"
)

func (r *rig) fill() map[string]string {
	r.t.Helper()
	want := map[string]string{}
	for i := range 3 {
		name := fmt.Sprint("s", i)
		r.set(name, "first value of "+name)
		want[name] = "second value of " + name
		r.set(name, want[name])
	}
	return want
}

func (r *rig) check(want map[string]string) {
	r.t.Helper()
	for name, value := range want {
		if got := r.value(name); got != value {
			r.t.Fatalf("%s is %q, want %q", name, got, value)
		}
	}
}

// keysUsed returns how many versions are under each key.
func (r *rig) keysUsed() map[string]int {
	r.t.Helper()
	all, err := r.st.AllSecrets(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	n := map[string]int{}
	for _, s := range all {
		for _, id := range s.KeysUsed() {
			n[id]++
		}
	}
	return n
}

func TestRewrap(t *testing.T) {
	r := newRig(t)
	want := r.fill()
	old := r.key
	next := "file:" + filepath.Join(t.TempDir(), "sub", "next.key")
	done, err := r.v.Rewrap(t.Context(), by, next)
	if err != nil || done.Secrets != 3 || done.Versions != 6 || done.Source != next || !strings.HasPrefix(done.Key, "file-") {
		t.Fatalf("%+v %v", done, err)
	}
	r.check(want)
	if used := r.keysUsed(); len(used) != 1 || used[done.Key] != 9 {
		t.Errorf("%v", used)
	}
	again, err := r.v.Rewrap(t.Context(), by, next)
	if err != nil || again.Secrets != 0 || again.Key != done.Key {
		t.Errorf("%+v %v", again, err)
	}
	// The old key is of no use any more, and the refusal says where the right one is.
	err = r.open(r.options())
	wantKind(t, err, agent.Invalid, done.Key, next, old, "--vault-key")
	r.key = next
	r.start()
	r.check(want)
	if _, err := r.v.Rollback(t.Context(), by, app, "s1", 1); err != nil || r.value("s1") != "first value of s1" {
		t.Error(err)
	}
	_, err = r.v.Rewrap(t.Context(), by, "memory")
	wantKind(t, err, agent.Invalid)
	_, err = r.v.Rewrap(t.Context(), by, "file:"+filepath.Join(r.dir, "k"))
	wantKind(t, err, agent.Invalid, "in the data directory")
	_, err = r.v.Rewrap(t.Context(), by, "hcvault://evil.example/transit/keys/k")
	wantKind(t, err, agent.Denied, "was not told to send its token to evil.example")
}

// A new key at the start, beside the old one, is a re-wrap, too.
func TestRewrapAtStart(t *testing.T) {
	r := newRig(t)
	want := r.fill()
	old := r.key
	r.key = "file:" + filepath.Join(t.TempDir(), "next.key")
	wantKind(t, r.open(r.options()), agent.Invalid, old)
	if _, err := os.Stat(strings.TrimPrefix(r.key, "file:")); err == nil {
		t.Error("a key was made that nothing is under")
	}
	o := r.options()
	o.OldKeys = []string{old}
	if err := r.open(o); err != nil {
		t.Fatal(err)
	}
	r.check(want)
	if used := r.keysUsed(); len(used) != 1 {
		t.Errorf("%v", used)
	}
	r.start() // without the old one
	r.check(want)
	o.OldKeys = []string{"file:/does/not/exist"}
	wantKind(t, r.open(o), agent.NotFound, "/does/not/exist")
}

// A re-wrap that is cut off at any commit is ended by the next start, whether that names the old key, as a supervisor would, or
// the new one with the old beside it. Values can be read throughout, and no other change is lost.
func TestRewrapSurvivesAKillAtAnyCommit(t *testing.T) {
	const commits = 5 // the keys, three secrets, the end
	for kill := 1; kill <= commits+1; kill++ {
		for _, took := range []bool{false, true} {
			for _, with := range []string{"old key", "new key"} {
				t.Run(fmt.Sprintf("kill %d took %v then %s", kill, took, with), func(t *testing.T) {
					r := newRig(t)
					want := r.fill()
					old, next := r.key, "file:"+filepath.Join(t.TempDir(), "next.key")
					inner := r.db
					n, armed := 0, false
					fault := faultkv.New(inner, func(o faultkv.Op) faultkv.Fault {
						if !armed || o.Kind != faultkv.Apply {
							return faultkv.Fault{}
						}
						if n++; n == kill {
							return faultkv.Fault{Err: errors.New("killed"), Took: took, Crash: true}
						}
						return faultkv.Fault{}
					})
					r.db = fault
					r.start()
					armed = true
					_, err := r.v.Rewrap(t.Context(), by, next)
					if kill > commits {
						if err != nil || n != commits {
							t.Errorf("%d commits and %v", n, err)
						}
						return
					}
					if err == nil {
						t.Fatal("it was not cut off")
					}
					r.v.Close()
					r.st.Close()
					r.st, r.v, r.db = nil, nil, inner

					o := r.options()
					if with == "new key" {
						o.Key, o.OldKeys = next, []string{old}
					}
					switch {
					case with == "old key" && kill == 1 && !took: // nothing was begun
						next = old
					case with == "old key" && kill == commits && took: // all was done
						wantKind(t, r.open(o), agent.Invalid, next)
						o.Key = next
					}
					if err := r.open(o); err != nil {
						t.Fatal(err)
					}
					r.check(want)
					if used := r.keysUsed(); len(used) != 1 {
						t.Errorf("secrets are still under %v", used)
					}
					r.key = next
					r.start()
					r.check(want)
				})
			}
		}
	}
}

// While a re-wrap is under way and one key cannot be had, the start says which.
func TestHalfRewrappedWithoutAKey(t *testing.T) {
	r := newRig(t)
	r.fill()
	next := "file:" + filepath.Join(t.TempDir(), "next.key")
	inner := r.db
	n, armed := 0, false
	r.db = faultkv.New(inner, func(o faultkv.Op) faultkv.Fault {
		if armed && o.Kind == faultkv.Apply {
			if n++; n == 3 {
				return faultkv.Fault{Err: errors.New("killed"), Crash: true}
			}
		}
		return faultkv.Fault{}
	})
	r.start()
	armed = true
	if _, err := r.v.Rewrap(t.Context(), by, next); err == nil {
		t.Fatal("not cut off")
	}
	r.st.Close()
	r.v, r.st, r.db = nil, nil, inner
	path := strings.TrimPrefix(next, "file:")
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	wantKind(t, r.open(r.options()), agent.Invalid, next, "what was given is "+r.key)
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	r.start()
}

// Secrets are used and set while a re-wrap runs.
func TestRewrapWithoutDowntime(t *testing.T) {
	r := newRig(t)
	r.fill()
	hold, reached := make(chan struct{}), make(chan struct{})
	var applies int
	var armed bool
	r.db = faultkv.New(r.db, func(o faultkv.Op) faultkv.Fault {
		if armed && o.Kind == faultkv.Apply {
			if applies++; applies == 3 {
				close(reached)
				return faultkv.Fault{Before: hold}
			}
		}
		return faultkv.Fault{}
	})
	r.start()
	armed = true
	done := make(chan error, 1)
	next := "file:" + filepath.Join(t.TempDir(), "next.key")
	go func() { _, err := r.v.Rewrap(t.Context(), by, next); done <- err }()
	<-reached
	for i := range 3 { // half of them are under the old key
		if got := r.value(fmt.Sprint("s", i)); !strings.HasPrefix(got, "second value") {
			t.Errorf("%q", got)
		}
	}
	_, err := r.v.Rewrap(t.Context(), by, next)
	wantKind(t, err, agent.Conflict, "under way")
	set := make(chan error, 1)
	go func() {
		_, err := r.v.Set(t.Context(), by, app, "fresh", vault.Put{Value: []byte("a fresh value")})
		set <- err
	}()
	close(hold)
	if err := errors.Join(<-done, <-set); err != nil {
		t.Fatal(err)
	}
	r.key = next
	r.start()
	if got := r.value("fresh"); got != "a fresh value" || len(r.keysUsed()) != 1 {
		t.Errorf("%q %v", got, r.keysUsed())
	}
}

// A secret that was tampered with holds up itself alone, and the old key stays known.
func TestRewrapPassesOverWhatCannotBeOpened(t *testing.T) {
	r := newRig(t)
	r.fill()
	s, values, err := r.st.SealedSecret(t.Context(), app, "s1")
	if err != nil {
		t.Fatal(err)
	}
	s.Seal.Data[20] ^= 1
	if _, err := r.st.SaveSecret(t.Context(), s, values); err != nil {
		t.Fatal(err)
	}
	next := "file:" + filepath.Join(t.TempDir(), "next.key")
	done, err := r.v.Rewrap(t.Context(), by, next)
	wantKind(t, err, agent.Conflict, "1 secrets", "s1 in app default")
	if done.Secrets != 2 {
		t.Errorf("%+v", done)
	}
	r.start() // both keys are still there
	if got := r.value("s2"); got != "second value of s2" {
		t.Error(got)
	}
	if err := r.v.Delete(t.Context(), by, app, "s1"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.v.Rewrap(t.Context(), by, next); err != nil {
		t.Fatal(err)
	}
	r.key = next
	r.start()
}
