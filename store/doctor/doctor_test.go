package doctor_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/doctor"
	"github.com/skep-dev/skep/store/engine"
	"github.com/skep-dev/skep/store/instance"
	"github.com/skep-dev/skep/store/kv"
	"github.com/skep-dev/skep/store/ledger"
)

const app = agent.DefaultApp

var (
	code  = []byte("export default {}")
	pages = []byte("pages of a sleeping cell")
	input = bytes.Repeat([]byte("x"), 200_000)
)

// fill makes a closed data directory with a record of most kinds, and blobs, one of which nothing names.
func fill(t *testing.T, dir string, k engine.Kind) {
	t.Helper()
	db, err := engine.Open(dir, k, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), db, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range [][]byte{code, []byte("an orphan")} {
		if _, err := s.PutBlob(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := s.PutPlugin(t.Context(), agent.Plugin{App: app, Name: "p", Version: "1", Digest: agent.DigestOf(code)}, store.Once{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.CreateAgent(t.Context(), agent.Agent{App: app, Name: "a"}, store.Once{}); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := s.CreateRun(t.Context(), store.NewRun{
		Run:     agent.Run{App: app, Agent: "a", Input: agent.Payload{Type: agent.TypeText, Body: input}},
		Session: &agent.Session{App: app, Agent: "a"},
	}, store.Once{}); err != nil {
		t.Fatal(err)
	}
	addInstance(t, s)
	l, err := ledger.Open(t.Context(), s, dir, nil)
	if err == nil {
		err = l.Append(agent.UsageEvent{Kind: agent.UseCall, App: app, Agent: "a", Outcome: agent.Succeeded})
	}
	if err == nil {
		err = l.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// addInstance makes an instance with a part of most kinds.
func addInstance(t *testing.T, s *store.Store) {
	t.Helper()
	ctx, in := t.Context(), s.Instances()
	a, err := s.Agent(ctx, app, "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.PutBlob(ctx, pages); err != nil {
		t.Fatal(err)
	}
	id := instance.ID{App: app, Agent: a.ID, Key: "room/1"}
	info, err := in.Acquire(ctx, id, instance.ID{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.Commit(ctx, id, info.Fence, &instance.Batch{
		ID:       instance.NewBatchID(),
		State:    []agent.StateEdit{{Act: agent.StateSet, Key: "k", Value: agent.Text("v")}},
		Events:   []instance.Append{{Log: instance.OwnLog("l"), Event: agent.Event{Kind: agent.EventEmit, Data: []byte("1")}}},
		Journal:  []instance.Entry{{Run: "R", Data: []byte("x")}, {Run: "R"}},
		Alarms:   []instance.AlarmEdit{{Alarm: instance.Alarm{Name: "wake", At: time.Unix(1, 0)}}},
		Outbox:   []instance.Send{{To: id}},
		Snapshot: &instance.Snapshot{Blobs: []agent.Digest{agent.DigestOf(pages)}},
	}); err != nil {
		t.Fatal(err)
	}
}

func blobFile(dir string, content []byte) string {
	h := agent.DigestOf(content).Hex()
	return filepath.Join(dir, "blobs", h[:2], h[2:])
}

func usageFile(dir string) string {
	files, _ := filepath.Glob(filepath.Join(dir, "usage", "*.usage"))
	return files[0]
}

func change(t *testing.T, path string, fn func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, fn(b), 0o600); err != nil {
		t.Fatal(err)
	}
}

func flipped(b []byte) []byte { b[len(b)/2] ^= 1; return b }

func found(r doctor.Report, l doctor.Level, words string) bool {
	for _, f := range r.Findings {
		if f.Level == l && strings.Contains(f.Check+": "+f.Found, words) && (l == doctor.Fine || f.Do != "") {
			return true
		}
	}
	return false
}

func TestExamine(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(t *testing.T, dir string)
		level  doctor.Level
		words  string
	}{
		{"sound", func(*testing.T, string) {}, doctor.Fine, "records are whole"},
		{"orphan", func(*testing.T, string) {}, doctor.Note, "1 blobs with 0 KiB are named by nothing"},
		{"not closed", func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, "commit")) }, doctor.Note, "not closed properly"},
		{"orphan damaged", func(t *testing.T, dir string) { change(t, blobFile(dir, []byte("an orphan")), flipped) }, doctor.Note, "is damaged, and nothing names it"},
		{"blob damaged", func(t *testing.T, dir string) { change(t, blobFile(dir, input), flipped) }, doctor.Damage, "blobs: "},
		{"blob lost", func(t *testing.T, dir string) { os.Remove(blobFile(dir, input)) }, doctor.Damage, "is missing"},
		{"snapshot lost", func(t *testing.T, dir string) { os.Remove(blobFile(dir, pages)) }, doctor.Damage, `instance "room/1" of agent`},
		{"code damaged", func(t *testing.T, dir string) { change(t, blobFile(dir, code), flipped) }, doctor.Damage, "rec/plugins/default/p@1"},
		{"usage", func(*testing.T, string) {}, doctor.Fine, "usage: 1 files with 1 events are whole"},
		{"usage torn", func(t *testing.T, dir string) {
			change(t, usageFile(dir), func(b []byte) []byte { return append(b, 1) })
		}, doctor.Note, "usage: "},
		{"usage damaged", func(t *testing.T, dir string) {
			change(t, usageFile(dir), func(b []byte) []byte { b[50] ^= 1; return b })
		}, doctor.Damage, ".usage: there is no record at 32"},
		{"witness", func(t *testing.T, dir string) { change(t, filepath.Join(dir, "commit"), flipped) }, doctor.Damage, "store: "},
		{"table", func(t *testing.T, dir string) {
			files, _ := filepath.Glob(filepath.Join(engine.Dir(dir), "*.sst"))
			if len(files) == 0 {
				files, _ = filepath.Glob(filepath.Join(engine.Dir(dir), "*.log"))
			}
			change(t, files[0], func(b []byte) []byte { b[20] ^= 1; return b })
		}, doctor.Damage, ""},
	} {
		for _, k := range []engine.Kind{engine.Badger, engine.Pebble} {
			t.Run(c.name+"/"+k.String(), func(t *testing.T) {
				dir := t.TempDir()
				fill(t, dir, k)
				c.damage(t, dir)
				for range 2 { // looking does not hide what was seen
					r, err := doctor.Examine(t.Context(), dir, nil)
					if err != nil {
						t.Fatal(err)
					}
					if c.name == "not closed" && !found(r, c.level, c.words) {
						t.Errorf("no %s with %q in %+v", c.level, c.words, r.Findings)
					}
					if c.name == "not closed" {
						return
					}
					if !found(r, c.level, c.words) || r.Damaged() != (c.level == doctor.Damage) || r.Engine != k {
						t.Errorf("no %s with %q in %+v", c.level, c.words, r)
					}
				}
			})
		}
	}
}

// Any record of an instance that is lost or changed is told of with the instance's name.
func TestDamagedInstance(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir, engine.Pebble)
	kinds := map[string]int{}
	for _, c := range instanceRecords(t, dir) {
		kinds[strings.Join(strings.Split(string(c.Key), "/")[:2], "/")]++
		bad := bytes.Clone(c.Value)
		bad[len(bad)-1] ^= 1
		for _, change := range []kv.Change{{Key: c.Key, Value: bad}, {Key: c.Key, Delete: true}} {
			put(t, dir, change)
			r, err := doctor.Examine(t.Context(), dir, nil)
			if err != nil || !found(r, doctor.Damage, `instance "room/1" of agent`) {
				t.Errorf("%s, deleted %v: %v, %+v", c.Key, change.Delete, err, r.Findings)
			}
		}
		put(t, dir, c)
	}
	if r, err := doctor.Examine(t.Context(), dir, nil); err != nil || r.Damaged() || len(kinds) < 5 {
		t.Errorf("%v, %v, %+v", kinds, err, r.Findings)
	}
}

// instanceRecords returns the records of a closed store that belong to instances.
func instanceRecords(t *testing.T, dir string) (out []kv.Change) {
	t.Helper()
	inDatabase(t, dir, func(db kv.DB) error {
		return db.View(t.Context(), func(r kv.Reader) error {
			return r.Scan(nil, nil, false, func(k, v []byte) error {
				if strings.Contains(string(k), "room.2f1") {
					out = append(out, kv.Change{Key: bytes.Clone(k), Value: bytes.Clone(v)})
				}
				return nil
			})
		})
	})
	return out
}

func put(t *testing.T, dir string, c kv.Change) {
	t.Helper()
	inDatabase(t, dir, func(db kv.DB) error { return db.Apply(t.Context(), []kv.Change{c}) })
}

func inDatabase(t *testing.T, dir string, do func(kv.DB) error) {
	t.Helper()
	db, err := engine.Open(dir, engine.Unknown, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(do(db), db.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestNothingToExamine(t *testing.T) {
	dir := t.TempDir()
	_, err := doctor.Examine(t.Context(), dir, nil)
	if agent.KindOf(err) != agent.NotFound || !strings.Contains(err.Error(), dir) {
		t.Errorf("error is %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("%s was made", left[0].Name())
	}
}

func TestInUse(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir, engine.Pebble)
	db, err := engine.Open(dir, engine.Unknown, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := doctor.Examine(t.Context(), dir, nil); agent.KindOf(err) != agent.Unavailable {
		t.Errorf("error is %v", err)
	}
}
