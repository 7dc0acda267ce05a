package store_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/store"
	"github.com/skep-dev/skep/store/badgerkv"
)

// crashState tells a child process of TestStateCrash which agent's state to edit.
const crashState = "SKEP_TEST_CRASH_STATE"

// editForEver counts in a state from several goroutines, each in two keys that belong together, and prints each count that was
// acknowledged.
func editForEver(dir string) error {
	ctx := context.Background()
	db, err := badgerkv.Open(filepath.Join(dir, "kv"), nil)
	if err != nil {
		return err
	}
	s, err := store.Open(ctx, db, dir, nil)
	if err != nil {
		return err
	}
	o := store.AgentState(app, agent.AgentID(os.Getenv(crashState)))
	var out sync.Mutex
	failed := make(chan error)
	for w := range 8 {
		one, two := fmt.Sprintf("%d/one", w), fmt.Sprintf("%d/two", w)
		go func() {
			for {
				was, err := s.State(ctx, o, one, two)
				if err != nil {
					failed <- err
					return
				}
				n, version := 0, int64(0)
				if len(was) > 0 {
					n, _ = strconv.Atoi(string(was[0].Value.Body))
					version = was[0].Version
				}
				next := strconv.Itoa(n + 1)
				if _, err := s.EditState(ctx, o, wide, when(set(one, next), version), when(set(two, next), version)); err != nil {
					failed <- err
					return
				}
				out.Lock()
				fmt.Printf("%d %d\n", w, n+1)
				out.Unlock()
			}
		}()
	}
	return <-failed
}

// A state whose process is killed again and again has every commit that was acknowledged, at most one for each writer that was
// not, and none by half.
func TestStateCrash(t *testing.T) {
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
	a := addAgent(t, s, "a")
	done()
	acked := map[int]int{}
	for round := range 4 {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), crashDir+"="+dir, crashState+"="+string(a.ID))
		child.Stderr = os.Stderr
		stdout, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		lines, n := bufio.NewReader(stdout), 0
		for ; ; n++ {
			line, err := lines.ReadString('\n')
			if errors.Is(err, io.EOF) {
				break
			}
			var w, count int
			if _, err := fmt.Sscanf(line, "%d %d\n", &w, &count); err != nil {
				t.Fatalf("line %q: %v", line, err)
			}
			acked[w] = count
			if n == 100+70*round {
				child.Process.Signal(syscall.SIGKILL)
			}
		}
		child.Wait()
		if n == 0 {
			t.Fatal("the child acknowledged nothing")
		}
		s, done := open()
		for w, count := range acked {
			got := must(s.State(t.Context(), store.AgentState(app, a.ID), fmt.Sprintf("%d/one", w), fmt.Sprintf("%d/two", w)))(t)
			if len(got) != 2 || got[0].Version != got[1].Version || string(got[0].Value.Body) != string(got[1].Value.Body) {
				t.Fatalf("writer %d left half a commit: %v", w, got)
			}
			if n, _ := strconv.Atoi(string(got[0].Value.Body)); n != count && n != count+1 {
				t.Errorf("writer %d is at %d, %d was acknowledged", w, n, count)
			} else {
				acked[w] = n
			}
		}
		if err := s.Verify(t.Context()); err != nil {
			t.Error(err)
		}
		done()
	}
}
