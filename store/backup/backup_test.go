package backup_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/backup"
	"github.com/skep-dev/skep/store/engine"
	"github.com/skep-dev/skep/store/memkv"
)

const app = agent.DefaultApp

var created = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// open opens the store in dir as a server would. It is closed with the test, or before by the function.
func open(t testing.TB, dir string, k engine.Kind) (*store.Store, func()) {
	t.Helper()
	db, err := engine.Open(dir, k, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(context.Background(), db, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	closed := false
	closeAll := func() {
		if closed {
			return
		}
		closed = true
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(closeAll)
	return s, closeAll
}

// fill makes a store worth a backup: more records than fit in one chunk, and blobs, of which one is named by nothing.
func fill(t testing.TB, s *store.Store, events int) {
	t.Helper()
	ctx := t.Context()
	code := []byte("export default {}")
	for _, b := range [][]byte{code, []byte("an orphan")} {
		if _, err := s.PutBlob(ctx, b); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := s.PutPlugin(ctx, agent.Plugin{App: app, Name: "p", Version: "1", Digest: agent.DigestOf(code)}, store.Once{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.CreateAgent(ctx, agent.Agent{App: app, Name: "a", Plugin: "p"}, store.Once{Scope: "s", Key: "k"}); err != nil {
		t.Fatal(err)
	}
	run, _, _, err := s.CreateRun(ctx, store.NewRun{
		Run:     agent.Run{App: app, Agent: "a", Input: agent.Payload{Type: agent.TypeText, Body: bytes.Repeat([]byte("x"), 200_000)}},
		Session: &agent.Session{App: app, Agent: "a"},
	}, store.Once{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.PutFile(ctx, agent.File{App: app, Session: run.Session, Path: "a/b.txt"}, 0, strings.NewReader("a file")); err != nil {
		t.Fatal(err)
	}
	evs := make([]agent.Event, 100)
	for i := range evs {
		evs[i] = agent.Event{Kind: agent.EventEmit, Data: fmt.Appendf(nil, `"%01000d"`, i)}
	}
	for range events / len(evs) {
		if _, err := s.Append(ctx, store.SessionLog(app, run.Session), evs); err != nil {
			t.Fatal(err)
		}
	}
}

func write(t testing.TB, s *store.Store) ([]byte, backup.Summary) {
	t.Helper()
	var file bytes.Buffer
	sum, err := backup.Write(t.Context(), s, &file, backup.Manifest{Skep: "test", Created: created})
	if err != nil {
		t.Fatal(err)
	}
	return file.Bytes(), sum
}

// records returns what a store holds.
func records(t *testing.T, s *store.Store) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := s.Export(t.Context(), func(r store.Record) error {
		out[string(r.Key)] = string(r.Value)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A backup of any kind of database restores into any other, record for record.
func TestRestore(t *testing.T) {
	for _, from := range []engine.Kind{engine.Badger, engine.Pebble} {
		s, done := open(t, t.TempDir(), from)
		fill(t, s, 6000)
		seed, err := s.ImageSeed(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		file, sum := write(t, s)
		want := records(t, s)
		done()
		if sum.Records != int64(len(want)) || sum.Blobs != 3 {
			t.Errorf("summary is %+v, of %d records", sum, len(want))
		}
		m, got, err := backup.Check(t.Context(), bytes.NewReader(file))
		if err != nil || got != sum || m != (backup.Manifest{Version: backup.Version, Skep: "test", Created: created}) {
			t.Errorf("check of the backup: %+v, %+v, %v", m, got, err)
		}
		for _, to := range []engine.Kind{engine.Badger, engine.Pebble} {
			t.Run(fmt.Sprintf("%s to %s", from, to), func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "new")
				if _, got, err := backup.Restore(t.Context(), bytes.NewReader(file), dir, &backup.Options{Engine: to}); err != nil || got != sum {
					t.Fatal(got, err)
				}
				if k, err := engine.Detect(dir); k != to || err != nil {
					t.Errorf("restored as %s, %v", k, err)
				}
				s, done := open(t, dir, engine.Unknown)
				defer done()
				if diff := cmp.Diff(want, records(t, s)); diff != "" {
					t.Errorf("restored records differ (-want +got):\n%.2000s", diff)
				}
				if !s.WasClosed() {
					t.Error("the restored store was not closed")
				}
				if got, err := s.ImageSeed(t.Context(), nil); err != nil || !bytes.Equal(got, seed) {
					t.Errorf("the seed of images is another: %v", err)
				}
				if _, err := s.Blob(t.Context(), agent.DigestOf([]byte("an orphan"))); agent.KindOf(err) != agent.NotFound {
					t.Errorf("a blob that nothing names: %v", err)
				}
				if _, _, err := s.CreateAgent(t.Context(), agent.Agent{App: app, Name: "b"}, store.Once{}); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// A backup is of one moment, however much is written meanwhile.
func TestWriteWhileInUse(t *testing.T) {
	s, _ := open(t, t.TempDir(), engine.Pebble)
	fill(t, s, 100)
	stop, stopped := make(chan struct{}), make(chan error)
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			if _, _, err := s.CreateAgent(context.Background(), agent.Agent{App: app, Name: fmt.Sprint("b", i)}, store.Once{}); err != nil {
				stopped <- err
				return
			}
		}
	}()
	for range 3 {
		file, _ := write(t, s)
		if _, _, err := backup.Restore(t.Context(), bytes.NewReader(file), filepath.Join(t.TempDir(), "new"), nil); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// Wherever a backup is damaged or cut, it is refused and leaves nothing behind.
func TestDamagedBackup(t *testing.T) {
	s := memStore(t)
	fill(t, s, 0)
	file, _ := write(t, s)
	parent := t.TempDir()
	dir := filepath.Join(parent, "new")
	try := func(what string, b []byte) {
		t.Helper()
		_, _, err := backup.Restore(t.Context(), bytes.NewReader(b), dir, nil)
		if err == nil || agent.KindOf(err) != agent.Invalid {
			t.Errorf("%s: error is %v", what, err)
		}
		if left, _ := os.ReadDir(parent); len(left) != 0 {
			t.Fatalf("%s: %s was left behind", what, left[0].Name())
		}
	}
	manifest, sum, err := backup.Check(t.Context(), bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(file); i += len(file)/40 + 1 {
		bad := bytes.Clone(file)
		bad[i] ^= 0x10
		// Compressed streams have bits that mean nothing: what is read must be the same, or be refused.
		if m, got, err := backup.Check(t.Context(), bytes.NewReader(bad)); err == nil && (!cmp.Equal(m, manifest) || !cmp.Equal(got, sum)) {
			t.Errorf("a flipped bit in byte %d of %d is not noticed", i, len(file))
		}
		if _, _, err := backup.Check(t.Context(), bytes.NewReader(file[:i])); err == nil {
			t.Errorf("a cut at byte %d of %d is not noticed", i, len(file))
		}
	}
	try("half", file[:len(file)/2])
	try("empty", nil)
	try("text", []byte("this is no backup"))
}

func memStore(t testing.TB) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), memkv.New(), t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestRestoreOverSomething(t *testing.T) {
	s := memStore(t)
	file, _ := write(t, s)
	dir := t.TempDir()
	if _, _, err := backup.Restore(t.Context(), bytes.NewReader(file), dir, nil); err != nil {
		t.Errorf("restore to an empty directory: %v", err)
	}
	_, _, err := backup.Restore(t.Context(), bytes.NewReader(file), dir, nil)
	if agent.KindOf(err) != agent.Exists || !strings.Contains(err.Error(), dir) {
		t.Errorf("restore over a store: %v", err)
	}
}

// A damaged store has no backup.
func TestDamagedStore(t *testing.T) {
	dir := t.TempDir()
	s, done := open(t, dir, engine.Pebble)
	fill(t, s, 0)
	d := agent.DigestOf([]byte("export default {}")).Hex()
	if err := os.WriteFile(filepath.Join(dir, "blobs", d[:2], d[2:]), []byte("export default ()"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := backup.Write(t.Context(), s, &bytes.Buffer{}, backup.Manifest{})
	if agent.KindOf(err) != agent.Internal {
		t.Errorf("error is %v", err)
	}
	done()
}
