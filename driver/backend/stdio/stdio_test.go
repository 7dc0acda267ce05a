package stdio

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-dev/skep/agent"
	"github.com/skep-dev/skep/driver"
	"github.com/skep-dev/skep/driver/backend"
)

// one gives a byte at a time.
type one struct{ r io.Reader }

func (o one) Read(p []byte) (int, error) { return o.r.Read(p[:min(1, len(p))]) }

func TestLines(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	in := "a\r\n\n  \n" + long + "\nb\u2028c\n" + long[:50] + "\nlast"
	for _, r := range []io.Reader{strings.NewReader(in), one{strings.NewReader(in)}} {
		var got []string
		err := Lines(r, 50, func(line []byte, whole bool) { got = append(got, fmt.Sprint(len(line), whole)) })
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"1 true", "4096 false", "5 true", "50 true", "4 true"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("lines (-want +got):\n%s", diff)
		}
	}
	broken := errors.New("broken")
	if err := Lines(io.MultiReader(strings.NewReader("a"), failing{broken}), 50, func([]byte, bool) {}); !errors.Is(err, broken) {
		t.Errorf("an error of the reader: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nb\r\n\n{\"x\":1}"), 3)
	f.Fuzz(func(t *testing.T, in []byte, most int) {
		most = most&0xff + 1
		_ = Lines(one{bytes.NewReader(in)}, most, func(line []byte, whole bool) {
			switch {
			case len(bytes.TrimSpace(line)) == 0, bytes.IndexByte(line, '\n') >= 0:
				t.Errorf("%q is no line", line)
			case whole && len(line) > most, !whole && len(line) > headLine:
				t.Errorf("a line has %d bytes", len(line))
			}
		})
	})
}

// A CLI that does not read must not hold up who wants to end it.
func TestSendToWhoDoesNotRead(t *testing.T) {
	r, in := io.Pipe()
	w := NewWriter(in)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	for range 2 {
		if err := w.Send(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a line that nobody reads: %v", err)
		}
	}
	_ = r.Close()
	if err := w.Send(t.Context(), 1); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a line to the dead: %v", err)
	}
}

func TestWithin(t *testing.T) {
	for in, want := range map[string]string{
		"/w/a/b.txt": "a/b.txt", "a.txt": "a.txt", "/w/../etc/passwd": "/etc/passwd", "../x": "/x", "/w": ".", "/wx/a": "/wx/a", "": "", "/w/..a": "..a", "/": "/",
	} {
		if got := Within("/w", in); got != want {
			t.Errorf("Within(%q) = %q, want %q", in, got, want)
		}
	}
}

// told is a sink.
type told struct {
	mu   sync.Mutex
	list []string
}

func (d *told) sink(e driver.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = append(d.list, strings.TrimSpace(e.Turn+" "+e.Type+" "+e.Native))
}

func TestSessionTellsInOrder(t *testing.T) {
	var d told
	s := NewSession("Test", d.sink)
	s.Tell(driver.ModelRetry, "", driver.RetryData{Attempt: 1}) // before the CLI has said who it is
	s.Started(driver.SessionData{ID: "1", CLI: "test"})
	if err := s.Begin("t1"); err != nil {
		t.Fatal(err)
	}
	if err := s.Begin("t2"); agent.KindOf(err) != agent.Conflict {
		t.Errorf("a turn in a turn: %v", err)
	}
	answered := 0
	ask := func(context.Context, *driver.Answer) error { answered++; return nil }
	for _, id := range []string{"p1", "p2", "p3"} {
		s.Ask(id, driver.PermissionAsked, driver.PermissionData{ID: id}, ask)
	}
	if err := s.Answer(t.Context(), &driver.Answer{ID: "p1"}); err != nil || answered != 1 {
		t.Errorf("an answer: %v, given %d times", err, answered)
	}
	if err := s.Answer(t.Context(), &driver.Answer{ID: "p1"}); agent.KindOf(err) != agent.NotFound {
		t.Errorf("an answer for the second time: %v", err)
	}
	if !s.Withdraw("p2") || s.Withdraw("p2") || s.Withdraw("p1") {
		t.Error("what is asked is withdrawn once")
	}
	s.Finish(driver.TurnEnd{Status: driver.TurnCompleted})
	s.Finish(driver.TurnEnd{Status: driver.TurnCompleted})
	if err := s.Answer(t.Context(), &driver.Answer{ID: "p3"}); agent.KindOf(err) != agent.NotFound {
		t.Errorf("an answer after the turn: %v", err)
	}
	if err := s.Begin("t2"); err != nil {
		t.Fatal(err)
	}
	s.End(driver.ProcessData{Code: -1, Signal: "killed"})
	s.End(driver.ProcessData{})
	if err := s.Begin("t3"); agent.KindOf(err) != agent.Unavailable {
		t.Errorf("a turn of the dead: %v", err)
	}
	want := []string{
		"session.started", "model.retry", "t1 turn.started", "t1 permission.asked p1", "t1 permission.asked p2", "t1 permission.asked p3",
		"t1 permission.withdrawn p2", "t1 permission.withdrawn p3", "t1 turn.ended", "t2 turn.started", "t2 turn.ended",
	}
	if diff := cmp.Diff(want, d.list); diff != "" {
		t.Errorf("what was told (-want +got):\n%s", diff)
	}
}

// Whoever comes first, a turn that has begun has one end, and it comes after its beginning.
func TestSessionDiesAsATurnBegins(t *testing.T) {
	for range 200 {
		var d told
		s := NewSession("Test", d.sink)
		s.Started(driver.SessionData{ID: "1", CLI: "test"})
		var both sync.WaitGroup
		var err error
		both.Go(func() { err = s.Begin("t") })
		both.Go(func() { s.End(driver.ProcessData{Code: 1}) })
		both.Wait()
		want := []string{"session.started"}
		if err == nil {
			want = append(want, "t turn.started", "t turn.ended")
		}
		if diff := cmp.Diff(want, d.list); diff != "" {
			t.Fatalf("what was told (-want +got):\n%s", diff)
		}
	}
}

// mute is a process that has closed its output, and ends by KILL alone.
type mute struct {
	backend.Process
	done chan struct{}
}

func (m mute) Done() <-chan struct{} { return m.done }

func (m mute) Signal(name string, group bool) error {
	if name == "KILL" && group {
		close(m.done)
	}
	return nil
}

func (m mute) Wait() driver.ProcessData {
	<-m.done
	return driver.ProcessData{Signal: "KILL"}
}

// A CLI that says nothing any more and lives on would leave its turn without an end.
func TestReap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if d := Reap(mute{done: make(chan struct{})}); d.Signal != "KILL" || time.Since(began) != grace {
			t.Errorf("after %s it ended by %q", time.Since(began), d.Signal)
		}
	})
}

func TestDied(t *testing.T) {
	for _, c := range []struct {
		how  driver.ProcessData
		kind agent.Kind
		want string
	}{
		{driver.ProcessData{Code: 3, Tail: "x\nno space left\n"}, agent.Unavailable, "Test ended with status 3: no space left"},
		{driver.ProcessData{Code: -1, Signal: "killed"}, agent.Unavailable, "Test was ended by the signal killed"},
		{driver.ProcessData{Code: -1, Signal: "killed", OOM: true}, agent.Exhausted, "Test was ended for want of memory"},
	} {
		if f := Died("Test", c.how); f.Kind != c.kind || f.Message != c.want {
			t.Errorf("%+v is %+v", c.how, f)
		}
	}
}
