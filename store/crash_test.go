package store_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/badgerkv"
)

// crashDir tells a child process of TestCrash where to work.
const crashDir = "SKEP_TEST_CRASH_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		work := commitForEver
		if os.Getenv(crashState) != "" {
			work = editForEver
		}
		if os.Getenv(crashInstance) != "" {
			work = turnForEver
		}
		if err := work(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// commitForEver appends to a log from several goroutines, and prints each event that was acknowledged.
func commitForEver(dir string) error {
	ctx := context.Background()
	db, err := badgerkv.Open(filepath.Join(dir, "kv"), nil)
	if err != nil {
		return err
	}
	s, err := store.Open(ctx, db, dir, nil)
	if err != nil {
		return err
	}
	list, _, err := s.Sessions(ctx, app, "", agent.Page{})
	if err != nil {
		return err
	}
	log := store.SessionLog(app, list[0].ID)
	var out sync.Mutex
	failed := make(chan error)
	for w := range 8 {
		go func() {
			for i := 0; ; i++ {
				data := fmt.Sprintf(`"%d-%d-%d"`, os.Getpid(), w, i)
				evs, err := s.Append(ctx, log, []agent.Event{{Kind: agent.EventEmit, Data: json.RawMessage(data)}})
				if err != nil {
					failed <- err
					return
				}
				out.Lock()
				fmt.Printf("%d %s\n", evs[0].Seq, data)
				out.Unlock()
			}
		}()
	}
	return <-failed
}

// A process that is killed again and again loses nothing that it acknowledged, and doubles nothing.
func TestCrash(t *testing.T) {
	dir := t.TempDir()
	open := func() (*store.Store, func()) {
		db, err := badgerkv.Open(filepath.Join(dir, "kv"), nil)
		if err != nil {
			t.Fatal(err)
		}
		s, err := store.Open(t.Context(), db, dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		return s, func() { s.Close(); db.Close() }
	}
	s, done := open()
	addAgent(t, s, "a")
	log := store.SessionLog(app, addSession(t, s, "a").ID)
	done()

	acked := map[int64]string{}
	for round := range 4 {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), crashDir+"="+dir)
		child.Stderr = os.Stderr
		stdout, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		before := len(acked)
		lines := bufio.NewReader(stdout)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				if err != io.EOF {
					t.Error(err)
				}
				break
			}
			var seq int64
			var data string
			if _, err := fmt.Sscanf(line, "%d %s\n", &seq, &data); err != nil {
				t.Fatalf("line %q: %v", line, err)
			}
			if old, ok := acked[seq]; ok {
				t.Errorf("event %d was acknowledged as %s and as %s", seq, old, data)
			}
			acked[seq] = data
			if len(acked)-before == 200+100*round {
				child.Process.Signal(syscall.SIGKILL)
			}
		}
		child.Wait()
		if len(acked) == before {
			t.Fatal("the child acknowledged nothing")
		}

		s, done := open()
		_, last, err := s.Bounds(t.Context(), log)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		n := int64(0)
		for n < last {
			evs, err := s.Read(t.Context(), log, n, 1000)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range evs {
				if n++; e.Seq != n {
					t.Fatalf("event %d follows %d", e.Seq, n-1)
				}
				if want, ok := acked[n]; ok && want != string(e.Data) {
					t.Errorf("event %d is %s, and was acknowledged as %s", n, e.Data, want)
				}
				if seen[string(e.Data)] {
					t.Errorf("event %s is there twice", e.Data)
				}
				seen[string(e.Data)] = true
			}
		}
		for seq := range acked {
			if seq > last {
				t.Errorf("event %d was acknowledged; the log ends at %d", seq, last)
			}
		}
		if err := s.Verify(t.Context()); err != nil {
			t.Error(err)
		}
		done()
	}
}
