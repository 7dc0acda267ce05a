package runtime_test

import (
	"crypto/sha256"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skep-dev/skep/agent"
)

// Keys of runs that have ended and calls of models that are kept no longer go at the start, and from then on every hour, though nobody asks models.
func TestSweepModels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, ctx := newRig(t, nil, nil), t.Context()
		key := func(id string, run agent.RunID) {
			t.Helper()
			if err := r.store.PutModelKey(ctx, agent.ModelKey{ID: id, App: app, Run: run}, sha256.Sum256([]byte(id))); err != nil {
				t.Fatal(err)
			}
		}
		log := func(age time.Duration) string {
			t.Helper()
			id := agent.NewModelCall(time.Now().Add(-age))
			if err := r.store.PutModelLog(ctx, agent.ModelLog{Call: id, App: app}); err != nil {
				t.Fatal(err)
			}
			return id
		}
		left := func(keys, calls []string) {
			t.Helper()
			synctest.Wait()
			ks, _, err := r.store.ModelKeys(ctx, app, agent.Page{})
			if err != nil || !slices.EqualFunc(ks, keys, func(k agent.ModelKey, id string) bool { return k.ID == id }) {
				t.Errorf("keys %+v, want %v: %v", ks, keys, err)
			}
			ls, _, err := r.store.ModelLogs(ctx, app, agent.Page{})
			if err != nil || !slices.EqualFunc(ls, calls, func(l agent.ModelLog, id string) bool { return l.Call == id }) {
				t.Errorf("calls %+v, want %v: %v", ls, calls, err)
			}
		}
		if _, err := r.store.PutModelLogging(ctx, agent.ModelLogging{App: app, Days: 2}); err != nil {
			t.Fatal(err)
		}
		run := r.run("a", "none", "")
		if _, err := r.Cancel(ctx, app, run.ID); err != nil {
			t.Fatal(err)
		}
		key("K1", run.ID)
		key("K2", "")
		log(49 * time.Hour)
		aging, young := log(48*time.Hour-30*time.Minute), log(time.Hour)
		r.start()
		left([]string{"K2"}, []string{young, aging})

		key("K3", run.ID)
		left([]string{"K2", "K3"}, []string{young, aging})
		time.Sleep(time.Hour)
		left([]string{"K2"}, []string{young})
	})
}
