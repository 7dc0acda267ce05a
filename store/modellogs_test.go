package store_test

import (
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/memkv"
)

// Calls that are too old go, however many; others, and those of other apps, stay. Without a setting nothing is kept.
func TestSweepModelLogs(t *testing.T) {
	c := &clock{time.Date(2026, 3, 10, 0, 0, 0, 0, time.UTC)}
	s, ctx := openStore(t, memkv.New(), t.TempDir(), &store.Options{Now: c.now}), t.Context()
	const other = "shop"
	if _, _, err := s.CreateApp(ctx, agent.AppInfo{Name: other, Weight: 1}, store.Once{}); err != nil {
		t.Fatal(err)
	}
	log := func(app agent.App, age time.Duration) {
		t.Helper()
		if err := s.PutModelLog(ctx, agent.ModelLog{Call: agent.NewModelCall(c.t.Add(-age)), App: app}); err != nil {
			t.Fatal(err)
		}
	}
	left := func(app agent.App) int {
		t.Helper()
		if err := s.SweepModelLogs(ctx, app); err != nil {
			t.Fatal(err)
		}
		list, _, err := s.ModelLogs(ctx, app, agent.Page{Limit: agent.MaxPage})
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	must(s.PutModelLogging(ctx, agent.ModelLogging{App: app, Days: 3}))(t)
	must(s.PutModelLogging(ctx, agent.ModelLogging{App: other, Days: 30}))(t)
	for range agent.MaxPage + 1 {
		log(app, 72*time.Hour+time.Second)
	}
	log(app, 72*time.Hour-time.Second)
	log(other, 72*time.Hour+time.Second)
	if n, m := left(app), left(other); n != 1 || m != 1 {
		t.Errorf("%d and %d are left", n, m)
	}
	must(s.PutModelLogging(ctx, agent.ModelLogging{App: other}))(t)
	if n := left(other); n != 0 {
		t.Errorf("%d are left", n)
	}
	if err := s.Verify(ctx); err != nil {
		t.Error(err)
	}
}
